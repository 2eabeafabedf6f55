"""`python -m tests.bench.against COMMIT`: core and proxy against an earlier commit, runs of each in turn.

Each run is a process of its own: the core's runs the commit's own `tests/bench/core.py`, because modules move between
commits, the proxy's the yardstick's cases. The spread between runs of one commit is the machine's.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from tests.support.markdown import table

from .document import put
from .proxy_bars import BEFORE
from .proxy_parties import CACHE, CASES, Case, Run, run, started, upstream

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("events", "proxy", "replay")
_TURNS: Final = {"core": 15, "proxy": 5}
_WARM_UP: Final = Case(20, 1, 0, 10, 5)
_TEXT: Final = """
Written by `python -m tests.bench.against --part {part} COMMIT`: medians of {turns} alternating runs, with
minimum and maximum in brackets.

"""
_WORK: Final = """
import gc, json, time
from tests.bench import core
from tests.bench.frames import ROLE, reads, stream

gc.disable()
figures = {}
for kind, extra in (("plain", b""), ("repaired", ROLE)):
    for size in (50, 1):
        each = reads(extra, size)
        core.live(stream(each, 2_000))
        began = time.process_time()
        core.live(stream(each, 20_000))
        figures[f"{kind}, {size} a read, us of CPU a frame"] = (time.process_time() - began) / 20_000 * 1e6
print(json.dumps(figures))
"""

#: Figures by name, of one run.
_Figures = dict[str, float]


def main() -> None:
    """Print a row for each figure; the exit status says whether the bars for the proxy's CPU hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__)
    parser.add_argument("commit")
    parser.add_argument("--part", choices=[*_TURNS], default="core")
    parser.add_argument("--turns", type=int)
    asked = parser.parse_args()
    turns: int = asked.turns or _TURNS[asked.part]
    now = _git("rev-parse", "--short", "HEAD").strip()
    with contextlib.ExitStack() as stack:
        core = asked.part == "core"
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="against-", dir=None if core else CACHE)))
        if not core:
            stack.enter_context(upstream())
        figures = _alternating(folder, asked.commit, turns, _core if core else partial(_proxy, folder))
    rows, broken = _rows(*figures, {} if core else {f"{case}, us of CPU a frame": bar for case, bar in BEFORE.items()})
    head = ["figure", asked.commit, now, "ratio", "bar", f"{now} within the spread of {asked.commit}"]
    sys.stdout.write(text := table(head, rows))
    put("against" if core else "proxy against", _TEXT.format(part=asked.part, turns=turns) + text)
    if broken:
        sys.exit("BAR BROKEN: " + "; ".join(broken))


def _alternating(
    folder: Path, commit: str, turns: int, measure: Callable[[Path], _Figures]
) -> tuple[list[_Figures], list[_Figures]]:
    """Measure both commits in turns; return the figures before and now."""
    places = [_tree(folder / "before", commit), _tree(folder / "now", "HEAD")]
    found: tuple[list[_Figures], list[_Figures]] = [], []
    for number in range(turns):
        for which in (0, 1) if number % 2 else (1, 0):
            found[which].append(measure(places[which]))
            sys.stderr.write(f"{places[which].name}: {found[which][-1]}\n")
    return found


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=_ROOT, check=True, capture_output=True, text=True).stdout


def _tree(place: Path, commit: str) -> Path:
    """Write the sources of a commit as they are installed, with its own benchmarks; return their folder."""
    (place / "wiretape").mkdir(parents=True)
    for target, names in ((place / "wiretape", _PACKAGES), (place, ("tests", "pyproject.toml"))):
        archive = subprocess.run(["git", "archive", commit, *names], cwd=_ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", str(target)], input=archive, check=True)
    return place


def _core(source: Path) -> _Figures:
    environment = {**os.environ, "PYTHONPATH": str(source)}
    ran = subprocess.run(
        [sys.executable, "-c", _WORK], cwd=source, env=environment, check=True, capture_output=True, text=True
    )
    figures: _Figures = json.loads(ran.stdout)
    return figures


def _proxy(folder: Path, source: Path) -> _Figures:
    data = Path(tempfile.mkdtemp(dir=folder))
    with started("wiretape", data, source=source) as party:
        run(_WARM_UP, party)
        runs: dict[str, Run] = {name: run(case, party) for name, case in CASES.items()}
    if lost := "; ".join(each.short for each in runs.values() if each.short):
        sys.exit(f"frames or streams were lost: {lost}")
    return {
        **{f"{case}, us of CPU a frame": each.cpu_us_frame for case, each in runs.items()},
        "latency, first byte p50, ms": runs["latency"].first_byte_ms,
        "memory, MB": float(max(each.rss_mb for each in runs.values())),
    }


def _rows(before: Sequence[_Figures], now: Sequence[_Figures], bars: _Figures) -> tuple[list[Sequence[str]], list[str]]:
    """Return a row for each figure, and the names of those above their bar."""
    rows, broken = list[Sequence[str]](), list[str]()
    for name in now[0]:
        old, new = [each[name] for each in before], [each[name] for each in now]
        middle = statistics.median(new)
        ratio, bar = middle / statistics.median(old), bars.get(name)
        where = "within" if min(old) <= middle <= max(old) else "below" if middle < min(old) else "**above**"
        rows.append([name, _range(old), _range(new), f"{ratio:.3f}", f"<= {bar:.2f}" if bar else "", where])
        broken += [name] * bool(bar and ratio > bar)
    return rows, broken


def _range(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
