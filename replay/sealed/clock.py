"""The `clock` line: everything that changes when the same content is recorded again

    {"k":"clock","lines":[0,40,90,2238,713554],"reads":[[42745,1,0],[40838,2,17],...],"also":[[4,42745,"commit",{...}]],
     "open":{"stream":"...","created":...}}

`lines`: the time of each line that is no part of an answer's body. `reads`: of each read of the upstream the time since
the read before it (microseconds), how many frames it completed, and how many bytes of the next one it brought. `late`:
lines of the body completed by the end of the stream instead of a read. `uploads`: of each uploaded body the time and
the end of its pieces. `also`: records that follow so many others.

Without their times, the records of a body that came in pieces are one record, which a reviewer can read.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import groupby, pairwise
from typing import Any, Final, TypeVar

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, is_list, parse
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record, decode, encode

__all__ = ["ANSWER", "TIMED", "UPLOADED", "Clock", "carrying", "clocked", "timed"]

#: The kinds that `body` and `upload` records become.
ANSWER: Final = "answer"
UPLOADED: Final = "uploaded"
_WHOLE: Final = {"body": ANSWER, "upload": UPLOADED}
_PARTS: Final = {name: kind for kind, name in _WHOLE.items()}
_READ: Final = RECEIVED | {ANSWER}
#: Kinds whose place depends on time, or on the client.
TIMED: Final = frozenset({"commit", "keepalive", "gone"})
#: Members of `open` that differ in every recording.
_OF_ONE_RECORDING: Final = ("stream", "created", "created_us", "caller", "trace")
#: A lone surrogate, which JSON can express and bytes cannot.
_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_TOO_LONG: Final = "its clock line describes more than the stream has"

_Item = TypeVar("_Item")


@dataclass(slots=True, kw_only=True)
class Clock:
    """The clock line of one stream."""

    lines: list[int] = field(default_factory=list[int])
    reads: list[list[int]] = field(default_factory=list[list[int]])
    late: list[list[int]] = field(default_factory=list[list[int]])
    uploads: list[list[list[int]]] = field(default_factory=list[list[list[int]]])
    also: list[list[Any]] = field(default_factory=list[list[Any]])
    open: dict[str, Any] = field(default_factory=dict[str, Any])

    def to_keys(self) -> dict[str, Any]:
        """Return the members of the line; empty ones are left out."""
        return {each.name: value for each in fields(self) if (value := getattr(self, each.name))}

    @staticmethod
    def of(keys: Mapping[str, Any]) -> "Clock":
        """Return the clock of a line after checking its types; `timed` checks the rest."""
        rows = {name: as_list(keys.get(name)) for name in ("lines", "reads", "late", "uploads", "also")}
        clock = Clock(**rows, open=as_object(keys.get("open")))
        pieces = [piece for upload in clock.uploads for piece in as_list(upload) or [None]]
        sized = [*((row, 3) for row in clock.reads), *((row, 2) for row in [*clock.late, *pieces])]
        if not _are_numbers(clock.lines) or not all(_are_numbers(row) and len(row) == size for row, size in sized):
            raise TapeError("its clock line holds something that is not a time")
        if not all(map(_is_record_row, clock.also)):
            raise TapeError("its clock line holds something that is not a record")
        if not clock.open.keys() <= {*_OF_ONE_RECORDING}:
            raise TapeError("its clock line may not set these members of the first record")
        return clock


def _are_numbers(row: Any) -> bool:
    return is_list(row) and all(type(value) is int and value >= 0 for value in row)


def _is_record_row(row: Any) -> bool:
    """Return whether a row of `also` is a record that a live tape could hold."""
    match row:
        case [int(at), int(t), str(kind), dict(), *raw] if kind in TIMED and at >= 0 and t >= 0:
            try:
                if not isinstance(decode(encode(Record(0, t, kind, as_object(row[3])))[:-1]), Record):
                    return False
            except AssertionError:
                return False
            return not raw or (len(raw) == 1 and isinstance(raw[0], str) and _SURROGATE.search(raw[0]) is None)
        case _:
            return False


def carrying(record: Record, raw: bytes) -> Record:
    """Return the record with these bytes as a recorder writes them: JSON on one line becomes `data`."""
    value = parse(raw) if b"\n" not in raw else ABSENT
    return record._replace(raw=raw, payload=None if value is ABSENT else raw, value=value, shape=None, texts=())


# -- apart ------------------------------------------------------------------------------------------------------------


def clocked(records: Sequence[Record]) -> tuple[Clock, list[Record]]:
    """Return the clock, and the records without times, cuts, and those that depend on time alone."""
    clock, t_read = Clock(), 0

    def read_at(t: int) -> list[int]:
        nonlocal t_read
        if not clock.reads or t != t_read:
            clock.reads.append([t - t_read, 0, 0])
            t_read = t
        return clock.reads[-1]

    kept: list[Record] = []
    for record in records:
        row = _row(record, len(kept)) if kept else None  # the first line comes before the clock
        if row is None:
            kept.append(record)
        else:
            clock.also.append(row)
    lines: list[Record] = []
    for record in _joined(kept):
        size, start = len(record.raw or b""), 0
        out: tuple[str, ...] = ("cuts",)
        if record.kind in _READ:
            for t, end in record.keys.get("cuts", ()):
                read_at(t)[2] += end - start
                start = end
            if start < size:
                read_at(record.t)[1] += 1
            else:
                clock.late.append([len(lines), record.t])
        elif record.kind == UPLOADED:
            clock.uploads.append([*record.keys.get("cuts", ()), [record.t, size]])
        else:
            clock.lines.append(record.t)
            out = ()
            if not lines and record.kind == "open":
                clock.open = {name: record.keys[name] for name in _OF_ONE_RECORDING if name in record.keys}
                out = _OF_ONE_RECORDING
        keys = {name: value for name, value in record.keys.items() if name not in out}
        lines.append(record._replace(n=0, t=0, keys=keys or NO_KEYS))
    return clock, lines


def _row(record: Record, at: int) -> list[Any] | None:
    """Return the row of a record that depends on time; None for one that needs a line."""
    if record.kind not in TIMED:
        return None
    row: list[Any] = [at, record.t, record.kind, dict(record.keys)]
    if record.raw is None:
        return row
    try:  # what we send ourselves is text
        return [*row, record.raw.decode()] if record.payload == carrying(record, record.raw).payload else None
    except UnicodeDecodeError:
        return None


def _joined(records: Sequence[Record]) -> Iterator[Record]:
    """Join each run of `body` or `upload` records; a run that no recorder makes stays as it is."""
    for kind, run in groupby(records, key=lambda record: record.kind):
        some = list(run)
        rising = kind != "body" or all(earlier.t < later.t for earlier, later in pairwise(some))
        pieces = (not each.keys and each.raw and each.payload == _piece(each, each.raw).payload for each in some)
        if kind not in _WHOLE or not rising or not all(pieces):
            yield from some
            continue
        cuts: list[list[int]] = []
        for record in some[:-1]:
            cuts.append([record.t, (cuts[-1][1] if cuts else 0) + len(record.raw or b"")])
        raw = b"".join(record.raw or b"" for record in some)
        yield Record(some[0].n, some[-1].t, _WHOLE[kind], {"cuts": cuts} if cuts else NO_KEYS, raw)


def _piece(record: Record, raw: bytes) -> Record:
    return carrying(record, raw) if record.kind == "body" else record._replace(raw=raw, payload=None, value=ABSENT)


# -- together ---------------------------------------------------------------------------------------------------------


def timed(lines: Sequence[Record], clock: Clock) -> list[Record]:
    """Return the original records. Each keeps the `n` of its line; those from the clock get 1, the clock's place."""
    times, uploads, late = iter(clock.lines), iter(clock.uploads), {row[0]: row[1] for row in clock.late}
    places = _Places(clock.reads)
    kept: list[Record] = []
    for at, record in enumerate(lines):
        body = record.kind in _READ or record.kind == UPLOADED
        if body and "cuts" in record.keys:
            raise TapeError("a line states where reads ended, which only its clock line may do")
        if not body:
            keys = record.keys if at or not clock.open else {**record.keys, **clock.open}
            kept.append(record._replace(t=_next(times), keys=keys))
            continue
        if record.kind == UPLOADED:
            *cuts, (t, _) = _next(uploads) or [[0, 0]]
        else:
            t, cuts = places.of(record, late.get(at))
        if record.kind in _PARTS:
            kept += _pieces(record, t, cuts)
        else:
            kept.append(record._replace(t=t, keys={**record.keys, "cuts": cuts} if cuts else record.keys))
    if next(times, None) is not None or next(uploads, None) is not None or not places.exhausted:
        raise TapeError(_TOO_LONG)
    return _with_rows(kept, clock.also)


def _pieces(record: Record, t: int, cuts: Sequence[Sequence[int]]) -> Iterator[Record]:
    """Split a body where its pieces ended."""
    raw, start = record.raw or b"", 0
    for t_piece, end in (*cuts, (t, len(raw))):
        yield _piece(Record(record.n, t_piece, _PARTS[record.kind]), raw[start:end])
        start = end


def _next(items: Iterator[_Item]) -> _Item:
    item = next(items, None)
    if item is None:
        raise TapeError("its clock line is too short")
    return item


def _with_rows(kept: Sequence[Record], rows: Sequence[Sequence[Any]]) -> list[Record]:
    records: list[Record] = []
    left = [*reversed(rows)]
    for at in range(len(kept) + 1):
        while left and left[-1][0] == at:
            _, t, kind, keys, *raw = left.pop()
            record = Record(1, t, kind, keys or NO_KEYS)
            records.append(carrying(record, raw[0].encode()) if raw else record)
        records += kept[at : at + 1]
    if left:
        raise TapeError(_TOO_LONG)
    return records


class _Places:
    """The reads of a stream, and how far they are used."""

    def __init__(self, rows: Sequence[Sequence[int]]) -> None:
        self._rows = rows
        self._at = -1
        self._t = self._frames = self._extra = 0

    @property
    def exhausted(self) -> bool:
        return not self._frames and not self._extra and self._at + 1 >= len(self._rows)

    def of(self, record: Record, late: int | None) -> tuple[int, list[list[int]]]:
        """Return when this record was complete, and where in it reads ended."""
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
                raise TapeError("its clock line cuts after the end of a record")
            cuts.append([self._t, start])

    def _next(self) -> None:
        self._at += 1
        if self._at >= len(self._rows):
            raise TapeError("its clock line has too few reads")
        gap, self._frames, self._extra = self._rows[self._at]
        if not self._frames and not self._extra:
            raise TapeError("its clock line has an empty read")
        self._t += gap
