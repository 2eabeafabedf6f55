"""Run command-line clients to their end, or end them with all their children after a timeout."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

_POLL_S: Final = 0.05

_RECORD: Final = """#!/bin/sh
printf '%s\\n' "$*" >> {record}
echo 18 degrees
"""


def write_record(folder: str, record: str) -> None:
    """Write a command for agents whose tool is a shell: it appends its arguments to the file `record`."""
    command = Path(folder) / "record"
    command.write_text(_RECORD.format(record=record), encoding="utf-8")
    command.chmod(0o755)


class Done(NamedTuple):
    """The output of a program; without a status it was stopped."""

    status: int | None
    out: str
    err: str


def failure(kind: str, message: str) -> dict[str, Any]:
    """Return an error."""
    return {"class": kind, "status": None, "code": None, "message": message}


def failed(done: Done, message: str = "") -> dict[str, Any] | None:
    """Return the error of a program that was stopped or failed."""
    if done.status is None:
        return failure("no end", "ended by us")
    return failure(f"exit status {done.status}", message or done.err.strip()) if done.status else None


def run(
    command: Sequence[str | Path], env: Mapping[str, str], asked: Mapping[str, Any], cwd: str | None = None
) -> Done:
    """Run until its end, for `timeout` seconds, or until the file `stop` exists."""
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
