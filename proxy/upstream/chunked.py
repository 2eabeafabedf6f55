"""The chunked coding of a body, taken apart read by read: stricter than h11 where two readers could differ

h11 takes a bare LF for the end of the trailers, and folded ones: a front that reads only CRLF sees one request there
where h11 sees two. Of answers it is about cost, a third of h11's.
A provider writes one event a chunk, so a read of 64 KiB holds 250 of them; h11 makes an object of each (3.8 us), which
was the largest part of what a frame cost.
"""

import re
from typing import Final

from ..limits import CHUNK_BYTES_FREE, CHUNK_EXCESS_BYTES_MAX, HEAD_BYTES_MAX
from .errors import ProtocolError

__all__ = ["Dechunker"]

#: As h11 has it: up to 20 digits, an extension that nobody reads, white space behind.
_HEADER: Final = re.compile(rb"([0-9A-Fa-f]{1,20})(?:;[^\r\n\x00]*)?[ \t]*\r\n")
#: What may become one.
_BEGUN: Final = re.compile(rb"[0-9A-Fa-f]{1,20}(?![0-9A-Fa-f])|[0-9A-Fa-f]{0,20}$")
_TRAILER: Final = re.compile(rb"[-!#$%&'*+.^_`|~0-9a-zA-Z]+:[^\x00\r\n]*")
#: One chunk as nearly all are: its size in up to four digits and nothing else, so that it ends in this read.
_SIMPLE: Final = re.compile(rb"([0-9A-Fa-f]{1,4})\r\n")


class Dechunker:
    """`feed` what lies behind the head, get the body's bytes; `done` when the last chunk and its trailers are over.

    Raises ProtocolError where the framing is broken or nearly all there is; what came before it is lost to the caller
    unless he takes `body` first.
    """

    def __init__(self) -> None:
        self.done = False
        #: What lies behind the body once it is done.
        self.behind = b""
        #: The pieces of this `feed` so far.
        self.parts: list[bytes] = []
        self._pending = b""
        #: Bytes of the chunk that are still to come.
        self._left = 0
        #: Of a chunk's end that are still to come.
        self._footer = b""
        self._trailing = False
        #: As much of the trailers as has come.
        self._trailer = bytearray()
        self._excess_bytes = 0

    def feed(self, data: bytes) -> None:
        """One read; what it brought of the body stands in `parts`."""
        self.parts = []
        if not (self._left or self._footer or self._pending or self._trailing) and self._one(data):
            return
        if self._pending:
            data, self._pending = self._pending + data, b""
        at, size, chunks = 0, len(data), 0
        framing = size + len(self._trailer)
        body_bytes = 0
        while at < size and not self.done:
            if self._left:
                piece = data[at : at + self._left]
                self._left -= len(piece)
                at += len(piece)
                body_bytes += len(piece)
                self.parts.append(piece)
                if not self._left:
                    self._footer = b"\r\n"
            elif self._footer:
                at = self._end_of_chunk(data, at)
            elif self._trailing:
                at = self._trailers(data, at)
            else:
                simple = _SIMPLE.match(data, at)
                if simple is not None:
                    length = int(simple[1], 16)
                    begin = simple.end()
                    end = begin + length
                    if length and data.startswith(b"\r\n", end):
                        self.parts.append(data[begin:end])
                        body_bytes += length
                        chunks += 1
                        at = end + 2
                        continue
                header = simple or self._header(data, at)
                if header is None:
                    break
                chunks += 1
                at = header.end()
                self._left = int(header[1], 16)
                self._trailing = not self._left
        held = len(self._pending) + len(self._trailer)
        self._account(framing - held - body_bytes - len(self.behind), chunks, body_bytes)

    def _one(self, data: bytes) -> bool:
        """Whether this read is exactly one chunk, as it is where an upstream sends one event a write, or one byte."""
        simple = _SIMPLE.match(data)
        if simple is None:
            return False
        begin, end = simple.end(), len(data) - 2
        length = end - begin
        if length <= 0 or length != int(simple[1], 16) or not data.endswith(b"\r\n"):
            return False
        self.parts.append(data[begin:end])
        self._account(begin + 2, 1, length)
        return True

    def _header(self, data: bytes, at: int) -> re.Match[bytes] | None:
        """The next chunk's, or None while it is not whole."""
        header = _HEADER.match(data, at) if data.find(b"\n", at) >= 0 else None  # matched once, not at each drip
        if header is not None and header.end() - at <= HEAD_BYTES_MAX:
            return header
        rest = data[at:]
        if b"\n" in rest or len(rest) > HEAD_BYTES_MAX or not _BEGUN.match(rest):
            raise ProtocolError("the answer is not HTTP/1.1: illegal chunk header")
        self._pending = rest
        return None

    def _end_of_chunk(self, data: bytes, at: int) -> int:
        piece = data[at : at + len(self._footer)]
        if not self._footer.startswith(piece):
            raise ProtocolError("the answer is not HTTP/1.1: malformed chunk footer")
        self._footer = self._footer[len(piece) :]
        return at + len(piece)

    def _trailers(self, data: bytes, at: int) -> int:
        """Dropped, every one of them; they end with an empty line. Each byte is looked at once, however they come."""
        text = self._trailer
        seen = len(text)
        text += data[at:]
        if text.startswith(b"\r\n"):
            return self._over(data, 2)
        end = text.find(b"\r\n\r\n", max(0, seen - 3))
        if end < 0:
            if text.count(b"\n", seen) != text.count(b"\r\n", max(0, seen - 1)):  # nothing can make it right
                raise ProtocolError("the answer is not HTTP/1.1: a trailer ends without CR")
            if len(text) > HEAD_BYTES_MAX:
                raise ProtocolError("the answer is not HTTP/1.1: its trailers are too long")
            return len(data)
        if end > HEAD_BYTES_MAX:
            raise ProtocolError("the answer is not HTTP/1.1: its trailers are too long")
        if not all(_TRAILER.fullmatch(line) for line in text[:end].split(b"\r\n")):
            raise ProtocolError("the answer is not HTTP/1.1: illegal trailer")
        return self._over(data, end + 4)

    def _over(self, data: bytes, end: int) -> int:
        """The trailers end there: what lies behind them is all of this read."""
        self.done = True
        at = len(data) - (len(self._trailer) - end)
        self.behind = data[at:]
        self._trailer.clear()
        return at

    def _account(self, framing_bytes: int, chunks: int, body_bytes: int) -> None:
        """Framing must stay in proportion to what it frames."""
        allowed = CHUNK_BYTES_FREE * chunks + 2 * body_bytes
        self._excess_bytes = max(0, self._excess_bytes + framing_bytes - allowed)
        if self._excess_bytes > CHUNK_EXCESS_BYTES_MAX:
            raise ProtocolError("the answer's chunks are nearly nothing but framing")
