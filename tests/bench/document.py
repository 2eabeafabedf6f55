"""The figures of the core, and docs/internals/benchmarks.md, in which each bench writes its own part."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from .cases import BARS
from .frames import FRAME_BYTES, PER_READ, ROUND
from .measure import Compared, Held

Part = Literal["core", "against", "proxy", "proxy against"]

_PLACE: Final = Path(__file__).parents[2] / "docs/internals/benchmarks.md"
_HEAD: Final = "# How fast it is\n\nEach part is written by the command that it names.\n"
_PARTS: Final[dict[Part, str]] = {
    "core": "\n## The core\n",
    "against": "\n## The core against an earlier commit\n",
    "proxy": "\n## The proxy\n",
    "proxy against": "\n## The proxy against an earlier commit\n",
}

_TEXT: Final = """\

Written by `make bench`. The core alone, without sockets and files: from bytes to the lines of the tape, the live fold
and the client's bytes. CPU time on one core of a shared machine ({machine}).

Every figure is a ratio to `orjson.loads` of the same payloads: the median of {turns} turns, in each of which the core
and orjson run one after the other with the garbage collector off. Frames have {size} bytes and add a piece of text;
repaired ones also repeat `role`, which a strict client must see once.

### Against orjson

{frames}
### By the length of the stream

CPU per frame, the fastest of several runs.

{lengths}
### Memory

Bytes that one stream holds (recorder, live fold, repairs): after {early} frames, and the growth until the last. A read
also needs memory for the records and frames of its batch.

{held}"""


class Figures(NamedTuple):
    """Everything that was measured, by the kind of frame."""

    #: The flag: each frame in a read of its own.
    frames: dict[tuple[str, bool], Compared]
    captured: Compared | None
    lengths: dict[str, dict[int, float]]
    held: dict[str, Held]

    def growth(self, kind: str) -> float:
        """The dearest frame against the cheapest."""
        costs = self.lengths[kind].values()
        return max(costs) / min(costs)

    def summary(self) -> str:
        """A line for each kind."""
        return "\n".join(
            f"{kind} frames: {self.frames[kind, False].ratio:.1f} times orjson.loads (bar {bar:.0f}), "
            f"{self.growth(kind):.2f} between lengths, {self.held[kind].late - self.held[kind].early:+} bytes held"
            for kind, bar in BARS.items()
        )


def put(part: Part, text: str, place: Path = _PLACE) -> None:
    """Writes one part; the others stay as they are."""
    before = place.read_text(encoding="utf-8") if place.exists() else ""
    texts: dict[Part, str] = {
        each: text if each == part else _found(before, heading) for each, heading in _PARTS.items()
    }
    parts = [heading + texts[each] for each, heading in _PARTS.items() if texts[each]]
    place.write_text(_HEAD + "".join(parts), encoding="utf-8")


def _found(document: str, heading: str) -> str:
    return document.partition(heading)[2].partition("\n## ")[0].rstrip("\n") + "\n" if heading in document else ""


def core(figures: Figures, machine: str) -> str:
    """The part of the core."""
    return _TEXT.format(
        machine=machine,
        turns=figures.frames["plain", False].turns,
        size=FRAME_BYTES,
        frames=_frames(figures),
        lengths=_lengths(figures),
        early=f"{ROUND:,}",
        held=_held(figures),
    )


def _frames(figures: Figures) -> str:
    rows = ["| frames | times orjson | bar | us a frame | frames a second |", "| --- | --- | --- | --- | --- |"]
    for (kind, single), cost in figures.frames.items():
        bar = "" if single else f"{BARS[kind]:.0f}"
        rows.append(_row(f"{kind}, {'1 frame' if single else f'{PER_READ} frames'} a read", cost, bar))
    if figures.captured is not None:
        rows.append(_row("every captured chat stream, whole", figures.captured, ""))
    return "\n".join(rows) + "\n"


def _row(name: str, cost: Compared, bar: str) -> str:
    return f"| {name} | {cost.ratio:.1f} | {bar} | {cost.work_s * 1e6:.2f} | {1 / cost.work_s:,.0f} |"


def _lengths(figures: Figures) -> str:
    lengths = list(figures.lengths["plain"])
    head = " | ".join(f"{length:,} frames" for length in lengths)
    rows = [f"| us a frame | {head} | dearest / cheapest |", "| --- |" + " --- |" * (len(lengths) + 1)]
    for kind, costs in figures.lengths.items():
        cells = " | ".join(f"{costs[length] * 1e6:.2f}" for length in lengths)
        rows.append(f"| {kind} | {cells} | {figures.growth(kind):.2f} |")
    return "\n".join(rows) + "\n"


def _held(figures: Figures) -> str:
    last = max(figures.lengths["plain"])
    rows = [
        f"| bytes | after {ROUND:,} frames | on top after {last:,} | for a moment, a frame of a read of {PER_READ} |",
        "| --- | --- | --- | --- |",
    ]
    for kind, held in figures.held.items():
        rows.append(f"| {kind} | {held.early:,} | {held.late - held.early:,} | {held.moment // PER_READ:,} |")
    return "\n".join(rows) + "\n"
