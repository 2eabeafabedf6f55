"""Plain text forms of one stream: raw event streams, output of `curl -i`, and chunk files of Vercel's AI SDK."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, is_object, parse
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.events.wire.sse import encode
from wiretape.proxy.http1 import Dechunker, MalformedError

from ..playback.player import attempts_of
from .imported import Contents, Imported, decoded, frames_of, guessed_target

__all__ = ["from_chunks", "from_curl", "from_sse", "to_sse"]

_STATUS: Final = re.compile(rb"HTTP/\d(?:\.\d)? (\d{3})(?: [^\r\n]*)?\r?\n")
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([^\r\n]*?)[ \t]*\r?\n")
_LINE_END: Final = re.compile(rb"\r?\n")
#: Members of which a request has one: its prompt.
_PROMPTS: Final = frozenset({"contents", "input", "messages", "prompt"})


def from_sse(data: bytes) -> Contents:
    """Read a raw event stream."""
    return Contents([Imported(target=guessed_target(data), reads=frames_of(data))], Counter())


def to_sse(records: Sequence[Record], *, client: bool = False) -> tuple[bytes, Counter[str]]:
    """Return the upstream's bytes, or with `client` those that the client received; and what is lost."""
    lost: Counter[str] = Counter(
        ("boundaries", "client", "ending", "headers", "request", "settings", "status", "time", "times")
    )
    lost["attempts"] = int(sum(record.kind == "attempt" for record in records) > 1)
    lost["merged"] = int(client)
    return emit(records) if client else b"".join(part for _, part in reads(attempts_of(records)[-1])), +lost


def from_chunks(data: bytes) -> Contents:
    """Read a file with one JSON payload a line. Nothing is added, so these streams never end with `[DONE]`."""
    payloads: list[bytes] = []
    for number, line in enumerate(data.splitlines(), 1):
        payload = line.strip()
        if not payload:
            continue
        value = parse(payload)
        if value is ABSENT or not is_object(value):
            raise TapeError(f"line {number}: not a JSON object")
        if _is_request(value):
            raise TapeError(f"line {number}: a request, not part of a response")
        payloads.append(payload)
    if all(payload == b"{}" for payload in payloads):
        raise TapeError("every payload is empty")
    frames = [encode(payload) for payload in payloads]
    one = Imported(target=guessed_target(b"".join(frames[:3])), reads=[(0, frame) for frame in frames])
    return Contents([one], Counter())


def _is_request(value: dict[str, Any]) -> bool:
    """Recognise a request by its prompt and, except for Gemini, its model."""
    return value.keys().isdisjoint({"type", "object", "id"}) and (
        "contents" in value or ("model" in value and not value.keys().isdisjoint(_PROMPTS))
    )


def from_curl(data: bytes) -> Contents:
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
