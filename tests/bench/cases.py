"""The measurements of the core and their bars: CPU time in turns, as ratios, by the median; and memory."""

import gc
import statistics
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple

import orjson

from tests.support.corpus import load
from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.wire.sse import Decoder

from . import core
from .frames import PER_READ, ROLE, ROUND, payloads, reads, stream

#: CPU of the core as a multiple of `orjson.loads` of the same payload.
BARS: Final = {"plain": 10.0, "repaired": 20.0}
_EXTRA: Final = {"plain": b"", "repaired": ROLE}

#: The dearest frame against the cheapest, over streams of different lengths; what is quadratic shows a hundredfold.
GROWTH_MAX: Final = 2.0

#: What a stream may hold more of after its millionth frame than after its thousandth: counters that grew a digit.
HELD_BYTES_MAX: Final = 4_096

_TURNS: Final = 15
_RUN_FRAMES: Final = 20_000


class Compared(NamedTuple):
    """Medians over all turns; the ratio is that of each turn, so that what slows both cancels out."""

    work_s: float
    ratio: float
    turns: int


class Held(NamedTuple):
    """Bytes that are held after few and after many steps, and the most that one step needs for a moment."""

    early: int
    late: int
    moment: int

    @property
    def grown(self) -> int:
        """Bytes held at the end and not before."""
        return self.late - self.early


class Bench:
    """Every measurement; each method is one row or one table."""

    def __init__(self, limit_s: float | None) -> None:
        """Measure everything in full, or within a time, half of which is for what takes no turns."""
        self._until = float("inf") if limit_s is None else time.monotonic() + limit_s / 2
        self._lengths = (1_000, 10_000, 100_000, 1_000_000) if limit_s is None else (1_000, 10_000, 100_000)
        self._late = 1_000_000 if limit_s is None else 50_000

    def frames(self, kind: str, per_read: int = PER_READ) -> Compared:
        """Compare the core with orjson over one kind of frame."""
        each, texts = reads(_EXTRA[kind], per_read), payloads(_EXTRA[kind])
        return self._compared(lambda: core.live(stream(each, _RUN_FRAMES)), texts * (_RUN_FRAMES // ROUND))

    def captured(self) -> Compared | None:
        """Compare them over every captured chat stream, each from its beginning to its end."""
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
        """Take all turns, or fewer, but three, if the time is up first."""

        def yardstick() -> None:
            for text in texts:
                orjson.loads(text)

        taken: list[tuple[float, float]] = []
        while len(taken) < _TURNS and (len(taken) < 3 or time.monotonic() < self._until):
            taken.append((_seconds(work), _seconds(yardstick)))
        ratio = statistics.median(work_s / yardstick_s for work_s, yardstick_s in taken)
        return Compared(statistics.median(work_s for work_s, _ in taken) / len(texts), ratio, len(taken))

    def lengths(self, kind: str) -> dict[int, float]:
        """Return seconds a frame by the length of the stream: of the fastest run, short streams being repeated."""
        each = reads(_EXTRA[kind])

        def fastest(length: int) -> float:
            repeats = max(2, min(20, 200_000 // length))
            return min(_seconds(lambda: core.live(stream(each, length))) for _ in range(repeats))

        return {length: fastest(length) / length for length in self._lengths}

    def held(self, kind: str) -> Held:
        """Return what one stream holds, and what one read needs for a moment."""
        each = reads(_EXTRA[kind])
        early, late = (frames // PER_READ for frames in (ROUND, self._late))
        tracemalloc.start()
        try:
            live = core.live(islice(stream(each, ROUND), 1))
            sizes: list[int] = []
            for first, last in ((0, early), (early, late)):
                for n in range(first, last):
                    live.read(n + 2, each[n % len(each)])
                gc.collect()
                sizes.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.reset_peak()
            live.read(late + 2, each[late % len(each)])
            return Held(sizes[0], sizes[1], tracemalloc.get_traced_memory()[1] - sizes[1])
        finally:
            tracemalloc.stop()


def _seconds(work: Callable[[], object]) -> float:
    """Return the CPU time of one run. The core makes no cycles, so the collector has nothing to do."""
    gc.collect()
    gc.disable()
    try:
        start = time.process_time()
        work()
        return time.process_time() - start
    finally:
        gc.enable()


def _frames(body: bytes) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield raw frames, and the payload of each that is JSON."""
    decoder = Decoder()
    for frame in [*decoder.feed(body), *decoder.close()]:
        known = frame.payload is not None and parse(frame.payload) is not ABSENT
        yield frame.raw, frame.payload if known else None
