"""`python -m tests.bench` measures all and writes the core's part of docs/internals/benchmarks.md.

With WIRETAPE_BENCH_SECONDS it only holds the bars, within that time and with a margin: the machines that do so on every
change are busy ones. In full they are held to the letter.
"""

import os
import platform
import sys
from typing import Final

from .cases import BARS, GROWTH_MAX, HELD_BYTES_MAX, Bench, Budget
from .document import Figures, core, put
from .frames import PER_READ

_MARGIN: Final = 1.25


def broken(figures: Figures, margin: float) -> list[str]:
    """One line for each bar that does not hold."""
    lines: list[str] = []
    for kind, bar in BARS.items():
        ratio = figures.frames[kind, False].ratio
        if ratio > bar * margin:
            lines.append(f"{kind} frames cost {ratio:.1f} times orjson.loads; the bar is {bar:.0f} times")
        growth = figures.growth(kind)
        if growth > GROWTH_MAX:
            lines.append(f"{kind} frames cost {growth:.1f} times more in one stream than in another of another length")
        held = figures.held[kind]
        if held.late - held.early > HELD_BYTES_MAX:
            lines.append(f"a stream of {kind} frames holds {held.late - held.early} bytes more at its end")
    return lines


def measured(bench: Bench, *, everything: bool) -> Figures:
    """All figures, or those that have a bar."""
    singles = (False, True) if everything else (False,)
    return Figures(
        frames={(kind, single): bench.frames(kind, 1 if single else PER_READ) for kind in BARS for single in singles},
        captured=bench.captured() if everything else None,
        lengths={kind: bench.lengths(kind) for kind in BARS},
        held={kind: bench.held(kind) for kind in BARS},
    )


def main() -> None:
    """The exit status says whether every bar holds."""
    limit = os.environ.get("WIRETAPE_BENCH_SECONDS")
    figures = measured(Bench(Budget.of(float(limit) if limit else None)), everything=not limit)
    print(figures.summary())
    if lines := broken(figures, _MARGIN if limit else 1.0):
        sys.exit("BAR BROKEN: " + "; ".join(lines))
    if not limit:
        machine = f"{platform.python_implementation()} {platform.python_version()}, {os.cpu_count()} CPUs"
        put("core", core(figures, machine))


if __name__ == "__main__":
    main()
