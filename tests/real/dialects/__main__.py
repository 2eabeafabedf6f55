"""Runs the agents: `python -m tests.real.dialects`, or `make test-real`."""

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final

import trio

from ..processes import RUN
from ..report import say
from ..servers import llama
from . import scenes as all_scenes
from .agents import AGENTS
from .document import PLACE, Key, Row, document, is_cut, key_of, read_rows, row_of, summary, write_rows
from .running import run, stage
from .scenes import DIRECT, LLAMA, Cell, Found

#: For the ends of all messages of an agent.
_CONTEXT: Final = 16_384


def _say(found: Found) -> None:
    cell, faults = found.cell, list(found.faults)
    asked = f"{len(found.asked)} asked | {found.seconds:.1f} s"
    said = f"{cell.number} {cell.agent.name} | {cell.scene.name} | {cell.way} | {asked}"
    say(f"{time.strftime('%X')} {said} | {'; '.join(faults) or 'holds'}")


#: For CI: two agents that install in seconds, in front of chat, and the cut that tempts most to mend what came.
_QUICK: Final = ("call", "two calls", "apply_patch", "exec", "picture", "eof arguments")


def _quick(cell: Cell) -> bool:
    return cell.agent.name in ("codex", "Claude Code") and cell.way == "chat" and cell.scene.name in _QUICK


async def _run(cells: Sequence[Cell], rows: dict[Key, Row]) -> None:
    def told(found: Found) -> None:
        rows[key_of(found.cell)] = row_of(found)
        write_rows(rows)
        _say(found)

    async with AsyncExitStack() as stack:
        extra: dict[str, str] = {}
        if any(cell.way == LLAMA for cell in cells):
            extra[LLAMA] = (await stack.enter_async_context(llama("dialects-llama", _CONTEXT))).url
        ready = await stack.enter_async_context(stage(extra))
        await run(ready, cells, told)


def main() -> int:
    """Run one part; return the exit status. The document has the rows of this run and, with an option, earlier ones."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.dialects", description=__doc__)
    parser.add_argument("--agents", nargs="*", default=[], help="names of agents, or their beginnings")
    parser.add_argument("--ways", nargs="*", default=[], help="direct, or routes")
    parser.add_argument("--scenes", nargs="*", default=[])
    parser.add_argument("--rest", action="store_true", help="only what no earlier run has")
    parser.add_argument("--part", choices=["all", "scenes", "cuts", "ci"], default="all")
    asked = parser.parse_args()
    everything = [cell for agent in AGENTS for cell in (*all_scenes.scenes(agent), *all_scenes.cuts(agent))]
    rows = read_rows() if asked.rest or asked.agents or asked.ways or asked.scenes or asked.part != "all" else {}
    cells = [
        cell
        for cell in everything
        if (asked.part != "ci" or _quick(cell))
        and (asked.part not in ("scenes", "cuts") or is_cut(cell) == (asked.part == "cuts"))
        and (not asked.agents or cell.agent.name.startswith(tuple(asked.agents)))
        and (not asked.ways or cell.way in asked.ways)
        and (not asked.scenes or cell.scene.name in asked.scenes)
        and (not asked.rest or key_of(cell) not in rows)
    ]
    lack = sorted({str(each) for cell in cells for each in cell.agent.needs if not each.exists()})
    if lack:
        sys.exit(f"not installed: {', '.join(lack)}; `make real-agents` installs it")
    RUN.mkdir(parents=True, exist_ok=True)
    trio.run(_run, cells, rows)
    for cell in cells:
        if cell.way != DIRECT and (faults := rows[key_of(cell)].faults):
            say(f"{', '.join(key_of(cell))}: {'; '.join(faults)}")
    counted = summary(cells, rows)
    say(f"agents: {', '.join(f'{number} {name}' for name, number in counted.items())}")
    if asked.part != "ci":
        PLACE.write_text(document([cell for cell in everything if key_of(cell) in rows], rows), encoding="utf-8")
    return 1 if counted["do not hold"] else 0


if __name__ == "__main__":
    sys.exit(main())
