"""`python -m tests.bench.proxy` measures the proxy and its opponents for docs/internals/benchmarks.md.

While one thing is being made faster: `--only wiretape,relay --case paced --turns 1`; then nothing is written. The exit
status says whether every bar holds.
"""

import argparse
import contextlib
import os
import platform
import resource
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import trio

from .document import put
from .proxy_bars import Figures, bars, report, verdicts
from .proxy_idle import DESCRIPTORS_A_STREAM, IDLE_KEEPALIVE_S, Idle, idle
from .proxy_parties import CACHE, CASES, MANY, Case, Party, Run, medians, quiet_upstream, run, started, upstream

_PROXIES: Final = ("wiretape", "floor", "relay", "litellm")
_TURNS: Final = 3
#: Beyond the idle streams: those of the warm-up may still be ending.
_SPARE: Final = 500

#: Before anything counts: imports on the first request, connections, caches.
_WARM_UP: Final = Case(20, 1, 0, 10, 5)


def main() -> None:
    """Run all benchmarks, or those that the arguments name."""
    asked = _arguments()
    names, cases = asked.only.split(","), asked.case.split(",") if asked.case else [*CASES, *MANY, "idle"]
    everything = set(names) == set(_PROXIES) and not asked.case and asked.turns >= _TURNS
    with tempfile.TemporaryDirectory(prefix="tapes-", dir=CACHE) as data:  # on a disk, as users have it
        figures = _measured(names, cases, asked.turns, Path(data))
    sys.stdout.write(verdicts(figures))
    if everything:
        machine = f"{os.cpu_count()} CPUs ({platform.python_implementation()} {platform.python_version()})"
        put("proxy", report(figures, asked.turns, machine))
    if any(not bar.holds for bar in bars(figures)):
        sys.exit("BAR BROKEN")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.proxy", description=__doc__)
    parser.add_argument("--only", default=",".join(_PROXIES), help="which proxies, with commas between them")
    parser.add_argument("--case", default="", help=f"which of: {', '.join([*CASES, *MANY, 'idle'])}")
    parser.add_argument("--turns", type=int, default=_TURNS)
    return parser.parse_args()


def _measured(names: list[str], cases: list[str], turns: int, data: Path) -> Figures:
    runs: dict[tuple[str, str], Run] = {}
    peak: float | None = None
    with upstream() as direct, contextlib.ExitStack() as stack:
        proxies = [stack.enter_context(started(name, data / "tapes")) for name in names]
        for party in proxies:
            run(_WARM_UP, party)
        for case in (name for name in CASES if name in cases):
            turned = [_turn(case, [*proxies, direct]) for _ in range(turns)]
            runs |= {(party, case): medians([each[party] for each in turned]) for party in turned[0]}
        ours = next((party for party in proxies if party.name == "wiretape"), None)
        for case in (name for name in MANY if name in cases and ours):
            assert ours is not None
            runs["wiretape", case] = _said("wiretape", case, run(MANY[case], ours))
            if case == "200 streams":
                status = Path(f"/proc/{ours.pid}/status").read_text(encoding="utf-8")
                peak = int(status.partition("VmHWM:")[2].split()[0]) * 1024 / 1e6
    silent = _idle(data / "idle") if "idle" in cases and "wiretape" in names else None
    return Figures(runs, peak, silent)


def _turn(case: str, parties: list[Party]) -> dict[str, Run]:
    """One after the other, so that what the machine does meanwhile meets all of them."""
    return {party.name: _said(party.name, case, run(CASES[case], party)) for party in parties}


def _said(party: str, case: str, figures: Run) -> Run:
    cost = f"{figures.cpu_us_frame:7.1f} us a frame, first byte {figures.first_byte_ms:.2f} ms, {figures.rss_mb} MB"
    sys.stderr.write(f"{case:14}{party:10}{cost} {figures.short}\n")
    return figures


def _idle(data: Path) -> Idle:
    """Measure idle streams in a new process, without the memory that a flood leaves."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    streams = hard // DESCRIPTORS_A_STREAM
    sys.stderr.write(f"idle: {streams:,} streams\n")
    settings: dict[str, Any] = {"streams_max": streams + _SPARE, "keepalive_s": IDLE_KEEPALIVE_S}
    with quiet_upstream() as quiet, started("wiretape", data, to=quiet.port, **settings) as party:
        return trio.run(idle, party, streams)


if __name__ == "__main__":
    main()
