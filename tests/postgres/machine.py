"""A machine: one real `wiretape serve --store` with a data folder and a port of its own."""

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import trio

from tests.house.tree import ROOT
from tests.laws.checker import Transcript, transcript_of
from tests.postgres.cluster import Database, below, free_port
from tests.support.house import ASKED, post

__all__ = ["Machine", "exchange"]


class Machine:
    """One proxy. What it logs is in `log`."""

    def __init__(
        self,
        name: str,
        folder: Path,
        database: Database,
        upstream_port: int,
        *options: str,
        store: str = "",
        program: Sequence[str] = ("-m", "wiretape"),
        password_file: Path | None = None,
    ) -> None:
        """`store` replaces the database's address, and `program` the command by a test's variant."""
        self.name = name
        self.data = folder / name
        self.port = free_port()
        self.environment = database.environment | {"HOME": str(folder), "PYTHONFAULTHANDLER": "1"}
        if password_file is not None:
            del self.environment["PGPASSWORD"]
            self.environment["PGPASSFILE"] = str(password_file)
        self._log = folder / f"{name}.log"
        self._before = 0
        self._command = [
            *("setpriv", "--pdeathsig=KILL", sys.executable, *program, "serve", "--port", str(self.port)),
            *("--upstream", f"http://127.0.0.1:{upstream_port}/v1", "--data", str(self.data)),
            *("--store", store or database.url, "--instance", name),
        ]
        self.options = options
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> str:
        """What it reported, in all its lives."""
        return self._log.read_text()

    # -- its life -----------------------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start it without waiting. From the main thread: it dies with the thread that started it."""
        assert self.process is None, f"{self.name} is running"
        with self._log.open("ab") as log:
            self._before = log.tell()
            self.process = subprocess.Popen(
                [*self._command, *self.options],
                cwd=ROOT,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    async def ready(self) -> None:
        """Return once it has announced its address, which is when all workers serve. Raise AssertionError if not."""
        with trio.move_on_after(60):
            while b"OPENAI_BASE_URL" not in self._log.read_bytes()[self._before :]:
                assert self.process is not None
                assert self.process.poll() is None, f"{self.name} has ended: {self.log[-2_000:]}"
                await trio.sleep(0.02)
            return
        self._signal(signal.SIGABRT)  # it says where it is
        raise AssertionError(f"{self.name} does not answer: {self.log[-8_000:]}")

    async def start(self) -> None:
        """Start it."""
        self.spawn()
        await self.ready()

    def kill(self) -> None:
        """Kill all its processes; nothing in them can prevent that."""
        if self.process is not None:
            self.process.send_signal(signal.SIGSTOP)  # it starts no other worker meanwhile
            self._signal(signal.SIGKILL)
            self.process.wait()
            self.process = None

    def pause(self) -> None:
        """Stop all its processes where they are; connections stay open."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._signal(signal.SIGCONT)

    async def stop(self) -> None:
        """End it as an operator does."""
        self.resume()
        if self.process is not None:
            self.process.terminate()
            with trio.fail_after(60):
                await trio.to_thread.run_sync(self.process.wait)
            self.process = None

    @property
    def workers(self) -> list[int]:
        """The processes of `serve --workers`."""
        return [] if self.process is None else below(self.process.pid)

    def _signal(self, which: signal.Signals) -> None:
        if self.process is not None:
            workers = self.workers
            self.process.send_signal(which)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, which)

    # -- its clients --------------------------------------------------------------------------------------------------

    async def ask(self, got: bytearray, *headers: str, body: Any = ASKED) -> None:
        """Send one chat request; `got` receives every byte that comes, until the answer is whole or the proxy ends."""
        await exchange(self.port, post(body, *headers, path="/v1/chat/completions"), got)

    async def get(self, path: str, *headers: str, got: bytearray | None = None) -> Transcript | None:
        """Return what it answers; None if it has no head."""
        got = bytearray() if got is None else got
        await exchange(self.port, post(b"", *headers, path=path, method="GET"), got)
        return transcript_of(bytes(got))


async def exchange(port: int, request: bytes, got: bytearray) -> None:
    """Send a request on a connection of its own and keep what comes until its response is whole or cut."""
    with suppress(OSError, trio.BrokenResourceError):
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(request)
            while not _whole(got):
                data = await stream.receive_some()
                if not data:
                    return
                got += data


def _whole(got: bytearray) -> bool:
    head, mark, rest = got.partition(b"\r\n\r\n")
    if not mark:
        return False
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(rest) >= int(line.partition(b":")[2])
    return got.endswith(b"\r\n0\r\n\r\n")
