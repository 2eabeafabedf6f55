"""The streams of another machine through the database: read, followed, listed and linked as where they are."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.postgres.cluster import Database
from tests.postgres.shipped import Ship, shipping
from tests.proxy.store_cases import CREATED, fates_in, gathered, put, stream_of
from wiretape.events.core.lifecycle import State
from wiretape.proxy.store.catalogue_row import AnswerRow, Fate, Link, digest
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.postgres import server_at
from wiretape.proxy.store.postgres.reading import PostgresSource
from wiretape.proxy.store.query import parse_query
from wiretape.proxy.store.store import Filter, StreamMissingError, links_of


@asynccontextmanager
async def elsewhere(database: Database, *, dead_s: float = 10.0, url: str = "") -> AsyncGenerator[PostgresSource]:
    """What a machine without streams of its own sees."""
    async with trio.open_nursery() as nursery:
        source = PostgresSource(server_at(url or database.url), "reader", dead_s, lambda *_, **__: None)
        await nursery.start(source.run)
        yield source
        nursery.cancel_scope.cancel()


async def begun(ship: Ship, stream: str, batches: list[Any]) -> list[Any]:
    records = await put(ship.files, stream, batches)
    await ship.shipper.through()
    return records


async def test_stream_is_read_and_followed_while_it_runs_and_after(tmp_path: Path, database: Database) -> None:
    async with shipping(tmp_path, database) as ship, elsewhere(database) as source:
        first, *middle, last = stream_of("s1", reads=20)
        written = await begun(ship, "s1", [first])
        assert await gathered(source.read("s1")) == written
        got: list[Any] = []

        async def follow(from_n: int, got: list[Any]) -> None:
            async for batch in source.follow("s1", from_n):
                got += batch

        async with trio.open_nursery() as nursery:
            later: list[Any] = []
            nursery.start_soon(follow, 0, got)
            nursery.start_soon(follow, 5, later)
            for batch in middle:
                await ship.files.append("s1", batch)
                written += batch
                await trio.sleep(0.01)
            assert await gathered(source.read("s1", 3)) in (written[3:], written[3:-1], written[3:-2], written[3:-3])
            await ship.files.append("s1", last)
            written += last
        assert got == written
        assert later == written[5:]
        await ship.shipper.through()
        for from_n in (0, 3, len(written) - 1, len(written)):
            assert await gathered(source.read("s1", from_n)) == written[from_n:]
            assert await gathered(source.follow("s1", from_n)) == written[from_n:]
        for batches in (source.read("never-was"), source.follow("../s1"), source.read("a\0b")):
            with pytest.raises(StreamMissingError):
                await anext(batches)


QUERIES = [
    "",
    "model:M1",
    "ending:completed",
    "ending:crashed",
    "tool:look_up",
    "state:running",
    "tool:look_up state:running",
    "lost:no",
    "lost:yes",
    "route:other",
    "dialect:chat",
    "run:run_1",
    "since:2026-11-18T12:00:05Z",
    "until:2026-11-18T12:00:05Z model:m",
    "gap:<1s",
    "live:no",
    "path:v1",
    "repair:finish_word",
]


async def fill(ship: Ship) -> None:
    for number in range(12):
        run: dict[str, Any] = {"run": "run_1", "turn": number, "session": "s"} if number in (1, 2) else {}
        batches = stream_of(
            f"s{number}",
            reads=1,
            created=CREATED + number // 2,
            model=f"m{number % 3}" if number != 11 else "m\0'\"$1 ? \\u0000",
            route="other" if number % 4 == 0 else "default",
            caller=f"c{number % 2}",
            call_id="call-1" if number % 3 else "",
            end=number not in (5, 11),
            **run,
        )
        await put(ship.files, f"s{number}", batches)
    await ship.shipper.through()


async def test_lists_and_filters_give_what_the_machine_itself_lists(tmp_path: Path, database: Database) -> None:
    async with shipping(tmp_path, database) as ship, elsewhere(database) as source:
        await fill(ship)
        filters = [parse_query(query, CREATED).which for query in QUERIES]
        filters += [
            Filter(caller="c1"),
            Filter(runs=True),
            Filter(run="run_1"),
            Filter(session="s"),
            Filter(model="m1"),
        ]
        filters += [Filter(ending=""), Filter(model="m\0'\"$1 ? \\u0000"), Filter(route="nowhere")]
        for which in filters:
            due = [row.stream for row in await ship.files.list(which)]
            assert [row.stream for row in await source.list(which, 100)] == due, which
        assert len(await source.list(Filter(), 100)) == 12
        (row, *_), (own, *_) = await source.list(Filter(), 100), await ship.files.list(Filter())
        assert row == own
        found, which = list[str](), Filter()
        while page := await source.list(which, 5):
            found += [row.stream for row in page]
            which = Filter(before=page[-1])
        assert found == [row.stream for row in await ship.files.list(Filter())]
        assert sorted(await source.running(["s5", "s11", "s0", "never-was"])) == ["s11", "s5"]
        assert {row.stream for row in await source.recent()} == set(found)
        ended = [stream for stream in found if stream not in ("s5", "s11")]
        assert await source.rows([*found, "never-was"]) == await ship.files.rows(ended)


async def test_call_made_on_another_machine_is_linked_with_its_result(tmp_path: Path, database: Database) -> None:
    result = {"id": "call-1", "name": "look_up", "arguments": digest("{}")}
    async with shipping(tmp_path, database) as ship, elsewhere(database) as source:
        store = JoinedStore(MemoryStore(), source)
        await begun(ship, "s1", stream_of("s1", call_id="call-1"))
        await begun(ship, "x", stream_of("x", call_id="call-1", caller="other"))
        said: dict[str, Any] = {"caller": "caller-1", "call": "call-1", "stream": "s2", "name": "look_up", "after": 1}
        new = AnswerRow(**said, arguments=digest("{}"), failed=False, arrived_us=(CREATED + 1) * 1_000_000)
        assert await links_of(store, [new], {}) == [Link("s1", 995)]
        assert await fates_in(store, "s1", CREATED) == {"call-1": Fate(State.RUNNING)}
        await put(store, "s2", stream_of("s2", created=CREATED + 1, messages=3, results=[result]))
        assert await fates_in(store, "s1", CREATED) == {"call-1": Fate(State.COMPLETED, "s2", 995)}
        by_id = {**result, "stream": "s1", "duration_ms": 995}
        await begun(ship, "s3", stream_of("s3", created=CREATED + 2, messages=3, results=[by_id]))
        for stream in ("s1", "x", "s3"):
            assert await fates_in(source, stream, CREATED) == await fates_in(ship.files, stream, CREATED)
        assert (await fates_in(source, "s1", CREATED))["call-1"].answered_by == "s3"


async def test_slow_reader_and_one_that_begins_late_get_every_record(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("wiretape.proxy.store.postgres.reading.TAIL_WAITING_BYTES", 2_000)
    monkeypatch.setattr("wiretape.proxy.store.postgres.reading.TAIL_INLINE_BYTES", 100)
    written: dict[str, list[Any]] = {}
    got: dict[tuple[str, int], list[Any]] = {}
    async with shipping(tmp_path, database) as ship, elsewhere(database) as source, trio.open_nursery() as nursery:

        async def write(stream: str) -> None:
            written[stream] = []
            await ship.files.create(stream)
            for batch in stream_of(stream, reads=200):
                await ship.files.append(stream, batch)
                written[stream] += batch
                await trio.sleep(0.002)

        async def follow(stream: str, number: int) -> None:
            await trio.sleep(0.2 * number)
            records = got[stream, number] = []
            async for batch in source.follow(stream):
                records += batch
                await trio.sleep(0.005 * number)

        for stream in ("s1", "s2", "s3"):
            nursery.start_soon(write, stream)
            for number in range(4):
                nursery.start_soon(follow, stream, number) if number else None
    assert {key: records == written[key[0]] for key, records in got.items()} == dict.fromkeys(got, True)
    assert len(got) == 9


async def test_streams_of_a_writer_without_a_sign_of_life_end_as_crashed(tmp_path: Path, database: Database) -> None:
    batches = stream_of("s1", reads=5)[:4]
    async with shipping(tmp_path, database, dead_s=1.0) as ship:
        written = await begun(ship, "s1", batches)
    async with elsewhere(database, dead_s=1.0) as source:
        assert [row.ending for row in await source.list(Filter(), 10)] == [""]
        with trio.fail_after(10):
            records = await gathered(source.follow("s1"))
        assert records[:-1] == written
        assert (records[-1].kind, records[-1].keys["ending"]) == ("end", "crashed")
        assert [row.ending for row in await source.list(Filter(), 10)] == ["crashed"]
        assert await gathered(source.read("s1")) == records
        assert not await source.running(["s1"])


@pytest.mark.parametrize("how", ["list", "read"])
async def test_looks_alone_find_out_that_a_writer_is_dead(tmp_path: Path, database: Database, how: str) -> None:
    async with shipping(tmp_path, database, dead_s=1.0) as ship:
        await begun(ship, "s1", stream_of("s1", end=False))
    async with elsewhere(database, dead_s=1.0) as source:

        async def ended() -> bool:
            if how == "list":
                return bool((await source.list(Filter(), 10))[0].ending)
            return (await gathered(source.read("s1")))[-1].kind == "end"

        with trio.fail_after(10):
            while not await ended():  # noqa: ASYNC110 - it happens in the database
                await trio.sleep(0.1)


async def test_large_record_and_many_blocks_are_read_whole(tmp_path: Path, database: Database) -> None:
    body = b'{"messages":"' + b"x" * 3_000_000 + b'"}'
    async with shipping(tmp_path, database) as ship, elsewhere(database) as source:
        written = await begun(ship, "s1", stream_of("s1", reads=30_000, body=body))
        records = await gathered(source.read("s1"))
        assert [record.raw for record in records] == [record.raw for record in written]
        assert [record.n for record in records] == list(range(len(written)))
        live = await begun(ship, "s2", stream_of("s2", reads=3_000, body=body, end=False))
        assert await gathered(source.read("s2")) == live
