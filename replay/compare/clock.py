"""When two streams came: their read boundaries and the time of each read, behind all that their bytes say"""

from collections.abc import Iterator, Sequence
from typing import Final

from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads

from ..normalize.normalize import normalise
from .bytes import compare_bytes, last_attempt
from .difference import Difference

__all__ = ["TOLERANCE_US", "compare_clock"]

#: A replay at original speed may be off by so much (issue 5's bar, microseconds a read).
TOLERANCE_US: Final = 5_000


def compare_clock(a: Sequence[Record], b: Sequence[Record], tolerance_us: int = TOLERANCE_US) -> Iterator[Difference]:
    """The bytes first; another boundary is breaking, because a parser may hang on it; another time is benign.

    Where sizes differ they are those behind normalisation: a live tape and its sealed one have the same boundaries.
    """
    yield from compare_bytes(a, b)
    mine, other = (list(reads(last_attempt(each))) for each in (a, b))
    sizes = [[len(data) for _, data in each] for each in (mine, other)]
    if sizes[0] != sizes[1]:  # it may be that ids are longer, as in a live tape
        mine, other = (list(reads(last_attempt(each))) for each in normalise([a]) + normalise([b]))
        sizes = [[len(data) for _, data in each] for each in (mine, other)]
    if sizes[0] != sizes[1]:
        at = next((at for at, (x, y) in enumerate(zip(*sizes, strict=False)) if x != y), None)
        if at is None:
            yield Difference("reads", len(mine), len(other), breaking=True)
        else:
            yield Difference(f"size of read {at}", sizes[0][at], sizes[1][at], breaking=True)
        return
    starts = [_asked_at(each) for each in (a, b)]
    for at, ((x, _), (y, _)) in enumerate(zip(mine, other, strict=True)):
        if abs((x - starts[0]) - (y - starts[1])) > tolerance_us:
            yield Difference(f"microseconds to read {at}", x - starts[0], y - starts[1], breaking=False)
    ends = [each[-1].t - start if each else 0 for each, start in zip((a, b), starts, strict=True)]
    if abs(ends[0] - ends[1]) > tolerance_us:
        yield Difference("microseconds to the end", ends[0], ends[1], breaking=False)


def _asked_at(records: Sequence[Record]) -> int:
    last = last_attempt(records)
    return last[0].t if last else 0
