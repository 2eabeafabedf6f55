"""Idle connections: newest first, bounded in number and time, and closed when unusable."""

import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from tests.proxy.scripted import Counted
from wiretape.proxy.upstream.connection import Connection, Origin
from wiretape.proxy.upstream.transport import Pool

ORIGIN = Origin(tls=False, host="upstream.test", port=80)
OTHER = ORIGIN._replace(port=81)


def used(origin: Origin = ORIGIN, still_open: set[Counted] | None = None) -> Connection:
    """Return a connection that can be used again."""
    return Connection(origin, Counted(memory_stream_pair()[0], set() if still_open is None else still_open))


async def test_newest_connection_is_taken_first() -> None:
    pool = Pool()
    first, second, other = used(), used(), used(OTHER)
    for connection in (first, second, other):
        await pool.give(connection)
    assert [await pool.take(ORIGIN) for _ in range(3)] == [second, first, None]
    assert await pool.take(OTHER) is other
    assert len(pool) == 0


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


@pytest.mark.parametrize(("waited_s", "kept"), [(9.9, 1), (10, 0)])
async def test_idle_time_limit_is_exact(waited_s: float, kept: int, autojump_clock: MockClock) -> None:
    pool = Pool(idle_timeout_s=10)
    await pool.give(used())
    await trio.sleep(waited_s)
    assert (await pool.take(ORIGIN) is not None) == bool(kept)
    assert len(pool) == 0
