"""Read and write HAR 1.2. Three members of ours (`_chunks`, `_ending`, `_wiretape`) let it hold a whole stream.

"_chunks": [{"at_us": 300000, "bytes": 120}, ...]   each read: microseconds since startedDateTime, and its size
"_ending": {"cause": "eof", "ending": "truncated", "flags": [], "framed": false, "broke": "reset"}
"_wiretape": {"request_us": 40, "attempt_us": 90, "head_us": 250000, "end_us": 1000000, "framing": {...}}
"_wiretape": {"exact": false, "redacted": {...}}    in the log itself: what sealing did to the tape
"""

import base64
import binascii
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import as_list, as_object, dumps, parse
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import reads

from ..playback.script import attempts_of, is_crossed, uncrossed
from ..redaction.plain_text import headers_on
from .exchange import Clock, Contents, Imported, decoded, microseconds, reads_of, split_url, status_of

__all__ = ["from_har", "to_har"]

_US: Final = 1_000
#: Tapes keep only the path of a request to Wiretape; HAR wants a whole URL.
_ORIGIN: Final = "http://wiretape"
_NUMBER_MAX: Final = 2**53
_YEAR_10_000_US: Final = 253_402_300_799 * 1_000_000
_PHASES: Final = ("blocked", "dns", "connect", "send", "wait")
#: Keys of an `end` record that describe how the stream ended.
_ENDING: Final = ("cause", "ending", "flags", "framed", "broke")
#: Keys of a sealed tape's header that record what sealing did to it.
_FRAMING: Final = ("framing", "length")
_SEALING: Final = ("exact", "normalised", "redacted")


def from_har(data: bytes) -> Contents:
    """Read a stream for each entry with a response."""
    log = as_object(as_object(parse(data)).get("log"))
    if "entries" not in log:
        raise TapeError("no log with entries")
    losses: Counter[str] = Counter()
    sealing = _members(as_object(log.get("_wiretape")), _SEALING)
    return Contents(_exchanges(as_list(log["entries"]), losses), losses, sealing)


def _exchanges(entries: list[Any], losses: Counter[str]) -> Iterator[Imported]:
    for value in entries:
        entry = as_object(value)
        request, response = as_object(entry.get("request")), as_object(entry.get("response"))
        if entry.get("_webSocketMessages") or not str(request.get("url", "")).startswith("http"):
            losses["other_protocols"] += 1
        elif _number(response.get("status")) == 0:  # what browsers write when there was no response
            losses["unanswered"] += 1
        else:
            yield decoded(_exchange(entry, losses), losses)


def _exchange(entry: dict[str, Any], losses: Counter[str]) -> Imported:
    request, response = as_object(entry.get("request")), as_object(entry.get("response"))
    ours, ending = as_object(entry.get("_wiretape")), as_object(entry.get("_ending"))
    headers = _headers(response.get("headers"))
    content = as_object(response.get("content"))
    body = _content(content)
    if not body and _number(content.get("size"), 0):
        losses["body"] += 1
    clock, at = _clock(as_object(entry.get("timings")), ours, losses)
    chunks = as_list(entry.get("_chunks"))
    reads = _reads(body, chunks) if chunks else None
    if reads is None:
        losses["boundaries"] += 1
        reads = reads_of(body, headers, at)
        if any(t != at for t, _ in reads):  # an event stream: its frames have no times
            losses["times"] += 1
    host, target = split_url(str(request.get("url")))
    posted = as_object(request.get("postData"))
    created = microseconds(entry.get("startedDateTime"))
    losses.update(
        code for code, missing in (("ending", not ending), ("headers", not ours), ("time", created is None)) if missing
    )
    return Imported(
        method=str(request.get("method") or "GET"),
        target=target,
        request_headers=_headers(request.get("headers")),
        request_body=_content({**posted, "encoding": posted.get("_encoding")}) or None,
        status=status_of(response.get("status")),
        headers=headers,
        reads=reads,
        clock=clock,
        cause=str(ending.get("cause") or "eof"),
        framing={name: value for name, value in as_object(ours.get("framing")).items() if _frames(name, value)},
        framed={name: ending[name] for name in ("framed", "broke") if isinstance(ending.get(name), bool | str)},
        ending=ending["ending"] if isinstance(ending.get("ending"), str) else None,
        flags=[flag for flag in as_list(ending.get("flags")) if isinstance(flag, str)],
        created_us=_number(ours.get("created_us"), created),
        upstream=str(ours.get("upstream") or host),
    )


def _content(content: dict[str, Any]) -> bytes:
    text = content.get("text")
    if not isinstance(text, str):
        return b""
    if content.get("encoding") != "base64":
        return text.encode("utf-8", "surrogatepass")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise TapeError("a response body is marked as base64 and is not") from None


def _reads(body: bytes, chunks: list[Any]) -> list[tuple[int, bytes]] | None:
    """Cut a body by our own `_chunks`, or by those with `ts` in milliseconds; None if they do not fit the body."""
    found: list[tuple[int, bytes]] = []
    at, last = 0, 0
    for value in chunks:
        chunk = as_object(value)
        size = _number(chunk.get("bytes"), -1)
        t = _number(chunk.get("at_us"), round(_milliseconds(chunk.get("ts")) * _US))
        if size is None or size <= 0 or t is None or t <= last:
            return None
        found.append((t, body[at : at + size]))
        at, last = at + size, t
    return found if at == len(body) else None


def _clock(timings: dict[str, Any], ours: dict[str, Any], losses: Counter[str]) -> tuple[Clock, int]:
    """Return the clock of an exchange, and when its body was complete."""
    exact = [_number(ours.get(name)) for name in ("request_us", "attempt_us", "head_us", "end_us")]
    if None not in exact and exact == sorted(exact, key=lambda t: t or 0):
        request, attempt, head, end = (t or 0 for t in exact)
        return Clock(request, attempt, head, end), end
    waited = sum(max(0.0, _milliseconds(timings.get(name))) for name in _PHASES)
    received = max(0.0, _milliseconds(timings.get("receive")))
    if not waited and not received:
        losses["times"] += 1
        return Clock(), 0
    head_us = max(3, round(waited * _US))
    end_us = head_us + max(1, round(received * _US))
    return Clock(head=head_us, end=end_us), end_us


def _frames(name: str, value: Any) -> bool:
    return value in ("chunked", "length", "close") if name == "framing" else name == "length" and type(value) is int


def _number(value: Any, otherwise: int | None = None) -> int | None:
    return value if type(value) is int and 0 <= value < _NUMBER_MAX else otherwise


def _milliseconds(value: Any) -> float:
    number = float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0
    return number if -1 <= number < 1e12 else 0.0


def _headers(value: Any) -> list[tuple[str, str]]:
    rows = (as_object(row) for row in as_list(value))
    return [(str(row["name"]), str(row["value"])) for row in rows if "name" in row and "value" in row]


# -- writing ----------------------------------------------------------------------------------------------------------


def to_har(streams: Iterable[Sequence[Record]], header: Mapping[str, Any] = NO_KEYS) -> tuple[bytes, Counter[str]]:
    """Return an entry for each stream, with the sealing that this tape header names; and what only some files lose."""
    losses: Counter[str] = Counter()
    entries: list[dict[str, Any]] = []
    for records in streams:
        entries.append(_entry(uncrossed(records)))
        losses["merged"] += is_crossed(records)
        losses["attempts"] += len(attempts_of(records)) > 1
        losses["headless"] += all(record.kind != "head" for record in attempts_of(records)[-1])
    log: dict[str, Any] = {"version": "1.2", "creator": {"name": "wiretape", "version": "1"}, "entries": entries}
    if sealing := _members(header, _SEALING):
        log["_wiretape"] = sealing
    return dumps({"log": log}) + b"\n", +losses


def _entry(records: Sequence[Record]) -> dict[str, Any]:
    last = attempts_of(records)[-1]
    request, attempt = _first(records, "request"), _first(last, "attempt")
    head, end = _first(last, "head"), _first(last, "end")
    received = list(reads(last))
    opened = _first(records, "open").keys
    seconds = _number(opened.get("created"))
    created_us = _number(opened.get("created_us"), None if seconds is None else seconds * 1_000_000)
    if created_us is not None and created_us >= _YEAR_10_000_US:
        created_us = None
    ours: dict[str, Any] = {
        "request_us": request.t,
        "attempt_us": attempt.t,
        "head_us": head.t,
        "end_us": end.t,
        "framing": _members(head.keys, _FRAMING),
        **_members(attempt.keys, ("upstream",)),
    }
    ours |= {} if created_us is None else {"created_us": created_us}
    return {
        "startedDateTime": datetime.fromtimestamp((created_us or 0) / 1e6, UTC).isoformat(),
        "time": end.t / _US,
        "request": _request(request),
        "response": _response(head, b"".join(data for _, data in received)),
        "cache": {},
        "timings": {"send": attempt.t / _US, "wait": (head.t - attempt.t) / _US, "receive": (end.t - head.t) / _US},
        "_chunks": [{"at_us": t, "bytes": len(data)} for t, data in received],
        "_ending": _members(end.keys, _ENDING),
        "_wiretape": ours,
    }


def _members(keys: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: keys[name] for name in names if name in keys}


def _first(records: Sequence[Record], kind: str) -> Record:
    """Return the first record of a kind, or an empty one if the tape stops before it."""
    last_t = records[-1].t if records else 0
    return next((record for record in records if record.kind == kind), Record(0, last_t, kind, NO_KEYS))


def _request(record: Record) -> dict[str, Any]:
    request: dict[str, Any] = {
        "method": str(record.keys.get("method") or "POST"),
        "url": _ORIGIN + str(record.keys.get("path") or "/"),
        "queryString": [],
        **_message(record, len(record.raw or b"")),
    }
    if record.raw:
        mime_type = _header(record, "content-type") or "application/json"
        request["postData"] = {"mimeType": mime_type, **_written(record.raw, "_encoding")}
    return request


def _response(head: Record, body: bytes) -> dict[str, Any]:
    status = head.keys.get("status")
    return {
        "status": status if type(status) is int else 0,
        "statusText": "",
        "content": {"size": len(body), "mimeType": _header(head, "content-type"), **_written(body, "encoding")},
        "redirectURL": "",
        **_message(head, len(body)),
    }


def _message(record: Record, size: int) -> dict[str, Any]:
    headers = [{"name": name, "value": value} for name, value in headers_on(record.keys)]
    return {"httpVersion": "HTTP/1.1", "cookies": [], "headers": headers, "headersSize": -1, "bodySize": size}


def _written(data: bytes, encoding: str) -> dict[str, str]:
    try:
        return {"text": data.decode()}
    except UnicodeDecodeError:
        return {"text": base64.b64encode(data).decode("ascii"), encoding: "base64"}


def _header(record: Record, name: str) -> str:
    return next((value for each, value in headers_on(record.keys) if each == name), "")
