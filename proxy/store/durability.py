"""Commit rounds: all tapes written since the last round become durable together, in a thread of their own.

A round is one `syncfs` of the data folder's file system (500 dirty tapes 10 ms, against 80 ms one by one), or a few
threads of fsync on systems without it. A tape that failed to become durable is closed to writing and never synced
again: the kernel may have dropped its pages and would report success for the next call.
"""

import ctypes
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, Literal

import trio

from .folder import Folder
from .retention import day_of
from .store import TapeBrokenError
from .tape_file import TapeFile

__all__ = ["ROUND_S", "Committer", "Durability", "Sync", "best_sync", "fsync_each", "syncfs_once"]

#: `process`: an append returns when the kernel has the batch, which survives kill -9. `disk`: when the disk has it.
Durability = Literal["process", "disk"]

#: What power loss may take at level `process`.
ROUND_S: Final = 1.0
#: Endings within this time share a round: a thousand short streams a second must not be a thousand rounds.
_GATHER_S: Final = 0.05
#: On a slow disk they share longer ones, because during a sync a tape is created in a thread, which costs 0.2 ms.
_REST: Final = 4
#: What a disk takes at once; more threads only wait (500 tapes: 31 ms from 16 threads, 80 ms one by one).
_FSYNC_THREADS: Final = 8

#: Makes the folder (the first descriptor) and the files durable, and returns what failed and why.
Sync = Callable[[Collection[int]], Mapping[int, str]]


def best_sync() -> Sync:
    """Return the best sync that this machine has."""
    library = ctypes.CDLL(None, use_errno=True)
    return syncfs_once(library.syncfs) if hasattr(library, "syncfs") else fsync_each


def syncfs_once(call: Callable[[int], Any]) -> Sync:
    """Return a sync of one call for all files, on the folder: open since the start, it gets every error since then."""

    def sync(fds: Collection[int]) -> Mapping[int, str]:
        folder = next(iter(fds))
        if call(folder) == 0:
            return {}
        why = os.strerror(ctypes.get_errno())
        return dict.fromkeys(fds, why)

    return sync


def fsync_each(fds: Collection[int]) -> Mapping[int, str]:
    """Sync with one call per file."""

    def one(fd: int) -> tuple[int, str | None]:
        try:
            os.fsync(fd)
        except OSError as error:
            return fd, error.strerror or "fsync failed"
        return fd, None

    with ThreadPoolExecutor(min(_FSYNC_THREADS, len(fds))) as threads:
        return {fd: why for fd, why in threads.map(one, fds) if why is not None}


class _Round:
    """Tapes that become durable together."""

    __slots__ = ("awaited", "done", "lost", "tapes")

    def __init__(self) -> None:
        self.tapes: list[TapeFile] = []
        self.awaited = False
        self.done = trio.Event()
        #: Tapes that did not become durable.
        self.lost: list[TapeFile] = []


class Committer:
    """The thread that makes the rounds, and what the serving task calls.

    The round that closes an ended tape also moves it to its day: renaming each one by itself woke a thread per stream,
    which cost more than the stream's bytes. In trio's thread, `on_closed` then gets the ended tapes, `on_lost` the
    tapes that did not become durable, and `on_gone` the reason why no write arrives any more, found within a second.
    """

    def __init__(
        self,
        folder: Folder,
        sync: Sync,
        *,
        on_closed: Callable[[Collection[TapeFile]], None],
        on_lost: Callable[[Collection[TapeFile]], None],
        on_gone: Callable[[str], None],
        round_s: float = ROUND_S,
    ) -> None:
        self._folder = folder
        self._sync = sync
        self._on_closed = on_closed
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._round_s = round_s
        self._trio = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._round = _Round()
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        #: The disk's journal is being written, so creating a file may block.
        self.syncing = False
        #: Duration of the last round.
        self._took_s = 0.0
        self._began = time.monotonic()
        self._stopping = False
        self._gone = False
        self._thread = threading.Thread(target=self._run, name="wiretape-commit", daemon=True)
        self._thread.start()

    def mark(self, tape: TapeFile) -> None:
        """Add a tape that was written to. The flag may be read without the lock: if set, a round is still to come."""
        if not tape.dirty:
            with self._lock:
                tape.dirty = True
                self._round.tapes.append(tape)
        if tape.ended and not self._wanted.is_set():
            self._wanted.set()

    async def committed(self, tape: TapeFile) -> None:
        """Wait until this tape's last write is durable. Raises TapeBrokenError if that failed.

        If the round of that write has begun already, this waits for the next one; the first marked the tape as broken.
        """
        await self.through()
        if tape.broken is not None:
            raise TapeBrokenError(tape.broken)

    async def through(self) -> None:
        """Wait until a round that begins from now on has ended."""
        with self._lock:
            current = self._round
            current.awaited = True
        self._hurry.set()
        self._wanted.set()
        await current.done.wait()

    def stop(self) -> None:
        """Make one last round. Blocks; call it in a thread."""
        self._stopping = True
        self._hurry.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            # A write that just missed the last round is durable one round later, the next round's duration included.
            due = self._began + self._round_s - self._took_s
            if self._wanted.wait(max(_GATHER_S, due - time.monotonic())) and not self._stopping:
                self._hurry.wait(max(_GATHER_S, min(_REST * self._took_s, due - time.monotonic())))
            self._wanted.clear()
            self._hurry.clear()
            self._make_round()
            reason = None if self._gone else self._folder.lost()
            if reason is not None:
                self._gone = True
                self._notify(self._on_gone, reason)
        self._make_round()

    def _make_round(self) -> None:
        self._began = time.monotonic()
        with self._lock:
            current, self._round = self._round, _Round()
            # Before the sync: a write from here on belongs to the next round.
            for tape in current.tapes:
                tape.dirty = False
        if current.tapes:
            self._commit(current)
            self._took_s = time.monotonic() - self._began
        if current.awaited or current.lost:
            self._notify(self._finish, current)

    def _commit(self, current: _Round) -> None:
        by_fd = {tape.fd: tape for tape in current.tapes if not tape.closed}
        # Before the sync: a tape that ends during it is in the next round too, and closed there.
        ended = [tape for tape in by_fd.values() if tape.ended]
        try:
            for tape in ended:
                if tape.created is not None:  # a tape that was only released stays for recovery
                    self._move(tape, tape.created)
            failed = self._sync_all(by_fd, {os.path.dirname(tape.path) for tape in ended})  # noqa: PTH120 - a string
        except Exception as error:  # noqa: BLE001 - if this thread died, appends would wait for ever
            failed = dict.fromkeys(by_fd, repr(error))
        for fd, why in failed.items():
            tape = by_fd[fd]
            if tape.broken is None:
                tape.broken = f"{tape.name}: what was written did not become durable: {why}"
                current.lost.append(tape)
        for tape in ended:
            tape.close()
        if ended:
            self._notify(self._on_closed, ended)

    def _move(self, tape: TapeFile, created: int) -> None:
        try:
            day = day_of(created or os.stat(tape.path).st_mtime)  # noqa: PTH116 - a tape's path is a string
            path = self._folder.day_path(day, tape.stream)
            try:
                tape.move(path)
            except FileNotFoundError:  # the first tape of its day; making the folder each time took 25 us
                self._folder.make_day(day)
                tape.move(path)
        except OSError as error:
            tape.stuck = error.strerror or "its name cannot be changed"

    def _sync_all(self, fds: Collection[int], days: Collection[str]) -> Mapping[int, str]:
        """Return the files whose sync failed: all of them if a folder failed, since their names may be lost."""
        folders = [self._folder.fd]
        self.syncing = True
        try:
            for day in days:
                with suppress(FileNotFoundError):  # it expired meanwhile
                    folders.append(os.open(day, os.O_RDONLY | os.O_CLOEXEC))
            failed = self._sync([*folders, *fds])
        finally:
            self.syncing = False
            for fd in folders[1:]:
                os.close(fd)
        lost_name = next((why for fd, why in failed.items() if fd in folders), None)
        return failed if lost_name is None else dict.fromkeys(fds, lost_name)

    def _finish(self, current: _Round) -> None:
        if current.lost:
            self._on_lost(current.lost)
        current.done.set()

    def _notify(self, what: Callable[[Any], None], about: object) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(what, about)
