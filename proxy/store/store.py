"""The interface of every store: a batch whose append returned is on the tape, in order, and can be read and followed.

A store only reports. Whether a stream whose tape failed is stopped or served on (`on_log_failure`) is up to its caller.
"""

import sqlite3
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import trio

from wiretape.events.core.errors import WiretapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from ..limits import LINKED_INLINE_MAX
from ..memory import Charge
from .catalogue_row import (
    NO_FATES,
    Alike,
    AnswerRow,
    CatalogueRow,
    Fate,
    Key,
    Link,
    StreamRow,
    Wanted,
    columns_of,
    fates,
    find_calls,
    key_of,
)

__all__ = [
    "PAGE_MAX",
    "WRITE_S",
    "Batches",
    "Filter",
    "FolderRefusedError",
    "Health",
    "SearchError",
    "Shared",
    "Source",
    "Store",
    "StoreError",
    "StoreFullError",
    "StreamMissingError",
    "TapeBrokenError",
    "Term",
    "UnreachableError",
    "WriteTimes",
    "fates_of",
    "links_of",
]

_T = TypeVar("_T")

#: Rows of one page: a screen or two; ask for the next page to get more.
PAGE_MAX: Final = 1_000

#: Classes of `WriteTimes`. A write takes 2 us inline (design.md 3); 10 ms is the longest the event loop may stall.
WRITE_S: Final = (2e-6, 5e-6, 1e-5, 2.5e-5, 5e-5, 1e-4, 2.5e-4, 1e-3, 5e-3, 1e-2, 5e-2, 0.25, 1.0)


class StoreError(WiretapeError):
    """Root of what a store reports: the disk or the configuration failed, never an upstream."""


class StreamMissingError(StoreError):
    """No stream has this id: it never existed, or it has expired."""


class StoreFullError(StoreError):
    """The tape is intact without this batch, or was not begun; the same may be tried again when there is room."""


class UnreachableError(StoreError):
    """What other processes have cannot be asked for now; the same may be tried again later."""


class TapeBrokenError(StoreError):
    """The tape is closed to writing; its whole records can still be read."""


class FolderRefusedError(StoreError):
    """The data folder cannot be used at all; the message is one line."""


class Health(NamedTuple):
    """Whether a store can write; all is well by default."""

    #: Why writing fails: until there is room again, or for good.
    failure: str = ""
    #: There is no room now, so a later try may succeed.
    full: bool = False
    #: The data folder was taken away; nothing that is written arrives any more.
    gone: bool = False


class WriteTimes:
    """How long the batches of a store took: their number up to each bound of `WRITE_S` and beyond, and their sum."""

    def __init__(self) -> None:
        self.counts = [0] * (len(WRITE_S) + 1)
        self.sum_s = 0.0


class SearchError(StoreError):
    """Texts cannot be searched here; the message says why."""


class Term(NamedTuple):
    """One condition on the columns of a row, in SQL."""

    sql: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A choice of streams; None matches everything. `before` is the last row of the previous page."""

    caller: str | None = None
    model: str | None = None
    route: str | None = None
    #: The empty string for running streams.
    ending: str | None = None
    run: str | None = None
    session: str | None = None
    #: Only the first stream of each run.
    runs: bool = False
    terms: tuple[Term, ...] = ()
    #: What its text must match, in the language of FTS5; only an ended stream whose text was read does.
    text: str = ""
    before: StreamRow | None = None

    @property
    def words(self) -> dict[str, str]:
        """The members that must be equal."""
        members = ("caller", "model", "route", "ending", "run", "session")
        return {name: word for name in members if (word := getattr(self, name)) is not None}

    @property
    def of_runs(self) -> bool:
        """Whether it chooses runs: a run whose newest tape is not found would look as if it were in another state."""
        return self.runs or self.run is not None or self.session is not None

    def admits(self, row: StreamRow) -> bool:
        """Return whether the filter lets the row pass."""
        if any(getattr(row, name) != word for name, word in self.words.items()):
            return False
        if (self.runs and row.turn != 1) or self.text or not _meets(row, self.terms):
            return False
        return self.before is None or row.place < self.before.place


@cache
def _scratch() -> sqlite3.Connection:
    return sqlite3.connect(":memory:", check_same_thread=False)


def _meets(row: StreamRow, terms: Sequence[Term]) -> bool:
    """Ask SQLite, as for rows of a catalogue."""
    if not terms:
        return True
    names, values = ", ".join(f"? AS {field.name}" for field in fields(row)), columns_of(row)
    sql = f"SELECT 1 FROM (SELECT {names}) WHERE {' AND '.join(term.sql for term in terms)}"  # noqa: S608 - our own words
    given = [value for term in terms for value in term.values]
    return _scratch().execute(sql, [*values, *given]).fetchone() is not None


class Batches(Protocol):
    """An iterator over records in order, in batches that are never empty. An abandoned one holds no resources."""

    #: If set, it is charged for a long line until the next batch, and waited for if it has no room.
    held: Charge | None
    #: A wait for the next batch that was cancelled has taken nothing.
    cancellable: bool

    def __aiter__(self) -> "Batches": ...

    async def __anext__(self) -> list[Record]: ...

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong with the tape so far, and where: never skipped silently."""
        ...


class Source(Protocol):
    """Tapes to read: of a store, or of other processes. Then questions raise `UnreachableError` without an answer."""

    def read(self, stream: str, from_n: int = 0) -> Batches:
        """Return the records written so far, from this number on. Raises StreamMissingError, with its first batch at
        the latest.
        """
        ...

    def follow(self, stream: str, from_n: int = 0) -> Batches:
        """Return the same, then what is appended until the `end`; it raises what closed the tape, if something did."""
        ...

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page of streams, the latest first. Raise SearchError if their texts cannot be searched."""
        ...

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Return the calls and results with each of these keys, of all streams that have ended."""
        ...

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return all rows of those of these streams that have ended and are known."""
        ...

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return those of these streams that run elsewhere: in another process that writes to their tapes now."""
        ...

    async def recent(self) -> Sequence[StreamRow]:
        """Return the latest streams that run elsewhere, and those that ended a moment ago."""
        ...


class Store(Source, Protocol):
    """Tapes of streams. One task appends to a stream; any number read and follow it, each at its own pace."""

    #: Called with the row of an ended stream once its whole tape was read for that.
    on_read: Callable[[StreamRow], None]

    @property
    def partial(self) -> str:
        """Why the last answer of `list`, `rows`, `alike` or `running` lacks what other processes have."""
        ...

    @property
    def shared(self) -> "Shared | None":
        """What several machines with this store agree on; None if there is but one."""
        ...

    @property
    def late_s(self) -> float:
        """How long a stream that has ended elsewhere may be unknown here."""
        ...

    @property
    def health(self) -> Health:
        """Whether writing works now."""
        ...

    @property
    def write_times(self) -> WriteTimes:
        """How long writes took since the start; a store that writes no file counts nothing."""
        ...

    async def create(self, stream: str) -> None:
        """Begin the tape of a stream. Ids are never reused: a store refuses at least those of streams that run."""

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Write one batch whole and return its size in bytes; only then do readers see it.

        A batch with `end` ends the stream, and its row goes into the catalogue: `row`, or what the tape says.
        After a StoreError no reader sees any of the batch.
        """
        ...

    async def release(self, stream: str) -> None:
        """Give up a stream that has not ended: its followers end, and recovery finds the tape."""

    def holds(self, stream: str) -> bool:
        """Return whether this process wrote or keeps the tape of a stream."""
        ...

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove what is too old or too much, and return the streams removed."""
        ...

    async def delete(self, streams: Sequence[str]) -> None:
        """Remove the tapes of streams that have ended, and their rows."""

    async def aclose(self) -> None:
        """Make everything written durable, as far as this store promises it. Nothing may be called afterwards."""


class Shared(Protocol):
    """What machines with one store agree on, and ask each other. `UnreachableError`: it cannot be reached."""

    #: Answers what another machine asks about a stream of this one.
    on_asked: Callable[[str, Mapping[str, Any]], Awaitable[Mapping[str, Any]]] | None

    async def claim(self, run: str, turn: int) -> bool:
        """Return whether this machine may begin a turn of a run: one may, and a later one if nothing comes of that."""
        ...

    async def ask(self, stream: str, what: str, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Ask the machine that writes a stream; return its answer, or None if it gives none in time."""
        ...

    async def read_elsewhere(self, stream: str) -> bool:
        """Return whether clients of other machines read a stream; False if the store cannot be reached."""
        ...

    def reading(self, stream: str) -> AbstractContextManager[None]:
        """Count as a reader of another machine's stream."""
        ...

    async def forget(self, streams: Sequence[str]) -> None:
        """Remove streams that have ended from what is shared, and from the machines that wrote them."""


# -- calls and their results -------------------------------------------------------------------------------------------


async def links_of(
    store: Store, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
) -> Sequence[Link | None]:
    """Return the call that each of these results answers, if it was ever handed over to that caller.

    The results have just come; `running` are those of other streams that have not ended.
    """
    rows = await store.alike([Wanted(key_of(answer)) for answer in answers]) if answers else ()
    return await _linked(rows, lambda: find_calls(rows, answers, running))


async def fates_of(store: Source, found: CatalogueRow, now: float) -> Mapping[str, Fate]:
    """Return what became of the calls that a stream handed over, by id (`now` in seconds since 1970)."""
    if not found.calls:
        return NO_FATES
    wanted = [*map(Wanted.of, found.calls)]
    rows = await store.alike(wanted)
    by_key = {one.key: alike for one, alike in zip(wanted, rows, strict=True)}
    return await _linked(rows, lambda: fates(found.calls, by_key, now))


async def _linked(rows: Sequence[Alike], work: Callable[[], _T]) -> _T:
    """Do the work, in a thread if so many rows are alike that it would hold up the loop."""
    if sum(len(calls) * len(answers) for calls, answers in rows) <= LINKED_INLINE_MAX:
        return work()
    return await trio.to_thread.run_sync(work)
