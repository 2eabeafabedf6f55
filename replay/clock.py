"""What changes from one recording of the same content to the next: times, read boundaries, who we were; apart in a line

    {"k":"clock","lines":[0,40,90,2238,713554],"reads":[[42745,1,0],[40838,2,17],...],"also":[[4,42745,"commit",{...}]],
     "open":{"stream":"...","created":...}}

`lines`: the time of each line that is no part of an answer's body. `reads`: of each read of the upstream the time since
the read before it (microseconds), how many frames it completed, and how many bytes of the next one it brought. `late`:
lines of the body that were completed by no read, but by the end. `also`: records behind so many lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from wiretape.events.errors import TapeError
from wiretape.events.json_text import ABSENT, as_list, as_object, is_list, parse
from wiretape.events.record import NO_KEYS, Record

__all__ = ["Clock", "clocked", "timed"]

#: Kinds that carry what the upstream sent.
_RECEIVED: Final = frozenset({"frame", "rest", "body"})
#: Kinds that stand where they stand because of the clock, or of the client.
_BESIDE: Final = frozenset({"commit", "keepalive", "gone"})
#: What `open` says of one recording and of no other.
_OF_ONE_RECORDING: Final = ("stream", "created", "created_us", "caller")


@dataclass(slots=True, kw_only=True)
class Clock:
    """Of one stream."""

    lines: list[int] = field(default_factory=list[int])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    late: list[list[int]] = field(default_factory=list[list[int]])
    also: list[list[Any]] = field(default_factory=list[list[Any]])
    open: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_keys(self) -> dict[str, Any]:
        """As the line says it; what is empty is left out."""
        keys = {"lines": self.lines, "reads": self.reads, "late": self.late, "also": self.also, "open": self.open}
        return {name: value for name, value in keys.items() if value}

    @staticmethod
    def of(keys: Mapping[str, Any]) -> "Clock":
        """From a line, whose shape is checked here and its sense by `timed`."""
        clock = Clock(
            lines=as_list(keys.get("lines")),
            reads=as_list(keys.get("reads")),
            late=as_list(keys.get("late")),
            also=as_list(keys.get("also")),
            open=as_object(keys.get("open")),
        )
        if not all(map(_are_numbers, [clock.lines, *clock.reads, *clock.late])) or any(
            len(row) != 3 for row in clock.reads
        ):
            raise TapeError("its clock line holds something that is no time")
        if not all(_is_beside(row) for row in clock.also) or any(len(row) != 2 for row in clock.late):
            raise TapeError("its clock line holds a record that is none")
        return clock


def _are_numbers(row: Any) -> bool:
    return is_list(row) and all(type(value) is int and value >= 0 for value in row)


def _is_beside(row: Any) -> bool:
    match row:
        case [int(at), int(t), str(), dict()]:
            return at >= 0 and t >= 0
        case [int(at), int(t), str(), dict(), str()]:
            return at >= 0 and t >= 0
        case _:
            return False


# -- apart ------------------------------------------------------------------------------------------------------------


def clocked(records: Sequence[Record]) -> tuple[Clock, list[Record]]:
    """The clock, and the records without what is in it: no times, no cuts, none that stand by the clock alone."""
    clock, reads = Clock(), _Reads()
    kept: list[Record] = []
    for record in records:
        out: tuple[str, ...] = ()
        if record.kind in _BESIDE:
            row: list[Any] = [len(kept), record.t, record.kind, dict(record.keys)]
            # What the client was given of our own is text.
            clock.also.append(row if record.raw is None else [*row, record.raw.decode()])
            continue
        if record.kind in _RECEIVED:
            if not reads.take(record):
                clock.late.append([len(kept), record.t])
            out = ("cuts",)
        else:
            clock.lines.append(record.t)
            if not kept and record.kind == "open":
                clock.open = {name: record.keys[name] for name in _OF_ONE_RECORDING if name in record.keys}
                out = _OF_ONE_RECORDING
        kept.append(_without(record, out)._replace(n=0, t=0))
    clock.reads = reads.rows
    return clock, kept


def _without(record: Record, names: Sequence[str]) -> Record:
    if not any(name in record.keys for name in names):
        return record
    return record._replace(keys={name: value for name, value in record.keys.items() if name not in names} or NO_KEYS)


class _Reads:
    """Bytes with their times to reads."""

    def __init__(self) -> None:
        self.rows: list[list[int]] = []
        self._t = 0

    def take(self, record: Record) -> bool:
        """The bytes of one record; False where no read completed it."""
        size, start = len(record.raw or b""), 0
        for t, end in record.keys.get("cuts", ()):
            self._read(t)[2] += end - start
            start = end
        if start == size:
            return False
        self._read(record.t)[1] += 1
        return True

    def _read(self, t: int) -> list[int]:
        if not self.rows or t != self._t:
            self.rows.append([t - self._t, 0, 0])
            self._t = t
        return self.rows[-1]


# -- together ---------------------------------------------------------------------------------------------------------


def timed(kept: Sequence[Record], clock: Clock) -> list[Record]:
    """The records again, numbered from 0."""
    lines, late = iter(clock.lines), dict[int, int](map(tuple, clock.late))  # type: ignore[arg-type]
    places, beside = _Places(clock.reads), list(clock.also)
    records: list[Record] = []
    for at, record in enumerate(kept):
        _put_beside(records, beside, at)
        keys: Mapping[str, Any] = record.keys
        if record.kind in _RECEIVED:
            t, cuts = places.of(record, late.get(at))
            keys = {**keys, "cuts": cuts} if cuts else keys
        else:
            t = _next(lines)
            keys = keys if at or not clock.open else {**keys, **clock.open}
        records.append(record._replace(n=len(records), t=t, keys=keys))
    _put_beside(records, beside, len(kept))
    if beside or next(lines, None) is not None or not places.exhausted:
        raise TapeError("its clock line speaks of more than there is")
    return records


def _next(times: Iterator[int]) -> int:
    t = next(times, None)
    if t is None:
        raise TapeError("its clock line is too short")
    return t


def _put_beside(records: list[Record], beside: list[list[Any]], at: int) -> None:
    while beside and beside[0][0] == at:
        _, t, kind, keys, *raw = beside.pop(0)
        record = Record(len(records), t, kind, keys or NO_KEYS)
        records.append(_carrying(record, raw[0].encode()) if raw else record)


def _carrying(record: Record, raw: bytes) -> Record:
    value = parse(raw) if b"\n" not in raw else ABSENT
    return record._replace(raw=raw, payload=None if value is ABSENT else raw, value=value)


class _Places:
    """Reads to bytes with their times."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self._rows = rows
        self._at = -1
        self._t = self._frames = self._extra = 0

    @property
    def exhausted(self) -> bool:
        """Nothing is left of any read."""
        return not self._frames and not self._extra and self._at + 1 >= len(self._rows)

    def of(self, record: Record, late: int | None) -> tuple[int, list[list[int]]]:
        """When this record was complete, and where in it reads ended."""
        size, start = len(record.raw or b""), 0
        cuts: list[list[int]] = []
        while True:
            if not self._frames and not self._extra:
                if late is not None and start == size:
                    return late, cuts
                self._next()
            if self._frames:
                self._frames -= 1
                return self._t, cuts
            start, self._extra = start + self._extra, 0
            if start > size:
                raise TapeError("its clock line cuts behind the end of a record")
            cuts.append([self._t, start])

    def _next(self) -> None:
        self._at += 1
        if self._at >= len(self._rows):
            raise TapeError("its clock line has too few reads")
        gap, self._frames, self._extra = self._rows[self._at]
        if not self._frames and not self._extra:
            raise TapeError("its clock line has a read of nothing")
        self._t += gap
