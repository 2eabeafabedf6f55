"""The yardstick's work: its four cases and our two, each one run of load.py against one party."""

import json
import statistics
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple, cast

from .proxy_parties import Party, relay_python

__all__ = ["CASES", "MANY", "Case", "Run", "medians", "run"]

_LOAD: Final = Path(__file__).parent / "yardstick/load.py"

#: What upstream.py adds to the frames that are asked for: the role, the finish, [DONE].
_FRAMES_AROUND: Final = 3


class Case(NamedTuple):
    """Work of one kind: frames a stream, frames a write of the upstream, milliseconds between writes."""

    frames: int
    per_write: int
    gap_ms: int
    streams: int
    at_once: int

    @property
    def model(self) -> str:
        """As upstream.py reads it."""
        return f"bench-{self.frames}-{self.per_write}-{self.gap_ms}"


#: As the yardstick's README has them.
CASES: Final = {
    "latency": Case(50, 1, 0, 100, 1),
    "paced": Case(200, 1, 10, 50, 50),
    "flood 1": Case(200, 1, 0, 200, 20),
    "flood 50": Case(200, 50, 0, 200, 20),
}
#: Wiretape's alone: the memory of many, and a thousand streams of ten frames a second, none of which may lose one.
MANY: Final = {"200 streams": Case(200, 1, 25, 200, 200), "1000 streams": Case(100, 1, 100, 1_000, 1_000)}


class Run(NamedTuple):
    """What load.py said of one run."""

    cpu_us_frame: float
    cpu_ms_stream: float
    first_byte_ms: float
    first_byte_p99_ms: float
    frames: int
    frames_s: int
    complete: int
    rss_mb: int
    #: One line when a stream or a frame is missing.
    short: str


def run(case: Case, party: Party) -> Run:
    """One run of one case."""
    command = [relay_python(), str(_LOAD), str(party.port), "/v1/chat/completions", case.model]
    command += [str(case.streams), str(case.at_once), str(party.pid)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    due = case.streams * (case.frames + _FRAMES_AROUND)
    whole = said["complete"] == case.streams and said["frames"] == due
    short = (
        ""
        if whole
        else f"{said['complete']} of {case.streams} streams, {said['frames']} of {due} frames, {said['bad']}"
    )
    first = cast("list[float | None]", said["ttfb_ms"])
    return Run(
        said["cpu_us_frame"],
        said["cpu_ms_stream"],
        first[0] or 0.0,
        first[1] or 0.0,
        said["frames"],
        said["frames_s"],
        said["complete"],
        said["rss_mb"],
        short,
    )


def medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure, and the shortfalls of every run."""

    def middle(values: Sequence[float]) -> float:
        return statistics.median(values)

    return Run(
        cpu_us_frame=middle([each.cpu_us_frame for each in runs]),
        cpu_ms_stream=middle([each.cpu_ms_stream for each in runs]),
        first_byte_ms=middle([each.first_byte_ms for each in runs]),
        first_byte_p99_ms=middle([each.first_byte_p99_ms for each in runs]),
        frames=round(middle([each.frames for each in runs])),
        frames_s=round(middle([each.frames_s for each in runs])),
        complete=min(each.complete for each in runs),
        rss_mb=max(each.rss_mb for each in runs),
        short="; ".join(dict.fromkeys(each.short for each in runs if each.short)),
    )
