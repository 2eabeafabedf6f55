"""Which tapes go, as tables."""

from datetime import UTC, date, datetime

import pytest

from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.folder import Kept, day_of, expired

NOW = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()


Tapes = dict[date, list[Kept]]


def tapes(*days: tuple[int, str, int]) -> Tapes:
    """Day of November, ids of one letter in the order of their writing, size of each."""
    return {
        date(2026, 11, day): [Kept(float(place), letter, size) for place, letter in enumerate(letters)][::-1]
        for day, letters, size in days
    }


TABLE: list[tuple[str, Tapes, int, Keep, str]] = [
    ("nothing is there", {}, 0, Keep(), ""),
    ("a week and today", tapes((11, "a", 1), (18, "b", 1)), 0, Keep(), ""),
    ("more than a week", tapes((10, "a", 1), (11, "b", 1)), 0, Keep(), "a"),
    ("of one day only", tapes((17, "a", 1), (18, "b", 1)), 0, Keep(days=0), "a"),
    ("for ever", tapes((1, "a", 1)), 0, Keep(days=None), ""),
    ("just enough room", tapes((17, "ab", 5), (18, "cd", 5)), 0, Keep(bytes=20), ""),
    ("a byte too much takes the whole oldest day", tapes((17, "ab", 5), (18, "cd", 5)), 0, Keep(bytes=19), "ab"),
    ("and then the next one", tapes((16, "ab", 5), (17, "cd", 5), (18, "ef", 5)), 0, Keep(bytes=19), "abcd"),
    ("of the last day its oldest", tapes((18, "abcd", 5)), 0, Keep(bytes=14), "ab"),
    ("live tapes count", tapes((17, "ab", 5), (18, "cd", 5)), 1, Keep(bytes=20), "ab"),
    ("and never go", tapes((18, "ab", 5)), 100, Keep(bytes=20), "ab"),
    ("age first, then room", tapes((1, "a", 90), (17, "b", 5), (18, "c", 5)), 0, Keep(bytes=10), "a"),
    ("without bounds", tapes((1, "a", 1 << 60)), 1 << 60, Keep(days=None, bytes=None), ""),
    ("of the future", tapes((25, "a", 1)), 0, Keep(), ""),
]


@pytest.mark.parametrize(("found", "live_bytes", "keep", "gone"), [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_which_tapes_expire(found: Tapes, live_bytes: int, keep: Keep, gone: str) -> None:
    sizes = {day: sum(tape.size for tape in of_day) for day, of_day in found.items()}
    expiring = expired(sizes, found.__getitem__, live_bytes, NOW, keep)
    assert "".join(stream for streams in expiring.values() for stream in streams) == gone


def test_any_creation_time_has_a_day_in_utc() -> None:
    for seconds in (0, -5, 86_399.9):
        assert day_of(seconds) == date(1970, 1, 1)
    assert (day_of(NOW), day_of(10**18)) == (date(2026, 11, 18), date(9999, 12, 31))
