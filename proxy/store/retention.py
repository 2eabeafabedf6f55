"""Which tapes expire: whole days first, then the oldest of the last day. Pure decisions over facts about files."""

from bisect import insort
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

from ..config.model import Keep

__all__ = ["Kept", "day_of", "days_gone", "expired", "oldest"]

#: The first second of the year 10000: no calendar goes there.
_SECONDS_END: Final = 253_402_300_800


class Kept(NamedTuple):
    """One ended tape: its day, when it was last written, its id, its size."""

    day: date
    written: float
    stream: str
    size: int


def day_of(seconds: float) -> date:
    """Return the day of a tape, in UTC: folders must not change their names when the machine travels."""
    return datetime.fromtimestamp(min(max(seconds, 0), _SECONDS_END - 1), UTC).date()


def days_gone(sizes: Mapping[date, int], live_bytes: int, now: float, keep: Keep) -> tuple[list[date], int]:
    """Return the days that go whole, and how many bytes of the oldest remaining day must go too.

    A day goes `keep.days` days after it ended. While all tapes together exceed `keep.bytes`, the oldest day goes, and
    of the last day its oldest tapes. Live streams count but never go.
    """
    left = sorted(sizes)
    gone: list[date] = []
    while left and keep.days is not None and day_of(now) - left[0] > timedelta(days=keep.days):
        gone.append(left.pop(0))
    if keep.bytes is None or not left:
        return gone, 0
    excess = live_bytes + sum(sizes[day] for day in left) - keep.bytes
    while excess > 0 and len(left) > 1:
        excess -= sizes[left[0]]
        gone.append(left.pop(0))
    return gone, max(excess, 0)


def oldest(tapes: Iterable[Kept], excess: int) -> list[str]:
    """Return the oldest tapes that together have `excess` bytes, oldest first, holding no more of them than that."""
    if excess <= 0:
        return []
    kept: list[Kept] = []
    size = 0
    for tape in tapes:
        insort(kept, tape)
        size += tape.size
        while size - kept[-1].size >= excess:
            size -= kept.pop().size
    return [tape.stream for tape in kept]


def expired(tapes: Sequence[Kept], live_bytes: int, now: float, keep: Keep) -> list[str]:
    """Return the streams whose tapes go, oldest first, for a store that has them all in memory."""
    sizes: dict[date, int] = {}
    for tape in tapes:
        sizes[tape.day] = sizes.get(tape.day, 0) + tape.size
    days, excess = days_gone(sizes, live_bytes, now, keep)
    gone = [tape.stream for tape in sorted(tape for tape in tapes if tape.day in days)]
    first = min(sizes.keys() - days, default=None)
    return gone + oldest((tape for tape in tapes if tape.day == first), excess)
