"""Run cells: one provider, one Wiretape, and every client in parallel processes of its own; then read the tapes."""

import json
import shutil
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import trio

from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader
from wiretape.replay.playback.server import listening

from ..processes import RUN, Driver, driving, wiretape
from .script import DIRECT, Cell, Found, Provider, configuration

#: Drivers that run at a time: most of what they do is to wait.
_DRIVERS: Final = 8
#: A program that must stop does so within this time, and so does one that sends no request.
_GRACE_S: Final = 30.0

_ENDLESS: Final[dict[str, Any]] = {"class": "no end", "status": None, "code": None, "message": "ended by us"}


@dataclass(frozen=True, slots=True)
class Stage:
    """What the clients play on."""

    provider: Provider
    direct: str
    through: str
    tapes: Path

    def url(self, way: str) -> str:
        """Return the base URL of one way."""
        return self.direct if way == DIRECT else f"{self.through}/{way}/v1"


@asynccontextmanager
async def stage() -> AsyncGenerator[Stage]:
    """Run provider and Wiretape until the block ends."""
    folder = RUN / "matrix"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    provider = Provider()
    async with listening(provider) as (direct, _):
        settings = folder / "wiretape.toml"
        settings.write_text(configuration(direct), encoding="utf-8")
        async with wiretape("matrix-wiretape", folder / "tapes", "--config", settings) as through:
            yield Stage(provider, direct, through, folder / "tapes")


async def run(stage: Stage, asked: Iterable[Cell], told: Callable[[Found], None]) -> list[Found]:
    """Run every cell; return the results in the order of `asked`."""
    ordered = list(asked)
    found: dict[Cell, Found] = {}
    limit = trio.CapacityLimiter(_DRIVERS)
    async with trio.open_nursery() as nursery:
        for peer in sorted({cell.peer for cell in ordered}, key=lambda peer: (-peer.lanes, peer.name)):
            mine = [cell for cell in ordered if cell.peer == peer]
            for lane in range(peer.lanes):
                nursery.start_soon(_lane, stage, lane, mine[lane :: peer.lanes], limit, found, told)
    return [found[cell] for cell in ordered]


async def _lane(
    stage: Stage,
    lane: int,
    cells: Sequence[Cell],
    limit: trio.CapacityLimiter,
    found: dict[Cell, Found],
    told: Callable[[Found], None],
) -> None:
    rest = list(cells)
    while rest:
        client = rest[0].peer.client
        async with limit, driving(f"matrix-{client.name}-{lane}", client.command) as driver:
            while rest:
                cell = rest.pop(0)
                found[cell], alive = await _ask(stage, cell, driver)
                told(found[cell])
                if not alive:
                    break


async def _ask(stage: Stage, cell: Cell, driver: Driver) -> tuple[Found, bool]:
    """Run one cell; return its result, and whether its driver still runs."""
    folder = RUN / "matrix" / "cells" / str(cell.model.number)
    folder.mkdir(parents=True)
    result: dict[str, Any] = {"turns": [], "ran": [], "error": _ENDLESS}
    alive = False
    with trio.move_on_after(cell.peer.timeout_s + cell.patience_s + _GRACE_S) as scope:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_wait_enough, stage, cell, folder / "stop", scope)
            try:
                result = await driver.ask(cell.question(stage.url(cell.way), folder))
                alive = True
            except RuntimeError as ended:  # one client less must not end the run of all; it is a fault of this cell
                result = result | {"error": _ENDLESS | {"message": str(ended)}}
            nursery.cancel_scope.cancel()
    record = folder / "ran"
    ran = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    (folder / "found.json").write_text(json.dumps({"cell": [cell.peer.name, cell.way, cell.model.name], **result}))
    return Found(cell, result, ran, stage.provider.asked[cell.model.name]), alive


async def _wait_enough(stage: Stage, cell: Cell, stop: Path, scope: trio.CancelScope) -> None:
    """Wait from the first request on, so that a slow start is not taken for a stall."""
    await stage.provider.first(cell.model.name).wait()
    await trio.sleep(cell.patience_s)
    if cell.peer.program:
        await trio.Path(stop).touch()
    else:
        scope.cancel()


def taped(found: Sequence[Found], folder: Path) -> list[Found]:
    """Return each result with its streams, after Wiretape has stopped."""
    streams: defaultdict[str, list[bytes]] = defaultdict(list)
    for path in sorted(folder.rglob("*.tape"), key=lambda path: path.name):  # an id begins with its time
        records = Reader().feed(path.read_bytes())
        models = [record.keys.get("facts", {}).get("model", "") for record in records if record.kind == "request"]
        streams[models[-1] if models else ""].append(emit(records))
    return [each if each.cell.way == DIRECT else replace(each, streams=streams[each.cell.model.name]) for each in found]
