"""What a crash left in live/: torn tails are cut, every tape gets its `end`, and moves to its day.

What to do with one tape is a pure fold over its bytes (`Mending`). The disk's part is done for all tapes together, with
one sync between its steps: a power loss at any moment leaves what the next start mends again.
"""

import hashlib
import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.emission.emit import Emitter
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage, Reader

from .durability import Sync
from .folder import Folder
from .retention import day_of
from .store import FolderRefusedError

__all__ = ["Mended", "Mending", "Recovered", "recover"]

_CHUNK_BYTES: Final = 1024 * 1024
#: Descriptors that are open at once.
_PORTION: Final = 256
_RECEIVED: Final = frozenset({"frame", "rest", "body"})


class Mended(NamedTuple):
    """What makes a tape whole."""

    #: Bytes to keep: up to the last LF.
    cut_at: int
    #: Bytes behind it: a record that nobody was told of.
    torn: int
    damage: tuple[Damage, ...]
    #: The line to append; none where `end` was written and only the move is missing.
    end: bytes
    #: Seconds since 1970, 0 where `open` does not say so.
    created: int
    #: No whole line: nothing was ever acknowledged.
    empty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """One tape that was found in live/, and what became of it."""

    stream: str
    #: None where it was left alone (`refused`) or held nothing.
    path: Path | None
    torn: int = 0
    damage: tuple[Damage, ...] = ()
    #: A format that this version must not touch.
    refused: str = ""


class Mending:
    """`feed` all bytes of a tape, then `mended`. Raises TapeError where the tape is of a newer format."""

    def __init__(self) -> None:
        self._reader = Reader()
        self._emitter = Emitter()
        self._unreadable = False
        self._size = 0
        self._cut_at = 0
        self._last: Record | None = None
        self._created = 0
        self._attempt()

    def _attempt(self) -> None:
        self._bytes = self._frames = 0
        self._sha256 = hashlib.sha256()

    def feed(self, data: bytes) -> None:
        """The next bytes."""
        line_end = data.rfind(b"\n") + 1
        if line_end:
            self._cut_at = self._size + line_end
        self._size += len(data)
        for record in self._reader.feed(data):
            self._record(record)

    def _record(self, record: Record) -> None:
        self._last = record
        if not self._unreadable:
            try:
                self._emitter.feed(record)
            except Exception:  # noqa: BLE001 - our own reading failed on it, and the tape gets its end all the same
                self._unreadable = True
        if record.kind == "open" and type(record.keys.get("created")) is int:
            self._created = record.keys["created"]
        elif record.kind == "attempt":
            self._attempt()
        elif record.kind in _RECEIVED:
            raw = record.raw or b""
            self._bytes += len(raw)
            self._frames += record.kind == "frame"
            self._sha256.update(raw)

    def mended(self) -> Mended:
        """What to do."""
        return Mended(
            self._cut_at,
            self._size - self._cut_at,
            tuple(self._reader.damage),
            b"" if self._reader.ended else self._end(),
            self._created,
            not self._cut_at,
        )

    def _end(self) -> bytes:
        """Time stands still at the last record: when the process died nobody knows."""
        ending, flags = ("crashed", ("failed_here",)) if self._unreadable else self._emitter.ending("crashed")
        keys: dict[str, Any] = {
            "cause": "crashed",
            "ending": ending,
            "flags": list(flags),
            "bytes": self._bytes,
            "frames": self._frames,
            "sha256": self._sha256.hexdigest(),
        }
        n, t = (self._last.n + 1, self._last.t) if self._last is not None else (0, 0)
        return encode(Record(n, t, "end", keys))


def recover(folder: Folder, sync: Sync) -> list[Recovered]:
    """Every tape in live/, mended. Raises FolderRefusedError where the disk does not let us."""
    found = [(stream, path, _look(path)) for stream, path in folder.live_tapes()]
    try:
        mended = [(path, what) for _, path, what in found if isinstance(what, Mended)]
        _write(folder, mended, sync)
        recovered = [_moved(folder, stream, path, what) for stream, path, what in found]
        _commit([folder.root, folder.live, *{found.path.parent for found in recovered if found.path}], sync)
    except OSError as error:
        raise FolderRefusedError(f"data folder {folder.root} cannot be recovered: {error.strerror}") from error
    return recovered


def _look(path: Path) -> Mended | str:
    mending = Mending()
    try:
        with path.open("rb") as file:
            while data := file.read(_CHUNK_BYTES):
                mending.feed(data)
    except TapeError as error:
        return str(error)
    return mending.mended()


def _write(folder: Folder, mended: Sequence[tuple[Path, Mended]], sync: Sync) -> None:
    """Cut and end; durable before anything moves. One descriptor at a time: there may be thousands of tapes."""
    paths: list[Path] = []
    for path, what in mended:
        if what.torn or what.end:
            paths.append(path)
            fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                os.ftruncate(fd, what.cut_at)
                if not what.empty and os.write(fd, what.end) != len(what.end):
                    raise OSError(0, f"no room to end {path.name}")
            finally:
                os.close(fd)
    _commit([folder.live, *paths], sync)


def _moved(folder: Folder, stream: str, path: Path, what: Mended | str) -> Recovered:
    if isinstance(what, str):
        return Recovered(stream=stream, path=None, refused=what)
    if what.empty:
        path.unlink()
        return Recovered(stream=stream, path=None, torn=what.torn)
    day = day_of(what.created or path.stat().st_mtime)
    folder.make_day(day)
    target = Path(folder.day_path(day, stream))
    if target.exists():
        return Recovered(stream=stream, path=None, refused=f"{target} exists already")
    path.rename(target)
    return Recovered(stream=stream, path=target, torn=what.torn, damage=what.damage)


def _commit(paths: Collection[Path], sync: Sync) -> None:
    """In portions, where each file has to be open at once."""
    waiting = list(paths)
    while waiting:
        portion, waiting = waiting[:_PORTION], waiting[_PORTION:]
        fds = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in portion]
        try:
            failed = sync(fds)
        finally:
            for fd in fds:
                os.close(fd)
        if failed:
            raise OSError(0, next(iter(failed.values())))
