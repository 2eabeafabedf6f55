"""Make the pictures of the documents: `python -m tests.docs.pictures` (or `make pictures`).

The diagrams are drawn here, the states of a tool call from their table. The demo's output is what the demo prints, and
`tests/ui` takes the screenshots of the inspector.
"""

import io
import re
from html import escape
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import trio
from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from tests.house.tree import ROOT
from wiretape.events.core.lifecycle import TABLE, TERMINAL, State
from wiretape.replay.cli.demo import SCENES, played

PICTURES: Final = ROOT / "docs/pictures"
_STYLE: Final = """<style>
  text { font: 15px system-ui, sans-serif; fill: #1f2328; text-anchor: middle; dominant-baseline: middle }
  .small { font-size: 12.5px; fill: #59636e }
  .mono { font: 11.5px ui-monospace, monospace; fill: #59636e; text-anchor: start }
  rect { fill: #f6f8fa; stroke: #8c959f; stroke-width: 1.5 }
  .main { fill: #ddf4ff; stroke: #0969da; stroke-width: 2 }
  .lost { fill: #ffebe9; stroke: #cf222e }
  .good { fill: #dafbe1; stroke: #1a7f37 }
  path { stroke: #59636e; stroke-width: 1.5; fill: none; marker-end: url(#tip) }
  #tip path { fill: #59636e; stroke: none; marker-end: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #f0f6fc } .small, .mono { fill: #9198a1 } rect { fill: #212830; stroke: #656c76 }
    .main { fill: #0c2d4d; stroke: #4493f8 } .lost { fill: #3d1e20; stroke: #f85149 }
    .good { fill: #12291b; stroke: #3fb950 } path { stroke: #9198a1 } #tip path { fill: #9198a1 }
  }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" orient="auto">
  <path d="M0 0 8 4 0 8z"/></marker></defs>"""


class Box(NamedTuple):
    """A box with its middle, its size and its words: the name, and a smaller line below."""

    x: float
    y: float
    words: str
    below: str = ""
    kind: str = ""
    wide: float = 130
    high: float = 46

    def drawn(self) -> str:
        corner = f'x="{self.x - self.wide / 2}" y="{self.y - self.high / 2}"'
        said = [f'<text x="{self.x}" y="{self.y - 8 * bool(self.below)}">{escape(self.words)}</text>']
        if self.below:
            said.append(f'<text class="small" x="{self.x}" y="{self.y + 11}">{escape(self.below)}</text>')
        return f'<rect class="{self.kind}" {corner} width="{self.wide}" height="{self.high}" rx="7"/>{"".join(said)}'

    def edge(self, other: "Box") -> tuple[float, float]:
        """Return where a line from the middle to the other box leaves this one."""
        dx, dy = other.x - self.x, other.y - self.y
        share = min(self.wide / 2 / abs(dx) if dx else 9, self.high / 2 / abs(dy) if dy else 9)
        return self.x + dx * share, self.y + dy * share


def arrow(start: Box, end: Box, shift: float = 0) -> str:
    """Return an arrow between two boxes, moved down by `shift`."""
    (x1, y1), (x2, y2) = start.edge(end), end.edge(start)
    return f'<path d="M{x1:.0f} {y1 + shift:.0f} L{x2:.0f} {y2 + shift:.0f}"/>'


def picture(wide: int, high: int, about: str, *parts: str) -> str:
    """Return an SVG that follows the reader's light or dark theme."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" role="img">'
    return "\n".join([head, f"<title>{escape(about)}</title>", _STYLE, *parts, "</svg>", ""])


def how_it_works() -> str:
    """Return the one diagram of README.md."""
    client = Box(95, 50, "Your application", "any SDK, agent or curl", wide=170)
    proxy = Box(380, 50, "Wiretape", "reads, records, repairs", kind="main", wide=180)
    provider = Box(665, 50, "LLM provider", "or a local server", wide=170)
    tape = Box(380, 160, "", wide=270, high=84)
    lines = [
        '{"n":6,"t":81234,"k":"frame","data":…',
        '{"n":7,"t":81240,"k":"frame","data":…',
        '{"n":8,"t":90117,"k":"end","cause":…',
    ]
    uses = [
        Box(95, 275, "Inspector", "watch streams live", wide=170),
        Box(285, 275, "Resume", "after a disconnect", wide=170),
        Box(475, 275, "Tests", "replay, break, compare", wide=170),
        Box(665, 275, "Metrics", "Prometheus, spans", wide=170),
    ]
    parts = [each.drawn() for each in (client, proxy, provider, tape, *uses)]
    parts += [f'<text class="mono" x="255" y="{155 + 18 * n}">{escape(line)}</text>' for n, line in enumerate(lines)]
    parts.append('<text class="small" x="380" y="133">the tape: each read, before it is passed on</text>')
    parts += [arrow(client, proxy, -8), arrow(proxy, client, 8), arrow(proxy, provider, -8), arrow(provider, proxy, 8)]
    parts += [arrow(proxy, tape), *(arrow(tape, use) for use in uses)]
    return picture(760, 305, "How Wiretape works", *parts)


def tool_calls() -> str:
    """Return the states of a tool call and their moves, as the table has them."""
    places = {
        "announced": (80, 90),
        "ready": (270, 90),
        "running": (460, 90),
        "completed": (650, 30),
        "failed": (650, 90),
        "abandoned": (650, 150),
        "malformed": (80, 195),
        "dropped": (365, 195),
    }
    kinds = {State.COMPLETED: "good", State.DROPPED: "lost", State.MALFORMED: "lost"}
    boxes = {state: Box(*places[state.value], state.value, kind=kinds.get(state, "")) for state in State}
    assert all(state in TERMINAL or TABLE[state] for state in State)
    moves = dict.fromkeys((state, to) for state, each in TABLE.items() for to in each.values())
    curved = '<path d="M80 67 C 80 10, 460 10, 460 67"/>'  # over the box between them
    lines = [
        curved if (start, to) == (State.ANNOUNCED, State.RUNNING) else arrow(boxes[start], boxes[to])
        for start, to in moves
    ]
    return picture(730, 230, "States of a tool call", *(box.drawn() for box in boxes.values()), *lines)


def demo() -> str:
    """Run the demo and return what it prints of its last stream, the one that breaks."""
    console = Console(
        record=True,
        width=112,
        file=io.StringIO(),
        force_terminal=True,
        color_system="truecolor",
        markup=False,
        highlight=False,
    )
    title = SCENES[-1].title
    with TemporaryDirectory() as folder:

        def show(what: object) -> None:
            if isinstance(what, Text) and title in what.plain:
                console.export_text(clear=True)
                console.print("$ uvx wiretape demo\n...", style="dim")
            console.print(what, end="")

        trio.run(played, Path(folder), show)
    drawn = console.export_svg(title="wiretape demo", theme=MONOKAI, unique_id="demo")
    return re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL)  # of another origin


DRAWN: Final = {"how-it-works.svg": how_it_works, "tool-calls.svg": tool_calls}


def main() -> None:
    PICTURES.mkdir(exist_ok=True)
    for name, draw in {**DRAWN, "demo.svg": demo}.items():
        (PICTURES / name).write_text(draw(), encoding="utf-8")
    import_module("tests.ui.pictures").take(PICTURES)  # needs a browser


if __name__ == "__main__":
    main()
