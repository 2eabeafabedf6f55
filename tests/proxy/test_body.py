"""Response bodies: draining after the terminator, leaving early, and cancelled reads."""

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import HEAD, OK, Script, answers, chunk, post, request_of, says, served
from wiretape.events.core.errors import LocalError
from wiretape.proxy.limits import DRAIN_BYTES_MAX, DRAIN_TIMEOUT_S
from wiretape.proxy.upstream.errors import ResetError
from wiretape.proxy.upstream.exchange import End
from wiretape.proxy.upstream.transport import body_of

LAST = b"0\r\n\r\n"


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
        body = body_of(await transport.handle_async_request(post()))
        read = await body.receive()
        assert read is not None
        assert read.data == b"x"
        began = trio.current_time()
        assert [late.data for late in await body.drain()] == late
        assert trio.current_time() - began <= DRAIN_TIMEOUT_S
        assert (len(transport.pool), len(upstream.still_open)) == (kept, kept)


async def test_draining_is_bounded_in_bytes(autojump_clock: MockClock) -> None:
    async with served(says(HEAD, *[chunk(b"x" * 1000)] * 1000, keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        drained = await body.drain(timeout_s=10_000)
        assert DRAIN_BYTES_MAX < sum(len(read.data) for read in drained) <= DRAIN_BYTES_MAX + 1000
        assert not upstream.still_open


async def test_draining_can_be_cancelled(autojump_clock: MockClock) -> None:
    async with served(says(HEAD, keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        with trio.move_on_after(0.1) as scope:
            await body.drain()
        assert scope.cancelled_caught
        assert not upstream.still_open


async def test_leaving_early_closes_the_connection() -> None:
    async with served(says(HEAD + chunk(b"x"), keep=True)) as (transport, upstream):
        async with body_of(await transport.handle_async_request(post())) as body:
            await body.receive()
            assert len(upstream.still_open) == 1
        assert not upstream.still_open
        assert body.end is None
        with pytest.raises(LocalError):
            await body.receive()


async def test_closing_works_in_cancelled_scope_and_twice() -> None:
    async with served(says(HEAD + chunk(b"x"), keep=True)) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        with trio.CancelScope() as scope:
            scope.cancel()
            await body.aclose()
            await body.aclose()
        assert not upstream.still_open


async def test_cancelled_read_loses_nothing(autojump_clock: MockClock) -> None:
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


async def test_fault_is_raised_each_time() -> None:
    async with served(answers(HEAD + chunk(b"x") + b"junk\r\n")) as (transport, upstream):
        body = body_of(await transport.handle_async_request(post()))
        assert await body.receive() is not None
        for _ in range(2):
            with pytest.raises(type(body.fault) if body.fault else ResetError):
                await body.receive()
        assert not upstream.still_open


async def test_ended_body_keeps_its_end_after_next_exchange() -> None:
    async with served(answers(OK, OK[:-1])) as (transport, _):
        first = body_of(await transport.handle_async_request(post()))
        assert [read.data async for read in first] == [b"ok"]
        second = body_of(await transport.handle_async_request(post()))
        assert await first.receive() is None
        assert (first.end, second.end) == (End.FRAMED, None)
        await second.aclose()
