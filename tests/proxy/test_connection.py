"""Exchanges on one connection and the pool of idle ones: peers that stop reading, reuse, draining, leaving early."""

from collections.abc import AsyncGenerator, AsyncIterable
from contextlib import aclosing

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from tests.proxy.scripted import HEAD, OK, Counted, Fake, Script, body_of, chunk, fetch, post, request_of, served
from wiretape.events.core.errors import LocalError
from wiretape.proxy.limits import DRAIN_BYTES_MAX, DRAIN_TIMEOUT_S, SEND_BYTES_MAX
from wiretape.proxy.upstream.connection import Connection, Exchange, Origin, Outgoing, ResetError, TruncatedError
from wiretape.proxy.upstream.transport import Pool

LAST = b"0\r\n\r\n"
ORIGIN = Origin(tls=False, host="upstream.test", port=80)


class Deaf(Fake):
    """A stream that takes so many sends and then breaks; after that, or at once, it gives these reads and is reset."""

    def __init__(self, sends: int, *reads: bytes, waits: bool = True) -> None:
        self._left, self._reads = sends, list(reads)
        self._broken = trio.Event()
        if not waits:
            self._broken.set()
        self.sent: list[bytes] = []

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()
        if len(self.sent) == self._left:
            self._broken.set()
            raise trio.BrokenResourceError
        self.sent.append(bytes(data))

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        del max_bytes
        await self._broken.wait()
        if not self._reads:
            raise trio.BrokenResourceError
        return self._reads.pop(0)


class Pieces:
    """A body whose generator notes that it was closed."""

    def __init__(self) -> None:
        self.closed = False

    async def _each(self) -> AsyncGenerator[bytes]:
        try:
            for _ in range(10):
                yield b"piece"
        finally:
            self.closed = True

    def __aiter__(self) -> AsyncGenerator[bytes]:
        return self._each()


def request(body: bytes | AsyncIterable[bytes]) -> Outgoing:
    length = (b"Content-Length", b"%d" % len(body)) if isinstance(body, bytes) else (b"Transfer-Encoding", b"chunked")
    return Outgoing(ORIGIN, b"POST", b"/", ((b"Host", b"a"), length), body)


def exchange(stream: Deaf, kept: list[Connection] | None = None) -> Exchange:
    """Return an exchange that adds its connection to `kept` if that can be used again."""

    async def keep(connection: Connection) -> None:
        await trio.lowlevel.checkpoint()
        if kept is not None:
            kept.append(connection)

    return Exchange(Connection(ORIGIN, stream), keep)


@pytest.mark.parametrize("sends", [0, 1, 2])
@pytest.mark.parametrize("body", [b"{}", b"x" * 10 * SEND_BYTES_MAX, Pieces()], ids=["small", "large", "pieces"])
async def test_peer_that_stops_reading_is_still_read(body: bytes | Pieces, sends: int) -> None:
    kept: list[Connection] = []
    one = exchange(Deaf(min(sends, 0 if body == b"{}" else 2), OK), kept)
    assert (await one.send(request(body))).status == 200
    assert [read.data async for read in one] == [b"ok"]
    assert not kept, "the socket never took the request"


@pytest.mark.parametrize("body", [b"{}", b"x" * 10 * SEND_BYTES_MAX], ids=["small", "large"])
@pytest.mark.parametrize(("reads", "fault"), [((), ResetError), ((b"",), TruncatedError)])
async def test_silent_peer_that_stops_reading_is_a_fault(
    body: bytes, reads: tuple[bytes, ...], fault: type[Exception]
) -> None:
    one = exchange(Deaf(0, *reads))
    with pytest.raises(fault):
        await one.send(request(body))
    assert not one.started


async def test_unfinished_body_generator_is_closed() -> None:
    body = Pieces()
    await exchange(Deaf(2, OK)).send(request(body))
    assert body.closed


@pytest.mark.parametrize(
    ("answer", "reusable"),
    [
        pytest.param(OK, True, id="a length"),
        pytest.param(HEAD + LAST, True, id="chunks"),
        pytest.param(OK + b"!", False, id="more than its length"),
        pytest.param(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", False, id="it will close"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n", False, id="HTTP/1.0"),
        pytest.param(OK[:-1], False, id="not at its end"),
    ],
)
async def test_connection_is_kept_only_after_clean_end(answer: bytes, reusable: bool) -> None:
    kept: list[Connection] = []
    stream = Deaf(100, answer, waits=False)
    async with aclosing(exchange(stream, kept)) as one:
        await one.send(request(b"{}"))
        await one.receive()
    assert bool(kept) == reusable
    assert stream.sent == [b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\n{}"]


@pytest.mark.parametrize("body", [b"123456", b"1234"])
async def test_request_body_of_other_length_is_an_error(body: bytes) -> None:
    wrong = Outgoing(ORIGIN, b"POST", b"/", ((b"Host", b"a"), (b"Content-Length", b"5")), body)
    with pytest.raises(LocalError):
        await exchange(Deaf(100, waits=False)).send(wrong)


def paced(*pieces: tuple[float, bytes]) -> Script:
    """Return a script that sends these pieces, each after so many seconds, and then nothing."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        for gap_s, piece in pieces:
            await trio.sleep(gap_s)
            await stream.send_all(piece)
        await request_of(stream)

    return script


@pytest.mark.parametrize(
    ("pieces", "late", "kept"),
    [
        pytest.param([(0, HEAD + chunk(b"x") + LAST)], [], 1, id="the end was in the same read"),
        pytest.param([(0, HEAD + chunk(b"x")), (0.2, LAST)], [], 1, id="the end comes a little later"),
        pytest.param([(0, HEAD + chunk(b"x")), (0.1, chunk(b"y") + LAST)], [b"y"], 1, id="late data is not lost (U41)"),
        pytest.param([(0, HEAD + chunk(b"x")), (0.3, LAST)], [], 0, id="the end comes too late"),
        pytest.param([(0, HEAD + chunk(b"x")), (0.1, chunk(b"y"))], [b"y"], 0, id="late data and no end"),
        pytest.param([(0, HEAD + chunk(b"x")), (0.1, b"junk\r\n")], [], 0, id="a fault"),
    ],
)
async def test_body_is_drained_after_terminator(
    pieces: list[tuple[float, bytes]], late: list[bytes], kept: int, autojump_clock: MockClock
) -> None:
    async with served(paced(*pieces)) as (transport, upstream):
        body = body_of(await fetch(transport, post()))
        read = await body.receive()
        assert read is not None
        assert read.data == b"x"
        began = trio.current_time()
        assert [late.data for late in await body.drain()] == late
        assert trio.current_time() - began <= DRAIN_TIMEOUT_S
        assert (len(transport.pool), len(upstream.still_open)) == (kept, kept)


async def test_draining_is_bounded_in_bytes(autojump_clock: MockClock) -> None:
    async with served(paced((0, HEAD), *[(1, chunk(b"x" * 1000))] * 1000)) as (transport, upstream):
        body = body_of(await fetch(transport, post()))
        drained = await body.drain(timeout_s=10_000)
        assert DRAIN_BYTES_MAX < sum(len(read.data) for read in drained) <= DRAIN_BYTES_MAX + 1000
        assert not upstream.still_open


async def test_leaving_early_closes_the_connection() -> None:
    async with served(paced((0, HEAD + chunk(b"x")))) as (transport, upstream):
        async with aclosing(body_of(await fetch(transport, post()))) as body:
            await body.receive()
            assert len(upstream.still_open) == 1
        assert not upstream.still_open
        assert body.end is None
        with pytest.raises(LocalError):
            await body.receive()


OTHER = ORIGIN._replace(port=81)


def used(origin: Origin = ORIGIN, still_open: set[Counted] | None = None) -> Connection:
    """Return a connection that can be used again."""
    return Connection(origin, Counted(memory_stream_pair()[0], set() if still_open is None else still_open))


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_origin_keeps_a_bounded_number_of_newest_connections(count: int) -> None:
    pool = Pool(idle_max=2)
    connections = [used() for _ in range(count)]
    for connection in connections:
        await pool.give(connection)
    await pool.give(used(OTHER))
    assert len(pool) == min(count, 2) + 1
    assert [await pool.take(ORIGIN) for _ in range(min(count, 2))] == connections[::-1][:2]


async def test_connections_that_are_not_kept_are_closed(autojump_clock: MockClock) -> None:
    still_open: set[Counted] = set()
    pool = Pool(idle_max=2, idle_timeout_s=10)
    for kept in (1, 2, 2):
        await pool.give(used(still_open=still_open))
        assert (len(pool), len(still_open)) == (kept, kept)
    await trio.sleep(10)
    assert await pool.take(ORIGIN) is None
    assert not still_open
    await pool.give(used(still_open=still_open))
    await trio.sleep(10)
    await pool.expire()
    assert not still_open
    await pool.give(used(still_open=still_open))
    await pool.aclose()
    await pool.give(used(still_open=still_open))
    assert not still_open
