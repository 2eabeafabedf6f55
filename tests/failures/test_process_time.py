"""Clocks that jump, memory that runs short, and faults of our own: one stream ends, and nothing else."""

import mmap
from collections.abc import Callable
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.failures.test_client_leaving import asked, follow, silent
from tests.proxy.scripted import Script, chunk, request_of
from tests.support import house as houses
from tests.support.house import ASKED, DONE, HEAD, House, Peer, call, finish, house, post, role, text
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record
from wiretape.proxy.api import streams as following_events
from wiretape.proxy.limits import MEMORY_A_STREAM_BYTES, MEMORY_SAMPLE_S
from wiretape.proxy.memory import Charge, Memory, resident_bytes
from wiretape.proxy.server.asgi import Reaper
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter

HOUR: Final = 3_600.0


# -- P12, P17: clocks --------------------------------------------------------------------------------------------------


@pytest.mark.case("P12")
@pytest.mark.parametrize(
    "jump_s",
    [pytest.param(-HOUR, id="an hour back"), pytest.param(365 * 24 * HOUR, id="a year on"), 1.0, -0.2, -2e9],
)
async def test_wall_clock_jump_changes_no_stream(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, jump_s: float
) -> None:
    """It says when a stream began, and nothing else: durations and order are of a clock that does not jump."""
    jumped = 0.0

    def wall() -> float:
        return 1_700_000_000.0 + trio.current_time() + jumped

    monkeypatch.setattr(houses, "_wall", wall)
    frames = [role(), text("a"), text("b"), finish(), DONE]
    async with house(Peer(*frames, every_s=1)) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(2.5)
            jumped = jump_s
        assert await home.ending() == ("completed", [])
        tape = await home.tape()
        times = [record.t for record in tape]
        assert times == sorted(times)
        assert times[-1] == pytest.approx(5_000_000, abs=1_000)
        await home.ask()
        assert await home.ending() == ("completed", [])


DAY: Final = 24 * HOUR


@pytest.mark.case("P12")
async def test_a_clock_ten_days_ahead_removes_no_tape(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once removed all of them within a minute. Back again after ten hours, no tape was lost."""
    jumped = 0.0
    monkeypatch.setattr(houses, "_wall", lambda: 1_700_000_000.0 + trio.current_time() + jumped)
    async with house(Peer(role(), text("a"), finish(), DONE), check=False) as home:
        for _ in range(8):
            await home.ask()
        await trio.sleep(HOUR)
        jumped = 10 * DAY
        await trio.sleep(10 * HOUR)
        assert len(await home.store.list(Filter())) == 8
        jumped = 0.0
        await trio.sleep(2 * DAY)
        assert len(await home.store.list(Filter())) == 8
        said = [fields["seconds"] for _, event, fields in home.log if event == "clock_jumped"]
        assert said == [10 * DAY, -10 * DAY]


@pytest.mark.case("P12")
async def test_after_ten_days_off_old_tapes_go_in_steps(autojump_clock: MockClock) -> None:
    """A start cannot know whether the clock is wrong or the pause was real: a quarter goes each hour, with a line."""
    store = MemoryStore()
    frames = [role(), text("a"), finish(), DONE]
    async with house(Peer(*frames), store=store, check=False) as home:
        for _ in range(8):
            await home.ask()
    await trio.sleep(10 * DAY)
    async with house(Peer(), store=store, check=False) as home:
        left: list[int] = []
        for wait_s in (90.0, *[HOUR] * 7):
            await trio.sleep(wait_s)
            left.append(len(await store.list(Filter())))
        assert left == [6, 4, 3, 2, 1, 0, 0, 0]
        assert [fields["streams"] for _, event, fields in home.log if event == "expired"] == [2, 2, 1, 1, 1, 1]


@pytest.mark.case("P12")
async def test_a_wrong_clock_that_stays_is_believed_after_a_day(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jumped = 0.0
    monkeypatch.setattr(houses, "_wall", lambda: 1_700_000_000.0 + trio.current_time() + jumped)
    async with house(Peer(role(), text("a"), finish(), DONE), check=False) as home:
        for _ in range(8):
            await home.ask()
        jumped = 10 * DAY
        await trio.sleep(DAY)
        assert len(await home.store.list(Filter())) == 8
        await trio.sleep(120)
        assert len(await home.store.list(Filter())) == 6
        await trio.sleep(12 * HOUR)
        assert len(await home.store.list(Filter())) == 0


@pytest.mark.case("P17")
async def test_after_a_pause_received_bytes_are_read_before_deadlines_count(mock_clock: MockClock) -> None:
    reaper, late = Reaper(), list[float]()
    progress_at = 0.0

    def check(now: float) -> float | None:
        if now >= progress_at + 5:
            late.append(now)
            return None
        return progress_at + 5

    reaper.watch(check, 5)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        await wait_all_tasks_blocked()
        mock_clock.jump(60)
        await wait_all_tasks_blocked()
        progress_at = trio.current_time()  # what lay in the socket
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert late == []
        mock_clock.jump(5)
        await wait_all_tasks_blocked()
        mock_clock.jump(1)
        await wait_all_tasks_blocked()
        assert len(late) == 1  # and who is still silent is late, a moment later
        nursery.cancel_scope.cancel()


# -- P20: faults of our own --------------------------------------------------------------------------------------------

FRAMES: Final = (role(), text("one"), call("{", "look"), text("BOOM"), call("}"), finish("tool_calls"), DONE)


def breaking(*, once: bool) -> Callable[[Emitter, Record], list[bytes]]:
    """An emitter that fails on one record: the first time, or whenever it sees it."""
    real, failed = Emitter.feed, list[int]()

    def feed(self: Emitter, record: Record) -> list[bytes]:
        if b"BOOM" in (record.raw or b"") and record.kind == "frame" and not (once and failed):
            failed.append(record.n)
            raise RuntimeError("a fault of our own")
        return real(self, record)

    return feed


@pytest.mark.case("P20")
@pytest.mark.parametrize("once", [True, False], ids=["once", "on every look"])
@pytest.mark.parametrize("every_s", [0.0, 1.0], ids=["in one read", "in reads of their own"])
async def test_bug_in_reading_a_frame_ends_one_stream(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch, once: bool, every_s: float
) -> None:
    monkeypatch.setattr(Emitter, "feed", breaking(once=once))

    async def script(stream: trio.abc.Stream) -> None:
        while data := await request_of(stream):
            frames = FRAMES if b"broken" in data else [*FRAMES[:3], *FRAMES[4:]]
            if every_s:
                await stream.send_all(HEAD)
                for each in frames:
                    await trio.sleep(every_s)
                    await stream.send_all(chunk(each))
                await stream.send_all(b"0\r\n\r\n")
            else:
                await trio.sleep(1)
                await stream.send_all(HEAD + b"".join(map(chunk, frames)) + b"0\r\n\r\n")

    async with house(script, check=False) as home:
        whole: list[Any] = []

        async def other() -> None:
            whole.append(await home.ask())

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(other)
            await trio.sleep(0.5)
            broken = await home.ask({**ASKED, "user": "broken"})
        for answered in whole:
            assert answered.body.endswith(DONE)
        stream = next(line for line in home.log if line[1] == "stream_failed")[2]["stream"]
        assert isinstance(stream, str)
        tape = await home.tape(stream)
        # If the finish came in the same read, the tape has everything, and later readers get it whole.
        expected = "completed" if once and not every_s else "internal"
        assert (tape[-1].kind, tape[-1].keys["ending"]) == ("end", expected)
        assert "failed_here" in tape[-1].keys["flags"]
        assert [record.n for record in tape] == list(range(len(tape)))
        assert b"BOOM" in b"".join(record.raw or b"" for record in tape)  # V3: what came is on the tape
        assert b"[DONE]" not in broken.body
        assert b'"internal"' in broken.body
        assert broken.ended in ("chunked", "length")
        assert broken.status == (200 if every_s else 500)
        assert (await home.ask()).body.endswith(DONE)
        assert not home.registry.live


@pytest.mark.case("P20")
async def test_bug_in_a_reader_ends_one_reader(autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch) -> None:
    async with house(Peer(role(), text("a"), text("b"), finish(), DONE, every_s=1)) as home:
        answers: list[Any] = []

        async def asks() -> None:
            answers.append(await home.ask())

        async with trio.open_nursery() as nursery:
            nursery.start_soon(asks)
            await trio.sleep(1.5)
            good, bad = await follow(home), await follow(home)
            await trio.sleep(0.1)
            real, left = following_events.Following.take, [1]

            async def take(self: Any) -> bytes | None:
                if left and left.pop():
                    raise RuntimeError("a fault of our own")
                return await real(self)

            monkeypatch.setattr(following_events.Following, "take", take)
            ends = [(await client.response()).ended for client in (good, bad)]
            good.close()
            bad.close()
        assert sorted(ends) in (["chunked", "cut"], ["chunked", "reset"])
        assert answers[0].body.endswith(DONE)
        assert await home.ending() == ("completed", [])


@pytest.mark.case("P20")
async def test_unexpected_store_error_ends_one_stream(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a StoreError: a mistake of ours, in the middle of a write. What it was to write is tried once more."""
    async with house(Peer(role(), text("a"), finish(), DONE, every_s=1), check=False) as home:
        real, calls = home.store.append, list[int]()

        async def append(*given: Any, **named: Any) -> Any:
            calls.append(1)
            if len(calls) == 3:
                raise ZeroDivisionError
            return await real(*given, **named)

        monkeypatch.setattr(home.store, "append", append)
        with trio.fail_after(100):
            failed = await home.ask()
            await home.settled()
            assert (failed.status, b'"internal"' in failed.body) == (200, True)
            assert failed.body == emit(await home.tape())
            assert (await home.ask()).body.endswith(DONE)
        assert [line[1] for line in home.log].count("stream_failed") >= 1


# -- P01: before and after the signal, in virtual time -----------------------------------------------------------------


async def drained(home: House, seconds: float) -> None:
    await home.registry.drain(trio.current_time() + seconds)


@pytest.mark.case("P01")
@pytest.mark.parametrize(
    ("script", "status", "said"),
    [
        pytest.param(silent(head=b""), 503, b'"code":"shutdown"', id="before the upstream's head"),
        pytest.param(silent(), 503, b'"code":"shutdown"', id="before the first frame"),
        pytest.param(silent(role()), 503, b'"code":"shutdown"', id="before any content"),
        pytest.param(silent(role(), text("hi")), 200, b'"code":"shutdown"', id="after text"),
        pytest.param(silent(role(), call('{"a', "look")), 200, b'"dropped_tools":[{', id="inside a call"),
        pytest.param(silent(b" ", head=HEAD.replace(b"text/event-stream", b"x/y")), 503, b"shutdown", id="unknown"),
    ],
)
@pytest.mark.parametrize("drain_s", [0.0, 5.0])
async def test_streams_still_running_after_the_drain_end_as_shutdown(
    autojump_clock: MockClock, script: Script, status: int, said: bytes, drain_s: float
) -> None:
    async with house(script) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(1)
            began = trio.current_time()
            nursery.start_soon(drained, home, drain_s)
            await wait_all_tasks_blocked()
            refused = await home.ask()
            assert (refused.status, b"shutdown" in refused.body) == (503, True)
        assert trio.current_time() - began == pytest.approx(drain_s, abs=0.1)
        (answered,) = [each for each in home.answers if each is not refused]
        assert answered.status == status
        assert said in answered.body
        assert b"[DONE]" not in answered.body
        assert await home.ending() == ("shutdown", [])


@pytest.mark.case("P01")
async def test_stream_finished_before_the_signal_is_completed(autojump_clock: MockClock) -> None:
    async with house(silent(role(), text("hi"), finish()), route={"finish_grace_s": 60}) as home:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(asked, home)
            await trio.sleep(1)
            nursery.start_soon(drained, home, 2)
        assert await home.ending() == ("completed", ["no_done"])


# -- P10, P13: what is admitted ----------------------------------------------------------------------------------------


@pytest.mark.case("P10")
async def test_stream_beyond_the_limit_is_refused_until_one_ends(autojump_clock: MockClock) -> None:
    async with house(silent(role(), text("hi")), config={"streams_max": 3}) as home:
        clients = [await home.connect() for _ in range(3)]
        for client in clients:
            await client.send(post())
        await trio.sleep(1)
        refused = await home.ask()
        assert (refused.status, refused.header(b"retry-after")) == (503, b"1")
        clients.pop().close()
        await trio.sleep(0.1)
        more = await home.connect()
        await more.send(post())
        assert b"HTTP/1.1 200 " in await more.receive()
        for client in (*clients, more):
            client.close()
        await home.settled()
        for stream in home.streams:
            assert await home.ending(stream) == ("client_gone", [])


@pytest.mark.case("P10", "C09")
async def test_concurrent_uploads_respect_the_stream_limit(autojump_clock: MockClock) -> None:
    async with house(silent(role(), text("hi")), config={"streams_max": 3}) as home:
        clients = [await home.connect() for _ in range(6)]
        for client in clients:
            await client.send(post()[:-5])
        await trio.sleep(1)
        for client in clients:
            await client.send(post()[-5:])
        await trio.sleep(1)
        assert len(home.registry.live) == 3
        statuses = sorted([(await client.receive()).split(b" ")[1] for client in clients])
        assert statuses == [b"200"] * 3 + [b"503"] * 3
        for client in clients:
            client.close()


MIB: Final = 1024 * 1024


@pytest.mark.case("P13")
@pytest.mark.parametrize("at_once", [1, 10, 1_000])
@pytest.mark.parametrize("stream_bytes", [90 * 1024, 256 * 1024])
async def test_streams_are_refused_before_memory_is_full(
    autojump_clock: MockClock, stream_bytes: int, at_once: int
) -> None:
    """256 MB, a thousand streams, so many of them between two looks at the memory; each grows after it was let in."""
    most, base, running, refused = 256 * MIB, 60 * MIB, 0, 0
    memory = Memory(most, lambda: base + running * stream_bytes)
    for _ in range(1_000 // at_once):
        await trio.sleep(MEMORY_SAMPLE_S)
        begun = [Charge(memory).add(MEMORY_A_STREAM_BYTES) for _ in range(at_once)]
        running += sum(begun)
        refused += at_once - sum(begun)
        assert base + running * stream_bytes <= most - 24 * MIB  # room for one stream at its worst
    assert running >= 600
    assert refused == 1_000 - running


@pytest.mark.case("P13")
def test_resident_bytes_is_the_memory_of_this_process() -> None:
    before = resident_bytes()
    with mmap.mmap(-1, 64 * MIB) as taken:  # and not what this process had already, and uses again
        for at in range(0, 64 * MIB, 4_096):
            taken[at] = 1
        assert 60 * MIB < resident_bytes() - before < 80 * MIB
    assert 20 * MIB < before < 4_096 * MIB


@pytest.mark.case("P13")
async def test_stream_is_refused_with_retry_after_when_memory_is_short(autojump_clock: MockClock) -> None:
    script = Peer(role(), text("hi"), finish(), DONE)
    async with house(script, config={"memory_max_bytes": 16 * MIB}) as home:
        refused = await home.ask()
        assert (refused.status, refused.header(b"retry-after")) == (503, b"1")
        assert b"memory_max_bytes" in refused.body
        assert not home.streams
    async with house(script, config={"memory_max_bytes": 64 * 1024 * MIB}) as home:
        assert (await home.ask()).status == 200
        assert await home.ending() == ("completed", [])
