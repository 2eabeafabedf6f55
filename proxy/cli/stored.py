"""Streams of a shared database on the command line: listed, read and followed from any machine, without a data folder.

Nothing is written, so the user of the database needs the right to read only.
"""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

import trio

from wiretape.events.emit import RunReader
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.run_events import CLOSED
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage

from ..config.model import ConfigError
from ..limits import STORE_DEAD_S
from ..store.catalogue_row import NO_FATES, Fate, StreamRow, fated
from ..store.postgres import server_at
from ..store.store import PAGE_MAX, Filter, fates_of
from .common import BAD_USAGE, FailedError, loaded_from
from .tapes import only_one

if TYPE_CHECKING:
    from ..store.postgres.reading import PostgresSource

__all__ = ["Stored", "followed", "listed", "run_followed", "runs_in", "streams_in"]

_T = TypeVar("_T")
_Put = Callable[[Sequence[Record]], None]

#: How long a writer that has died may stay silent before other proxies end its streams.
_SILENT_S: Final = 3 * STORE_DEAD_S
#: How often to look for the next turn of a run, or for a sign of life.
_POLL_S: Final = 0.5
_SIGNS: Final = """SELECT sealed IS NOT NULL, coalesce(extract(epoch FROM now() - w.seen)::float8, 0)
    FROM wiretape.stream s JOIN wiretape.writer w ON w.id = s.writer WHERE s.id = $1"""
_IDS: Final = """SELECT DISTINCT {} FROM wiretape.stream WHERE starts_with({}, $1) ORDER BY 1 LIMIT 4"""


class Stored(NamedTuple):
    """One stream of the database."""

    name: str
    records: Sequence[Record]
    damage: Sequence[Damage]
    live: bool
    fates: Mapping[str, Fate]


def _asked(store: str, question: "Callable[[PostgresSource], Awaitable[_T]]") -> _T:
    """Return the answer of a database. Raise `FailedError`."""
    url = loaded_from(None, serving=False, store=store).config.store or store
    try:
        server = server_at(url)
    except ConfigError as error:
        raise FailedError(str(error), BAD_USAGE) from error

    # Imported now: without the extra `server_at` has said so.
    from ..store.postgres.reading import PostgresSource
    from ..store.postgres.schema import check

    async def ask() -> _T:
        with closing(await server.connect()) as connection:
            await check(connection, writes=False)
        # As a reader it declares no writer dead: that would take the right to write.
        source = PostgresSource(server, "", 1e9, lambda *_, **__: None)
        async with trio.open_nursery() as nursery:
            await nursery.start(source.run)
            try:
                return await question(source)
            finally:
                nursery.cancel_scope.cancel()

    return trio.run(ask)


def listed(store: str, which: Filter, limit: int | None) -> tuple[list[StreamRow], bool]:
    """Return streams of all machines, the latest first, and whether there are more."""

    async def page(source: "PostgresSource") -> tuple[list[StreamRow], bool]:
        rows = await _rows(source, which, limit)
        shown = rows[:limit]
        known = await source.rows([row.stream for row in shown if row.handed_over])
        for at, row in enumerate(shown):
            if found := known.get(row.stream):
                shown[at] = fated(row, found.calls, await fates_of(source, found, time.time()))
        return shown, len(rows) > len(shown)

    return _asked(store, page)


async def _rows(source: "PostgresSource", which: Filter, limit: int | None) -> list[StreamRow]:
    rows, wanted = list[StreamRow](), PAGE_MAX if limit is None else min(limit + 1, PAGE_MAX)
    while page := await source.list(replace(which, before=rows[-1]) if rows else which, wanted):
        rows += page
        if limit is not None or len(page) < wanted:
            break
    return rows


async def _named(source: "PostgresSource", name: str, kind: str = "stream") -> str:
    """Return the only id that begins with this name."""
    column = "id" if kind == "stream" else "run"
    found = await source.pool.ask(_IDS.format(column, column), (name.replace("\0", ""),))
    return only_one([each for (each,) in found], name, kind, "the database")


async def _stored(source: "PostgresSource", stream: str) -> Stored:
    batches, records = source.read(stream), list[Record]()
    async for batch in batches:
        records += batch
    found = (await source.rows([stream])).get(stream)
    fates = NO_FATES if found is None else await fates_of(source, found, time.time())
    return Stored(stream, records, batches.damage, not await _silent(source, stream), fates)


async def _silent(source: "PostgresSource", stream: str) -> str:
    """Return why nothing more will come of a stream without an end; nothing if more may come."""
    for sealed, silent_s in await source.pool.ask(_SIGNS, (stream,)):
        if not sealed and silent_s > _SILENT_S:
            return f"its server gave no sign of life for {silent_s:.0f} s, and no other server has ended the stream yet"
    return ""


def streams_in(store: str, name: str) -> list[Stored]:
    """Return the stream that a name means, or those of a run."""

    async def read(source: "PostgresSource") -> list[Stored]:
        if not name.startswith("run_"):
            return [await _stored(source, await _named(source, name))]
        run = await _named(source, name, "run")
        return [await _stored(source, row.stream) for row in await _turns(source, run)]

    return _asked(store, read)


async def _turns(source: "PostgresSource", run: str) -> list[StreamRow]:
    return sorted(await _rows(source, Filter(run=run), None), key=lambda row: row.turn or 0)


def followed(store: str, name: str, put: _Put) -> list[str]:
    """Hand on the records of a stream as they come; return what was wrong."""

    async def follow(source: "PostgresSource") -> list[str]:
        wrong: list[str] = []
        stream = await _named(source, name)
        async for records in _until_end(source, stream, wrong):
            put(records)
        return wrong

    return _asked(store, follow)


async def _until_end(source: "PostgresSource", stream: str, wrong: list[str]) -> AsyncGenerator[Sequence[Record]]:
    batches, ended, nothing = source.follow(stream), False, list[Record]()
    while not ended:
        records: list[Record] | None = None
        with trio.move_on_after(_POLL_S):
            records = await anext(batches, nothing)
        if records:
            yield records
            ended = records[-1].kind == "end"
        elif records is not None:
            break
        elif silent := await _silent(source, stream):
            wrong.append(f"{stream}: {silent}")
            return
    wrong += [f"{stream}: byte {at}: {reason}" for at, reason in batches.damage]


def runs_in(store: str, names: Iterable[str]) -> list[tuple[list[bytes], RunFold, list[str]]]:
    """Return of each run its events so far, its state, and what is wrong with its tapes."""

    async def read(source: "PostgresSource") -> list[tuple[list[bytes], RunFold, list[str]]]:
        return [await _run(source, await _named(source, name, "run")) for name in names]

    return _asked(store, read)


async def _run(source: "PostgresSource", run: str) -> tuple[list[bytes], RunFold, list[str]]:
    reader, frames, wrong = RunReader(), list[bytes](), list[str]()
    for row in await _turns(source, run):
        stored = await _stored(source, row.stream)
        frames += reader.feed(*stored.records)
        wrong += [f"{row.stream}: byte {at}: {reason}" for at, reason in stored.damage]
    return frames, reader.run, wrong


def run_followed(store: str, name: str, put: Callable[[bytes], None]) -> list[str]:
    """Hand on the events of a run as they come, until it is over; return what was wrong."""

    async def follow(source: "PostgresSource") -> list[str]:
        reader, seen, wrong = RunReader(), set[str](), list[str]()
        run = await _named(source, name, "run")
        while reader.run.status not in CLOSED and not wrong:
            news = [row.stream for row in await _turns(source, run) if row.stream not in seen]
            for stream in news:
                seen.add(stream)
                async for records in _until_end(source, stream, wrong):
                    for frame in reader.feed(*records):
                        put(frame)
            if not news:
                await trio.sleep(_POLL_S)
        return wrong

    return _asked(store, follow)
