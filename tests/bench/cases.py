"""What is measured, and the bar that each figure must stay under."""

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import orjson

from tests.support.corpus import load
from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.wire.sse import Decoder

from . import core
from .frames import PER_READ, ROLE, ROUND, payloads, reads, stream
from .measure import Compared, Held, compared, held, seconds

#: CPU of the core as a multiple of `orjson.loads` of the same payload.
BARS: Final = {"plain": 10.0, "repaired": 20.0}

#: The dearest frame against the cheapest, over streams of different lengths; what is quadratic shows a hundredfold.
GROWTH_MAX: Final = 2.0

#: What a stream may hold more of after its millionth frame than after its thousandth: counters that grew a digit.
HELD_BYTES_MAX: Final = 4_096

_TURNS: Final = 15
_RUN_FRAMES: Final = 20_000


class Budget(NamedTuple):
    """How long it may take; without an end, everything is measured in full."""

    until: float
    lengths: tuple[int, ...]
    late: int

    @staticmethod
    def of(limit_s: float | None) -> "Budget":
        """From the seconds that there are; the half of them is for what takes no turns."""
        if limit_s is None:
            return Budget(float("inf"), (1_000, 10_000, 100_000, 1_000_000), 1_000_000)
        return Budget(time.monotonic() + limit_s / 2, (1_000, 10_000, 100_000), 50_000)


class Bench:
    """Every figure, in one place; each method is one row or one table."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget

    def frames(self, kind: str, per_read: int = PER_READ) -> Compared:
        """The core over one kind of frame."""
        extra = {"plain": b"", "repaired": ROLE}[kind]
        each, texts = reads(extra, per_read), payloads(extra)
        return self._compared(lambda: core.live(stream(each, _RUN_FRAMES)), texts * (_RUN_FRAMES // ROUND))

    def captured(self) -> Compared | None:
        """The core over every captured chat stream, each from its beginning to its end."""
        streams = [list(_frames(capture.body)) for capture in load()]
        if not streams:
            return None
        texts = [text for frames in streams for _, text in frames if text is not None]
        chunks = [
            [b"".join(raw for raw, _ in frames[at : at + PER_READ]) for at in range(0, len(frames), PER_READ)]
            for frames in streams
        ]
        return self._compared(lambda: [core.live(each) for each in chunks], texts)

    def _compared(self, work: Callable[[], object], texts: Sequence[bytes]) -> Compared:
        def yardstick() -> None:
            for text in texts:
                orjson.loads(text)

        result = compared(work, yardstick, _TURNS, self._budget.until)
        return result._replace(work_s=result.work_s / len(texts), yardstick_s=result.yardstick_s / len(texts))

    def lengths(self, kind: str) -> dict[int, float]:
        """Seconds a frame by the length of the stream; short streams are repeated, and the fastest run counts."""
        each = reads({"plain": b"", "repaired": ROLE}[kind])
        return {length: _fastest(each, length) / length for length in self._budget.lengths}

    def held(self, kind: str) -> Held:
        """What one stream holds, and what one read needs for a moment."""
        each = reads({"plain": b"", "repaired": ROLE}[kind])
        early, late = (frames // PER_READ for frames in (ROUND, self._budget.late))

        def begin() -> Callable[[int], object]:
            live = core.live(islice(stream(each, ROUND), 1))
            return lambda n: live.read(n + 2, each[n % len(each)])

        return held(begin, early, late)


def _fastest(each: Sequence[bytes], length: int) -> float:
    repeats = max(2, min(20, 200_000 // length))
    return min(seconds(lambda: core.live(stream(each, length))) for _ in range(repeats))


def _frames(body: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Raw frames, and the payload of each where it is JSON."""
    decoder = Decoder()
    for frame in [*decoder.feed(body), *decoder.close()]:
        known = frame.payload is not None and parse(frame.payload) is not ABSENT
        yield frame.raw, frame.payload if known else None
