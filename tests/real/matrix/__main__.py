"""Asks every client in every way: `python -m tests.real.matrix`, or `make test-real`."""

import argparse
import sys
import time
from collections.abc import Sequence

import trio

from ..places import RUN
from .cells import Cell, Found, cells
from .cutting import summary
from .paper import PLACE, document
from .peers import PEERS, Peer
from .running import run, stage
from .verdict import judge

__all__ = ["main"]


async def _run(asked: Sequence[Cell]) -> list[Found]:
    async with stage() as ready:
        return await run(ready, asked, _tell)


def _tell(found: Found) -> None:
    cell, verdict = found.cell, judge(found)
    model = cell.model
    faults = "; ".join(verdict.faults)
    error = found.result["error"]
    said = f" [{error['class']}: {str(error['message'])[:90]}]" if error and faults else ""
    _say(
        f"{time.strftime('%X')} {cell.peer.name} | {model.ending} {model.cut} | {cell.way} | {verdict.word}"
        f" | {found.requests} asked{' | ' + faults if faults else ''}{said}"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _named(name: str, wanted: Sequence[str]) -> bool:
    return not wanted or any(each.lower() in name.lower() for each in wanted)


def main() -> int:
    """The exit status. The document is written by a whole run only."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.matrix", description=__doc__)
    parser.add_argument("--part", choices=["all", "ci"], default="all", help="ci: quick clients, one cut")
    parser.add_argument("--client", action="append", default=[], help="only those whose name holds this")
    parser.add_argument("--ending", action="append", default=[], help="only these")
    parser.add_argument("--cut", action="append", default=[], help="only these")
    asked = parser.parse_args()
    peers: list[Peer] = [peer for peer in PEERS if _named(peer.name, asked.client)]
    chosen = [
        cell
        for peer in peers
        for cell in cells(peer)
        if _named(cell.model.ending, asked.ending) and _named(cell.model.cut, asked.cut)
    ]
    RUN.mkdir(parents=True, exist_ok=True)
    found = trio.run(_run, chosen)
    _say(summary(found))
    if len(peers) == len(PEERS) and not asked.ending and not asked.cut:
        PLACE.write_text(document(found), encoding="utf-8")
    return 1 if any(judge(each).defect for each in found) else 0


if __name__ == "__main__":
    sys.exit(main())
