"""One connection to an origin, owned by one request at a time: sends it, and reads its answer read by read."""

from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass
from typing import NamedTuple, cast

import trio

from .connect import Origin
from .errors import ResetError, StalledError, WireError
from .exchange import Exchange, Header, machine
from .limits import RECEIVE_BYTES_MAX, SEND_BYTES_MAX, WRITE_TIMEOUT_S
from .tls import TlsStream

__all__ = ["Connection", "Outgoing", "Read"]


class Read(NamedTuple):
    """What one socket read brought of the body, and when (trio's clock)."""

    t: float
    data: bytes


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
        self._stream = stream
        self._write_timeout_s = write_timeout_s
        self._exchange: Exchange | None = None
        self._sent = False

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
        return isinstance(stream, trio.SocketStream) and stream.socket.is_readable()

    async def send(self, outgoing: Outgoing) -> Read:
        """Sends a request until its answer's head is there, and returns the read that completed it (`exchange.head`).

        An answer may come before the request is out (U59): then the rest of it is not sent. Raises WireError, and
        whatever the body raises; in each case, and when cancelled, the caller closes the connection.
        """
        exchange = self._exchange = Exchange(machine()) if self._exchange is None else self._exchange.next()
        self._sent = False
        head = exchange.request(outgoing.method, outgoing.target, outgoing.headers)
        if isinstance(outgoing.body, bytes) and len(outgoing.body) <= SEND_BYTES_MAX:
            self._sent = await self._send(head + exchange.data(outgoing.body) + exchange.finish())
            return await self._answer()
        return await self._while_sending(head, outgoing.body)

    async def receive(self) -> Read:
        """One socket read; what it meant stands in `exchange`. A cancelled call has lost nothing."""
        try:
            data = await self._stream.receive_some(RECEIVE_BYTES_MAX)
        except trio.BrokenResourceError:
            self.exchange.fail(ResetError("the upstream reset the connection"))
            return Read(trio.current_time(), b"")
        return Read(trio.current_time(), self.exchange.feed(data))

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
