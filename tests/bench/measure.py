"""CPU time and memory, measured so that a busy machine changes little: in turns, as ratios, by the median."""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple


class Compared(NamedTuple):
    """Medians over all turns; the ratio is that of each turn, so that what slows both cancels out."""

    work_s: float
    yardstick_s: float
    ratio: float
    turns: int


def compared(work: Callable[[], object], yardstick: Callable[[], object], turns: int, until: float) -> Compared:
    """In turns, as many as asked for; fewer, but three, where the clock passes `until` first."""
    taken: list[tuple[float, float]] = []
    while len(taken) < turns and (len(taken) < 3 or time.monotonic() < until):
        taken.append((seconds(work), seconds(yardstick)))
    return Compared(
        statistics.median(work_s for work_s, _ in taken),
        statistics.median(yardstick_s for _, yardstick_s in taken),
        statistics.median(work_s / yardstick_s for work_s, yardstick_s in taken),
        len(taken),
    )


def seconds(work: Callable[[], object]) -> float:
    """CPU time of one run."""
    with _collector_off():
        start = time.process_time()
        work()
        return time.process_time() - start


@contextmanager
def _collector_off() -> Generator[None]:
    """What is collected is not what is timed: the core makes no cycles, so nothing is left to the collector."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Held(NamedTuple):
    """Bytes that are held after so many steps, and the most that one step needs for a moment."""

    early: int
    late: int
    moment: int


def held(begin: Callable[[], Callable[[int], object]], early: int, late: int) -> Held:
    """Of everything that is allocated by `begin` and by the steps that it gives."""
    tracemalloc.start()
    try:
        step = begin()
        for n in range(early):
            step(n)
        gc.collect()
        first = tracemalloc.get_traced_memory()[0]
        for n in range(early, late):
            step(n)
        gc.collect()
        last = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        step(late)
        moment = tracemalloc.get_traced_memory()[1] - last
    finally:
        tracemalloc.stop()
    return Held(first, last, moment)
