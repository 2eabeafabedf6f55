"""Decodes an answer that came compressed although identity was asked for, within bounds (U51, U52)."""

import zlib
from typing import Final

from .errors import ProtocolError
from .limits import INFLATE_RATIO_MAX, INFLATE_STEP_BYTES_MAX

__all__ = ["Inflater"]

#: zlib's window sizes: gzip alone, and for `deflate` its own header (RFC 9110 8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}


class Inflater:
    """`feed` each read, get what it meant; raises ProtocolError for another coding, for damage, and for a bomb."""

    def __init__(self, coding: str) -> None:
        if coding not in _WINDOWS:
            raise ProtocolError("the answer is compressed in a way that was not asked for")
        self.coding = coding
        self._inflate = zlib.decompressobj(_WINDOWS[coding])
        self._in = 0
        self._out = 0

    def feed(self, data: bytes) -> bytes:
        """At most `INFLATE_STEP_BYTES_MAX` of it in one step, so that the loop never stalls."""
        self._in += len(data)
        try:
            out = self._inflate.decompress(data, INFLATE_STEP_BYTES_MAX)
        except zlib.error:
            raise ProtocolError("the answer's compression is damaged") from None
        self._out += len(out)
        if self._inflate.unconsumed_tail or self._out > self._in * INFLATE_RATIO_MAX:
            raise ProtocolError("the answer's compression is a bomb")
        return out
