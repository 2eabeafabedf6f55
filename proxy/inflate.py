"""Decodes an answer that came compressed although identity was asked for, within bounds (U51, U52)."""

import zlib
from collections.abc import Iterator
from typing import Final

from .errors import LimitError, ProtocolError, TruncatedError
from .limits import INFLATE_RATIO_MAX, INFLATE_STEP_BYTES_MAX

__all__ = ["CODINGS", "Inflater"]

#: zlib's window sizes: gzip alone, and for `deflate` its own header (RFC 9110 8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}

#: The codings that it knows.
CODINGS: Final = frozenset(_WINDOWS)


class Inflater:
    """`feed` each read, get what it meant in steps, and `close` it at the end of the body.

    Raises ProtocolError for another coding and for damage, LimitError for a bomb, TruncatedError for half of one.
    """

    def __init__(self, coding: str) -> None:
        if coding not in _WINDOWS:
            raise ProtocolError("the answer is compressed in a way that was not asked for")
        self.coding = coding
        self._inflate = zlib.decompressobj(_WINDOWS[coding])
        self._in = 0
        self._out = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """At most `INFLATE_STEP_BYTES_MAX` at a time, decoded only when asked for, so that the loop never stalls."""
        self._in += len(data)
        while data:
            try:
                out = self._inflate.decompress(data, INFLATE_STEP_BYTES_MAX)
            except zlib.error:
                raise ProtocolError("the answer's compression is damaged") from None
            self._out += len(out)
            if self._out > self._in * INFLATE_RATIO_MAX:
                raise LimitError("the answer's compression is a bomb")
            data = self._inflate.unconsumed_tail
            if self._inflate.eof:
                data = self._inflate.unused_data
                if data:  # gzip may have several members (RFC 1952 2.2)
                    self._inflate = zlib.decompressobj(_WINDOWS[self.coding])
            yield out

    def close(self) -> None:
        """Nothing more comes."""
        if self._in and not self._inflate.eof:
            raise TruncatedError("the answer's compression ends too early")
