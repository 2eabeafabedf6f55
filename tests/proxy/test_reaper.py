"""One task for all deadlines."""

from math import inf

import pytest
import trio
from trio.testing import MockClock

from wiretape.proxy.server.reaper import Reaper, together


async def test_moved_deadline_is_checked_again_when_due(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    reaper = Reaper()
    nursery.start_soon(reaper.run)
    asked: list[float] = []
    due = 25.0

    def check(now: float) -> float | None:
        asked.append(now)
        return due if now < due else None

    reaper.watch(check, 10)
    await trio.sleep(100)
    assert asked == [10, 25]


async def test_earlier_deadline_is_checked_first(nursery: trio.Nursery, autojump_clock: MockClock) -> None:
    reaper = Reaper()
    nursery.start_soon(reaper.run)
    asked: list[tuple[str, float]] = []

    def noting(name: str) -> None:
        def check(now: float) -> None:
            asked.append((name, now))

        reaper.watch(check, {"late": 50, "soon": 7, "past": 1}[name])

    noting("late")
    await trio.sleep(5)
    noting("soon")
    noting("past")
    await trio.sleep(100)
    assert asked == [("past", 5), ("soon", 7), ("late", 50)]


@pytest.mark.parametrize(
    ("now", "by", "at"),
    [
        (10.1, 40.1, 40.0),
        (10.2, 40.24, 40.0),
        (10.2, 40.25, 40.25),
        (10.1, 10.2, 10.2),
        (10.0, 10.0, 10.0),
        (1.0, inf, inf),
    ],
    ids=["a little sooner", "up to a quarter", "at it", "nothing between", "now", "never"],
)
def test_checks_of_one_quarter_second_share_their_time(now: float, by: float, at: float) -> None:
    assert together(now, by) == at
