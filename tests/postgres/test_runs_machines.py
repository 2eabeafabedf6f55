"""Runs, lifecycle links and readers on two real proxies with one real PostgreSQL."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.laws.checker import Transcript, transcript_of
from tests.postgres.cluster import Database
from tests.postgres.machine import Machine, exchange
from tests.postgres.run_stories import DEAD_S, told_all
from tests.proxy.run_cases import calls_tool, says
from tests.proxy.scripted import Script, listening
from tests.support.house import ASKED, post
from tests.support.run_clients import RUNS, event_of, frames_of, wrong_with
from wiretape.events.core.json_text import parse

RUN = {"model": "m", "input": "hi"}


@asynccontextmanager
async def pair(database: Database, folder: Path, *scripts: Script) -> AsyncGenerator[tuple[Machine, Machine]]:
    """Run two machines; of all connections to their upstream each meets the next script, the last one again."""
    rest = [*scripts]

    async def upstream(stream: trio.abc.Stream) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(stream)

    async with listening(upstream) as (port, _):
        a, b = [Machine(name, folder, database, port, "--store-dead-s", str(DEAD_S)) for name in ("a", "b")]
        try:
            await a.start()
            await b.start()
            yield a, b
        finally:
            with trio.CancelScope(shield=True):
                await a.stop()
                await b.stop()


async def ask(machine: Machine, path: str, body: Any = b"", *headers: str, method: str = "POST") -> Transcript:
    """Return the whole answer to a request."""
    got = bytearray()
    with trio.fail_after(60):
        await exchange(machine.port, post(body, *headers, path=path, method=method), got)
    answer = transcript_of(bytes(got))
    assert answer is not None
    return answer


async def run_of(machine: Machine, *headers: str) -> str:
    """Start a run."""
    answer = await ask(machine, RUNS, RUN, *headers)
    assert answer.status == 202, answer.body
    return str(parse(answer.body)["run_id"])


async def state(machine: Machine, run: str) -> Any:
    answer = await ask(machine, f"{RUNS}/{run}", method="GET")
    assert answer.status == 200, answer.body
    return parse(answer.body)


async def until(holds: Callable[[], Any], what: str) -> None:
    """Wait for something that another machine is yet to learn."""
    with trio.fail_after(30):
        while not await holds():  # noqa: ASYNC110
            await trio.sleep(0.05)
    assert await holds(), what


async def seen(machine: Machine, run: str) -> list[bytes]:
    """Return all events of a run once it is over."""
    answer = await ask(machine, f"{RUNS}/{run}/events", method="GET")
    frames = frames_of(answer.body)
    assert answer.whole
    assert wrong_with(frames, run) == []
    return frames


async def test_a_run_goes_on_and_ends_on_either_machine(database: Database, tmp_path: Path) -> None:
    scripts = [calls_tool(end="fin"), says("It is", " 18.", end="fin"), says(*["word "] * 600, every_s=0.05)]
    async with pair(database, tmp_path, *scripts) as (a, b):
        run = await run_of(a, "Idempotency-Key: once")
        assert await run_of(b, "Idempotency-Key: once") == run
        given = {"tool_outputs": [{"call_id": "call_0", "output": "18"}]}

        async def waits() -> bool:
            return bool((await state(b, run))["status"] == "waiting_for_tools")

        await until(waits, "waiting")
        assert (await ask(b, f"{RUNS}/{run}/tool_outputs", given)).status == 202
        assert await seen(a, run) == await seen(b, run)
        assert (await state(a, run))["output"] == "It is 18."

        endless = await run_of(b)
        stopped = await ask(a, f"{RUNS}/{endless}/stop")
        assert (stopped.status, parse(stopped.body).get("status")) == (200, "stopping"), stopped.body
        assert event_of((await seen(a, endless))[-1])["reason"] == "asked"

        assert (await ask(b, f"{RUNS}/{run}", method="DELETE")).status == 200

        async def gone() -> bool:
            return (await ask(a, f"{RUNS}/{run}", method="GET")).status == 404

        await until(gone, "deleted everywhere")


async def test_a_turn_of_a_dead_machine_ends_as_crashed(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path, says(*["word "] * 2_000, every_s=0.01)) as (a, b):
        run, frames = await run_of(a), list[bytes]()

        async def view() -> None:
            frames.extend(await seen(b, run))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(view)
            await trio.sleep(1)
            a.kill()
        assert event_of(frames[-1])["code"] == "crashed"
        assert len(frames) > 10
        assert await seen(b, run) == frames


async def test_a_paused_machine_does_not_carry_out_what_it_was_asked_too_late(
    database: Database, tmp_path: Path
) -> None:
    async with pair(database, tmp_path, says(*["word "] * 2_000, every_s=0.01)) as (a, b):
        run = await run_of(a)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(seen, b, run)  # a viewer, who makes it known that the machine is dead
            await trio.sleep(0.5)
            a.pause()
            stopped = await ask(b, f"{RUNS}/{run}/stop")
            assert parse(stopped.body)["error"]["code"] == "store_unreachable"
        assert event_of((await seen(b, run))[-1])["code"] == "crashed"
        assert parse((await ask(b, f"{RUNS}/{run}/stop")).body)["error"]["code"] == "run_finished"
        a.resume()
        await trio.sleep(1)
        assert database.sql("SELECT count(*) FROM wiretape.signal") == [(0,)]
        assert (await state(a, run))["status"] != "cancelled"
        a.kill()


async def test_a_call_of_one_machine_is_answered_on_another(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path, calls_tool(end="fin"), says("18.", before_s=1.0)) as (a, b):
        first = await ask(a, "/v1/chat/completions", ASKED)
        call = {"id": "call_0", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
        result = {"role": "tool", "tool_call_id": "call_0", "content": "18"}
        said = {"role": "assistant", "content": "Let me look.", "tool_calls": [call]}
        second = await ask(b, "/v1/chat/completions", {**ASKED, "messages": [*ASKED["messages"], said, result]})
        progress = [block for block in second.body.split(b"\n\n") if b"hermes.tool.progress" in block]
        [value] = [parse(block.partition(b"data: ")[2]) for block in progress]
        assert (value["toolCallId"], value["status"]) == ("call_0", "completed")
        assert 0 < value["duration_ms"] < 60_000
        made = f"/wiretape/streams/{first.headers['x-wiretape-stream']}"

        async def linked() -> bool:
            [found] = parse((await ask(b, made, method="GET")).body)["tools"]
            return bool(found.get("answered_by") == second.headers["x-wiretape-stream"])

        await until(linked, "the call names the stream that answered it")


async def test_a_reader_on_another_machine_keeps_a_stream(database: Database, tmp_path: Path) -> None:
    async with pair(database, tmp_path, says(*["word "] * 2_000, every_s=0.02)) as (a, b):

        async def live(stream: str) -> bool:
            return bool(parse((await ask(b, f"/wiretape/streams/{stream}", method="GET")).body)["live"])

        async with await trio.open_tcp_stream("127.0.0.1", a.port) as client:
            await client.send_all(post(ASKED))
            head = await client.receive_some()
            stream = head.lower().partition(b"x-wiretape-stream: ")[2].partition(b"\r")[0].decode()
            follower = await trio.open_tcp_stream("127.0.0.1", b.port)
            await follower.send_all(post(b"", path=f"/wiretape/streams/{stream}/events", method="GET"))
            await follower.receive_some()
            await trio.sleep(1)  # its lease is written within 250 ms
        await trio.sleep(1)
        assert await live(stream)
        await trio.aclose_forcefully(follower)

        async def ended() -> bool:
            return not await live(stream)

        await until(ended, "it ends within 5 s")
        assert b'"client_gone"' in (await ask(b, f"/wiretape/streams/{stream}", method="GET")).body


@pytest.mark.parametrize("kills", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_seeded_runs(kills: bool, database: Database, tmp_path: Path) -> None:
    """A few of the stories of `python -m tests.postgres.run_stories`."""
    told, _ = await told_all(range(10 if kills else 6), database, tmp_path, kills=kills)
    assert [what for each in told for what in each.wrong] == []
