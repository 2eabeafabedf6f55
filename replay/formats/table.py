"""The table of formats: how each is read, recognised and written, and what each loses."""

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_object, is_object, parse
from wiretape.events.tape.record import NO_KEYS, Record

from ..sealed.sealed import MARK
from .exchange import Contents, records_of
from .har import from_har
from .streams import from_aimock, from_chunks, from_curl, from_sse
from .vcr import from_vcr

__all__ = ["EXPORTS", "FORMATS", "Export", "Format", "Outcome", "detected", "read"]

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
            from_sse,
            ("boundaries", "ending", "request", "status", "time", "times"),
        ),
        "curl": Format(
            "output of `curl -i`; with `--raw` the chunks are kept as reads",
            from_curl,
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
        "chunks": Format(
            "`.chunks.txt` files of Vercel's AI SDK",
            from_chunks,
            ("boundaries", "ending", "framing", "request", "status", "time", "times"),
        ),
        "aimock": Format(
            "fixtures of aimock",
            from_aimock,
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
            ("attempts", "headless"),
        ),
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
    return found, Outcome(streams, contents.losses + Counter(FORMATS[found].always), contents.header)


def detected(data: bytes) -> str:
    """Return the name of the format of a file, by its content alone; raise `TapeError` if it is unknown."""
    if data.startswith(MARK) or _RECORD.match(data):
        raise TapeError("already a tape; use `wiretape seal` to seal a live one")
    if data.startswith(b"HTTP/"):
        return "curl"
    if _FLOWS.match(data):
        raise TapeError("flows of mitmproxy; export them as HAR first: mitmdump -nr FILE --set hardump=flows.har")
    if data.lstrip()[:1] in (b"{", b"["):
        found = _json_kind(data)
        if found:
            return found
    if _FIELD.match(data):
        return "sse"
    if re.search(rb"^interactions:", data[:1_000_000], re.MULTILINE):
        return "vcr"
    raise TapeError(f"unknown format; choose one with --format ({', '.join(FORMATS)})")


def _json_kind(data: bytes) -> str:
    value = parse(data)
    names = {"log": "har", "interactions": "vcr", "fixtures": "aimock"}
    if is_object(value):
        return next((kind for name, kind in names.items() if name in value), "chunks")
    if value is not ABSENT:
        first = as_object(value[0]) if isinstance(value, list) and value else {}
        return "vcr" if {"request", "response"} <= first.keys() else ""
    first_line = next((line for line in data.splitlines() if line.strip()), b"")
    return "chunks" if is_object(parse(first_line)) else ""
