"""The data folder: where tapes are, one writing process at a time, and which tapes expire."""

import errno
import fcntl
import heapq
import os
import re
import stat
import time
from bisect import insort
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from wiretape.events.core.errors import LocalError

from ..config.model import Keep
from ..limits import EXPIRE_PARTS, LOCK_LOOK_S, LOCK_LOOKS_MAX
from .store import FolderRefusedError

__all__ = [
    "LIVE",
    "SAFELY",
    "Folder",
    "Kept",
    "data_folder",
    "day_of",
    "days_in",
    "ended_since",
    "expired",
    "folders_in",
    "holder",
    "is_stream_id",
    "old_folders",
    "tape_path",
    "tapes_in",
]

#: The sub-folder of tapes that have not ended.
LIVE: Final = "live"
_SUFFIX: Final = ".tape"
#: For every file of the folder: a link is not followed, and a pipe does not hang.
SAFELY: Final = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_FOLDER_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY | SAFELY
#: Files at the top of the folder. SQLite follows links, and what the lock links to would be emptied.
_OURS: Final = (
    "lock",
    "caller.salt",
    "operator.token",
    "address",
    "catalogue.db",
    "catalogue.db-wal",
    "catalogue.db-shm",
    "counted.json",
    "counted.json.new",
    "runs.json",
    "runs.lock",
)
#: Longer pids exist nowhere, and int() refuses thousands of digits in words of its own.
_PID_CHARS_MAX: Final = 20
#: A file name on every system, without anything that has a meaning in a path. Our own ids have 32 characters.
_STREAM_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,127}")
#: The folder of a worker.
_WORKER: Final = re.compile(r"w[0-9]{1,3}", re.ASCII)
#: The first second of the year 10000: no calendar goes there.
_SECONDS_END: Final = 253_402_300_800


class Kept(NamedTuple):
    """One ended tape of a day: when it was last written, its id, its size."""

    written: float
    stream: str
    size: int


def is_stream_id(text: str) -> bool:
    """Return whether a store takes this id. Check every id that comes from outside."""
    return _STREAM_ID.fullmatch(text) is not None


def days_in(root: str | Path) -> list[date]:
    """Return the days that have a folder, the latest first. Raises OSError."""
    with os.scandir(root) as entries:
        names = [entry.name for entry in entries if len(entry.name) == 10 and entry.is_dir(follow_symlinks=False)]
    days: list[date] = []
    for name in names:
        with suppress(ValueError):
            days.append(date.fromisoformat(name))
    return sorted(days, reverse=True)


def tapes_in(folder: str | Path, prefix: str = "") -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the streams whose tapes are in this folder, none if there is no such folder."""
    try:
        found = os.scandir(folder)
    except FileNotFoundError:  # the day expired meanwhile
        return
    with found as entries:
        for entry in entries:
            stream, suffix = os.path.splitext(entry.name)  # noqa: PTH122 - a string, as it is for each tape
            named = suffix == _SUFFIX and stream.startswith(prefix) and is_stream_id(stream)
            if named and entry.is_file(follow_symlinks=False):
                yield stream, entry


def folders_in(root: Path, *, but: Path | None = None) -> list[Path]:
    """Return every folder with tapes `but` one: the data folder itself, and those of workers in it. Raises OSError."""
    found = (path for path in root.iterdir() if _WORKER.fullmatch(path.name) and path.is_dir())
    return [folder for folder in (root, *found) if folder != but]


def data_folder(folder: Path) -> Path:
    """Return the data folder of a folder with tapes: that of all workers, if it is one of theirs."""
    return folder.parent if _WORKER.fullmatch(folder.name) and (folder.parent / "lock").exists() else folder


def old_folders(root: Path, workers: int = 1) -> list[Path]:
    """Return the folders with tapes that so many workers, or one process without any, do not write to."""
    written = {root} if workers == 1 else {root / f"w{number}" for number in range(workers)}
    with suppress(FileNotFoundError):
        return [folder for folder in folders_in(root) if folder not in written]
    return []


def tape_path(root: Path, stream: str) -> str | None:
    """Return where a tape is, live or ended, in a folder that another process may hold."""

    def places() -> Iterator[str]:
        yield LIVE  # first, as tapes move from there to a day
        for day in days_in(root):
            yield day.isoformat()

    paths = (f"{root}/{place}/{stream}{_SUFFIX}" for place in places())
    return next(filter(os.path.exists, paths), None) if is_stream_id(stream) else None


def ended_since(root: Path, at: float, most: int) -> dict[str, float]:
    """Return the streams whose tapes were last written since then, and when: the oldest first, at most so many."""

    def written() -> Iterator[tuple[float, str]]:
        for folder in (root / LIVE, *(root / day.isoformat() for day in days_in(root))):
            if folder.name == LIVE or folder.stat().st_mtime >= at:  # else nothing has come into it since
                for stream, entry in tapes_in(folder):
                    with suppress(FileNotFoundError):  # it has just moved to its day, which comes later
                        yield entry.stat().st_mtime, stream

    return {stream: when for when, stream in heapq.nsmallest(most, (tape for tape in written() if tape[0] >= at))}


def holder(root: Path) -> int | None:
    """Return the pid of the process that holds the folder, 0 if it is not known yet, None if none does.

    This tries the lock itself, since a pid outlives its process.
    """
    try:
        lock = os.open(root / "lock", os.O_RDONLY | SAFELY)
    except OSError:
        return None
    try:
        if _locked(lock, fcntl.LOCK_SH):
            return None
        return int(os.pread(lock, _PID_CHARS_MAX, 0))
    except OSError:  # a file system without locks
        return None
    except ValueError:
        return 0
    finally:
        os.close(lock)


def _locked(lock: int, how: int) -> bool:
    """Try flock. Not fcntl: those locks vanish when the same process opens and closes the file elsewhere."""
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise
        return False
    return True


class Folder:
    """A data folder held by this process until `close`. Raises FolderRefusedError with one line if it is unusable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.live = root / LIVE
        try:
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.refuse_unsafe(root)
            self._lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT | SAFELY, 0o600)
            try:
                self._take_lock()
                self.live.mkdir(mode=0o700, exist_ok=True)
                self.fd = os.open(self.live, _FOLDER_FLAGS)
            except BaseException:
                os.close(self._lock)
                raise
        except OSError as error:
            reason = f"{error.strerror} ({error.filename or 'lock'})"
            raise FolderRefusedError(f"data folder {root} cannot be used: {reason}") from error

    @staticmethod
    def refuse_unsafe(root: Path) -> None:
        """Raise FolderRefusedError if other users can write to the folder, or a file in it is not a plain one.

        The folders above it are not checked: if another user replaces this one, the other one has the wrong owner.
        """
        about, reason = root.stat(), ""
        if about.st_uid != os.geteuid():
            reason = f"it belongs to another user (uid {about.st_uid}): run chown {os.geteuid()} on it"
        elif about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            reason = "other users may write to it: run chmod go-w on it"
        for name in _OURS:
            with suppress(FileNotFoundError):
                file = (root / name).lstat()
                if not stat.S_ISREG(file.st_mode) or file.st_nlink != 1:
                    reason = reason or f"{name} in it is a link or not a file: remove it"
        if reason:
            raise FolderRefusedError(f"data folder {root} cannot be used: {reason}")

    def _take_lock(self) -> None:
        """Fail at once if a process holds the folder, but not because readers are checking whether one does."""
        for _ in range(LOCK_LOOKS_MAX):
            if _locked(self._lock, fcntl.LOCK_EX):
                os.ftruncate(self._lock, 0)
                os.pwrite(self._lock, b"%d\n" % os.getpid(), 0)
                return
            if not _locked(self._lock, fcntl.LOCK_SH):
                break
            fcntl.flock(self._lock, fcntl.LOCK_UN)  # readers share their lock: only they were in the way
            time.sleep(LOCK_LOOK_S)
        holder = os.pread(self._lock, 32, 0).decode("ascii", "replace").strip() or "unknown"
        raise FolderRefusedError(f"data folder {self.root} is in use by another process (pid {holder})")

    def close(self) -> None:
        """Let another process have it."""
        os.close(self.fd)
        with suppress(OSError):  # the next process with our pid does not hold the folder
            os.ftruncate(self._lock, 0)
        os.close(self._lock)

    def live_path(self, stream: str) -> str:
        """Return the path of a tape that has not ended, or raise LocalError: an id from outside was not checked."""
        if not is_stream_id(stream):
            raise LocalError(f"not a stream id: {stream[:80]!r}")
        return f"{self.live}/{stream}{_SUFFIX}"

    def day_path(self, day: date, stream: str) -> str:
        """Return the path of a tape that has ended."""
        return f"{self.root}/{day.isoformat()}/{stream}{_SUFFIX}"

    def opened_day(self, day: date) -> int:
        """Return a descriptor of the folder of a day, which is made if needed."""
        path = self.root / day.isoformat()
        path.mkdir(mode=0o700, exist_ok=True)
        return os.open(path, _FOLDER_FLAGS)

    def ended_path(self, stream: str) -> str | None:
        """Return where the tape of an ended stream is."""
        if not is_stream_id(stream):
            return None
        paths = (self.day_path(day, stream) for day in days_in(self.root))  # each time: pathlib costs three times
        return next(filter(os.path.exists, paths), None)

    def holds(self, stream: str, created: int) -> bool:
        """Return whether the stream has a tape, most likely in the day of its creation."""
        likely = (self.day_path(day_of(created), stream), self.live_path(stream))
        return any(map(os.path.exists, likely)) or self.ended_path(stream) is not None

    def tapes_of(self, day: date) -> Iterator[Kept]:
        """Yield what decides how long each tape of a day stays."""
        for stream, entry in tapes_in(self.root / day.isoformat()):
            facts = entry.stat(follow_symlinks=False)
            yield Kept(facts.st_mtime, stream, facts.st_size)

    def delete(self, streams: Iterable[str]) -> None:
        """Remove the tapes of these streams."""
        for path in filter(None, map(self.ended_path, streams)):
            with suppress(FileNotFoundError):
                os.unlink(path)  # noqa: PTH108 - a tape's path is a string

    def expire(self, live_bytes: int, now: float, keep: Keep) -> list[str]:
        """Remove the tapes that are too old or too much, and return their streams."""
        gone = expired(days_in(self.root), self.tapes_of, live_bytes, now, keep)
        for day, streams in gone.items():
            for stream in streams:
                with suppress(FileNotFoundError):
                    os.unlink(self.day_path(day, stream))  # noqa: PTH108 - a tape's path is a string
            try:
                (self.root / day.isoformat()).rmdir()
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOENT):
                    raise
        return [stream for streams in gone.values() for stream in streams]


def day_of(seconds: float) -> date:
    """Return the day of a tape, in UTC: folders must not change their names when the machine travels."""
    return datetime.fromtimestamp(min(max(seconds, 0), _SECONDS_END - 1), UTC).date()


def expired(
    days: Collection[date], tapes_of: Callable[[date], Iterable[Kept]], live_bytes: int, now: float, keep: Keep
) -> dict[date, list[str]]:
    """Return the streams whose tapes go, by day.

    A tape goes when its day ended `keep.days` days ago, but of all tapes only a part at once: `now` may be wrong. While
    all tapes together exceed `keep.bytes`, the oldest day goes, and of the last day its oldest tapes. Live streams
    count but never go. Never lists all tapes: such a list took 0.6 KB per tape once a minute, memory that the allocator
    did not give back.
    """
    held_bytes, count = live_bytes, 0
    for tape in chain.from_iterable(map(tapes_of, days)):
        held_bytes += tape.size
        count += 1
    aged = ceil(count / EXPIRE_PARTS)
    excess = -1 if keep.bytes is None else held_bytes - keep.bytes
    gone: dict[date, list[str]] = {}
    for day in sorted(days):
        if keep.days is None or day_of(now) - day <= timedelta(days=keep.days):
            aged = 0
        if aged <= 0 and excess <= 0:
            break
        whole = excess > 0 and day != max(days)
        oldest = sorted(tapes_of(day)) if whole else []
        excess -= sum(tape.size for tape in oldest)
        for tape in () if whole else tapes_of(day):
            insort(oldest, tape)
            excess -= tape.size
            while len(oldest) > aged and excess + oldest[-1].size <= 0:
                excess += oldest.pop().size
        aged -= len(oldest)
        gone[day] = [tape.stream for tape in oldest]
    return gone
