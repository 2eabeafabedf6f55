"""Asks every client in every way: `python -m tests.real.matrix`, or `make test-real`."""

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from ..clients import version_table
from ..processes import RUN
from ..report import say
from . import cutting, living
from .cutting import REQUESTS_MAX, judge
from .running import run, stage, taped
from .script import CUTS, DIRECT, PEERS, READER, Cell, Found, cells, conversations

PLACE: Final = Path(__file__).parents[3] / "docs/internals/compatibility.md"

_TEXT: Final = """\
# Compatibility

Written by `make test-real`. Real clients, each with a tool that logs its arguments, use a scripted provider over
loopback: directly, and through one `wiretape serve` with a route for each way to end a broken stream (`on_partial`, and
`tools = held`; `warn` always holds; `idle_s` is 2). Each client retries and runs tools by its own defaults; the loops
around the bare SDKs run every call they find.

A cell shows what the client's user sees: **raises**, a **text**, or a **finish**; ⚠ where Wiretape's warning is
visible; (2) where the client sent two requests, (1→3) where Wiretape made three attempts of one request. **Bold**
marks a fault: a tool that **ran** (no call here was ever complete), a **success** (no error, no warning, and the finish
`stop` or `tool_calls` or none that the client reports), more than {most} requests for one user turn, or,
through Wiretape, no end. A missing finish (openai-agents, llm) counts as a success too, unless the
client received `length`.

**no end**: it waited or retried until it was stopped; clients with a timeout setting had 8 s (Vercel `ai`, where it
covers all steps, 30 s). **raises**: also where a program reports a failure in words.

Each stream is cut in three places (two for the clients that are programs); where they differ, the cell says so:

{cuts}

{cutting}
{living}
## Versions

{versions}"""


def document(cut: Sequence[Found], whole: Sequence[Found]) -> str:
    """Return the whole document."""
    return _TEXT.format(
        most=REQUESTS_MAX,
        cuts="\n".join(f"- {name}: {says}" for name, says in CUTS.items()),
        cutting=cutting.document(cut),
        living=living.document(whole),
        versions=version_table(peer.client.package for peer in PEERS),
    )


#: For CI: clients that install and start in seconds, at the cut that tempts most to mend what came.
_CI_CUTS: Final = ("member", "one")


def _quick(cell: Cell) -> bool:
    """Waiting for clients that have no end directly would take most of the time."""
    if cell.way == "both-held" or (cell.way, cell.model.ending) == (DIRECT, "stall"):
        return False
    return cell.model.cut in _CI_CUTS and cell.model.ending != "server_error"


async def _run(asked: Sequence[Cell]) -> list[Found]:
    async with stage() as ready:
        found = await run(ready, asked, _tell)
    return taped(found, ready.tapes)


def _tell(found: Found) -> None:
    cell, verdict = found.cell, judge(found)
    model, faults = cell.model, "; ".join(verdict.faults)
    error = found.result["error"]
    said = f" [{error['class']}: {str(error['message'])[:90]}]" if error and faults else ""
    if model.ending == "whole":
        faults = ""
    say(
        f"{time.strftime('%X')} {cell.peer.name} | {model.ending} {model.cut} | {cell.way} | {verdict.word}"
        f" | {found.asked} asked{' | ' + faults if faults else ''}{said}"
    )


def main() -> int:
    """Run one part; return the exit status. Only a whole run writes the document."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.matrix", description=__doc__)
    parser.add_argument("--part", choices=["all", "ci"], default="all", help="ci: quick clients, one cut")
    ci = parser.parse_args().part == "ci"
    peers = [peer for peer in (*PEERS, READER) if peer.quick or not ci]
    chosen = [
        cell
        for peer in peers
        for cell in (*conversations(peer), *(() if peer is READER else cells(peer)))
        if not ci or _quick(cell)
    ]
    lack = sorted({each for peer in peers for each in peer.lacks})
    if lack:
        sys.exit(f"not installed: {', '.join(lack)}; `make real-matrix` installs it")
    RUN.mkdir(parents=True, exist_ok=True)
    found = trio.run(_run, chosen)
    cut = [each for each in found if each.cell.model.ending != "whole"]
    whole = [each for each in found if each.cell.model.ending == "whole"]
    lived, holds = living.summary(whole)
    say(f"{cutting.summary(cut)}\n{lived}")
    if not ci:
        PLACE.write_text(document(cut, whole), encoding="utf-8")
    return 0 if found and holds and not any(judge(each).defect for each in cut) else 1


if __name__ == "__main__":
    sys.exit(main())
