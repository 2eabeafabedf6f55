"""Bytes to SSE frames and frames to bytes: both directions, one grammar, named limits.

The grammar is the WHATWG text. A frame is one block: its lines up to and including the blank line, with any stray
blank lines before it, so that the frames and `rest` together are the received bytes, in order, nothing left out.

One rule is ours, because reads may be cut anywhere and no frame may depend on the cut (law L1): a CR that could end a
block ends it at once, unless the line before ended in CRLF; then the CR waits for its LF. CR-only upstreams are thus
never late by one byte, CRLF upstreams keep whole line ends, and the choice depends on the bytes alone.
"""

import re
from typing import Final, NamedTuple

from ..core.errors import LocalError
from ..core.limits import EVENT_BYTES_MAX, LINE_BYTES_MAX

__all__ = ["BOM", "Decoder", "Frame", "encode", "is_block", "parse_block"]

BOM: Final = b"\xef\xbb\xbf"

_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
#: What stray blank lines before a block are made of.
_STRAYS: Final = (b"\n", b"\r")
#: A line end followed by an empty line. The last form is a CR that waited for its LF and got another byte.
_BLANK_LINE: Final = re.compile(rb"\r\n\r\n|\r\n\r(?=[^\n])|\n\n|(?<!\r)\n\r|\r\r")
#: The longest of these forms is four bytes, so a search may go on three bytes before the end of the last one.
_BLANK_LINE_OVERLAP: Final = 3


class Frame(NamedTuple):
    """One block as it came, and what it means."""

    raw: bytes
    #: The `data` lines joined by LF; None where the standard dispatches nothing.
    payload: bytes | None
    event: bytes = b""
    #: Absent, or present and free of NUL.
    id: bytes | None = None
    #: `raw` is exactly `data: ` + payload + LF LF.
    canonical: bool = False
    #: `raw` is exactly that after a line `event: ` + event.
    named: bool = False


class Decoder:
    """Incremental bytes to frames, linear in the bytes however they are cut.

    After a line or an event above its limit the decoder is dead: `overflow` names the limit, `rest` holds the bytes
    from the start of the offending block, and feeding it again is our own bug. The limit is the one that a reader of
    single bytes would have met first (the event's if both are met at once), so it does not depend on the reads.
    """

    def __init__(
        self, line_bytes_max: int = LINE_BYTES_MAX, event_bytes_max: int = EVENT_BYTES_MAX, *, first: bool = True
    ) -> None:
        """Without `first`, the bytes do not start a body, so a BOM is data."""
        self.overflow = ""
        self._line_bytes_max = line_bytes_max
        self._event_bytes_max = event_bytes_max
        #: No block of so many bytes is above a limit.
        self._harmless_bytes = min(line_bytes_max, event_bytes_max)
        self._pending: bytearray = bytearray()
        self._first = first
        self._carriage_returns = False
        self._closed = False
        self._start = 0  # of the block's first line in _pending, after the stray blank lines
        self._searched = 0  # no block ends before this place
        self._judged = 0  # the lines that end before this place are within the limit
        self._line_start = 0  # of the first line not judged yet

    @property
    def rest(self) -> bytes:
        """The bytes that are no frame (yet)."""
        return bytes(self._pending)

    def take_rest(self) -> bytes:
        """Return the same and free them; the decoder must be closed or dead."""
        assert self._closed or self.overflow, "more may come"
        rest, self._pending = self.rest, bytearray()
        return rest

    def keep(self, data: bytes) -> None:
        """Add bytes after a limit to `rest`, unread."""
        assert self.overflow, "more can be framed"
        self._pending += data

    def fresh(self) -> "Decoder":
        """Return a new decoder with the same limits."""
        return Decoder(self._line_bytes_max, self._event_bytes_max)

    def feed(self, read: bytes) -> list[Frame]:
        if self._closed or self.overflow:
            raise LocalError(f"the SSE decoder was fed after its {self.overflow or 'end'}")
        self._carriage_returns = self._carriage_returns or b"\r" in read
        data: bytes | bytearray = read
        if self._pending:
            data = self._pending
            data += read
            # When a frame comes in single bytes, nearly every read lacks a line end (U27).
            if b"\n" not in read and not self._carriage_returns:
                self._judge(data)
                return []
        frames: list[Frame] = []
        begin, start = 0, self._start
        if self._first and not start and data.startswith(BOM):
            start = len(BOM)
        while True:
            while data.startswith(_STRAYS, start):
                start += 1
            search_from = max(start, self._searched)
            if self._carriage_returns:
                blank = _BLANK_LINE.search(data, search_from)
                end = blank.end() if blank else 1
            else:
                end = data.find(b"\n\n", search_from) + 2
            if end == 1:  # not found
                break
            raw = bytes(data[begin:end])
            if len(raw) > self._harmless_bytes:
                self._judged = self._line_start = 0
                if self._judge(raw):
                    break
            line_end = raw.find(b"\n")
            if self._carriage_returns:
                frames.append(parse_block(raw, first=self._first))
            elif line_end == len(raw) - 2 and raw.startswith(b"data: "):
                frames.append(Frame(raw, raw[6:-2], b"", None, True))
            elif _is_named(raw, line_end):
                frames.append(Frame(raw, raw[line_end + 7 : -2], raw[7:line_end], None, False, True))
            else:
                frames.append(parse_block(raw, first=self._first))
            self._first = False
            begin = start = end
        self._start = start - begin
        self._searched = max(start, len(data) - _BLANK_LINE_OVERLAP) - begin
        if begin:
            self._judged = self._line_start = 0
        if data is self._pending:
            del self._pending[:begin]
        else:
            self._pending += data[begin:]
        if self._pending and not self.overflow:
            self._judge(self._pending)
        return frames

    def close(self) -> list[Frame]:
        """Return the last frame if a waiting CR was its blank line after all. Other bytes stay in `rest`."""
        if self._closed or self.overflow:
            return []
        self._closed = True
        if self._start < len(self._pending) and self._pending.endswith(b"\r\n\r"):
            return [parse_block(self.take_rest(), first=self._first)]
        return []

    def _judge(self, block: bytes | bytearray) -> bool:
        """Return whether this block, whole or not, passes a limit, and name it; each byte is read once."""
        if len(block) <= self._harmless_bytes:
            return False
        size = min(len(block), self._event_bytes_max)
        for line_end in _LINE_END.finditer(block, self._judged, size):
            if line_end.start() - self._line_start > self._line_bytes_max:
                self.overflow = "line"
                return True
            self._line_start = line_end.end()
        self._judged = size
        if size - self._line_start > self._line_bytes_max:
            self.overflow = "line"
        elif len(block) > self._event_bytes_max:
            self.overflow = "event"
        return bool(self.overflow)


def _is_named(raw: bytes, line_end: int) -> bool:
    """Return whether a block is a line `event: ` up to this line end, a line `data: `, and the blank line."""
    data = raw.startswith(b"data: ", line_end + 1) and raw.find(b"\n", line_end + 1) == len(raw) - 2
    return data and raw.startswith(b"event: ")


def parse_block(raw: bytes, *, first: bool = False) -> Frame:
    """Return what one block means; `first` is the block at the very start of a body, where alone a BOM is not data."""
    payload: list[bytes] = []
    event = b""
    last_id = None
    text = raw[len(BOM) :] if first and raw.startswith(BOM) else raw
    for line in _LINE_END.split(text):
        name, _, value = line.partition(b":")  # no name: the blank line, or a comment
        if value.startswith(b" "):
            value = value[1:]
        if name == b"data":
            payload.append(value)
        elif name == b"event":
            event = value
        elif name == b"id" and b"\0" not in value:
            last_id = value
    joined = b"\n".join(payload) if payload else None
    canonical = joined is not None and raw == b"data: %b\n\n" % joined
    named = joined is not None and not canonical and raw == b"event: %b\ndata: %b\n\n" % (event, joined)
    return Frame(raw, joined, event, last_id, canonical, named)


def is_block(raw: bytes, *, first: bool = False) -> bool:
    """Return whether these bytes are exactly one block, as a frame's `raw` must be."""
    decoder = Decoder(len(raw), len(raw), first=first)
    frames = decoder.feed(raw) + decoder.close()
    return [frame.raw for frame in frames] == [raw]


def encode(payload: bytes, *, event: bytes = b"") -> bytes:
    """Return a frame in canonical form; a payload of several lines becomes several `data` lines."""
    lines = [b"event: " + event] if event else []
    lines.extend(b"data: " + line for line in payload.split(b"\n"))
    return b"\n".join(lines) + b"\n\n"
