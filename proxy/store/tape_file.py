"""Tapes on disk: the writer of a live one, the commit rounds that make it durable, and the one reader of tape files.

A commit round makes all tapes written since the last one durable together, in a thread of its own. It is one `syncfs`
of the data folder's file system (500 dirty tapes 10 ms, against 80 ms one by one), or one fsync per file on systems
without it. A tape that failed to become durable is closed to writing and never synced again: the kernel may have
dropped its pages and would report success for the next call.
"""

import ctypes
import errno
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

import trio

from wiretape.events.core.limits import TAPE_LINE_BYTES_MAX
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Reader

from ..limits import MEMORY_SAMPLE_S, PASSING_TRIES_MAX, PASSING_WAIT_S
from ..memory import Charge
from .catalogue_row import StreamRow, opened_row
from .folder import SAFELY, Folder, day_of
from .store import StoreError, StoreFullError, StreamMissingError, TapeBrokenError

__all__ = [
    "CHUNK_BYTES",
    "ROUND_S",
    "Charged",
    "Committer",
    "Durability",
    "OpenTape",
    "Patience",
    "Sync",
    "TapeBatches",
    "TapeFile",
    "TapeReader",
    "best_sync",
    "fsync_each",
    "opened_for_reading",
    "records_of",
    "syncfs_once",
]

_T = TypeVar("_T")

#: What one read of a tape takes: 1 MB decodes in about 15 ms.
CHUNK_BYTES: Final = 1024 * 1024
#: What a follower reads at once, in a thread: the bytes may have to come from the disk. 64 frames are parsed to 200 KB.
_BATCH_BYTES: Final = 16 * 1024
#: What it reads of a live tape in the loop: the kernel has just had these bytes, and 250 records decode in 1 ms.
_INLINE_BYTES: Final = 64 * 1024
#: A line as it is read, its parts, their value, and what is made of them to be sent.
_LONG_LINE_TIMES: Final = 5
#: A descriptor (P10), memory or a thread was missing; it is free again as soon as something else ends.
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR})
_FLAGS: Final = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | SAFELY

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


class Patience:
    """What the serving tasks do about faults that pass: try again, and report it at most once a second."""

    def __init__(self, warn: Callable[[str], None]) -> None:
        self._warn = warn
        self._warned_at = -inf
        #: The one thread that reads long lines for all readers: each takes five times its bytes meanwhile.
        self.long_lines = trio.CapacityLimiter(1)

    def _report(self, why: object) -> None:
        if trio.current_time() >= self._warned_at + 1:
            self._warned_at = trio.current_time()
            self._warn(f"trying again: {why}")

    async def in_thread(self, work: Callable[[], _T], limiter: trio.CapacityLimiter | None = None) -> _T:
        """Return what `work` returns in a thread, or here if none can start."""
        try:
            return await trio.to_thread.run_sync(work, limiter=limiter)
        except RuntimeError as error:
            if "start new thread" not in str(error):
                raise
            self._report(error)
            return work()

    async def again(self, error: Exception, work: Callable[[], _T]) -> _T:
        """Try again while a fault that passes is the cause of the error; raise the last one."""
        for _ in range(PASSING_TRIES_MAX):
            cause = error if isinstance(error, OSError) else error.__cause__
            if not isinstance(cause, OSError) or cause.errno not in _PASSING:
                break
            self._report(error)
            await trio.sleep(PASSING_WAIT_S)
            try:
                return work()
            except (StoreError, OSError) as failed:
                error = failed
        raise error


class OpenTape:
    """A stream that this process records: what its first records contain, and a signal to its followers."""

    def __init__(self, stream: str) -> None:
        self.stream = stream
        #: The keys of its `open`, `run` and `request` records.
        self.opening: dict[str, Mapping[str, Any]] = {}
        self.followed: trio.Event | None = None
        #: Followers get nothing more.
        self.hidden = False

    @property
    def row(self) -> StreamRow:
        """The row of the stream while it runs."""
        return opened_row(self.stream, *(self.opening.get(kind, NO_KEYS) for kind in ("open", "request", "run")))

    def wake(self) -> None:
        """Wake all followers that wait, once."""
        event, self.followed = self.followed, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        if self.followed is None:
            self.followed = trio.Event()
        await self.followed.wait()

    def hide(self) -> None:
        """End all followers."""
        self.hidden = True
        self.wake()


class TapeFile(OpenTape):
    """A tape open for appending, by one task. `size` counts the bytes of whole batches.

    Paths of single tapes are strings in this package: pathlib interns every name, which cost 1 MB at 14,500 streams.
    """

    def __init__(self, path: str) -> None:
        """Create the file. Raise StoreError: a tape is never begun twice."""
        self.path = path
        self.name = path.rpartition("/")[2]
        super().__init__(self.name.partition(".")[0])
        try:
            self.fd = os.open(path, _FLAGS, 0o600)
        except FileExistsError as error:
            raise StoreError(f"{self.stream} has a tape already") from error
        except OSError as error:
            raise StoreFullError(f"{self.name} could not be begun: {error.strerror}") from error
        self.size = 0
        #: Bytes that readers may see; with `durability = disk` fewer than are written.
        self.shown = 0
        self.next_n = 0
        #: A batch was refused, so numbers may be missing.
        self.lost = False
        #: Why it takes no more writes; set by any thread.
        self.broken: str | None = None
        #: Waits for a commit round that has not begun.
        self.dirty = False
        #: Nothing more is written, so the next round may close it.
        self.ended = False
        #: Set with the end: the time (or 0) whose day the next round moves the tape to, and whether it could not.
        self.created: int | None = None
        self.stuck = False
        self.closed = False

    def write(self, lines: bytes) -> None:
        """Write all lines, or raise a StoreError and leave none of these bytes on the tape."""
        if self.broken is not None:
            raise TapeBrokenError(self.broken)
        failed: OSError | None = None
        try:
            written = os.write(self.fd, lines)
        except OSError as error:
            failed, written = error, 0
        if written == len(lines):
            self.size += written
            return
        reason = f"{self.name}: no room for {len(lines)} bytes at byte {self.size}, {written} were taken"
        if failed is not None:
            reason = f"{self.name}: writing failed at byte {self.size}: {failed.strerror}"
        try:
            if failed is None or failed.errno not in _PASSING:
                os.ftruncate(self.fd, self.size)  # a full disk first takes a part (F10); cutting it off needs no room
        except OSError as error:
            self.broken = f"{reason}, and could not be cut off again: {error.strerror}"
            raise TapeBrokenError(self.broken) from error
        raise StoreFullError(reason) from failed


def best_sync() -> Sync:
    """Return the best sync that this machine has."""
    library = ctypes.CDLL(None, use_errno=True)
    return partial(syncfs_once, library.syncfs) if hasattr(library, "syncfs") else fsync_each


def syncfs_once(syncfs: Callable[[int], int], fds: Collection[int]) -> Mapping[int, str]:
    """Sync with one call, on the folder: open since the start, it gets every error since then."""
    while syncfs(next(iter(fds))) != 0:
        if ctypes.get_errno() != errno.EINTR:  # a signal is no error of the disk; `os.fsync` repeats itself too
            return dict.fromkeys(fds, os.strerror(ctypes.get_errno()))
    return {}


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
    which cost more than the stream's bytes. A tape that cannot be moved now is as durable where it is; the next round
    tries again. In trio's thread, `on_round` then gets the tapes that are closed and moved and those that did not
    become durable, and `on_gone` the reason why no write arrives any more, found within a second.
    """

    def __init__(
        self,
        folder: Folder,
        sync: Sync,
        on_round: Callable[[Collection[TapeFile], Collection[TapeFile]], None],
        on_gone: Callable[[str], None],
        warn: Callable[[str], None],
        round_s: float,
    ) -> None:
        #: Tapes written since the last round, each with `dirty` set before it is added. Appending needs no lock.
        self.written: deque[TapeFile] = deque()
        #: The disk's journal is being written, so creating a file may block.
        self.syncing = False
        self._folder = folder
        self._sync = sync
        self._on_round = on_round
        self._on_gone = on_gone
        self._warn = warn
        self._unmoved: list[TapeFile] = []
        self._round_s = round_s
        self._trio = trio.lowlevel.current_trio_token()
        self._awaited: deque[trio.Event] = deque()
        self._wanted = threading.Event()
        self._hurry = threading.Event()
        self._took_s = 0.0
        self._began = time.monotonic()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="wiretape-commit", daemon=True)
        self._thread.start()

    def hasten(self) -> None:
        """Start the next round soon: a tape has ended."""
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
        gone = ""
        while not self._stopping:
            # A write that just missed the last round is durable one round later, the next round's duration included.
            due = self._began + self._round_s - self._took_s
            if self._wanted.wait(max(_GATHER_S, due - time.monotonic())) and not self._stopping:
                self._hurry.wait(max(_GATHER_S, min(_REST * self._took_s, due - time.monotonic())))
            self._wanted.clear()
            self._hurry.clear()
            self._make_round()
            if not gone and (gone := self._gone()):
                self._notify(self._on_gone, gone)
        self._make_round()

    def _gone(self) -> str:
        """Return why writes now go nowhere (P09): the folder was taken away or replaced."""
        folder = self._folder
        try:
            here, held = folder.live.stat(), os.fstat(folder.fd)
        except OSError as error:
            return "" if error.errno in _PASSING else f"data folder {folder.root} is gone: {error.strerror}"
        same = (here.st_dev, here.st_ino) == (held.st_dev, held.st_ino)
        return "" if same else f"data folder {folder.root} was replaced by another"

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
        over: list[TapeFile] = []
        lost: list[TapeFile] = []
        if by_fd or self._unmoved:
            lost = self._commit(by_fd, ended, over)
            self._took_s = time.monotonic() - self._began
        if over or lost or awaited:
            self._notify(self._finish, over, lost, awaited)

    def _commit(self, by_fd: Mapping[int, TapeFile], ended: list[TapeFile], over: list[TapeFile]) -> list[TapeFile]:
        """Move the ended tapes to `over`, sync all and close the ended ones; return what did not become durable."""
        lost: list[TapeFile] = []
        days: dict[date, int] = {}
        try:
            unmoved, self._unmoved = [*self._unmoved, *ended], []
            for tape in unmoved:
                (over if self._moved(tape, days) else self._unmoved).append(tape)
            self.syncing = True
            failed = self._sync([self._folder.fd, *days.values(), *by_fd])
        except Exception as error:  # noqa: BLE001 - if this thread died, appends would wait for ever
            failed = dict.fromkeys(by_fd, repr(error))
        self.syncing = False
        # If a folder failed, the names of all tapes may be lost.
        lost_name = failed.get(self._folder.fd)
        for fd in days.values():
            lost_name = lost_name or failed.get(fd)
            os.close(fd)
        for fd, tape in by_fd.items():
            why = lost_name or failed.get(fd)
            if why is not None and tape.broken is None:
                tape.broken = f"{tape.name}: what was written did not become durable: {why}"
                lost.append(tape)
        for tape in ended:
            tape.closed = True
            os.close(tape.fd)
        return lost

    def _moved(self, tape: TapeFile, days: dict[date, int]) -> bool:
        """Rename the ended tape, and return False to try that again. `days` gets a descriptor of its folder.

        Never over another tape: one whose name is taken stays where it is, like one that was only released. Blocks for
        milliseconds while the journal is being written.
        """
        if tape.created is None:
            return True
        try:
            day = day_of(tape.created or os.stat(tape.path).st_mtime)  # noqa: PTH116 - a tape's path is a string
            path = self._folder.day_path(day, tape.stream)
            if os.path.exists(path):  # noqa: PTH110
                raise FileExistsError(errno.EEXIST, "a tape of this name exists already")
            if day not in days:
                days[day] = self._folder.opened_day(day)
            os.rename(tape.path, path)  # noqa: PTH104
            tape.path = path
        except OSError as error:
            if not tape.stuck and not self._unmoved:  # of many that wait, the first
                self._warn(f"{tape.name} has ended and could not be moved to its day: {error.strerror}")
            tape.stuck = True
            return isinstance(error, FileExistsError | NotADirectoryError) or not os.path.exists(tape.path)  # noqa: PTH110
        return True

    def _finish(self, over: Collection[TapeFile], lost: Collection[TapeFile], awaited: Collection[trio.Event]) -> None:
        if over or lost:
            self._on_round(over, lost)
        for event in awaited:
            event.set()

    def _notify(self, what: Callable[..., None], *about: object) -> None:
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(what, *about)


class TapeReader(Reader):
    """A tape file read from its beginning in whole lines. Between reads it holds no descriptor of its own.

    The file may grow and move. A torn last line is never read: recovery may cut it off.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        """`opened` returns a descriptor, which the reader closes after each read."""
        super().__init__()
        #: The byte after the last line read.
        self.at = 0
        #: The next line is longer than the last read may take.
        self.too_long = False
        self._opened = opened

    def read(
        self, size: int = CHUNK_BYTES, *, until: int | None = None, line_bytes_max: int = TAPE_LINE_BYTES_MAX
    ) -> list[Record]:
        """Return the next records, about `size` bytes and not beyond byte `until`; none if there are no more yet, or
        if the next line is longer than `line_bytes_max`.

        Raises TapeError if the format is newer than this version reads.
        """
        while lines := self._lines(size, until, line_bytes_max):
            self.at += len(lines)
            if records := self.feed(lines):
                return records
        return []

    def _lines(self, size: int, until: int | None, line_bytes_max: int) -> bytes:
        fd = self._opened()
        try:
            while True:
                wanted = size if until is None else min(size, until - self.at)
                data = os.pread(fd, wanted, self.at) if wanted > 0 else b""
                end = data.rfind(b"\n") + 1
                self.too_long = not end and len(data) == size and line_bytes_max < size < TAPE_LINE_BYTES_MAX
                if end or len(data) < size or self.too_long:
                    return data[:end]
                if size > TAPE_LINE_BYTES_MAX:  # the decoder reports it and skips to the next line
                    return data
                size *= 2
        finally:
            os.close(fd)

    def __iter__(self) -> Iterator[Record]:
        while records := self.read():
            yield from records


def records_of(path: str | Path) -> Iterator[Record]:
    """Yield the records of a tape file. Raises OSError and TapeError."""
    yield from TapeReader(lambda: opened_for_reading(path))


def opened_for_reading(path: str | Path) -> int:
    """Return a descriptor of the file."""
    return os.open(path, os.O_RDONLY | SAFELY)


class Charged:
    """A reader that is charged for long lines if `held` is set."""

    def __init__(self) -> None:
        self.held: Charge | None = None
        self._long_bytes = 0

    async def charge(self, size: int) -> None:
        """Charge so many bytes instead of those charged before; wait until there is room."""
        if self.held is not None and size != self._long_bytes:
            self.held.remove(self._long_bytes)
            self._long_bytes = 0
            while not self.held.add(size):  # noqa: ASYNC110 - it is others who release
                await trio.sleep(MEMORY_SAMPLE_S)
            self._long_bytes = size


class TapeBatches(TapeReader, Charged):
    """The records of one tape in batches, from record `from_n` on; of a live tape also those still to come."""

    def __init__(
        self,
        stream: str,
        opened: Callable[[], int],
        from_n: int,
        live: TapeFile | None,
        patience: Patience,
        *,
        waits: bool,
    ) -> None:
        TapeReader.__init__(self, opened)
        Charged.__init__(self)
        self.cancellable = False
        self._stream = stream
        self._from_n = from_n
        self._live = live
        self._patience = patience
        self._waits = waits

    def __aiter__(self) -> "TapeBatches":
        return self

    async def __anext__(self) -> list[Record]:
        live = self._live
        await self.charge(0)
        while True:
            if live is not None and self.at >= live.shown:
                if self._waits and not live.hidden:
                    await live.wait()
                    continue
                if self._waits and live.broken is not None:
                    raise TapeBrokenError(live.broken)
                raise StopAsyncIteration
            records = await self._next()
            if live is None and not records:
                raise StopAsyncIteration
            if records and records[0].n < self._from_n:
                records = [record for record in records if record.n >= self._from_n]
            if records:
                return records

    async def _next(self) -> list[Record]:
        live, at = self._live, self.at
        until = None if live is None else live.shown
        read = partial(self.read, _BATCH_BYTES, until=until, line_bytes_max=_INLINE_BYTES)
        try:
            try:
                if live is None or live.shown - at > _INLINE_BYTES:
                    records = await self._patience.in_thread(read)
                    size = _INLINE_BYTES
                    while self.too_long and not records:
                        size *= 2
                        await self.charge(_LONG_LINE_TIMES * size)
                        read = partial(self.read, _BATCH_BYTES, until=until, line_bytes_max=size)
                        records = await self._patience.in_thread(read, self._patience.long_lines)
                else:
                    await trio.lowlevel.checkpoint()
                    records = read()
            except OSError as error:
                records = await self._patience.again(error, read)
        except FileNotFoundError as error:
            if live is not None and live.broken is not None:
                raise TapeBrokenError(live.broken) from error
            raise StreamMissingError(f"the tape of {self._stream} is gone") from error
        except OSError as error:
            raise StoreError(f"the tape of {self._stream} cannot be read: {error.strerror}") from error
        if live is not None and self.at == at:
            raise TapeBrokenError(f"the tape of {self._stream} is shorter than what was written")
        return records
