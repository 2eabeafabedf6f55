"""Change bytes of a recording in places: everything around them stays, read boundaries and checksums follow"""

import hashlib
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_list, parse
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.wire.sse import parse_block

from .clock import TIMED
from .joined_bodies import carrying

__all__ = ["Change", "Text", "edited", "summed", "texts"]

_RECEIVED: Final = frozenset({"frame", "rest", "body"})
#: Flags of a stream whose tape may be incomplete.
_UNTAPED: Final = frozenset({"untaped", "log_failure", "failed_here"})
#: Kinds of which several records are one text.
_RUNS: Final = frozenset({"body", "upload"})
#: Kinds that may come between two reads of one answer.
_WITHIN_BODY: Final = TIMED | _RUNS
_EVENT: Final = re.compile(rb"event: ([^\r\n]*)\ndata: ")
_DATA_LINE: Final = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")


class Change(NamedTuple):
    """Replaces `raw[start:end]`."""

    start: int
    end: int
    new: bytes


class Text(NamedTuple):
    """Bytes that are read together: a frame, a body in all its reads, or the bytes of another record."""

    kind: str
    #: Places of its records.
    of: tuple[int, ...]
    raw: bytes
    #: Places of its JSON in `raw`, if any: one, or one for each `data` line of a frame.
    spans: Sequence[tuple[int, int]] = ()
    value: Any = ABSENT
    #: Where each of the spans ends in the JSON.
    ends: Sequence[int] = ()

    @property
    def json(self) -> bytes:
        """The JSON of the text, or nothing."""
        if len(self.spans) == 1:
            start, end = self.spans[0]
            return self.raw[start:end]
        return b"\n".join(self.raw[start:end] for start, end in self.spans)

    def place(self, at: int) -> int:
        """Return the place in `raw` of a place in the JSON."""
        number = bisect_left(self.ends, at) if len(self.ends) != 1 else at > self.ends[0]
        assert number < len(self.spans), "no place of the JSON"
        return self.spans[number][1] - (self.ends[number] - at)


# -- texts ------------------------------------------------------------------------------------------------------------


def texts(records: Sequence[Record]) -> list[Text]:
    """Return the texts of one stream, in order."""
    found: list[Text] = []
    body: list[int] = []
    upload: list[int] = []  # the answer may begin before its end
    for at, record in enumerate(records):
        if body and record.kind not in _WITHIN_BODY:
            found.append(_run(records, body))
            body = []
        if record.raw is None:
            continue
        if record.kind == "body":
            body.append(at)
        elif record.kind == "upload":
            upload.append(at)
        else:
            found.append(_text(record, at))
    found += [_run(records, run) for run in (body, upload) if run]
    return sorted(found, key=lambda text: text.of)


def _text(record: Record, at: int) -> Text:
    raw, payload = record.raw or b"", record.payload
    if payload is None:
        return _lines(record, at) if record.kind in ("frame", "rest") else _whole(record.kind, (at,), raw)
    start = 0
    if record.kind == "frame":
        sse: Any = record.keys.get("sse")
        start = len(sse[0].encode()) if sse is not None else len(raw) - 2 - len(payload)
    return _placed(record.kind, (at,), raw, ((start, start + len(payload)),), record.read().value)


def _lines(record: Record, at: int) -> Text:
    """Return the text of a frame that is kept verbatim, with JSON on several lines, or cut off."""
    raw = record.raw or b""
    spans = [match.span(1) for match in _DATA_LINE.finditer(raw)]
    payload = b"\n".join(raw[start:end] for start, end in spans)
    value = parse(payload) if len(spans) > 1 else ABSENT
    begun = record.kind == "rest" and payload[:1] in (b"{", b"[")
    return _placed(record.kind, (at,), raw, () if value is ABSENT and not begun else spans, value)


def _run(records: Sequence[Record], run: Sequence[int]) -> Text:
    return _whole(records[run[0]].kind, tuple(run), b"".join(records[at].raw or b"" for at in run))


def _whole(kind: str, of: tuple[int, ...], raw: bytes) -> Text:
    value = parse(raw)
    return _placed(kind, of, raw, () if value is ABSENT else ((0, len(raw)),), value)


def _placed(kind: str, of: tuple[int, ...], raw: bytes, spans: Sequence[tuple[int, int]], value: Any) -> Text:
    lengths = (end - start for start, end in spans)
    ends = [behind - 1 for behind in accumulate(length + 1 for length in lengths)]
    return Text(kind, of, raw, spans, value, ends)


# -- edits ------------------------------------------------------------------------------------------------------------


def edited(records: Sequence[Record], changes: Sequence[tuple[Text, Sequence[Change]]]) -> list[Record]:
    """Return the records with these changes, which are in order and do not overlap within a text."""
    if not any(some for _, some in changes):
        return list(records)
    new: list[Record | None] = list(records)
    places: dict[int, _Offsets] = {}
    for text, some in changes:
        if not some:
            continue
        offsets = _Offsets(some)
        if text.kind in _RUNS:
            _recut(new, text, offsets)
            continue
        at = text.of[0]
        new[at] = _changed(records[at], text, offsets)
        places[at] = offsets
    return _numbered(_summed(records, _moved(new, records, places)))


class _Offsets:
    """Maps places in the bytes before to places in those after."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = changes
        self._starts = [change.start for change in changes]
        self._grown: list[int] = []
        grown = 0
        for change in changes:
            self._grown.append(grown)
            grown += len(change.new) - (change.end - change.start)

    def apply(self, raw: bytes) -> bytes:
        parts: list[bytes] = []
        at = 0
        for change in self.changes:
            assert at <= change.start <= change.end <= len(raw), "changes are in order and inside the text"
            parts += (raw[at : change.start], change.new)
            at = change.end
        return b"".join([*parts, raw[at:]])

    def __call__(self, place: int) -> int:
        number = bisect_right(self._starts, place) - 1
        if number < 0:
            return place
        start, end, new = self.changes[number]
        if place >= end:
            return place + self._grown[number] + len(new) - (end - start)
        return start + self._grown[number] + min(place - start, len(new))


def _changed(record: Record, text: Text, offsets: _Offsets) -> Record:
    raw = offsets.apply(text.raw)
    cuts = _cuts(record, offsets, len(raw))
    keys = {name: value for name, value in record.keys.items() if name != "cuts"} | ({"cuts": cuts} if cuts else {})
    if record.payload is None:
        return record._replace(raw=raw, keys=keys or NO_KEYS)
    [(first, last)] = text.spans
    if not any(start < edge < end for start, end, _ in offsets.changes for edge in (first, last)):
        payload = raw[offsets(first) : offsets(last)]
        inside = all(first <= start and end <= last for start, end, _ in offsets.changes)
        keys |= {} if inside else _framed(keys, raw[: offsets(first)], raw[offsets(last) :])
        if (value := parse(payload)) is not ABSENT and (inside or _payload(raw, keys) == payload):
            return record._replace(raw=raw, keys=keys or NO_KEYS, payload=payload, value=value, shape=None)
    for name in ("sse", "event"):  # the framing has changed, or it was a number among words: keep it verbatim
        keys.pop(name, None)
    return record._replace(raw=raw, keys=keys or NO_KEYS, payload=None, value=ABSENT, shape=None)


def _framed(keys: Mapping[str, Any], before: bytes, behind: bytes) -> dict[str, Any]:
    """Return the keys for the framing around the JSON of a frame, which is text."""
    event = _EVENT.fullmatch(before) if "event" in keys else None
    if event is not None:
        return {"event": event[1].decode()}
    return {"sse": [before.decode(), behind.decode()]}


def _payload(raw: bytes, keys: Mapping[str, Any]) -> bytes | None:
    return parse_block(raw, first="bom" in keys).payload


def _cuts(record: Record, offsets: _Offsets, size: int) -> list[list[int]]:
    """Return the cuts of the new bytes; a read without bytes left has none."""
    before = len(record.raw or b"")
    cuts: list[list[int]] = []
    rows = filter(_begins_with_numbers, as_list(record.keys.get("cuts")))  # other rows come from another recorder
    for t, place, *_ in rows:
        at = size if place == before else offsets(place)
        if at > (cuts[-1][1] if cuts else 0) and (at < size or place == before):
            cuts.append([t, at])
    return cuts


def _recut(new: list[Record | None], text: Text, offsets: _Offsets) -> None:
    raw = offsets.apply(text.raw)
    before = start = 0
    for number, at in enumerate(text.of):
        record = new[at]
        assert record is not None
        before += len(record.raw or b"")
        end = len(raw) if number + 1 == len(text.of) else offsets(before)
        part = raw[start:end]
        if not part:
            new[at] = None
        elif record.kind == "body":
            new[at] = carrying(record, part)
        else:
            new[at] = record._replace(raw=part)
        start = end


def _moved(
    new: Sequence[Record | None], records: Sequence[Record], places: Mapping[int, _Offsets]
) -> list[Record | None]:
    """Move the places in the request that its history refers to."""
    moved = list(new)
    asked: _Offsets | None = None
    for at, record in enumerate(records):
        if record.kind == "request":
            asked = places.get(at)
        elif record.kind == "history" and asked is not None and (found := moved[at]) is not None:
            edits = [
                [asked(row[0]), asked(row[1]), *row[2:]] if _begins_with_numbers(row) else row
                for row in as_list(record.keys.get("edits"))
            ]
            moved[at] = found._replace(keys={**found.keys, "edits": edits})
    return moved


def _begins_with_numbers(row: Any) -> bool:
    match row:
        case [int(), int(), *_]:
            return True
        case _:
            return False


def _summed(before: Sequence[Record], after: Sequence[Record | None]) -> list[Record | None]:
    """Correct the sums of `end`, which count the bytes of the last attempt."""
    begun = max((at for at, record in enumerate(before) if record.kind == "attempt"), default=0)
    received = _received(after[begun:])
    if received == _received(before[begun:]):
        return list(after)
    return [_with_sums(record, received) if record and record.kind == "end" else record for record in after]


def summed(records: Sequence[Record]) -> list[Record]:
    """Return the records with an `end` that counts their bytes, which may have been edited by hand.

    Not where the log failed: there more came than could be written.
    """
    if not records or not _UNTAPED.isdisjoint(as_list(records[-1].keys.get("flags"))):
        return list(records)
    begun = max((at for at, record in enumerate(records) if record.kind == "attempt"), default=0)
    received = _received(records[begun:])
    return [_with_sums(record, received) if record.kind == "end" else record for record in records]


def _received(records: Sequence[Record | None]) -> bytes:
    return b"".join(record.raw or b"" for record in records if record and record.kind in _RECEIVED)


def _with_sums(end: Record, received: bytes) -> Record:
    sums = {"bytes": len(received), "sha256": hashlib.sha256(received).hexdigest()}
    said = {name: value for name, value in sums.items() if name in end.keys}
    return end._replace(keys={**end.keys, **said})


def _numbered(records: Sequence[Record | None]) -> list[Record]:
    """Drop removed records; `gone` refers to a record by its number."""
    left = [record for record in records if record is not None]
    if len(left) == len(records):
        return left
    number = -1
    numbers: list[int] = []
    for record in records:
        number += record is not None
        numbers.append(max(0, number))
    return [
        record._replace(n=n, keys={**record.keys, "at": numbers[record.keys["at"]]})
        if record.kind == "gone" and type(record.keys.get("at")) is int and record.keys["at"] < len(numbers)
        else record._replace(n=n)
        for n, record in enumerate(left)
    ]
