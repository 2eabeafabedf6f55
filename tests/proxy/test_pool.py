"""Idle connections: the newest first, the oldest out, nothing kept that cannot be used, and no cost that grows."""

import sys

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
    """A connection whose exchange is over."""
    ours, theirs = memory_stream_pair()
    connection = Connection(origin, Counted(ours, set() if still_open is None else still_open))
    await theirs.send_all(answer)
    await connection.send(Outgoing(origin, b"GET", b"/", ((b"Host", b"a"),), b""))
    return connection


async def test_the_last_one_in_is_the_first_one_out() -> None:
    pool = Pool()
    first, second, other = await used(), await used(), await used(OTHER)
    for connection in (first, second, other):
        await pool.give(connection)
    assert [await pool.take(ORIGIN) for _ in range(3)] == [second, first, None]
    assert await pool.take(OTHER) is other
    assert len(pool) == 0


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_each_origin_keeps_so_many_and_the_newest(count: int) -> None:
    pool = Pool(idle_max=2)
    connections = [await used() for _ in range(count)]
    for connection in connections:
        await pool.give(connection)
    await pool.give(await used(OTHER))
    assert len(pool) == min(count, 2) + 1
    assert [await pool.take(ORIGIN) for _ in range(min(count, 2))] == connections[::-1][:2]


async def test_whatever_is_not_kept_is_closed(autojump_clock: MockClock) -> None:
    del autojump_clock
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


async def test_none_is_kept_where_none_may_be() -> None:
    pool = Pool(idle_max=0)
    await pool.give(await used())
    assert len(pool) == 0


@pytest.mark.parametrize("answer", [b"HTTP/1.0 204 X\r\n\r\n", ANSWER + b"x", b"HTTP/1.1 200 X\r\n\r\n"])
async def test_what_cannot_be_used_again_is_closed(answer: bytes) -> None:
    pool = Pool()
    await pool.give(await used(answer=answer))
    assert len(pool) == 0


@pytest.mark.parametrize(("waited_s", "kept"), [(9.9, 1), (10, 0)])
async def test_the_idle_time_has_a_limit(waited_s: float, kept: int, autojump_clock: MockClock) -> None:
    del autojump_clock
    pool = Pool(idle_timeout_s=10)
    await pool.give(await used())
    await trio.sleep(waited_s)
    assert (await pool.take(ORIGIN) is not None) == bool(kept)
    assert len(pool) == 0


async def test_what_expired_is_closed_when_somebody_asks(autojump_clock: MockClock) -> None:
    del autojump_clock
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


async def test_a_closed_pool_keeps_nothing() -> None:
    pool = Pool()
    await pool.give(await used())
    await pool.aclose()
    await pool.give(await used())
    assert len(pool) == 0


async def test_the_cost_does_not_grow_with_what_waits() -> None:
    """httpcore asks every idle connection for each request."""
    steps = [await _steps(idle) for idle in (1, 2_000)]
    assert steps[0] == steps[1]


async def _steps(idle: int) -> int:
    """Calls of Python functions for a hundred requests."""
    pool, calls = Pool(idle_max=idle), 0
    for _ in range(idle):
        await pool.give(await used())

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        del frame, argument
        calls += event == "call"

    sys.setprofile(count)
    for _ in range(100):
        connection = await pool.take(ORIGIN)
        assert connection is not None
        await pool.give(connection)
    sys.setprofile(None)
    return calls
