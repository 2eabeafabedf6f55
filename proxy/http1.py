"""HTTP/1.1 message syntax (RFC 9112) for both sides of the proxy: headers, heads and chunked bodies.

h11 looks at each header seven times and makes an object of each chunk (3.8 us; a read of 64 KiB holds 250 of them), and
it accepts a bare LF after trailers, where the next proxy may see another request. This module has one
parser for heads and one for chunks, as strict as h11 or stricter.
"""

import re
from collections.abc import Collection, Iterable, Iterator
from http import HTTPStatus
from typing import Final

from wiretape.events.core.errors import LocalError

from .limits import BODY_BYTES_MAX, CHUNK_BYTES_FREE, CHUNK_EXCESS_BYTES_MAX, HEAD_BYTES_MAX

__all__ = ["PHRASES", "TOKEN", "Dechunker", "Header", "Headers", "MalformedError", "format_head", "parse_head"]

Header = tuple[bytes, bytes]

PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
#: What methods and header names consist of.
TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"

_LINE_END: Final = re.compile(rb"\r?\n")
_STRICT: Final = re.compile(TOKEN + rb":[ \t]*[^\x00-\x08\x0a-\x1f\x7f]*")
_LENIENT: Final = re.compile(TOKEN + rb":[ \t]*[^\x00\n\r\x0b\x0c]*")
_CONTINUED: Final = re.compile(rb"[ \t]+[^\x00\n\r\x0b\x0c]*")
_WRITTEN: Final = re.compile(rb"(?:" + TOKEN + rb": [^\x00\n\r\x0b\x0c]*\r\n)*")

#: A chunk's size, as h11 has it: up to 20 digits, an extension that is ignored, white space before the line end.
_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\r\n\x00]*)?[ \t]*\r\n")
_SIZE_BEGUN: Final = re.compile(rb"[0-9A-Fa-f]{1,20}(?![0-9A-Fa-f])|[0-9A-Fa-f]{0,20}$")
#: A size as nearly all chunks have it.
_SHORT_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,4})\r\n")
_TRAILER: Final = re.compile(TOKEN + rb":[^\x00\r\n]*")


class Headers:
    """The headers of one message as an immutable value, in the order in which they came.

    Names keep their spelling and are looked up without regard to case: look-ups take lower-case names.
    """

    __slots__ = ("_entries", "_first")

    def __init__(self, headers: Iterable[Header] = ()) -> None:
        """Copying another `Headers` is free."""
        self._entries: tuple[tuple[bytes, bytes, bytes], ...]
        self._first: dict[bytes, bytes]
        if isinstance(headers, Headers):
            self._entries, self._first = headers._entries, headers._first  # noqa: SLF001 - the same class
            return
        entries: list[tuple[bytes, bytes, bytes]] = []
        self._first = {}
        for name, value in headers:
            lower = name.lower()
            entries.append((lower, name, value))
            self._first.setdefault(lower, value)
        self._entries = tuple(entries)

    def __iter__(self) -> Iterator[Header]:
        return iter([(name, value) for _, name, value in self._entries])

    def __contains__(self, name: object) -> bool:
        return name in self._first

    def get(self, name: bytes, default: bytes = b"") -> bytes:
        """Return the first value of a header."""
        return self._first.get(name, default)

    def all(self, name: bytes) -> list[bytes]:
        """Return every value of a header."""
        if name not in self._first:
            return []
        if len(self._first) == len(self._entries):  # no header is repeated
            return [self._first[name]]
        return [value for lower, _, value in self._entries if lower == name]

    def repeated(self, names: Iterable[bytes]) -> list[bytes]:
        """Return which of these headers come more than once."""
        if len(self._first) == len(self._entries):
            return []
        return [name for name in names if len(self.all(name)) > 1]

    def media_type(self) -> bytes:
        """Return the media type of `content-type` in lower case, without parameters."""
        return self._first.get(b"content-type", b"").partition(b";")[0].strip().lower()

    def only(self, names: Collection[bytes], prefixes: tuple[bytes, ...] = ()) -> list[Header]:
        """Return the headers of these names or prefixes, with lower-case names."""
        kept: list[Header] = []
        for lower, _, value in self._entries:
            if lower in names or lower.startswith(prefixes):
                kept.append((lower, value))
        return kept

    def without(self, names: Collection[bytes], prefixes: tuple[bytes, ...] = ()) -> list[Header]:
        """Return all headers but those of these names or prefixes, with their names as they came."""
        kept: list[Header] = []
        for lower, name, value in self._entries:
            if lower not in names and not lower.startswith(prefixes):
                kept.append((name, value))
        return kept


class MalformedError(Exception):
    """What was received is not HTTP/1.1; the message gives the reason without quoting it."""


def parse_head(block: bytes, *, lenient: bool = False) -> tuple[bytes, list[Header]] | None:
    """Split a head, without its final empty line, into its first line and its headers; None if it is malformed.

    Names become lower case as ASGI wants them. `lenient` keeps them, and accepts what upstreams are known to send: bare
    LF, folded values, control characters.
    """
    first, *lines = _LINE_END.split(block) if lenient else block.split(b"\r\n")
    headers: list[Header] = []
    for line in lines:
        if (_LENIENT if lenient else _STRICT).fullmatch(line):
            name, _, value = line.partition(b":")
            headers.append((name if lenient else name.lower(), value.strip(b" \t")))
        elif lenient and headers and _CONTINUED.fullmatch(line):
            name, value = headers[-1]
            headers[-1] = (name, value + b" " + line.strip(b" \t"))
        else:
            return None
    return first, headers


def format_head(first_line: bytes, headers: Iterable[Header]) -> bytes:
    """Return a head as it is sent; raise LocalError for a header that would be read as anything else."""
    parts = [b"%b: %b\r\n" % header for header in headers]
    lines = b"".join(parts)
    if lines.count(b"\n") != len(parts) or not _WRITTEN.fullmatch(lines):
        raise LocalError("a header has a forbidden character")  # never quoted: it may be a key
    return b"%b\r\n%b\r\n" % (first_line, lines)


class Dechunker:
    """A parser for a chunked body: `feed` it reads, take the body's pieces from `parts`, until it is `done`.

    `feed` raises MalformedError for broken framing, or framing out of proportion to the data; `parts` then holds the
    data before the fault.
    """

    def __init__(self) -> None:
        self.done = False
        self.rest = b""
        """What was received after the body, once it is done."""
        self.parts: list[bytes] = []
        self._size_line = b""
        self._chunk_left = 0
        self._chunk_end = b""
        """What is still missing of the line end after a chunk's data."""
        self._in_trailers = False
        self._trailers = bytearray()
        self._excess_bytes = 0

    def feed(self, data: bytes) -> None:
        """Parse one read."""
        self.parts = []
        held_bytes = len(self._trailers)
        if self._size_line:
            data, self._size_line = self._size_line + data, b""
        at, chunks, body_bytes = 0, 0, 0
        while at < len(data) and not self.done:
            if self._chunk_left:
                piece = data[at : at + self._chunk_left]
                self._chunk_left -= len(piece)
                at += len(piece)
                body_bytes += len(piece)
                self.parts.append(piece)
                if not self._chunk_left:
                    self._chunk_end = b"\r\n"
            elif self._chunk_end:
                piece = data[at : at + len(self._chunk_end)]
                if not self._chunk_end.startswith(piece):
                    raise MalformedError("a chunk does not end where its size says")
                self._chunk_end = self._chunk_end[len(piece) :]
                at += len(piece)
            elif self._in_trailers:
                at = self._read_trailers(data, at)
            else:
                size = _SHORT_SIZE.match(data, at) or self._read_size(data, at)
                if size is None:
                    break
                chunks += 1
                length, at = int(size[1], 16), size.end()
                if length and data.startswith(b"\r\n", at + length):  # the whole chunk, as in nearly all reads
                    self.parts.append(data[at : at + length])
                    body_bytes += length
                    at += length + 2
                else:
                    self._chunk_left = length
                    self._in_trailers = not length
        framing_bytes = (
            held_bytes + len(data) - len(self._size_line) - len(self._trailers) - len(self.rest) - body_bytes
        )
        allowed_bytes = CHUNK_BYTES_FREE * chunks + 2 * body_bytes
        self._excess_bytes = max(0, self._excess_bytes + framing_bytes - allowed_bytes)
        if self._excess_bytes > CHUNK_EXCESS_BYTES_MAX:
            raise MalformedError("its chunks are nearly all framing")

    def _read_size(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """Return the size line at this place, None while it is incomplete."""
        size = _SIZE.match(data, at) if data.find(b"\n", at) >= 0 else None  # matched once, not for each dripped byte
        if size is not None and size.end() - at <= HEAD_BYTES_MAX and int(size[1], 16) <= BODY_BYTES_MAX:
            return size
        rest = data[at:]
        if b"\n" in rest or len(rest) > HEAD_BYTES_MAX or not _SIZE_BEGUN.match(rest):
            raise MalformedError("illegal chunk size")
        self._size_line = rest
        return None

    def _read_trailers(self, data: bytes, at: int) -> int:
        """Drop the trailers up to their empty line, looking at each byte once; return the place after them."""
        text, seen = self._trailers, len(self._trailers)
        text += data[at:]
        if text.startswith(b"\r\n"):
            end = 2
        else:
            found = text.find(b"\r\n\r\n", max(0, seen - 3))
            if (found if found >= 0 else len(text)) > HEAD_BYTES_MAX:
                raise MalformedError("the trailers are too long")
            if found < 0:
                if text.count(b"\n", seen) != text.count(b"\r\n", max(0, seen - 1)):
                    raise MalformedError("a trailer ends without CR")
                return len(data)
            if not all(_TRAILER.fullmatch(line) for line in text[:found].split(b"\r\n")):
                raise MalformedError("illegal trailer")
            end = found + 4
        self.done = True
        at = len(data) - (len(text) - end)
        self.rest = data[at:]
        text.clear()
        return at
