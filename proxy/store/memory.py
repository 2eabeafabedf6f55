"""A store in memory: for `durability = none`, and for tests under a virtual clock.

It uses no thread and no file, so a clock that jumps as soon as all tasks wait never jumps past our own work.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import trio

from wiretape.events.tape.record import NO_KEYS, Record, encode
from wiretape.events.tape.tape import Damage

from ..config.model import Keep
from .catalogue_row import AnswerRow, CallRow, CatalogueRow, StreamRow, opened_row, row_of_tape
from .following import Wakes
from .linking import NOTHING_RUNS, Fate, Key, Link, fates, key_of, link_of
from .retention import Kept, day_of, expired
from .store import PAGE_MAX, Filter, Health, StoreError, StreamMissingError, checked_stream_id

__all__ = ["MemoryStore"]


class _Tape:
    def __init__(self, stream: str) -> None:
        self.records: list[Record] = []
        self.size = 0
        self.opening: Mapping[str, Any] = NO_KEYS
        self.row = opened_row(stream, NO_KEYS)
        self.calls: Sequence[CallRow] = ()
        self.answers: Sequence[AnswerRow] = ()
        self.closed = False
        self.wakes = Wakes()

    def take(self, records: Sequence[Record], row: CatalogueRow | None) -> None:
        for record in records:
            assert record.n == len(self.records), f"record {record.n} comes after {len(self.records) - 1}"
            self.records.append(record)
            self.size += len(encode(record))
            if record.kind == "open":
                self.opening = record.keys
            if record.kind in ("open", "request"):
                self.row = opened_row(self.row.stream, self.opening, record.keys)
        if records[-1].kind == "end":
            self.row, self.calls, self.answers = row or row_of_tape(self.row.stream, self.records)
            self.closed = True
        self.wakes.wake()


class _Batches:
    def __init__(self, tape: _Tape, from_n: int, *, waits: bool) -> None:
        self.damage: Sequence[Damage] = ()
        self._tape = tape
        self._at = bisect_left(tape.records, from_n, key=lambda record: record.n)
        self._from_n = from_n
        self._waits = waits

    def __aiter__(self) -> "_Batches":
        return self

    async def __anext__(self) -> list[Record]:
        tape = self._tape
        await trio.lowlevel.checkpoint()
        while True:
            records = tape.records[self._at :]
            self._at += len(records)
            if records and records[-1].n >= self._from_n:
                return [record for record in records if record.n >= self._from_n]
            if tape.closed or not self._waits:
                raise StopAsyncIteration
            await tape.wakes.wait()


class MemoryStore:
    """A store that keeps every record until it expires."""

    def __init__(self) -> None:
        self.health = Health()
        self._tapes: dict[str, _Tape] = {}

    async def create(self, stream: str) -> None:
        """Begin a tape."""
        if checked_stream_id(stream) in self._tapes:
            raise StoreError(f"{stream} has a tape already")
        self._tapes[stream] = _Tape(stream)

    async def append(self, stream: str, records: Sequence[Record], row: CatalogueRow | None = None) -> int:
        """Keep one batch."""
        tape = self._tapes.get(stream)
        if tape is None or tape.closed:
            raise StreamMissingError(f"{stream} is not open")
        before = tape.size
        tape.take(records, row)
        return tape.size - before

    async def release(self, stream: str) -> None:
        """Give up a stream."""
        self._close(self._tape(stream))

    def read(self, stream: str, from_n: int = 0) -> _Batches:
        """Return the records written so far."""
        return _Batches(self._tape(stream), from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> _Batches:
        """Return the records written so far and those still to come."""
        return _Batches(self._tape(stream), from_n, waits=True)

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page."""
        rows = [tape.row for tape in self._tapes.values() if which.admits(tape.row)]
        return sorted(rows, key=lambda row: row.place, reverse=True)[: min(limit, PAGE_MAX)]

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]] = NOTHING_RUNS
    ) -> Sequence[Link | None]:
        """Look among the calls of all streams that have ended."""
        return [
            link_of(answer, *_alike(self._tapes.values(), key_of(answer)), running.get(key_of(answer), ()))
            for answer in answers
        ]

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """Return the fates of the calls of a stream that has ended."""
        own = self._tape(stream).calls
        return fates(own, {key_of(call): _alike(self._tapes.values(), key_of(call)) for call in own}, now)

    async def expire(self, now: float, keep: Keep) -> Sequence[str]:
        """Remove tapes that are too old or too many."""
        ended = [tape for tape in self._tapes.values() if tape.row.ending]
        live_bytes = sum(tape.size for tape in self._tapes.values() if not tape.row.ending)
        facts = [Kept(day_of(t.row.created), t.row.created, t.row.stream, t.size) for t in ended]
        gone = expired(facts, live_bytes, now, keep)
        for stream in gone:
            del self._tapes[stream]
        return gone

    async def aclose(self) -> None:
        """End all followers."""
        for tape in self._tapes.values():
            self._close(tape)

    def _tape(self, stream: str) -> _Tape:
        tape = self._tapes.get(stream)
        if tape is None:
            raise StreamMissingError(f"there is no stream {stream}")
        return tape

    @staticmethod
    def _close(tape: _Tape) -> None:
        tape.closed = True
        tape.wakes.wake()


def _alike(tapes: Iterable[_Tape], key: Key) -> tuple[list[CallRow], list[AnswerRow]]:
    """Return all calls and results with this key."""
    tapes = list(tapes)
    calls = [row for tape in tapes for row in tape.calls if key_of(row) == key]
    return calls, [row for tape in tapes for row in tape.answers if key_of(row) == key]
