"""Requests as they come over one connection, and what is refused because it is none

Whoever reads has answers to send meanwhile: `watch` goes on reading, keeps what comes early, and knows whether the
connection broke or only nothing more comes.
"""

import re
from http import HTTPStatus
from typing import Final

import h11
import trio

from .script import Request

__all__ = ["Reader", "RefusedError"]

#: One read of the socket.
_RECEIVE_BYTES: Final = 64 * 1024
#: Of one request: 40 times what a long conversation with pictures has.
_REQUEST_BYTES_MAX: Final = 256 * 1024 * 1024
#: Of one head; gateways put tokens of 20 KB into theirs.
_HEAD_BYTES_MAX: Final = 64 * 1024
#: How TLS begins.
_TLS: Final = b"\x16\x03"
#: What h11 quotes of a request may be a key.
_QUOTED: Final = re.compile(r"[ :(]*(?:bytearray\()?b?['\"].*", re.DOTALL)


class RefusedError(Exception):
    """What came is no request that can be answered; the status, and why in words that quote nothing of it."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Reader:
    """Requests of one connection, in order; what comes early waits."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        #: The connection is gone, and not merely its other side done with sending.
        self.broken = False
        #: Nothing more comes.
        self.silent = trio.Event()
        self._stream = stream
        self._early = bytearray()

    async def more(self) -> bool:
        """Reads once; whether there may be more."""
        data = await self._stream.receive_some(_RECEIVE_BYTES)
        self._early += data
        return bool(data)

    def forget(self) -> None:
        """What came and was not asked for."""
        self._early.clear()

    async def watch(self, scope: trio.CancelScope) -> None:
        """While an answer goes out: ends it where the connection breaks."""
        try:
            while await self.more():
                if len(self._early) > _REQUEST_BYTES_MAX:  # nobody asks so much ahead
                    await trio.sleep_forever()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self.broken = True
            scope.cancel()
        self.silent.set()

    async def request(self) -> Request | None:
        """The next one; None where the other side has left. Raises RefusedError."""
        try:
            return await self._request()
        except h11.RemoteProtocolError as error:
            why = _QUOTED.sub("", str(error))
            raise RefusedError(error.error_status_hint, why or "not HTTP") from error

    async def _request(self) -> Request | None:
        await self._skip_empty_lines()
        # A parser for each, since we answer without it.
        parser = h11.Connection(h11.SERVER, max_incomplete_event_size=_HEAD_BYTES_MAX)
        head: h11.Request | None = None
        body = bytearray()
        while True:
            event = parser.next_event()
            if isinstance(event, h11.Request):
                head = event
                if head.http_version >= b"2":
                    raise RefusedError(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED, "HTTP/1.1 is spoken here")
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
        """As RFC 9112, 2.2 has it: some clients send one behind a body."""
        while True:
            while self._early.startswith((b"\r\n", b"\n")):
                del self._early[: 1 + self._early.startswith(b"\r")]
            if bytes(self._early) not in (b"", b"\r") or not await self.more():
                return

    async def _feed(self, parser: h11.Connection) -> None:
        if not self._early:
            await self.more()
        if self._early.startswith(_TLS) and parser.their_state is h11.IDLE and not parser.trailing_data[0]:
            raise RefusedError(HTTPStatus.BAD_REQUEST, "this is TLS, and the URL of a replay begins with http://")
        parser.receive_data(bytes(self._early))  # nothing is the end
        self._early.clear()
