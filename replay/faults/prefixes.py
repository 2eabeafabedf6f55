"""Every place at which a conversation can be cut: after each frame, or after each byte."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Final, Literal, NamedTuple, get_args

from wiretape.events.tape.record import Record

from ..playback.player import attempts_of

__all__ = ["Prefix", "Unit", "prefixes_of"]

Unit = Literal["frames", "bytes"]

_RECEIVED: Final = frozenset({"frame", "rest", "body"})


class Prefix(NamedTuple):
    """The first bytes of one stream of a conversation; the streams before it are complete."""

    #: Its position, from 0.
    stream: int
    bytes: int
    #: Complete frames in these bytes.
    frames: int

    def __str__(self) -> str:
        return f"stream{self.stream + 1}-byte{self.bytes}"

    def fault(self, end: str) -> str:
        """Return the fault that cuts here; `end` is one of its kinds."""
        return f"{end}@byte:{self.bytes}#{self.stream + 1}"


def prefixes_of(streams: Sequence[Sequence[Record]], unit: Unit) -> list[Prefix]:
    """Return all prefixes in order; raise ValueError for an unknown unit."""
    if unit not in get_args(Unit):
        raise ValueError(f"prefixes are of {' or '.join(get_args(Unit))}, not {unit!r}")
    found: list[Prefix] = []
    for stream, records in enumerate(streams):
        sizes = [len(record.raw or b"") for record in attempts_of(records)[-1] if record.kind in _RECEIVED]
        ends = [0, *accumulate(sizes)]
        for frames, (end, following) in enumerate(zip(ends, [*ends[1:], ends[-1] + 1], strict=True)):
            found += [Prefix(stream, at, frames) for at in range(end, following if unit == "bytes" else end + 1)]
    return found
