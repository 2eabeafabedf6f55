"""The whole proxy as a process of its own, to be killed, and asked what it holds

    python -m tests.proxy.serve_child URL DATA [buffered]

It says one line of JSON when it listens, and one whenever something comes on its standard input. `buffered` is the
negative control of the kills: tapes are written through a buffer, so that what was delivered need not be on them. Such
a store exists in here only.
"""

import json
import os
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import trio

from wiretape.proxy.config.model import Config, Route, Target
from wiretape.proxy.serve import Running, running
from wiretape.proxy.store.tape_file import TapeFile

_BUFFER_BYTES: Final = 8 * 1024


class Silent:
    """A log without readers; it counts errors."""

    def __init__(self) -> None:
        self.failed: list[str] = []

    def info(self, event: str, /, **fields: object) -> None:
        del event, fields

    def warn(self, event: str, /, **fields: object) -> None:
        if event != "recovered":
            self.failed.append(f"{event} {fields}")

    def error(self, event: str, /, **fields: object) -> None:
        self.failed.append(f"{event} {fields}")

    def ended(self, ended: object) -> None:
        del ended

    @property
    def dropped(self) -> int:
        """Lines that were not written."""
        return 0


def buffered() -> None:
    """Every tape keeps its last bytes to itself, as Python's own files do."""
    write = TapeFile.write
    kept: dict[TapeFile, bytearray] = defaultdict(bytearray)

    def late(self: TapeFile, data: bytes) -> Any:
        kept[self] += data
        if len(kept[self]) >= _BUFFER_BYTES or b'"k":"end"' in data:
            write(self, bytes(kept.pop(self)))

    setattr(TapeFile, "write", late)  # noqa: B010 - a type checker may not see it


def say(value: object) -> None:
    """Write a line whole or not at all."""
    os.write(1, json.dumps(value).encode() + b"\n")


def held(home: Running, log: Silent) -> dict[str, Any]:
    """What the process has now."""
    assembly = home.assembly
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "tasks": trio.lowlevel.current_statistics().tasks_living,
        "idle": len(assembly.services.transport.pool),
        "streams": len(assembly.registry.live),
        "charged": assembly.services.memory.held_bytes,
        "failed": log.failed,
    }


async def main(upstream: str, data: Path) -> None:
    """Until its standard input ends."""
    target = Target(name="upstream", url=upstream)
    route = Route(name="", targets=(target,), keepalive_s=0.2)
    config = Config(data=data, port=0, routes={"": route}, streams_max=10_000)
    log = Silent()
    began = time.perf_counter()
    async with running(config, log=log) as home, trio.lowlevel.FdStream(os.dup(0)) as asked:
        torn = [tape.torn for tape in getattr(home.assembly.services.store, "recovered", ())]
        say({"url": home.url, "ready_s": time.perf_counter() - began, "torn": torn})
        while await asked.receive_some():
            say(held(home, log))


if __name__ == "__main__":
    if "buffered" in sys.argv[3:]:
        buffered()
    trio.run(main, sys.argv[1], Path(sys.argv[2]))
