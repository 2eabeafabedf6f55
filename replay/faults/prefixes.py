"""Every place where a stream can be cut: behind each of its frames, or behind each of its bytes"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple, get_args

from wiretape.events.tape.record import Record

from ..playback.player import attempts_of

__all__ = ["Prefix", "Unit", "prefixes_of"]

Unit = Literal["frames", "bytes"]

_RECEIVED: Final = frozenset({"frame", "rest", "body"})


class Prefix(NamedTuple):
    """So many bytes of one of the streams of a conversation; those before it are whole."""

    #: Its place, from 0.
    stream: int
    bytes: int
    #: Frames that are whole in them.
    frames: int

    def __str__(self) -> str:
        return f"stream{self.stream + 1}-byte{self.bytes}"

    def fault(self, end: str) -> str:
        """As faults.py reads it; `end` is one of its words for an ending."""
        return f"{end}@byte:{self.bytes}#{self.stream + 1}"


def prefixes_of(streams: Sequence[Sequence[Record]], unit: Unit) -> list[Prefix]:
    """In order, from nothing of the first stream to all of the last but its proper end; raises ValueError."""
    if unit not in get_args(Unit):
        raise ValueError(f"prefixes are of {' or '.join(get_args(Unit))}, not {unit!r}")
    return [prefix for place, records in enumerate(streams) for prefix in _of(place, records, unit)]


def _of(place: int, records: Sequence[Record], unit: Unit) -> Iterator[Prefix]:
    sizes = [len(record.raw or b"") for record in attempts_of(records)[-1] if record.kind in _RECEIVED]
    ends = [0, *accumulate(sizes)]
    for frames, (end, following) in enumerate(zip(ends, [*ends[1:], ends[-1] + 1], strict=True)):
        for at in range(end, following if unit == "bytes" else end + 1):
            yield Prefix(place, at, frames)
