"""The figures of the core, and docs/internals/benchmarks.md, in which each bench writes its own part."""

from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.support.markdown import table

from .cases import BARS, Compared, Held
from .frames import FRAME_BYTES, PER_READ, ROUND

Part = Literal["core", "against", "proxy", "proxy against", "runs", "workers"]

_PLACE: Final = Path(__file__).parents[2] / "docs/internals/benchmarks.md"
_HEAD: Final = "# How fast it is\n\nEach part is written by the command that it names.\n"
_PARTS: Final[dict[Part, str]] = {
    "core": "\n## The core\n",
    "against": "\n## The core against an earlier commit\n",
    "proxy": "\n## The proxy\n",
    "proxy against": "\n## The proxy against an earlier commit\n",
    "runs": "\n## Runs\n",
    "workers": "\n## Workers\n",
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
        """Return the cost of the dearest frame as a multiple of the cheapest."""
        costs = self.lengths[kind].values()
        return max(costs) / min(costs)


def put(part: Part, text: str, place: Path = _PLACE) -> None:
    """Write one part; the others stay as they are."""
    before = place.read_text(encoding="utf-8") if place.exists() else ""
    texts: dict[Part, str] = {
        each: text if each == part else _found(before, heading) for each, heading in _PARTS.items()
    }
    parts = [heading + texts[each] for each, heading in _PARTS.items() if texts[each]]
    place.write_text(_HEAD + "".join(parts), encoding="utf-8")


def _found(document: str, heading: str) -> str:
    return document.partition(heading)[2].partition("\n## ")[0].rstrip("\n") + "\n" if heading in document else ""


def core(figures: Figures, machine: str) -> str:
    """Return the part of the core."""
    costs = [
        (f"{kind}, {'1 frame' if single else f'{PER_READ} frames'} a read", cost, "" if single else f"{BARS[kind]:.0f}")
        for (kind, single), cost in figures.frames.items()
    ]
    if figures.captured is not None:
        costs.append(("every captured chat stream, whole", figures.captured, ""))
    frames = [
        [name, f"{cost.ratio:.1f}", bar, f"{cost.work_s * 1e6:.2f}", f"{1 / cost.work_s:,.0f}"]
        for name, cost, bar in costs
    ]
    lengths = [
        [kind, *(f"{cost * 1e6:.2f}" for cost in by_length.values()), f"{figures.growth(kind):.2f}"]
        for kind, by_length in figures.lengths.items()
    ]
    held = [
        [kind, f"{held.early:,}", f"{held.grown:,}", f"{held.moment // PER_READ:,}"]
        for kind, held in figures.held.items()
    ]
    last = [f"{length:,} frames" for length in figures.lengths["plain"]]
    moment = f"for a moment, a frame of a read of {PER_READ}"
    return _TEXT.format(
        machine=machine,
        turns=figures.frames["plain", False].turns,
        size=FRAME_BYTES,
        frames=table(["frames", "times orjson", "bar", "us a frame", "frames a second"], frames),
        lengths=table(["us a frame", *last, "dearest / cheapest"], lengths),
        early=f"{ROUND:,}",
        held=table(["bytes", f"after {ROUND:,} frames", f"on top after {last[-1][:-7]}", moment], held),
    )
