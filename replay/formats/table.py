"""Every format by name: who reads it, how its content is known, who writes it, and what it may lose"""

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_object, is_object, parse

from ..sealed.sealed import MARK
from .ai_sdk import from_chunks
from .aimock import from_aimock
from .curl import from_curl
from .har import from_har
from .imported import Outcome
from .mitmproxy import from_mitmproxy
from .sse import from_sse
from .vcr import from_vcr

__all__ = ["EXPORTS", "FORMATS", "Format", "detected", "read"]


class Format(NamedTuple):
    """One that is read."""

    #: What it is, for a person.
    what: str
    read: Callable[[bytes], Outcome]
    #: What is lost of every file, and what of some.
    always: tuple[str, ...]
    sometimes: tuple[str, ...] = ()


FORMATS: Final[Mapping[str, Format]] = MappingProxyType(
    {
        "sse": Format(
            "a raw event stream, as `curl -N` prints it",
            from_sse,
            ("boundaries", "ending", "request", "status", "time", "times"),
        ),
        "curl": Format(
            "what `curl -i` prints; with `--raw` the chunks are kept as reads",
            from_curl,
            ("headers", "request", "time", "times"),
            ("boundaries", "coding", "ending"),
        ),
        "har": Format(
            "HAR 1.2, of browsers and of `wiretape export`",
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
            "`.chunks.txt` of Vercel's AI SDK",
            from_chunks,
            ("boundaries", "ending", "framing", "request", "status", "time", "times"),
        ),
        "aimock": Format(
            "fixtures of aimock",
            from_aimock,
            ("boundaries", "bytes", "ending", "request_matched", "status", "time", "times"),
            ("faults", "other_protocols"),
        ),
        "mitmproxy": Format(
            "flows of `mitmdump -w`",
            from_mitmproxy,
            ("headers", "one_read"),
            ("body", "coding", "ending", "other_protocols", "time", "times", "unanswered"),
        ),
    }
)

#: What is written, and what of it is lost: always, and sometimes.
EXPORTS: Final[Mapping[str, tuple[str, tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "sse": (
            "the bytes of one stream: the upstream's, or with `--as client` those that the client got",
            ("boundaries", "client", "ending", "headers", "request", "settings", "status", "time", "times"),
            ("attempts", "merged"),
        ),
        "har": (
            "HAR 1.2 with `_chunks`, `_ending` and `_wiretape`",
            ("client", "settings"),
            ("attempts", "headless"),
        ),
    }
)

_NETSTRING: Final = re.compile(rb"(\d{1,12}):")
_RECORD: Final = re.compile(rb'\{"c":"[0-9a-f]{8}",')
_FIELD: Final = re.compile(rb"(?:\xef\xbb\xbf)?[\r\n]*(?:(?:data|event|id|retry)(?::|\r|\n|$)|:)")


def detected(data: bytes) -> str:
    """The name of the format, by the content alone; raises TapeError."""
    if data.startswith(MARK) or _RECORD.match(data):
        raise TapeError("this is a tape already: `wiretape seal` makes a sealed one of a live one")
    if data.startswith(b"HTTP/"):
        return "curl"
    size = _NETSTRING.match(data[:16])
    if size is not None and data[size.end() + int(size[1]) : size.end() + int(size[1]) + 1] == b"}":
        return "mitmproxy"
    if data.lstrip()[:1] in (b"{", b"["):
        found = _json_kind(data)
        if found:
            return found
    if _FIELD.match(data):
        return "sse"
    if re.search(rb"^interactions:", data[:1_000_000], re.MULTILINE):
        return "vcr"
    raise TapeError(f"none of the formats that are known by their content; --format names one: {', '.join(FORMATS)}")


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


def read(data: bytes, name: str = "auto") -> tuple[str, Outcome]:
    """The streams of a file, and what its format is called. Raises TapeError and nothing else, whatever the bytes."""
    found = detected(data) if name == "auto" else name
    try:
        return found, FORMATS[found].read(data)
    except TapeError as error:
        raise TapeError(f"as {found}: {error}") from error
    except RecursionError:
        raise TapeError(f"as {found}: nested too deeply") from None
