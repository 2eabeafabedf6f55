"""An exchange that somebody else recorded, as the records that the proxy would have written of it"""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from wiretape.events.chat.request import facts
from wiretape.events.chat.results import results_in
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.core.model import ForeignFrame, Repaired, Terminator
from wiretape.events.core.settings import Settings
from wiretape.events.emission.emit import EMITTER_VERSION, Emitter, events
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.tape.upcast import FORMAT
from wiretape.events.wire.sse import BOM, Decoder
from wiretape.proxy.relay.outcome import exchange_ending
from wiretape.proxy.relay.verdict import chat_cause
from wiretape.proxy.security.headers import masked_path, taped_answer, taped_request
from wiretape.proxy.store.catalogue_row import digests, request_digest
from wiretape.proxy.upstream.decompression import CODINGS, Inflater
from wiretape.proxy.upstream.errors import WireError

from .last_words import lacks_last_word, lines_lack_it
from .losses import Loss

__all__ = [
    "Clock",
    "Imported",
    "Outcome",
    "decoded",
    "frames_of",
    "guessed_target",
    "in_frames",
    "outcome",
    "text_of",
]

_CHAT: Final = "/chat/completions"
_EVENT_STREAM: Final = "text/event-stream"
#: JSON in lines.
_LINES: Final = frozenset({"application/jsonl", "application/ndjson", "application/x-ndjson"})
#: The clock of what has none: a microsecond a record.
_STEP_US: Final = 1
#: Of one file; what holds more is no recording of a conversation.
_STREAMS_MAX: Final = 10_000
#: Of an answer whose request nobody knows; its first payload stands within.
_GUESSED_FROM_BYTES: Final = 65_536

_Headers = Sequence[tuple[str, str]]


class Clock(NamedTuple):
    """Microseconds since the stream began."""

    request: int = 1
    attempt: int = 2
    head: int = 3
    #: None follows the last read.
    end: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """What is known of it. The times of reads grow; of what has none they count up from 0."""

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
    #: As `head` and `end` say it (docs/tape.md, Framing), where it is known.
    framing: dict[str, Any] = field(default_factory=dict[str, Any])
    framed: dict[str, Any] = field(default_factory=dict[str, Any])
    #: Of an exchange that is no dialect's, where somebody wrote it down.
    ending: str | None = None
    flags: Sequence[str] = ()
    #: Microseconds since 1970.
    created_us: int | None = None
    upstream: str = "imported"
    #: What the body was before it was decoded.
    decoded: str = ""

    @property
    def content_type(self) -> str:
        """Without its parameters."""
        said = next((value for name, value in self.headers if name.lower() == "content-type"), "")
        return said.partition(";")[0].strip().lower()


class Outcome(NamedTuple):
    """What became of one file."""

    streams: list[list[Record]]
    losses: list[Loss]
    #: What was done to it before, where that is said: as the header of a sealed tape says it.
    header: Mapping[str, Any] = NO_KEYS


def outcome(source: str, data: bytes, found: Iterable[Imported], losses: Iterable[Loss]) -> Outcome:
    """Of a whole file; the same bytes give the same records."""
    seed = hashlib.sha256(data).hexdigest()[:16]
    streams: list[list[Record]] = []
    for number, one in enumerate(found, 1):
        if number > _STREAMS_MAX:
            raise TapeError(f"more than {_STREAMS_MAX} exchanges in one file")
        streams.append(_records(one, source, f"{source}-{seed}-{number}"))
    if not streams:
        raise TapeError(f"nothing in it has an answer that a tape of it ({source}) could hold")
    counts: dict[str, int] = {}
    for loss in losses:
        counts[loss.code] = counts.get(loss.code, 0) + loss.times
    return Outcome(streams, [Loss(code, count) for code, count in sorted(counts.items())])


# -- one stream -------------------------------------------------------------------------------------------------------


def _records(one: Imported, source: str, stream: str) -> list[Record]:
    chat = one.method == "POST" and one.target.partition("?")[0].endswith(_CHAT)
    recorder, clock = Recorder(), one.clock
    asked = parse(one.request_body) if one.request_body else ABSENT
    records = [recorder.record("open", 0, _opened(one, source, stream, chat=chat))]
    records += _request(recorder, one, asked, chat=chat)
    records += recorder.attempt(clock.attempt, {"number": 1, "upstream": one.upstream})
    head: dict[str, Any] = {"status": one.status, "headers": taped_answer(_raw(one.headers))}
    if one.decoded:
        head["decoded"] = one.decoded
    records.append(recorder.record("head", clock.head, {**head, **one.framing}))
    streams = asked is ABSENT or as_object(asked).get("stream") is True
    framed = _is_framed(one, chat=chat, streams=streams)
    t = clock.head
    for number, (at, data) in enumerate(one.reads):
        t = at or clock.head + _STEP_US * (number + 1)
        if recorder.decoder.overflow:
            recorder.decoder.keep(data)
        elif data:
            records += recorder.read(t, data) if framed else [recorder.body(t, data)]
    end = max(t, clock.end if clock.end is not None else t + _STEP_US)
    records += recorder.rest(end)
    return [*records, recorder.end(end, {**_ended(one, records, chat=chat), **one.framed})]


def _opened(one: Imported, source: str, stream: str, *, chat: bool) -> dict[str, Any]:
    settings = Settings()
    keys: dict[str, Any] = {
        "format": FORMAT,
        "stream": stream,
        "dialect": "chat" if chat else "",
        "profile": settings.profile,
        "settings": {"on_partial": settings.on_partial, "tools": settings.tools},
        "emitter": EMITTER_VERSION,
        "route": "",
        "imported": source,
    }
    if one.created_us is not None:
        keys |= {"created": one.created_us // 1_000_000, "created_us": one.created_us}
    return keys


def _request(recorder: Recorder, one: Imported, asked: Any, *, chat: bool) -> list[Record]:
    keys: dict[str, Any] = {
        "method": one.method,
        "path": masked_path(one.target.encode("utf-8", "surrogateescape")),
        "headers": taped_request(_raw(one.request_headers)),
    }
    if chat:
        keys["facts"] = facts({"stream": True} if asked is ABSENT else asked).to_keys()
        keys["messages"] = len(as_list(as_object(asked).get("messages")))
    records = [recorder.record("request", one.clock.request, keys, one.request_body or None)]
    results = _results(asked, one.request_body or b"") if chat else None
    return [*records, recorder.record("results", one.clock.request, results)] if results else records


def _results(asked: Any, body: bytes) -> dict[str, Any] | None:
    """As `proxy/relay/tool_results.py` says it of a request whose calls no catalogue knows."""
    found = results_in(asked)
    if found is None:
        return None
    rows: list[dict[str, Any]] = []
    for result, digest in zip(found.results, digests(each.arguments for each in found.results), strict=True):
        said: dict[str, Any] = {"id": result.id, "name": result.name, "arguments": digest}
        if result.orphan:
            said = {"id": result.id, "orphan": True}
        said |= {"failed": True} if result.failed else {}
        rows.append(said | ({"output": result.output} if result.output else {}))
    keys: dict[str, Any] = {"results": rows, "after": found.after, "request": request_digest(body)}
    return keys | ({"more": found.more} if found.more else {})


def _is_framed(one: Imported, *, chat: bool, streams: bool) -> bool:
    """As `proxy/relay/upstream_response.py` decides."""
    if not chat or not streams:
        return one.content_type == _EVENT_STREAM
    if one.status >= 400 or one.content_type == "application/json":
        return False
    if one.content_type == _EVENT_STREAM:
        return True
    return b"".join(data for _, data in one.reads[:1]).lstrip(b"\xef\xbb\xbf \t\r\n")[:1] not in (b"{", b"[", b"<")


def _ended(one: Imported, records: Sequence[Record], *, chat: bool) -> dict[str, Any]:
    if not chat:
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
    """Of an answer whose framing nobody knows: it stops inside an event, says nothing, or lacks its last word."""
    body = b"".join(data for _, data in one.reads)
    if one.content_type in _LINES and not one.decoded:
        return lines_lack_it(body)
    if one.content_type == "application/json" and not one.decoded:
        return one.status < 400 and bool(body.strip()) and parse(body.removeprefix(BOM)) is ABSENT
    if any(record.kind == "rest" and (record.raw or b"").strip() for record in records):
        return True
    if one.content_type != _EVENT_STREAM:
        return False
    blocks = (record.raw or b"" for record in records if record.kind == "frame")
    payloads = [frame.payload for block in blocks for frame in Decoder().feed(block) if frame.payload]
    return all(parse(payload) in ({}, [], None, "") for payload in payloads) or lacks_last_word(payloads)


def _raw(headers: _Headers) -> list[tuple[bytes, bytes]]:
    return [(name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in headers]


# -- what several formats need ----------------------------------------------------------------------------------------


def frames_of(body: bytes) -> list[tuple[int, bytes]]:
    """A body whose reads nobody knows: one read a frame, and one of what is left."""
    decoder = Decoder()
    pieces = [frame.raw for frame in decoder.feed(body)]
    rest = body[sum(map(len, pieces)) :]
    return [(0, piece) for piece in [*pieces, rest] if piece]


def decoded(one: Imported) -> Imported:
    """With the compression of its body taken off, where it still is on; raises TapeError where it is damaged."""
    coding = next((value.strip().lower() for name, value in one.headers if name.lower() == "content-encoding"), "")
    body = b"".join(data for _, data in one.reads)
    if coding not in CODINGS or not body.startswith((b"\x1f\x8b", b"\x78", b"\x58", b"\x68")):
        return replace(one, decoded=coding) if coding and coding != "identity" else one
    inflater = Inflater(coding)
    try:
        plain = b"".join(inflater.feed(body))
        inflater.close()
    except WireError as error:
        raise TapeError(f"an answer says that it is compressed ({coding}), but {error}") from error
    return replace(one, reads=[(one.reads[-1][0], plain)], decoded=coding)


def in_frames(one: Imported) -> Imported:
    """An event stream whose reads nobody knows, now that it is plain."""
    if one.content_type != _EVENT_STREAM or not one.reads:
        return one
    return replace(one, reads=frames_of(b"".join(data for _, data in one.reads)))


def guessed_target(body: bytes) -> str:
    """Where such an answer comes from, by its first payload."""
    for frame in Decoder().feed(body[:_GUESSED_FROM_BYTES] + b"\n\n"):
        said = as_object(parse(frame.payload)) if frame.payload else {}
        kind = said.get("type")
        if isinstance(kind, str) and kind.startswith("response."):
            return "/v1/responses"
        if kind == "message_start":
            return "/v1/messages"
        if said.get("object") == "text_completion":
            return "/v1/completions"
        if frame.payload and _is_chat(frame.raw):
            return f"/v1{_CHAT}"
    return "/v1"


def _is_chat(frame: bytes) -> bool:
    """Whether our reader of that dialect makes anything of it."""
    recorder = Recorder()
    opened = recorder.record("open", 0, {"format": FORMAT, "stream": "", "dialect": "chat"})
    seen = events([opened, *recorder.read(0, frame)])
    return any(not isinstance(event, ForeignFrame | Repaired | Terminator) for event in seen)


def text_of(value: Any) -> str:
    """A text, or JSON that somebody wrote instead of it."""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")
