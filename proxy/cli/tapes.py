"""The data folder as somebody sees it who may only read: no lock is kept, whether or not a server holds it

Ended streams come from the catalogue, and those that it lacks from their tapes; live ones always from their tapes.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Final

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage, Reader

from ..store.catalogue import peek, read_row
from ..store.catalogue_row import StreamRow
from ..store.folder import is_held
from ..store.store import Filter, is_stream_id

__all__ = [
    "LIVE",
    "NO_END",
    "NotFoundError",
    "SeveralError",
    "TapeFollower",
    "find",
    "holder",
    "read_tape",
    "streams",
    "without_end",
]

#: How a stream that has not ended is called, where an ending is due.
LIVE: Final = "live"
#: And one whose tape lies where only ended streams do, without an end: somebody cut or damaged it.
NO_END: Final = "no end"

_SUFFIX: Final = ".tape"
_LIVE_FOLDER: Final = "live"
#: Longer ones no system has, and int() refuses thousands of digits in its own words.
_PID_CHARS_MAX: Final = 20
_CHUNK_BYTES: Final = 1024 * 1024
#: Below what a reader notices, and no load: one read of a file a step.
_POLL_S: Final = 0.05


class NotFoundError(WiretapeError):
    """No stream, or more than one, begins like this; one line that says so."""


class SeveralError(NotFoundError):
    """More than one does."""


def holder(root: Path) -> int | None:
    """The process that holds the folder, 0 where it has not said which it is; None where nobody does."""
    if not is_held(root):
        return None
    try:
        return int((root / "lock").read_text(encoding="ascii")[:_PID_CHARS_MAX])
    except (OSError, ValueError):
        return 0


def streams(root: Path, which: Filter, limit: int) -> list[StreamRow]:
    """The latest first. `which.ending` may be the empty word, for those that live."""
    rows = {row.stream: row for row in _live(root) if which.admits(row)}
    if which.ending != "":
        ended = _ended(root, which, limit)
        rows |= {row.stream: row if row.ending else replace(row, ending=NO_END) for row in ended}
    return sorted(rows.values(), key=lambda row: row.place, reverse=True)[:limit]


def _live(root: Path) -> Iterator[StreamRow]:
    for stream, path in _tapes(root / _LIVE_FOLDER):
        entry = read_row(stream, path)
        if entry is not None:  # else it has just ended and moved
            yield entry.stream


def _ended(root: Path, which: Filter, limit: int) -> Iterator[StreamRow]:
    """The catalogue's page, and then what it does not know yet: normally nothing, after its loss everything."""
    found = peek(root, which, limit)
    if found is not None:
        yield from found.page
    known = found.known if found is not None else frozenset[str]()
    missing = [tape for day in _days(root) for tape in _tapes(day) if tape[0] not in known]
    admitted = 0
    for stream, path in sorted(missing, key=lambda tape: _modified(tape[1]), reverse=True):
        entry = read_row(stream, path)
        if entry is not None and which.admits(entry.stream):
            yield entry.stream
            admitted += 1
            if admitted == limit:
                return


def find(root: Path, prefix: str) -> Path:
    """The tape of the only stream whose id begins like this, or is this."""
    found = {stream: path for folder in [root / _LIVE_FOLDER, *_days(root)] for stream, path in _tapes(folder, prefix)}
    path = found.get(prefix) or (next(iter(found.values())) if len(found) == 1 else None)
    if path is not None:
        return path
    if not found:
        raise NotFoundError(f"no stream begins with {prefix[:80]!r} in {root}")
    some = ", ".join([*sorted(found)[:3], *(["..."] if len(found) > 3 else [])])
    raise SeveralError(f"{len(found)} streams begin with {prefix[:80]!r} ({some}): say more of it")


def without_end(path: Path) -> str:
    """What a stream without an ending is, by where its tape lies."""
    return LIVE if path.parent.name == _LIVE_FOLDER else NO_END


def read_tape(path: Path) -> tuple[list[Record], list[Damage]]:
    """All records that are there, and what is wrong with the tape: also that it should have an end and has none."""
    with closing(TapeFollower(path)) as follower:
        records = [record for records in iter(follower.more, []) for record in records]
        lacking = [] if follower.ended or follower.grows else [Damage(path.stat().st_size, follower.lacking)]
        return records, follower.damage + lacking


class TapeFollower:
    """One tape that may still grow, and is moved when it has ended; our descriptor goes with it."""

    def __init__(self, path: Path) -> None:
        try:
            self._file = path.open("rb", buffering=0)
        except OSError as error:
            raise NotFoundError(f"{path} cannot be read: {error.strerror}") from error
        self._reader = Reader()
        #: Whether somebody may still write to it, now or at the next start.
        self.grows = without_end(path) == LIVE
        #: Behind the last whole line: a torn one may be cut off by the recovery of a server that starts meanwhile.
        self._at = 0

    @property
    def ended(self) -> bool:
        """Nothing more will come."""
        return self._reader.ended

    @property
    def lacking(self) -> str:
        """Of one that has not ended, and will not by itself: why."""
        if self.grows:
            return "it has no end, and no server is left that could write it; the next start will"
        return "it has no end, and nothing will be written to it any more"

    @property
    def damage(self) -> list[Damage]:
        """What was wrong so far, and where."""
        return self._reader.damage

    def close(self) -> None:
        """The file."""
        self._file.close()

    def more(self) -> list[Record]:
        """What has come since; nothing where nothing has."""
        records: list[Record] = []
        while not records and (data := self._lines()):
            try:
                records = self._reader.feed(data)
            except TapeError as error:
                raise NotFoundError(f"{self._file.name}: {error}") from error
            self._at += len(data)
        return records

    def _lines(self) -> bytes:
        """The next whole lines, at least one where there is one."""
        size = _CHUNK_BYTES
        while True:
            data = os.pread(self._file.fileno(), size, self._at)
            end = data.rfind(b"\n") + 1
            if end or len(data) < size:
                return data[:end]
            size *= 2

    def follow(self, alive: Callable[[], bool]) -> Iterator[list[Record]]:
        """Until its end, or until nobody is left who could write it."""
        while True:
            written = alive()
            while records := self.more():
                yield records
            if self.ended or not written or not self.grows:
                return
            time.sleep(_POLL_S)


def _days(root: Path) -> list[Path]:
    """The latest first."""
    try:
        with os.scandir(root) as entries:
            names = [entry.name for entry in entries if _is_day(entry.name)]
    except OSError:
        return []
    return [root / name for name in sorted(names, reverse=True)]


def _is_day(name: str) -> bool:
    try:
        return date.fromisoformat(name).isoformat() == name
    except ValueError:
        return False


def _tapes(folder: Path, prefix: str = "") -> Iterable[tuple[str, Path]]:
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in entries if entry.name.endswith(_SUFFIX) and entry.name.startswith(prefix)]
    except OSError:
        return []
    return [(name[: -len(_SUFFIX)], folder / name) for name in names if is_stream_id(name[: -len(_SUFFIX)])]


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
