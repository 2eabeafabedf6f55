"""Every place where a stream can be cut, behind each frame or each byte, and its script up to there"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Final, Literal, NamedTuple

from wiretape.events.record import Record

from .player import attempts_of
from .script import Fault, Script, Step

__all__ = ["Prefix", "Unit", "cut_at", "prefixes_of"]

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
        return f"stream{self.stream + 1}-frame{self.frames}-byte{self.bytes}"


def prefixes_of(streams: Sequence[Sequence[Record]], unit: Unit) -> list[Prefix]:
    """In order, from nothing of the first stream to all of the last but its proper end."""
    return [prefix for place, records in enumerate(streams) for prefix in _of(place, records, unit)]


def _of(place: int, records: Sequence[Record], unit: Unit) -> Iterator[Prefix]:
    sizes = [len(record.raw or b"") for record in attempts_of(records)[-1] if record.kind in _RECEIVED]
    ends = [0, *accumulate(sizes)]
    for frames, (end, following) in enumerate(zip(ends, [*ends[1:], ends[-1] + 1], strict=True)):
        for at in range(end, following if unit == "bytes" else end + 1):
            yield Prefix(place, at, frames)


def cut_at(script: Script, bytes_kept: int, end: Fault | None = Fault.CUT) -> Script:
    """The script up to there, and then this end; without one a proper end of HTTP, as of a server that gave up."""
    steps = list(_kept(script.steps, bytes_kept))
    if end is not None:
        return replace(script, steps=[*steps, Step(0.0, end)])
    headers = [
        (name, b"%d" % bytes_kept if name.lower() == b"content-length" else value) for name, value in script.headers
    ]
    return replace(script, steps=steps, headers=headers)


def _kept(steps: Sequence[Step], left: int) -> Iterator[Step]:
    for delay_s, what in steps:
        if left <= 0 or isinstance(what, Fault):
            return
        yield Step(delay_s, what[:left])
        left -= len(what)
