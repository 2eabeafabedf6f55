"""Asks real upstreams with real clients, directly and through Wiretape: `python -m tests.real`, or `make test-real`."""

import argparse
import shutil
import sys
from collections.abc import Sequence
from typing import Final

import trio

from .clients import CLIENTS, SCENARIOS, Client, missing
from .judge import Tapes, judge
from .processes import RUN, Driver, driving, wiretape
from .report import PLACE, Cell, document, said, say, summary
from .servers import UPSTREAMS, Up, Upstream

#: For one question; the slowest client gets 25 s to end by itself.
_ANSWER_S: Final = 90.0

#: Part `ci`: what installs and starts in seconds, and clients that give up in time.
_CI_UPSTREAMS: Final = ("aimock",)
_CI_CLIENTS: Final = tuple(client.name for client in CLIENTS if not client.stubborn)


async def _cell(upstream: Upstream, client: Client, name: str, up: Up, url: str, tapes: Tapes, driver: Driver) -> Cell:
    scenario = SCENARIOS[name]
    if (scenario.tool and upstream.forced and client.unforced) or (scenario.stays and client.stubborn):
        return Cell(upstream.name, client.name, name, None)
    model = name + (client.suffix if scenario.tool else "")
    with trio.fail_after(_ANSWER_S):
        up.forget()
        direct = await driver.ask(scenario.question(up.url, model, client.mode))
        up.forget()
        through = await driver.ask(scenario.question(f"{url}/v1", model, client.mode))
        outcome = judge(direct, through, await tapes.new())
    return Cell(upstream.name, client.name, name, outcome)


async def _run(upstreams: Sequence[Upstream], clients: Sequence[Client], seconds: float) -> list[Cell]:
    cells: list[Cell] = []
    ends = trio.current_time() + seconds
    for upstream in upstreams:
        data = RUN / f"tapes-{upstream.name}"
        tapes = Tapes(data)
        async with upstream.start() as up, wiretape(data.name, data, "--upstream", up.url) as url:
            for client in clients:
                async with driving(client.name, client.command) as driver:
                    for name in upstream.scenarios:
                        if trio.current_time() > ends:
                            continue
                        cells.append(await _cell(upstream, client, name, up, url, tapes, driver))
                        _tell(cells[-1])
    return cells


def _tell(cell: Cell) -> None:
    outcome = cell.outcome
    say(f"{cell.upstream} | {cell.client} | {cell.scenario} | {outcome.verdict if outcome else '-'}")
    if outcome is not None and outcome.verdict != "same":
        say(f"  direct:  {said(outcome.direct)}\n  through: {said(outcome.through)}")
        say("\n".join(f"  {each}" for each in outcome.faults or outcome.explains))


def main() -> int:
    """Run one part; return the exit status. Only a whole run writes the document."""
    parser = argparse.ArgumentParser(prog="python -m tests.real", description=__doc__)
    parser.add_argument("--part", choices=["all", "ci"], default="all", help="ci: aimock, and no opencode")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="starts no question after this time")
    asked = parser.parse_args()
    upstreams = [each for each in UPSTREAMS if asked.part == "all" or each.name in _CI_UPSTREAMS]
    clients = [each for each in CLIENTS if asked.part == "all" or each.name in _CI_CLIENTS]
    if lack := missing(ci=asked.part == "ci"):
        sys.exit(f"not installed: {', '.join(lack)}; `make real-peers` installs it")
    shutil.rmtree(RUN, ignore_errors=True)
    RUN.mkdir(parents=True)
    cells = trio.run(_run, upstreams, clients, asked.seconds)
    say(summary(cells, sum(len(upstream.scenarios) for upstream in upstreams) * len(clients)))
    if asked.part == "all" and asked.seconds == float("inf"):
        PLACE.write_text(document(cells), encoding="utf-8")
    return (
        1 if not cells or any(cell.outcome is not None and cell.outcome.verdict == "differs" for cell in cells) else 0
    )


if __name__ == "__main__":
    sys.exit(main())
