"""Which tapes expire: whole days first, then the oldest of the last day. Pure decisions over facts about files."""

from bisect import insort
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from ..config.model import Keep

__all__ = ["Kept", "day_of", "expired"]

#: The first second of the year 10000: no calendar goes there.
_SECONDS_END: Final = 253_402_300_800


class Kept(NamedTuple):
    """One ended tape of a day: when it was last written, its id, its size."""

    written: float
    stream: str
    size: int


def day_of(seconds: float) -> date:
    """Return the day of a tape, in UTC: folders must not change their names when the machine travels."""
    return datetime.fromtimestamp(min(max(seconds, 0), _SECONDS_END - 1), UTC).date()


def expired(
    sizes: Mapping[date, int], tapes_of: Callable[[date], Iterable[Kept]], live_bytes: int, now: float, keep: Keep
) -> dict[date, list[str]]:
    """Return the streams whose tapes go, by day. `sizes` are the bytes of each day that has tapes.

    A day goes `keep.days` days after it ended. While all tapes together exceed `keep.bytes`, the oldest day goes, and
    of the last day its oldest tapes. Live streams count but never go. Never lists all tapes: such a list took 0.6 KB
    per tape once a minute, memory that the allocator did not give back.
    """
    left = sorted(sizes)
    gone: list[date] = []
    while left and keep.days is not None and day_of(now) - left[0] > timedelta(days=keep.days):
        gone.append(left.pop(0))
    excess = 0 if keep.bytes is None else live_bytes + sum(sizes[day] for day in left) - keep.bytes
    while excess > 0 and len(left) > 1:
        excess -= sizes[left[0]]
        gone.append(left.pop(0))
    streams = {day: [tape.stream for tape in sorted(tapes_of(day))] for day in gone}
    if left and excess > 0:
        oldest: list[Kept] = []  # no more of them than have `excess` bytes together
        for tape in tapes_of(left[0]):
            insort(oldest, tape)
            excess -= tape.size
            while excess + oldest[-1].size <= 0:
                excess += oldest.pop().size
        streams[left[0]] = [tape.stream for tape in oldest]
    return streams
