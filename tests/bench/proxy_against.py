"""`python -m tests.bench.proxy_against COMMIT`: the proxy against an earlier commit, five runs of each in turn.

Each run is a process of its own on the yardstick's cases. The spread between runs of one commit is the machine's.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from .against import short, tree
from .document import put
from .proxy_bars import BEFORE
from .proxy_parties import CACHE, CASES, Case, Run, run, started, upstream

__all__ = ["main"]

_TURNS: Final = 5
_WARM_UP: Final = Case(20, 1, 0, 10, 5)
_TEXT: Final = """
Written by `python -m tests.bench.proxy_against COMMIT`: medians of {turns} alternating runs on the yardstick's cases,
with their minimum and maximum in brackets.

| case | {before} | {now} | ratio | bar | {now} within the spread of {before} |
| --- | --- | --- | --- | --- | --- |
"""


def main() -> None:
    """Print a row for each figure; the exit status says whether the bars for CPU hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.proxy_against", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--turns", type=int, default=_TURNS)
    asked = parser.parse_args()
    turns: dict[str, list[dict[str, Run]]] = {"before": [], "now": []}
    with tempfile.TemporaryDirectory(prefix="against-", dir=CACHE) as folder, upstream():
        places = {"before": tree(Path(folder) / "before", asked.commit), "now": tree(Path(folder) / "now", "HEAD")}
        for number in range(asked.turns):
            for which in ("before", "now") if number % 2 else ("now", "before"):
                turns[which].append(_turn(places[which], Path(folder) / f"{which}-{number}"))
                cpu = {case: each.cpu_us_frame for case, each in turns[which][-1].items()}
                sys.stderr.write(f"{which}: {cpu} us a frame\n")
    kinds: dict[str, Callable[[dict[str, Run]], float]] = {
        **{f"{case}, us of CPU a frame": partial(_cpu, case) for case in CASES},
        "latency, first byte p50, ms": lambda turn: turn["latency"].first_byte_ms,
        "memory, MB": lambda turn: float(max(each.rss_mb for each in turn.values())),
    }
    figures = {name: {which: [*map(of, those)] for which, those in turns.items()} for name, of in kinds.items()}
    limits = {f"{case}, us of CPU a frame": limit for case, limit in BEFORE.items()}
    rows = "".join(
        f"| {name} | {_cells(each['before'], each['now'], limits.get(name))} |\n" for name, each in figures.items()
    )
    sys.stdout.write(rows)
    put("proxy against", _TEXT.format(turns=asked.turns, before=asked.commit, now=short("HEAD")) + rows)
    broken = [name for name, limit in limits.items() if _ratio(figures[name]["before"], figures[name]["now"]) > limit]
    if broken:
        sys.exit("BAR BROKEN: " + "; ".join(broken))


def _cpu(case: str, turn: dict[str, Run]) -> float:
    return turn[case].cpu_us_frame


def _turn(source: Path, data: Path) -> dict[str, Run]:
    with started("wiretape", data, source=source) as party:
        run(_WARM_UP, party)
        runs = {name: run(case, party) for name, case in CASES.items()}
    lost = "; ".join(each.short for each in runs.values() if each.short)
    if lost:
        sys.exit(f"frames or streams were lost: {lost}")
    return runs


def _ratio(before: list[float], now: list[float]) -> float:
    return statistics.median(now) / statistics.median(before)


def _cells(before: list[float], now: list[float], limit: float | None) -> str:
    middle_now = statistics.median(now)
    if min(before) <= middle_now <= max(before):
        where = "within"
    else:
        where = "below" if middle_now < min(before) else "**above**"
    bar = "" if limit is None else f"<= {limit:.2f}"
    return f"{_range(before)} | {_range(now)} | {_ratio(before, now):.2f} | {bar} | {where}"


def _range(values: list[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
