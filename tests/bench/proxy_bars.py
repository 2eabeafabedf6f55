"""The proxy's figures, their bars against a relay, LiteLLM and an earlier commit, and their part of the report."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from tests.support.markdown import table

from .proxy_idle import Idle
from .proxy_parties import Run

#: CPU a frame as a multiple of the relay's, which reads nothing.
RELAY: Final = {"paced": 1.2, "flood 1": 0.45, "flood 50": 0.5}
#: The same of the floor (floor.py): eec9082 took 1.12, 1.05, 0.92 and 1.92 times as much.
FLOOR: Final = {"paced": 1.3, "latency": 1.35, "flood 1": 1.25, "flood 50": 2.7}
#: CPU a frame as a multiple of eec9082, the last commit with shortcuts on the send path.
BEFORE: Final = {"latency": 1.25, "paced": 1.15, "flood 1": 1.35, "flood 50": 1.4}
#: How many times cheaper than LiteLLM.
LITELLM: Final = {"paced": 6.0, "flood 1": 30.0, "flood 50": 50.0}

FIRST_BYTE_ADDED_MS: Final = 1.5
RSS_200_MB: Final = 100
IDLE_BYTES: Final = 90_000
#: An idle process spends this much on its own timers.
IDLE_SHARE: Final = 0.01


class Figures(NamedTuple):
    """Medians by party and case, as far as they were run; `direct` is the upstream without a proxy."""

    runs: Mapping[tuple[str, str], Run]
    peak_mb: float | None
    idle: Idle | None


class Bar(NamedTuple):
    """A promise, and whether it holds."""

    what: str
    figure: str
    bar: str
    holds: bool


def bars(figures: Figures) -> list[Bar]:
    """Return every bar that has a figure."""
    return [*_against(figures), *_memory(figures), *_whole(figures)]


def _against(figures: Figures) -> Iterator[Bar]:
    for party, limits in (("relay", RELAY), ("floor", FLOOR), ("litellm", LITELLM)):
        for case, bar in limits.items():
            ours, theirs = (figures.runs.get((each, case)) for each in ("wiretape", party))
            if ours is None or theirs is None:
                continue
            if party == "litellm":
                ratio, what = theirs.cpu_us_frame / ours.cpu_us_frame, f"CPU a frame, {case}, cheaper than LiteLLM"
                yield Bar(what, f"{ratio:.0f}x", f">= {bar:.0f}x", ratio >= bar)
            else:
                ratio, what = ours.cpu_us_frame / theirs.cpu_us_frame, f"CPU a frame, {case}, against the {party}"
                yield Bar(what, f"{ratio:.2f}x", f"<= {bar:.2f}x", ratio <= bar)
    ours, direct = (figures.runs.get((party, "latency")) for party in ("wiretape", "direct"))
    if ours and direct:
        added = ours.first_byte_ms - direct.first_byte_ms
        what = "first byte p50 added, one stream at a time"
        yield Bar(what, f"{added:.2f} ms", f"<= {FIRST_BYTE_ADDED_MS} ms", added <= FIRST_BYTE_ADDED_MS)


def _memory(figures: Figures) -> Iterator[Bar]:
    if (peak := figures.peak_mb) is not None:
        yield Bar("memory at 200 streams, its peak", f"{peak:.0f} MB", f"<= {RSS_200_MB} MB", peak <= RSS_200_MB)
    if (idle := figures.idle) is not None:
        open_, each = f"{idle.alive:,} of {idle.streams:,}", idle.bytes_each / 1000
        yield Bar("idle streams that are open", open_, "all", idle.alive == idle.streams)
        yield Bar("memory of an idle stream", f"{each:.0f} KB", "<= 90 KB", idle.bytes_each <= IDLE_BYTES)
        share = f"{idle.quiet_share:.1%} of a core"
        what = f"CPU of all idle streams, over {idle.quiet_s} seconds without a keepalive comment"
        yield Bar(what, share, "none", idle.quiet_s >= 1 and idle.quiet_share <= IDLE_SHARE)


def _whole(figures: Figures) -> Iterator[Bar]:
    if run := figures.runs.get(("wiretape", "1000 streams")):
        what = "1,000 streams of 10 frames a second, frames received"
        yield Bar(what, f"{run.frames:,} of 103,000", "all", not run.short)
    short = {f"{case}: {run.short}" for (party, case), run in figures.runs.items() if party == "wiretape" and run.short}
    yield Bar("frames and streams lost in any other case", "; ".join(sorted(short)) or "none", "none", not short)


_PARTIES: Final = {
    "wiretape": "Wiretape with its defaults: parsed, recorded, normalised",
    "floor": "floor: hypercorn, trio and h11 alone, each frame read as JSON and written again",
    "relay": "relay: Starlette, uvicorn (uvloop), httpx",
    "litellm": "LiteLLM proxy 1.106, one worker",
    "direct": "the upstream itself",
}

#: The columns of the costs, with their heads.
_CASES: Final = {"paced": "paced", "flood 1": "flood 1", "flood 50": "flood 50", "latency": "latency, one at a time"}

_TEXT: Final = """\

Written by `make bench-proxy`: Wiretape with its defaults, a raw relay of twenty lines that reads nothing, and
the LiteLLM proxy, in one run, in turns, in front of one upstream
([the yardstick](../../tests/bench/yardstick/README.md)). The floor (tests/bench/floor.py) is the cost of an ASGI
server, trio and h11 alone. Medians of {turns}. Upstream, proxy and client share {machine}, so compare
the CPU time of the proxy's process rather than waiting times.

### CPU a frame, and the first byte

{costs}
Paced: 50 streams, a frame each 10 ms. Flood: 200 streams, 20 at a time, as fast as they go, with 1 or 50 frames in each
write of the upstream.

### The bars

{bars}"""


def report(figures: Figures, turns: int, machine: str) -> str:
    """Return the whole part."""
    rows = [(bar.what, bar.figure, bar.bar, "yes" if bar.holds else "**no**") for bar in bars(figures)]
    kept = table(["promise", "figure", "bar", "kept"], rows)
    return _TEXT.format(turns=turns, machine=machine, costs=_costs(figures), bars=kept)


def verdicts(figures: Figures) -> str:
    """Return a line for each party and each bar."""
    lines = [f"{'ok  ' if bar.holds else 'FAIL'} {bar.what}: {bar.figure} (bar {bar.bar})\n" for bar in bars(figures)]
    return _costs(figures) + "".join(lines)


def _costs(figures: Figures) -> str:
    rows: list[list[str]] = []
    for party, name in _PARTIES.items():
        ours = {case: run for (who, case), run in figures.runs.items() if who == party}
        if not ours:
            continue
        cells = [f"{ours[case].cpu_us_frame:.1f}" if case in ours else "" for case in _CASES]
        latency = ours.get("latency")
        cells += [f"{latency.first_byte_ms:.2f} ms", f"{latency.first_byte_p99_ms:.1f} ms"] if latency else ["", ""]
        rows.append([name, *cells, f"{max(run.rss_mb for run in ours.values())} MB"])
    return table(["us of CPU a frame", *_CASES.values(), "first byte p50", "p99", "memory"], rows)
