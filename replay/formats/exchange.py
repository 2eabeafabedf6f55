"""Exchanges from other tools' recordings, the names of what such recordings lack, and the records made of them."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, parse
from wiretape.events.core.model import ForeignFrame, Repaired, Terminator
from wiretape.events.core.settings import Settings
from wiretape.events.dialects import DIALECTS, PLACES
from wiretape.events.emit import EMITTER_VERSION, Emitter, events
from wiretape.events.tape.record import FORMAT, NO_KEYS, Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import BOM, Decoder
from wiretape.proxy.key_patterns import masked_path
from wiretape.proxy.relay.attempts import chat_cause, exchange_ending
from wiretape.proxy.relay.stream_request import results_keys
from wiretape.proxy.security.headers import taped_answer, taped_request
from wiretape.proxy.store.catalogue_row import digests, request_digest
from wiretape.proxy.upstream.connection import CODINGS, Inflater, WireError

__all__ = [
    "LOSSES",
    "Clock",
    "Contents",
    "Imported",
    "decoded",
    "dialect_of",
    "frames_of",
    "guessed_target",
    "microseconds",
    "reads_of",
    "records_of",
    "split_url",
    "status_of",
]

_EVENT_STREAM: Final = "text/event-stream"
#: How much of a response is searched for its first payload when its request is unknown.
_GUESSED_FROM_BYTES: Final = 65_536
#: The first bytes of gzip and zlib data. Many recorders decode a body and keep its Content-Encoding header.
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78", b"\x58", b"\x68")

#: The distance of reads without a recorded time.
_STEP_US: Final = 1
_CHAT: Final = PLACES["chat"]
_JSON_LINES: Final = frozenset({"application/jsonl", "application/ndjson", "application/x-ndjson"})
#: Types of events of protocols that are no dialect of ours (Cohere), and types of last events.
_TYPES: Final = ("message-start", "content-start", "content-delta")
_LAST_TYPES: Final = frozenset({"message-end", "error"})

_Headers = Sequence[tuple[str, str]]

#: Everything that a format may lack; docs/reference/formats.md is generated from this table.
LOSSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attempts": "earlier attempts; only the one that was answered is kept",
        "body": "the response body; the recording does not contain it",
        "boundaries": "read boundaries; each frame becomes one read",
        "bytes": "the original bytes; a stream is written from the recorded result",
        "client": "the client's side: status, keepalives, disconnects",
        "coding": "the compressed bytes; the decoded body is kept",
        "ending": "how the connection ended; a clean end is assumed",
        "excerpts": "bytes of a record beyond 16 KiB",
        "faults": "authored faults and delays; use `wiretape cut` or `replay --fault` instead",
        "headers": "headers other than those that a tape keeps",
        "headless": "streams without a response; their entries have status 0, and `import` skips them",
        "json": "the original JSON text; it is written again without spaces",
        "merged": "the upstream's bytes; the file holds what the client received",
        "other_protocols": "anything but HTTP exchanges; skipped",
        "request": "the request; its path is guessed from the response, its body is unknown",
        "request_matched": "the request except for the fields it was matched on",
        "settings": "settings, software version and caller",
        "status": "status and headers; 200 and `text/event-stream` are assumed",
        "time": "when the request was made",
        "times": "when each read arrived; the clock advances by one microsecond a read",
        "unanswered": "requests without a response; skipped",
    }
)


class Clock(NamedTuple):
    """Microseconds from the start of the stream."""

    request: int = 1
    attempt: int = 2
    head: int = 3
    #: Without a value the stream ends right after its last read.
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """One recorded exchange. A read at time 0 has no recorded time and follows the previous one."""

    reads: Sequence[tuple[int, bytes]]
    method: str = "POST"
    #: Path and query.
    target: str
    request_headers: _Headers = ()
    request_body: bytes | None = None
    status: int = 200
    headers: _Headers = (("content-type", _EVENT_STREAM),)
    clock: Clock = field(default_factory=Clock)
    cause: str = "eof"
    #: Keys of the `head` and `end` records (docs/reference/tape-format.md, Framing), as far as they are known.
    framing: dict[str, Any] = field(default_factory=dict[str, Any])
    framed: dict[str, Any] = field(default_factory=dict[str, Any])
    #: The recorded ending and flags, for exchanges without a dialect.
    ending: str | None = None
    flags: Sequence[str] = ()
    #: Microseconds since 1970.
    created_us: int | None = None
    upstream: str = "imported"
    #: The content coding that was removed from the body.
    decoded: str = ""

    @property
    def content_type(self) -> str:
        """The response's media type, lower-cased and without parameters."""
        return _header(self.headers, "content-type").partition(";")[0].strip().lower()

    @property
    def body(self) -> bytes:
        return b"".join(data for _, data in self.reads)


class Contents(NamedTuple):
    """What a reader found in one file."""

    exchanges: Iterable[Imported]
    #: Counts of losses, besides those of every file of this format. Complete once `exchanges` is exhausted.
    losses: Counter[str]
    #: What sealing did to these streams earlier, in the words of a sealed tape's header.
    header: Mapping[str, Any] = NO_KEYS


def frames_of(body: bytes) -> list[tuple[int, bytes]]:
    """Return one read for each frame of a body without read boundaries, and one for the remainder."""
    pieces = [frame.raw for frame in Decoder().feed(body)]
    rest = body[sum(map(len, pieces)) :]
    return [(0, piece) for piece in [*pieces, rest] if piece]


def reads_of(body: bytes, headers: _Headers, at: int = 0) -> list[tuple[int, bytes]]:
    """Return the reads of a body: the frames of an event stream, otherwise one."""
    if _EVENT_STREAM in _header(headers, "content-type"):
        return frames_of(body)
    return [(at, body)] if body else []


def decoded(one: Imported, losses: Counter[str]) -> Imported:
    """Decompress the body if it still is compressed; raise `TapeError` if it is damaged."""
    coding = _header(one.headers, "content-encoding").strip().lower()
    if coding in ("", "identity"):
        return one
    losses["coding"] += 1
    body = one.body
    if coding not in CODINGS or not body.startswith(_COMPRESSED):
        return replace(one, decoded=coding)
    inflater = Inflater(coding)
    try:
        plain = b"".join(inflater.feed(body))
        inflater.close()
    except WireError as error:
        raise TapeError(f"cannot decode a response with Content-Encoding {coding}: {error}") from error
    return replace(one, reads=reads_of(plain, one.headers, one.reads[-1][0]), decoded=coding)


def guessed_target(body: bytes) -> str:
    """Guess the request path of a response from its first payload."""
    for frame in Decoder().feed(body[:_GUESSED_FROM_BYTES] + b"\n\n"):
        value = as_object(parse(frame.payload)) if frame.payload else {}
        known = [places for places in PLACES.values() if places.known(value)]
        if value.get("object") == "text_completion":
            return "/v1/completions"
        if len(known) == 1 and value.get("type") != "error":
            return f"/v1{known[0].words.path}"
        recorder = Recorder()
        opened = recorder.record("open", 0, {"format": FORMAT, "stream": "", "dialect": "chat"})
        seen = events([opened, *recorder.read(0, frame.raw)] if frame.payload else [])
        if any(not isinstance(event, ForeignFrame | Repaired | Terminator) for event in seen):
            return f"/v1{_CHAT.words.path}"  # its upstreams leave out most
    return "/v1"


def status_of(value: Any) -> int:
    """Return a response's status; raise `TapeError` if it is not a number that HTTP allows."""
    if type(value) is not int or not 100 <= value <= 999:
        raise TapeError("a response without a status")
    return value


def split_url(url: str) -> tuple[str, str]:
    """Return the host of a URL, and its path with the query."""
    try:
        parts = urlsplit(url)
        return parts.hostname or "imported", (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    except ValueError:
        return "imported", "/"


def microseconds(value: Any) -> int | None:
    """Return an ISO 8601 time as microseconds since 1970, or None."""
    try:
        return round(datetime.fromisoformat(value).timestamp() * 1e6) if isinstance(value, str) else None
    except (ValueError, OverflowError, OSError):
        return None


def dialect_of(target: str) -> str:
    """Return the dialect of the requests to a path; empty if none has it."""
    path = target.partition("?")[0]
    if "/threads/" in path:  # OpenAI's messages of a thread are no requests to a model
        return ""
    return next((name for name in DIALECTS if path.endswith(PLACES[name].words.path)), "")


def _header(headers: _Headers, name: str) -> str:
    return next((value for each, value in headers if each.lower() == name), "")


# -- records ----------------------------------------------------------------------------------------------------------


def records_of(one: Imported, source: str, stream: str) -> list[Record]:
    """Return the records of one stream; equal exchanges give equal records."""
    dialect = dialect_of(one.target) if one.method == "POST" else ""
    recorder, clock = Recorder(), one.clock
    request = parse(one.request_body) if one.request_body else ABSENT
    records = [_open(recorder, one, source, stream, dialect)]
    records += _request(recorder, one, request, dialect)
    records += recorder.attempt(clock.attempt, {"number": 1, "upstream": one.upstream})
    head = {"status": one.status, "headers": taped_answer(_raw(one.headers)), **one.framing}
    records.append(recorder.record("head", clock.head, head | ({"decoded": one.decoded} if one.decoded else {})))
    framed = _is_framed(one, dialect, streams=request is ABSENT or as_object(request).get("stream") is True)
    t = clock.head
    for number, (at, data) in enumerate(one.reads):
        t = at or clock.head + _STEP_US * (number + 1)
        if data:
            records += recorder.read(t, data) if framed else [recorder.body(t, data)]
    end = max(t, clock.end if clock.end is not None else t + _STEP_US)
    records += recorder.rest(end)
    return [*records, recorder.end(end, {**_ended(one, records, dialect), **one.framed})]


def _open(recorder: Recorder, one: Imported, source: str, stream: str, dialect: str) -> Record:
    settings = Settings()
    keys: dict[str, Any] = {
        "format": FORMAT,
        "stream": stream,
        "dialect": dialect,
        "profile": settings.profile,
        "settings": {"on_partial": settings.on_partial, "tools": settings.tools},
        "emitter": EMITTER_VERSION,
        "route": "",
        "imported": source,
    }
    if one.created_us is not None:
        keys |= {"created": one.created_us // 1_000_000, "created_us": one.created_us}
    return recorder.record("open", 0, keys)


def _request(recorder: Recorder, one: Imported, request: Any, dialect: str) -> list[Record]:
    keys: dict[str, Any] = {
        "method": one.method,
        "path": masked_path(one.target.encode("utf-8", "surrogateescape")),
        "headers": taped_request(_raw(one.request_headers)),
    }
    spoken = DIALECTS.get(dialect)
    if spoken is not None:
        keys["facts"] = spoken.facts({"stream": True} if request is ABSENT else request).to_keys()
        lists = (as_object(request).get(name) for name in PLACES[dialect].words.conversation)
        keys["messages"] = sum(len(as_list(each)) for each in lists)
    records = [recorder.record("request", one.clock.request, keys, one.request_body or None)]
    if (found := None if spoken is None else spoken.results_in(request)) is not None:
        arguments = digests(each.arguments for each in found.results)
        results = results_keys(found, arguments, request_digest(one.request_body or b""))
        records.append(recorder.record("results", one.clock.request, results))
    return records


def _is_framed(one: Imported, dialect: str, *, streams: bool) -> bool:
    """Decide whether the body is recorded as frames, as `proxy/relay` does."""
    if not dialect or not streams:
        return one.content_type == _EVENT_STREAM
    if one.status >= 400 or one.content_type == "application/json":
        return False
    if one.content_type == _EVENT_STREAM:
        return True
    return b"".join(data for _, data in one.reads[:1]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[", b"<")


def _raw(headers: Sequence[tuple[str, str]]) -> list[tuple[bytes, bytes]]:
    return [(name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in headers]


# -- the ending -------------------------------------------------------------------------------------------------------


def _ended(one: Imported, records: Sequence[Record], dialect: str) -> dict[str, Any]:
    if not dialect:
        cut = one.cause == "eof" and ("broke" in one.framed or ("framed" not in one.framed and _is_cut(one, records)))
        ending, flags = exchange_ending(one.status, one.cause, cut=cut)
        return {"cause": one.cause, "ending": one.ending or ending, "flags": list(one.flags if one.ending else flags)}
    cause = "status" if one.status >= 400 and one.cause == "eof" else chat_cause(one.cause)
    emitter = Emitter()
    for record in records:
        emitter.feed(record)
    ending, found = emitter.ending(cause)
    return {"cause": cause, "ending": ending, "flags": list(found)}


def _is_cut(one: Imported, records: Sequence[Record]) -> bool:
    """Report whether a body of unknown framing stops inside an event, is empty, or lacks its protocol's last event."""
    if one.content_type in _JSON_LINES and not one.decoded:
        lines = [line for line in one.body.split(b"\n") if line.strip()]
        return bool(lines) and (parse(lines[-1]) is ABSENT or _lacks_last_event(lines))
    if one.content_type == "application/json" and not one.decoded:
        return one.status < 400 and bool(one.body.strip()) and parse(one.body.removeprefix(BOM)) is ABSENT
    if any(record.kind == "rest" and (record.raw or b"").strip() for record in records):
        return True
    if one.content_type != _EVENT_STREAM:
        return False
    blocks = (record.raw or b"" for record in records if record.kind == "frame")
    payloads = [frame.payload for block in blocks for frame in Decoder().feed(block) if frame.payload]
    return all(parse(payload) in ({}, [], None, "") for payload in payloads) or _lacks_last_event(payloads)


def _lacks_last_event(payloads: Sequence[bytes]) -> bool:
    """Report whether a known protocol began and its last event is missing; in chat a finish is enough."""
    began = closed = False
    for payload in payloads:
        value = as_object(parse(payload))
        kind, what = str(value.get("type")), str(value.get("object"))
        items = [as_object(item) for each in value.values() for item in as_list(each)]
        began |= kind.startswith(_TYPES) or what == "text_completion"
        began |= kind != "error" and any(places.known(value) for places in PLACES.values())
        began |= what.startswith("thread.") or "candidates" in value  # Assistants, Gemini
        began |= value.get("done") is False and not value.keys().isdisjoint(("message", "response"))  # Ollama
        closed |= any(places.has("done", value, payload) for places in PLACES.values())
        closed |= kind in _LAST_TYPES or value.keys() == {"error"}
        closed |= _CHAT.has("finish", value, payload)
        closed |= any(item.get("finishReason") for item in items)
        closed |= value.get("done") is True or bool(as_object(value.get("promptFeedback")).get("blockReason"))
    return began and not closed
