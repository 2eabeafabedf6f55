"""Folders of other processes, read as they are: tapes from their files, rows from catalogues opened for reading only.

So a stream that has just ended is known some 20 ms later, and a running one by the first records of its tape.
"""

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import NO_KEYS

from ..config.model import Keep
from ..limits import ELSEWHERE_LATE_S
from .catalogue import Rows, peek, read_row
from .catalogue_row import OPENING, Alike, CatalogueRow, StreamRow, Wanted, opened_row
from .folder import LIVE, days_in, holder, tape_path, tapes_in
from .joined import JoinedStore
from .store import PAGE_MAX, Filter, Store, StreamMissingError, Term
from .tape_file import Patience, TapeBatches, TapeReader, opened_for_reading

__all__ = ["Siblings", "WithSiblings"]

_T = TypeVar("_T")
#: One read of the first records of a tape.
_OPENING_BYTES: Final = 4_096
#: What ended in this time is news, and no look misses it; and how far back such a stream may have begun.
_RECENT_S: Final = 5.0
_BEGUN_S: Final = 7_200.0
#: A row is written some milliseconds after its tape has moved from `live` to its day: none may be missed in between.
_ROW_LATE_S: Final = 0.1


class WithSiblings(JoinedStore):
    """A store and its sibling folders; in those that this process keeps, tapes expire and are deleted, too."""

    def __init__(self, own: Store, siblings: "Siblings", kept: Sequence[Store] = ()) -> None:
        super().__init__(own, siblings)
        self.late_s, self.shared = siblings.late_s, own.shared
        self._all = own, *kept
        self.expire, self.delete = self._expire, self._delete
        self._siblings = siblings

    async def _expire(self, now: float, keep: Keep) -> Sequence[str]:
        return [stream for each in self._all for stream in await each.expire(now, keep)]

    async def _delete(self, streams: Sequence[str]) -> None:
        for each in self._all:
            await each.delete(streams)
        self._siblings.remove(streams)


class Siblings:
    """All data folders except that of this process."""

    def __init__(self, folders: Callable[[], Sequence[Path]], warn: Callable[[str], None]) -> None:
        """`folders` returns those that there are now."""
        self.late_s = ELSEWHERE_LATE_S
        self._folders = folders
        self._patience = Patience(warn)
        self._running: dict[Path, dict[str, StreamRow]] = {}

    def read(self, stream: str, from_n: int = 0) -> TapeBatches:
        """Return the records written so far."""
        self._path(stream)
        return TapeBatches(stream, partial(self._opened, stream), from_n, None, self._patience, waits=False)

    #: Requests to follow what runs elsewhere are answered there.
    follow = read

    def _path(self, stream: str) -> str:
        for path in filter(None, (tape_path(folder, stream) for folder in self._folders())):
            return path
        raise StreamMissingError(f"there is no stream {stream}")

    def _opened(self, stream: str) -> int:
        try:
            return opened_for_reading(self._path(stream))
        except StreamMissingError as gone:
            raise FileNotFoundError from gone

    def remove(self, streams: Sequence[str]) -> None:
        """Remove tapes that have ended; the rows go with the next start of their process."""
        for stream in streams:
            with suppress(StreamMissingError, FileNotFoundError):
                os.unlink(self._path(stream))  # noqa: PTH108 - a tape's path is a string

    def runs_in(self, stream: str) -> Path | None:
        """Return the folder where a stream runs, or did when its process was killed."""
        return next((each for each in self._folders() if (each / LIVE / f"{stream}.tape").exists()), None)

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return those of these streams that another process writes to."""
        folders = ((stream, self.runs_in(stream)) for stream in streams)
        return [stream for stream, folder in folders if folder is not None and holder(folder) is not None]

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page."""
        return await trio.to_thread.run_sync(self._page, which, limit)

    async def recent(self) -> Sequence[StreamRow]:
        """Return what runs, and what ended a moment ago."""
        now = time.time()
        ended = Term(
            "created >= ? AND created_us + duration_us >= ?", (int(now - _BEGUN_S), int((now - _RECENT_S) * 1e6))
        )
        return [*await self.list(Filter(ending=""), PAGE_MAX), *await self.list(Filter(terms=(ended,)), PAGE_MAX)]

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Return what all of them have."""
        found: list[Alike] = [([], []) for _ in wanted]

        def asked(rows: Rows) -> Sequence[Alike]:
            return [rows.alike(one) for one in wanted]

        for each in await trio.to_thread.run_sync(self._asked, asked):
            for one, more in zip(found, each, strict=True):
                one[0].extend(more[0])
                one[1].extend(more[1])
        return found

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return the rows of those that have ended, from the tape if they are not written yet."""
        return await trio.to_thread.run_sync(self._rows, streams)

    # -- in a thread --------------------------------------------------------------------------------------------------

    def _asked(self, question: Callable[[Rows], _T]) -> Sequence[_T]:
        answers = (peek(folder, question) for folder in self._folders())
        return [answer for answer in answers if answer is not None]

    def _rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        found = dict(chain.from_iterable(self._asked(lambda rows: rows.known(streams).items())))
        for stream in streams:
            with suppress(StreamMissingError):
                path = None if stream in found else self._path(stream)
                if path and Path(path).parent.name != LIVE and (row := read_row(stream, path)) is not None:
                    found[stream] = row
        return found

    def _page(self, which: Filter, limit: int) -> Sequence[StreamRow]:
        rows: dict[str, StreamRow] = {}
        for folder in self._folders():  # first those that run: what ends meanwhile is found in the catalogue
            begun = filter(which.admits, self._begun(folder))
            rows |= {row.stream: row for row in islice(begun, limit)}
        if any(map(_moved_lately, self._folders())):
            time.sleep(_ROW_LATE_S)
        for page in self._asked(lambda book: book.page(which, limit)):
            rows |= {row.stream: row for row in page}
        return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]

    def _begun(self, folder: Path) -> Iterator[StreamRow]:
        """Yield the rows of running streams, the latest first: our ids sort by time."""
        live = {stream: each.path for stream, each in tapes_in(folder / LIVE)}
        known = self._running.get(folder, {})
        rows = self._running[folder] = {stream: row for stream, row in known.items() if stream in live}
        for stream in sorted(live, reverse=True):
            with suppress(OSError, TapeError):  # it has ended meanwhile
                row = rows.get(stream) or _opened_row(stream, live[stream])
                if row.caller:  # else nothing is on its tape yet
                    rows[stream] = row
                    yield row


def _opened_row(stream: str, path: str) -> StreamRow:
    """Return the row of a running stream, which does not change."""
    reader, keys = TapeReader(partial(opened_for_reading, path)), dict[str, Mapping[str, Any]]()
    while "request" not in keys and (records := reader.read(_OPENING_BYTES)):
        keys |= {record.kind: record.keys for record in records if record.kind in OPENING}
    return opened_row(stream, *(keys.get(kind, NO_KEYS) for kind in ("open", "request", "run")))


def _moved_lately(folder: Path) -> bool:
    """Return whether a tape came into the latest day just now, so that its row may not be written yet."""
    days = days_in(folder)
    return bool(days) and time.time() < (folder / days[0].isoformat()).stat().st_mtime + _ROW_LATE_S
