"""Commit rounds: all tapes written since the last round become durable together, in a thread of their own.

A round is one `syncfs` of the data folder's file system (500 dirty tapes 10 ms, against 80 ms one by one), or one fsync
per file on systems without it. A tape that failed to become durable is closed to writing and never synced
again: the kernel may have dropped its pages and would report success for the next call.
"""

import ctypes
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, Literal

import trio

from .folder import Folder, day_of
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
#: Makes the folder (the first descriptor) and the files durable, and returns what failed and why.
Sync = Callable[[Collection[int]], Mapping[int, str]]


def best_sync() -> Sync:
    """Return the best sync that this machine has."""
    library = ctypes.CDLL(None, use_errno=True)
    return partial(syncfs_once, library.syncfs) if hasattr(library, "syncfs") else fsync_each


def syncfs_once(syncfs: Callable[[int], int], fds: Collection[int]) -> Mapping[int, str]:
    """Sync with one call, on the folder: open since the start, it gets every error since then."""
    if syncfs(next(iter(fds))) == 0:
        return {}
    return dict.fromkeys(fds, os.strerror(ctypes.get_errno()))


def fsync_each(fds: Collection[int]) -> Mapping[int, str]:
    """Sync with one call per file."""
    failed: dict[int, str] = {}
    for fd in fds:
        try:
            os.fsync(fd)
        except OSError as error:
            failed[fd] = error.strerror or "fsync failed"
    return failed


class Committer:
    """The thread that makes the rounds, and what the serving task calls.

    The round that closes an ended tape also moves it to its day: renaming each one by itself woke a thread per stream,
    which cost more than the stream's bytes. In trio's thread, `on_round` then gets the tapes that were closed and those
    that did not become durable, and `on_gone` the reason why no write arrives any more, found within a second.
    """

    def __init__(
        self,
        folder: Folder,
        sync: Sync,
        *,
        on_round: Callable[[Collection[TapeFile], Collection[TapeFile]], None],
        on_gone: Callable[[str], None],
        round_s: float = ROUND_S,
    ) -> None:
        #: Tapes written since the last round, each with `dirty` set before it is added. Appending needs no lock.
        self.written: deque[TapeFile] = deque()
        #: The disk's journal is being written, so creating a file may block.
        self.syncing = False
        self._folder = folder
        self._sync = sync
        self._on_round = on_round
        self._on_gone = on_gone
        self._round_s = round_s
        self._trio = trio.lowlevel.current_trio_token()
        self._awaited: deque[trio.Event] = deque()
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        #: Duration of the last round.
        self._took_s = 0.0
        self._began = time.monotonic()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="wiretape-commit", daemon=True)
        self._thread.start()

    def hasten(self) -> None:
        """Start the next round soon: a tape has ended."""
        if not self._wanted.is_set():
            self._wanted.set()

    async def through(self) -> None:
        """Wait until a round that begins from now on has ended."""
        event = trio.Event()
        self._awaited.append(event)
        self._hurry.set()
        self._wanted.set()
        await event.wait()

    def stop(self) -> None:
        """Make one last round. Blocks; call it in a thread."""
        self._stopping = True
        self._hurry.set()
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        gone = None
        while not self._stopping:
            # A write that just missed the last round is durable one round later, the next round's duration included.
            due = self._began + self._round_s - self._took_s
            if self._wanted.wait(max(_GATHER_S, due - time.monotonic())) and not self._stopping:
                self._hurry.wait(max(_GATHER_S, min(_REST * self._took_s, due - time.monotonic())))
            self._wanted.clear()
            self._hurry.clear()
            self._make_round()
            if gone is None and (gone := self._folder.lost()) is not None:
                self._notify(self._on_gone, gone)
        self._make_round()

    def _make_round(self) -> None:
        self._began = time.monotonic()
        awaited: list[trio.Event] = []
        while self._awaited:  # before the tapes that they wait for
            awaited.append(self._awaited.popleft())
        by_fd: dict[int, TapeFile] = {}
        ended: list[TapeFile] = []
        while self.written:
            tape = self.written.popleft()
            tape.dirty = False  # before the sync: what is written from here on belongs to the next round
            if not tape.closed and tape.fd not in by_fd:
                by_fd[tape.fd] = tape
                if tape.ended:  # a tape that ends during the sync is closed by the next round
                    ended.append(tape)
        lost = self._commit(by_fd, ended) if by_fd else []
        if by_fd:
            self._took_s = time.monotonic() - self._began
        if ended or lost or awaited:
            self._notify(self._finish, ended, lost, awaited)

    def _commit(self, by_fd: Mapping[int, TapeFile], ended: Collection[TapeFile]) -> list[TapeFile]:
        """Move and close the ended tapes, sync all, and return those that did not become durable."""
        lost: list[TapeFile] = []
        folders, days = [self._folder.fd], set[str]()
        try:
            for tape in ended:
                if tape.created is not None:  # a tape that was only released stays for recovery
                    self._move(tape, tape.created)
                days.add(os.path.dirname(tape.path))  # noqa: PTH120 - a string
            self.syncing = True
            for day in days:
                with suppress(FileNotFoundError):  # it expired meanwhile
                    folders.append(os.open(day, os.O_RDONLY | os.O_CLOEXEC))
            failed = self._sync([*folders, *by_fd])
        except Exception as error:  # noqa: BLE001 - if this thread died, appends would wait for ever
            failed = dict.fromkeys(by_fd, repr(error))
        self.syncing = False
        lost_name = ""  # if a folder failed, the names of all tapes may be lost
        for fd in folders:
            lost_name = lost_name or failed.get(fd, "")
        for fd in folders[1:]:
            os.close(fd)
        for fd, tape in by_fd.items():
            why = lost_name or failed.get(fd)
            if why is not None and tape.broken is None:
                tape.broken = f"{tape.name}: what was written did not become durable: {why}"
                lost.append(tape)
        for tape in ended:
            tape.close()
        return lost

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

    def _finish(self, ended: Collection[TapeFile], lost: Collection[TapeFile], awaited: Collection[trio.Event]) -> None:
        if ended or lost:
            self._on_round(ended, lost)
        for event in awaited:
            event.set()

    def _notify(self, what: Callable[..., None], *about: object) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(what, *about)
