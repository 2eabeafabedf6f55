"""One tape on disk: the writer of a live one, the one reader of tape files, and the readers that follow a live one.

Each batch is one unbuffered write whose size is checked, and nothing is written after half a batch. A follower pulls by
position at its own pace, and an append wakes those that wait.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio

from wiretape.events.core.limits import TAPE_LINE_BYTES_MAX
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Reader

from .catalogue_row import StreamRow, opened_row
from .store import StoreError, StoreFullError, StreamMissingError, TapeBrokenError

__all__ = ["CHUNK_BYTES", "OpenTape", "TapeBatches", "TapeFile", "TapeReader", "opened_for_reading", "records_of"]

#: What one read of a tape takes: 1 MB decodes in about 15 ms.
CHUNK_BYTES: Final = 1024 * 1024
#: What a follower reads at once, in a thread: the bytes may have to come from the disk.
_BATCH_BYTES: Final = 256 * 1024
#: What it reads of a live tape in the loop: the kernel has just had these bytes, and 250 records decode in 1 ms.
_INLINE_BYTES: Final = 64 * 1024
#: No room on the disk, in the quota, or below RLIMIT_FSIZE (P06, P11).
_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
#: Of this process or of the machine; one is free again as soon as a stream ends (P10).
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})
_FLAGS: Final = os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC | os.O_NOFOLLOW


class OpenTape:
    """A stream that this process records: what its first records say, and a signal to its followers."""

    __slots__ = ("followed", "hidden", "opening", "stream")

    def __init__(self, stream: str) -> None:
        self.stream = stream
        #: The keys of its `open` and `request` records.
        self.opening: dict[str, Mapping[str, Any]] = {}
        #: What waiting followers wait for.
        self.followed: trio.Event | None = None
        #: Followers get nothing more.
        self.hidden = False

    @property
    def row(self) -> StreamRow:
        """The row of the stream while it runs."""
        return opened_row(self.stream, self.opening.get("open", NO_KEYS), self.opening.get("request", NO_KEYS))

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
        if self.followed is not None:
            self.wake()


class TapeFile(OpenTape):
    """A tape open for appending, by one task. `size` counts the bytes of whole batches.

    Paths of single tapes are strings in this package: pathlib interns every name, which cost 1 MB at 14,500 streams.
    """

    # fmt: off
    __slots__ = (
        "broken", "closed", "created", "dirty", "ended", "fd", "lost", "name", "next_n", "path", "shown", "size",
        "stuck", "writing",
    )
    # fmt: on

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
            reason = f"{self.name} could not be begun: {error.strerror}"
            raise (StoreFullError if error.errno in _FULL | _NO_DESCRIPTOR else TapeBrokenError)(reason) from error
        self.size = 0
        #: Bytes that readers may see; with `durability = disk` fewer than are written.
        self.shown = 0
        self.next_n = 0
        #: A batch was refused, so numbers may be missing.
        self.lost = False
        self.writing = False
        #: Why it takes no more writes; set by any thread.
        self.broken: str | None = None
        #: Waits for a commit round that has not begun.
        self.dirty = False
        #: Nothing more is written, so the next round may close it.
        self.ended = False
        #: Set with the end: the time (or 0) whose day the next round moves the tape to; and why it could not.
        self.created: int | None = None
        self.stuck = ""
        self.closed = False

    def write(self, lines: bytes) -> None:
        """Write all lines, or raise a StoreError and leave none of these bytes on the tape."""
        if self.broken is not None:
            raise TapeBrokenError(self.broken)
        assert not self.ended, f"{self.name} has ended"
        try:
            written = os.write(self.fd, lines)
        except OSError as error:
            if error.errno not in _FULL:
                self.broken = f"{self.name}: writing failed at byte {self.size}: {error.strerror}"
                raise TapeBrokenError(self.broken) from error
            written = 0
        if written == len(lines):
            self.size += written
            return
        reason = f"{self.name}: no room for {len(lines)} bytes at byte {self.size}, {written} were taken"
        try:
            os.ftruncate(self.fd, self.size)  # a full disk first takes a part (F10); cutting that off needs no room
        except OSError as error:
            self.broken = f"{reason}, and could not be cut off again: {error.strerror}"
            raise TapeBrokenError(self.broken) from error
        raise StoreFullError(reason)

    def end(self) -> None:
        """Take nothing more. The next commit round moves the tape to its day; until then it is read where it is."""
        created = self.opening.get("open", NO_KEYS).get("created")
        self.created = created if type(created) is int else 0
        self.ended = True

    def move(self, path: str) -> None:
        """Rename the ended tape, never over another one. Blocks for milliseconds while the journal is being written."""
        if os.path.exists(path):  # noqa: PTH110 - see above
            raise FileExistsError(errno.EEXIST, "a tape of this name exists already")
        os.rename(self.path, path)  # noqa: PTH104 - see above
        self.path = path

    def close(self) -> None:
        """Close it once. Errors of a close are those that the commit round reports."""
        if not self.closed:
            self.closed = True
            os.close(self.fd)


class TapeReader(Reader):
    """A tape file read from its beginning in whole lines. Between reads it holds no descriptor of its own.

    The file may grow and move. A torn last line is never read: recovery may cut it off.
    """

    def __init__(self, opened: Callable[[], int]) -> None:
        """`opened` returns a descriptor, which the reader closes after each read."""
        super().__init__()
        #: The byte after the last line read.
        self.at = 0
        self._opened = opened

    def read(self, size: int = CHUNK_BYTES, *, until: int | None = None) -> list[Record]:
        """Return the next records, about `size` bytes and not beyond byte `until`; none if there are no more yet.

        Raises TapeError if the format is newer than this version reads.
        """
        while lines := self._lines(size, until):
            self.at += len(lines)
            if records := self.feed(lines):
                return records
        return []

    def _lines(self, size: int, until: int | None) -> bytes:
        fd = self._opened()
        try:
            while True:
                wanted = size if until is None else min(size, until - self.at)
                data = os.pread(fd, wanted, self.at) if wanted > 0 else b""
                end = data.rfind(b"\n") + 1
                if end or len(data) < size:
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
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


class TapeBatches(TapeReader):
    """The records of one tape in batches, from record `from_n` on; of a live tape also those still to come."""

    def __init__(
        self, stream: str, opened: Callable[[], int], from_n: int, live: TapeFile | None, *, waits: bool
    ) -> None:
        super().__init__(opened)
        self._stream = stream
        self._from_n = from_n
        self._live = live
        self._waits = waits

    def __aiter__(self) -> "TapeBatches":
        return self

    async def __anext__(self) -> list[Record]:
        live = self._live
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
        read = partial(self.read, _BATCH_BYTES, until=None if live is None else live.shown)
        try:
            if live is None or live.shown - at > _INLINE_BYTES:
                records = await trio.to_thread.run_sync(read)
            else:
                await trio.lowlevel.checkpoint()
                records = read()
        except FileNotFoundError as error:
            if live is not None and live.broken is not None:
                raise TapeBrokenError(live.broken) from error
            raise StreamMissingError(f"the tape of {self._stream} is gone") from error
        if live is not None and self.at == at:
            raise TapeBrokenError(f"the tape of {self._stream} is shorter than what was written")
        return records
