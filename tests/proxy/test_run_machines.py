"""Runs over several machines: started on one, watched, answered and stopped on others."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.run_cases import RUN, calls_tool, error, get, outputs, says, slow, state
from tests.support.hermes import UPSTREAM_ID, Hermes
from tests.support.house import ASKED, House, post
from tests.support.machines import Log, machines
from tests.support.run_clients import HEAD_ONCE, ask, event_of, frames_of, history, names, started, view, wrong_with
from wiretape.events.core.json_text import parse
from wiretape.proxy.limits import READERS_ASKED_S

KEY = "Idempotency-Key: once"


async def seen_by(run: str, *homes: House) -> list[bytes]:
    """Return the history of a run that has ended, which every machine shows."""
    first, *others = [frames_of((await view(home, run)).body) for home in homes]
    assert all(seen == first for seen in others)
    assert wrong_with(first, run) == []
    return first


async def together(*requests: Any) -> list[tuple[int, dict[str, Any]]]:
    """Return the answers to requests of one moment."""
    answers: list[tuple[int, dict[str, Any]]] = [(0, {})] * len(requests)

    async def one(at: int) -> None:
        answered = await requests[at]
        answers[at] = answered if isinstance(answered, tuple) else (answered.status, parse(answered.body))

    async with trio.open_nursery() as nursery:
        for at in range(len(requests)):
            nursery.start_soon(one, at)
    return answers


async def dead(log: Log, name: str) -> None:
    """Let a machine be silent, and declare it dead."""
    del log.machines[name]
    await trio.sleep(10)
    await log.bury(name)


async def test_a_run_is_watched_on_another_machine_while_it_runs(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[slow(5)]) as (log, [a, b]):
        run = await started(a)
        began = trio.current_time()
        viewed = await view(b, run)
        assert trio.current_time() - began < 8.1
        assert frames_of(viewed.body) == await history(log.tapes, run)
        assert wrong_with(frames_of(viewed.body), run) == []
        assert (await state(b, run))["status"] == "completed"


async def test_outputs_on_another_machine_continue_a_run_for_viewers_of_both(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[calls_tool(), says("It", " is", " 18.", every_s=1)]) as (_, [a, b]):
        run = await started(a)
        seen: dict[str, list[bytes]] = {}

        async def watch(name: str, home: House) -> None:
            seen[name] = frames_of((await view(home, run)).body)

        async with trio.open_nursery() as nursery:
            for name, home in (("a", a), ("b", b)):
                nursery.start_soon(watch, name, home)
            await trio.sleep(2)
            assert (await state(b, run))["status"] == "waiting_for_tools"
            assert (await outputs(b, run, call_0="18")).status == 202
            await trio.sleep(1)
            assert (await state(a, run))["status"] == "running"
            assert error(await outputs(a, run, call_0="18"))[:2] == (409, "run_not_waiting")
        assert seen["a"] == seen["b"] == await seen_by(run, a, b)
        assert names(seen["a"])[-1] == "run.completed"
        assert (await state(a, run))["output"] == "It is 18."


async def test_outputs_on_two_machines_at_once_begin_one_turn(autojump_clock: MockClock) -> None:
    async with machines("a", "b", "c", scripts=[calls_tool(head=HEAD_ONCE, end="fin"), says("18.")]) as (log, homes):
        run = await started(homes[0])
        await trio.sleep(1)
        answers = await together(*(outputs(home, run, call_0="18") for home in homes))
        assert sorted(status for status, _ in answers) == [202, 409, 409]
        assert {said["error"]["code"] for status, said in answers if status == 409} == {"run_not_waiting"}
        await trio.sleep(1)
        assert names(await seen_by(run, *homes)).count("tool.completed") == 1
        assert len(log.writers) == 2


async def test_a_key_starts_one_run_on_all_machines(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[says("hi")]) as (log, [a, b]):
        answers = await together(ask(a, "", RUN, KEY), ask(b, "", RUN, KEY))
        assert [status for status, _ in answers] == [202, 202]
        [run] = {said["run_id"] for _, said in answers}
        await seen_by(run, a, b)
        assert len(log.writers) == 1


@pytest.mark.parametrize("after_s", [3.0, 60.0])
async def test_a_run_is_stopped_on_another_machine(after_s: float, autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[calls_tool(every_s=2)]) as (log, [a, b]):
        run = await started(a)
        await trio.sleep(after_s)
        assert (await state(b, run))["status"] == ("running" if after_s < 10 else "waiting_for_tools")
        stopped = await get(b, f"/{run}/stop", method="POST")
        assert (stopped.status, parse(stopped.body)["status"]) == (200, "stopping")
        await trio.sleep(0.2)
        assert (await state(a, run))["status"] == "cancelled"
        assert event_of((await seen_by(run, a, b))[-1])["reason"] == "asked"
        assert error(await get(b, f"/{run}/stop", method="POST"))[:2] == (409, "run_finished")
        assert set(log.writers.values()) == ({"a"} if after_s < 10 else {"a", "b"})


async def test_a_run_that_waits_too_long_is_ended_by_one_machine(autojump_clock: MockClock) -> None:
    config = {"runs_waiting_s": 100.0}
    async with machines("a", "b", scripts=[calls_tool()], config=config) as (log, homes):
        run = await started(homes[0])
        async with trio.open_nursery() as nursery:
            for home in homes:
                nursery.start_soon(view, home, run)
        assert event_of((await seen_by(run, *homes))[-1])["reason"] == "waited"
        assert len(log.writers) == 2


async def test_a_turn_of_a_dead_machine_ends_as_crashed_for_viewers_elsewhere(autojump_clock: MockClock) -> None:
    async with machines("a", "b", "c", scripts=[slow(60)]) as (log, [a, b, c]):
        run = await started(a)
        seen: list[bytes] = []

        async def watch() -> None:
            seen.extend(frames_of((await view(b, run)).body))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await trio.sleep(3)
            await dead(log, "a")
        assert seen == await seen_by(run, b, c)
        assert event_of(seen[-1])["code"] == "crashed"
        ahead = await view(c, run, "Last-Event-ID: 999")  # it saw more than was shipped
        assert frames_of(ahead.body) == seen[-1:]


async def test_a_machine_that_does_not_answer_is_reported(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[slow(200)]) as (log, [a, b]):
        run = await started(a)
        del log.machines["a"]
        assert error(await get(b, f"/{run}/stop", method="POST"))[:2] == (503, "store_unreachable")


async def test_without_the_store_of_all_machines_only_new_runs_begin(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[calls_tool()]) as (log, [a, b]):
        waiting, log.tapes.why = await started(a), "gone"
        await trio.sleep(1)
        assert (await ask(a, "", RUN, KEY))[1]["error"]["code"] == "store_unreachable"
        for home in (a, b):
            assert error(await outputs(home, waiting, call_0="18"))[:2] == (503, "store_unreachable")
            assert error(await get(home, f"/{waiting}"))[:2] == (503, "store_unreachable")
        run = await started(a)
        log.tapes.why = ""
        await trio.sleep(1)
        assert (await state(b, run))["status"] == "waiting_for_tools"
        assert (await outputs(b, waiting, call_0="18")).status == 202


async def test_approvals_and_stops_reach_the_machine_that_relays(autojump_clock: MockClock) -> None:
    agent = Hermes("approve")
    async with machines("a", "b", scripts=[agent], route={"runs": "relay", "hermes": True}) as (_, [a, b]):
        run = await started(a)
        await trio.sleep(3)
        assert (await state(b, run))["status"] == "waiting_for_approval"
        approved = await b.ask({"choice": "approve"}, path=f"/v1/runs/{run}/approval")
        assert (approved.status, parse(approved.body)["choice"]) == (200, "once")
        assert agent.asked("POST /v1/runs/{id}/approval") == [{"choice": "approve"}]
        assert "approval.responded" in names(await seen_by(run, a, b))
        again = await b.ask({"choice": "once"}, path=f"/v1/runs/{run}/approval")
        assert error(again)[:2] == (409, "approval_not_active")


async def test_a_stop_that_the_upstream_refuses_is_refused_on_another_machine(autojump_clock: MockClock) -> None:
    agent = Hermes("approve", refuses=True)
    async with machines("a", "b", scripts=[agent], route={"runs": "relay", "hermes": True}) as (_, [a, b]):
        run = await started(a)
        await trio.sleep(3)
        here = await get(a, f"/{run}/stop", method="POST")
        there = await get(b, f"/{run}/stop", method="POST")
        assert here.status >= 400
        assert (there.status, there.body) == (here.status, here.body)
        assert UPSTREAM_ID not in there.body.decode()
        agent.approved.set()


async def test_viewers_elsewhere_keep_a_run_without_viewers_here(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[slow(100)], config={"runs_unwatched_s": 20.0}) as (_, [a, b]):
        watched, alone = await started(a), await started(a)
        seen = frames_of((await view(b, watched)).body)
        assert names(seen)[-1] == "run.completed"
        assert event_of((await seen_by(alone, a, b))[-1])["reason"] == "unwatched"


async def test_another_run_continues_one_of_another_machine(autojump_clock: MockClock) -> None:
    asked = says("one")
    async with machines("a", "b", scripts=[says("zero"), asked]) as (_, [a, b]):
        first = await started(a, session_id="s")
        await trio.sleep(1)
        for more in ({"previous_response_id": first}, {"session_id": "s"}):
            await started(b, input="and now?", **more)
            await trio.sleep(1)
        told = [parse(request.partition(b"\r\n\r\n")[2])["messages"] for request in asked.requests]
        assert [message["content"] for message in told[0]] == ["hi", "zero", "and now?"]
        assert [message["content"] for message in told[1]][-1] == "and now?"
        assert len(told[1]) > 3 or told[1] == told[0]


async def test_a_deleted_run_is_gone_from_every_machine(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[calls_tool(head=HEAD_ONCE, end="fin"), says("18.")], check=False) as (
        _,
        homes,
    ):
        run = await started(homes[0])
        await trio.sleep(1)
        assert (await outputs(homes[1], run, call_0="18")).status == 202
        await trio.sleep(1)
        assert (await get(homes[1], f"/{run}", method="DELETE")).status == 200
        for home in homes:
            assert error(await get(home, f"/{run}"))[:2] == (404, "run_not_found")


# -- streams: who reads them ------------------------------------------------------------------------------------------


async def test_readers_on_other_machines_keep_a_stream_until_they_leave(autojump_clock: MockClock) -> None:
    async with machines("a", "b", scripts=[slow(60)]) as (_, [a, b]):
        client, follower = await a.connect(), await b.connect()
        await client.send(post(ASKED))
        await trio.sleep(2)
        await follower.send(post(b"", path=f"/wiretape/streams/{a.streams[0]}/events", method="GET"))
        await trio.sleep(1)
        client.close()
        await trio.sleep(17)
        assert a.registry.live
        follower.close()
        await a.settled()
        assert 20 < trio.current_time() <= 20 + READERS_ASKED_S
        assert (await a.ending())[0] == "client_gone"


async def test_a_stream_without_readers_ends_at_once_if_other_machines_cannot_be_asked(
    autojump_clock: MockClock,
) -> None:
    async with machines("a", scripts=[slow(60)]) as (log, [a]):
        client = await a.connect()
        await client.send(post(ASKED))
        await trio.sleep(2)
        log.tapes.why = "gone"
        client.close()
        await a.settled()
        assert trio.current_time() < 2.1
        assert (await a.ending())[0] == "client_gone"
