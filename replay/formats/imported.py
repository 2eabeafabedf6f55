"""An exchange read from another tool's recording, and the names of what such a recording lacks."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.events.core.model import ForeignFrame, Repaired, Terminator
from wiretape.events.emit import events
from wiretape.events.tape.record import NO_KEYS
from wiretape.events.tape.tape import Recorder
from wiretape.events.tape.upcast import FORMAT
from wiretape.events.wire.sse import Decoder
from wiretape.proxy.upstream.decompression import CODINGS, Inflater
from wiretape.proxy.upstream.errors import WireError

__all__ = [
    "CHAT",
    "EVENT_STREAM",
    "LOSSES",
    "Clock",
    "Contents",
    "Imported",
    "decoded",
    "frames_of",
    "guessed_target",
    "microseconds",
    "reads_of",
    "split_url",
    "text_of",
]

CHAT: Final = "/chat/completions"
EVENT_STREAM: Final = "text/event-stream"
#: How much of a response is searched for its first payload when its request is unknown.
_GUESSED_FROM_BYTES: Final = 65_536
#: The first bytes of gzip and zlib data. Many recorders decode a body and keep its Content-Encoding header.
_COMPRESSED: Final = (b"\x1f\x8b", b"\x78", b"\x58", b"\x68")

_Headers = Sequence[tuple[str, str]]

#: Everything that a format may lack; docs/formats.md is generated from this table.
LOSSES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "attempts": "earlier attempts; only the one that was answered is kept",
        "body": "the response body; the recording does not contain it",
        "boundaries": "read boundaries; each frame becomes one read",
        "bytes": "the original bytes; a stream is written from the recorded result",
        "client": "the client's side: status, keepalives, disconnects",
        "coding": "the compressed bytes; the decoded body is kept",
        "ending": "how the connection ended; a clean end is assumed",
        "faults": "authored faults and delays; use `wiretape cut` or `replay --fault` instead",
        "framing": "event framing, comments and `[DONE]`; each line becomes a plain `data:` frame",
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
    headers: _Headers = (("content-type", EVENT_STREAM),)
    clock: Clock = field(default_factory=Clock)
    cause: str = "eof"
    #: Keys of the `head` and `end` records (docs/tape.md, Framing), as far as they are known.
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
        """The whole response body."""
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
    if EVENT_STREAM in _header(headers, "content-type"):
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
        kind = value.get("type")
        if isinstance(kind, str) and kind.startswith("response."):
            return "/v1/responses"
        if kind == "message_start":
            return "/v1/messages"
        if value.get("object") == "text_completion":
            return "/v1/completions"
        if frame.payload and _is_chat(frame.raw):
            return f"/v1{CHAT}"
    return "/v1"


def _is_chat(frame: bytes) -> bool:
    """Report whether the chat dialect recognises a frame."""
    recorder = Recorder()
    opened = recorder.record("open", 0, {"format": FORMAT, "stream": "", "dialect": "chat"})
    seen = events([opened, *recorder.read(0, frame)])
    return any(not isinstance(event, ForeignFrame | Repaired | Terminator) for event in seen)


def text_of(value: Any) -> str:
    """Return a text as it is and any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


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


def _header(headers: _Headers, name: str) -> str:
    return next((value for each, value in headers if each.lower() == name), "")
