"""Which tapes go: whole days first, then the oldest of the last day; a pure decision over facts about files."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Final, NamedTuple

__all__ = ["KEEP_BYTES", "KEEP_DAYS", "Keep", "Kept", "day_of", "expired"]

#: What a person remembers having done, and what nobody misses on a disk.
KEEP_DAYS: Final = 7
KEEP_BYTES: Final = 5 * 1024**3

#: Beyond it `created` is junk that no calendar takes.
_SECONDS_END: Final = 253_402_300_800


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """How long and how much; None is without bound."""

    days: int | None = KEEP_DAYS
    bytes: int | None = KEEP_BYTES


class Kept(NamedTuple):
    """One ended tape: its day, when it was last written, its id, its size."""

    day: date
    written: float
    stream: str
    size: int


def day_of(seconds: float) -> date:
    """The day of a tape, in UTC: a folder must not change its name when its machine travels."""
    return datetime.fromtimestamp(min(max(seconds, 0), _SECONDS_END - 1), UTC).date()


def expired(tapes: Iterable[Kept], live_bytes: int, now: float, keep: Keep) -> list[str]:
    """The streams whose tapes are to be removed, oldest first.

    A day goes when it ended `keep.days` days ago. Then, while all is more than `keep.bytes`, the oldest day goes, and
    of the last one its oldest tapes. Live streams count as bytes and never go.
    """
    days: dict[date, list[Kept]] = {}
    for tape in sorted(tapes):
        days.setdefault(tape.day, []).append(tape)
    gone: list[str] = []
    for day in list(days):
        if keep.days is not None and day_of(now) - day > timedelta(days=keep.days):
            gone += [tape.stream for tape in days.pop(day)]
    if keep.bytes is not None:
        gone += _too_much(list(days.values()), live_bytes, keep.bytes)
    return gone


def _too_much(days: Sequence[Sequence[Kept]], live_bytes: int, bytes_max: int) -> list[str]:
    gone: list[str] = []
    total = live_bytes + sum(tape.size for day in days for tape in day)
    for number, day in enumerate(days, 1):
        for tape in day:
            if total <= bytes_max and (number == len(days) or tape is day[0]):
                return gone
            gone.append(tape.stream)
            total -= tape.size
    return gone
