"""One record of a tape: its parts, its line of JSON, and the way back.

    {"c":"<crc>","n":7,"t":81234,"k":"frame","data":{"id":"chatcmpl-1","choices":[...]}}

`data` is the last key and holds JSON verbatim, so the exact bytes come back by slicing at the first `,"data":` and
writing costs one concatenation. No earlier value can hold those bytes: inside a JSON string the quotes are escaped, and
no nested object of ours has such a key (asserted at writing).
"""

import base64
import codecs
import re
import zlib
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeGuard

from ..core.json_text import ABSENT, as_object, dumps, is_list, is_object, parse, values_at_most
from ..core.limits import JSON_VALUES_MAX, QUOTED_BYTES_MAX, TIMES_VALUES_MAX
from ..wire.sse import Frame, is_block, parse_block

__all__ = ["FORMAT", "NO_KEYS", "RECEIVED", "Record", "Shape", "decode", "encode", "speaks"]

NO_KEYS: Final[Mapping[str, Any]] = MappingProxyType({})
#: The format that this version writes. Unknown kinds and keys never need a new one: they are kept as they are.
FORMAT: Final = 1

_HEAD: Final = b'{"c":"'
_BODY_AT: Final = 16
_DATA: Final = b',"data":'
_FRAME_HEAD: Final = re.compile(
    rb'"n":(0|[1-9]\d{0,17}),"t":(0|[1-9]\d{0,17}),"k":"frame"(?:,"event":"([a-zA-Z0-9_.-]++)")?'
)
#: Numbers of more than 18 digits are junk: no tape has so many records, and no stream takes so many microseconds.
_NUMBER_END: Final = 10**18
#: Kinds that carry bytes of the upstream, which may have come in several reads.
RECEIVED: Final = frozenset({"frame", "rest", "body"})
#: The members that stream text in the dialects we know, with a text that is not empty.
_TEXT: Final = re.compile(rb'"(?:content|reasoning_content|reasoning|delta|text|thinking)":\s?"((?:[^"\\]|\\.)+)"')
#: Random strings that hide the size of a text: OpenAI's and Mistral's.
_PADDING: Final = re.compile(rb'"(?:obfuscation|p)":\s?"((?:[^"\\]|\\.)*)"')
#: The number of a frame, in the dialects that number theirs.
_NUMBER: Final = re.compile(rb'"sequence_number":\s?(\d{1,18})')
_DIGITS: Final = re.compile(rb"0|[1-9]\d{0,17}")
#: Token counts change from frame to frame and every one of them is read.
_USAGE: Final = re.compile(rb'"usage":\s?\{')
#: The inside of a JSON string that is written again byte for byte: `\u` may be half of a pair, `\/` loses its escape.
_PLAIN_STRING: Final = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\bfnrt][^"\\\x00-\x1f]*)*')
#: Events that keep a connection open, and say nothing.
_SILENT: Final = (b"ping", b"keepalive")
_SILENT_TYPES: Final = ("ping", "keepalive")
_RESERVED: Final = frozenset({"c", "n", "t", "k", "data", "raw", "b64"})


class Shape(NamedTuple):
    """What payloads have in common that differ only in their streamed text, and in padding and number if they have any.

    Nine frames of ten repeat the shape of the frame before. Recognising them by their bytes costs a third of parsing.
    """

    #: What is around those.
    pieces: tuple[bytes, ...]
    #: Which of them is the text, and which the number; -1 if there is no number.
    place: int
    number: int = -1
    #: The keys of their records: the name of the event, if they have one.
    keys: Mapping[str, Any] = NO_KEYS

    @staticmethod
    def of(payload: bytes, keys: Mapping[str, Any] = NO_KEYS) -> "Shape | None":
        """Return the shape of a JSON payload, or None if it holds no streamed text.

        A quote inside a JSON string is escaped, so `"content":"` always opens the string value of a member.
        """
        text = _TEXT.search(payload)
        if text is None or _USAGE.search(payload):
            return None
        number = _NUMBER.search(payload)
        varying = (text, *_PADDING.finditer(payload), *((number,) if number else ()))
        spans = sorted(found.span(1) for found in varying)
        starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(payload)]
        pieces = tuple(payload[start:end] for start, end in zip(starts, ends, strict=True))
        return Shape(pieces, spans.index(text.span(1)), spans.index(number.span(1)) if number else -1, keys)

    def texts(self, payload: bytes) -> list[bytes] | None:
        """Return what varies as it is written in a payload; None if that is not JSON of this shape."""
        first, *others = self.pieces
        if not (payload.startswith(first) and payload.endswith(others[-1])):
            return None
        texts: list[bytes] = []
        start = len(first)
        for piece in others:
            found = (_DIGITS if len(texts) == self.number else _PLAIN_STRING).match(payload, start)
            end = found.end() if found else start
            if not payload.startswith(piece, end):
                return None
            texts.append(payload[start:end])
            start = end + len(piece)
        if start != len(payload):
            return None
        if not payload.isascii():
            try:
                payload.decode()
            except UnicodeDecodeError:
                return None
        return texts


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
    #: `payload` parsed. ABSENT where it is not JSON, and where a live frame was recognised by its shape instead.
    value: Any = ABSENT
    #: What a live frame shares with the frames before it; records read from a tape have none.
    shape: Shape | None = None
    #: What varies in it.
    texts: Sequence[bytes] = ()

    def read(self) -> "Record":
        """Return the record as a reader of the tape sees it: with its payload parsed and no shape."""
        if self.value is not ABSENT or self.payload is None:
            return self if self.shape is None else self._replace(shape=None, texts=())
        return self._replace(value=parse(self.payload), shape=None, texts=())

    def frame(self) -> Frame:
        """Return the SSE frame that this `frame` record is."""
        assert self.raw is not None, f"record {self.n} of kind {self.kind} carries no frame"
        if self.payload is not None and not self.keys:
            return Frame(self.raw, self.payload, canonical=True)
        if self.payload is not None and len(self.keys) == 1 and "event" in self.keys:
            return Frame(self.raw, self.payload, self.keys["event"].encode(), named=True)
        return parse_block(self.raw, first="bom" in self.keys)


def speaks(record: Record, *, hermes: bool = False) -> bool:
    """Return whether a frame resets the stall timer: comments, pings and keepalives never do (U26).

    hermes-agent sends only keepalives while a tool of its own runs.
    """
    if hermes and (record.raw or b"").strip() == b": keepalive":
        return True
    payload, event = record.payload, b""
    if payload is None or record.keys:
        frame = record.frame()
        payload, event = frame.payload, frame.event
    if payload is None or event in _SILENT or payload.lstrip()[:1] in (b"", b":"):
        return False
    if b'"ping"' not in payload and b'"keepalive"' not in payload:
        return True
    return as_object(record.read().value).get("type") not in _SILENT_TYPES


# -- lines ------------------------------------------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """Return the line, its LF included."""
    n, t, kind, keys, raw, payload, *_ = record
    if payload is not None and kind == "frame" and (not keys or (len(keys) == 1 and "event" in keys)):
        event = b',"event":%b' % dumps(keys["event"]) if keys else b""
        body = b'"n":%d,"t":%d,"k":"frame"%b,"data":%b}' % (n, t, event, payload)
        return b'{"c":"%08x",%b\n' % (zlib.crc32(body), body)
    assert _RESERVED.isdisjoint(keys), f"reserved key in {set(keys)}"
    head = dumps({"n": n, "t": t, "k": kind, **keys})[1:-1]
    assert _DATA not in head, "a nested key named data would hide the payload"
    data = b""
    if payload is not None:
        head, data = head + _DATA, payload
    elif raw is not None:
        try:
            head, data = head + b',"raw":', _quoted(raw)
        except UnicodeDecodeError:
            head, data = head + b',"b64":', b'"%b"' % base64.b64encode(raw)
    checksum = zlib.crc32(b"}", zlib.crc32(data, zlib.crc32(head)))  # in parts: a request may have 100 MB
    return b"".join([b'{"c":"%08x",' % checksum, head, data, b"}\n"])


def _quoted(raw: bytes) -> bytes:
    """Return the bytes as a JSON string, made in slices: at once it takes four times their memory (U29)."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    parts = (
        dumps(decoder.decode(raw[at : at + QUOTED_BYTES_MAX], at + QUOTED_BYTES_MAX >= len(raw)))[1:-1]
        for at in range(0, len(raw), QUOTED_BYTES_MAX)
    )
    return b"".join([b'"', *parts, b'"'])


def decode(line: bytes) -> Record | str:
    """Return the record of a line (without its LF), or what is wrong with it."""
    if line[:6] != _HEAD or line[14:16] != b'",' or line[-1:] != b"}":
        return "not a record"
    if line[6:14] != b"%08x" % zlib.crc32(memoryview(line)[_BODY_AT:]):  # not copied: a request may have 100 MB
        return "checksum does not match"
    at = line.find(_DATA, _BODY_AT)
    if at < 0:
        return _checked(b"{" + line[_BODY_AT:], None, ABSENT)
    payload = line[at + len(_DATA) : -1]
    value = parse(payload)
    if value is ABSENT and values_at_most(payload) <= JSON_VALUES_MAX:
        return "data is not JSON"
    plain = _FRAME_HEAD.fullmatch(line, _BODY_AT, at)
    if plain and b"\r" not in payload:
        raw, event = b"data: %b\n\n" % payload, plain[3]
        keys: Mapping[str, Any] = {"event": event.decode()} if event else NO_KEYS
        raw = b"event: %b\n%b" % (event, raw) if event else raw
        return Record(int(plain[1]), int(plain[2]), "frame", keys, raw, payload, value)
    return _checked(b"{%b}" % line[_BODY_AT:at], payload, value)


def _checked(head: bytes, payload: bytes | None, value: Any) -> Record | str:
    """Return the record, or which of its parts a reader must not believe, since no writer of ours makes it."""
    keys = parse(head, TIMES_VALUES_MAX)
    if not is_object(keys):
        return "not a JSON object"
    n, t, kind = keys.pop("n", None), keys.pop("t", None), keys.pop("k", None)
    if not _is_number(n) or not _is_number(t) or not isinstance(kind, str):
        return "n, t or k is not as it should be"
    raw = payload
    given = _RESERVED.intersection(keys)
    if payload is not None and given:
        return "carries its bytes twice"
    try:
        if given:
            (key,) = given
            raw = keys.pop("raw").encode() if key == "raw" else base64.b64decode(keys.pop("b64"), validate=True)
    except (AttributeError, KeyError, TypeError, ValueError):  # two of them, no text, a lone surrogate, or not base64
        return "its bytes are not as they should be"
    if keys and _DATA in dumps(keys):
        return "a nested key named data"
    if kind == "frame":
        raw, first = raw if payload is None else _block(payload, keys), "bom" in keys
        again = payload is None or (raw and parse_block(raw, first=first).payload == payload)
        if not raw or not again or not is_block(raw, first=first):
            return "not one frame"
    if kind in RECEIVED and "cuts" in keys and not _are_cuts(keys["cuts"], t, len(raw or b"")):
        return "cuts are not as they should be"
    return Record(n, t, kind, keys or NO_KEYS, raw, payload, value)


def _is_number(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < _NUMBER_END


def _block(payload: bytes, keys: Mapping[str, Any]) -> bytes | None:
    """Return the frame of a payload, or None if the keys do not describe what is around it."""
    match keys:
        case {"event": str(event)} if "sse" not in keys:
            before, after = f"event: {event}\ndata: ", "\n\n"
        case {"sse": [str(before), str(after)]} if "event" not in keys:
            pass
        case _ if "sse" not in keys and "event" not in keys:
            before, after = "data: ", "\n\n"
        case _:
            return None
    try:
        return before.encode() + payload + after.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return None


def _are_cuts(cuts: Any, t: int, size: int) -> bool:
    """Return whether these are reads that ended inside the bytes, or at their very end, each later than the last."""
    time, place = -1, 0
    for cut in cuts if is_list(cuts) else [None]:
        match cut:
            case [at, end] if _is_number(at) and _is_number(end) and time < at < t and place < end <= size:
                time, place = at, end
            case _:
                return False
    return True
