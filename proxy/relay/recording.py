"""One stream's tape from the writing side: recorder, emitter and store in step, so nothing is shown unwritten."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from dataclasses import replace
from math import inf
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.model import Ending
from wiretape.events.emission.emit import Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Recorder

from ..limits import FRAMES_A_TURN_MAX
from ..store.catalogue_row import CatalogueRow, row_of
from ..store.memory import MemoryStore
from ..store.store import Store, StoreError
from .http_responses import Answer

__all__ = ["Closing", "Taping"]

_MICROSECONDS: Final = 1_000_000
#: Of a stream that one task writes: nothing to wait for.
_ALONE: Final = nullcontext()


def _nobody(_: float) -> None:
    pass


class Closing(NamedTuple):
    """What is left to do for a client whose tape, or our reading of it, failed."""

    #: What goes out behind the bytes that it was shown.
    behind: bytes
    #: Whether that tells how the stream ended.
    tells: bool
    #: The status that was held is on the tape after all, and the frames that were held with it.
    committed: bool
    #: So is the end, as it was meant.
    as_meant: bool


class Taping:
    """Batches of records go to the store, and come back as the frames that may go out because of them."""

    def __init__(
        self,
        stream: str,
        store: Store | None,
        began: float,
        *,
        serve_on: bool = False,
        wrote: Callable[[float], None] = _nobody,
    ) -> None:
        """`wrote` is told how long each batch took: a disk that is full of work is seen there first."""
        self.stream = stream
        self.recorder = Recorder(skim=True)
        self.emitter = Emitter()
        #: None where nothing is taped: by the settings, or after the log failed and the stream goes on (`serve`).
        self.store = store
        self.catalogue_row: CatalogueRow | None = None
        #: It stands in the store.
        self.begun = trio.Event()
        #: Why the stream goes on without a tape (`on_log_failure = serve`).
        self.untaped = ""
        self.written_bytes = 0
        #: Held from the number of a record to its write, by whoever writes while another task may.
        self.turn: AbstractAsyncContextManager[None] = _ALONE
        #: Our own reading of a record failed; it waits to be written.
        self.failed = False
        self._serve_on = serve_on
        self._wrote = wrote
        self._summary = StreamSummary()
        self._began = began
        self._waiting: list[Record] = []

    def shared(self) -> None:
        """Two tasks will write: the one that sends an upload, and its pump, which hears that the client has left."""
        self.turn = trio.Lock()

    def t(self, at: float | None = None) -> int:
        """Microseconds since `open`, of trio's time."""
        return int(((trio.current_time() if at is None else at) - self._began) * _MICROSECONDS)

    def record(
        self, kind: str, keys: Mapping[str, Any] = NO_KEYS, body: bytes | None = None, value: Any = ABSENT
    ) -> Record:
        """The next record, not written yet; `value` is what the body parses to, where that is known."""
        return self.recorder.record(kind, self.t(), keys, body, value=value)

    def later(self, *records: Record) -> None:
        """To be written with the next batch, because nothing is shown on their account."""
        self._waiting += records
        for record in records:
            self.emit(record)

    def hold(self, records: Sequence[Record]) -> None:
        """To be written with the next batch, emitted already, and shown only then."""
        self._waiting += records

    def emit(self, record: Record) -> list[bytes]:
        """What goes out on account of this record, once it is written."""
        frames = self.emitter.feed(record)
        self._summary.take(record, self.emitter.wire)
        return frames

    def emitted(self, records: Sequence[Record], behind: Sequence[Record] = ()) -> list[bytes]:
        """The same of some; where it fails they are not lost, nor are those before them that are not written yet."""
        try:
            return [frame for record in records for frame in self.emit(record)]
        except Exception:
            self._waiting += [*behind, *records]
            self.failed = True
            raise

    def drip(self, at: float, data: bytes) -> bool:
        """Whether this read only prolongs a frame that has begun: then it is taken, and nothing comes of it yet."""
        return self.recorder.drip(int((at - self._began) * _MICROSECONDS), data)

    def read(self, at: float, data: bytes) -> tuple[list[Record], list[bytes]]:
        """The frames that this read completed, and what goes out on their account."""
        return self._some(self.recorder.each(self.t(at), data), inf)

    def turns(self, at: float, data: bytes) -> Iterator[tuple[list[Record], list[bytes]]]:
        """The same in parts, for a read whose frames would hold up all other streams; to be taken to its end."""
        each = self.recorder.each(self.t(at), data)
        while (some := self._some(each, FRAMES_A_TURN_MAX))[0]:
            yield some

    def _some(self, each: Iterator[Record], count: float) -> tuple[list[Record], list[bytes]]:
        records: list[Record] = []
        frames: list[bytes] = []
        try:
            for record in each:
                records.append(record)
                frames += self.emit(record)
                if len(records) >= count:
                    break
        except Exception:
            self._waiting += [*records, *each]
            self.failed = True
            raise
        return records, frames

    async def write(self, records: Sequence[Record]) -> None:
        """One batch, and what waited for it; all of it has been through `emit`."""
        if self._waiting:
            records = [*self._waiting, *records]
            self._waiting = []
        if not records:
            return
        row = None
        if records[-1].kind == "end":
            row = self.catalogue_row = row_of(self.stream, self._summary)
        if self.store is not None:
            began = trio.current_time()
            try:
                self.written_bytes += await self.store.append(self.stream, records, row)
                self._wrote(trio.current_time() - began)
            except StoreError as error:
                if row is not None:
                    self._waiting = list(records)  # the end is tried once more
                await self._failed(error)
            except Exception:
                self._waiting, self.failed = list(records), True
                raise

    async def create(self) -> None:
        """The tape begins; what is uploaded waits for it."""
        if self.store is not None:
            try:
                await self.store.create(self.stream)
            except StoreError as error:
                await self._failed(error)
        self.begun.set()

    async def _failed(self, error: StoreError) -> None:
        """The user knows the price of going on (L6 is given up), and every such stream says so in its ending."""
        if not self._serve_on:
            raise error
        assert self.store is not None
        store, self.store = self.store, None
        self.untaped = str(error)
        if self.catalogue_row is not None:  # it is the end itself
            row = self.catalogue_row.stream
            self.catalogue_row = self.catalogue_row._replace(stream=replace(row, flags=(*row.flags, "untaped")))
        await _released(store, self.stream)

    async def closing(self, shown: int, flag: str, answer: Answer | None = None, *, held: bool = False) -> Closing:
        """After a failure of the log or of our own reading: what goes out behind the bytes shown, as the tape has it.

        The emitter of the live path has had records that the tape has not, or is what failed; so another one reads the
        tape. The `end` is written where there is room for it; else recovery writes its own. The answer, where none was
        given yet, is recorded before it; not where another status was `held`, and can be written now.
        """
        store, self.store = self.store or MemoryStore(), None
        waiting, self._waiting = self._waiting, []
        written = bool(waiting) and await self._closed(store, waiting)
        as_meant = ended = written and waiting[-1].kind == "end"
        committed = written and held
        fresh, live = Emitter(), self._summary
        emitter: Emitter | None = fresh
        self._summary = StreamSummary()
        try:
            behind = await _behind(store, self.stream, shown, fresh, self._summary)
        except Exception:  # noqa: BLE001 - what failed once may fail on every look; the tape ends all the same
            emitter, behind = None, None
        if behind is None and flag == "log_failure" and not self.emitter.wire.finished:
            # The tape cannot even be read: the live emitter knows more than was shown, but nothing false.
            emitter, behind = self.emitter, b""
            self._summary = live
        ending, flags = ("internal", ()) if emitter is None else emitter.ending("internal")
        keys = {"cause": "internal", "ending": ending, "flags": [*flags, flag]}
        if self.recorder.ended:  # it is the end itself that could not be written, or emitted
            records = [] if ended else [Record(0, self.t(), "end", keys)]
        else:
            records = self.recorder.rest(self.t())
            if answer is not None and not committed:
                records.append(self.record("commit", {"status": answer.status}, answer.body))
            records.append(self.recorder.end(self.t(), keys))
            ended = await self._closed(store, records)
        if not ended:
            await _released(store, self.stream)  # who follows it must not wait for what will never be written
        if emitter is None or behind is None:
            return Closing(b"", tells=False, committed=committed, as_meant=as_meant)
        for record in records:
            if ended or record.kind != "rest":  # which is no more than what a frame began with that is lost, too
                behind += b"".join(emitter.feed(record))
                self._summary.take(record, emitter.wire)
        self.catalogue_row = row_of(self.stream, self._summary)
        return Closing(behind, tells=True, committed=committed, as_meant=as_meant)

    async def _closed(self, store: Store, records: Sequence[Record]) -> bool:
        try:
            self.written_bytes += await store.append(self.stream, records)
        except Exception:  # noqa: BLE001 - the client is told, whatever else fails
            return False
        return True

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """What `end` is to say."""
        return self.emitter.ending(cause)


async def _behind(store: Store, stream: str, shown: int, emitter: Emitter, summary: StreamSummary) -> bytes | None:
    """What the tape emits behind so many bytes; None where it cannot be read so far."""
    at, behind = 0, b""
    with suppress(StoreError):
        async for records in store.read(stream):
            for record in records:
                data = b"".join(emitter.feed(record))
                summary.take(record, emitter.wire)
                behind, at = behind + data[max(0, shown - at) :], at + len(data)
    return behind if at >= shown else None


async def _released(store: Store, stream: str) -> None:
    """Nothing more is written on this tape: it lies where it is until the next start."""
    with suppress(StoreError):
        await store.release(stream)
