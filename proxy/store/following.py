"""Readers of tapes inside this process: each pulls by position at its own pace, and an append wakes those that wait."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import trio

from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Damage

from .catalogue_row import opened_row
from .store import StreamMissingError, TapeBrokenError
from .tape_file import TapeFile, TapeReader

__all__ = ["LiveTape", "TapeBatches", "Wakes"]

#: One read of a live tape, in the loop: the kernel has just had these bytes, and 250 records decode in 1 ms.
_LIVE_BYTES: Final = 64 * 1024
#: One read of an ended tape, in a thread: its bytes may have to come from the disk.
_ENDED_BYTES: Final = 256 * 1024


class Wakes:
    """A signal to every waiting task. Costs nothing while none waits."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: trio.Event | None = None

    def wake(self) -> None:
        """Wake all waiting tasks, once."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `wake`."""
        if self._event is None:
            self._event = trio.Event()
        await self._event.wait()


class LiveTape:
    """A tape that this process writes, as far as readers may see it."""

    __slots__ = ("closed", "lost", "next_n", "opening", "request", "row", "shown", "tape", "wakes", "writing")

    def __init__(self, stream: str, tape: TapeFile) -> None:
        self.tape = tape
        self.opening: Mapping[str, Any] = NO_KEYS
        self.request: Mapping[str, Any] = NO_KEYS
        self.row = opened_row(stream, NO_KEYS)
        self.next_n = 0
        #: A batch was refused, so numbers may be missing.
        self.lost = False
        self.writing = False
        #: Bytes that readers may see; with `durability = disk` fewer than are written.
        self.shown = 0
        self.closed = False
        self.wakes = Wakes()

    def describe(self, records: Sequence[Record]) -> None:
        """Take the facts of the stream from its first records."""
        before = self.opening, self.request
        for record in records:
            if record.kind == "open":
                self.opening = record.keys
            elif record.kind == "request":
                self.request = record.keys
        if (self.opening, self.request) != before:
            self.row = opened_row(self.row.stream, self.opening, self.request)

    def close(self) -> None:
        """Show nothing more."""
        self.closed = True
        self.wakes.wake()


class TapeBatches:
    """The records of one tape in batches, from record `from_n` on; of a live tape also those still to come."""

    def __init__(self, stream: str, reader: TapeReader, from_n: int, live: LiveTape | None, *, waits: bool) -> None:
        self._stream = stream
        self._reader = reader
        self._from_n = from_n
        self._live = live
        self._waits = waits

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong so far, and where."""
        return self._reader.damage

    def __aiter__(self) -> "TapeBatches":
        return self

    async def __anext__(self) -> list[Record]:
        live, reader = self._live, self._reader
        while True:
            if live is None:
                records = await trio.to_thread.run_sync(self._read_ended)
                if not records:
                    raise StopAsyncIteration
            elif reader.at < live.shown:
                await trio.lowlevel.checkpoint()
                records = await self._read_live(live)
            elif live.closed or not self._waits:
                if self._waits and live.tape.broken is not None:
                    raise TapeBrokenError(live.tape.broken)
                raise StopAsyncIteration
            else:
                await live.wakes.wait()
                continue
            if records and records[0].n < self._from_n:
                records = [record for record in records if record.n >= self._from_n]
            if records:
                return records

    def _read_ended(self) -> list[Record]:
        try:
            return self._reader.read(_ENDED_BYTES)
        except FileNotFoundError as error:
            raise StreamMissingError(f"{self._stream} has expired") from error

    async def _read_live(self, live: LiveTape) -> list[Record]:
        at = self._reader.at
        try:
            if live.shown - at > _LIVE_BYTES:  # perhaps a request body of megabytes, on one line
                records = await trio.to_thread.run_sync(lambda: self._reader.read(_LIVE_BYTES, until=live.shown))
            else:
                records = self._reader.read(_LIVE_BYTES, until=live.shown)
        except FileNotFoundError as error:
            if live.tape.broken is not None:
                raise TapeBrokenError(live.tape.broken) from error
            raise StreamMissingError(f"the tape of {self._stream} is gone") from error
        if self._reader.at == at:
            raise TapeBrokenError(f"the tape of {self._stream} is shorter than what was written")
        return records
