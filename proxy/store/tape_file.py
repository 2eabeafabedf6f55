"""One tape on disk: every batch is one unbuffered write whose count is checked, and nothing follows a half one."""

import errno
import os
from pathlib import Path
from typing import Final

from .store import StoreError, StoreFullError, TapeBrokenError

__all__ = ["TapeFile", "creation_error", "read_at"]

#: No room on the disk, in the quota, or below RLIMIT_FSIZE (P06, P11).
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Of this process or of the machine: as soon as a stream ends there is one again (P10).
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FLAGS: Final = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class TapeFile:
    """Open for appending, by one task. `size` counts what was written whole."""

    __slots__ = ("broken", "closed", "created", "dirty", "ended", "fd", "path", "size", "stuck", "target")

    def __init__(self, path: str) -> None:
        """Raises FileExistsError where there is one: a tape is never begun twice.

        A path is text here and wherever a stream's own stands: pathlib keeps each name in Python's table of them, which
        grew by 1 MB at 14,500 streams.
        """
        self.fd = os.open(path, _FLAGS, 0o600)
        self.path = path
        #: Where it is being moved to, in another thread.
        self.target = path
        self.size = 0
        #: Why it takes nothing more; set by whoever finds out, in any thread.
        self.broken: str | None = None
        #: In a commit round that has not begun; the committer's.
        self.dirty = False
        #: Nothing more is written, so the next round may close it.
        self.ended = False
        #: Set with its end: the time (or 0) of the day to which the next round moves it; and why it could not.
        self.created: int | None = None
        self.stuck = ""
        self.closed = False

    @property
    def name(self) -> str:
        """Of the file, wherever it lies."""
        return os.path.basename(self.path)  # noqa: PTH119 - see above

    @property
    def stream(self) -> str:
        """Whose tape it is."""
        return os.path.splitext(self.name)[0]  # noqa: PTH122 - see above

    def write(self, lines: bytes) -> None:
        """All of it or a StoreError, and then none of it is on the tape."""
        if self.broken is not None:
            raise TapeBrokenError(self.broken)
        assert not self.ended, f"{self.name} has ended"
        try:
            written = os.write(self.fd, lines)
        except OSError as error:
            raise self._failed(error, len(lines)) from error
        if written != len(lines):
            raise self._short(written, len(lines))
        self.size += written

    def move(self, path: str) -> None:
        """Behind its end, to its day. Blocks: a journal that is being written makes it wait for milliseconds."""
        self.target = path
        os.rename(self.path, path)  # noqa: PTH104 - see above
        self.path = path

    def read(self, at: int, size: int) -> bytes:
        """What was written; also while it moves, and where it has moved to."""
        try:
            return read_at(self.path, at, size)
        except FileNotFoundError:
            return read_at(self.target, at, size)

    def close(self) -> None:
        """Once; errors of a close say nothing that a commit round would not say."""
        if not self.closed:
            self.closed = True
            os.close(self.fd)

    def _failed(self, error: OSError, size: int) -> StoreError:
        if error.errno in _FULL:
            return self._short(0, size)
        self.broken = f"{self.name}: writing failed at byte {self.size}: {error.strerror}"
        return TapeBrokenError(self.broken)

    def _short(self, written: int, size: int) -> StoreError:
        """F10: a full disk first takes a part. Only its repair may follow: cutting it off, which needs no room."""
        reason = f"{self.name}: no room for {size} bytes at byte {self.size}, {written} were taken"
        try:
            os.ftruncate(self.fd, self.size)
        except OSError as error:
            self.broken = f"{reason}, and could not be cut off again: {error.strerror}"
            return TapeBrokenError(self.broken)
        return StoreFullError(reason)


def creation_error(name: str, error: OSError) -> StoreError:
    """Why a tape could not be begun: no room, or anything else (P10: no descriptor is left)."""
    reason = f"{name} could not be begun: {error.strerror}"
    return StoreFullError(reason) if error.errno in _FULL | _NO_DESCRIPTOR else TapeBrokenError(reason)


def read_at(path: str | Path, at: int, size: int) -> bytes:
    """These bytes, or as many as there are. Opened and closed each time: a reader that is left lying holds nothing."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.pread(fd, size, at)
    finally:
        os.close(fd)
