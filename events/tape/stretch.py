"""Frames of one read that stand side by side and are all familiar: one thing from the socket to the disk.

A record for each would be made only to be taken apart again: made, counted and written in one go, a frame of a read of
fifty costs 0.8 us instead of 2.9.
"""

import zlib
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from .familiar import Familiar
from .record import NO_KEYS, Record, encode

__all__ = ["Stretch", "lines", "single"]


class Stretch(NamedTuple):
    """What `single` makes as many records of as it has texts."""

    #: Of the first frame; those behind it count on.
    n: int
    t: int
    #: All frames as they came.
    raw: bytes
    #: The text of each, as it stands in its JSON.
    texts: list[bytes]
    familiar: Familiar

    @property
    def kind(self) -> str:
        """As each record has it."""
        return "frame"

    @property
    def keys(self) -> Mapping[str, Any]:
        """As each record has them."""
        return NO_KEYS

    @property
    def last_n(self) -> int:
        """Of the last frame."""
        return self.n + len(self.texts) - 1

    def records(self) -> list[Record]:
        """One for each frame, not read yet."""
        before, behind = self.familiar.before, self.familiar.behind
        payloads = [before + text + behind for text in self.texts]
        return [
            Record(n, self.t, "frame", NO_KEYS, b"data: %b\n\n" % payload, payload, self.familiar)
            for n, payload in enumerate(payloads, self.n)
        ]

    def lines(self) -> list[bytes]:
        """What `encode` makes of each record."""
        head = b',"t":%d,"k":"frame","data":%b' % (self.t, self.familiar.before)
        behind = self.familiar.behind + b"}"
        bodies = [b'"n":%d%b%b%b' % (n, head, text, behind) for n, text in enumerate(self.texts, self.n)]
        return [b'{"c":"%08x",%b\n' % (zlib.crc32(body), body) for body in bodies]


def single(batch: Iterable[Record | Stretch]) -> list[Record]:
    """Each record by itself."""
    return [record for some in batch for record in (some.records() if isinstance(some, Stretch) else (some,))]


def lines(batch: Iterable[Record | Stretch]) -> bytes:
    """The lines of all of them."""
    parts: list[bytes] = []
    for some in batch:
        if isinstance(some, Stretch):
            parts += some.lines()
        else:
            parts.append(encode(some))
    return b"".join(parts)
