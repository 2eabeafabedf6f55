"""Payloads that differ from one already understood in nothing but a piece of text: known by their edges, not read.

Nine frames of ten are such, and reading JSON was half of what a frame cost. What is known to be JSON with any text in
that one place needs no reading to be kept, and no look to be passed on, as long as nothing else has happened.
"""

import re
from typing import Final

__all__ = ["Familiar"]

#: The inside of a JSON string, in the escapes that mean one character each: `\\u` may be half of a pair.
_INSIDE: Final = re.compile(rb'[^"\\\x00-\x1f]*(?:\\["\\/bfnrt][^"\\\x00-\x1f]*)*')


class Familiar:
    """`before` and `behind` are the edges of a JSON text that is one for every string between them."""

    __slots__ = ("_before", "_behind", "_edges")

    def __init__(self, before: bytes, behind: bytes) -> None:
        self._before = before
        self._behind = behind
        self._edges = len(before) + len(behind)

    def knows(self, payload: bytes) -> bool:
        """Whether the payload is these edges and a string's inside."""
        size = len(payload)
        if size < self._edges or not payload.startswith(self._before) or not payload.endswith(self._behind):
            return False
        begin, end = len(self._before), size - len(self._behind)
        if _INSIDE.fullmatch(payload, begin, end) is None:
            return False
        if payload.isascii():
            return True
        try:
            payload[begin:end].decode()
        except UnicodeDecodeError:
            return False
        return True
