"""Bodies that came in pieces as one record, which a reviewer can read, and apart again"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.tape.record import NO_KEYS, Record

__all__ = ["ANSWER", "UPLOADED", "asked_keys", "carrying", "join_bodies", "pieces", "split_bodies"]

#: The kinds that `body` and `upload` records become.
ANSWER: Final = "answer"
UPLOADED: Final = "uploaded"
_WHOLE: Final = {"body": ANSWER, "upload": UPLOADED}
_PARTS: Final = {name: kind for kind, name in _WHOLE.items()}

#: Bytes of a line of text that a review still shows.
_PIECE_BYTES: Final = 16 * 1024
#: Bytes of a line of JSON: most answers that are no stream, and a page of embeddings.
_DATA_BYTES: Final = 256 * 1024


def asked_keys(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the keys of a stream's request, with the hash of an upload of which only that was kept."""
    keys = next(record.keys for record in records if record.kind == "request")
    hashed = (record.keys for record in records if record.kind == "upload" and record.raw is None)
    upload = next((each for each in hashed if "sha256" in each and not each.get("part")), None)
    return keys if upload is None else {**keys, "sha256": upload["sha256"]}


def carrying(record: Record, raw: bytes) -> Record:
    """Return the record with these bytes as a recorder writes them: JSON on one line becomes `data`."""
    value = parse(raw) if b"\n" not in raw else ABSENT
    return record._replace(raw=raw, payload=None if value is ABSENT else raw, value=value, shape=None)


def join_bodies(records: Sequence[Record]) -> list[Record]:
    """Join each run of `body` or `upload` records; a run that no recorder makes stays as it is."""
    joined: list[Record] = []
    for kind, run in groupby(records, key=lambda record: record.kind):
        some = list(run)
        if kind not in _WHOLE or not _is_recorded(kind, some):
            joined += some
            continue
        cuts: list[list[int]] = []
        for record in some[:-1]:
            cuts.append([record.t, (cuts[-1][1] if cuts else 0) + len(record.raw or b"")])
        raw = b"".join(record.raw or b"" for record in some)
        joined.append(Record(some[0].n, some[-1].t, _WHOLE[kind], {"cuts": cuts} if cuts else NO_KEYS, raw))
    return joined


def _is_recorded(kind: str, run: Sequence[Record]) -> bool:
    if kind == "body" and any(later.t <= earlier.t for earlier, later in pairwise(run)):
        return False
    return all(record.raw and not record.keys and record.payload == _part(record, kind).payload for record in run)


def _part(record: Record, kind: str) -> Record:
    raw = record.raw or b""
    return carrying(record, raw) if kind == "body" else record._replace(payload=None, value=ABSENT)


def split_bodies(records: Iterable[Record]) -> list[Record]:
    """Split joined bodies where their pieces ended."""
    apart: list[Record] = []
    for record in records:
        kind = _PARTS.get(record.kind)
        if kind is None:
            apart.append(record)
            continue
        raw, start = record.raw or b"", 0
        for t, end in (*record.keys.get("cuts", ()), (record.t, len(raw))):
            apart.append(_part(Record(record.n, t, kind, NO_KEYS, raw[start:end]), kind))
            start = end
    return apart


def pieces(raw: bytes) -> list[bytes]:
    """Split a body into lines of the file: one for JSON on one line, else one for each line of the text."""
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
