"""The in-memory harness: the server's real connection class, a pipe instead of a socket, and clients that misbehave

    async def test_it(autojump_clock: trio.testing.MockClock) -> None:
        async with connected(app) as connect:
            client = await connect()
            await client.send(b"GET / HTTP/1.1\\r\\nHost: test\\r\\n\\r\\n")
            answer = await client.response()
            assert (answer.status, answer.body, answer.ended) == (200, b"hello", "chunked")

True HTTP bytes go both ways, in virtual time, without ports: hundreds of connections are no trouble. The pipe behaves
as a socket does: it holds `capacity` bytes each way (a client that does not read stalls the server), a close with
unread bytes is a reset, and a reset throws away what its sender had sent and the other side had not read.

A client: `send(bytes)`, `receive()` (raw; empty at the end, trio.BrokenResourceError for a reset), `response()`,
`fin()` (half-close), `close()` (as a process that exits), `rst()`. Who never reads has stopped reading. To look into an
answer that is under way: `answer = await client.response(until=lambda answer: answer.body.endswith(b"x"))`, then
`await client.more(answer)` piece by piece.
`answer.pieces` are the body's pieces with trio's time of each: chunks where it is chunked, reads where not.
`answer.ended` says how the body ended, see `Ended`. `answer.at` is the time of the head, `answer.ended_at` of the end.
"""

import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, cast

import trio

from wiretape.proxy.server.reaper import Reaper
from wiretape.proxy.server.server import Server, ServerSettings

__all__ = ["Answer", "Client", "Connect", "Ended", "Harness", "connected", "request"]

Ended = Literal["chunked", "length", "close", "none", "cut", "reset", "open"]
"""By its last chunk, its length, the close of the connection; `none`: it has no body. `cut` and `reset`: it was not
whole (a close without a length or chunks cannot be told from a cut: it is `close`). `open`: `until` came first."""

CAPACITY: Final = 64 * 1024
_ports = count(40_000)


class _Pipe:
    """One direction."""

    def __init__(self, capacity: int) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.eof = False
        self.broken = False
        """A reset: for the reader after what had arrived, for the writer at once."""
        self.changed = trio.lowlevel.ParkingLot()

    def put(self, data: bytes | memoryview) -> int:
        if self.broken:
            raise ConnectionResetError("the other side has reset the connection")
        if self.eof:
            raise BrokenPipeError("sent after the end")
        taken = min(len(data), self.capacity - len(self.data))
        if not taken and data:
            raise BlockingIOError
        self.data += data[:taken]
        self.changed.unpark_all()
        return taken

    def finish(self) -> None:
        self.eof = True
        self.changed.unpark_all()

    def reset(self) -> None:
        self.broken = True
        self.changed.unpark_all()


class _End(trio.abc.HalfCloseableStream):
    """One end of a connection, as trio's SocketStream; its `socket` is itself, with what the server asks of one."""

    family = socket.AF_INET

    def __init__(self, incoming: _Pipe, outgoing: _Pipe, address: tuple[str, int], peer: tuple[str, int]) -> None:
        self.closed = False
        self._incoming = incoming
        self._outgoing = outgoing
        self._address = address
        self._peer = peer
        self._linger = True

    @property
    def socket(self) -> "_End":
        return self

    @property
    def _sock(self) -> "_End":
        return self

    def fileno(self) -> int:
        return -1

    def getpeername(self) -> tuple[str, int]:
        return self._peer

    def getsockname(self) -> tuple[str, int]:
        return self._address

    def setsockopt(self, _level: int, option: int, value: bytes) -> None:
        if option == socket.SO_LINGER:
            self._linger = value != struct.pack("ii", 1, 0)

    def shutdown(self, _how: int) -> None:
        if self._outgoing.broken:
            raise OSError("not connected")
        self._outgoing.finish()

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self._incoming.data or not self._linger:
            self._outgoing.data.clear()  # at worst nothing of it has arrived
            self._outgoing.reset()
        else:
            self._outgoing.finish()
        self._incoming.reset()
        self._outgoing.changed.unpark_all()

    def send(self, data: bytes | memoryview) -> int:
        if self.closed:
            raise OSError("closed")
        return self._outgoing.put(data)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        rest = memoryview(data)
        while rest:
            await self.wait_send_all_might_not_block()
            try:
                rest = rest[self.send(rest) :]
            except OSError as exc:
                if not isinstance(exc, BlockingIOError):
                    raise trio.BrokenResourceError from exc

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()
        pipe = self._outgoing
        while not self.closed and not pipe.broken and not pipe.eof and len(pipe.data) >= pipe.capacity:
            await pipe.changed.park()
        if self.closed:
            raise trio.ClosedResourceError
        if pipe.broken:
            raise trio.BrokenResourceError

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        pipe = self._incoming
        while not self.closed and not pipe.data and not pipe.eof and not pipe.broken:
            await pipe.changed.park()
        if self.closed:
            raise trio.ClosedResourceError
        if pipe.data:
            data = bytes(pipe.data[:max_bytes])
            del pipe.data[:max_bytes]
            pipe.changed.unpark_all()
            return data
        if pipe.broken:
            raise trio.BrokenResourceError
        return b""

    async def send_eof(self) -> None:
        await trio.lowlevel.checkpoint()
        self.shutdown(socket.SHUT_WR)

    async def aclose(self) -> None:
        self.close()
        await trio.lowlevel.checkpoint()


def _pair(capacity: int) -> tuple[_End, _End]:
    there, back = _Pipe(capacity), _Pipe(capacity)
    server, client = ("127.0.0.1", 8787), ("127.0.0.1", next(_ports))
    return _End(back, there, client, server), _End(there, back, server, client)


@dataclass(slots=True, kw_only=True)
class Answer:
    """What a client made of the bytes."""

    status: int
    headers: list[tuple[bytes, bytes]]
    at: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    ended: Ended = "open"
    ended_at: float = 0.0
    informational: list[int] = field(default_factory=list[int])
    """Status of the 1xx answers before it."""

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def header(self, name: bytes) -> bytes | None:
        """The only header of this name."""
        found = [value for each, value in self.headers if each == name]
        assert len(found) <= 1, f"{name!r} came {len(found)} times"
        return found[0] if found else None


class Client:
    """See the module."""

    def __init__(self, stream: _End) -> None:
        self.stream = stream
        self._held = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """What came since, at least one byte; empty at the end."""
        held, self._held = self._held, b""
        return held or await self.stream.receive_some(CAPACITY)

    async def rest(self) -> bytes:
        """Everything until the end; trio.BrokenResourceError for a reset."""
        parts: list[bytes] = []
        while data := await self.receive():
            parts.append(data)
        return b"".join(parts)

    def fin(self) -> None:
        self.stream.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.stream.close()

    def rst(self) -> None:
        self.stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.stream.close()

    async def response(self, *, method: str = "GET", until: Callable[[Answer], bool] | None = None) -> Answer:
        """The next answer, wholly; with `until` only to the piece after which it says so, and `more` goes on.

        EOFError where the connection ended before a head, trio.BrokenResourceError where it was reset there.
        """
        answer = await self._head()
        if method == "HEAD" or answer.status in {204, 304}:
            answer.ended, answer.ended_at = "none", answer.at
        while answer.ended == "open" and not (until is not None and until(answer)):
            await self.more(answer)
        return answer

    async def more(self, answer: Answer) -> bytes | None:
        """The next piece of a body that is open, which is then part of the answer; None where there is none, and
        `answer.ended` says why.
        """
        assert answer.ended == "open", "an answer that has ended has no more"
        try:
            piece, ended = await self._piece(answer)
        except EOFError:
            piece, ended = None, "cut"
        except trio.BrokenResourceError:
            piece, ended = None, "reset"
        now = trio.current_time()
        if piece:
            answer.pieces.append((now, piece))
            return piece
        answer.ended, answer.ended_at = ended, now
        return None

    async def _piece(self, answer: Answer) -> tuple[bytes, Ended]:
        length = answer.header(b"content-length")
        if answer.header(b"transfer-encoding") == b"chunked":
            data = await self._exactly(int(await self._until(b"\r\n"), 16))
            assert await self._exactly(2) == b"\r\n"
            return data, "chunked"
        if length is None:
            return await self.receive(), "close"
        left = int(length) - len(answer.body)
        if left and not self._held:
            await self._more()
        data, self._held = self._held[:left], self._held[left:]
        return data, "length"

    async def _head(self) -> Answer:
        informational: list[int] = []
        while True:
            line, *lines = (await self._until(b"\r\n\r\n")).split(b"\r\n")
            status = int(line.split(b" ")[1])
            if status >= 200:
                pairs = [each.partition(b":") for each in lines]
                headers = [(name.lower(), value.strip()) for name, _, value in pairs]
                return Answer(status=status, headers=headers, at=trio.current_time(), informational=informational)
            informational.append(status)

    async def _until(self, mark: bytes) -> bytes:
        while mark not in self._held:
            await self._more()
        found, _, self._held = self._held.partition(mark)
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._held) < size:
            await self._more()
        found, self._held = self._held[:size], self._held[size:]
        return found

    async def _more(self) -> None:
        data = await self.stream.receive_some(CAPACITY)
        if not data:
            raise EOFError("the connection ended in the middle")
        self._held += data


Connect = Callable[[], Awaitable[Client]]


class Harness:
    """`await harness()` connects."""

    def __init__(self, server: Server, nursery: trio.Nursery, reaper: Reaper, capacity: int, log: list[str]) -> None:
        self.server = server
        self.reaper = reaper
        self.log = log
        """What the server had to say."""
        self.ends: list[_End] = []
        """The server's end of each connection, in order; `closed` says whether it still holds it."""
        self._nursery = nursery
        self._capacity = capacity

    async def __call__(self, *, capacity: int | None = None) -> Client:
        theirs, ours = _pair(capacity or self._capacity)
        self.ends.append(ours)
        self._nursery.start_soon(self.server.handle, cast(trio.SocketStream, ours))
        await trio.lowlevel.checkpoint()
        return Client(theirs)

    @property
    def open(self) -> int:
        """Connections that the server still holds."""
        return sum(not end.closed for end in self.ends)


@asynccontextmanager
async def connected(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    *,
    settings: ServerSettings | None = None,
    reaper: Reaper | None = None,
    capacity: int = CAPACITY,
) -> AsyncGenerator[Harness]:
    """A server for this app; leaving it cancels what still runs. A `reaper` that is given runs elsewhere."""
    log: list[str] = []
    given = settings or ServerSettings(log=log.append)
    async with trio.open_nursery() as nursery:
        if reaper is None:
            reaper = Reaper()
            nursery.start_soon(reaper.run)
        yield Harness(Server(app, given, reaper), nursery, reaper, capacity, log)
        nursery.cancel_scope.cancel()


def request(
    method: str = "GET", path: str = "/", *headers: str, body: bytes | None = None, version: str = "1.1"
) -> bytes:
    """A request's bytes; a body brings its length along."""
    lines = [f"{method} {path} HTTP/{version}", "Host: test", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
