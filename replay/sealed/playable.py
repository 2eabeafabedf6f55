"""Decide whether a recording can be played: a tape may come from a stranger, and its heads become heads of HTTP

`files.parse` refuses what this module finds, so no command plays it, and `check` reports it.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from wiretape.events.core.errors import LocalError
from wiretape.events.core.json_text import as_list
from wiretape.events.tape.record import Record
from wiretape.proxy.http1 import TOKEN, format_head
from wiretape.proxy.security.headers import HOP_BY_HOP

__all__ = ["unplayable"]

#: The player frames bodies itself; with a second framing, a body would be read as further responses.
_FRAMING: Final = frozenset({*HOP_BY_HOP, b"content-length"})
_TARGET: Final = re.compile(TOKEN.decode() + r" [^\x00-\x20\x7f]+")
_LENGTH_MAX: Final = 10**18
#: A week: far beyond the deadlines of any stream.
_STREAM_US_MAX: Final = 7 * 24 * 3_600 * 1_000_000


def unplayable(streams: Sequence[Sequence[Record]], lines: Sequence[Sequence[int]]) -> Iterator[tuple[int, str]]:
    """Yield the line of each record that cannot be played, and why. `lines` has the line of each record."""
    if not streams:
        yield 1, "the tape contains no stream"
    for records, places in zip(streams, lines, strict=True):
        if all(record.kind not in ("request", "run") for record in records):
            yield places[0], "a stream without its request answers no client: take it out"
        last_t = 0
        for record, line in zip(records, places, strict=True):
            if record.t < last_t:
                yield line, "its time is before that of the record before it"
            elif record.t > _STREAM_US_MAX:
                yield line, "its time is later than any stream takes"
            elif why := _head(record):
                yield line, why
            last_t = record.t


def _head(record: Record) -> str:
    """Return why the head of a request or of a response cannot be sent, if so."""
    status, length, path = (record.keys.get(name) for name in ("status", "length", "path"))
    if record.kind == "head" and (type(status) is not int or not 200 <= status <= 999):
        return "its status is not a number from 200 to 999"
    if record.kind == "head" and length is not None and (type(length) is not int or not 0 <= length < _LENGTH_MAX):
        return "its length is not that of a body"
    if record.kind == "request" and _TARGET.fullmatch(f"{record.keys.get('method')} {path}") is None:
        return "its method and path are not those of a request"
    return _headers(record.keys.get("headers")) if record.kind in ("head", "request") else ""


def _headers(headers: Any) -> str:
    for row in as_list(headers):
        match row:
            case [str(name), str(value)]:
                header = name.encode("latin-1", "replace"), value.encode("latin-1", "replace")
                try:
                    format_head(b"", [header])
                except LocalError:
                    return "a header has a forbidden character"
                if header[0].lower() in _FRAMING:
                    return f"the header {name.lower()} belongs to a connection, which the replay frames itself"
            case _:
                return "a header is not a name and a value"
    return ""
