"""`python -m tests.bench` measures all and writes the core's part of docs/internals/benchmarks.md.

With WIRETAPE_BENCH_SECONDS it only holds the bars, within that time and with a margin: the machines that do so on every
change are busy ones. In full they are held to the letter.
"""

import os
import platform
import sys
from collections.abc import Iterator
from typing import Final

from .cases import BARS, GROWTH_MAX, HELD_BYTES_MAX, Bench
from .document import Figures, core, put
from .frames import PER_READ

_MARGIN: Final = 1.25


def broken(figures: Figures, margin: float) -> Iterator[str]:
    """Print a line for each kind of frame, and yield one for each bar that does not hold."""
    for kind, bar in BARS.items():
        ratio, growth, grown = figures.frames[kind, False].ratio, figures.growth(kind), figures.held[kind].grown
        print(
            f"{kind} frames: {ratio:.1f} times orjson.loads (bar {bar:.0f}), {growth:.2f} between lengths, "
            f"{grown:+} bytes held"
        )
        if ratio > bar * margin:
            yield f"{kind} frames cost {ratio:.1f} times orjson.loads; the bar is {bar:.0f} times"
        if growth > GROWTH_MAX:
            yield f"{kind} frames cost {growth:.1f} times more in one stream than in another of another length"
        if grown > HELD_BYTES_MAX:
            yield f"a stream of {kind} frames holds {grown} bytes more at its end"


def main() -> None:
    """Measure all figures, or those that have a bar; the exit status says whether every bar holds."""
    limit = os.environ.get("WIRETAPE_BENCH_SECONDS")
    bench = Bench(float(limit) if limit else None)
    figures = Figures(
        frames={
            (kind, single): bench.frames(kind, 1 if single else PER_READ)
            for kind in BARS
            for single in ((False,) if limit else (False, True))
        },
        captured=None if limit else bench.captured(),
        lengths={kind: bench.lengths(kind) for kind in BARS},
        held={kind: bench.held(kind) for kind in BARS},
    )
    if lines := list(broken(figures, _MARGIN if limit else 1.0)):
        sys.exit("BAR BROKEN: " + "; ".join(lines))
    if not limit:
        machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs"
        put("core", core(figures, machine))


if __name__ == "__main__":
    main()
