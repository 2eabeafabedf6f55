"""One of several workers: its number, its folder, its share of each budget, and its Unix socket for the others."""

import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from ..config.model import Config
from ..limits import ACCEPT_BACKLOG
from ..server.server import prepared

__all__ = ["COUNTED", "VARIABLE", "Worker", "control_path", "control_socket", "worker_from"]

#: The parent's word to a worker: its number and the descriptors of its sockets.
VARIABLE: Final = "WIRETAPE_WORKER"
#: The worker's end of the parent's line: it says when it is ready, and hears when the parent is gone.
_LINE: Final = 0
#: The file with what a worker had counted when it was asked last.
COUNTED: Final = "counted.json"


@dataclass(frozen=True, slots=True)
class Worker:
    """What a worker knows of itself. `root` is the data folder of all."""

    number: int
    count: int
    root: Path
    body_bytes_max: int
    sockets: tuple[socket.socket, ...] = ()

    @property
    def folders(self) -> list[Path]:
        """The data folders of all workers."""
        return [self.root / f"w{number}" for number in range(self.count)]

    def owner_of(self, run_id: str) -> int:
        """Return the worker of a run."""
        return int(run_id.removeprefix("run_"), 16) % self.count

    def ready(self, _: str) -> None:
        """Report to the parent that requests are served."""
        os.write(_LINE, b".")

    async def parent_died(self) -> None:
        """Return once it has."""
        await trio.lowlevel.wait_readable(_LINE)


def worker_from(given: str, config: Config) -> Worker | None:
    """Return the worker that the parent started this process as, None if it did not."""
    if not given:
        return None
    number, *descriptors = map(int, given.split())
    sockets = tuple(prepared(socket.socket(fileno=each)) for each in descriptors)
    return Worker(number, config.workers, config.data, config.body_bytes_max, sockets)


@contextmanager
def control_path(folder: Path) -> Generator[str]:
    """Provide a path of a worker's Unix socket that is short: an address has room for 107 bytes."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/control.sock"
    finally:
        os.close(fd)


def control_socket(folder: Path) -> socket.socket:
    """Return the listening Unix socket of a folder that this process holds; only its owner can connect."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with control_path(folder) as path:
        Path(path).unlink(missing_ok=True)  # of a worker that was killed
        sock.bind(path)
        os.chmod(path, 0o600)  # noqa: PTH101 - before it listens
    sock.listen(ACCEPT_BACKLOG)
    sock.setblocking(False)
    return sock
