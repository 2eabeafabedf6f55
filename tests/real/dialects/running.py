"""Run cells: one scripted upstream, one Wiretape with a route for each dialect, and one process for each user turn."""

import re
import shutil
import time
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from wiretape.events.tape.tape import Reader
from wiretape.replay.playback.server import listening

from ..processes import RUN, wiretape
from .agents import EDITED, Shown, Turn, prepare
from .provider import Plot, Provider
from .scenes import DIRECT, ROUTES, Cell, Found

_FOLDER: Final = RUN / "dialects"
#: Most of what agents do is to wait.
_AT_A_TIME: Final = 3
#: An agent that a cut lets loose would not end; through Wiretape each must.
_DIRECT_S: Final = 20.0
_NAMED: Final = re.compile(rb"\[script cell-(\d+) \d+\]")


@dataclass(frozen=True, slots=True)
class Stage:
    """What the agents play on."""

    provider: Provider
    plots: dict[str, Plot]
    direct: str
    through: str
    tapes: Path
    #: Outside of this repository, which some agents would read, and one copies.
    cells: Path

    def url(self, cell: Cell) -> str:
        """Return the base URL of a cell."""
        if cell.way == DIRECT:
            return f"{self.direct}/only/{cell.speaks}/v1"
        return f"{self.through}/{cell.way}/v1"


@asynccontextmanager
async def stage(extra: Mapping[str, str]) -> AsyncGenerator[Stage]:
    """Run upstream and Wiretape until the block ends; `extra` are more routes, with their upstream."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    plots: dict[str, Plot] = {}
    provider = Provider(plots)
    async with listening(provider) as (url, _):
        direct = url.removesuffix("/v1")
        settings = _FOLDER / "wiretape.toml"
        settings.write_text(configuration(direct, extra), encoding="utf-8")
        with TemporaryDirectory() as cells:
            async with wiretape("dialects-wiretape", _FOLDER / "tapes", "--config", settings) as through:
                yield Stage(provider, plots, direct, through, _FOLDER / "tapes", Path(cells))


def configuration(direct: str, extra: Mapping[str, str]) -> str:
    """Return a wiretape.toml."""
    lines = [f'upstream = "{direct}/only/all/v1"', "keepalive_s = 5"]
    for name, (speaks, settings) in ROUTES.items():
        lines += ["", f"[routes.{name}]", f'upstream = "{direct}/only/{speaks}/v1"']
        lines += [f'{key} = "{value}"' for key, value in settings.items()]
    for name, upstream in extra.items():
        lines += ["", f"[routes.{name}]", f'upstream = "{upstream}"']
    return "\n".join(lines) + "\n"


async def run(stage: Stage, cells: Sequence[Cell], told: Callable[[Found], None]) -> None:
    """Run every cell, a few at a time."""
    limit = trio.CapacityLimiter(_AT_A_TIME)

    async def one(cell: Cell) -> None:
        async with limit:
            told(await _ask(stage, cell))

    async with trio.open_nursery() as nursery:
        for cell in cells:
            nursery.start_soon(one, cell)


async def _ask(stage: Stage, cell: Cell) -> Found:
    agent, scene = cell.agent, cell.scene
    folder = stage.cells / str(cell.number)
    plot = stage.plots[cell.plot_name] = scene.plot(agent, folder)
    turn = Turn(stage.url(cell), scene.model, cell.prompt, folder, plot.calls, scene.more or {})
    prepare(turn)
    command = agent.start(turn)
    seconds = _DIRECT_S if cell.way == DIRECT and plot.ending else agent.timeout_s
    argv = ["timeout", "-k", "1", "--signal=KILL", str(seconds), *map(str, command.argv)]
    began, since = time.monotonic(), time.time()
    done = await trio.run_process(
        argv,
        stdin=command.stdin.encode(),
        capture_stdout=True,
        capture_stderr=True,
        env=dict(command.env),
        cwd=folder,
        check=False,
    )
    (_FOLDER / f"{cell.number}.out").write_bytes(done.stdout)
    (_FOLDER / f"{cell.number}.err").write_bytes(done.stderr)
    endless = done.returncode in (-9, 124, 137)
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    shown = Shown("", "it was stopped") if endless else agent.shown(out, err, done.returncode)
    record = folder / "ran"
    ran = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
    edited = (folder / EDITED).read_text(encoding="utf-8")
    asked = stage.provider.asked[cell.number]
    requests = len(asked) if cell.way == DIRECT else _requests(stage.tapes, cell.number, since)
    return Found(cell, shown, ran, asked, requests, edited, endless, time.monotonic() - began)


def _requests(tapes: Path, number: int, since: float) -> int:
    """Return how many requests of a cell Wiretape got; its tapes are not older than its start."""
    # A tape that moves to its day while the folders are read may be in neither of them.
    return max(_counted(tapes, number, since) for _ in range(2))


def _counted(tapes: Path, number: int, since: float) -> int:
    counted = 0
    for path in tapes.rglob("*.tape"):
        with suppress(FileNotFoundError):
            if path.stat().st_mtime >= since:
                records = Reader().feed(path.read_bytes())
                asked = b"".join(record.raw or b"" for record in records if record.kind == "request")
                counted += _NAMED.findall(asked)[-1:] == [b"%d" % number]
    return counted
