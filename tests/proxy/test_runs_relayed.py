"""Runs before an upstream that has runs itself (`runs = relay`): one run there, one connection, many viewers."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.support.hermes import UPSTREAM_ID, Hermes, status
from tests.support.house import House, house, post
from tests.support.http import Answer
from wiretape.events.core.json_text import dumps, parse
from wiretape.proxy.config.model import Secret, Target
from wiretape.proxy.limits import RUN_ANSWER_BYTES_MAX, RUN_ANSWER_S, RUN_POLL_S

RELAY: Final = {"runs": "relay", "hermes": True}
KEY: Final = "Authorization: Bearer sk-of-the-caller-0001"
ANSWER: Final = "It is 18 degrees, café 😀."


@asynccontextmanager
async def relayed(agent: Any, **more: Any) -> AsyncGenerator[House]:
    """Run a proxy before this agent."""
    async with house(agent, route=RELAY, **more) as home:
        yield home


async def call(home: House, path: str, body: Any = None, method: str = "POST", *headers: str) -> Any:
    """Return the status and the value of an answer."""
    sent = b"" if body is None else body
    answered = await home.ask(sent, KEY, *headers, path=f"/v1/runs{path}", method=method)
    return answered.status, parse(answered.body)


async def start(home: House, words: Any = "hi", **more: Any) -> str:
    code, value = await call(home, "", {"input": words, **more})
    assert (code, value["status"]) == (202, "started"), value
    run: str = value["run_id"]
    return run


async def view(home: House, run: str, after: str = "", until: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Return ids and events: all, those after an id, or those up to the first event of a name."""
    client = await home.connect()
    headers = [KEY, *([f"Last-Event-ID: {after}"] if after else [])]
    await client.send(post(b"", *headers, path=f"/v1/runs/{run}/events", method="GET"))

    def enough(answer: Answer) -> bool:
        return bool(until) and f'"event":"{until}"'.encode() in answer.body

    answered = await client.response(until=enough)
    client.close()
    assert answered.status == 200
    return events_of(answered.body)


def events_of(body: bytes) -> list[tuple[str, dict[str, Any]]]:
    found: list[tuple[str, dict[str, Any]]] = []
    for block in body.split(b"\n\n"):
        fields = dict(line.split(b": ", 1) for line in block.split(b"\n") if not line.startswith(b":") and line)
        if fields:
            found.append((fields[b"id"].decode(), parse(fields[b"data"])))
    return found


def names(events: Sequence[tuple[str, dict[str, Any]]]) -> list[str]:
    """Return the names of events, with deltas joined."""
    found = [event["event"] for _, event in events]
    return [name for at, name in enumerate(found) if name != "message.delta" or found[at - 1 : at] != [name]]


def one(events: Sequence[tuple[str, dict[str, Any]]], name: str) -> dict[str, Any]:
    """Return the only event of a name."""
    [found] = [event for _, event in events if event["event"] == name]
    return found


async def kinds(home: House, stream: str) -> list[str]:
    """Return the kinds of a tape's records, without frames."""
    return [kind for kind in await home.kinds(stream) if kind != "frame"]


async def test_a_relayed_run_is_one_run_and_one_connection_upstream(autojump_clock: MockClock) -> None:
    agent = Hermes("tool")
    async with relayed(agent) as home:
        run = await start(home, "weather?", session_id="s1", model="m")
        seen = await view(home, run)
        assert [each.line for each in agent.requests] == ["POST /v1/runs", f"GET /v1/runs/{UPSTREAM_ID}/events"]
        assert agent.requests[0].body == {"input": "weather?", "session_id": "s1", "model": "m"}
        assert {each.headers["authorization"] for each in agent.requests} == {KEY.partition(": ")[2]}
        assert [number for number, _ in seen] == [str(at + 1) for at in range(len(seen))]
        assert {event["run_id"] for _, event in seen} == {run}
        assert names(seen) == [
            *("run.started", "message.delta", "reasoning.available", "tool.started", "tool.completed"),
            *("message.delta", "reasoning.available", "run.completed"),
        ]
        assert one(seen, "run.completed")["output"] == ANSWER
        assert await kinds(home, home.streams[0]) == [
            "open",
            "run",
            "request",
            "attempt",
            "upstream_run",
            "head",
            "commit",
            "end",
        ]
        code, value = await call(home, f"/{run}", method="GET")
        assert (code, value["status"], value["session_id"]) == (200, "completed", "s1")
        assert value["usage"] == {"input_tokens": 18, "output_tokens": 42, "total_tokens": 60}


@pytest.mark.parametrize("recorded", ["commands", "files"])
async def test_parallel_calls_of_one_tool_have_ids_and_are_paired(recorded: str, autojump_clock: MockClock) -> None:
    async with relayed(Hermes(recorded)) as home:
        seen = await view(home, await start(home))
        started = [event["call_id"] for _, event in seen if event["event"] == "tool.started"]
        ended = [event["call_id"] for _, event in seen if event["event"] == "tool.completed"]
        assert len(set(started)) == 2
        assert started == ended


async def test_two_viewers_one_of_them_away_for_5_s_see_the_whole_run(autojump_clock: MockClock) -> None:
    agent = Hermes("files", every_s=1.0)
    async with relayed(agent) as home:
        run = await start(home)
        whole: list[Any] = []

        async def stays() -> None:
            whole.extend(await view(home, run))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(stays)
            before = await view(home, run, until="tool.started")
            await trio.sleep(5)
            after = await view(home, run, after=before[-1][0])
        assert before + after == whole == await view(home, run)
        assert names(whole)[-1] == "run.completed"
        assert len(agent.requests) == 2


async def test_an_approval_passes_and_is_recorded(autojump_clock: MockClock) -> None:
    agent = Hermes("approve")
    async with relayed(agent) as home:
        run = await start(home)
        waits = await view(home, run, until="approval.request")
        assert one(waits, "approval.request")["choices"] == ["once", "session", "always", "deny"]
        await trio.sleep(3_000)  # far longer than any silence is allowed; the agent sends comments
        assert (await call(home, f"/{run}", method="GET"))[1]["status"] == "waiting_for_approval"
        code, value = await call(home, f"/{run}/approval", {"choice": "approve"})
        assert (code, value["run_id"], value["choice"], value["resolved"]) == (200, run, "once", 1)
        assert agent.asked("POST /v1/runs/{id}/approval") == [{"choice": "approve"}]
        seen = await view(home, run)
        assert one(seen, "approval.responded")["choice"] == "once"
        assert names(seen)[-1] == "run.completed"
        code, value = await call(home, f"/{run}/approval", {"choice": "once"})
        assert (code, value["error"]["code"]) == (409, "approval_not_active")
        [approval] = [record for record in await home.tape() if record.kind == "approval"]
        assert approval.keys == {"choice": "once", "resolved": 1}


async def test_an_error_of_the_upstream_for_an_approval_passes_with_our_id(autojump_clock: MockClock) -> None:
    agent = Hermes("stop-tool")
    agent.approved.set()
    async with relayed(agent) as home:
        run = await start(home)
        await view(home, run, until="tool.started")
        code, value = await call(home, f"/{run}/approval", {"choice": "once"})
        message = f"Run has no pending approval: {run}"
        assert (code, value["error"]["code"], value["error"]["message"]) == (409, "approval_not_pending", message)
        agent.stopped.set()
        await view(home, run)
        assert "approval" not in await home.kinds()


async def test_an_approval_that_the_upstream_does_not_answer_is_an_error(autojump_clock: MockClock) -> None:
    agent = Hermes("approve")
    agent.mute = True
    async with relayed(agent) as home:
        run = await start(home)
        await view(home, run, until="approval.request")
        began = trio.current_time()
        code, value = await call(home, f"/{run}/approval", {"choice": "once"})
        assert (code, value["error"]["code"]) == (502, "stalled")
        assert trio.current_time() - began == pytest.approx(RUN_ANSWER_S, abs=1)
        agent.approved.set()
        assert names(await view(home, run))[-1] == "run.completed"


@pytest.mark.parametrize("recorded", ["stop", "stop-tool", "stop-approval"])
async def test_a_stop_passes_and_the_upstream_ends_the_run(recorded: str, autojump_clock: MockClock) -> None:
    agent = Hermes(recorded)
    async with relayed(agent) as home:
        run = await start(home)
        await trio.sleep(2)
        assert await call(home, f"/{run}/stop") == (200, {"run_id": run, "status": "stopping"})
        seen = await view(home, run)
        assert one(seen, "run.cancelled")["reason"] == "asked"
        assert len(agent.asked("POST /v1/runs/{id}/stop")) == 1
        [stop] = [record for record in await home.tape() if record.kind == "stop"]
        assert stop.keys == {"why": "asked"}
        assert (await home.ending())[0] == "completed"
        assert (await call(home, f"/{run}/stop"))[0] == 409


async def test_a_stop_before_the_upstream_has_started_the_run_is_passed_then(autojump_clock: MockClock) -> None:
    agent = Hermes("stop", start_s=10)
    async with relayed(agent) as home:
        run = await start(home)
        assert (await call(home, f"/{run}/stop"))[0] == 200
        assert agent.asked("POST /v1/runs/{id}/stop") == []
        assert (await call(home, f"/{run}", method="GET"))[1]["status"] == "stopping"
        assert names(await view(home, run))[-1] == "run.cancelled"
        assert len(agent.asked("POST /v1/runs/{id}/stop")) == 1


@pytest.mark.parametrize("begun", [202, 500])
async def test_a_run_that_was_stopped_before_it_began_ends_in_any_case(begun: int, autojump_clock: MockClock) -> None:
    agent = Hermes("stop", start_s=10)
    agent.mute, agent.start = True, (begun, agent.start[1])
    async with relayed(agent) as home:
        run = await start(home)
        assert (await call(home, f"/{run}/stop"))[0] == 200
        assert one(await view(home, run), "run.cancelled")["reason"] == "asked"
        assert len(agent.asked("POST /v1/runs/{id}/stop")) == (begun == 202)
        assert (await home.ending())[0] == ("client_gone" if begun == 202 else "upstream_error")


async def test_a_run_is_not_deleted_while_its_tape_goes_on(autojump_clock: MockClock) -> None:
    agent = Hermes("text")
    agent.events += b": closing\n\n" * 100
    async with relayed(agent, check=False) as home:
        run = await start(home)
        await trio.sleep(5)
        assert (await call(home, f"/{run}", method="GET"))[1]["status"] == "completed"
        assert (await call(home, f"/{run}", method="DELETE"))[0] == 409
        await home.settled()
        assert (await call(home, f"/{run}", method="DELETE"))[0] == 200


async def test_a_stop_that_the_upstream_does_not_take_changes_nothing(autojump_clock: MockClock) -> None:
    agent = Hermes("stop-tool", refuses=True)
    async with relayed(agent, config={"runs_unwatched_s": 120.0}) as home:
        run = await start(home)
        await trio.sleep(2)
        code, value = await call(home, f"/{run}/stop")
        assert (code, value["error"]["code"]) == (500, "internal")
        assert (await call(home, f"/{run}", method="GET"))[1]["status"] == "running"
        await trio.sleep(200)  # then it is ended here: no client watches it
        assert one(await view(home, run), "run.cancelled")["reason"] == "unwatched"
        assert (await home.ending())[0] == "client_gone"


async def test_a_run_that_no_client_watches_is_stopped_upstream(autojump_clock: MockClock) -> None:
    agent = Hermes("stop-tool")
    async with relayed(agent, config={"runs_unwatched_s": 60.0}) as home:
        run = await start(home)
        await trio.sleep(70)
        assert agent.stopped.is_set()
        assert one(await view(home, run), "run.cancelled")["reason"] == "unwatched"


async def test_a_run_that_waits_too_long_for_an_approval_is_stopped_upstream(autojump_clock: MockClock) -> None:
    agent = Hermes("stop-approval")
    async with relayed(agent, config={"runs_waiting_s": 60.0}) as home:
        run = await start(home)
        assert one(await view(home, run), "run.cancelled")["reason"] == "waited"
        assert agent.stopped.is_set()


DONE: Final = status("completed", output="all of it", usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 3})


@pytest.mark.parametrize("answers", [[DONE], [0, 503, status("running"), DONE]], ids=["at once", "after faults"])
async def test_events_that_break_are_recovered_from_the_status(answers: Any, autojump_clock: MockClock) -> None:
    agent = Hermes("tool", cut_after=4, status=answers)
    async with relayed(agent) as home:
        run = await start(home)
        seen = await view(home, run)
        closing = seen[-1][1]
        assert (closing["event"], closing["output"], closing["recovered"]) == ("run.completed", "all of it", True)
        assert closing["usage"]["total_tokens"] == 3
        assert len(agent.asked("POST /v1/runs")) == 1
        assert (await home.ending())[0] == "reset"
        assert (await kinds(home, home.streams[0]))[-2:] == ["recovered", "end"]
        assert (await call(home, f"/{run}", method="GET"))[1]["status"] == "completed"


async def test_a_run_that_is_being_recovered_can_be_stopped(autojump_clock: MockClock) -> None:
    agent = Hermes("tool", cut_after=4, status=[status("running"), status("running"), status("cancelled")])
    async with relayed(agent) as home:
        run = await start(home)
        await trio.sleep(2)
        assert (await call(home, f"/{run}/stop"))[0] == 200
        seen = await view(home, run)
        assert (seen[-1][1]["event"], seen[-1][1]["reason"]) == ("run.cancelled", "asked")
        assert (await kinds(home, home.streams[0]))[-3:] == ["stop", "recovered", "end"]


async def test_events_that_fall_silent_are_recovered_from_the_status(autojump_clock: MockClock) -> None:
    agent = Hermes("stop-tool", status=[DONE])  # which waits for its stop, without a comment
    async with relayed(agent) as home:
        seen = await view(home, await start(home))
        assert (seen[-1][1]["event"], seen[-1][1]["recovered"]) == ("run.completed", True)
        assert (await home.ending())[0] == "stalled"


async def test_a_run_is_recovered_however_long_it_still_takes(autojump_clock: MockClock) -> None:
    agent = Hermes("tool", cut_after=4, status=[*[status("running")] * 800, status("failed", error="no disk")])
    async with relayed(agent, config={"runs_unwatched_s": 1e6}) as home:
        seen = await view(home, await start(home))
        assert seen[-1][1]["event"] == "run.failed"
        assert "no disk" in seen[-1][1]["error"]
        assert trio.current_time() > 3_600


@pytest.mark.parametrize("answers", [[404], [0]], ids=["forgotten", "gone"])
async def test_a_run_that_cannot_be_recovered_fails_with_what_broke_it(answers: Any, autojump_clock: MockClock) -> None:
    async with relayed(Hermes("tool", cut_after=4, status=answers)) as home:
        seen = await view(home, await start(home))
        assert (seen[-1][1]["event"], seen[-1][1]["code"]) == ("run.failed", "reset")
        assert (trio.current_time() < RUN_POLL_S) == (answers == [404])


async def test_events_that_end_before_the_run_does_never_look_completed(autojump_clock: MockClock) -> None:
    agent = Hermes("tool", status=[404])
    agent.events = agent.events[: agent.events.index(b'data: {"event": "run.completed"')]
    async with relayed(agent) as home:
        seen = await view(home, await start(home))
        assert (seen[-1][1]["event"], seen[-1][1]["code"]) == ("run.failed", "truncated")


async def test_events_that_end_early_are_recovered_also_if_the_client_asks_meanwhile(autojump_clock: MockClock) -> None:
    agent = Hermes("tool", status=[status("running"), status("running"), DONE])
    agent.events = agent.events[: agent.events.index(b'data: {"event": "run.completed"')]
    async with relayed(agent) as home:
        run = await start(home)
        await trio.sleep(3)
        await call(home, f"/{run}/approval", {"choice": "once"})  # which the relay attends to
        seen = await view(home, run)
        assert (seen[-1][1]["event"], seen[-1][1]["recovered"]) == ("run.completed", True)
        assert (await home.ending())[0] == "truncated"


async def test_events_that_do_not_open_are_recovered_from_the_status(autojump_clock: MockClock) -> None:
    agent = Hermes("tool", status=[DONE])
    agent.read = True
    async with relayed(agent) as home:
        seen = await view(home, await start(home))
        assert (seen[-1][1]["event"], seen[-1][1]["output"]) == ("run.completed", "all of it")


async def test_a_start_that_the_upstream_refuses_fails_with_its_words(autojump_clock: MockClock) -> None:
    agent = Hermes()
    agent.start = (429, {"error": {"message": "Too many concurrent runs (max 10)", "code": "rate_limit_exceeded"}})
    async with relayed(agent) as home:
        run = await start(home)
        failed = one(await view(home, run), "run.failed")
        assert failed["code"] == "upstream_error"
        assert "Too many concurrent runs (max 10)" in failed["error"]
        assert len(agent.requests) == 1


async def test_an_upstream_without_runs_makes_the_run_fail(autojump_clock: MockClock) -> None:
    agent = Hermes()
    agent.start = (200, {"hello": "world"})
    async with relayed(agent) as home:
        assert one(await view(home, await start(home)), "run.failed")["code"] == "protocol"


@pytest.mark.parametrize(("more", "ending"), [(0, "run.completed"), (1, "run.failed")])
async def test_an_answer_of_the_upstream_about_a_run_is_bounded(
    more: int, ending: str, autojump_clock: MockClock
) -> None:
    agent = Hermes()
    room = RUN_ANSWER_BYTES_MAX - len(dumps({**agent.start[1], "x": ""})) + more
    agent.start = (202, {**agent.start[1], "x": room * "x"})
    async with relayed(agent) as home:
        assert names(await view(home, await start(home)))[-1] == ending


async def test_an_upstream_that_is_unreachable_makes_the_run_fail(autojump_clock: MockClock) -> None:
    async with relayed(Hermes()) as home:
        transport: Any = home.transport

        async def refused(*_: object) -> trio.abc.Stream:
            await trio.lowlevel.checkpoint()
            raise OSError("refused")

        transport._connector._open_tcp = refused
        assert one(await view(home, await start(home)), "run.failed")["code"] == "refused"


async def test_a_run_that_follows_another_sends_its_conversation(autojump_clock: MockClock) -> None:
    agent = Hermes("text")
    async with relayed(agent) as home:
        first = await start(home, [{"role": "user", "content": "my name is Ada"}, {"role": "user", "content": "hi"}])
        await view(home, first)
        agent.read = False
        words = [
            {"role": "user", "content": [{"type": "text", "text": "and"}]},
            {"role": "user", "content": "my name?"},
        ]
        second = await start(home, words, previous_response_id=first)
        await view(home, second)
        agent.read = False
        third = await start(home, "again", previous_response_id=second)
        await view(home, third)
        bodies = agent.asked("POST /v1/runs")
        said = [("user", "my name is Ada"), ("user", "hi"), ("assistant", ANSWER)]
        more = [("user", "and"), ("user", "my name?"), ("assistant", ANSWER)]
        history = [[(one["role"], one["content"]) for one in body["conversation_history"]] for body in bodies[1:]]
        assert history == [[*said, more[0]], [*said, *more]]
        assert [body["input"] for body in bodies[1:]] == [words[1:], [{"role": "user", "content": "again"}]]
        assert not any("previous_response_id" in body for body in bodies)


async def test_runs_of_one_session_go_on_with_its_conversation(autojump_clock: MockClock) -> None:
    agent = Hermes("text")
    async with relayed(agent) as home:
        await view(home, await start(home, "hi", session_id="s1"))
        agent.read = False
        await view(home, await start(home, "again", session_id="s1"))
        sent = agent.asked("POST /v1/runs")[1]
        history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": ANSWER}]
        asked = [{"role": "user", "content": "again"}]
        assert sent == {"input": asked, "session_id": "s1", "conversation_history": history}


async def test_a_history_that_the_client_sends_passes_as_it_is(autojump_clock: MockClock) -> None:
    agent = Hermes("text")
    async with relayed(agent) as home:
        history = [{"role": "user", "content": "hi"}]
        await view(home, await start(home, "again", conversation_history=history))
        assert agent.asked("POST /v1/runs") == [{"input": "again", "conversation_history": history}]


async def test_a_response_of_the_upstream_may_be_followed(autojump_clock: MockClock) -> None:
    agent = Hermes("text")
    async with relayed(agent) as home:
        await view(home, await start(home, "again", previous_response_id="resp_1"))
        assert agent.asked("POST /v1/runs") == [{"input": "again", "previous_response_id": "resp_1"}]


async def test_tools_of_the_client_are_refused(autojump_clock: MockClock) -> None:
    agent = Hermes()
    async with relayed(agent) as home:
        tools = [{"type": "function", "function": {"name": "f"}}]
        code, value = await call(home, "", {"input": "hi", "tools": tools})
        assert (code, value["error"]["param"]) == (400, "tools")
        assert not agent.requests


async def test_only_our_key_goes_upstream(autojump_clock: MockClock) -> None:
    agent = Hermes("approve")
    targets = [Target(name="upstream", url="http://127.0.0.1:9/v1", key=Secret("sk-of-the-upstream-0001"))]
    async with relayed(agent, targets=targets) as home:
        run = await start(home)
        await view(home, run, until="approval.request")
        await call(home, f"/{run}/approval", {"choice": "once"})
        await view(home, run)
        assert {each.headers["authorization"] for each in agent.requests} == {"Bearer sk-of-the-upstream-0001"}
        assert all(b"0001" not in (record.raw or b"") for record in await home.tape())
