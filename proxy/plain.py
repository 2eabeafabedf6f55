"""Heads of HTTP/1.1 that are plainly right, written by hand; all others are h11's to write, and to find fault with

h11 looks at each header seven times on its way through us, which took 250 us of a short stream's 1,500. What peers send
is still read by it, or by the guard, which is stricter.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

__all__ = ["PHRASES", "answer_head", "header_lines", "request_head"]

PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
#: No name or value holds a line end or a control character, and no value has white space around it.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?![ \t])[^\x00-\x08\x0a-\x1f\x7f]*(?<![ \t])\r\n)*")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
#: Of a request these change what h11 expects of the answer, or of the body.
_ODD: Final = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
#: Of the framing of an answer, which is ours to say.
_FRAMING: Final = frozenset({b"connection", b"content-length", b"transfer-encoding", b"upgrade"})


def header_lines(headers: Sequence[tuple[bytes, bytes]]) -> bytes | None:
    """As they go out, in their order and spelling; None where a peer could read anything else in them."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return lines if lines.count(b"\n") == len(headers) and _LINES.fullmatch(lines) else None


def answer_head(status: int, headers: Sequence[tuple[bytes, bytes]], *, closes: bool) -> bytes | None:
    """Of a chunked answer."""
    lines = header_lines(headers)
    if lines is None or not _FRAMING.isdisjoint([name.lower() for name, _ in headers]):
        return None
    framing = b"transfer-encoding: chunked\r\n" + (b"connection: close\r\n" if closes else b"")
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, PHRASES.get(status, b""), lines, framing)


def request_head(method: bytes, target: bytes, headers: Sequence[tuple[bytes, bytes]], length: int) -> bytes | None:
    """Of a request whose body has this length, to the host that is named first."""
    lines = header_lines(headers)
    names = [name.lower() for name, _ in headers]
    if lines is None or not _TARGET.fullmatch(target) or not _ODD.isdisjoint(names):
        return None
    if names.count(b"host") != 1 or names[0] != b"host" or names.count(b"content-length") > 1:
        return None
    said = headers[names.index(b"content-length")][1] if b"content-length" in names else b"0"
    return b"%b %b HTTP/1.1\r\n%b\r\n" % (method, target, lines) if said == b"%d" % length else None
