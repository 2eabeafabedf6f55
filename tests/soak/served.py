"""Wiretape as `serve` runs it, in a process that also says each second how many tasks live and how many streams run.

`python -m tests.soak.served UPSTREAM_PORT DATA`: the first line on stdout is the URL, each other one is JSON.
"""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal

import trio

from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.log import Log
from wiretape.proxy.serve import run

#: What happens to a stream after its client has left, by path.
ROUTES: Final[Mapping[str, Literal["cancel", "drain", "keep"]]] = {"": "cancel", "drain": "drain", "keep": "keep"}


def _config(upstream_port: int, data: Path) -> Config:
    """Return a configuration with deadlines that a minute can reach."""
    target = Target(name="soak", url=f"http://127.0.0.1:{upstream_port}/v1")
    routes = {
        name: Route(
            name=name, targets=(target,), on_client_gone=gone,
            first_byte_s=4, idle_s=4, keepalive_s=1, drain_s=3, keep_s=5,
        )
        for name, gone in ROUTES.items()
    }  # fmt: skip
    return Config(data=data, port=0, routes=MappingProxyType(routes))


async def _tell() -> None:
    while True:
        await trio.sleep(1)
        sys.stdout.write(json.dumps({"tasks": trio.lowlevel.current_statistics().tasks_living}) + "\n")
        sys.stdout.flush()


async def _main(upstream_port: int, data: Path) -> None:
    log = Log(sys.stderr.fileno(), level="error")

    def ready(url: str) -> None:
        sys.stdout.write(url + "\n")
        sys.stdout.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(_tell)
        await run(_config(upstream_port, data), log=log, on_ready=ready)
        nursery.cancel_scope.cancel()
    log.close()


if __name__ == "__main__":
    trio.run(_main, int(sys.argv[1]), Path(sys.argv[2]))
