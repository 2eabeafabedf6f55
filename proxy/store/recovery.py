"""What a crash left in live/: torn tails are cut off, every tape gets its `end`, and moves to its day.

`mended` decides about one tape by reading it. The disk's part is done for all tapes together, with one sync between
steps: a power loss at any moment leaves what the next start mends again.
"""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.emit import Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage

from .folder import Folder, day_of
from .store import FolderRefusedError
from .tape_file import Sync, TapeReader, opened_for_reading

__all__ = ["Mended", "Recovered", "mended", "recover"]

#: Descriptors open at once.
_PORTION: Final = 256
_RECEIVED: Final = frozenset({"frame", "rest", "body"})


class Mended(NamedTuple):
    """What makes a tape whole."""

    #: Bytes to keep: up to the last LF. 0 if there is no whole line, so nothing was ever acknowledged.
    cut_at: int
    #: Bytes after them: a record that was never acknowledged.
    torn: int
    damage: tuple[Damage, ...]
    #: The line to append; empty where `end` was written and only the move is missing.
    end: bytes
    #: Seconds since 1970, 0 where `open` does not say so.
    created: int


class Recovered(NamedTuple):
    """One tape that was found in live/, and where it went."""

    stream: str
    #: None where it was left alone (`refused`) or empty.
    path: Path | None = None
    torn: int = 0
    damage: tuple[Damage, ...] = ()
    #: Why this version must not touch it.
    refused: str = ""


def mended(path: Path) -> Mended:
    """Return what makes this tape whole. Raises TapeError if its format is newer than this version reads."""
    reader = TapeReader(lambda: opened_for_reading(path))
    emitter, summary, wire = Emitter(), StreamSummary(), Wire()
    sha256, unreadable = hashlib.sha256(), False
    last: Record | None = None
    for record in reader:
        last = record
        if not unreadable:
            try:
                emitter.feed(record)
                wire = emitter.wire
            except Exception:  # noqa: BLE001 - a bug in our reading; the tape gets its end all the same
                unreadable = True
        summary.take(record, wire)
        if record.kind == "attempt":
            sha256 = hashlib.sha256()
        elif record.kind in _RECEIVED:
            sha256.update(record.raw or b"")
    end = b""
    if not reader.ended:
        # The time is that of the last record: when the process died is unknown.
        n, t = (last.n + 1, last.t) if last is not None else (0, 0)
        ending, flags = ("crashed", ("failed_here",)) if unreadable else emitter.ending("crashed")
        counts = {"bytes": summary.received_bytes, "frames": summary.frames, "sha256": sha256.hexdigest()}
        end = encode(Record(n, t, "end", {"cause": "crashed", "ending": ending, "flags": list(flags), **counts}))
    created = summary.opening.get("created")
    torn = path.stat().st_size - reader.at
    return Mended(reader.at, torn, tuple(reader.damage), end, created if type(created) is int else 0)


def recover(folder: Folder, sync: Sync) -> list[Recovered]:
    """Mend every tape in live/. Raises FolderRefusedError if the disk prevents it."""
    recovered: list[Recovered] = []
    found: list[tuple[str, Path, Mended]] = []
    try:
        for stream, path in folder.live_tapes():
            try:
                found.append((stream, path, mended(path)))
            except TapeError as error:
                recovered.append(Recovered(stream, refused=str(error)))
        # Cut and end the tapes; durable before anything moves. One descriptor at a time: there may be thousands.
        changed = [(path, what) for _, path, what in found if what.torn or what.end]
        for path, what in changed:
            _write(path, what)
        _commit([folder.live, *(path for path, _ in changed)], sync)
        recovered += [_moved(folder, stream, path, what) for stream, path, what in found]
        _commit([folder.root, folder.live, *{tape.path.parent for tape in recovered if tape.path}], sync)
    except OSError as error:
        raise FolderRefusedError(f"data folder {folder.root} cannot be recovered: {error.strerror}") from error
    return recovered


def _write(path: Path, what: Mended) -> None:
    with path.open("ab", buffering=0) as file:
        file.truncate(what.cut_at)
        if what.cut_at and file.write(what.end) != len(what.end):
            raise OSError(0, f"no room to end {path.name}")


def _moved(folder: Folder, stream: str, path: Path, what: Mended) -> Recovered:
    if not what.cut_at:
        path.unlink()
        return Recovered(stream, None, what.torn)
    day = day_of(what.created or path.stat().st_mtime)
    folder.make_day(day)
    target = Path(folder.day_path(day, stream))
    if target.exists():
        return Recovered(stream, refused=f"{target} exists already")
    path.rename(target)
    return Recovered(stream, target, what.torn, what.damage)


def _commit(paths: Sequence[Path], sync: Sync) -> None:
    for at in range(0, len(paths), _PORTION):
        fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths[at : at + _PORTION]]
        try:
            failed = sync(fds)
        finally:
            for fd in fds:
                os.close(fd)
        if failed:
            raise OSError(0, next(iter(failed.values())))
