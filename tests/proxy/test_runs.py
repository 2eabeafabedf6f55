"""Runs through the whole proxy: one POST, events for any number of viewers, tools of the client, bad input."""

import gzip
from pathlib import Path
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.run_cases import (
    MINE,
    RUN,
    THEIRS,
    calls_tool,
    error,
    events,
    events_in,
    get,
    names,
    outputs,
    says,
    slow,
    start,
    state,
    viewer,
)
from tests.proxy.store_cases import opened_files
from tests.support.house import DONE, Peer, Watched, answer, call, finish, house
from wiretape.events.core.json_text import dumps, parse
from wiretape.proxy.config.model import Route, Target
from wiretape.proxy.limits import NOT_FOUND_STEP_S
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter

# -- from start to end ------------------------------------------------------------------------------------------------


async def test_a_run_is_started_at_once_and_its_events_come_live_and_late(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(3)) as home:
        began = trio.current_time()
        run = await start(home, metadata={"who": "me"}, session_id="s1")
        assert trio.current_time() == began
        assert (await state(home, run))["status"] == "running"
        client = await viewer(home, run)
        live = await client.response(method="GET")
        assert [at for at, _ in live.pieces] == [began, *(began + second for second in (1, 2, 3, 6))][
            : len(live.pieces)
        ]
        found = events_in(live.body)
        assert names(found) == ["run.started", *["message.delta"] * 3, "run.completed"]
        assert found[-1]["output"] == "0 1 2 "
        assert found[-1]["usage"] == {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}
        assert await events(home, run) == found
        client.close()
        said = await state(home, run)
        assert (said["status"], said["last_event"], said["last_sequence"]) == ("completed", "run.completed", 5)
        assert (said["metadata"], said["session_id"], said["pending_calls"]) == ({"who": "me"}, "s1", [])
        assert said["streams"] == [f"/wiretape/streams/{home.streams[0]}"]
        assert (await home.kinds())[:3] == ["open", "run", "request"]


async def test_a_run_waits_for_the_tools_of_its_client_and_goes_on_with_their_outputs(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    peers = calls_tool(end="fin"), says("Done.")
    async with house(*peers) as home:
        run = await start(home, instructions="Be brief.", tools=[{"type": "function", "name": "look"}], temperature=0)
        await home.settled()
        said = await state(home, run)
        assert said["status"] == "waiting_for_tools"
        assert said["pending_calls"] == [{"call_id": "call_0", "tool": "look", "arguments": '{"at":1}'}]
        answered = await outputs(home, run, call_0="found")
        assert (answered.status, parse(answered.body)) == (202, {"run_id": run, "status": "running"})
        found = await events(home, run)
        assert names(found) == [
            *("run.started", "message.delta", "tool.started", "run.waiting_for_tools"),
            *("tool.completed", "message.delta", "run.completed"),
        ]
        first, second = (parse(peer.requests[0].partition(b"\r\n\r\n")[2]) for peer in peers)
        messages = first.pop("messages")
        assert messages == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}]
        assert first == {
            "model": "m",
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
            "tools": [{"type": "function", "function": {"name": "look"}}],
        }
        function = {"name": "look", "arguments": '{"at":1}'}
        made = [{"id": "call_0", "type": "function", "function": function}]
        messages += [
            {"role": "assistant", "content": "Let me look.", "tool_calls": made},
            {"role": "tool", "tool_call_id": "call_0", "content": "found"},
        ]
        assert second == first | {"messages": messages}


async def test_a_run_that_waits_survives_a_restart_and_is_continued(autojump_clock: MockClock) -> None:
    del autojump_clock
    store = MemoryStore()
    async with house(calls_tool(), store=store) as home:
        run = await start(home)
        await home.settled()
        before = await state(home, run)
    async with house(says("Done."), store=store, check=False) as home:
        home.streams += ["the one before"]
        assert await state(home, run) == before
        assert (await outputs(home, run, call_0="found")).status == 202
        found = await events(home, run)
        assert names(found)[-4:] == ["run.waiting_for_tools", "tool.completed", "message.delta", "run.completed"]
        assert await events(home, run) == found


async def test_a_run_on_disk_is_the_same_after_a_restart_until_it_is_deleted(tmp_path: Path) -> None:
    body = dumps({**RUN, "instructions": "x" * 100_000}).replace(b'","', b'",\n"')
    async with opened_files(tmp_path) as store, house(calls_tool(end="fin"), says("Done."), store=store) as home:
        run = str(parse((await home.ask(body, "Idempotency-Key: k", path="/v1/runs")).body)["run_id"])
        while (await state(home, run))["status"] != "waiting_for_tools":
            pass
        assert (await outputs(home, run, call_0="found")).status == 202
        found, before = await events(home, run), await state(home, run)
        assert names(found)[-2:] == ["message.delta", "run.completed"]
    async with opened_files(tmp_path) as store, house((peer := says("Hello.")), store=store, check=False) as home:
        assert (await events(home, run), await state(home, run)) == (found, before)
        assert await start(home, "Idempotency-Key: k") == run
        assert not peer.requests
        assert (await get(home, f"/{run}", method="DELETE")).status == 200
        assert error(await get(home, f"/{run}"))[0] == 404
        assert await store.list(Filter()) == []


async def test_a_conversation_is_continued_by_the_id_of_a_run_and_by_its_session(autojump_clock: MockClock) -> None:
    del autojump_clock
    peer = says("Hello.")
    async with house(peer) as home:
        first = await start(home, instructions="Be brief.", session_id="s")
        await home.settled()
        await start(home, previous_response_id=first, input="And you?", instructions="Be kind.")
        await home.settled()
        await start(home, session_id="s", input=[{"role": "user", "content": "Again?"}])
        await home.settled()
        await start(home, session_id="s", conversation_history=[{"role": "user", "content": "ho"}])
        await home.settled()
        said, answered = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}
        assert [parse(request.partition(b"\r\n\r\n")[2])["messages"] for request in peer.requests] == [
            [{"role": "system", "content": "Be brief."}, said],
            [{"role": "system", "content": "Be kind."}, said, answered, {"role": "user", "content": "And you?"}],
            [said, answered, {"role": "user", "content": "Again?"}],
            [{"role": "user", "content": "ho"}, said],
        ]


async def test_calls_that_were_never_answered_are_no_part_of_a_conversation(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), (second := says("Hello."))) as home:
        first = await start(home)
        await home.settled()
        refused = await home.ask({**RUN, "previous_response_id": first}, path="/v1/runs")
        assert error(refused) == (409, "run_not_finished", "previous_response_id")
        assert (await get(home, f"/{first}/stop", method="POST")).status == 200
        await start(home, previous_response_id=first)
        await home.settled()
        said, answered = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "Let me look."}
        assert parse(second.requests[0].partition(b"\r\n\r\n")[2])["messages"] == [said, answered, said]


async def test_each_turn_takes_the_credentials_of_the_request_that_causes_it(autojump_clock: MockClock) -> None:
    del autojump_clock
    peers = calls_tool(end="fin"), says("Done.")
    async with house(*peers) as home:
        run = await start(home, MINE, "Idempotency-Key: k", "Content-Encoding: identity")
        await home.settled()
        given = {"tool_outputs": [{"call_id": "call_0", "error": "no such file"}]}
        path = f"/v1/runs/{run}/tool_outputs"
        assert (await home.ask(given, MINE, "X-Api-Key: mine", "Idempotency-Key: k", path=path)).status == 202
        await home.settled()
        heads = [peer.requests[0].partition(b"\r\n\r\n")[0].lower() for peer in peers]
        assert [b"authorization: bearer mine" in head for head in heads] == [True, True]
        assert [b"x-api-key" in head for head in heads] == [False, True]
        assert [f"idempotency-key: {stream}".encode() in head for head, stream in zip(heads, home.streams, strict=True)]
        assert b"no such file" in peers[1].requests[0]
        (done,) = [event for event in await events(home, run, MINE) if event["event"] == "tool.completed"]
        assert done["error"] is True


@pytest.mark.parametrize("coding", ["", "gzip"])
async def test_the_request_of_a_run_is_recorded_as_it_was_decoded(autojump_clock: MockClock, coding: str) -> None:
    del autojump_clock
    body = dumps({**RUN, "tools": None})
    async with house(says("Hello.")) as home:
        sent = gzip.compress(body) if coding else body
        answered = await home.ask(sent, *([f"Content-Encoding: {coding}"] if coding else []), path="/v1/runs")
        assert answered.status == 202
        await home.settled()
        recorded = (await home.tape())[1]
        assert (recorded.kind, recorded.raw) == ("run", body)
        assert recorded.keys == {"turn": 1, "what": "start", "mode": "own"}


# -- the same request again (C27), and limits -------------------------------------------------------------------------


async def test_a_request_with_the_same_idempotency_key_gets_the_same_run(autojump_clock: MockClock) -> None:
    del autojump_clock
    store, key = MemoryStore(), "Idempotency-Key: k"
    async with house((peer := slow()), store=store) as home:
        runs: list[str] = []

        async def one() -> None:
            runs.append(await start(home, MINE, key))

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        runs.append(await start(home, MINE, key))
        await home.settled()
        runs.append(await start(home, MINE, key))
        assert (len(set(runs)), len(peer.requests)) == (1, 1)
        others = {
            await start(home, THEIRS, key),
            await start(home, MINE, "Idempotency-Key: l"),
            await start(home, MINE),
        }
        assert len(others | {*runs}) == 4
    async with house(peer, store=store, check=False) as home:
        assert await start(home, MINE, key) == runs[0]


async def test_a_deleted_run_can_be_started_again_with_its_key(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello."), check=False) as home:
        run = await start(home, "Idempotency-Key: k")
        again = {**RUN, "previous_response_id": run}
        await home.settled()
        await get(home, f"/{run}", method="DELETE")
        answered = await home.ask(again, "Idempotency-Key: k", path="/v1/runs")
        assert error(answered) == (404, "run_not_found", "previous_response_id")
        assert await start(home, "Idempotency-Key: k") == run
        assert names(await events(home, run))[-1] == "run.completed"


async def test_a_caller_may_have_so_many_active_runs(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(), config={"runs_max": 2}) as home:
        await start(home, MINE)
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await home.ask(RUN, MINE, path="/v1/runs")).status)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        assert sorted(statuses) == [202, 429, 429]
        refused = await home.ask(RUN, MINE, path="/v1/runs")
        assert (error(refused), refused.header(b"retry-after")) == ((429, "runs_max", None), b"1")
        await start(home, THEIRS)
        await home.settled()
        await start(home, MINE)


async def test_runs_that_waited_count_among_the_active_ones(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), slow(), config={"runs_max": 1}) as home:
        run = await start(home)
        await home.settled()
        other = await start(home)
        assert error(await outputs(home, run, call_0="x")) == (429, "runs_max", None)
        assert names(await events(home, other))[-1] == "run.completed"
        assert (await outputs(home, run, call_0="x")).status == 202


async def test_a_run_needs_the_bodies_of_its_requests_on_tape(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello."), config={"requests": "hash"}) as home:
        assert error(await home.ask(RUN, path="/v1/runs")) == (501, "runs_off", None)


async def test_a_run_is_refused_if_its_tape_cannot_be_written(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house((peer := says("Hello.")), store=Watched(full=lambda _: True), check=False) as home:
        assert error(await home.ask(RUN, path="/v1/runs")) == (503, "log_failure", None)
        await home.settled()
        assert not peer.requests
        assert parse((await get(home, "")).body)["data"] == []


async def test_a_run_whose_tape_fails_later_ends_as_the_next_start_will_find_it(autojump_clock: MockClock) -> None:
    del autojump_clock
    store = Watched(full=lambda record: record.kind != "attempt" and record.t >= 2_000_000)
    async with house(slow(), store=store, check=False, config={"on_log_failure": "serve"}) as home:
        run = await start(home)
        found = await events(home, run)
        assert names(found) == ["run.started", "message.delta", "run.failed"]
        assert found[-1]["code"] == "crashed"
        assert await events(home, run) == found


async def test_an_upstream_that_cannot_be_reached_fails_the_run_with_the_reason(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(answer(401, b'{"error":{"message":"No key.","code":"k"}}')) as home:
        run = await start(home)
        found = await events(home, run)
        assert names(found) == ["run.started", "run.failed"]
        assert "401" in found[-1]["error"] or "No key" in found[-1]["error"]
        assert (await state(home, run))["error"] == found[-1]["error"]


async def test_too_large_and_no_memory_are_refused(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello."), config={"body_bytes_max": 100}) as home:
        assert error(await home.ask({**RUN, "user": "x" * 100}, path="/v1/runs"))[:2] == (413, "body_too_large")
        answered = await home.ask(RUN, "Content-Type: text/plain", path="/v1/runs")
        assert error(answered)[:2] == (415, "unsupported_media_type")
    async with house(says("Hello."), config={"memory_max_bytes": 64 * 1024**2}) as home:
        home.assembly.services.memory.held_bytes += 2**40
        assert error(await home.ask(RUN, path="/v1/runs"))[:2] == (503, "memory_max_bytes")
        home.assembly.services.memory.held_bytes -= 2**40


async def test_a_request_that_is_wrong_starts_nothing(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(peer := says("Hello.")) as home:
        assert error(await home.ask({"input": 1}, path="/v1/runs")) == (400, "invalid_parameter", "input")
        assert error(await home.ask(b"[]", path="/v1/runs")) == (400, "invalid_json", None)
        assert (peer.requests, home.streams) == ([], [])


async def test_null_is_like_a_member_that_is_missing(autojump_clock: MockClock) -> None:
    del autojump_clock
    missing = ("instructions", "tools", "session_id", "metadata", "previous_response_id", "temperature", "model")
    async with house(peer := says("Hello.")) as home:
        await start(home, **dict.fromkeys(missing, cast(Any, None)))
        await home.settled()
        asked = parse(peer.requests[0].partition(b"\r\n\r\n")[2])
        assert asked.keys() == {"messages", "stream", "stream_options"}


# -- outputs ----------------------------------------------------------------------------------------------------------


def calls_two() -> Peer:
    return Peer(call("{}", "look"), call("{}", "read", index=1), finish("tool_calls"), DONE, end="fin")


async def test_outputs_that_do_not_fit_are_refused_and_name_the_call(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_two(), says("Done.")) as home:
        run = await start(home)
        early = await outputs(home, run, call_0="x")
        assert error(early) == (409, "run_not_waiting", "tool_outputs[0].call_id")
        await home.settled()
        where, answered = "tool_outputs[0]", early
        for given, expected in (
            (None, (400, "invalid_parameter", "tool_outputs")),
            ([], (400, "invalid_parameter", "tool_outputs")),
            ([1], (400, "invalid_parameter", f"{where}.call_id")),
            ([{"call_id": "call_0"}], (400, "invalid_parameter", f"{where}.output")),
            ([{"call_id": "call_0", "output": "x", "error": 1}], (400, "invalid_parameter", f"{where}.error")),
            ([{"call_id": "call_7", "output": "x"}], (409, "call_not_pending", f"{where}.call_id")),
            ([{"call_id": "call_0", "output": "x"}] * 2, (409, "call_not_pending", "tool_outputs[1].call_id")),
            ([{"call_id": "call_0", "output": "x"}], (400, "invalid_parameter", "tool_outputs")),
        ):
            answered = await home.ask({"tool_outputs": given}, path=f"/v1/runs/{run}/tool_outputs")
            assert error(answered) == expected, given
        assert b"call_1" in answered.body
        assert (await state(home, run))["status"] == "waiting_for_tools"
        assert (await outputs(home, run, call_1=["b"], call_0={"a": 1})).status == 202  # type: ignore[arg-type]
        await home.settled()
        again = await outputs(home, run, call_0="x")
        assert error(again) == (409, "run_not_waiting", "tool_outputs[0].call_id")
        assert b"call_0" in again.body


async def test_of_two_outputs_at_once_one_continues_the_run(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), (second := says("Done."))) as home:
        run = await start(home)
        await home.settled()
        statuses: list[int] = []

        async def one() -> None:
            statuses.append((await outputs(home, run, call_0="x")).status)

        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(one)
        assert sorted(statuses) == [202, 409, 409]
        found = await events(home, run)
        assert names(found).count("tool.completed") == names(found).count("run.completed") == 1
        assert len(second.requests) == 1


# -- stop and delete --------------------------------------------------------------------------------------------------


async def test_a_running_run_is_stopped(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow()) as home:
        run = await start(home)
        client = await viewer(home, run)
        await trio.sleep(2.5)
        stopped = await get(home, f"/{run}/stop", method="POST")
        assert (stopped.status, parse(stopped.body)) == (200, {"run_id": run, "status": "stopping"})
        found = events_in((await client.response(method="GET")).body)
        client.close()
        assert names(found) == ["run.started", "message.delta", "message.delta", "run.cancelled"]
        assert found[-1]["reason"] == "asked"
        assert (await state(home, run))["status"] == "cancelled"
        assert error(await get(home, f"/{run}/stop", method="POST")) == (409, "run_finished", None)
        assert error(await outputs(home, run, call_0="x"))[:2] == (409, "run_not_waiting")
        assert (await home.kinds())[-2:] == ["stop", "end"]
        await home.settled()


async def test_a_waiting_run_is_stopped(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool()) as home:
        run = await start(home)
        client = await viewer(home, run)
        await home.settled()
        assert (await get(home, f"/{run}/stop", method="POST")).status == 200
        found = events_in((await client.response(method="GET")).body)
        client.close()
        assert names(found)[-2:] == ["run.waiting_for_tools", "run.cancelled"]
        assert await events(home, run) == found
        assert await home.kinds() == ["open", "run", "end"]
        assert error(await outputs(home, run, call_0="x"))[:2] == (409, "run_not_waiting")


@pytest.mark.parametrize("peer", [says, calls_tool])
async def test_a_stop_in_the_moment_of_the_end_ends_the_run_once(autojump_clock: MockClock, peer: Any) -> None:
    del autojump_clock
    async with house(peer(every_s=1)) as home:
        for wait in range(8):
            run = await start(home)
            await trio.sleep(wait)
            stopped = await get(home, f"/{run}/stop", method="POST")
            found = await events(home, run)
            closing = [name for name in names(found) if name in ("run.completed", "run.cancelled", "run.failed")]
            assert closing == names(found)[-1:]
            # Asked in the moment of its end, a run may have completed all the same.
            assert stopped.status == 200 or (stopped.status == 409 and closing == ["run.completed"])
            await home.settled()


async def test_a_finished_run_can_be_deleted(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(every_s=1, end="fin"), says("Done."), check=False) as home:
        run = await start(home)
        assert error(await get(home, f"/{run}", method="DELETE")) == (409, "run_not_finished", None)
        await home.settled()
        assert error(await get(home, f"/{run}", method="DELETE")) == (409, "run_not_finished", None)
        await outputs(home, run, call_0="x")
        await home.settled()
        deleted = await get(home, f"/{run}", method="DELETE")
        assert (deleted.status, parse(deleted.body)) == (200, {"run_id": run, "deleted": True})
        assert error(await get(home, f"/{run}"))[0] == 404
        assert not await home.store.list(Filter())
        assert parse((await get(home, "")).body)["data"] == []


# -- pages and what is hidden (C21) -----------------------------------------------------------------------------------


async def test_pages_have_the_callers_own_runs_latest_first(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello.")) as home:
        runs: list[str] = []
        for _ in range(5):
            runs.append(await start(home, MINE))
            await home.settled()
            await trio.sleep(1)
        await start(home, THEIRS)
        await home.ask()
        seen: list[str] = []
        cursor: str | None = ""
        while cursor is not None:
            page = parse((await get(home, f"?limit=2{cursor}", MINE)).body)
            assert page["object"] == "list"
            seen += [run["run_id"] for run in page["data"]]
            cursor = page["next"] and f"&before={page['next']}"
        assert seen == runs[::-1]
        for query, param in (
            ("limit=0", "limit"),
            ("limit=101", "limit"),
            ("limit=x", "limit"),
            ("before=x", "before"),
        ):
            assert error(await get(home, f"?{query}")) == (400, "invalid_parameter", param)


@pytest.mark.parametrize(
    "call", ["GET ", "GET /events", "POST /tool_outputs", "POST /stop", "POST /approval", "DELETE "]
)
async def test_hidden_runs_all_look_alike(autojump_clock: MockClock, call: str) -> None:
    del autojump_clock
    method, _, part = call.partition(" ")
    async with house(slow(), check=False) as home:
        run, finished = await start(home, THEIRS), await start(home, THEIRS)
        await get(home, f"/{finished}/stop", THEIRS, method="POST")
        seen: set[tuple[int, bytes, float]] = set()
        answered = await get(home, "/x")
        for name in (run, finished, "run_" + "0" * 32, run[:-1], "x", "a%00b", "%F0%9F%92%A5"):
            began = trio.current_time()
            answered = await home.ask({"a": 1}, MINE, path=f"/v1/runs/{name}{part}", method=method)
            seen.add((answered.status, answered.body, round(trio.current_time() - began, 6)))
        assert seen == {(404, answered.body, NOT_FOUND_STEP_S)}
        assert error(answered)[1] == "run_not_found"


async def test_runs_of_another_route_are_hidden(autojump_clock: MockClock) -> None:
    del autojump_clock
    target = Target(name="upstream", url="http://127.0.0.1:9/v1")
    routes = {name: Route(name=name, targets=(target,)) for name in ("", "runs")}
    async with house((peer := says("Hello.")), config={"routes": routes}) as home:
        run = await start(home, path="/runs/v1/runs")
        await home.settled()
        assert error(await get(home, f"/{run}"))[0] == 404
        answered = await home.ask(b"", path=f"/runs/v1/runs/{run}", method="GET")
        assert parse(answered.body)["status"] == "completed"
        assert peer.requests[0].startswith(b"POST /v1/chat/completions ")
        assert (await home.tape())[2].keys["path"] == "/runs/v1/chat/completions"


async def test_methods_and_paths_that_do_not_exist(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello.")) as home:
        run = await start(home)
        await home.settled()
        for method, path, allowed in (
            ("PUT", "", b"POST, GET"),
            ("POST", f"/{run}", b"GET, DELETE"),
            ("GET", f"/{run}/stop", b"POST"),
            ("DELETE", f"/{run}/events", b"GET"),
        ):
            answered = await home.ask({}, path=f"/v1/runs{path}", method=method)
            assert (answered.status, answered.header(b"allow")) == (405, allowed)
        assert (await get(home, f"/{run}/nothing")).status == 404
        for path in ("", f"/{run}", f"/{run}/events"):
            headed = await get(home, path, method="HEAD")
            assert (headed.status, headed.body) == (200, b"")
        assert error(await home.ask({"choice": "once"}, path=f"/v1/runs/{run}/approval"))[:2] == (
            409,
            "approval_not_active",
        )


async def test_a_run_whose_beginning_has_expired_is_gone(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), says("Done."), check=False) as home:
        run = await start(home, "Idempotency-Key: k")
        await home.settled()
        await outputs(home, run, call_0="x")
        await home.settled()
        await home.store.delete(home.streams[:1])
        assert error(await get(home, f"/{run}"))[:2] == (404, "run_not_found")
        assert await start(home, "Idempotency-Key: k") == run
        assert names(await events(home, run))[-1] == "run.completed"
        assert len(await home.store.list(Filter())) == 1
