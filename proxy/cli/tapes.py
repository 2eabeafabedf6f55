"""A data folder as read by the command line: without a lock, whether or not a server holds it.

Ended streams come from the catalogue, or from their tapes if it lacks them; live ones always from their tapes.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage

from ..store.catalogue import peek, read_row
from ..store.catalogue_row import CatalogueRow, StreamRow
from ..store.folder import LIVE, days_in, tapes_in
from ..store.store import Filter
from ..store.tape_file import TapeReader, opened_for_reading
from .common import FOUND_WRONG, FailedError

__all__ = ["NO_END", "AmbiguousIdError", "TapeFollower", "find", "read_tape", "streams", "without_end"]

#: The ending shown for a tape in a day's folder that has no `end`: it was cut or damaged.
NO_END: Final = "no end"

#: Too short to notice, and no load: one read of a file each time.
_POLL_S: Final = 0.05


class AmbiguousIdError(FailedError):
    """More than one stream matches this id."""


def streams(root: Path, which: Filter, limit: int) -> list[StreamRow]:
    """Return streams, the latest first. `which.ending` may be the empty string, for those that are live."""
    found = [row.stream for row in _rows(tapes_in(root / LIVE)) if which.admits(row.stream)]
    if which.ending != "":
        page, known = peek(root, lambda rows: (rows.page(which, limit), rows.streams())) or ([], frozenset[str]())
        # What the catalogue lacks: normally nothing, after its loss everything. Our ids sort by time.
        days = (sorted(tapes_in(root / day.isoformat()), key=itemgetter(0), reverse=True) for day in days_in(root))
        missing = _rows(tape for day in days for tape in day if tape[0] not in known)
        ended = [*page, *islice((row.stream for row in missing if which.admits(row.stream)), limit)]
        found += [row if row.ending else replace(row, ending=NO_END) for row in ended]
    rows = {row.stream: row for row in found}
    return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]


def _rows(tapes: Iterable[tuple[str, os.DirEntry[str]]]) -> Iterator[CatalogueRow]:
    """Yield the rows of these tapes; none of one that has just ended and moved."""
    for stream, entry in tapes:
        row = read_row(stream, entry.path)
        if row is not None:
            yield row


def find(root: Path, prefix: str) -> Path:
    """Return the tape of the only stream whose id begins with this prefix, or equals it."""
    found: dict[str, Path] = {}
    for folder in (LIVE, *(day.isoformat() for day in days_in(root))):
        found |= {stream: Path(entry.path) for stream, entry in tapes_in(root / folder, prefix)}
    if prefix in found:
        return found[prefix]
    if len(found) == 1:
        return next(iter(found.values()))
    if not found:
        raise FailedError(f"No stream in {root} has an id that begins with {prefix[:80]!r}", FOUND_WRONG)
    some = ", ".join([*sorted(found)[:3], *(["..."] if len(found) > 3 else [])])
    raise AmbiguousIdError(f"Ambiguous id {prefix[:80]!r} matches {len(found)} streams: {some}", FOUND_WRONG)


def without_end(path: Path) -> str:
    """Return what to call a stream without an ending, by where its tape is."""
    return LIVE if path.parent.name == LIVE else NO_END


def read_tape(path: Path) -> tuple[list[Record], list[Damage]]:
    """Return all records, and what is wrong with the tape, including a missing end where one is due."""
    with closing(TapeFollower(path)) as follower:
        records = [record for batch in iter(follower.more, []) for record in batch]
    missing = [] if follower.ended or follower.grows else [Damage(path.stat().st_size, follower.missing_end)]
    return records, follower.damage + missing


class TapeFollower(TapeReader):
    """One tape that may still grow. Its descriptor stays with the file when the ended tape moves."""

    def __init__(self, path: Path) -> None:
        try:
            self._fd = opened_for_reading(path)
        except OSError as error:
            raise FailedError(f"Cannot read {path}: {error.strerror}", FOUND_WRONG) from error
        super().__init__(partial(os.dup, self._fd))
        self._path = path
        #: Whether a server may still write to it, now or at its next start.
        self.grows = without_end(path) == LIVE

    @property
    def missing_end(self) -> str:
        """Why a tape without an end will not get one by itself."""
        if self.grows:
            return "the tape has no end, and no server is running that could write it; the next start will"
        return "the tape has no end, and nothing will be written to it any more"

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)

    def more(self) -> list[Record]:
        """Return records that have come since, if any."""
        try:
            return self.read()
        except TapeError as error:
            raise FailedError(f"{self._path}: {error}", FOUND_WRONG) from error

    def follow(self, alive: Callable[[], bool]) -> Iterator[list[Record]]:
        """Yield records until the end of the tape, or until no server is left that could write more."""
        while True:
            written = alive()
            while records := self.more():
                yield records
            if self.ended or not written or not self.grows:
                return
            time.sleep(_POLL_S)
