"""Find every string and number in the texts of a recording, and change bytes in place

Every name, string and number of a text's JSON has a place and a path, read without building a value. An edit keeps all
bytes around it; read boundaries and checksums follow.
"""

import hashlib
import json
import re
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.json_text import ABSENT, Edit, apply, as_list, parse
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record
from wiretape.events.wire.sse import parse_block

from .clock import TIMED, carrying

__all__ = ["ASKED", "Path", "Scalar", "Text", "edited", "scalars", "summed", "texts", "unquoted"]

Path = tuple[str | int, ...]

#: Kinds that carry what a client sent.
ASKED: Final = frozenset({"request", "run", "upload"})

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+("|\\)?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
#: Steps of a path kept from its beginning, and as many from its end: whole paths of deeply nested JSON would take time
#: and memory by the square of its depth.
_STEPS_MAX: Final = 32
#: A surrogate pair is one character: models and folds never produce the halves.
_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)|([^\\]+)|\\", re.DOTALL
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
#: Flags of a stream whose tape may be incomplete.
_UNTAPED: Final = frozenset({"untaped", "log_failure", "failed_here"})
#: Kinds whose records together form one text.
_RUNS: Final = frozenset({"body", "upload"})
_EVENT: Final = re.compile(rb"event: ([^\r\n]*)\ndata: ")
_DATA_LINE: Final = re.compile(rb"(?:^|[\r\n])data: ?([^\r\n]*)")


# -- JSON -------------------------------------------------------------------------------------------------------------


class Scalar(NamedTuple):
    """The scalar at `text[start:end]`, quotes included. A name has the path of its value."""

    #: `torn` is a string or a name without its end, in a text that was cut; `other` a number, true, false or null.
    sort: Literal["name", "string", "torn", "other"]
    path: Path
    start: int
    end: int


def scalars(text: bytes) -> list[Scalar]:
    """Return the scalars of JSON, or of its beginning, in order. For any other text the result is arbitrary."""
    found: list[Scalar] = []
    path: list[str | int] = []
    named = False
    sort: Literal["name", "string", "torn", "other"]
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        match text[start : start + 1]:
            case b'"' if token[1] != b'"':
                sort = "torn"
            case b'"' if path and path[-1] == "" and not named:
                path[-1] = _name(text[start:end])
                named = True
                sort = "name"
            case b'"':
                sort = "string"
            case b"{" | b"[" as opening:
                path.append("" if opening == b"{" else 0)
                named = False
                continue
            case b"}" | b"]":
                del path[-1:]
                continue
            case b",":
                path[-1:] = [last + 1 if isinstance(last, int) else "" for last in path[-1:]]
                named = False
                continue
            case b":":
                continue
            case _:
                sort = "other"
        shown = tuple(path) if len(path) <= 2 * _STEPS_MAX else (*path[:_STEPS_MAX], *path[-_STEPS_MAX:])
        found.append(Scalar(sort, shown, start, end))
    return found


def _name(quoted: bytes) -> str:
    try:
        name: str = json.loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
    except ValueError:
        name = quoted.decode("latin-1")
    return name


def unquoted(inside: str, at: int, *, in_bytes: bool = False) -> tuple[str, Sequence[int]]:
    """Return the text inside the quotes of a string, and the place of each character in the JSON, and of the end.

    The string begins at `at`; places count characters, or bytes of UTF-8.
    """
    if "\\" not in inside and (inside.isascii() or not in_bytes):
        return inside, range(at, at + len(inside) + 1)
    text: list[str] = []
    places = [at]
    for match in _ESCAPE.finditer(inside):
        for char in match[5] or _char(match):
            text.append(char)
            size = len(char.encode("utf-8", "surrogateescape")) if in_bytes and match[5] else 1
            places.append(places[-1] + size)
        if not match[5]:
            places[-1] = places[-2] + len(match[0].encode("utf-8", "surrogateescape") if in_bytes else match[0])
    return "".join(text), places


def _char(escape: re.Match[str]) -> str:
    if escape[1]:
        return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")
    if escape[3]:
        return chr(int(escape[3], 16))
    return _SIMPLE.get(escape[4] or "", escape[4] or "\\")


# -- texts ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """Bytes that are read together: a frame, a body in all its reads, or the bytes of another record."""

    kind: str
    #: Places of its records.
    of: tuple[int, ...]
    raw: bytes
    #: Places of its JSON in `raw`, if any: one, or one for each `data` line of a frame.
    spans: Sequence[tuple[int, int]] = ()
    value: Any = ABSENT

    @cached_property
    def json(self) -> bytes:
        """The JSON of the text, or nothing."""
        return b"\n".join(self.raw[start:end] for start, end in self.spans)

    @cached_property
    def scalars(self) -> list[Scalar]:
        return scalars(self.json)

    @cached_property
    def _ends(self) -> list[int]:
        """Where each of the spans ends in the JSON."""
        return [total - 1 for total in accumulate(end - start + 1 for start, end in self.spans)]

    def place(self, at: int) -> int:
        """Return the place in `raw` of a place in the JSON."""
        number = bisect_left(self._ends, at)
        return self.spans[number][1] - (self._ends[number] - at)


def texts(records: Sequence[Record]) -> list[Text]:
    """Return the texts of one stream, in order. An answer may begin before its request is uploaded."""
    found: list[list[int]] = []
    runs: dict[str, list[int]] = {}
    for at, record in enumerate(records):
        if record.kind not in TIMED | _RUNS:
            runs.pop("body", None)
        if record.raw is None:
            continue
        if record.kind in runs:
            runs[record.kind].append(at)
            continue
        found.append([at])
        if record.kind in _RUNS:
            runs[record.kind] = found[-1]
    return [_text(records, tuple(of)) for of in found]


def _text(records: Sequence[Record], of: tuple[int, ...]) -> Text:
    record = records[of[0]]
    raw = b"".join(records[at].raw or b"" for at in of)
    spans = [(0, len(raw))]
    if record.kind == "frame" and record.payload is not None:
        sse: Any = record.keys.get("sse")
        start = len(sse[0].encode()) if sse is not None else len(raw) - 2 - len(record.payload)
        return Text(record.kind, of, raw, [(start, start + len(record.payload))], record.read().value)
    if record.kind not in ("frame", "rest"):
        value = parse(raw)
        return Text(record.kind, of, raw, () if value is ABSENT else spans, value)
    # A frame that is kept verbatim, with JSON on several lines, or cut off.
    spans = [match.span(1) for match in _DATA_LINE.finditer(raw)]
    payload = b"\n".join(raw[start:end] for start, end in spans)
    value = parse(payload) if len(spans) > 1 else ABSENT
    begun = record.kind == "rest" and payload[:1] in (b"{", b"[")
    return Text(record.kind, of, raw, () if value is ABSENT and not begun else spans, value)


# -- edits ------------------------------------------------------------------------------------------------------------


class _Offsets:
    """Maps places in the bytes before to places in those after."""

    def __init__(self, changes: Sequence[Edit]) -> None:
        self.changes = changes
        self._starts = [change.start for change in changes]
        self._grown = [0, *accumulate(len(change.new) - (change.end - change.start) for change in changes)]

    def __call__(self, place: int) -> int:
        number = bisect_right(self._starts, place) - 1
        if number < 0:
            return place
        start, end, new = self.changes[number]
        if place >= end:
            return place + self._grown[number + 1]
        return start + self._grown[number] + min(place - start, len(new))


def edited(records: Sequence[Record], changes: Sequence[tuple[Text, Sequence[Edit]]]) -> list[Record]:
    """Return the records with these changes, which are in order and do not overlap within a text."""
    changes = [(text, some) for text, some in changes if some]
    if not changes:
        return list(records)
    new: list[Record | None] = list(records)
    for text, some in changes:
        offsets = _Offsets(some)
        if text.kind in _RUNS:
            _recut(new, text, offsets)
            continue
        [at] = text.of
        new[at] = _changed(records[at], text, offsets)
        if text.kind == "request":
            _move_history(new, at, offsets)
    if (received := _received(new)) != _received(records):
        new = [record and _with_sums(record, received) for record in new]
    return _numbered(new)


def _changed(record: Record, text: Text, offsets: _Offsets) -> Record:
    raw = apply(text.raw, offsets.changes)
    cuts = _cuts(record, offsets, len(raw))
    keys = {name: value for name, value in record.keys.items() if name != "cuts"} | ({"cuts": cuts} if cuts else {})
    if record.payload is None:
        return record._replace(raw=raw, keys=keys or NO_KEYS)
    [(first, last)] = text.spans
    if not any(start < edge < end for start, end, _ in offsets.changes for edge in (first, last)):
        payload = raw[offsets(first) : offsets(last)]
        inside = all(first <= start and end <= last for start, end, _ in offsets.changes)
        keys |= {} if inside else _framed(keys, raw[: offsets(first)], raw[offsets(last) :])
        framed = inside or parse_block(raw, first="bom" in keys).payload == payload
        if framed and (value := parse(payload)) is not ABSENT:
            return record._replace(raw=raw, keys=keys or NO_KEYS, payload=payload, value=value, shape=None, texts=())
    for name in ("sse", "event"):  # the framing has changed, or it was a number among words: keep it verbatim
        keys.pop(name, None)
    return record._replace(raw=raw, keys=keys or NO_KEYS, payload=None, value=ABSENT, shape=None, texts=())


def _framed(keys: Mapping[str, Any], before: bytes, after: bytes) -> dict[str, Any]:
    """Return the keys for the framing around the JSON of a frame, which is text."""
    event = _EVENT.fullmatch(before) if "event" in keys else None
    return {"event": event[1].decode()} if event else {"sse": [before.decode(), after.decode()]}


def _cuts(record: Record, offsets: _Offsets, size: int) -> list[list[int]]:
    """Return the cuts of the new bytes, without reads that have no bytes left."""
    before = len(record.raw or b"")
    cuts: list[list[int]] = []
    rows = filter(_begins_with_numbers, as_list(record.keys.get("cuts")))  # other rows come from another recorder
    for t, place, *_ in rows:
        at = size if place == before else offsets(place)
        if at > (cuts[-1][1] if cuts else 0) and (at < size or place == before):
            cuts.append([t, at])
    return cuts


def _recut(new: list[Record | None], text: Text, offsets: _Offsets) -> None:
    raw = apply(text.raw, offsets.changes)
    before = start = 0
    for at in text.of:
        record = new[at]
        assert record is not None
        before += len(record.raw or b"")
        end = len(raw) if at == text.of[-1] else offsets(before)
        part = raw[start:end]
        if part:
            new[at] = carrying(record, part) if record.kind == "body" else record._replace(raw=part)
        else:
            new[at] = None
        start = end


def _move_history(new: list[Record | None], at: int, offsets: _Offsets) -> None:
    """Move the places in this request that its history refers to."""
    for number, record in enumerate(new[at + 1 :], at + 1):
        if record is not None and record.kind == "request":
            return
        if record is not None and record.kind == "history":
            edits = [
                [offsets(row[0]), offsets(row[1]), *row[2:]] if _begins_with_numbers(row) else row
                for row in as_list(record.keys.get("edits"))
            ]
            new[number] = record._replace(keys={**record.keys, "edits": edits})


def _begins_with_numbers(row: Any) -> bool:
    match row:
        case [int(), int(), *_]:
            return True
        case _:
            return False


def summed(records: Sequence[Record]) -> list[Record]:
    """Return the records with correct sums in `end`: the tape may have been edited by hand.

    Leave tapes alone whose log failed: the upstream sent more than was written.
    """
    flags = as_list(records[-1].keys.get("flags")) if records else ()
    if not records or any(flag in flags for flag in _UNTAPED):
        return list(records)
    received = _received(records)
    return [_with_sums(record, received) for record in records]


def _received(records: Sequence[Record | None]) -> bytes:
    """Return the bytes of the last attempt."""
    begun = max((at for at, record in enumerate(records) if record and record.kind == "attempt"), default=0)
    return b"".join(record.raw or b"" for record in records[begun:] if record and record.kind in RECEIVED)


def _with_sums(record: Record, received: bytes) -> Record:
    sums = {"bytes": len(received), "sha256": hashlib.sha256(received).hexdigest()} if record.kind == "end" else {}
    said = {name: value for name, value in sums.items() if name in record.keys}
    return record._replace(keys={**record.keys, **said}) if said else record


def _numbered(records: Sequence[Record | None]) -> list[Record]:
    """Drop removed records; `gone` refers to a record by its number."""
    left = [record for record in records if record is not None]
    if len(left) == len(records):
        return left
    numbers = [max(0, count - 1) for count in accumulate(record is not None for record in records)]
    return [
        record._replace(n=n, keys={**record.keys, "at": numbers[record.keys["at"]]})
        if record.kind == "gone" and type(record.keys.get("at")) is int and record.keys["at"] < len(numbers)
        else record._replace(n=n)
        for n, record in enumerate(left)
    ]
