"""Read the requests of one connection, also while a response is being sent."""

from http import HTTPStatus
from typing import Final

import trio

from wiretape.proxy.http1 import Dechunker, MalformedError
from wiretape.proxy.server.request_head import HeadReader, Refusal, RequestHead

from .script import Request

__all__ = ["Reader", "RefusedError"]

_RECEIVE_BYTES: Final = 64 * 1024
#: 40 times a long conversation with pictures.
_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024


class RefusedError(Exception):
    """The received bytes are not a request that can be answered. The message quotes none of them."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Reader:
    """The requests of one connection, in order."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        #: The connection broke, rather than the client only closing its sending side.
        self.broken = False
        #: Set when nothing more will come.
        self.silent = trio.Event()
        self._stream = stream
        self._early = bytearray()

    async def more(self) -> bool:
        """Read once; return False at the end."""
        data = await self._stream.receive_some(_RECEIVE_BYTES)
        self._early += data
        return bool(data)

    def forget(self) -> None:
        """Drop what was received."""
        self._early.clear()

    async def watch(self, scope: trio.CancelScope) -> None:
        """Keep what arrives during a response, and cancel the response if the connection breaks."""
        try:
            while await self.more():
                if len(self._early) > _REQUEST_BYTES_MAX:
                    await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
            scope.cancel()
        self.silent.set()

    async def request(self) -> Request | None:
        """Return the next request, or None if the client left. Raise RefusedError."""
        heads = HeadReader(h2c_offers="ignored")
        while True:
            data = self._take()
            head = heads.feed(data if heads.started else data.lstrip(b"\r\n"))  # empty lines after a body, also bare LF
            if head is not None:
                break
            if not await self.more():
                if heads.started:
                    raise RefusedError(HTTPStatus.BAD_REQUEST, "The client left inside a request head.")
                return None
        if isinstance(head, Refusal):
            raise RefusedError(head.status, head.message)
        if head.expects_continue:
            await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._early[:0] = head.rest
        body = await self._body(head)
        return Request(head.method.encode(), head.target, head.headers, body, head.http_version.encode())

    async def _body(self, head: RequestHead) -> bytes:
        body, chunks = bytearray(), Dechunker()
        while True:
            data = self._take()
            if head.length is None:
                try:
                    chunks.feed(data)
                except MalformedError as error:
                    raise RefusedError(HTTPStatus.BAD_REQUEST, f"The request body is not HTTP/1.1: {error}.") from error
                body += b"".join(chunks.parts)
                done, rest = chunks.done, chunks.rest
            else:
                cut = head.length - len(body)
                body += data[:cut]
                done, rest = len(body) == head.length, data[cut:]
            if len(body) > _REQUEST_BYTES_MAX:
                raise RefusedError(
                    HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"The request is longer than {_REQUEST_BYTES_MAX} bytes."
                )
            if done:
                self._early[:0] = rest
                return bytes(body)
            if not await self.more():
                raise RefusedError(HTTPStatus.BAD_REQUEST, "The client left inside a request body.")

    def _take(self) -> bytes:
        data = bytes(self._early)
        self._early.clear()
        return data
