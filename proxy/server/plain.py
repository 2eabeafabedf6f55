"""Heads of HTTP/1.1 that are plainly right, written and read by hand; all others are h11's, which finds their fault

h11 looks at each header seven times on its way through us. Nothing passes here that h11 would
refuse or read in another way: each pattern is as strict as its own, or stricter.
"""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from ..limits import HEAD_BYTES_MAX, HEADERS_MAX

__all__ = ["PHRASES", "Read", "answer_head", "header_lines", "read_answer", "request_head"]

PHRASES: Final = {status.value: status.phrase.encode("ascii") for status in HTTPStatus}
#: No name or value holds a line end or a control character, and no value has white space around it.
_LINES: Final = re.compile(rb"(?:[!#$%&'*+\-.^_`|~0-9A-Za-z]+: (?![ \t])[^\x00-\x08\x0a-\x1f\x7f]*(?<![ \t])\r\n)*")
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
#: Of a request these change what h11 expects of the answer, or of the body.
_ODD: Final = frozenset({b"connection", b"expect", b"transfer-encoding", b"upgrade"})
_STATUS: Final = re.compile(rb"HTTP/1\.1 ([2-5][0-9][0-9]) ([\t\x20-\x7e\x80-\xff]*)")
_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
#: Of an answer that is read: with these it is not one that is chunked and nothing else.
_OTHERWISE: Final = frozenset({b"content-length", b"upgrade"})
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
    framing = b"Transfer-Encoding: chunked\r\n" + (b"Connection: close\r\n" if closes else b"")
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


class Read(NamedTuple):
    """The head of an answer whose body is chunked, on a connection that stays."""

    status: int
    reason: bytes
    headers: tuple[tuple[bytes, bytes], ...]
    #: Where the body begins.
    end: int


def read_answer(data: bytes) -> Read | None:
    """Of what came first of an answer to anything but HEAD; None unless it holds a whole head, and a plain one."""
    end = data.find(b"\r\n\r\n", 0, HEAD_BYTES_MAX)
    if end < 0:
        return None
    line, *lines = data[:end].split(b"\r\n")
    status = _STATUS.fullmatch(line)
    if status is None or status[1] in (b"204", b"304") or len(lines) > HEADERS_MAX:
        return None
    headers: list[tuple[bytes, bytes]] = []
    codings = 0
    for each in lines:
        header = _LINE.fullmatch(each)
        if header is None:
            return None
        name, value = header[1].lower(), header[2].rstrip(b" \t")
        if name == b"transfer-encoding":
            codings += 1 if value == b"chunked" else 2
        elif name in _OTHERWISE or (name == b"connection" and value.lower() != b"keep-alive"):
            return None
        headers.append((header[1], value))
    return Read(int(status[1]), status[2], tuple(headers), end + 4) if codings == 1 else None
