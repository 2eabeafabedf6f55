"""The shared suite of every store over PostgreSQL: read where it was written, and on another machine."""

import random
import re
from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import trio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.plans import planned
from tests.laws.runs import play
from tests.postgres.cluster import Database
from tests.proxy import test_store
from tests.proxy.store_cases import CREATED, flat, gathered, put, stream_of
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Reader
from wiretape.proxy.config.model import Config, Keep
from wiretape.proxy.memory import Charge
from wiretape.proxy.store.catalogue_row import Alike, CatalogueRow, StreamRow, Wanted
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.postgres import server_at
from wiretape.proxy.store.postgres.ship import Shipper
from wiretape.proxy.store.postgres.start import opened
from wiretape.proxy.store.store import Batches, Filter, Store, StreamMissingError

#: What means something else for several machines, and is shown below: followers wake later, what is released gets an
#: end, the database keeps what expired on one machine, and what is deleted vanishes a moment later.
_OTHERS = (
    "test_any_interleaving_gives_every_follower_the_whole_sequence",
    "test_each_append_wakes_a_follower_that_waits",
    "test_followers_of_a_released_stream_end",
    "test_deleted_streams_vanish_everywhere",
    "test_expired_streams_vanish_everywhere_and_live_ones_stay",
)
#: One database for all examples of a test.
_numbers = count()
_shared = {name: test for name, test in vars(test_store).items() if name.startswith("test_")}
globals().update({name: test for name, test in _shared.items() if name not in _OTHERS})


class Machine:
    """One machine without a proxy: its store, that store's files, and what ships them."""

    def __init__(self, files: FileStore, store: Store, shipper: Shipper) -> None:
        self.files, self.store, self._shipper = files, store, shipper

    async def shipped(self) -> None:
        """Return once the database has all that was written here."""
        with trio.fail_after(30):
            await self._shipper.through()


@asynccontextmanager
async def machine(database: Database, root: Path, name: str) -> AsyncGenerator[Machine]:
    """A machine with a folder of its own."""
    config = Config(data=root, port=0, store=database.url, instance=name, store_dead_s=1.0)
    said: list[str] = []
    async with (
        open_files(root, durability="process", warn=said.append) as files,
        opened(server_at(database.url), files, files, config, root, lambda *_, **__: None) as (store, shipper),
    ):
        yield Machine(files, store, shipper)
    assert said == []


class Far(JoinedStore):
    """Written on one machine, and read on another one as soon as it was shipped."""

    def __init__(self, near: Machine, far: Machine) -> None:
        super().__init__(near.store, far.store)
        self._near, self._far = near, far

    def read(self, stream: str, from_n: int = 0) -> Batches:
        return Shipped(self._near, self._far.store, stream, from_n)

    def follow(self, stream: str, from_n: int = 0) -> Batches:
        return self._far.store.follow(stream, from_n)

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        await self._near.shipped()
        return await self._far.store.list(which, limit)

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        await self._near.shipped()
        return await self._far.store.alike(wanted)

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        await self._near.shipped()
        return await self._far.store.rows(streams)

    async def running(self, streams: Collection[str]) -> Collection[str]:
        await self._near.shipped()
        return await self._far.store.running(streams)


class Shipped:
    """Batches that begin when everything was shipped."""

    held: Charge | None = None
    cancellable = False

    def __init__(self, near: Machine, far: Store, stream: str, from_n: int) -> None:
        self._near, self._far, self._from = near, far, (stream, from_n)
        self._batches: Batches | None = None

    def __aiter__(self) -> "Shipped":
        return self

    async def __anext__(self) -> list[Record]:
        if self._batches is None:
            await self._near.shipped()
            self._batches = self._far.read(*self._from)
        return await anext(self._batches)

    @property
    def damage(self) -> Sequence[Any]:
        return self._batches.damage if self._batches is not None else ()


@asynccontextmanager
async def two_machines(database: Database, folder: Path) -> AsyncGenerator[tuple[Machine, Machine]]:
    """One that writes and one that reads."""
    async with AsyncExitStack() as stack:
        near = await stack.enter_async_context(machine(database, folder / "near", "near"))
        yield near, await stack.enter_async_context(machine(database, folder / "far", "far"))


@pytest.fixture(params=["where it was written", "on another machine"])
async def store(request: pytest.FixtureRequest, database: Database, tmp_path: Path) -> AsyncGenerator[Store]:
    """The store of a machine, read there or elsewhere."""
    async with two_machines(database, tmp_path) as (near, far):
        yield near.store if request.param == "where it was written" else Far(near, far)


# -- followers elsewhere ----------------------------------------------------------------------------------------------


async def test_each_append_reaches_a_follower_elsewhere_at_once(database: Database, tmp_path: Path) -> None:
    batches = stream_of("s1")
    got: list[Record] = []

    async def follow(store: Store) -> None:
        async for batch in store.follow("s1"):
            got.extend(batch)

    async with two_machines(database, tmp_path) as (near, far), trio.open_nursery() as nursery:
        await near.store.create("s1")
        await near.store.append("s1", batches[0])
        await near.shipped()
        nursery.start_soon(follow, far.store)
        written = list(batches[0])
        for batch in batches[1:]:
            await near.store.append("s1", batch)
            written += batch
            with trio.fail_after(2):
                while got != written:  # noqa: ASYNC110 - it comes from a server
                    await trio.sleep(0.005)


async def test_a_released_stream_ends_as_crashed_elsewhere(database: Database, tmp_path: Path) -> None:
    async with two_machines(database, tmp_path) as (near, far):
        written = await put(near.store, "s1", stream_of("s1", end=False))
        await near.shipped()
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(near.store.release, "s1")
                *begun, end = await gathered(far.store.follow("s1"))
    assert begun == written
    assert (end.kind, end.keys["cause"]) == ("end", "crashed")


async def test_what_expired_on_one_machine_is_read_from_the_database(database: Database, tmp_path: Path) -> None:
    async with two_machines(database, tmp_path) as (near, far):
        written = await put(near.store, "s1", stream_of("s1", call_id="call-1"))
        await near.shipped()
        assert list(await near.store.expire(CREATED + 30 * test_store.DAY_S, Keep())) == ["s1"]
        for each in (near, far):
            assert await gathered(each.store.read("s1")) == written
            assert [row.stream for row in await each.store.list(Filter())] == ["s1"]
        with pytest.raises(StreamMissingError):
            await anext(near.files.read("s1"))


async def test_what_is_deleted_on_one_machine_vanishes_everywhere(database: Database, tmp_path: Path) -> None:
    async with two_machines(database, tmp_path) as (near, far):
        await put(near.store, "gone", stream_of("gone", call_id="call-1"))
        await put(near.store, "stays", stream_of("stays"))
        await near.shipped()
        await near.store.delete(["gone"])
        with trio.fail_after(10):
            for each in (near, far):
                while [row.stream for row in await each.store.list(Filter())] != ["stays"]:  # noqa: ASYNC110
                    await trio.sleep(0.02)
        for each in (near, far):
            with pytest.raises(StreamMissingError):
                await gathered(each.store.read("gone"))


# -- laws -------------------------------------------------------------------------------------------------------------


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(moves=st.lists(st.one_of(st.just(-1), st.just(-2), st.integers(0, 30)), max_size=40), seed=st.integers(0, 3))
async def test_any_interleaving_gives_followers_elsewhere_the_whole_sequence(
    database: Database, moves: list[int], seed: int
) -> None:
    stream = f"s{next(_numbers)}"
    batches = stream_of(stream, reads=10 + seed)
    got: list[tuple[int, list[Record]]] = []

    async def follow(store: Store, from_n: int) -> None:
        got.append((from_n, await gathered(store.follow(stream, from_n))))

    with TemporaryDirectory() as folder, trio.fail_after(60):
        async with two_machines(database, Path(folder)) as (near, far), trio.open_nursery() as nursery:
            await near.store.create(stream)
            waiting = list(batches)
            await near.store.append(stream, waiting.pop(0))
            await near.shipped()
            for number, move in enumerate(moves):
                if move == -1 and len(waiting) > 1:
                    await near.store.append(stream, waiting.pop(0))
                elif move == -2:
                    await near.shipped()
                elif move >= 0:
                    nursery.start_soon(follow, (near, far)[number % 2].store, move)
            for batch in waiting:
                await near.store.append(stream, batch)
    written = flat(batches)
    assert len(got) == sum(move >= 0 for move in moves)
    assert all(records == written[from_n:] for from_n, records in got)


@pytest.mark.parametrize("seed", range(4))
async def test_seeded_streams_are_the_same_bytes_on_every_machine(
    database: Database, tmp_path: Path, seed: int
) -> None:
    """L2 and L3 over the database, with the tapes of the runs that `make laws` plays."""
    played = await trio.to_thread.run_sync(play, planned(seed))
    tapes = [b'{"c":"' + tape for tape in re.split(rb'(?m)^\{"c":"(?=.{8}","n":0,)', played.tapes)[1:]]
    chance = random.Random(seed)  # noqa: S311 - how records are batched
    shown: dict[str, list[Record]] = {}
    async with two_machines(database, tmp_path) as (near, far):
        for tape in tapes:
            records = Reader().feed(tape)
            stream = str(records[0].keys["stream"])
            await near.store.create(stream)
            shown[stream] = list(records)
            while records:
                size = chance.randint(1, 5)
                await near.store.append(stream, records[:size])
                records = records[size:]
        await near.shipped()
        for tape, (stream, records) in zip(tapes, shown.items(), strict=True):
            for each in (near, far):
                got = await gathered(each.store.read(stream))
                assert b"".join(map(encode, got)) == tape
                assert emit(got) == emit(records)
