"""Which tapes go: whole days first, then the oldest of the last day; a pure decision over facts about files."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from heapq import heappop, heappush
from typing import Final, NamedTuple

from ..config.model import Keep

__all__ = ["Kept", "day_of", "days_gone", "expired", "oldest"]

#: Beyond it `created` is junk that no calendar takes.
_SECONDS_END: Final = 253_402_300_800


class Kept(NamedTuple):
    """One ended tape: its day, when it was last written, its id, its size."""

    day: date
    written: float
    stream: str
    size: int


def day_of(seconds: float) -> date:
    """The day of a tape, in UTC: a folder must not change its name when its machine travels."""
    return datetime.fromtimestamp(min(max(seconds, 0), _SECONDS_END - 1), UTC).date()


def days_gone(sizes: Mapping[date, int], live_bytes: int, now: float, keep: Keep) -> tuple[list[date], int]:
    """Of the days that have tapes, those that go whole; and how many bytes of the oldest that stays must go, too.

    A day goes when it ended `keep.days` days ago. Then, while all is more than `keep.bytes`, the oldest day goes, and
    of the last one its oldest tapes. Live streams count as bytes and never go.
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
    """As many of the oldest as have so many bytes, oldest first. It holds no more of them than go."""
    if excess <= 0:
        return []
    found: list[_Newest] = []
    size = 0
    for tape in tapes:
        heappush(found, _Newest(tape))
        size += tape.size
        while size - found[0].tape.size >= excess:
            size -= heappop(found).tape.size
    return [newest.tape.stream for newest in sorted(found, reverse=True)]


class _Newest:
    """In a heap, the tape that was written last comes first."""

    __slots__ = ("tape",)

    def __init__(self, tape: Kept) -> None:
        self.tape = tape

    def __lt__(self, other: "_Newest") -> bool:
        return self.tape > other.tape


def expired(tapes: Sequence[Kept], live_bytes: int, now: float, keep: Keep) -> list[str]:
    """The streams whose tapes are to be removed, oldest first; for who has all of them in memory anyway."""
    sizes: dict[date, int] = {}
    for tape in tapes:
        sizes[tape.day] = sizes.get(tape.day, 0) + tape.size
    days, excess = days_gone(sizes, live_bytes, now, keep)
    gone = [tape.stream for tape in sorted(tape for tape in tapes if tape.day in days)]
    first = min(sizes.keys() - days, default=None)
    return gone + oldest((tape for tape in tapes if tape.day == first), excess)
