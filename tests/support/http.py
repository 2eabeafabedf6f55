"""The in-memory server harness: the server's real connections over pipes, with clients that misbehave.

    async def test_it(autojump_clock: trio.testing.MockClock) -> None:
        async with connected(app) as connect:
            client = await connect()
            await client.send(b"GET / HTTP/1.1\\r\\nHost: test\\r\\n\\r\\n")
            answer = await client.response()
            assert (answer.status, answer.body, answer.ended) == (200, b"hello", "chunked")

True HTTP bytes go both ways, in virtual time and without ports. A pipe behaves as a socket does: it holds `capacity`
bytes each way, so a client that does not read stalls the server; a close with unread bytes is a reset; and a reset
drops what its sender had sent and the other side had not read.
"""

import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, Literal, cast

import trio

from wiretape.proxy.server.asgi import Reaper, ServerSettings
from wiretape.proxy.server.server import Server

Ended = Literal["chunked", "length", "close", "none", "cut", "reset", "open"]
"""How a body ended: by its last chunk, its length or the close of the connection; `none`: it has no body; `cut` and
`reset`: it was incomplete; `open`: it has not ended yet."""

CAPACITY: Final = 64 * 1024
_ports = count(40_000)


class _Pipe:
    """One direction."""

    def __init__(self, capacity: int) -> None:
        self.data = bytearray()
        self.capacity = capacity
        self.eof = False
        self.broken = False
        """A reset, seen by the reader after what had arrived, and by the writer at once."""
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
    """One end of a connection, like trio's SocketStream; its `socket` is itself."""

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
            self._outgoing.data.clear()  # at worst none of these bytes has arrived
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


def _pair(capacity: int, address: str) -> tuple[_End, _End]:
    there, back = _Pipe(capacity), _Pipe(capacity)
    server, client = ("127.0.0.1", 8787), (address, next(_ports))
    return _End(back, there, client, server), _End(there, back, server, client)


@dataclass(slots=True, kw_only=True)
class Answer:
    """A response as a client parsed it; `pieces` are chunks, or reads where it is not chunked, with trio's time."""

    status: int
    headers: list[tuple[bytes, bytes]]
    at: float
    pieces: list[tuple[float, bytes]] = field(default_factory=list[tuple[float, bytes]])
    ended: Ended = "open"
    ended_at: float = 0.0
    informational: list[int] = field(default_factory=list[int])
    """The statuses of the 1xx responses before it."""

    @property
    def body(self) -> bytes:
        return b"".join(piece for _, piece in self.pieces)

    def header(self, name: bytes) -> bytes | None:
        """Return the only header of this name."""
        found = [value for each, value in self.headers if each == name]
        assert len(found) <= 1, f"{name!r} came {len(found)} times"
        return found[0] if found else None


class Client:
    """A client: a stream, and a lenient parser for responses."""

    harness: "Harness"
    """The server, if it was connected by one."""

    def __init__(self, stream: _End) -> None:
        self.stream = stream
        self._held = b""

    async def send(self, data: bytes) -> None:
        await self.stream.send_all(data)

    async def receive(self) -> bytes:
        """Return what has come, at least one byte; empty at the end."""
        held, self._held = self._held, b""
        return held or await self.stream.receive_some(CAPACITY)

    async def rest(self) -> bytes:
        """Return everything until the end; raise trio.BrokenResourceError for a reset."""
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
        """Return the next response, complete or, with `until`, up to the piece after which that is true.

        Raise EOFError if the connection ended before a head, trio.BrokenResourceError if it was reset there.
        """
        answer = await self._head()
        if method == "HEAD" or answer.status in {204, 304}:
            answer.ended, answer.ended_at = "none", answer.at
        while answer.ended == "open" and not (until is not None and until(answer)):
            await self.more(answer)
        return answer

    async def more(self, answer: Answer) -> bytes | None:
        """Read and return the next piece of an open body; None after its end, which is then in `answer.ended`."""
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


class Harness:
    """A running server; `await harness()` connects a client."""

    def __init__(self, server: Server, nursery: trio.Nursery, reaper: Reaper, capacity: int, log: list[str]) -> None:
        self.server = server
        self.reaper = reaper
        self.log = log
        """The lines that the server logged."""
        self.ends: list[_End] = []
        """The server's end of each connection, in order."""
        self._nursery = nursery
        self._capacity = capacity

    async def __call__(self, *, capacity: int | None = None, address: str = "127.0.0.1") -> Client:
        theirs, ours = _pair(capacity or self._capacity, address)
        self.ends.append(ours)
        self._nursery.start_soon(self.server.handle, cast(trio.SocketStream, ours))
        await trio.lowlevel.checkpoint()
        client = Client(theirs)
        client.harness = self
        return client

    @property
    def open(self) -> int:
        """Return the number of connections that the server has not closed."""
        return sum(not end.closed for end in self.ends)


@asynccontextmanager
async def connected(
    app: Callable[[Any, Any, Any], Awaitable[None]],
    *,
    settings: ServerSettings | None = None,
    reaper: Reaper | None = None,
    capacity: int = CAPACITY,
) -> AsyncGenerator[Harness]:
    """Run a server for this app; leaving it cancels everything. A given `reaper` runs elsewhere."""
    log: list[str] = []
    given = settings or ServerSettings(log=log.append)
    async with trio.open_nursery() as nursery:
        if reaper is None:
            reaper = Reaper()
            nursery.start_soon(reaper.run)
        yield Harness(Server(app, given, reaper), nursery, reaper, capacity, log)
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def asking(
    app: Callable[[Any, Any, Any], Awaitable[None]], sent: bytes, *, capacity: int = CAPACITY
) -> AsyncGenerator[Client]:
    """Run a server for this app, and connect a client that has sent these bytes."""
    async with connected(app, capacity=capacity) as connect:
        client = await connect()
        await client.send(sent)
        yield client


def request(
    method: str = "GET", path: str = "/", *headers: str, body: bytes | None = None, version: str = "1.1"
) -> bytes:
    """Return a request's bytes; a body adds its length."""
    lines = [f"{method} {path} HTTP/{version}", "Host: test", *headers]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")
