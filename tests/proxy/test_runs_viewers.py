"""The viewers of a run (C22, C23), the time that a run is given, and what a shutdown leaves."""

from collections.abc import Mapping
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.proxy.run_cases import (
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
from tests.support.house import House, house
from tests.support.http import Answer, Client
from wiretape.proxy.limits import EXPIRE_AGED_EVERY_S, FOLLOW_KEEPALIVE_S, WINDOW_BYTES_MAX, WRITE_TIMEOUT_S
from wiretape.proxy.memory import Memory
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter

DAY_S = 86_400


async def seen(client: Client, *, ended: str = "chunked") -> list[Any]:
    """Return all events that a viewer gets, and close it."""
    answered = await client.response(method="GET")
    assert (answered.status, answered.ended) == (200, ended)
    client.close()
    return events_in(answered.body)


# -- viewers ----------------------------------------------------------------------------------------------------------


async def test_viewers_that_come_at_any_time_get_the_same_events(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(), says("Done.")) as home:
        run = await start(home)
        found: list[list[Any]] = []

        async def view(wait: float) -> None:
            await trio.sleep(wait)
            found.append(await seen(await viewer(home, run)))

        async with trio.open_nursery() as nursery:
            for half in range(30):
                nursery.start_soon(view, half / 2)
        assert len(found[0]) == 12
        assert all(one == found[0] for one in found)


async def test_a_viewer_comes_back_with_any_id(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(3)) as home:
        run = await start(home)
        found: dict[str, list[Any]] = {}

        async def view(wait: float, last_id: str) -> None:
            await trio.sleep(wait)
            found[f"{wait} {last_id}"] = await seen(await viewer(home, run, f"Last-Event-ID: {last_id}"))

        ids = ("0", "1", "3", "5", "6", "999999999999999", "-1", "1.5", "junk", "9" * 40, "")
        async with trio.open_nursery() as nursery:
            for wait in (0.0, 2.5, 60.0):
                for last_id in ids:
                    nursery.start_soon(view, wait, last_id)
        whole = await events(home, run)
        assert len(whole) == 5
        for name, got in found.items():
            last_id = name.partition(" ")[2]
            assert got == (whole[int(last_id) :] if last_id in ids[:6] else whole), name
        assert await events(home, run, query="?last_event_id=3") == whole[3:]
        assert await events(home, run, "Last-Event-ID: 4", query="?last_event_id=3") == whole[4:]


async def test_a_viewer_that_leaves_changes_nothing(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow()) as home:
        run = await start(home)
        stays, leaves = await viewer(home, run), await viewer(home, run)
        await trio.sleep(2.5)
        leaves.close()
        found = await seen(stays)
        assert names(found)[-1] == "run.completed"
        assert "gone" not in await home.kinds()


async def test_a_viewer_that_stalls_is_cut_alone(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says(*["x" * 1_000] * 100, every_s=1)) as home:
        run = await start(home)
        stalls, reads = await viewer(home, run, capacity=2_000), await viewer(home, run)
        found: list[list[Any]] = []

        async def view() -> None:
            found.append(await seen(reads))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(view)
            await trio.sleep(WRITE_TIMEOUT_S + 10)
            with pytest.raises(trio.BrokenResourceError):
                await stalls.rest()
            assert not found
        assert len(found[0]) == 102
        stalls.close()


async def test_a_viewer_that_falls_behind_the_window_misses_nothing(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says(*["x" * 1_000] * 600, every_s=0.01)) as home:
        run = await start(home)
        client = await viewer(home, run, capacity=4_000)
        whole = await events(home, run)
        assert sum(len(event.get("delta", "")) for event in whole) > 4 * WINDOW_BYTES_MAX
        assert await seen(client) == whole
        assert await events(home, run) == whole


async def test_keepalives_never_end_the_events_of_a_run_that_waits(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), says("Done.")) as home:
        run = await start(home)
        await home.settled()
        began = trio.current_time()
        client, found = await viewer(home, run), list[Answer]()

        async def view() -> None:
            found.append(await client.response(method="GET"))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(view)
            await trio.sleep(3_605)
            assert (await outputs(home, run, call_0="x")).status == 202
        client.close()
        (answered,) = found
        silences = [at - began for at, piece in answered.pieces if piece == b": keepalive\n\n"]
        assert silences[:2] == [FOLLOW_KEEPALIVE_S, 2 * FOLLOW_KEEPALIVE_S]
        assert len(silences) == 3_600 / FOLLOW_KEEPALIVE_S
        assert events_in(answered.body) == await events(home, run)


async def test_a_run_in_no_hurry_gets_keepalives_and_its_tape_none(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("a", "b", every_s=100)) as home:
        run = await start(home)
        client = await viewer(home, run)
        answered = await client.response(method="GET")
        client.close()
        assert answered.body.count(b": keepalive\n\n") >= 18
        assert "keepalive" not in await home.kinds()


async def test_viewers_are_charged_for(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(), config={"memory_max_bytes": 2**39}) as home:
        run = await start(home)
        memory: Memory = home.assembly.services.memory
        before = memory.held_bytes
        client = await viewer(home, run)
        await trio.sleep(1)
        assert memory.held_bytes > before
        memory.held_bytes += 2**40
        assert error(await get(home, f"/{run}/events"))[:2] == (503, "memory_max_bytes")
        memory.held_bytes -= 2**40
        await seen(client)
        assert memory.held_bytes == 0


# -- the time that a run is given -------------------------------------------------------------------------------------


async def test_a_run_without_a_viewer_ends_after_a_while(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(400), config={"runs_unwatched_s": 60.0}) as home:
        run = await start(home)
        await trio.sleep(30)
        client = await viewer(home, run)
        await trio.sleep(90)
        client.close()
        left = trio.current_time()
        await home.settled()
        assert trio.current_time() == pytest.approx(left + 60, abs=1)
        found = await events(home, run)
        assert (found[-1]["event"], found[-1]["reason"]) == ("run.cancelled", "unwatched")
        assert (await home.tape())[-2].keys == {"why": "unwatched"}


async def test_a_run_that_is_never_watched_ends_too(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(slow(400), config={"runs_unwatched_s": 1.0}) as home:
        run = await start(home)
        began = trio.current_time()
        await home.settled()
        assert trio.current_time() == pytest.approx(began + 1, abs=0.5)
        assert (await state(home, run))["status"] == "cancelled"


WAITS: Mapping[str, bool] = {"looked at": False, "watched": True}


@pytest.mark.parametrize("watched", WAITS.values(), ids=WAITS)
async def test_a_run_that_waits_for_too_long_is_cancelled(autojump_clock: MockClock, watched: bool) -> None:
    del autojump_clock
    async with house(calls_tool(), config={"runs_waiting_s": 1_000.0}) as home:
        run = await start(home)
        await home.settled()
        client = await viewer(home, run) if watched else None
        await trio.sleep(990)
        assert (await state(home, run))["status"] == "waiting_for_tools"
        await trio.sleep(30)
        found = await seen(client) if client else await events(home, run)
        assert (found[-1]["event"], found[-1]["reason"]) == ("run.cancelled", "waited")
        assert error(await outputs(home, run, call_0="x"))[:2] == (409, "run_not_waiting")
        assert await events(home, run) == found
        assert await home.kinds() == ["open", "run", "end"]


async def test_a_run_without_any_client_does_not_wait_for_ever(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(), config={"runs_waiting_s": 10_000.0}) as home:
        await start(home)
        await home.settled()
        await trio.sleep(10_000 + EXPIRE_AGED_EVERY_S)
        assert await home.kinds() == ["open", "run", "end"]
        assert [fields["status"] for _, event, fields in home.log if event == "run_ended"] == ["cancelled"]


async def test_a_run_that_waited_through_a_restart_is_cancelled_by_the_first_look(autojump_clock: MockClock) -> None:
    del autojump_clock
    store = MemoryStore()
    async with house(calls_tool(), store=store) as home:
        run = await start(home)
        await home.settled()
    await trio.sleep(2 * DAY_S)
    async with house(says("Done."), store=store) as home:
        home.streams.append("the one before")
        assert (await state(home, run))["status"] == "cancelled"
        home.streams.remove("the one before")
        assert len(await store.list(Filter(run=run))) == 2


async def ended(home: House) -> str:
    run = await start(home)
    await home.settled()
    return run


async def test_a_finished_run_that_no_client_has_read_goes_after_a_while(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(says("Hello."), config={"runs_unread_s": 10_000.0}, check=False) as home:
        polled, watched, unread = await ended(home), await ended(home), await ended(home)
        await state(home, polled)
        await events(home, watched)
        await trio.sleep(9_000)
        assert len(await home.store.list(Filter(runs=True))) == 3
        await trio.sleep(EXPIRE_AGED_EVERY_S)
        assert error(await get(home, f"/{unread}"))[:2] == (404, "run_not_found")
        for run in (polled, watched):
            assert (await state(home, run))["status"] == "completed"


# -- shutdown ---------------------------------------------------------------------------------------------------------


async def test_a_shutdown_ends_running_runs_with_the_reason_and_lets_viewers_go(autojump_clock: MockClock) -> None:
    del autojump_clock
    store = MemoryStore()
    async with house(calls_tool(end="fin"), slow(100), store=store) as home:
        waits = await start(home)
        await home.settled()
        runs = await start(home)
        waiting, running = await viewer(home, waits), await viewer(home, runs)
        await trio.sleep(2.5)
        async with trio.open_nursery() as nursery:
            began = trio.current_time()
            nursery.start_soon(home.registry.drain, began + 10)
            assert names(await seen(waiting, ended="cut"))[-1] == "run.waiting_for_tools"
            assert trio.current_time() == began
            assert error(await outputs(home, waits, call_0="x"))[:2] == (503, "shutdown")
            assert names(await events(home, waits, ended="cut"))[-1] == "run.waiting_for_tools"
            found = await seen(running)
            assert trio.current_time() == began + 10
        assert (found[-1]["event"], found[-1]["code"]) == ("run.failed", "shutdown")
    async with house(says("Done."), store=store) as home:
        assert (await state(home, waits))["status"] == "waiting_for_tools"
        assert await events(home, runs) == found


async def test_runs_are_counted_and_logged(autojump_clock: MockClock) -> None:
    del autojump_clock
    async with house(calls_tool(end="fin"), says("Done.")) as home:
        run = await ended(home)
        await outputs(home, run, call_0="x")
        await home.settled()
        await trio.testing.wait_all_tasks_blocked()
        metrics = home.assembly.metrics.text()
        assert b"wiretape_runs_started_total 1.0\n" in metrics
        assert b'wiretape_runs_ended_total{status="completed"} 1.0\n' in metrics
        lines = [(level, event, fields["run"]) for level, event, fields in home.log if "run" in fields]
        assert lines == [("info", "run_started", run), ("info", "run_ended", run)]
