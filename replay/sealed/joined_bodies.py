"""Bodies that came in pieces as one record, cut where a piece ended, and apart again; what a reviewer reads is whole"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.tape.record import NO_KEYS, Record

__all__ = ["ANSWER", "UPLOADED", "asked_keys", "carrying", "parted", "pieces", "whole"]

#: What `body` records become, and what `upload` records become.
ANSWER: Final = "answer"
UPLOADED: Final = "uploaded"

_WHOLE: Final = {"body": ANSWER, "upload": UPLOADED}
_PARTS: Final = {name: kind for kind, name in _WHOLE.items()}

#: Of a line that holds text: what a review still shows, and no editor chokes on.
_PIECE_BYTES: Final = 16 * 1024
#: Of a line that holds JSON: most answers that are no stream, and a page of embeddings.
_DATA_BYTES: Final = 256 * 1024


def asked_keys(records: Sequence[Record]) -> Mapping[str, Any]:
    """What the request of a stream says; and of an upload of which only the hash was kept (`requests = hash`), that."""
    keys = next(record.keys for record in records if record.kind == "request")
    kept = (record.keys for record in records if record.kind == "upload" and record.raw is None)
    said = next((each for each in kept if "sha256" in each and not each.get("part")), None)
    return keys if said is None else {**keys, "sha256": said["sha256"]}


def carrying(record: Record, raw: bytes) -> Record:
    """The record with these bytes, as a recorder writes them: JSON on one line stands as `data`."""
    value = parse(raw) if b"\n" not in raw else ABSENT
    return record._replace(raw=raw, payload=None if value is ABSENT else raw, value=value, shape=None)


def whole(records: Sequence[Record]) -> list[Record]:
    """Each run of `body` or of `upload` records becomes one; a run that no recorder makes stays as it is."""
    joined: list[Record] = []
    for kind, run in groupby(records, key=lambda record: record.kind):
        some = list(run)
        joined += [_one(kind, some)] if kind in _WHOLE and _recorded(kind, some) else some
    return joined


def _recorded(kind: str, run: Sequence[Record]) -> bool:
    times = [record.t for record in run]
    if kind == "body" and any(later <= earlier for earlier, later in pairwise(times)):
        return False
    return all(record.raw and not record.keys and _said(record) == _said(_part(record, kind)) for record in run)


def _said(record: Record) -> Record:
    """Without what `payload` parses to, which is compared by its bytes: it nests deeper than Python compares."""
    return record._replace(value=ABSENT, shape=None)


def _part(record: Record, kind: str) -> Record:
    raw = record.raw or b""
    return carrying(record, raw) if kind == "body" else record._replace(payload=None, value=ABSENT)


def _one(kind: str, run: Sequence[Record]) -> Record:
    cuts: list[list[int]] = []
    at = 0
    for record in run[:-1]:
        at += len(record.raw or b"")
        cuts.append([record.t, at])
    raw = b"".join(record.raw or b"" for record in run)
    return Record(run[0].n, run[-1].t, _WHOLE[kind], {"cuts": cuts} if cuts else NO_KEYS, raw)


def parted(records: Iterable[Record]) -> list[Record]:
    """The same apart again."""
    apart: list[Record] = []
    for record in records:
        kind = _PARTS.get(record.kind)
        if kind is None:
            apart.append(record)
            continue
        raw, start = record.raw or b"", 0
        cuts: list[Any] = [*record.keys.get("cuts", ()), (record.t, len(raw))]
        for t, end in cuts:
            apart.append(_part(Record(record.n, t, kind, NO_KEYS, raw[start:end]), kind))
            start = end
    return apart


def pieces(raw: bytes) -> list[bytes]:
    """What stands on one line each: all of it where it is JSON on one line, else each line of the text."""
    if len(raw) <= _DATA_BYTES and b"\n" not in raw and parse(raw) is not ABSENT:
        return [raw]
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        end = raw.find(b"\n", at, at + _PIECE_BYTES) + 1 or min(len(raw), at + _PIECE_BYTES)
        while end < len(raw) and end > at + 4 and raw[end] & 0xC0 == 0x80:  # not inside a character
            end -= 1
        found.append(raw[at:end])
        at = end
    return found
