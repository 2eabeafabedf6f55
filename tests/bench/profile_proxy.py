"""`python -m tests.bench.profile_proxy "flood 1"`: where the proxy's time goes while one case runs, by py-spy.

py-spy is no dependency: `python3 -m venv .cache/bench/tools && .cache/bench/tools/bin/pip install py-spy`. It stops
the process for each sample, since only then it knows which threads wait.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from .proxy_load import CASES, MANY, run
from .proxy_parties import CACHE, started, upstream

__all__ = ["main"]

_SPY: Final = CACHE / "tools/bin/py-spy"
_RATE: Final = 250


def main() -> None:
    """CPU by thread, exactly; then the functions of the main thread by their share, alone and with what they call."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.profile_proxy", description=__doc__)
    parser.add_argument("case", choices=[*CASES, *MANY])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--who", default="wiretape", choices=["wiretape", "relay"])
    parser.add_argument("--native", action="store_true", help="C functions too")
    parser.add_argument("--lines", action="store_true", help="by line instead of by function")
    asked = parser.parse_args()
    if not _SPY.exists():
        sys.exit(__doc__)
    case = {**CASES, **MANY}[asked.case]
    with tempfile.TemporaryDirectory(prefix="wiretape-profile-") as folder, upstream():
        stacks = Path(folder) / "stacks"
        with started(asked.who, Path(folder) / "tapes") as party:
            run(case, party)  # imports, connections
            how = ["--native"] if asked.native else []
            how += [] if asked.lines else ["--function"]
            record = [str(_SPY), "record", "--format", "raw", "--rate", str(_RATE), "--output", str(stacks), *how]
            seconds = ["--duration", str(int(asked.seconds))]
            spy = subprocess.Popen(
                [*record, *seconds, "--pid", str(party.pid)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            until = time.monotonic() + asked.seconds
            frames, before = 0, _threads(party.pid)
            while time.monotonic() < until or not frames:
                frames += run(case, party).frames
            after = _threads(party.pid)
            spy.wait()
        by_thread = {thread: (used - before.get(thread, 0)) / frames / 1e3 for thread, used in after.items()}
        main_us = by_thread.pop(party.pid)
        others = "".join(f" {used:.2f}" for used in sorted(by_thread.values(), reverse=True) if used >= 0.05)
        sys.stdout.write(f"us of CPU a frame: main thread {main_us:.1f}, others{others}\n")
        sys.stdout.write(_tables(stacks.read_text(encoding="utf-8"), asked.rows, main_us))


def _threads(pid: int) -> dict[int, int]:
    """Nanoseconds of CPU so far."""
    used: dict[int, int] = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            used[int(task.name)] = int((task / "schedstat").read_text(encoding="ascii").split()[0])
    return used


def _tables(raw: str, rows: int, cost_us: float) -> str:
    own: Counter[str] = Counter()
    with_calls: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, count = line.rpartition(" ")
        if "Thread._bootstrap" in stack:  # waiting for the interpreter looks like work
            continue
        frames = stack.split(";")
        total += int(count)
        own[frames[-1]] += int(count)
        for frame in set(frames):
            with_calls[frame] += int(count)
    said = [f"{total} samples\n"]
    for title, counted in (("own", own), ("with what it calls", with_calls)):
        said.append(f"\n{title}\n")
        for frame, samples in counted.most_common(rows):
            share = samples / max(total, 1)
            said.append(f"{share:6.1%} {share * cost_us:7.2f} us  {frame}\n")
    return "".join(said)


if __name__ == "__main__":
    main()
