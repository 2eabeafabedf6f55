"""CPU seconds that mean the same on every machine and beside any neighbour: measured against a loop of ours

    async with paced() as pace:
        await home.ask()
    assert pace.seconds <= 10

A bar in plain seconds says as much of the machine as of the code: 8.5 s of process time alone on two cores were 10.2 s
beside another worker. So a loop is run just before and just after, plain Python and turns of trio's scheduler in about
the proportion of the proxy, and `seconds` is what was spent as a multiple of it, times what the loop takes on the quiet
machine where the bars of failures.md were set: `seconds <= 10` is a ratio of 10 / QUIET_S = 167, on every machine.
"""

import re
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

__all__ = ["QUIET_S", "Pace", "paced"]

#: What the loop takes on the quiet machine: two cores of an EPYC (Zen 5), Python 3.11, 60 times between 58 and 62 ms.
QUIET_S: Final = 0.06

_TURNS: Final = 25_000
_PATTERN: Final = re.compile(rb"([0-9a-f]{1,4})\r\n")


class Pace:
    """Of the block, once it is left."""

    def __init__(self) -> None:
        self.spent_s = 0.0
        """CPU time of this process, by its own clock."""
        self.loop_s = 0.0
        """Of the loop: the slower of both times, since a neighbour that came or went was there for a part of it."""

    @property
    def ratio(self) -> float:
        """How often the loop could have been run instead."""
        return self.spent_s / self.loop_s

    @property
    def report(self) -> str:
        """For who is told that it was too much."""
        return f"{self.spent_s:.2f} s of CPU, {self.ratio:.0f} times the loop, whose {self.loop_s:.3f} s are {QUIET_S}"

    @property
    def seconds(self) -> float:
        """What the block would have cost on the quiet machine."""
        return self.ratio * QUIET_S


@asynccontextmanager
async def paced() -> AsyncGenerator[Pace]:
    """Nothing else may be at work in this process."""
    pace = Pace()
    before_s = await _loop_s()
    began = time.process_time()
    yield pace
    pace.spent_s = time.process_time() - began
    pace.loop_s = max(before_s, await _loop_s())


class _Counter:
    def __init__(self) -> None:
        self.found = 0
        self.kept = bytearray()

    def take(self, data: bytes) -> int:
        match = _PATTERN.match(data)
        if match is not None and data.endswith(b"\r\n"):
            self.found += int(match[1], 16)
            self.kept += data[match.end() : -2]
        return max(self.found, len(self.kept))


async def _loop_s() -> float:
    began = time.process_time()
    counter, read = _Counter(), b"1\r\nx\r\n"
    for turn in range(_TURNS):
        counter.take(read)
        counter.take(read)
        if turn % 2:
            await trio.lowlevel.checkpoint()
    assert counter.found == 2 * _TURNS
    return time.process_time() - began
