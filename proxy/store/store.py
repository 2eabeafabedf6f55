"""The interface of every store: a batch whose append returned is on the tape, in order, and can be read and followed.

A store only reports. Whether a stream whose tape failed is stopped or served on (`on_log_failure`) is up to its caller.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Any, Final, NamedTuple, Protocol

from wiretape.events.core.errors import WiretapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from ..memory import Charge
from .catalogue_row import AnswerRow, CatalogueRow, Fate, Key, Link, StreamRow, columns_of

__all__ = [
    "PAGE_MAX",
    "WRITE_S",
    "Batches",
    "Filter",
    "FolderRefusedError",
    "Health",
    "SearchError",
    "Store",
    "StoreError",
    "StoreFullError",
    "StreamMissingError",
    "TapeBrokenError",
    "Term",
    "WriteTimes",
]

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

    def __aiter__(self) -> "Batches": ...

    async def __anext__(self) -> list[Record]: ...

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong with the tape so far, and where: never skipped silently."""
        ...


class Store(Protocol):
    """Tapes of streams. One task appends to a stream; any number read and follow it, each at its own pace."""

    #: Called with the row of an ended stream once its whole tape was read for that.
    on_read: Callable[[StreamRow], None]

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

    def read(self, stream: str, from_n: int = 0) -> Batches:
        """Return the records written so far, from this number on. Raises StreamMissingError."""
        ...

    def follow(self, stream: str, from_n: int = 0) -> Batches:
        """Return the same, then what is appended until the `end`; it raises what closed the tape, if something did."""
        ...

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page of streams, the latest first."""
        ...

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
    ) -> Sequence[Link | None]:
        """Return the call that each of these results answers, if it was ever handed over to that caller.

        The results have just come; `running` are those of other streams that have not ended.
        """
        ...

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """Return what became of the calls that this stream handed over, by id (`now` in seconds since 1970)."""
        ...

    async def rows(self, stream: str) -> CatalogueRow | None:
        """Return all rows of a stream that has ended; None if it is not known."""
        ...

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove what is too old or too much, and return the streams removed."""
        ...

    async def delete(self, streams: Sequence[str]) -> None:
        """Remove the tapes of streams that have ended, and their rows."""

    async def aclose(self) -> None:
        """Make everything written durable, as far as this store promises it. Nothing may be called afterwards."""
