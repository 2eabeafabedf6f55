"""Processes of one run: started, known to be ready by their port, and stopped; and those that answer line for line."""

import json
import socket
import subprocess
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Self

import trio

from .places import ROOT, RUN

__all__ = ["LineProcess", "free_port", "listens", "said", "server"]

_POLL_S: Final = 0.05
#: LiteLLM imports for 20 s on a busy machine.
_READY_S: Final = 120.0
_STOP_S: Final = 10.0


def free_port() -> int:
    """Return a free port; nothing else takes random ports on loopback during a run."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def server(
    name: str, command: Sequence[str | Path], port: int, env: dict[str, str]
) -> AsyncGenerator[trio.Process]:
    """Listens until the block ends."""
    log = RUN / f"{name}.log"
    with log.open("wb") as sink:
        process = await trio.lowlevel.open_process(
            [str(each) for each in command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
    try:
        with trio.fail_after(_READY_S):
            while not await listens(port):
                if process.poll() is not None:
                    raise RuntimeError(f"{name} stopped before it listened:\n{said(log)}")
                await trio.sleep(_POLL_S)
        yield process
    finally:
        with trio.move_on_after(_STOP_S, shield=True):
            process.terminate()
            await process.wait()
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()


async def listens(port: int) -> bool:
    """Return whether a server accepts connections there."""
    try:
        stream = await trio.open_tcp_stream("127.0.0.1", port)
    except OSError:
        return False
    await stream.aclose()
    return True


def said(log: Path) -> str:
    """Return the end of the log for a person."""
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


class LineProcess:
    """A driver: a line of JSON in, a line of JSON out."""

    def __init__(self, name: str, command: Sequence[str | Path], env: dict[str, str]) -> None:
        self._name = name
        self._command = [str(each) for each in command]
        self._env = env
        self._process: trio.Process | None = None
        self._rest = bytearray()

    async def __aenter__(self) -> Self:
        with (RUN / f"{self._name}.log").open("wb") as sink:
            self._process = await trio.lowlevel.open_process(
                self._command, cwd=ROOT, env=self._env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink
            )
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._process is not None
        self._process.kill()
        with trio.CancelScope(shield=True):
            await self._process.wait()

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Its answer. Raises RuntimeError when it ends instead."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        await process.stdin.send_all(json.dumps(question).encode() + b"\n")
        while b"\n" not in self._rest:
            more = await process.stdout.receive_some()
            if not more:
                raise RuntimeError(f"{self._name} ended: {said(RUN / f'{self._name}.log')}")
            self._rest += more
        line, _, rest = bytes(self._rest).partition(b"\n")
        self._rest = bytearray(rest)
        answer: dict[str, Any] = json.loads(line)
        return answer
