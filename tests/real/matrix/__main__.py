"""Asks every client in every way: `python -m tests.real.matrix`, or `make test-real`."""

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Final

import trio

from ..clients import named
from ..places import RUN
from ..report import say
from . import cutting, living
from .cells import DIRECT, Cell, Found, cells, conversations
from .paper import PLACE, document
from .peers import PEERS, READER
from .running import run, stage
from .tapes import taped
from .verdict import judge

__all__ = ["main"]

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
    """The exit status. The document is written by a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.matrix", description=__doc__)
    parser.add_argument("--part", choices=["all", "ci"], default="all", help="ci: quick clients, one cut")
    parser.add_argument("--client", action="append", default=[], help="only those whose name holds this")
    parser.add_argument("--ending", action="append", default=[], help="only these; `whole` is the lifecycle")
    parser.add_argument("--cut", action="append", default=[], help="only these")
    asked = parser.parse_args()
    ci = asked.part == "ci"
    peers = [peer for peer in (*PEERS, READER) if named(peer.name, asked.client) and (peer.quick or not ci)]
    chosen = [
        cell
        for peer in peers
        for cell in (*conversations(peer), *(() if peer is READER else cells(peer)))
        if named(cell.model.ending, asked.ending) and named(cell.model.cut, asked.cut)
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
    if not (ci or asked.client or asked.ending or asked.cut):
        PLACE.write_text(document(cut, whole), encoding="utf-8")
    return 0 if found and holds and not any(judge(each).defect for each in cut) else 1


if __name__ == "__main__":
    sys.exit(main())
