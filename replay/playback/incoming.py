"""Read the requests of one connection, also while a response is being sent."""

import re
from http import HTTPStatus
from typing import Final

import h11
import trio

from .script import Request

__all__ = ["Reader", "RefusedError"]

_RECEIVE_BYTES: Final = 64 * 1024
#: 40 times a long conversation with pictures.
_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
#: Gateways put tokens of 20 KB into a head.
_HEAD_BYTES_MAX: Final = 64 * 1024
_TLS: Final = b"\x16\x03"
#: The part of a message in which h11 quotes the request, and perhaps a key.
_QUOTED: Final = re.compile(r"[ :(]*(?:bytearray\()?b?['\"].*", re.DOTALL)


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
        try:
            return await self._request()
        except h11.RemoteProtocolError as error:
            why = _QUOTED.sub("", str(error))
            raise RefusedError(error.error_status_hint, why or "not HTTP") from error

    async def _request(self) -> Request | None:
        await self._skip_empty_lines()
        # A new parser for each request, because the responses do not pass through it.
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                head = event
                if head.http_version >= b"2":
                    raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "only HTTP/1.1 is supported")
                if parser.they_are_waiting_for_100_continue:
                    await self._stream.send_all(b"HTTP/1.1 100 Continue\r\n\r\n")
            elif isinstance(event, h11.Data):
                body += event.data
                if len(body) > _REQUEST_BYTES_MAX:
                    raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"more than {_REQUEST_BYTES_MAX} bytes")
            elif isinstance(event, h11.EndOfMessage) and head is not None:
                self._early[:0] = parser.trailing_data[0]
                return Request(head.method, head.target, list(head.headers), bytes(body), head.http_version)
            elif event is h11.NEED_DATA:
                await self._feed(parser)
            else:
                return None

    async def _skip_empty_lines(self) -> None:
        """Skip the empty lines that some clients send after a body (RFC 9112, 2.2)."""
        while True:
            while self._early.startswith((b"\r\n", b"\n")):
                del self._early[: 1 + self._early.startswith(b"\r")]
            if bytes(self._early) not in (b"", b"\r") or not await self.more():
                return

    async def _feed(self, parser: h11.Connection) -> None:
        if not self._early:
            await self.more()
        if self._early.startswith(_TLS) and parser.their_state is h11.IDLE and not parser.trailing_data[0]:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "this is TLS: the URL of a replay begins with http://")
        parser.receive_data(bytes(self._early))  # no data is the end
        self._early.clear()
