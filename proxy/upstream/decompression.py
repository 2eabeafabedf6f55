"""Bounded decompression of responses that came compressed although identity was asked for, and of requests."""

import zlib
from collections.abc import Iterator
from math import inf
from typing import Final

from ..limits import (
    INFLATE_FREE_BYTES,
    INFLATE_MEMBERS_MAX,
    INFLATE_RATIO_MAX,
    INFLATE_SLICE_BYTES,
    INFLATE_STEP_BYTES_MAX,
)
from .errors import LimitError, ProtocolError, TruncatedError

__all__ = ["CODINGS", "Inflater"]

#: zlib's window sizes: gzip only, and the zlib header for `deflate` (RFC 9110 8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}

#: The supported codings.
CODINGS: Final = frozenset(_WINDOWS)


class Inflater:
    """A decoder for one body: `feed` it each read, take the output in steps, and `close` it at the end of the body.

    It raises ProtocolError for an unknown coding or damage, LimitError for a bomb, TruncatedError for an early end.
    """

    def __init__(self, coding: str, bytes_max: int | None = None) -> None:
        """With `bytes_max`, as for requests, the output, the members and, beyond 8 MiB, the ratio are bounded."""
        if coding not in _WINDOWS:
            raise ProtocolError("the response has an unsupported content encoding")
        self.coding = coding
        self._inflate = zlib.decompressobj(_WINDOWS[coding])
        self._in = 0
        self._out = 0
        self._bytes_max = inf if bytes_max is None else bytes_max
        self._free_bytes = 0 if bytes_max is None else INFLATE_FREE_BYTES
        self._members_left = inf if bytes_max is None else INFLATE_MEMBERS_MAX

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode in steps of at most `INFLATE_STEP_BYTES_MAX`, each when it is taken, so that the loop never stalls."""
        self._in += len(data)
        for at in range(0, len(data), INFLATE_SLICE_BYTES):
            yield from self._slice(data[at : at + INFLATE_SLICE_BYTES])

    def _slice(self, data: bytes) -> Iterator[bytes]:
        while data:
            if self._inflate.eof:  # gzip may have several members (RFC 1952 2.2)
                self._inflate = zlib.decompressobj(_WINDOWS[self.coding])
                self._members_left -= 1
            try:
                out = self._inflate.decompress(data, INFLATE_STEP_BYTES_MAX)
            except zlib.error:
                raise ProtocolError("the response's compression is damaged") from None
            self._out += len(out)
            if self._members_left <= 0 or self._out > self._bytes_max or self._is_bomb():
                raise LimitError("the response's compression is a bomb")
            data = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
            yield out

    def _is_bomb(self) -> bool:
        return self._out > self._free_bytes and self._out > self._in * INFLATE_RATIO_MAX

    def close(self) -> None:
        """Raise TruncatedError if the body ended too early."""
        if self._in and not self._inflate.eof:
            raise TruncatedError("the response's compression ends too early")
