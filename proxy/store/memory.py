"""A store in memory: for `durability = none`, and for tests under a virtual clock.

It uses no thread and no file, so a clock that jumps as soon as all tasks wait never jumps past our own work.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date

import trio

from wiretape.events.core.errors import LocalError
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from ..memory import Charge
from .catalogue_row import (
    OPENING,
    Alike,
    CatalogueRow,
    StreamRow,
    Wanted,
    key_of,
    read_whole,
    row_of_tape,
)
from .folder import Kept, day_of, expired, is_stream_id
from .store import PAGE_MAX, Filter, Health, SearchError, StoreError, StreamMissingError, WriteTimes
from .tape_file import OpenTape

__all__ = ["MemoryStore"]


class _Tape(OpenTape):
    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        #: Its rows, once it has ended.
        self.ended: CatalogueRow | None = None
        self.records: list[Record] = []
        self.damage: Sequence[Damage] = ()
        self.size = 0

    @property
    def rows(self) -> CatalogueRow:
        """Its rows in a catalogue."""
        return self.ended or CatalogueRow(self.row, ())


class _Batches:
    def __init__(self, tape: _Tape, from_n: int, *, waits: bool) -> None:
        self.damage = tape.damage
        self.cancellable = True
        self.held: Charge | None = None  # not charged: the records are in memory already
        self._tape = tape
        self._at = 0
        self._from_n = from_n
        self._waits = waits

    def __aiter__(self) -> "_Batches":
        return self

    async def __anext__(self) -> list[Record]:
        tape = self._tape
        await trio.lowlevel.checkpoint()
        while True:
            records = [record for record in tape.records[self._at :] if record.n >= self._from_n]
            self._at = len(tape.records)
            if records:
                return records
            if tape.hidden or not self._waits:
                raise StopAsyncIteration
            await tape.wait()


class MemoryStore:
    """A store that keeps every record until it expires."""

    def __init__(self) -> None:
        self.health = Health()
        self.partial, self.late_s, self.shared = "", 0.0, None
        self.write_times = WriteTimes()
        self.on_read: Callable[[StreamRow], None] = lambda _: None  # nothing is read that was not asked for
        self._tapes: dict[str, _Tape] = {}

    async def create(self, stream: str) -> None:
        """Begin a tape."""
        if not is_stream_id(stream):
            raise LocalError(f"not a stream id: {stream[:80]!r}")
        if stream in self._tapes:
            raise StoreError(f"{stream} has a tape already")
        self._tapes[stream] = _Tape(stream)

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Keep one batch."""
        tape = self._tapes.get(stream)
        if tape is None or tape.hidden:
            raise StreamMissingError(f"{stream} is not open")
        for n, record in enumerate(records, len(tape.records)):
            assert record.n == n, f"record {record.n} comes after {n - 1}"
        tape.records += records
        tape.opening |= {record.kind: record.keys for record in records if record.kind in OPENING}
        size = sum(len(encode(record)) for record in records)
        tape.size += size
        if records[-1].kind == "end":
            tape.ended = row or row_of_tape(stream, tape.records)
            tape.hidden = True
        tape.wake()
        return size

    def keep(self, stream: str, records: Sequence[Record], damage: Sequence[Damage] = ()) -> None:
        """Keep a tape that was read from a file, with what is wrong with it."""
        tape = self._tapes[stream] = _Tape(stream)
        tape.records, tape.damage, tape.hidden = list(records), damage, True
        row = row_of_tape(stream, records)
        tape.ended = row._replace(stream=read_whole(row.stream, records)[0])

    async def release(self, stream: str) -> None:
        """Give up a stream."""
        self._tape(stream).hide()

    def read(self, stream: str, from_n: int = 0) -> _Batches:
        """Return the records written so far."""
        return _Batches(self._tape(stream), from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> _Batches:
        """Return the records written so far and those still to come."""
        return _Batches(self._tape(stream), from_n, waits=True)

    def holds(self, stream: str) -> bool:
        """Return whether it has the stream."""
        return stream in self._tapes

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page."""
        if which.text:
            raise SearchError("Texts are searched in a data folder (`durability` is not `none`).")
        rows = [tape.rows.stream for tape in self._tapes.values()]
        return sorted(filter(which.admits, rows), key=lambda row: row.place, reverse=True)[: min(limit, PAGE_MAX)]

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Look among the calls and results of all streams that have ended."""
        rows = [tape.ended for tape in self._tapes.values() if tape.ended is not None]
        return [_alike(rows, one.key[:2] if one.lost else one.key) for one in wanted]

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return all rows of streams that have ended."""
        tapes = (self._tapes[stream] for stream in streams if stream in self._tapes)
        return {tape.stream: tape.ended for tape in tapes if tape.ended is not None}

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return nothing: all that runs is here."""
        del streams
        return ()

    async def recent(self) -> Sequence[StreamRow]:
        """Return nothing: nothing runs elsewhere."""
        return ()

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove tapes that are too old or too many."""
        days: defaultdict[date, list[Kept]] = defaultdict(list)
        live_bytes = 0
        for stream, tape in self._tapes.items():
            if tape.ended is not None:
                created = tape.ended.stream.created
                days[day_of(created)].append(Kept(created, stream, tape.size))
            else:
                live_bytes += tape.size
        by_day = expired(days, days.__getitem__, live_bytes, now, keep)
        gone = [stream for streams in by_day.values() for stream in streams]
        for stream in gone:
            del self._tapes[stream]
        return gone

    async def delete(self, streams: Sequence[str]) -> None:
        """Remove tapes that have ended."""
        for stream in streams:
            self._tapes.pop(stream, None)

    async def aclose(self) -> None:
        """End all followers."""
        for tape in self._tapes.values():
            tape.hide()

    def _tape(self, stream: str) -> _Tape:
        tape = self._tapes.get(stream)
        if tape is None:
            raise StreamMissingError(f"there is no stream {stream}")
        return tape


def _alike(rows: Sequence[CatalogueRow], key: tuple[str, ...]) -> Alike:
    """Return what has this key, or one that begins so."""
    calls = [call for row in rows for call in row.calls if key_of(call)[: len(key)] == key]
    return calls, [answer for row in rows for answer in row.answers if key_of(answer)[: len(key)] == key]
