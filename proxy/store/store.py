"""What every store promises: an append that returned is on the tape, in order, and can be read, followed and found.

    StoreError                 the disk or the caller's configuration, never an upstream
    ├── StreamMissingError     no stream has this id (any more)
    ├── StoreFullError         nothing of this batch is on the tape, which is whole and may go on
    ├── TapeBrokenError        this tape takes nothing more: what became of its last bytes cannot be known
    └── FolderRefusedError     the data folder cannot be used: one line says why

A store only reports. Whether a stream whose tape failed is stopped or served on (`on_log_failure`) is its caller's.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from wiretape.events.core.errors import LocalError, WiretapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from .catalogue_row import AnswerRow, CatalogueRow, StreamRow
from .linking import NOTHING_RUNS, Fate, Key, Link

__all__ = [
    "PAGE_MAX",
    "Batches",
    "Filter",
    "FolderRefusedError",
    "Store",
    "StoreError",
    "StoreFullError",
    "StreamMissingError",
    "TapeBrokenError",
    "checked_stream_id",
    "is_stream_id",
]

#: Rows of one page: a screen or two; whoever wants all asks for the next page.
PAGE_MAX: Final = 1_000

#: A file name everywhere, with nothing that means something in a path; ours have 32 characters.
_STREAM_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")


class StoreError(WiretapeError):
    """Root of what a store reports."""


class StreamMissingError(StoreError):
    """No stream has this id: it never was, or it has expired."""


class StoreFullError(StoreError):
    """No room. The tape is whole without this batch; the same batch may be tried again."""


class TapeBrokenError(StoreError):
    """The tape is closed to writing; what it holds up to its last whole record can be read."""


class FolderRefusedError(StoreError):
    """The data folder cannot be used at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which streams; what is None does not matter. `before` is the last row of the page before."""

    caller: str | None = None
    model: str | None = None
    route: str | None = None
    #: The empty word for streams that have not ended.
    ending: str | None = None
    before: StreamRow | None = None

    def admits(self, row: StreamRow) -> bool:
        """Whether the row is one of them."""
        asked = (self.caller, self.model, self.route, self.ending)
        has = (row.caller, row.model, row.route, row.ending)
        if any(word is not None and word != said for word, said in zip(asked, has, strict=True)):
            return False
        return self.before is None or row.place < self.before.place


class Batches(Protocol):
    """An iterator of records in order, in batches that are never empty. Left lying, it holds nothing."""

    def __aiter__(self) -> "Batches": ...

    async def __anext__(self) -> list[Record]: ...

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong so far with the tape, and where: never skipped in silence."""
        ...


class Store(Protocol):
    """Tapes of streams. One task appends to a stream; any number read and follow it, each at its own pace."""

    async def create(self, stream: str) -> None:
        """Begin the tape of a stream that no tape has yet."""
        ...

    def waits_for(self, records: Sequence[Record]) -> bool:
        """Whether `append` of these has to wait, so that meanwhile a reader may leave."""
        ...

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Write one batch whole, so many bytes; it is written when this returns, and only then do readers see it.

        A batch with `end` ends the stream, and its row goes into the catalogue: `row`, or else what the tape says.
        A StoreError says that none of the batch will be seen.
        """
        ...

    async def release(self, stream: str) -> None:
        """No more will come, though it has not ended: its followers end, and recovery finds the tape."""
        ...

    def read(self, stream: str, from_n: int = 0) -> Batches:
        """What is there now, from this record on."""
        ...

    def follow(self, stream: str, from_n: int = 0) -> Batches:
        """The same, and then what is appended until behind `end`; raises what closed the tape, if something did."""
        ...

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """One page of streams, the latest first."""
        ...

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]] = NOTHING_RUNS
    ) -> Sequence[Link | None]:
        """The call that each of these answers, if it was ever handed to that caller; they have just come, and those of
        other streams that run count as well.
        """
        ...

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """What became of the calls that this stream handed over, by id (`now` in seconds since 1970)."""
        ...

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove what is too old or too much (`now` in seconds since 1970); the streams that are gone."""
        ...

    async def aclose(self) -> None:
        """Everything written is durable, as far as this store promises it; nothing may be called after."""
        ...


def is_stream_id(text: str) -> bool:
    """Whether a store takes it: what a caller presents must be asked first."""
    return _STREAM_ID.fullmatch(text) is not None


def checked_stream_id(stream: str) -> str:
    """Our own ids; an id from outside that got here was not asked about."""
    if not is_stream_id(stream):
        raise LocalError(f"not an id of a stream: {stream[:80]!r}")
    return stream
