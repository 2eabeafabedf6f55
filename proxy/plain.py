"""Heads of HTTP/1.1 that are plainly right, written by hand; all others are h11's to write, and to find fault with

h11 looks at each header seven times on its way through us, which took 250 us of a short stream's 1,500. What peers send
is still read by it, or by the guard, which is stricter.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final

from .exchange import Header

__all__ = ["PHRASES", "answer_head", "header_lines"]

PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
#: No name or value holds a line end or a control character, and no value has white space around it.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?![ \t])[^\x00-\x08\x0a-\x1f\x7f]*(?<![ \t])\r\n)*")
#: Of the framing of an answer, which is ours to say.
_FRAMING: Final = frozenset({b"connection", b"content-length", b"transfer-encoding", b"upgrade"})


def header_lines(headers: Sequence[Header]) -> bytes | None:
    """As they go out, in their order and spelling; None where a peer could read anything else in them."""
    lines = b"".join([b"%b: %b\r\n" % header for header in headers])
    return lines if lines.count(b"\n") == len(headers) and _LINES.fullmatch(lines) else None


def answer_head(status: int, headers: Sequence[Header], *, closes: bool) -> bytes | None:
    """Of a chunked answer."""
    lines = header_lines(headers)
    if lines is None or not _FRAMING.isdisjoint([name.lower() for name, _ in headers]):
        return None
    framing = b"transfer-encoding: chunked\r\n" + (b"connection: close\r\n" if closes else b"")
    return b"HTTP/1.1 %d %b\r\n%b%b\r\n" % (status, PHRASES.get(status, b""), lines, framing)
