"""One connection to an origin, owned by one request at a time: sends it, and reads its answer read by read."""

import socket
from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import trio

from ..http_headers import Header
from ..limits import READS_A_TURN, RECEIVE_BYTES_MAX, SEND_BYTES_MAX, WRITE_TIMEOUT_S
from ..server.reading import received
from .connect import Origin
from .errors import ResetError, StalledError, WireError
from .exchange import Exchange, machine
from .tls import TlsStream

__all__ = ["Connection", "Direct", "Outgoing", "Read"]


class Read(NamedTuple):
    """What one socket read brought of the body, and when (trio's clock)."""

    t: float
    data: bytes


class Direct(Protocol):
    """What takes and gives bytes without waiting, as a socket does; BlockingIOError where it would have to wait.

    The socket under trio's stream, where nothing is between; any other stream may have one as its `direct`.
    """

    def send(self, data: bytes, /) -> int:
        """How much of it was taken."""
        ...

    def recv(self, bytes_max: int, /) -> bytes:
        """What is there; empty at the end."""
        ...


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request; its body can be sent again where it is bytes."""

    origin: Origin
    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    body: bytes | AsyncIterable[bytes]


class Connection:
    """A stream and the state of HTTP/1.1 on it.

    Whoever has it closes it or gives it back; there is no list of connections in use that could be wrong.
    """

    def __init__(self, origin: Origin, stream: trio.abc.Stream, *, write_timeout_s: float = WRITE_TIMEOUT_S) -> None:
        self.origin = origin
        self.idle_since = 0.0
        #: When the last request began to go out.
        self.asked_at = 0.0
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._exchange: Exchange | None = None
        self._sent = False
        #: Of a request that has begun: what is not sent yet.
        self._rest = b""
        #: The way around trio's layers, where there is one, and around a turn of the scheduler for each call.
        self._socket = _socket(stream)
        self._direct: Direct | None = self._socket or getattr(stream, "direct", None)
        self._unyielded = 0

    @property
    def exchange(self) -> Exchange:
        """The one that is under way, or was last."""
        assert self._exchange is not None, "nothing was sent on this connection"
        return self._exchange

    @property
    def reusable(self) -> bool:
        """Whether another request may follow. What h11 framed but the socket did not take was never sent."""
        return self._sent and self.exchange.reusable

    @property
    def readable(self) -> bool:
        """Whether something waits that nobody asked for: a close, nearly always (U58)."""
        stream = self._stream
        while isinstance(stream, TlsStream):
            stream = stream.transport
        raw = _socket(stream)
        if raw is None:
            return False
        try:
            raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # which is as good as a close
        return True

    @property
    def out(self) -> bool:
        """Whether all of the request that has begun was taken by the socket."""
        return self._sent

    async def send(self, outgoing: Outgoing) -> Read:
        """Sends a request until its answer's head is there, and returns the read that completed it (`exchange.head`).

        An answer may come before the request is out (U59): then the rest of it is not sent. Raises WireError, and
        whatever the body raises; in each case, and when cancelled, the caller closes the connection.
        """
        if isinstance(outgoing.body, bytes) and len(outgoing.body) <= SEND_BYTES_MAX:
            self.begin(outgoing, outgoing.body)
            return await self.answer()
        head = self._next().request(outgoing.method, outgoing.target, outgoing.headers)
        return await self._while_sending(head, outgoing.body)

    def begin(self, outgoing: Outgoing, body: bytes) -> None:
        """As much of the request as can be sent without waiting; `answer` is to follow."""
        data = self._next().whole(outgoing.method, outgoing.target, outgoing.headers, body)
        sent = 0
        if self._direct is not None:
            with suppress(OSError):  # said again by the next send, if it is not only that the buffer is full
                sent = self._direct.send(data)
        self._rest = data[sent:]
        self._sent = not self._rest

    async def answer(self) -> Read:
        """As `send`, of a request that has begun. If it is `out`, a cancelled call has lost nothing."""
        if self._rest:
            rest, self._rest = self._rest, b""
            self._sent = await self._send(rest)
        return await self._answer()

    def _next(self) -> Exchange:
        exchange = self._exchange = Exchange(machine()) if self._exchange is None else self._exchange.next()
        self._sent = False
        self.asked_at = trio.current_time()
        return exchange

    async def receive(self) -> Read:
        """One socket read; what it meant stands in `exchange`. A cancelled call has lost nothing."""
        try:
            if self._direct is None:
                data = await self._stream.receive_some(RECEIVE_BYTES_MAX)
            else:
                data = await self._read(self._direct)
        except (trio.BrokenResourceError, OSError):
            self.exchange.fail(ResetError("the upstream reset the connection"))
            return Read(trio.current_time(), b"")
        return Read(trio.current_time(), self.exchange.feed(data))

    async def _read(self, direct: Direct) -> bytes | bytearray:
        if self._unyielded >= READS_A_TURN:  # before the read: who is cancelled here has lost nothing
            self._unyielded = 0
            await trio.lowlevel.checkpoint()
        while True:
            try:
                data = direct.recv(RECEIVE_BYTES_MAX) if self._socket is None else received(self._socket)
            except BlockingIOError:
                self._unyielded = 0
                if self._socket is None:
                    return await self._stream.receive_some(RECEIVE_BYTES_MAX)
                await trio.lowlevel.wait_readable(self._socket)
            else:
                self._unyielded += 1
                return data

    async def aclose(self) -> None:
        """At once; never waits, never raises, also in a cancelled scope."""
        await trio.aclose_forcefully(self._stream)

    async def _answer(self) -> Read:
        while True:
            read = await self.receive()
            if self.exchange.head is not None:
                return read
            if self.exchange.fault is not None:
                raise self.exchange.fault

    async def _while_sending(self, head: bytes, body: bytes | AsyncIterable[bytes]) -> Read:
        answers: list[Read] = []
        failures: list[Exception] = []

        async def upload() -> None:
            try:
                await self._upload(head, body)
            except Exception as exc:  # noqa: BLE001 - the body is the caller's; raised below, without a group around it
                failures.append(exc)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            try:
                answers.append(await self._answer())
            except WireError as exc:
                failures.append(exc)
            nursery.cancel_scope.cancel()
        if answers:
            return answers[0]
        raise failures[0]

    async def _upload(self, head: bytes, body: bytes | AsyncIterable[bytes]) -> None:
        """A peer that takes no more may have answered already: then this ends, and the answer is read."""
        self._sent = (
            await self._send(head) and await self._upload_body(body) and await self._send(self.exchange.finish())
        )

    async def _upload_body(self, body: bytes | AsyncIterable[bytes]) -> bool:
        if isinstance(body, bytes):
            return await self._send_pieces(body)
        each = aiter(body)
        try:
            async for data in each:
                if not await self._send_pieces(data):
                    return False
            return True
        finally:
            if isinstance(each, AsyncGenerator):  # left early, it would wait for the garbage collector
                await cast("AsyncGenerator[bytes]", each).aclose()

    async def _send_pieces(self, data: bytes) -> bool:
        for at in range(0, len(data), SEND_BYTES_MAX):
            if not await self._send(self.exchange.data(data[at : at + SEND_BYTES_MAX])):
                return False
        return True

    async def _send(self, data: bytes) -> bool:
        """Whether the peer takes it; what it says about it is read, not guessed."""
        with trio.move_on_after(self._write_timeout_s) as scope:
            try:
                await self._stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
        if scope.cancelled_caught:
            raise StalledError(f"the upstream took nothing of the request for {self._write_timeout_s:g} s")
        return True


def _socket(stream: trio.abc.Stream) -> socket.socket | None:
    """trio's socket holds the standard library's under this name; a contract test pins it."""
    raw = getattr(stream.socket, "_sock", None) if isinstance(stream, trio.SocketStream) else None
    return raw if isinstance(raw, socket.socket) else None
