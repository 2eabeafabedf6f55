"""The table of formats: how each is recognised, read and written, and what it loses.

The readers of single streams are here: raw event streams, output of `curl -i`, and fixtures of aimock. A fixture holds
no bytes, so Wiretape writes them: a frame for each text, two for each call, the finish reason, the usage if there is
any, and `[DONE]`. Missing ids are made from positions.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.chat.chunk import CALLS, envelope, payloads
from wiretape.events.core import model
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_object, parse
from wiretape.events.dialects import PLACES
from wiretape.events.emit import emit
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import reads
from wiretape.events.wire.sse import encode
from wiretape.proxy.http1 import Dechunker, MalformedError

from ..playback.script import attempts_of
from ..sealed.playable import unplayable
from ..sealed.sealed import MARK
from .exchange import Contents, Imported, decoded, frames_of, guessed_target, records_of
from .har import from_har
from .vcr import from_vcr

__all__ = ["EXPORTS", "FORMATS", "Export", "Format", "Outcome", "detected", "read", "to_sse"]

_CHAT: Final = PLACES["chat"].words
_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]*)?\r?\n")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
_FAULTS: Final = ("chaos", "chunkSize", "disconnectAfterMs", "latency", "streamingProfile", "truncateAfterChunks")
_RESULTS: Final = ("content", "toolCalls", "blocks", "reasoning")


def _from_sse(data: bytes) -> Contents:
    """Read a raw event stream."""
    return Contents([Imported(target=guessed_target(data), reads=frames_of(data))], Counter())


def to_sse(records: Sequence[Record], *, client: bool = False) -> tuple[bytes, Counter[str]]:
    """Return the upstream's bytes, or with `client` those that the client received; and what only some files lose."""
    attempts = attempts_of(records)
    data = emit(records) if client else b"".join(part for _, part in reads(attempts[-1]))
    return data, +Counter({"attempts": int(len(attempts) > 1), "merged": int(client)})


def _from_curl(data: bytes) -> Contents:
    """Read the last response of `curl -i`: earlier heads are provisional, redirects, or a proxy's."""
    at = status = 0
    headers: list[tuple[str, str]] = []
    while (found := _STATUS.match(data, at)) is not None:
        status, headers, at = int(found[1]), [], found.end()
        while (header := _HEADER.match(data, at)) is not None:
            headers.append((header[1].decode("latin-1"), header[2].decode("latin-1")))
            at = header.end()
        end = _LINE_END.match(data, at)
        if end is None:
            raise TapeError(f"byte {at}: expected a header or the blank line after the headers")
        at = end.end()
    if not status:
        raise TapeError("byte 0: expected a status line, as `curl -i` prints it")
    losses: Counter[str] = Counter()
    one = decoded(_framed(Imported(target="/", status=status, headers=headers, reads=()), data[at:], losses), losses)
    return Contents([replace(one, target=guessed_target(one.body))], losses)


def _framed(one: Imported, body: bytes, losses: Counter[str]) -> Imported:
    """Add the body with its reads and its framing, as far as the headers give them."""
    names = {name.lower(): value for name, value in one.headers}
    length = names.get("content-length", "")
    if "chunked" in names.get("transfer-encoding", "").lower():
        one = replace(one, framing={"framing": "chunked"})
        dechunker = Dechunker()
        try:
            dechunker.feed(body)
        except MalformedError:  # curl removes the framing unless it runs with --raw
            losses.update(("boundaries", "ending"))
            return replace(one, reads=frames_of(body))
        framed = {"framed": True} if dechunker.done else {"framed": False, "broke": "truncated"}
        return replace(one, reads=[(0, part) for part in dechunker.parts if part], framed=framed)
    losses["boundaries"] += 1
    one = replace(one, reads=frames_of(body))
    if not length.isdecimal() or len(length) >= 16:
        losses["ending"] += 1
        return one
    one = replace(one, framing={"framing": "length", "length": int(length)})
    if len(body) >= int(length):
        return replace(one, cause="framed", framed={"framed": True})
    return replace(one, framed={"framed": False, "broke": "truncated"})


# -- aimock -----------------------------------------------------------------------------------------------------------


def _from_aimock(data: bytes) -> Contents:
    """Read a stream for each chat fixture."""
    rows = as_list(as_object(parse(data)).get("fixtures"))
    if not rows:
        raise TapeError("no fixtures")
    losses: Counter[str] = Counter()
    return Contents(_exchanges(rows, losses), losses)


def _exchanges(rows: list[Any], losses: Counter[str]) -> Iterator[Imported]:
    for number, row in enumerate(rows, 1):
        fixture = as_object(row)
        response, match = as_object(fixture.get("response")), as_object(fixture.get("match"))
        if any(name in fixture for name in _FAULTS):
            losses["faults"] += 1
        request = _request(match)
        if is_object(response.get("error")):
            yield _failed(response, request)
        elif any(name in response for name in _RESULTS):
            reads_ = [(0, frame) for frame in _frames(response, match, number)]
            yield Imported(target=f"/v1{_CHAT.path}", request_body=request, reads=reads_, upstream="aimock")
        else:
            losses["other_protocols"] += 1  # images, audio, embeddings


def _request(match: dict[str, Any]) -> bytes | None:
    """Return a request that the fixture matches, or None if it matches a pattern or a function."""
    words = match.get("userMessage")
    if not isinstance(words, str):
        return None
    name = match.get("model")
    request = {"model": name} if isinstance(name, str) else {}
    return dumps({**request, "stream": True, "messages": [{"role": "user", "content": words}]})


def _failed(response: dict[str, Any], request: bytes | None) -> Imported:
    status, after = response.get("status"), response.get("retryAfter")
    headers = [("content-type", "application/json")]
    if isinstance(after, int) and not isinstance(after, bool):
        headers.append(("retry-after", str(after)))
    return Imported(
        target=f"/v1{_CHAT.path}",
        request_body=request,
        status=status if type(status) is int and 400 <= status <= 599 else 500,
        headers=headers,
        reads=[(0, dumps({"error": response["error"]}))],
        cause="status",
        upstream="aimock",
    )


def _frames(response: dict[str, Any], match: dict[str, Any], number: int) -> list[bytes]:
    name, created = response.get("model", match.get("model")), response.get("created")
    head = envelope(
        _text(response.get("id") or f"{_CHAT.id_prefixes[0]}aimock-{number}"),
        name if isinstance(name, str) else "aimock",
        created if type(created) is int else 0,
    )
    return [encode(payload) for payload in payloads(_events(response), head)]


def _events(response: dict[str, Any]) -> Iterator[model.Event]:
    """Yield what the response contains, in order."""
    if response.get("reasoning"):
        yield model.ReasoningDelta(n=0, choice=0, text=_text(response["reasoning"]))
    calls = 0
    for block in _blocks(response):
        if block.get("type") == "text":
            yield model.TextDelta(n=0, choice=0, text=_text(block.get("text") or ""))
            continue
        arguments = block.get("arguments")
        id_, name = _text(block.get("id") or f"call_{calls}"), _text(block.get("name") or "")
        yield model.ToolCallStarted(n=0, choice=0, call=calls, id=id_, name=name)
        yield model.ToolArgumentsDelta(n=0, choice=0, call=calls, text=_text({} if arguments is None else arguments))
        calls += 1
    finish = response.get("finishReason") or (CALLS if calls else "stop")
    yield model.Finish(n=0, choice=0, reason=_text(finish))
    if is_object(response.get("usage")):
        yield model.Usage(n=0, counts=response["usage"])
    yield model.Terminator(n=0)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else dumps(value).decode("utf-8", "replace")


def _blocks(response: dict[str, Any]) -> Iterator[dict[str, Any]]:
    blocks = as_list(response.get("blocks"))
    if not blocks:
        blocks = [{"type": "text", "text": response["content"]}] if response.get("content") else []
        blocks += [{**as_object(call), "type": "toolCall"} for call in as_list(response.get("toolCalls"))]
    return map(as_object, blocks)


# -- the table --------------------------------------------------------------------------------------------------------

#: A file with more exchanges is not the recording of a conversation.
_STREAMS_MAX: Final = 10_000


class Format(NamedTuple):
    """A format that `wiretape import` reads."""

    what: str
    read: Callable[[bytes], Contents]
    #: Losses of every file.
    always: tuple[str, ...]
    #: Losses of some files.
    sometimes: tuple[str, ...] = ()


class Export(NamedTuple):
    """A format that `wiretape export` writes."""

    what: str
    always: tuple[str, ...]
    sometimes: tuple[str, ...]


class Outcome(NamedTuple):
    """The streams of one file, and how often it lacks what."""

    streams: list[list[Record]]
    losses: Counter[str]
    header: Mapping[str, Any] = NO_KEYS


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "sse": Format(
            "raw event streams, as `curl -N` prints them",
            _from_sse,
            ("boundaries", "ending", "request", "status", "time", "times"),
        ),
        "curl": Format(
            "output of `curl -i`; with `--raw` the chunks are kept as reads",
            _from_curl,
            ("headers", "request", "time", "times"),
            ("boundaries", "coding", "ending"),
        ),
        "har": Format(
            "HAR 1.2 from browsers, mitmproxy and `wiretape export`",
            from_har,
            (),
            ("body", "boundaries", "coding", "ending", "headers", "other_protocols", "time", "times", "unanswered"),
        ),
        "vcr": Format(
            "cassettes of VCR.py and cassetter, YAML or JSON",
            from_vcr,
            ("boundaries", "ending", "headers", "times"),
            ("coding", "json", "other_protocols", "time", "unanswered"),
        ),
        "aimock": Format(
            "fixtures of aimock",
            _from_aimock,
            ("boundaries", "bytes", "ending", "request_matched", "status", "time", "times"),
            ("faults", "other_protocols"),
        ),
    }
)

EXPORTS: Final[Mapping[str, Export]] = MappingProxyType(
    {
        "sse": Export(
            "the bytes of one stream from the upstream, or with `--as client` to the client",
            ("boundaries", "client", "ending", "headers", "request", "settings", "status", "time", "times"),
            ("attempts", "merged"),
        ),
        "har": Export(
            "HAR 1.2 with `_chunks`, `_ending` and `_wiretape`",
            ("client", "settings"),
            ("attempts", "headless", "merged"),
        ),
        "otlp": Export("traces for OpenTelemetry, as OTLP's JSON", (), ()),
        "html": Export("one stream as a page of the inspector, with everything in one file", (), ("excerpts",)),
    }
)

_RECORD: Final = re.compile(rb'\{"c":"[0-9a-f]{8}",')
_FIELD: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:(?:data|event|id|retry)(?::|\r|\n|$)|:)")
#: mitmproxy's own dump: a netstring that holds an object.
_FLOWS: Final = re.compile(rb"\d{1,12}:\d{1,12}:[a-z_]+;")


def read(data: bytes, name: str = "auto") -> tuple[str, Outcome]:
    """Return the format of a file and its streams; equal bytes give equal records. Raise only `TapeError`."""
    found = detected(data) if name == "auto" else name
    source = f"{found}-{hashlib.sha256(data).hexdigest()[:16]}"
    try:
        contents = FORMATS[found].read(data)
        exchanges = list(islice(contents.exchanges, _STREAMS_MAX + 1))
        streams = [records_of(one, found, f"{source}-{number}") for number, one in enumerate(exchanges, 1)]
    except TapeError as error:
        raise TapeError(f"as {found}: {error}") from error
    except RecursionError:
        raise TapeError(f"as {found}: nested too deeply") from None
    if not 0 < len(streams) <= _STREAMS_MAX:
        count = f"more than {_STREAMS_MAX} exchanges" if streams else "no exchange with a response"
        raise TapeError(f"as {found}: {count} in this file")
    for number, why in unplayable(streams, [[number] * len(records) for number, records in enumerate(streams, 1)]):
        raise TapeError(f"as {found}: stream {number}: {why}")
    return found, Outcome(streams, contents.losses + Counter(FORMATS[found].always), contents.header)


def detected(data: bytes) -> str:
    """Return the name of the format of a file, by its content alone; raise `TapeError` if it is unknown."""
    if data.startswith(MARK) or _RECORD.match(data):
        raise TapeError("already a tape; use `wiretape seal` to seal a live one")
    if data.startswith(b"HTTP/"):
        return "curl"
    if _FLOWS.match(data):
        raise TapeError("flows of mitmproxy; export them as HAR first: mitmdump -nr FILE --set hardump=flows.har")
    value = parse(data) if data.lstrip()[:1] in (b"{", b"[") else ABSENT
    names = {"log": "har", "interactions": "vcr", "fixtures": "aimock"}
    if found := next((kind for name, kind in names.items() if name in as_object(value)), ""):
        return found
    if _FIELD.match(data):
        return "sse"
    if re.search(rb"^interactions:", data[:1_000_000], re.MULTILINE):
        return "vcr"
    raise TapeError(f"unknown format; choose one with --format ({', '.join(FORMATS)})")
