"""One connection to an origin, owned by one request at a time: sends it, and reads its response read by read."""

import socket
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, cast

import trio

from ..http_headers import Header
from ..limits import READS_A_TURN, RECEIVE_BYTES_MAX, SEND_BYTES_MAX, WRITE_TIMEOUT_S
from .connect import Origin
from .errors import ResetError, StalledError, WireError
from .exchange import Exchange
from .tls import TlsStream

__all__ = ["Connection", "Outgoing", "Read"]


class Read(NamedTuple):
    """The body bytes of one socket read, and its time on trio's clock."""

    t: float
    data: bytes


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request; it can be sent again if its body is bytes."""

    origin: Origin
    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    body: bytes | AsyncIterable[bytes]


class Connection:
    """A stream and the exchange on it. Its owner closes it or gives it back to the pool."""

    def __init__(self, origin: Origin, stream: trio.abc.Stream, *, write_timeout_s: float = WRITE_TIMEOUT_S) -> None:
        self.origin = origin
        self.idle_since = 0.0
        self.sent_at = 0.0
        """When the last request began to go out."""
        self.exchange = Exchange()
        """The one that is under way, or was last."""
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._sent = False
        #: Reads and small sends bypass trio's layers, and a turn of the scheduler, where the socket is the kernel's.
        self._raw = _raw_socket(stream)
        self._reads_without_wait = 0

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the socket has taken this one, and nothing came after its response."""
        return self._sent and self.exchange.reusable

    @property
    def readable(self) -> bool:
        """Whether something came without a request: nearly always a close."""
        stream = self._stream
        while isinstance(stream, TlsStream):
            stream = stream.transport
        raw = _raw_socket(stream)
        if raw is None:
            return False
        try:
            raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # as good as a close
        return True

    async def send(self, outgoing: Outgoing) -> Read:
        """Send a request until the head of its response has come (`exchange.head`); return the read that completed it.

        If the response comes before the request is out, the rest of the request is not sent. Raise WireError, or what
        the body raises; then, and when this is cancelled, the caller closes the connection.
        """
        exchange = self.exchange = Exchange()
        self._sent = False
        self.sent_at = trio.current_time()
        head = exchange.request(outgoing.method, outgoing.target, outgoing.headers)
        if not isinstance(outgoing.body, bytes) or len(outgoing.body) > SEND_BYTES_MAX:
            return await self._send_and_read(head, outgoing.body)
        self._sent = await self._send(head + exchange.data(outgoing.body) + exchange.finish())
        return await self._read_head()

    async def receive(self) -> Read:
        """Make one socket read and feed it to `exchange`. A cancelled call has lost nothing."""
        data = b""
        try:
            if self._raw is None:
                data = bytes(await self._stream.receive_some(RECEIVE_BYTES_MAX))
            else:
                if self._reads_without_wait >= READS_A_TURN:  # before the read: a cancelled call has lost nothing
                    self._reads_without_wait = 0
                    await trio.lowlevel.checkpoint()
                while True:
                    try:
                        data = self._raw.recv(RECEIVE_BYTES_MAX)
                        break
                    except BlockingIOError:
                        self._reads_without_wait = 0
                        await trio.lowlevel.wait_readable(self._raw)
                self._reads_without_wait += 1
        except (trio.BrokenResourceError, OSError):
            self.exchange.fail(ResetError("the upstream reset the connection"))
            return Read(trio.current_time(), b"")
        return Read(trio.current_time(), self.exchange.feed(data))

    async def aclose(self) -> None:
        """Close the stream at once, without waiting; works in a cancelled scope."""
        await trio.aclose_forcefully(self._stream)

    async def _read_head(self) -> Read:
        while True:
            read = await self.receive()
            if self.exchange.head is not None:
                return read
            if self.exchange.fault is not None:
                raise self.exchange.fault

    async def _send_and_read(self, head: bytes, body: bytes | AsyncIterable[bytes]) -> Read:
        reads: list[Read] = []
        failures: list[Exception] = []

        async def upload() -> None:
            try:
                self._sent = await self._upload(head, body)
            except Exception as error:  # noqa: BLE001 - the body is the caller's; raised below without a group
                failures.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            try:
                reads.append(await self._read_head())
            except WireError as error:
                failures.append(error)
            nursery.cancel_scope.cancel()
        if reads:
            return reads[0]
        raise failures[0]

    async def _upload(self, head: bytes, body: bytes | AsyncIterable[bytes]) -> bool:
        """Send head and body; False if the peer takes no more, and may have answered already."""
        if not await self._send(head):
            return False
        if isinstance(body, bytes):
            return await self._send_pieces(body) and await self._send(self.exchange.finish())
        pieces = aiter(body)
        try:
            async for data in pieces:
                if not await self._send_pieces(data):
                    return False
        finally:
            if isinstance(pieces, AsyncGenerator):  # left early, it would wait for the garbage collector
                await cast("AsyncGenerator[bytes]", pieces).aclose()
        return await self._send(self.exchange.finish())

    async def _send_pieces(self, data: bytes) -> bool:
        for at in range(0, len(data), SEND_BYTES_MAX):
            if not await self._send(self.exchange.data(data[at : at + SEND_BYTES_MAX])):
                return False
        return True

    async def _send(self, data: bytes) -> bool:
        """Send all bytes; False if the peer takes no more. Its reason is read, not guessed."""
        if self._raw is not None:
            with suppress(OSError):  # the next send raises it again, unless only the buffer was full
                data = data[self._raw.send(data) :]
        if not data:
            return True
        with trio.move_on_after(self._write_timeout_s):
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            return True
        raise StalledError(f"the upstream took nothing of the request for {self._write_timeout_s:g} s")


def _raw_socket(stream: trio.abc.Stream) -> socket.socket | None:
    """Return the standard library's socket under trio's; a contract test pins its name."""
    raw = getattr(stream.socket, "_sock", None) if isinstance(stream, trio.SocketStream) else None
    return raw if isinstance(raw, socket.socket) else None
