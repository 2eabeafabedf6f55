"""`python -m tests.bench.against COMMIT`: the core against an earlier commit, fifteen runs of each in turn.

Each commit runs its own `tests/bench/core.py`, because modules move between commits, in a process of its own.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from .document import put

__all__ = ["main", "short", "tree"]

_ROOT: Final = Path(__file__).parents[2]
_PACKAGES: Final = ("events", "proxy", "replay")
_TURNS: Final = 15
_TEXT: Final = """
Written by `python -m tests.bench.against COMMIT`: medians of {turns} alternating turns, us of CPU a frame.

| frames | {before} | {now} | ratio |
| --- | --- | --- | --- |
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
        figures[f"{kind}, {size} a read"] = (time.process_time() - began) / 20_000 * 1e6
print(json.dumps(figures))
"""


def main() -> None:
    """Print a row for each kind of frame: us before, us now, and the ratio of the medians."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.against", description=__doc__)
    parser.add_argument("commit")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="wiretape-against-") as folder:
        places = {"before": tree(Path(folder) / "before", asked.commit), "now": tree(Path(folder) / "now", "HEAD")}
        turns: dict[str, list[dict[str, float]]] = {"before": [], "now": []}
        for number in range(_TURNS):
            for which in ("before", "now") if number % 2 else ("now", "before"):
                turns[which].append(_run(places[which]))
    rows = ""
    for kind in turns["now"][0]:
        before, now = (statistics.median(turn[kind] for turn in turns[which]) for which in ("before", "now"))
        rows += f"| {kind} | {before:.2f} | {now:.2f} | {now / before:.3f} |\n"
    sys.stdout.write(rows)
    put("against", _TEXT.format(turns=_TURNS, before=asked.commit, now=short("HEAD")) + rows)


def short(commit: str) -> str:
    """Return the abbreviated id of a commit."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", commit], cwd=_ROOT, check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


def tree(place: Path, commit: str) -> Path:
    """Write the sources of a commit as they are installed, with its own benchmarks; return their folder."""
    (place / "wiretape").mkdir(parents=True)
    for target, names in ((place / "wiretape", _PACKAGES), (place, ("tests", "pyproject.toml"))):
        archive = subprocess.run(["git", "archive", commit, *names], cwd=_ROOT, check=True, capture_output=True).stdout
        subprocess.run(["tar", "x", "-C", str(target)], input=archive, check=True)
    return place


def _run(place: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(place)}
    ran = subprocess.run(
        [sys.executable, "-c", _WORK], cwd=place, env=environment, check=True, capture_output=True, text=True
    )
    figures: dict[str, float] = json.loads(ran.stdout)
    return figures


if __name__ == "__main__":
    main()
