"""The proxy's part of docs/internals/benchmarks.md, and the same for a terminal."""

from typing import Final

from .proxy_bars import Figures, bars
from .proxy_load import CASES

__all__ = ["report", "verdicts"]

_PARTIES: Final = {
    "wiretape": "Wiretape with its defaults: parsed, recorded, normalised",
    "floor": "floor: hypercorn, trio and h11 alone, each frame read as JSON and written again",
    "relay": "relay: Starlette, uvicorn (uvloop), httpx",
    "litellm": "LiteLLM proxy 1.106, one worker",
    "direct": "the upstream itself",
}

_TEXT: Final = """\

Written by `make bench-proxy`: Wiretape with its defaults, a raw relay of twenty lines that reads nothing, and
the LiteLLM proxy, in one run, in turns, in front of one upstream ([the yardstick](../tests/bench/yardstick/README.md)).
The floor (tests/bench/floor.py) is the cost of an ASGI server, trio and h11 alone.
Medians of {turns}. Upstream, proxy and client share {machine}, so compare the CPU time of the proxy's
process rather than waiting times.

### CPU a frame, and the first byte

| us of CPU a frame | paced | flood 1 | flood 50 | latency, one at a time | first byte p50 | p99 | memory |
| --- | --- | --- | --- | --- | --- | --- | --- |
{costs}

Paced: 50 streams, a frame each 10 ms. Flood: 200 streams, 20 at a time, as fast as they go, with 1 or 50 frames in each
write of the upstream.

### The bars

| promise | figure | bar | kept |
| --- | --- | --- | --- |
{bars}
"""


def report(figures: Figures, turns: int, machine: str) -> str:
    """The whole part."""
    rows = [f"| {bar.what} | {bar.figure} | {bar.bar} | {'yes' if bar.holds else '**no**'} |" for bar in bars(figures)]
    costs = "\n".join(_costs(figures))
    return _TEXT.format(turns=turns, machine=machine, costs=costs, bars="\n".join(rows))


def verdicts(figures: Figures) -> str:
    """A line for each party and each bar."""
    lines = _costs(figures)
    lines += [f"{'ok  ' if bar.holds else 'FAIL'} {bar.what}: {bar.figure} (bar {bar.bar})" for bar in bars(figures)]
    return "\n".join(lines)


def _costs(figures: Figures) -> list[str]:
    rows: list[str] = []
    for party, name in _PARTIES.items():
        ours = {case: run for (who, case), run in figures.runs.items() if who == party}
        if not ours:
            continue
        cells = [f"{ours[case].cpu_us_frame:.1f}" if case in ours else "" for case in CASES if case != "latency"]
        latency = ours.get("latency")
        cells.append(f"{latency.cpu_us_frame:.1f}" if latency else "")
        cells += [f"{latency.first_byte_ms:.2f} ms", f"{latency.first_byte_p99_ms:.1f} ms"] if latency else ["", ""]
        cells.append(f"{max(run.rss_mb for run in ours.values())} MB")
        rows.append(f"| {name} | {' | '.join(cells)} |")
    return rows
