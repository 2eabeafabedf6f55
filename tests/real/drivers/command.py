"""Run command-line clients to their end, or end them with all their children after a timeout."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

__all__ = ["RECORD", "Done", "endless", "run"]

_POLL_S: Final = 0.05

#: A command for agents whose tool is a shell: it writes down what it is run with.
RECORD: Final = """#!/bin/sh
printf '%s\\n' "$*" >> {record}
echo 18 degrees
"""


class Done(NamedTuple):
    """What it said; no status where it was ended."""

    status: int | None
    out: str
    err: str


def endless() -> dict[str, Any]:
    """The error of one that was ended."""
    return {"class": "no end", "status": None, "code": None, "message": "ended by us"}


def run(
    command: Sequence[str | Path], env: Mapping[str, str], asked: Mapping[str, Any], cwd: str | None = None
) -> Done:
    """Until its end, `timeout` seconds, or the file `stop`, with which the asker says that it has waited enough."""
    stop = Path(asked["stop"]) if asked["stop"] else None
    ends = time.monotonic() + asked["timeout"]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True
        )
        status: int | None = None
        while (status := process.poll()) is None and time.monotonic() < ends and not (stop and stop.exists()):
            time.sleep(_POLL_S)
        if status is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        err.seek(0)
        return Done(status, out.read().decode(errors="replace"), err.read().decode(errors="replace"))
