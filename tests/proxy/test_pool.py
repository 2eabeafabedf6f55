"""Idle connections: newest first, bounded in number and time, and closed when unusable."""

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from tests.proxy.scripted import Counted
from wiretape.proxy.upstream.connect import Origin
from wiretape.proxy.upstream.connection import Connection, Outgoing
from wiretape.proxy.upstream.pool import Pool

ORIGIN = Origin(tls=False, host="upstream.test", port=80)
OTHER = ORIGIN._replace(port=81)
ANSWER = b"HTTP/1.1 204 X\r\n\r\n"


async def used(origin: Origin = ORIGIN, answer: bytes = ANSWER, still_open: set[Counted] | None = None) -> Connection:
    """Return a connection after its exchange."""
    ours, theirs = memory_stream_pair()
    connection = Connection(origin, Counted(ours, set() if still_open is None else still_open))
    await theirs.send_all(answer)
    await connection.send(Outgoing(origin, b"GET", b"/", ((b"Host", b"a"),), b""))
    return connection


async def test_newest_connection_is_taken_first() -> None:
    pool = Pool()
    first, second, other = await used(), await used(), await used(OTHER)
    for connection in (first, second, other):
        await pool.give(connection)
    assert [await pool.take(ORIGIN) for _ in range(3)] == [second, first, None]
    assert await pool.take(OTHER) is other
    assert len(pool) == 0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_origin_keeps_a_bounded_number_of_newest_connections(count: int) -> None:
    pool = Pool(idle_max=2)
    connections = [await used() for _ in range(count)]
    for connection in connections:
        await pool.give(connection)
    await pool.give(await used(OTHER))
    assert len(pool) == min(count, 2) + 1
    assert [await pool.take(ORIGIN) for _ in range(min(count, 2))] == connections[::-1][:2]


async def test_connections_that_are_not_kept_are_closed(autojump_clock: MockClock) -> None:
    still_open: set[Counted] = set()
    pool = Pool(idle_max=2, idle_timeout_s=10)
    for kept in (1, 2, 2):
        await pool.give(await used(still_open=still_open))
        assert (len(pool), len(still_open)) == (kept, kept)
    await trio.sleep(10)
    assert await pool.take(ORIGIN) is None
    assert not still_open
    await pool.give(await used(still_open=still_open))
    await trio.sleep(10)
    await pool.expire()
    assert not still_open
    await pool.give(await used(still_open=still_open))
    await pool.aclose()
    await pool.give(await used(still_open=still_open))
    assert not still_open


async def test_pool_of_size_zero_keeps_nothing() -> None:
    pool = Pool(idle_max=0)
    await pool.give(await used())
    assert len(pool) == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.0 204 X\r\n\r\n", ANSWER + b"x", b"HTTP/1.1 200 X\r\n\r\n"])
async def test_unusable_connection_is_closed(answer: bytes) -> None:
    pool = Pool()
    await pool.give(await used(answer=answer))
    assert len(pool) == 0


@pytest.mark.parametrize(("waited_s", "kept"), [(9.9, 1), (10, 0)])
async def test_idle_time_limit_is_exact(waited_s: float, kept: int, autojump_clock: MockClock) -> None:
    pool = Pool(idle_timeout_s=10)
    await pool.give(await used())
    await trio.sleep(waited_s)
    assert (await pool.take(ORIGIN) is not None) == bool(kept)
    assert len(pool) == 0


async def test_expire_closes_only_expired_connections(autojump_clock: MockClock) -> None:
    pool = Pool(idle_timeout_s=10)
    await pool.give(await used())
    await trio.sleep(5)
    await pool.give(await used())
    await pool.give(await used(OTHER))
    await trio.sleep(5)
    await pool.expire()
    assert len(pool) == 2
    await trio.sleep(5)
    await pool.expire()
    assert len(pool) == 0
