"""Every store keeps the same promises: the shared suite, over memory, files, and memory joined with another process."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.proxy.store_cases import CREATED, Batch, Elsewhere, fates_in, flat, gathered, opened_files, put, stream_of
from wiretape.events.core.errors import LocalError
from wiretape.events.core.lifecycle import State
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.config.model import Keep
from wiretape.proxy.limits import ABANDONED_AFTER_S
from wiretape.proxy.store.catalogue_row import AnswerRow, Fate, Link, digest, key_of, row_of_tape
from wiretape.proxy.store.files import INLINE_BYTES_MAX
from wiretape.proxy.store.folder import is_stream_id
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter, Store, StoreError, StreamMissingError, links_of

KINDS = ("memory", "files", "files at level disk", "joined")
DAY_S = 86_400


@asynccontextmanager
async def store_of(kind: str) -> AsyncGenerator[Store]:
    if kind in ("memory", "joined"):
        memory = MemoryStore()
        yield memory if kind == "memory" else JoinedStore(memory, Elsewhere())
        await memory.aclose()
        return
    with TemporaryDirectory() as root:
        async with opened_files(Path(root), durability="disk" if "disk" in kind else "process") as files:
            yield files


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest) -> AsyncGenerator[Store]:
    async with store_of(request.param) as store:
        yield store


async def test_appended_records_are_read_live_and_ended(store: Store) -> None:
    *begun, last = stream_of("s1")
    written = await put(store, "s1", begun)
    assert await gathered(store.read("s1")) == written
    await store.append("s1", last)
    written += last
    assert await gathered(store.read("s1")) == written
    assert [encode(record) for record in await gathered(store.read("s1"))] == [encode(record) for record in written]


async def test_read_and_follow_begin_at_any_record(store: Store) -> None:
    *begun, last = stream_of("s1")
    written = await put(store, "s1", begun)
    for from_n in range(len(written) + 2):
        assert await gathered(store.read("s1", from_n)) == written[from_n:]
    await store.append("s1", last)
    written += last
    for from_n in range(len(written) + 2):
        assert await gathered(store.read("s1", from_n)) == written[from_n:]
        assert await gathered(store.follow("s1", from_n)) == written[from_n:]


async def test_each_append_wakes_a_follower_that_waits(store: Store) -> None:
    batches = stream_of("s1")
    await store.create("s1")
    got: list[Batch] = []

    async def follow() -> None:
        async for batch in store.follow("s1"):
            got.append(batch)  # noqa: PERF401 - seen while it goes on

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        for number, batch in enumerate(batches):
            await trio.testing.wait_all_tasks_blocked()
            await store.append("s1", batch)
            await trio.testing.wait_all_tasks_blocked()
            assert got == batches[: number + 1]


async def test_followers_of_a_released_stream_end(store: Store) -> None:
    begun = stream_of("s1", end=False)
    written = await put(store, "s1", begun)
    got: list[Record] = []

    async def follow() -> None:
        got.extend(await gathered(store.follow("s1")))

    with trio.fail_after(10):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(follow)
            await trio.testing.wait_all_tasks_blocked()
            await store.release("s1")
    assert got == written
    with pytest.raises(StreamMissingError):
        await store.append("s1", stream_of("s1")[-1])


async def test_a_large_body_and_the_records_after_it_are_read_back(store: Store) -> None:
    body = b'{"messages":"' + b"x" * (4 * INLINE_BYTES_MAX) + b'"}'
    batches = stream_of("s1", body=body)
    live = await put(store, "s1", batches[:2])
    assert await gathered(store.read("s1")) == live
    for batch in batches[2:]:
        await store.append("s1", batch)
    assert await gathered(store.read("s1")) == flat(batches)


async def test_an_unknown_stream_is_missing(store: Store) -> None:
    with pytest.raises(StreamMissingError):
        await anext(store.read("nobody"))
    with pytest.raises(StreamMissingError):
        await anext(store.follow("nobody"))
    with pytest.raises(StreamMissingError):
        await store.append("nobody", stream_of("nobody")[0])
    assert await links_of(store, [answer("call-1")], {}) == [None]
    assert await store.list(Filter()) == []


async def test_a_stream_gets_one_tape_only(store: Store) -> None:
    await store.create("s2")
    with pytest.raises(StoreError):
        await store.create("s2")
    await put(store, "s1", stream_of("s1"))
    with pytest.raises(StreamMissingError):  # nothing follows `end`
        await store.append("s1", stream_of("s1")[-1])
    with pytest.raises(AssertionError, match=r"order|comes after"):
        await store.append("s2", stream_of("s2")[1])


async def test_an_id_with_a_meaning_in_a_path_is_refused(store: Store) -> None:
    for stream in ("", ".", "..", "a/b", "../a", "a\0b", "a.tape", "-a", "_a", "a b", "ä", "a\n", "x" * 129):
        assert not is_stream_id(stream)
        with pytest.raises(LocalError):
            await store.create(stream)
        with pytest.raises((LocalError, StreamMissingError)):
            await anext(store.read(stream))
    assert all(map(is_stream_id, ["a", "x" * 128, "01JD4Q0000", "chat-1_2"]))


async def test_pages_list_the_latest_first_without_gaps_or_repeats(store: Store) -> None:
    for number in range(7):
        await put(store, f"s{number}", stream_of(f"s{number}", created=CREATED + number // 2))
    await put(store, "live", stream_of("live", created=CREATED + 2, end=False))
    seen: list[str] = []
    before = None
    while page := await store.list(Filter(before=before), 3):
        assert len(page) <= 3
        seen += [row.stream for row in page]
        before = page[-1]
    assert seen == ["s6", "s5", "s4", "live", "s3", "s2", "s1", "s0"]


async def test_list_applies_every_filter(store: Store) -> None:
    await put(store, "a", stream_of("a", caller="c1", model="m1", route="r1"))
    await put(store, "b", stream_of("b", caller="c2", model="m1", route="r2"))
    await put(store, "c", stream_of("c", caller="c2", model="m2", route="r2", end=False))
    asked: list[dict[str, Any]] = [{"caller": "c2"}, {"model": "m1"}, {"route": "r2"}, {"ending": ""}]
    asked += [{"ending": "completed"}, {"caller": "c1", "model": "m2"}, {"caller": "' OR 1=1 --"}]
    found = [sorted(row.stream for row in await store.list(Filter(**which))) for which in asked]
    assert found == [["b", "c"], ["a", "b"], ["b", "c"], ["c"], ["a", "b"], [], []]


async def test_the_turns_of_a_run_are_found_by_its_id_and_session(store: Store) -> None:
    await put(store, "plain", stream_of("plain"))
    await put(store, "a1", stream_of("a1", run="run_a", session="s", caller="c1"))
    await put(store, "a2", stream_of("a2", run="run_a", session="s", caller="c1", turn=2, end=False, model="m2"))
    await put(store, "b1", stream_of("b1", run="run_b", session="s", caller="c2", created=CREATED + 1))
    asked: list[dict[str, Any]] = [{"run": "run_a"}, {"run": "run_a", "caller": "c2"}, {"session": "s"}]
    asked += [{"session": "s", "runs": True}, {"runs": True}, {"runs": True, "caller": "c1"}, {"run": ""}, {}]
    found = [sorted(row.stream for row in await store.list(Filter(**which))) for which in asked]
    assert found[:4] == [["a1", "a2"], [], ["a1", "a2", "b1"], ["a1", "b1"]]
    assert found[4:] == [["a1", "b1"], ["a1"], [], ["a1", "a2", "b1", "plain"]]
    rows = {row.stream: row for row in await store.list(Filter())}
    assert [(rows[name].run, rows[name].turn, rows[name].session) for name in ("a2", "b1", "plain")] == [
        ("run_a", 2, "s"),
        ("run_b", 1, "s"),
        (None, None, None),
    ]
    assert rows["a2"].model == "m2"


async def test_deleted_streams_vanish_everywhere(store: Store) -> None:
    await put(store, "gone", stream_of("gone", call_id="call-1"))
    await put(store, "stays", stream_of("stays"))
    await store.delete(["gone", "never-was"])
    assert [row.stream for row in await store.list(Filter())] == ["stays"]
    assert await links_of(store, [answer("call-1")], {}) == [None]
    with pytest.raises(StreamMissingError):
        await anext(store.read("gone"))
    await store.delete([])


async def test_the_row_of_an_ended_stream_is_the_given_one_or_that_of_its_tape(store: Store) -> None:
    written = await put(store, "s1", stream_of("s1", call_id="call-1"))
    *begun, last = stream_of("s2", created=CREATED - 1)
    await put(store, "s2", begun)
    given = row_of_tape("s2", flat([*begun, last]))
    await store.append("s2", last, given._replace(stream=replace(given.stream, model="given")))
    one, two = await store.list(Filter())
    assert (one, two.model) == (row_of_tape("s1", written).stream, "given")


def answer(call_id: str, **named: Any) -> AnswerRow:
    """A result that has just come, a second after the calls of `stream_of`."""
    said: dict[str, Any] = {"caller": "caller-1", "call": call_id, "stream": "new", "name": "look_up"}
    said |= {"arguments": digest("{}"), "after": 1, "failed": False, "arrived_us": (CREATED + 1) * 1_000_000}
    return AnswerRow(**said | named)


#: `stream_of` hands its call over with the fifth read, 5 ms after its beginning.
HANDED_MS = 5


async def test_a_call_is_found_once_its_stream_ended_and_only_by_its_caller(store: Store) -> None:
    await put(store, "s1", stream_of("s1", call_id="call-1"))
    mine = [answer("call-1"), answer("call-2"), answer("call-1", name="jump"), answer("call-1", arguments=digest("[]"))]
    assert await links_of(store, mine, {}) == [Link("s1", 1_000 - HANDED_MS), None, None, None]
    assert await links_of(store, [answer("call-1", caller="caller-2")], {}) == [None]
    assert await links_of(store, [], {}) == []
    await put(store, "runs", stream_of("runs", call_id="call-9", end=False))
    assert (await fates_in(store, "runs", CREATED), await links_of(store, [answer("call-9")], {})) == ({}, [None])


async def test_a_call_takes_its_fate_from_the_stream_that_answered_it(store: Store) -> None:
    later: dict[str, Any] = {"created": CREATED + 2, "messages": 3}
    result = {"id": "call-1", "name": "look_up", "arguments": digest("{}")}
    await put(store, "s1", stream_of("s1", call_id="call-1"))
    await put(store, "s2", stream_of("s2", call_id="call-2", **later, results=[{**result, "failed": True}]))
    assert await fates_in(store, "s1", CREATED) == {"call-1": Fate(State.FAILED, "s2", 2_000 - HANDED_MS)}
    assert await fates_in(store, "s2", CREATED) == {"call-2": Fate(State.RUNNING)}
    assert await fates_in(store, "s2", CREATED + 2 * ABANDONED_AFTER_S) == {"call-2": Fate(State.ABANDONED)}
    retried = answer("call-1", arrived_us=(CREATED + 60) * 1_000_000)
    assert await links_of(store, [retried], {}) == [Link("s1", 2_000 - HANDED_MS)]  # as the first one said


async def test_results_of_running_streams_count_and_retries_are_recognised(store: Store) -> None:
    for number in range(2):
        await put(store, f"s{number}", stream_of(f"s{number}", call_id="call-1", created=CREATED + number))
    running = answer("call-1", stream="first", arrived_us=(CREATED + 2) * 1_000_000)
    retried = answer("call-1", arrived_us=(CREATED + 60) * 1_000_000, request="0f")
    now = {key_of(running): [replace(running, request="0f")]}
    assert await links_of(store, [retried], now) == [Link("s1", 1_000 - HANDED_MS)]
    assert await links_of(store, [replace(retried, request="0e")], now) == [Link("s0", 60_000 - HANDED_MS)]
    assert await links_of(store, [retried], {}) == [Link("s1", 59_000 - HANDED_MS)]


async def test_expired_streams_vanish_everywhere_and_live_ones_stay(store: Store) -> None:
    await put(store, "old", stream_of("old", call_id="call-1", created=CREATED - 9 * DAY_S))
    await put(store, "old-live", stream_of("old-live", created=CREATED - 9 * DAY_S, end=False))
    await put(store, "young", stream_of("young"))
    assert list(await store.expire(CREATED, Keep())) == ["old"]
    assert sorted(row.stream for row in await store.list(Filter())) == ["old-live", "young"]
    assert await links_of(store, [answer("call-1")], {}) == [None]
    with pytest.raises(StreamMissingError):
        await anext(store.read("old"))
    assert list(await store.expire(CREATED, Keep(bytes=0))) == ["young"]
    assert list(await store.expire(CREATED, Keep(days=0, bytes=0))) == []


# What a schedule may say: append the next batch, begin to follow at a record, let the followers run.
MOVES = st.lists(st.one_of(st.just(-1), st.just(-2), st.integers(0, 30)), max_size=40)


@pytest.mark.parametrize("kind", ["memory", "files"])
@settings(max_examples=30)
@given(moves=MOVES, seed=st.integers(0, 3))
async def test_any_interleaving_gives_every_follower_the_whole_sequence(kind: str, moves: list[int], seed: int) -> None:
    batches = stream_of("s1", reads=10 + seed)
    written = flat(batches)
    got: list[tuple[int, list[Record]]] = []

    async def follow(store: Store, from_n: int) -> None:
        got.append((from_n, await gathered(store.follow("s1", from_n))))

    async with store_of(kind) as store, trio.open_nursery() as nursery:
        await store.create("s1")
        waiting = list(batches)
        for move in moves:
            if move == -1 and len(waiting) > 1:
                await store.append("s1", waiting.pop(0))
            elif move == -2:
                await trio.testing.wait_all_tasks_blocked()
            elif move >= 0:
                nursery.start_soon(follow, store, move)
        for batch in waiting:
            await store.append("s1", batch)
    assert len(got) == sum(move >= 0 for move in moves)
    assert all(records == written[from_n:] for from_n, records in got)
