"""Commit rounds: all tapes written since the last round become durable at once, in a thread of its own.

A round is one `syncfs` of the data folder's file system (500 dirty tapes 10 ms, against 80 ms one by one); where there
is none, a few threads of fsync. What failed to become durable is never tried again as if it were clean: those tapes are
closed to writing, since the kernel may have dropped their pages and would answer the next call with success.
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

from .store import TapeBrokenError
from .tape_file import TapeFile

__all__ = ["ROUND_S", "Committer", "Durability", "Sync", "best_sync", "fsync_each", "syncfs_once"]

#: `process`: an append returns when the kernel has it, which survives kill -9. `disk`: when a round was made of it.
Durability = Literal["process", "disk"]

#: What power loss may take at level `process`.
ROUND_S: Final = 1.0
#: Endings within this time share a round, or a thousand short streams a second would be a thousand rounds.
_GATHER_S: Final = 0.05
#: On a slow disk they share longer ones: during a sync a tape is begun in a thread, which costs 0.2 ms.
_REST: Final = 4
#: As many as a disk takes at once; more only wait (500 tapes: 31 ms from 16 threads, 80 ms one by one).
_FSYNC_THREADS: Final = 8

#: Makes the files and the folder (the first) durable; what failed, and why.
Sync = Callable[[Collection[int]], Mapping[int, str]]


def best_sync() -> Sync:
    """What this machine has."""
    library = ctypes.CDLL(None, use_errno=True)
    return syncfs_once(library.syncfs) if hasattr(library, "syncfs") else fsync_each


def syncfs_once(call: Callable[[int], Any]) -> Sync:
    """One call for all. It is asked of the folder, open since the start: an error since then is reported to it."""

    def sync(fds: Collection[int]) -> Mapping[int, str]:
        folder = next(iter(fds))
        if call(folder) == 0:
            return {}
        why = os.strerror(ctypes.get_errno())
        return dict.fromkeys(fds, why)

    return sync


def fsync_each(fds: Collection[int]) -> Mapping[int, str]:
    """One call a file."""

    def one(fd: int) -> tuple[int, str | None]:
        try:
            os.fsync(fd)
        except OSError as error:
            return fd, error.strerror or "fsync failed"
        return fd, None

    with ThreadPoolExecutor(min(_FSYNC_THREADS, len(fds))) as threads:
        return {fd: why for fd, why in threads.map(one, fds) if why is not None}


class _Round:
    """What waits to become durable together."""

    __slots__ = ("awaited", "done", "lost", "tapes")

    def __init__(self) -> None:
        self.tapes: list[TapeFile] = []
        self.awaited = False
        self.done = trio.Event()
        #: The tapes that it failed to make durable.
        self.lost: list[TapeFile] = []


class Committer:
    """Made in the task that serves, which then marks tapes; the rounds are made in a thread.

    Tapes that have ended are moved by the round that closes them (`move`): a name for each of them on its own would be
    a thread woken for each stream, which cost more than the stream's bytes. `on_closed` is then called with them in
    trio's thread, `on_lost` with the tapes of a round that failed, `on_gone` with the reason why nothing that is
    written arrives any more, as `watch` finds it once a second.
    """

    def __init__(
        self,
        folder: int,
        sync: Sync,
        *,
        watch: Callable[[], str | None],
        move: Callable[[Collection[TapeFile]], None],
        on_closed: Callable[[Collection[TapeFile]], None],
        on_lost: Callable[[Collection[TapeFile]], None],
        on_gone: Callable[[str], None],
        round_s: float = ROUND_S,
    ) -> None:
        self._folder = folder
        self._sync = sync
        self._watch = watch
        self._move = move
        self._on_closed = on_closed
        self._on_lost = on_lost
        self._on_gone = on_gone
        self._round_s = round_s
        self._trio = trio.lowlevel.current_trio_token()
        self._lock = threading.Lock()
        self._round = _Round()
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        #: The disk's journal is being written: whoever needs it now may wait.
        self.syncing = False
        #: How long the last one took.
        self._took_s = 0.0
        #: When it began.
        self._began = time.monotonic()
        self._stopping = False
        self._gone = False
        self._thread = threading.Thread(target=self._run, name="wiretape-commit", daemon=True)
        self._thread.start()

    def mark(self, tape: TapeFile) -> None:
        """It was written to. The flag is read before the lock: one that still stands was set for a round to come."""
        if not tape.dirty:
            with self._lock:
                tape.dirty = True
                self._round.tapes.append(tape)
        if tape.ended and not self._wanted.is_set():
            self._wanted.set()

    async def committed(self, tape: TapeFile) -> None:
        """Returns when this tape's last write is durable; raises TapeBrokenError where that failed.

        If the round that holds it has begun already, the next one is waited for, and the first has told the tape.
        """
        await self.through()
        if tape.broken is not None:
            raise TapeBrokenError(tape.broken)

    async def through(self) -> None:
        """Returns when a round that begins from now on has ended."""
        with self._lock:
            current = self._round
            current.awaited = True
        self._hurry.set()
        self._wanted.set()
        await current.done.wait()

    def stop(self) -> None:
        """One last round. Blocks; to be called in a thread."""
        self._stopping = True
        self._hurry.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            # Whoever missed the last round by a moment is durable a round's time later, the next round's own included.
            due = self._began + self._round_s - self._took_s
            if self._wanted.wait(max(_GATHER_S, due - time.monotonic())) and not self._stopping:
                self._hurry.wait(max(_GATHER_S, min(_REST * self._took_s, due - time.monotonic())))
            self._wanted.clear()
            self._hurry.clear()
            self._make_round()
            self._look()
        self._make_round()

    def _make_round(self) -> None:
        self._began = time.monotonic()
        with self._lock:
            current, self._round = self._round, _Round()
            # Before the sync: whoever writes from here on belongs to the next round.
            for tape in current.tapes:
                tape.dirty = False
        if current.tapes:
            began = time.perf_counter()
            self._commit(current)
            self._took_s = time.perf_counter() - began
        if current.awaited or current.lost:
            self._tell(self._through, current)

    def _commit(self, current: _Round) -> None:
        by_fd = {tape.fd: tape for tape in current.tapes if not tape.closed}
        # Asked before the sync: one that ends meanwhile is in the next round too, and closed there.
        ended = [tape for tape in by_fd.values() if tape.ended]
        try:
            self._move(ended)
            failed = self._failed(by_fd, _days_of(ended))
        except Exception as error:  # noqa: BLE001 - a thread that died would leave every append waiting for ever
            failed = dict.fromkeys(by_fd, repr(error))
        for fd, why in failed.items():
            tape = by_fd[fd]
            if tape.broken is None:
                tape.broken = f"{tape.name}: what was written did not become durable: {why}"
                current.lost.append(tape)
        for tape in ended:
            tape.close()
        if ended:
            self._tell(self._on_closed, ended)

    def _failed(self, fds: Collection[int], days: Collection[str]) -> Mapping[int, str]:
        """The files that a sync failed for; a name that did not become durable may lose any of them."""
        folders = [self._folder, *(os.open(day, os.O_RDONLY | os.O_CLOEXEC) for day in days)]
        self.syncing = True
        try:
            failed = self._sync([*folders, *fds])
        finally:
            self.syncing = False
            for fd in folders[1:]:
                os.close(fd)
        lost_name = next((why for fd, why in failed.items() if fd in folders), None)
        return failed if lost_name is None else dict.fromkeys(fds, lost_name)

    def _look(self) -> None:
        reason = None if self._gone else self._watch()
        if reason is not None:
            self._gone = True
            self._tell(self._on_gone, reason)

    def _through(self, current: _Round) -> None:
        if current.lost:
            self._on_lost(current.lost)
        current.done.set()

    def _tell(self, what: Callable[[Any], None], about: object) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(what, about)


def _days_of(ended: Collection[TapeFile]) -> Collection[str]:
    """Folders that got a new name in them; one that is gone meanwhile had nothing to keep."""
    days = {os.path.dirname(tape.path) for tape in ended}  # noqa: PTH120 - a tape's path is text
    return {day for day in days if os.path.exists(day)}  # noqa: PTH110 - the same
