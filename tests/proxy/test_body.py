"""The answer's body: draining after the terminator, leaving early, and cancelled reads that lose nothing."""

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import HEAD, OK, Script, answers, chunk, post, request_of, says, served
from wiretape.events.core.errors import LocalError
from wiretape.proxy.limits import DRAIN_BYTES_MAX, DRAIN_TIMEOUT_S
from wiretape.proxy.upstream.errors import ResetError, TruncatedError
from wiretape.proxy.upstream.exchange import End
from wiretape.proxy.upstream.transport import body_of

LAST = b"0\r\n\r\n"


def paced(*pieces: tuple[float, bytes]) -> Script:
    """The pieces of an answer, each after so many seconds; then silence."""

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
async def test_after_the_terminator_a_body_is_drained(
    pieces: list[tuple[float, bytes]], late: list[bytes], kept: int, autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with served(paced(*pieces)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        read = await body.receive()
        assert read is not None
        assert read.data == b"x"
        began = trio.current_time()
        assert [late.data for late in await body.drain()] == late
        assert trio.current_time() - began <= DRAIN_TIMEOUT_S
        assert (len(transport.pool), len(upstream.still_open)) == (kept, kept)


async def test_an_upstream_that_does_not_stop_is_left(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with served(says(HEAD, *[chunk(b"x" * 1000)] * 1000, keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        drained = await body.drain(timeout_s=10_000)
        assert DRAIN_BYTES_MAX < sum(len(read.data) for read in drained) <= DRAIN_BYTES_MAX + 1000
        assert not upstream.still_open


async def test_draining_is_cancelled_at_once(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with served(says(HEAD, keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        with trio.move_on_after(0.1) as scope:
            await body.drain()
        assert scope.cancelled_caught
        assert not upstream.still_open


async def test_who_leaves_early_closes_the_connection() -> None:
    async with served(says(HEAD + chunk(b"x"), keep=True)) as (transport, upstream):
        async with body_of(await transport.handle_async_request(post())) as body:
            await body.receive()
            assert len(upstream.still_open) == 1
        assert not upstream.still_open
        assert body.end is None
        with pytest.raises(LocalError):
            await body.receive()


async def test_closing_works_in_a_cancelled_scope_and_twice() -> None:
    async with served(says(HEAD + chunk(b"x"), keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        with trio.CancelScope() as scope:
            scope.cancel()
            await body.aclose()
            await body.aclose()
        assert not upstream.still_open


async def test_who_closes_at_the_end_keeps_the_connection() -> None:
    async with served(answers(OK)) as (transport, _):
        response = await transport.handle_async_request(post())
        await response.aclose()
        assert len(transport.pool) == 1


async def test_a_cancelled_read_has_lost_nothing(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with served(paced((0, HEAD), (10, chunk(b"a")), (10, chunk(b"b") + LAST))) as (transport, _):
        got: list[bytes] = []
        body = body_of(await transport.handle_async_request(post()))
        while body.end is None:
            with trio.move_on_after(0.7):
                if read := await body.receive():
                    got.append(read.data)
        assert got == [b"a", b"b"]
        assert await body.receive() is None
        assert len(transport.pool) == 1


async def test_a_fault_is_raised_each_time_and_stays() -> None:
    async with served(answers(HEAD + chunk(b"x") + b"junk\r\n")) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        assert await body.receive() is not None
        for _ in range(2):
            with pytest.raises(type(body.fault) if body.fault else ResetError):
                await body.receive()
        assert not upstream.still_open


async def test_the_end_is_told_again_and_the_next_exchange_does_not_change_it() -> None:
    async with served(answers(OK, OK[:-1])) as (transport, _):
        first = body_of(await transport.handle_async_request(post()))
        assert [read.data async for read in first] == [b"ok"]
        second = body_of(await transport.handle_async_request(post()))
        assert await first.receive() is None
        assert (first.end, second.end) == (End.FRAMED, None)
        await second.aclose()


async def test_a_close_before_the_first_body_byte_is_told(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with served(says(HEAD)) as (transport, _):
        body = body_of(await transport.handle_async_request(post()))
        with pytest.raises(TruncatedError):
            await body.receive()
