"""Runs as test material: sealed, and replayed with what their client sent and the events that it got."""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.support.house import DONE, Peer, house, usage
from tests.support.house import answer as upstream_answer
from tests.support.house import call as house_call
from tests.support.house import finish as house_finish
from tests.support.house import text as house_text
from tests.support.run_tapes import RUN, cut, outputs, relayed, started, stop_at, stopped, turn_of, two_turns
from tests.support.tapes import text
from wiretape.events.core.json_text import parse
from wiretape.events.emit import RunReader
from wiretape.events.tape.record import Record, encode
from wiretape.replay.compare.compare import compare
from wiretape.replay.compare.verify import verify
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import request_of
from wiretape.replay.playback.script import Request, script_of
from wiretape.replay.playback.server import listening
from wiretape.replay.playback.transport import TapeTransport
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.seal import seal
from wiretape.replay.sealed.files import Recording
from wiretape.replay.sealed.files import parse as read
from wiretape.replay.serving.serving import Serving, deck_of

Tapes = Sequence[Sequence[Record]]


class Client:
    """A client of a replay, and what it has received of the events."""

    def __init__(self, recording: Recording, *faults: str, **how: Any) -> None:
        self.serving = Serving(deck_of([("", recording)], "key", **how), Faults.of(faults))
        transport = TapeTransport(self.serving.choose)
        self.http = httpx.AsyncClient(transport=transport, base_url="http://tape/v1", timeout=None)  # noqa: S113 - virtual time
        self.frames: list[bytes] = []

    async def post(self, path: str, body: Mapping[str, Any] | None = None) -> tuple[int, Any]:
        answer = await self.http.post(path, json=body)
        return answer.status_code, parse(answer.content)

    async def get(self, path: str) -> tuple[int, Any]:
        answer = await self.http.get(path)
        return answer.status_code, parse(answer.content)

    async def events(self, run: str, last: str = "") -> AsyncIterator[dict[str, Any]]:
        """Yield each event of a run until its stream ends."""
        headers = {"Last-Event-ID": last} if last else {}
        async with self.http.stream("GET", f"/runs/{run}/events", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            buffer = b""
            async for data in answer.aiter_raw():
                buffer += data
                while b"\n\n" in buffer:
                    frame, _, buffer = buffer.partition(b"\n\n")
                    self.frames.append(frame + b"\n\n")
                    yield parse(frame.partition(b"\ndata: ")[2])


@asynccontextmanager
async def client(recording: Recording, *faults: str, **how: Any) -> AsyncGenerator[Client]:
    one = Client(recording, *faults, **how)
    async with one.http:
        yield one


def sealed(tapes: Tapes) -> Recording:
    return read(seal(tapes))


def frames_of(tapes: Tapes) -> list[bytes]:
    """Return the events as a viewer of the live run gets them."""
    reader = RunReader()
    return [frame for records in tapes for frame in reader.feed(*records)]


def renamed(frames: Sequence[bytes], *names: tuple[str, str]) -> list[bytes]:
    for old, new in names:
        frames = [frame.replace(old.encode(), new.encode()) for frame in frames]
    return list(frames)


async def lived(*turns: Peer) -> tuple[list[Sequence[Record]], str, bytes]:
    """Return the tapes of a run through the whole proxy, its id, and what its viewer got."""
    async with house(*turns) as home:
        run = parse((await home.ask(started(), path="/v1/runs")).body)["run_id"]
        await home.settled()
        if len(turns) > 1:
            answered = await home.ask(outputs(call_0="Sunny"), path=f"/v1/runs/{run}/tool_outputs")
            assert answered.status == 202
            await home.settled()
        seen = (await home.ask(b"", path=f"/v1/runs/{run}/events", method="GET")).body
        written = [b"".join(map(encode, await home.tape(stream))) for stream in home.streams]
    return [read(tape).streams[0] for tape in written], run, seen


_ASKING = [house_call("{", "look"), house_call("}")]
LIVED = {
    "two turns": (
        Peer(*_ASKING, house_finish("tool_calls"), usage(), DONE, every_s=1, end="fin"),
        Peer(house_text("Hi"), house_finish(), DONE),
    ),
    "reset inside a call": (Peer(*_ASKING[:1], end="rst"),),
    "an error": (upstream_answer(400, b'{"error":{"message":"no such model"}}'),),
}


@pytest.mark.parametrize("case", LIVED)
async def test_a_run_through_the_proxy_and_its_replay_have_the_same_events(
    case: str, autojump_clock: MockClock
) -> None:
    tapes, run, seen = await lived(*LIVED[case])
    async with client(sealed(tapes)) as one:
        await one.post("/runs", started())
        if len(tapes) > 1:
            assert (await one.post("/runs/run_1/tool_outputs", outputs(call_1="Sunny")))[0] == 202
        assert [event["event"] async for event in one.events("run_1")][-1] in ("run.completed", "run.failed")
        assert b"".join(one.frames) == seen.replace(run.encode(), b"run_1").replace(b"call_0", b"call_1")


async def test_a_replayed_run_of_two_turns_has_the_events_of_the_live_one(autojump_clock: MockClock) -> None:
    live = two_turns()
    async with client(sealed(live)) as one:
        assert await one.post("/runs", started()) == (202, {"run_id": "run_1", "status": "started"})
        seen: list[str] = []
        async for event in one.events("run_1"):
            seen.append(event["event"])
            if event["event"] == "run.waiting_for_tools":
                _, state = await one.get("/runs/run_1")
                assert (state["status"], len(state["streams"])) == ("waiting_for_tools", 1)
                body = outputs(**{call["call_id"]: "Sunny" for call in event["calls"]})
                answer = await one.post("/runs/run_1/tool_outputs", body)
                assert answer == (202, {"run_id": "run_1", "status": "running"})
        assert one.frames == renamed(frames_of(live), (RUN, "run_1"))
        assert seen[-1] == "run.completed"
        status, state = await one.get("/runs/run_1")
        assert (status, state["status"], state["output"]) == (200, "completed", "Sunny in Oslo")
        assert (one.serving.unused, one.serving.misses) == ([], [])
        assert [line.split()[1:3] for line in one.serving.lines][-2:] == [
            ["POST", "/v1/runs/run_1/tool_outputs"],
            ["GET", "/v1/runs/run_1"],
        ]


async def test_a_replayed_run_that_was_cut_has_the_events_of_the_live_one(autojump_clock: MockClock) -> None:
    live = cut()
    async with client(sealed(live)) as one:
        await one.post("/runs", started())
        events = [event async for event in one.events("run_1")]
        assert (events[-1]["event"], events[-1]["code"]) == ("run.failed", "reset")
        assert one.frames == renamed(frames_of(live), (RUN, "run_1"))


async def test_an_unsealed_run_is_replayed_under_its_own_id(autojump_clock: MockClock) -> None:
    live = two_turns()
    async with client(Recording({}, live)) as one:
        await one.post("/runs", started())
        await one.post(f"/runs/{RUN}/tool_outputs", outputs(call_1="Sunny"))
        assert [event["sequence"] async for event in one.events(RUN, "3")][:2] == [4, 5]
        assert one.frames == frames_of(live)[3:]


async def test_events_wait_for_what_the_client_sent(autojump_clock: MockClock) -> None:
    live = [*two_turns()[:1], stopped(2)]
    async with client(sealed(live)) as one, trio.open_nursery() as nursery:
        await one.post("/runs", started())
        names: list[str] = []

        async def view() -> None:
            async for event in one.events("run_1"):
                names.append(event["event"])  # noqa: PERF401 - looked at meanwhile

        nursery.start_soon(view)
        await trio.sleep(30)
        assert names[-1] == "run.waiting_for_tools"
        assert await one.post("/runs/run_1/stop") == (200, {"run_id": "run_1", "status": "stopping"})
        await trio.sleep(1)
        assert names[-1] == "run.cancelled"
    assert one.frames == renamed(frames_of(live), (RUN, "run_1"))


async def test_a_run_that_waited_too_long_is_cancelled_without_its_client(autojump_clock: MockClock) -> None:
    live = [*two_turns()[:1], stopped(2, "waited", what="expired")]
    async with client(sealed(live)) as one:
        await one.post("/runs", started())
        assert [event["event"] async for event in one.events("run_1")][-1] == "run.cancelled"
        assert one.serving.unused == []


async def test_a_run_stopped_in_its_turn_waits_for_the_stop(autojump_clock: MockClock) -> None:
    live = [stop_at(turn_of(text("?", "Sun", "ny"), "start", started()), 1)]
    async with client(sealed(live)) as one:
        await one.post("/runs", started())
        with trio.move_on_after(30) as waiting:
            names = [event["event"] async for event in one.events("run_1")]
        assert waiting.cancelled_caught
        assert len(one.frames) == len(frames_of(live)) - 1
        await one.post("/runs/run_1/stop", {})
        names = [event["event"] async for event in one.events("run_1", str(len(one.frames)))]
        assert names == ["run.cancelled"]


async def test_a_run_that_still_waited_when_it_was_sealed_stays_silent(autojump_clock: MockClock) -> None:
    live = two_turns()[:1]
    async with client(sealed(live)) as one:
        await one.post("/runs", started())
        with trio.move_on_after(600) as waiting:
            async for _ in one.events("run_1"):
                pass
        assert waiting.cancelled_caught
        assert len(one.frames) == len(frames_of(live))


async def test_a_replayed_run_of_the_upstream_waits_for_the_approval(autojump_clock: MockClock) -> None:
    live = [relayed()]
    async with client(sealed(live)) as one, trio.open_nursery() as nursery:
        assert (await one.post("/runs", started()))[0] == 202
        names: list[str] = []

        async def view() -> None:
            async for event in one.events("run_1"):
                names.append(event["event"])  # noqa: PERF401 - looked at meanwhile

        nursery.start_soon(view)
        await trio.sleep(30)
        assert names[-1] == "approval.request"
        assert (await one.post("/runs/run_1/approval", {"choice": "deny"}))[0] == 599
        status, answer = await one.post("/runs/run_1/approval", {"choice": "approve"})
        assert (status, answer["choice"], answer["resolved"]) == (200, "once", 1)
        await trio.sleep(1)
        assert names[-1] == "run.completed"
    assert one.frames == renamed(frames_of(live), (RUN, "run_1"))


async def test_what_was_not_recorded_of_a_run_is_a_miss(autojump_clock: MockClock) -> None:
    async with client(sealed(two_turns())) as one:
        assert (await one.get("/runs/run_1/events"))[0] == 599
        status, answer = await one.post("/runs", started("rain?"))
        assert status == 599
        assert 'input: "weather?" -> "rain?"' in answer["error"]["message"]
        await one.post("/runs", started())
        assert (await one.post("/runs/run_1/tool_outputs", outputs(call_1="Rain")))[0] == 599
        assert (await one.post("/runs/run_1/stop"))[0] == 599
        assert (await one.get("/runs/run_2"))[0] == 599
        assert len(one.serving.unused) == 1


async def test_tool_outputs_match_without_their_volatile_values(autojump_clock: MockClock) -> None:
    first = two_turns()[0]
    second = turn_of(text("?", "Sunny"), "outputs", outputs(call_1="at 19:59:22", call_2='{"took": 1}'), 2)
    async with client(sealed([first, second])) as one:
        await one.post("/runs", started(session_id="s2", metadata={"a": 1}))
        answers = {"call_2": '{ "took":1 }', "call_1": "at 20:01:07"}
        assert (await one.post("/runs/run_1/tool_outputs", outputs(**answers)))[0] == 202


async def test_a_fault_breaks_the_events_and_the_client_comes_back(autojump_clock: MockClock) -> None:
    live = two_turns()
    async with client(sealed(live), f"reset@frame:{len(frames_of(live[:1]))}") as one:
        await one.post("/runs", started())
        with pytest.raises(httpx.ReadError):
            async for _ in one.events("run_1"):
                pass
        assert parse(one.frames[-1].partition(b"data: ")[2])["event"] == "run.waiting_for_tools"
        one.serving.faults = Faults()
        await one.post("/runs/run_1/tool_outputs", outputs(call_1="Sunny"))
        async for _ in one.events("run_1", str(len(one.frames))):
            pass
        assert one.frames == renamed(frames_of(live), (RUN, "run_1"))


async def test_the_chat_streams_of_a_run_answer_a_proxy_that_makes_runs_itself(autojump_clock: MockClock) -> None:
    live = two_turns()
    request = parse(next(record for record in live[0] if record.kind == "request").raw or b"")
    async with client(sealed(live)) as one:
        answer = await one.http.post("/chat/completions", json=request)
        assert answer.content.endswith(b"data: [DONE]\n\n")
        assert len(one.serving.unused) == 1


def test_a_run_is_replayed_over_a_port_as_the_pytest_plugin_does() -> None:
    serving, last = Serving(deck_of([("", sealed(two_turns()))], "key"), Faults()), ""
    with closing(Thread()) as thread, httpx.Client(base_url=f"{thread.serve('t', serving.choose)}/v1") as http:
        http.post("/runs", json=started())
        with http.stream("GET", "/runs/run_1/events") as answer:
            for line in answer.iter_lines():
                if "run.waiting_for_tools" in line:
                    assert http.post("/runs/run_1/tool_outputs", json=outputs(call_1="Sunny")).status_code == 202
                last = line or last
            assert "run.completed" in last
    assert (serving.misses, serving.unused) == ([], [])


NASTY: Sequence[Any] = (None, -1, 10**30, 1.5, "", "run_1", "stop", "relay", "\ud800", [], {}, [[1]])


@pytest.mark.parametrize("kind", ["open", "run", "stop", "approval"])
def test_no_key_of_a_strangers_run_breaks_a_replay(kind: str) -> None:
    """A tape may hold anything where a recorder writes an id, a number or a word."""
    bases = [stop_at(two_turns()[0], 1), stopped(2), relayed()]
    for records in (records for records in bases if any(each.kind == kind for each in records)):
        at = next(at for at, each in enumerate(records) if each.kind == kind)
        for name in ({*records[at].keys} | {"run", "route", "created_us"}) - {"format", "dialect", "profile"}:
            for value in NASTY:
                keys = {**records[at].keys, name: value}
                changed = [*records[:at], records[at]._replace(keys=keys), *records[at + 1 :]]
                serving = Serving(deck_of([("", Recording({}, [changed]))], "key"), Faults())
                for row in serving.deck.rows:
                    serving.choose(request_of(row.records))
                for part in ("", "/events"):
                    serving.choose(Request(b"GET", f"/v1/runs/{RUN}{part}".encode(), (), b""))
                assert serving.broken is None, (name, value)


# -- comparing --------------------------------------------------------------------------------------------------------


def test_runs_that_ended_in_another_way_differ() -> None:
    first = two_turns()[0]
    asked, waited = ([first, stopped(2, why, what=what)] for why, what in (("asked", "stop"), ("waited", "expired")))
    assert [each.path for each in compare(asked, asked)] == []
    assert [each.path for each in compare(asked, waited)] == ["run.what", "run.why"]
    other = [first, turn_of(text("?", "Sunny", " in Oslo"), "outputs", outputs(call_1="Rain"), 2)]
    assert "run.tool_outputs[0].output" in [each.path for each in compare(two_turns(), other)]


async def test_verify_sends_the_chat_requests_of_a_run_and_skips_what_has_none() -> None:
    live = [two_turns()[0], stopped(2)]
    script = script_of(live[0])
    async with listening(lambda _: script) as (url, upstream):
        assert await verify(Recording({}, live), url) == []
    assert [outcome.request.target for outcome in upstream.seen] == [b"/v1/chat/completions"]
