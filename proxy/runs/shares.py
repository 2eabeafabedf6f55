"""How many runs of each caller are active in each of several processes: a file of each, which the others read."""

import fcntl
import os
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from wiretape.events.core.json_text import as_object, dumps, parse

__all__ = ["RunShares"]


class RunShares:
    """The counts of this process, and a look at those of the others."""

    def __init__(self, own: Path, others: Sequence[Path], lock: Path) -> None:
        """The runs of a process that was killed have ended with it: each begins at nothing."""
        self._own = own
        self._others = others
        self._counts: dict[str, int] = {}
        self._lock = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        own.touch(mode=0o600)
        self.note("", 0)

    def may_begin(self, caller: str, active: int, most: int) -> bool:
        """Return whether one more run may begin of a caller of whom so many are active here; if so, count it."""
        with self._locked():
            for file in self._others:
                with suppress(FileNotFoundError):  # that process has not started yet
                    most -= as_object(parse(file.read_bytes())).get(caller, 0)
            if active < most:
                self._write(caller, active + 1)
            return active < most

    def note(self, caller: str, active: int) -> None:
        """Count so many here."""
        with self._locked():
            self._write(caller, active)

    def _write(self, caller: str, active: int) -> None:
        self._counts.pop(caller, None)
        if active:
            self._counts[caller] = active
        self._own.write_bytes(dumps(self._counts))

    @contextmanager
    def _locked(self) -> Generator[None]:
        fcntl.flock(self._lock, fcntl.LOCK_EX)  # for some microseconds
        try:
            yield
        finally:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
