"""What changes from one recording of the same content to the next: times, read boundaries, who we were; apart in a line

    {"k":"clock","lines":[0,40,90,2238,713554],"reads":[[42745,1,0],[40838,2,17],...],"also":[[4,42745,"commit",{...}]],
     "open":{"stream":"...","created":...}}

`lines`: the time of each line that is no part of an answer's body. `reads`: of each read of the upstream the time since
the read before it (microseconds), how many frames it completed, and how many bytes of the next one it brought. `late`:
lines of the body that were completed by no read, but by the end. `uploads`: of each uploaded body its pieces, when each
came and where it ends. `also`: records behind so many others.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, is_list
from wiretape.events.tape.record import NO_KEYS, Record, decode, encode

from .joined_bodies import ANSWER, UPLOADED, carrying, parted, whole

__all__ = ["BESIDE", "Clock", "clocked", "timed"]

#: Kinds that carry what the upstream sent.
_RECEIVED: Final = frozenset({"frame", "rest", "body", ANSWER})
#: Kinds that stand where they stand because of the clock, or of the client.
BESIDE: Final = frozenset({"commit", "keepalive", "gone"})
#: What `open` says of one recording and of no other.
_OF_ONE_RECORDING: Final = ("stream", "created", "created_us", "caller")

#: Half a character, which JSON can say, and no bytes.
_HALF: Final = re.compile("[\ud800-\udfff]")
#: Where the clock line stands in its stream.
_PLACE: Final = 1

_Timed = TypeVar("_Timed")


@dataclass(slots=True, kw_only=True)
class Clock:
    """Of one stream."""

    lines: list[int] = field(default_factory=list[int])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    late: list[list[int]] = field(default_factory=list[list[int]])
    uploads: list[list[list[int]]] = field(default_factory=list[list[list[int]]])
    also: list[list[Any]] = field(default_factory=list[list[Any]])
    open: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_keys(self) -> dict[str, Any]:
        """As the line says it; what is empty is left out."""
        keys = {
            "lines": self.lines,
            "reads": self.reads,
            "late": self.late,
            "uploads": self.uploads,
            "also": self.also,
            "open": self.open,
        }
        return {name: value for name, value in keys.items() if value}

    @staticmethod
    def of(keys: Mapping[str, Any]) -> "Clock":
        """From a line, whose shape is checked here and its sense by `timed`."""
        clock = Clock(
            lines=as_list(keys.get("lines")),
            reads=as_list(keys.get("reads")),
            late=as_list(keys.get("late")),
            uploads=as_list(keys.get("uploads")),
            also=as_list(keys.get("also")),
            open=as_object(keys.get("open")),
        )
        pieces = [piece for upload in clock.uploads for piece in as_list(upload) or [None]]
        if not all(map(_are_numbers, [clock.lines, *clock.reads, *clock.late, *pieces])) or any(
            len(row) != 3 for row in clock.reads
        ):
            raise TapeError("its clock line holds something that is no time")
        if not all(_is_beside(row) for row in clock.also) or any(len(row) != 2 for row in [*clock.late, *pieces]):
            raise TapeError("its clock line holds a record that is none")
        if not clock.open.keys() <= {*_OF_ONE_RECORDING}:
            raise TapeError("its clock line says of its first record what it may not")
        return clock


def _are_numbers(row: Any) -> bool:
    return is_list(row) and all(type(value) is int and value >= 0 for value in row)


def _is_beside(row: Any) -> bool:
    match row:
        case [int(at), int(t), str(kind), dict(), *raw] if kind in BESIDE:
            return at >= 0 and t >= 0 and _is_record(Record(0, t, kind, as_object(row[3]))) and _is_text(raw)
        case _:
            return False


def _is_record(record: Record) -> bool:
    """Whether a line of a live tape could say it."""
    try:
        return isinstance(decode(encode(record)[:-1]), Record)
    except AssertionError:
        return False


def _is_text(raw: Sequence[Any]) -> bool:
    """None, or one that is bytes."""
    match raw:
        case []:
            return True
        case [str(text)]:
            return _HALF.search(text) is None
        case _:
            return False


# -- apart ------------------------------------------------------------------------------------------------------------


def clocked(records: Sequence[Record]) -> tuple[Clock, list[Record]]:
    """The clock, and the records without what is in it: no times, no cuts, none that stand by the clock alone."""
    clock, reads = Clock(), _Reads()
    kept: list[Record] = []
    for record in records:
        # The first line is never one of the clock's: that stands behind it.
        row = _beside(record, len(kept)) if kept else None
        if row is None:
            kept.append(record)
        else:
            clock.also.append(row)
    lines: list[Record] = []
    for record in whole(kept):
        out: tuple[str, ...] = ()
        if record.kind in _RECEIVED:
            if not reads.take(record):
                clock.late.append([len(lines), record.t])
            out = ("cuts",)
        elif record.kind == UPLOADED:
            clock.uploads.append([*record.keys.get("cuts", ()), [record.t, len(record.raw or b"")]])
            out = ("cuts",)
        else:
            clock.lines.append(record.t)
            if not lines and record.kind == "open":
                clock.open = {name: record.keys[name] for name in _OF_ONE_RECORDING if name in record.keys}
                out = _OF_ONE_RECORDING
        lines.append(_without(record, out)._replace(n=0, t=0))
    clock.reads = reads.rows
    return clock, lines


def _beside(record: Record, at: int) -> list[Any] | None:
    """Its row; None for a record that has to be a line."""
    if record.kind not in BESIDE:
        return None
    row: list[Any] = [at, record.t, record.kind, dict(record.keys)]
    if record.raw is None:
        return row
    if record.payload != carrying(record, record.raw).payload:
        return None
    try:  # what the client was given of our own is text
        return [*row, record.raw.decode()]
    except UnicodeDecodeError:
        return None


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


def timed(lines: Sequence[Record], clock: Clock) -> list[Record]:
    """The records again; `n` is of each the place of its line, as it came, and 1 of those that stand here."""
    times, late = iter(clock.lines), dict[int, int](map(tuple, clock.late))  # type: ignore[arg-type]
    places, uploads = _Places(clock.reads), iter(clock.uploads)
    kept: list[Record] = []
    for at, record in enumerate(lines):
        keys: Mapping[str, Any] = record.keys
        if "cuts" in keys and (record.kind in _RECEIVED or record.kind == UPLOADED):
            raise TapeError("a line says itself where reads ended, which its clock line says")
        if record.kind in _RECEIVED:
            t, cuts = places.of(record, late.get(at))
            keys = {**keys, "cuts": cuts} if cuts else keys
        elif record.kind == UPLOADED:
            *cuts, (t, _) = _next(uploads) or [[0, 0]]
            keys = {**keys, "cuts": cuts}
        else:
            t = _next(times)
            keys = keys if at or not clock.open else {**keys, **clock.open}
        kept.append(record._replace(t=t, keys=keys))
    if next(times, None) is not None or next(uploads, None) is not None or not places.exhausted:
        raise TapeError("its clock line speaks of more than there is")
    return _with_beside(parted(kept), clock.also)


def _next(times: Iterator[_Timed]) -> _Timed:
    t = next(times, None)
    if t is None:
        raise TapeError("its clock line is too short")
    return t


def _with_beside(kept: Sequence[Record], rows: Sequence[Sequence[Any]]) -> list[Record]:
    records: list[Record] = []
    beside = iter(rows)
    row = next(beside, None)
    for at in range(len(kept) + 1):
        while row is not None and row[0] == at:
            _, t, kind, keys, *raw = row
            record = Record(_PLACE, t, kind, keys or NO_KEYS)
            records.append(carrying(record, raw[0].encode()) if raw else record)
            row = next(beside, None)
        if at < len(kept):
            records.append(kept[at])
    if row is not None:
        raise TapeError("its clock line speaks of more than there is")
    return records


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
