"""The data folder: where each tape lies, who may enter, and one process at a time."""

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Final

from ..limits import LOCK_LOOK_S, LOCK_LOOKS_MAX
from .retention import Kept, day_of
from .store import FolderRefusedError, is_stream_id

__all__ = ["Folder", "is_held"]

_SUFFIX: Final = ".tape"
#: Much longer than any file system's clock stands still.
_TICK_NS: Final = 2_500_000_000


def is_held(root: Path) -> bool:
    """Whether some process has a Folder of it: asked of the lock itself, since a pid outlives who wrote it."""
    try:
        lock = os.open(root / "lock", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return not _locked(lock, fcntl.LOCK_SH)
    except OSError:  # a file system without locks: nobody holds one
        return False
    finally:
        os.close(lock)


def _locked(lock: int, how: int) -> bool:
    """flock, not fcntl: those vanish when the same process opens and closes the file elsewhere."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


class Folder:
    """Held from its making until `close`. Raises FolderRefusedError with one line where it cannot be used."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root / "live"
        self._known: tuple[int, list[date]] = (0, [])
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise FolderRefusedError(f"data folder {root} cannot be used: {error.strerror}") from error
        try:
            self._take_lock()
            self.live.mkdir(mode=0o700, exist_ok=True)
            self.fd = os.open(self.live, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            os.close(self._lock)
            raise FolderRefusedError(f"data folder {root} cannot be used: {error.strerror}") from error
        except FolderRefusedError:
            os.close(self._lock)
            raise

    def _take_lock(self) -> None:
        """Refused by whoever holds the folder, and at once; never by those who look whether somebody does."""
        for _ in range(LOCK_LOOKS_MAX):
            if _locked(self._lock, fcntl.LOCK_EX):
                break
            if not _locked(self._lock, fcntl.LOCK_SH):
                raise self._held()
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # readers share theirs: only they were in the way
            time.sleep(LOCK_LOOK_S)
        else:
            raise self._held()
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)

    def _held(self) -> FolderRefusedError:
        holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        return FolderRefusedError(f"data folder {self.root} is in use by another process (pid {holder})")

    def close(self) -> None:
        """Another process may have it."""
        os.close(self.fd)
        with suppress(OSError):  # whoever has our number next does not hold the folder
            os.ftruncate(self._lock, 0)
        os.close(self._lock)

    def lost(self) -> str | None:
        """Why what is written now goes nowhere (P09): somebody took the folder away under us."""
        try:
            here, held = self.live.stat(), os.fstat(self.fd)
        except OSError as error:
            return f"data folder {self.root} is gone: {error.strerror}"
        if (here.st_dev, here.st_ino) != (held.st_dev, held.st_ino):
            return f"data folder {self.root} was replaced by another"
        return None

    def live_path(self, stream: str) -> str:
        """Of a stream that has not ended."""
        return f"{self.live}/{stream}{_SUFFIX}"

    def live_tapes(self) -> Iterator[tuple[str, Path]]:
        """Every stream in live/, with its tape."""
        for path in sorted(self.live.glob("*" + _SUFFIX)):
            if is_stream_id(path.stem) and path.is_file():
                yield path.stem, path

    def day_path(self, day: date, stream: str) -> str:
        """Of a stream that has ended."""
        return f"{self.root}/{day.isoformat()}/{stream}{_SUFFIX}"

    def make_day(self, day: date) -> None:
        """The folder for the tapes of a day, if it is not there."""
        (self.root / day.isoformat()).mkdir(mode=0o700, exist_ok=True)

    def ended_path(self, stream: str) -> str | None:
        """Where the tape of an ended stream lies."""
        for day in self.days():  # asked for each stream that begins: pathlib would cost three times as much
            path = f"{self.root}/{day.isoformat()}/{stream}{_SUFFIX}"
            if os.path.exists(path):  # noqa: PTH110
                return path
        return None

    def holds(self, stream: str, created: int) -> bool:
        """Whether there is a tape of it: most likely in the day of its creation."""
        for folder in (day_of(created).isoformat(), "live"):  # of each stream at the start, and pathlib keeps names
            if os.path.exists(f"{self.root}/{folder}/{stream}{_SUFFIX}"):  # noqa: PTH110
                return True
        return self.ended_path(stream) is not None

    def ended(self) -> Iterator[tuple[str, str]]:
        """Every ended stream, and where its tape lies."""
        for day in self.days():
            for entry in self._entries_of(day):
                yield entry.name.removesuffix(_SUFFIX), entry.path

    def tapes_of(self, day: date) -> Iterator[Kept]:
        """The facts that decide how long each tape of a day stays."""
        for entry in self._entries_of(day):
            facts = entry.stat(follow_symlinks=False)
            yield Kept(day, facts.st_mtime, entry.name.removesuffix(_SUFFIX), facts.st_size)

    def size_of(self, day: date) -> int | None:
        """Bytes of all tapes of a day, of which none is held; None where it has no tape."""
        size: int | None = None
        for entry in self._entries_of(day):
            size = (size or 0) + entry.stat(follow_symlinks=False).st_size
        return size

    def remove(self, day: date, stream: str) -> None:
        """A tape, and its day when nothing else is left of it."""
        folder = self.root / day.isoformat()
        with suppress(FileNotFoundError):
            os.unlink(f"{folder}/{stream}{_SUFFIX}")  # noqa: PTH108 - as above
        try:
            folder.rmdir()
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                raise

    def days(self) -> list[date]:
        """The latest first: whoever looks for a stream mostly looks for a young one.

        Asked for each stream that begins: a look at the folder's own time is one call, a walk through it four.
        """
        changed = os.stat(self.root).st_mtime_ns  # noqa: PTH116 - as above
        if changed == self._known[0]:
            return list(self._known[1])
        asked = time.time_ns()
        days: list[date] = []
        with os.scandir(self.root) as entries:
            for entry in entries:
                if len(entry.name) == 10 and entry.is_dir(follow_symlinks=False):
                    try:
                        days.append(date.fromisoformat(entry.name))
                    except ValueError:
                        continue
        days.sort(reverse=True)
        # What changes within the same tick of the clock changes that time no more: only an older one can be believed.
        self._known = (changed if changed < asked - _TICK_NS else 0, days)
        return list(days)

    def _entries_of(self, day: date) -> Iterator[os.DirEntry[str]]:
        try:
            found = os.scandir(self.root / day.isoformat())
        except FileNotFoundError:  # it expired while others were looked at
            return
        with found as entries:
            for entry in entries:
                stream = entry.name.removesuffix(_SUFFIX)
                if entry.name != stream and is_stream_id(stream) and entry.is_file(follow_symlinks=False):
                    yield entry
