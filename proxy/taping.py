"""One stream's tape from the writing side: recorder, emitter and store in step, so nothing is shown unwritten."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from wiretape.events.emit import Emitter
from wiretape.events.model import Ending
from wiretape.events.record import NO_KEYS, Record
from wiretape.events.tape import Recorder

from .entry import Entry, EntryFold
from .store import Store, StoreError

__all__ = ["Taping"]

_MICROSECONDS: Final = 1_000_000


class Taping:
    """Batches of records go to the store, and come back as the frames that may go out because of them."""

    def __init__(self, stream: str, store: Store | None, began: float, *, serve_on: bool = False) -> None:
        self.stream = stream
        self.recorder = Recorder()
        self.emitter = Emitter()
        #: None where nothing is taped: by the settings, or after the log failed and the stream goes on (`serve`).
        self.store = store
        self.entry: Entry | None = None
        #: It stands in the store.
        self.begun = trio.Event()
        #: Why the stream goes on without a tape (`on_log_failure = serve`).
        self.untaped = ""
        self.written_bytes = 0
        self._serve_on = serve_on
        self._fold = EntryFold(stream, self.emitter)
        self._began = began
        self._waiting: list[Record] = []

    def t(self, at: float | None = None) -> int:
        """Microseconds since `open`, of trio's time."""
        return int(((trio.current_time() if at is None else at) - self._began) * _MICROSECONDS)

    def record(self, kind: str, keys: Mapping[str, Any] = NO_KEYS, body: bytes | None = None) -> Record:
        """The next record, not written yet."""
        return self.recorder.record(kind, self.t(), keys, body)

    def later(self, *records: Record) -> None:
        """To be written with the next batch, because nothing is shown on their account."""
        for record in records:
            self.emit(record)
        self._waiting += records

    def emit(self, record: Record) -> list[bytes]:
        """What goes out on account of this record, once it is written."""
        frames = self.emitter.feed(record)
        self._fold.look(record)
        self.recorder.familiar = self.emitter.stream.familiar
        return frames

    def read(self, at: float, data: bytes) -> tuple[list[Record], list[bytes]]:
        """The frames that this read completed, and what goes out on their account; familiar ones need no look."""
        records: list[Record] = []
        frames: list[bytes] = []
        recorder = self.recorder
        for record in recorder.each(self.t(at), data):
            records.append(record)
            if recorder.familiar is not None and record.value is recorder.familiar:
                assert record.raw is not None
                frames.append(record.raw)
            else:
                frames += self.emit(record)
        return records, frames

    async def write(self, records: Sequence[Record]) -> None:
        """One batch, and what waited for it; all of it has been through `emit`."""
        if self._waiting:
            records = [*self._waiting, *records]
            self._waiting = []
        if not records:
            return
        entry = None
        if records[-1].kind == "end":
            entry = self.entry = self._fold.entry()
        if self.store is not None:
            try:
                await self.store.append(self.stream, records, entry)
            except StoreError as error:
                self._failed(error)

    async def create(self) -> None:
        """The tape begins; what is uploaded waits for it."""
        if self.store is not None:
            try:
                await self.store.create(self.stream)
            except StoreError as error:
                self._failed(error)
        self.begun.set()

    def _failed(self, error: StoreError) -> None:
        """The user knows the price of going on (L6 is given up), and every such stream says so in its ending."""
        if not self._serve_on:
            raise error
        self.untaped, self.store = str(error), None

    async def closing(self, shown: int) -> list[bytes]:
        """After a batch that could not be written: what goes out behind the bytes shown, as the tape will have it.

        The emitter of the live path has had records that the tape has not, so another one reads the tape. The `end` is
        written where there is room for it; else recovery writes its own.
        """
        store, self.store = self.store, None
        assert store is not None, "nothing failed to be written"
        emitter, sent = Emitter(), 0
        async for records in store.read(self.stream):
            sent += sum(len(frame) for record in records for frame in emitter.feed(record))
        assert sent == shown, "what was shown is what the tape emits"
        ending, flags = emitter.ending("internal")
        keys = {"cause": "internal", "ending": ending, "flags": [*flags, "log_failure"]}
        if self.recorder.ended:  # it is the end itself that could not be written
            return emitter.feed(Record(0, self.t(), "end", keys))
        self.recorder.rest(self.t())
        record = self.recorder.end(self.t(), keys)
        frames = emitter.feed(record)
        self._fold.look(record)
        self.entry = self._fold.entry()
        with suppress(StoreError):
            await store.append(self.stream, [record])
        return frames

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """What `end` is to say."""
        return self.emitter.ending(cause)
