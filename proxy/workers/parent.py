"""The parent of all workers: it binds their sockets and keeps them, starts, restarts and signals, and nothing else.

It keeps the sockets so that the next process gets the connections that wait in a dead worker's queue. The kernel
shares new ones out among the sockets (SO_REUSEPORT), which only Linux does evenly.
"""

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress

import trio

from ..config.model import Config
from ..config.urls import address_of
from ..limits import RESTART_FIRST_S, RESTART_MOST_S
from ..log import Log
from ..server.server import listening_together
from ..server.systemd import notify
from .worker import VARIABLE

__all__ = ["Parent"]


class Parent:
    """Runs the workers of one command line."""

    def __init__(self, config: Config, log: Log, on_ready: Callable[[str], None]) -> None:
        """`on_ready` is called with the address once all workers serve."""
        self._config = config
        self._log = log
        self._on_ready = on_ready
        self._children: dict[int, trio.Process] = {}
        self._stop = trio.Event()
        #: How a worker ended that never served: nothing is started by halves.
        self._failed: int | None = None
        self._ready = {number: trio.Event() for number in range(config.workers)}

    async def run(self) -> int:
        """Serve until SIGTERM or SIGINT and the end of all workers; return the exit code."""
        each = listening_together(self._config.host, self._config.port, self._config.workers)
        self._config.data.mkdir(mode=0o700, parents=True, exist_ok=True)
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._pass_on, signals)
                async with trio.open_nursery() as workers:
                    for number, sockets in enumerate(each):
                        workers.start_soon(self._keep, number, sockets)
                        if number == 0:  # alone, so that what stops all of them is reported once
                            await self._ready[0].wait()
                    for ready in self._ready.values():
                        await ready.wait()
                    if not self._stop.is_set():
                        self._on_ready(address_of(self._config.host, each[0][0].getsockname()[1]))
                        notify("READY=1")
                nursery.cancel_scope.cancel()
        return self._failed or 0

    async def _pass_on(self, signals: AsyncIterator[int]) -> None:
        async for number in signals:
            self._end(number)

    def _end(self, number: int) -> None:
        """Send a signal to all workers, which start no more after it."""
        if not self._stop.is_set():
            notify("STOPPING=1")
        self._stop.set()
        for child in self._children.values():
            child.send_signal(number)

    async def _keep(self, number: int, sockets: Sequence[socket.socket]) -> None:
        """Start a worker, and again each time that it ends."""
        wait_s = 0.0
        while not self._stop.is_set():
            began = trio.current_time()
            code = 3
            with suppress(OSError):  # no process can be started now
                code = await self._run(number, [sock.fileno() for sock in sockets])
            if self._stop.is_set():
                break
            if code > 0 and not self._ready[number].is_set():
                self._failed = code
                self._end(signal.SIGTERM)
                break
            lasted = trio.current_time() > began + RESTART_MOST_S
            wait_s = RESTART_FIRST_S if lasted or not wait_s else min(2 * wait_s, RESTART_MOST_S)
            self._log.error("worker_ended", worker=number, code=code, again_in_s=wait_s)
            with trio.move_on_after(wait_s):
                await self._stop.wait()
        self._ready[number].set()
        for sock in sockets:
            sock.close()

    async def _run(self, number: int, descriptors: Sequence[int]) -> int:
        """Run a worker once; return its exit code, the negative number of a signal that killed it."""
        given = " ".join(map(str, (number, *descriptors)))
        ours, theirs = trio.socket.socketpair()
        with ours:
            with theirs:
                process = self._children[number] = await trio.lowlevel.open_process(
                    [sys.executable, *sys.orig_argv[1:]],
                    stdin=theirs.fileno(),
                    env={**os.environ, "NOTIFY_SOCKET": "", VARIABLE: given},  # the parent alone notifies
                    pass_fds=descriptors,
                    process_group=0,  # Ctrl-C is for the parent, which passes it on
                )
            if self._stop.is_set():
                process.terminate()
            if await ours.recv(1):
                self._ready[number].set()
            code = await process.wait()
            del self._children[number]
            return code
