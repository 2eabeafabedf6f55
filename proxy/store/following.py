"""Readers of a tape in this process: each pulls by position at its own pace, and an append wakes those that wait."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import trio

from wiretape.events.tape.record import NO_KEYS, Record, decode
from wiretape.events.tape.tape import Damage, Reader

from .catalogue_row import opened_row
from .store import StreamMissingError, TapeBrokenError
from .tape_file import TapeFile, read_at

__all__ = ["EndedBatches", "LiveBatches", "LiveTape", "Wakes"]

#: Read at once of a live tape, inline: the kernel has just had it, and 250 records take 1 ms to decode.
_CHUNK_BYTES: Final = 64 * 1024
#: A line longer than a chunk is read in growing steps, so that it takes few, up to what a read of 0.5 ms brings.
_CHUNK_BYTES_MAX: Final = 1024 * 1024
#: A last batch up to this size is kept for those who follow closely, so they neither read nor decode.
_LAST_BYTES_MAX: Final = 16 * 1024
#: Lines of more than this are decoded in a thread (the loop may stall for 10 ms at most).
_INLINE_BYTES_MAX: Final = 256 * 1024


class Wakes:
    """Who waits for more. Costs nothing while nobody does."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def wake(self) -> None:
        """All of them, once."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Until the next `wake`."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class LiveTape:
    """A tape that this process writes, as far as readers may see it."""

    # fmt: off
    __slots__ = (
        "closed", "last", "last_at", "lost", "next_n", "opening", "row", "shown", "tape", "wakes", "writing",
    )
    # fmt: on

    def __init__(self, stream: str, tape: TapeFile) -> None:
        self.tape = tape
        self.opening: Mapping[str, Any] = NO_KEYS
        self.row = opened_row(stream, NO_KEYS)
        self.next_n = 0
        #: A batch was refused, so numbers may be missing.
        self.lost = False
        self.writing = False
        #: Bytes that readers may see; at level `disk` fewer than are written.
        self.shown = 0
        #: The batch that begins at `last_at` and ends at `shown`, unless it is large.
        self.last: Sequence[Record] = ()
        self.last_at = 0
        self.closed = False
        self.wakes = Wakes()

    def show(self, records: Sequence[Record], at: int) -> None:
        """The batch that was written at this byte."""
        self.shown = self.tape.size
        self.last = records if self.shown - at <= _LAST_BYTES_MAX else ()
        self.last_at = at
        self.wakes.wake()

    def close(self) -> None:
        """Nothing more will be shown."""
        self.closed = True
        self.last = ()
        self.wakes.wake()


class LiveBatches:
    """Of a tape that is being written; goes on when it has ended and moved."""

    def __init__(self, live: LiveTape, from_n: int, *, waits: bool) -> None:
        self.damage: list[Damage] = []
        self._live = live
        self._from_n = from_n
        self._waits = waits
        #: Read up to here, of which the tail is the beginning of a line.
        self._at = 0
        self._tail = bytearray()

    def __aiter__(self) -> "LiveBatches":
        return self

    async def __anext__(self) -> list[Record]:
        live = self._live
        while True:
            if self._at < live.shown:
                records = await self._more()
                if records:
                    return records
            elif live.closed or not self._waits:
                if self._waits and live.tape.broken is not None:
                    raise TapeBrokenError(live.tape.broken)
                raise StopAsyncIteration
            else:
                await live.wakes.wait()

    async def _more(self) -> list[Record]:
        live = self._live
        await trio.lowlevel.checkpoint()
        if live.last and live.last_at == self._at and not self._tail:
            records = list(live.last)
            self._at = live.shown
        else:
            records = await self._read()
        if records and records[0].n < self._from_n:
            records = [record for record in records if record.n >= self._from_n]
        return records

    async def _read(self) -> list[Record]:
        size = min(max(_CHUNK_BYTES, len(self._tail)), _CHUNK_BYTES_MAX, self._live.shown - self._at)
        try:
            data = self._live.tape.read(self._at, size)
        except FileNotFoundError as error:
            if self._live.tape.broken is not None:
                raise TapeBrokenError(self._live.tape.broken) from error
            raise StreamMissingError(f"the tape of {self._live.row.stream} is gone") from error
        if not data:
            raise TapeBrokenError(f"{self._live.row.stream} is shorter than what was written")
        at = self._at - len(self._tail)
        self._at += len(data)
        self._tail += data
        end = self._tail.rfind(b"\n") + 1
        if not end:
            return []
        lines = bytes(self._tail[:end])
        del self._tail[:end]
        if len(lines) <= _INLINE_BYTES_MAX:
            return self._decode(lines, at)
        return await trio.to_thread.run_sync(self._decode, lines, at)

    def _decode(self, lines: bytes, at: int) -> list[Record]:
        records: list[Record] = []
        for line in lines[:-1].split(b"\n"):
            record = decode(line)
            if isinstance(record, Record):
                records.append(record)
            else:
                self.damage.append(Damage(at, record))
            at += len(line) + 1
        return records


class EndedBatches:
    """Of a tape that nobody writes any more, all in a thread: its bytes may have to come from the disk."""

    def __init__(self, stream: str, path: Callable[[], str | None], from_n: int) -> None:
        self._stream = stream
        self._path = path
        self._from_n = from_n
        self._reader = Reader()
        self._at = 0

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong so far, and where."""
        return self._reader.damage

    def __aiter__(self) -> "EndedBatches":
        return self

    async def __anext__(self) -> list[Record]:
        records = await trio.to_thread.run_sync(self._next)
        if not records:
            raise StopAsyncIteration
        return records

    def _next(self) -> list[Record]:
        path = self._path()
        if path is None:
            raise StreamMissingError(f"{self._stream} has expired")
        while data := read_at(path, self._at, _INLINE_BYTES_MAX):
            self._at += len(data)
            records = [record for record in self._reader.feed(data) if record.n >= self._from_n]
            if records:
                return records
        return []
