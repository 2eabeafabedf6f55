"""Two recordings beside each other at one of four levels: what differs, where, and whether that breaks who reads it"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from wiretape.events.tape.record import Record

from ..redaction.body_codec import opened
from .bytes import compare_bytes
from .clock import compare_clock
from .content import compare_fold
from .difference import Difference, Level
from .shape import compare_shape

__all__ = ["LEVELS", "compare", "verdict"]

_Streams = Sequence[Sequence[Record]]
_Compare = Callable[[Sequence[Record], Sequence[Record]], Iterator[Difference]]

LEVELS: Final[Mapping[Level, _Compare]] = MappingProxyType(
    {"fold": compare_fold, "shape": compare_shape, "bytes": compare_bytes, "clock": compare_clock}
)


def compare(a: _Streams, b: _Streams, level: Level = "fold") -> Iterator[Difference]:
    """Every difference, stream by stream; streams are compared by their place, and bodies by what they say."""
    a, b = opened(a), opened(b)
    for number, (mine, other) in enumerate(zip(a, b, strict=False), 1):
        for difference in LEVELS[level](mine, other):
            yield difference._replace(stream=number)
    if len(a) != len(b):
        number = min(len(a), len(b)) + 1
        yield Difference("streams", len(a), len(b), breaking=True, stream=number)


def verdict(differences: Sequence[Difference]) -> int:
    """0 same, 1 nothing but benign differences, 2 one that breaks."""
    return 2 if any(difference.breaking for difference in differences) else int(bool(differences))
