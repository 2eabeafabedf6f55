"""One record of a tape: its parts, its line of JSON, and the way back.

    {"c":"<crc>","n":7,"t":81234,"k":"frame","data":{"id":"chatcmpl-1","choices":[...]}}

`data` is the last key and holds JSON verbatim, so the exact bytes come back by slicing at the first `,"data":` and
writing costs one concatenation. No earlier value can hold those bytes: inside a JSON string the quotes are escaped, and
no nested object of ours has such a key (asserted at writing).
"""

import base64
import binascii
import re
import zlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from .json_text import ABSENT, dumps, is_list, is_object, parse
from .sse import Frame, parse_block

__all__ = ["NO_KEYS", "Record", "decode", "encode"]

NO_KEYS: Final[Mapping[str, Any]] = MappingProxyType({})

_HEAD: Final = b'{"c":"'
_BODY_AT: Final = 16
_DATA: Final = b',"data":'
_FRAME_HEAD: Final = re.compile(rb'"n":(0|[1-9]\d{0,17}),"t":(0|[1-9]\d{0,17}),"k":"frame"')
_RESERVED: Final = frozenset({"c", "n", "t", "k", "data", "raw", "b64"})


class Record(NamedTuple):
    """What happened, when (microseconds since `open`), and the bytes it is about."""

    n: int
    t: int
    kind: str
    #: Everything but n, t, kind and the bytes; unknown keys are kept.
    keys: Mapping[str, Any] = NO_KEYS
    #: The bytes that this record carries, exactly as received; of a frame the whole block.
    raw: bytes | None = None
    #: Of a frame its SSE payload, of any other record `raw` itself, where that is JSON: then the line holds it as
    #: `data`. None where the line holds `raw` or `b64`.
    payload: bytes | None = None
    #: `payload` parsed.
    value: Any = ABSENT

    def frame(self) -> Frame:
        """The SSE frame that this `frame` record is."""
        assert self.raw is not None, f"record {self.n} of kind {self.kind} carries no frame"
        if self.payload is not None and not self.keys:
            return Frame(self.raw, self.payload, canonical=True)
        return parse_block(self.raw, first="bom" in self.keys)


def encode(record: Record) -> bytes:
    """The line, its LF included."""
    n, t, kind, keys, raw, payload, _ = record
    if payload is not None and not keys and kind == "frame":
        body = b'"n":%d,"t":%d,"k":"frame","data":%b}' % (n, t, payload)
    else:
        head = b'"n":%d,"t":%d,"k":%b' % (n, t, dumps(kind))
        if keys:
            assert _RESERVED.isdisjoint(keys), f"reserved key in {set(keys)}"
            head += b"," + dumps(dict(keys))[1:-1]
        assert _DATA not in head, "a nested key named data would hide the payload"
        body = head + _carrier(raw, payload)
    return b'{"c":"%08x",%b\n' % (zlib.crc32(body), body)


def _carrier(raw: bytes | None, payload: bytes | None) -> bytes:
    if payload is not None:
        return b',"data":%b}' % payload
    if raw is None:
        return b"}"
    try:
        return b',"raw":%b}' % dumps(raw.decode())
    except UnicodeDecodeError:
        return b',"b64":"%b"}' % base64.b64encode(raw)


def decode(line: bytes) -> Record | str:
    """The record of a line (without its LF), or what is wrong with it."""
    if line[:6] != _HEAD or line[14:16] != b'",' or line[-1:] != b"}":
        return "not a record"
    body = line[_BODY_AT:]
    if line[6:14] != b"%08x" % zlib.crc32(body):
        return "checksum does not match"
    at = body.find(_DATA)
    if at < 0:
        return _without_data(body)
    payload = body[at + len(_DATA) : -1]
    value = parse(payload)
    if value is ABSENT:
        return "data is not JSON"
    plain = _FRAME_HEAD.fullmatch(body, 0, at)
    if plain:
        raw = b"data: %b\n\n" % payload
        return Record(int(plain[1]), int(plain[2]), "frame", NO_KEYS, raw, payload, value)
    return _with_data(body[:at], payload, value)


def _with_data(head: bytes, payload: bytes, value: Any) -> Record | str:
    parts = _parts(b"{%b}" % head)
    if isinstance(parts, str):
        return parts
    n, t, kind, keys = parts
    if not _RESERVED.isdisjoint(keys):
        return "carries its bytes twice"
    raw = payload
    if kind == "frame":
        edges = _edges(keys)
        if edges is None:
            return "sse or event is not as it should be"
        raw = edges[0] + payload + edges[1]
        if parse_block(raw, first="bom" in keys).payload != payload:
            return "sse and data make another frame"
    return Record(n, t, kind, keys, raw, payload, value)


def _without_data(body: bytes) -> Record | str:
    parts = _parts(b"{" + body)
    if isinstance(parts, str):
        return parts
    n, t, kind, keys = parts
    if _RESERVED.isdisjoint(keys):
        return "a frame without bytes" if kind == "frame" else Record(n, t, kind, keys)
    text, encoded = keys.pop("raw", None), keys.pop("b64", None)
    try:
        if isinstance(text, str) and encoded is None and _RESERVED.isdisjoint(keys):
            return Record(n, t, kind, keys or NO_KEYS, text.encode())
        if isinstance(encoded, str) and text is None and _RESERVED.isdisjoint(keys):
            return Record(n, t, kind, keys or NO_KEYS, base64.b64decode(encoded, validate=True))
    except (UnicodeEncodeError, binascii.Error, ValueError):
        pass
    return "its bytes are not as they should be"


def _parts(text: bytes) -> tuple[int, int, str, dict[str, Any]] | str:
    head = parse(text)
    if not is_object(head):
        return "not a JSON object"
    keys: dict[str, Any] = head
    n, t, kind = keys.pop("n", None), keys.pop("t", None), keys.pop("k", None)
    if type(n) is not int or type(t) is not int or n < 0 or t < 0 or not isinstance(kind, str):
        return "n, t or k is not as it should be"
    cuts: Any = keys.get("cuts", [])
    if not is_list(cuts) or not all(_is_cut(cut) for cut in cuts):
        return "cuts are not as they should be"
    return n, t, kind, keys


def _is_cut(cut: Any) -> bool:
    return is_list(cut) and len(cut) == 2 and all(type(number) is int and number >= 0 for number in cut)


def _edges(keys: Mapping[str, Any]) -> tuple[bytes, bytes] | None:
    """What stands before and behind the payload of a frame."""
    edges = keys.get("sse")
    event = keys.get("event")
    try:
        if edges is not None:
            before, behind = edges
            return before.encode(), behind.encode()
        return (b"event: %b\ndata: " % event.encode() if event is not None else b"data: "), b"\n\n"
    except (TypeError, ValueError, AttributeError):
        return None
