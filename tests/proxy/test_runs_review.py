"""What the review of hermes-agent's first `/v1/runs` found, as tests of ours (NousResearch/hermes-agent#3100, #5292).

The keepalive after 30 s of silence ended the stream, the task of a run could be garbage-collected, a run without a
reader was never cleaned up, and clients could not rely on the fields of an event.
"""

import gc
from collections.abc import Generator
from contextlib import contextmanager
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from tests.support.house import DONE, Peer, answer, call, finish, frame, house, role, text, usage
from tests.support.http import Answer
from tests.support.run_clients import (
    CLOSING,
    HEAD_ONCE,
    TOOLS,
    ask,
    event_of,
    frames_of,
    history,
    names,
    started,
    view,
    viewer,
    wrong_with,
)
from wiretape.events.folds.run_events import RUN_EVENTS
from wiretape.proxy.config.model import Keep

#: Far above every silence here.
PATIENT = {"idle_s": 20_000.0, "first_byte_s": 20_000.0}
KEEPALIVE = b": keepalive\n\n"
DAY_S = 86_400


def calls() -> Peer:
    """An upstream that asks for one tool."""
    return Peer(role(), call('{"path":"x"}', "read"), finish("tool_calls"), usage(), DONE, head=HEAD_ONCE)


def says(word: str) -> Peer:
    return Peer(role(), text(word), finish(), usage(), DONE, head=HEAD_ONCE)


def longest_silence_s(answered: Answer) -> float:
    times = [answered.at, *(at for at, _ in answered.pieces)]
    return max(later - at for at, later in pairwise(times))


# -- the keepalive does not end the stream ----------------------------------------------------------------------------


@pytest.mark.parametrize("silence_s", [40, 3_700])
async def test_the_keepalive_does_not_end_the_stream(silence_s: float, autojump_clock: MockClock) -> None:
    """There, the first keepalive after 30 s was the end."""
    upstream = Peer(text("one"), text(" two"), finish(), DONE, every_s=silence_s)
    async with house(upstream, route=PATIENT) as home:
        run = await started(home)
        viewed = await view(home, run)
        assert viewed.ended == "chunked"
        frames = frames_of(viewed.body)
        assert frames == await history(home.store, run)
        assert [event_of(each).get("delta") for each in frames][1:3] == ["one", " two"]
        assert names(frames)[-1] == "run.completed"
        assert viewed.body.count(KEEPALIVE) >= 3 * (silence_s // 15)
        assert longest_silence_s(viewed) <= 15.1


async def test_the_keepalive_does_not_end_the_stream_of_a_run_that_waits_for_its_tools(
    autojump_clock: MockClock,
) -> None:
    async with house(calls(), says("done")) as home:
        run = await started(home, tools=TOOLS)
        client = await viewer(home, run)
        viewed = await client.response(until=lambda answer: b"run.waiting_for_tools" in answer.body)
        with trio.move_on_after(3_600) as hour:
            while viewed.ended == "open":
                await client.more(viewed)
        assert hour.cancelled_caught
        outputs = {"tool_outputs": [{"call_id": "call_0", "output": "x"}]}
        assert (await ask(home, f"/{run}/tool_outputs", outputs))[0] == 202
        while viewed.ended == "open":
            await client.more(viewed)
        client.close()
        assert viewed.ended == "chunked"
        assert frames_of(viewed.body) == await history(home.store, run)
        assert longest_silence_s(viewed) <= 15.1


# -- no background work is lost to garbage collection -----------------------------------------------------------------


class Collecting(trio.abc.Instrument):
    """Collect all garbage after each step of each task."""

    steps = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        del task
        self.steps += 1
        gc.collect()


@contextmanager
def forced_collection() -> Generator[Collecting]:
    collecting, thresholds = Collecting(), gc.get_threshold()
    gc.collect()
    gc.freeze()  # what is older costs no time
    gc.set_threshold(1, 1, 1)
    trio.lowlevel.add_instrument(collecting)
    try:
        yield collecting
    finally:
        trio.lowlevel.remove_instrument(collecting)
        gc.set_threshold(*thresholds)
        gc.unfreeze()


async def test_no_background_work_is_lost_to_garbage_collection(autojump_clock: MockClock) -> None:
    """There, nothing but the event loop's weak reference held the task of a run."""
    async with house(calls(), says("done")) as home:
        with forced_collection() as collecting:
            unwatched = await started(home, tools=TOOLS)
            await trio.sleep(60)
            watched = await started(home)
            viewed = await view(home, watched)
            status, waiting = await ask(home, f"/{unwatched}", method="GET")
            assert (status, waiting["status"]) == (200, "waiting_for_tools")
            outputs = {"tool_outputs": [{"call_id": "call_0", "output": "x"}]}
            assert (await ask(home, f"/{unwatched}/tool_outputs", outputs))[0] == 202
            await trio.sleep(60)
            status, ended = await ask(home, f"/{unwatched}", method="GET")
        assert (status, ended["status"], ended["output"]) == (200, "completed", "done")
        assert names(frames_of(viewed.body))[-1] == "run.completed"
        assert collecting.steps > 100


# -- orphaned runs are cleaned up -------------------------------------------------------------------------------------


async def test_a_run_that_nothing_watches_is_cancelled(autojump_clock: MockClock) -> None:
    async with house(Peer(*[text("x")] * 500, every_s=20), route=PATIENT) as home:
        run = await started(home)
        await trio.sleep(3_500)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "running"
        await trio.sleep(200)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "cancelled"
        assert not home.registry.live
        assert not home.upstream.still_open
        last = event_of((await history(home.store, run))[-1])
        assert (last["event"], last["reason"]) == ("run.cancelled", "unwatched")


async def test_a_run_that_is_watched_goes_on(autojump_clock: MockClock) -> None:
    async with house(Peer(*[text("x")] * 500, finish(), DONE, every_s=20), route=PATIENT) as home:
        viewed = await view(home, await started(home))
        assert names(frames_of(viewed.body))[-1] == "run.completed"


async def test_a_viewer_that_left_in_time_gives_a_run_another_hour(autojump_clock: MockClock) -> None:
    async with house(Peer(*[text("x")] * 500, every_s=20), route=PATIENT) as home:
        run = await started(home)
        await trio.sleep(3_000)
        client = await viewer(home, run)
        await client.response(until=lambda answer: b"message.delta" in answer.body)
        client.close()
        await trio.sleep(3_000)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "running"
        await trio.sleep(700)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "cancelled"


async def test_a_run_that_waits_for_its_tools_too_long_is_cancelled(autojump_clock: MockClock) -> None:
    async with house(calls()) as home:
        run = await started(home, tools=TOOLS)
        await trio.sleep(DAY_S - 100)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "waiting_for_tools"
        await trio.sleep(200)
        assert (await ask(home, f"/{run}", method="GET"))[1]["status"] == "cancelled"
        frames = await history(home.store, run)
        assert event_of(frames[-1])["reason"] == "waited"
        assert wrong_with(frames, run) == []
        outputs = {"tool_outputs": [{"call_id": "call_0", "output": "x"}]}
        assert (await ask(home, f"/{run}/tool_outputs", outputs))[0] == 409


async def test_a_finished_run_that_no_client_reads_is_removed_after_a_week(autojump_clock: MockClock) -> None:
    """One that was read stays as long as its tapes."""
    async with house(says("hi"), config={"keep": Keep(days=30)}, check=False) as home:
        unread, read = await started(home), await started(home)
        await view(home, read)
        await trio.sleep(6 * DAY_S)
        _, listed = await ask(home, "", method="GET")
        assert {each["run_id"] for each in listed["data"]} == {unread, read}
        await trio.sleep(DAY_S + 100)
        assert (await ask(home, f"/{unread}", method="GET"))[0] == 404
        assert (await ask(home, f"/{read}", method="GET"))[1]["status"] == "completed"


# -- every event validates against its schema -------------------------------------------------------------------------

#: What a relayed run alone has.
RELAYED = {"approval.request", "approval.responded"}


async def test_every_event_validates_against_its_schema(autojump_clock: MockClock) -> None:
    thinks = frame({"reasoning_content": "let me see"})
    cut = Peer(
        role(),
        call('{"path":"x"}', "read"),
        call('{"pa', "write_file", index=1),
        finish("tool_calls"),
        DONE,
        head=HEAD_ONCE,
    )
    ends = [
        says("done"),
        answer(400, b'{"error":{"message":"no","type":"t","code":"c"}}', "Connection: close"),
        Peer(role(), text("hi"), end="rst"),
        Peer(end="stall"),
        cut,
    ]
    seen: set[str] = set()
    for ending in ends:
        asking = Peer(role(), thinks, call('{"path":"x"}', "read"), finish("tool_calls"), usage(), DONE, head=HEAD_ONCE)
        async with house(asking, ending, route={"attempts": 1}) as home:
            run = await started(home, tools=TOOLS, stream_tool_arguments=True, session_id="s")
            client = await viewer(home, run)
            viewed = await client.response(until=lambda answer: b"run.waiting_for_tools" in answer.body)
            await trio.sleep(1)
            outputs = {"tool_outputs": [{"call_id": "call_0", "output": "no", "error": True}]}
            assert (await ask(home, f"/{run}/tool_outputs", outputs))[0] == 202
            if ending is ends[3]:
                await trio.sleep(10)
                assert (await ask(home, f"/{run}/stop"))[0] == 200
            with trio.move_on_after(60):
                while viewed.ended == "open":
                    await client.more(viewed)
            client.close()
            frames = frames_of(viewed.body)
            assert frames == await history(home.store, run)
            assert wrong_with(frames, run, ended=names(frames)[-1] in CLOSING) == []
            if names(frames)[-1] == "run.waiting_for_tools":
                assert (await ask(home, f"/{run}/stop"))[0] == 200
            seen |= set(names(frames))
    assert seen == RUN_EVENTS.keys() - RELAYED
