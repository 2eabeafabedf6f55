"""Kills of proxies and of the database server at random moments under load: nothing is lost, doubled or ended twice.

    python -m tests.postgres.kills --times 1000 --seed 1      # figures; 1 if anything is wrong
    python -m tests.postgres.kills --times 30 --unfenced      # the negative control, which must find something

Three real proxies share one real server. Clients and followers keep every byte that they get. While they read, proxies
are killed and paused, the server is killed, stopped and paused, its backends are killed and their statements cancelled.
Then everything runs again, and each stream is compared on every machine with what clients got.
"""

import argparse
import random
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.postgres.chaos import World, upstream
from tests.postgres.cluster import Database, temporary_cluster
from tests.postgres.conftest import migrate
from tests.postgres.judge import Judge
from tests.proxy.scripted import listening

#: Of one round; then everything is judged.
_KILLS: Final = 25
#: Of the faults of a round.
_SHOWN: Final = 10


async def killed(
    times: int,
    database: Database,
    folder: Path,
    seed: int,
    *program: str,
    report: Callable[[str], None] = lambda _: None,
) -> tuple[World, Judge]:
    """Run rounds until so many processes were killed. `program` is instead of `wiretape`."""
    async with listening(partial(upstream, random.Random(seed))) as (port, _):  # noqa: S311 - a seed, to repeat a failure
        world = World(database, folder, port, seed, program or ("-m", "wiretape"))
        judge = Judge(world)
        try:
            await world.start()
            while world.kills < times:
                began = time.monotonic()
                await world.round(min(_KILLS, times - world.kills))
                ran_s = time.monotonic() - began
                known = len(judge.wrong)
                await judge.round()
                judged_s = time.monotonic() - began - ran_s
                at = f"{world.kills} kills, {judge.streams} streams, {len(judge.wrong)} faults"
                report(f"{at} (a round of {ran_s:.0f} s, judged in {judged_s:.0f} s)")
                for line in judge.wrong[known : known + _SHOWN]:
                    report(f"    {line}")
        finally:
            with trio.CancelScope(shield=True):
                await world.stop()
    return world, judge


def _report(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Print figures."""
    asked = argparse.ArgumentParser(prog="python -m tests.postgres.kills")
    asked.add_argument("--times", type=int, default=30)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--unfenced", action="store_true")
    given = asked.parse_args()
    began = time.monotonic()
    program = ("-m", "tests.postgres.unfenced") if given.unfenced else ()
    with tempfile.TemporaryDirectory(prefix="wiretape-kills-") as folder, temporary_cluster(fsync=True) as cluster:
        database = cluster.create("kills")
        migrate(database)
        run = partial(killed, given.times, database, Path(folder), given.seed, *program, report=_report)
        world, judge = trio.run(run)
    lines = [
        f"{world.kills} kills in {time.monotonic() - began:.0f} s: "
        + ", ".join(f"{times} x {what}" for what, times in sorted(world.done.items())),
        f"{judge.streams} streams on 3 machines, {judge.ended_elsewhere} of them ended by another machine",
        f"{judge.frames} frames of clients and {judge.events} events of followers compared: {len(judge.wrong)} faults",
    ]
    for line in lines:
        _report(line)
    return 1 if judge.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
