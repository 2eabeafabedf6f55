"""Processes of a run, and where everything lies: what `make test-real` installed, and what a run writes."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio

ROOT: Final = Path(__file__).parents[2]

#: Ignored by git. Without this folder llama-cpp-python is built again.
CACHE: Final = ROOT / ".cache/real"

#: Logs, tapes and homes of the last run.
RUN: Final = CACHE / "run"

NODE: Final = Path(__file__).parent / "node"
NODE_MODULES: Final = NODE / "node_modules"
OPENCODE: Final = NODE_MODULES / "opencode-linux-x64/bin/opencode"

#: One environment each, because they pin what the others pin otherwise.
PYTHONS: Final = {
    name: CACHE / name / "bin/python" for name in ("agents", "clients", "hermes", "litellm", "llama", "llama_index")
}

WIRETAPE: Final = Path(sys.executable).with_name("wiretape")


_NOWHERE: Final = {
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "https_proxy": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1,localhost",
    "no_proxy": "127.0.0.1,localhost",
}


def environment(**more: str) -> dict[str, str]:
    """Return an environment with the caller's PATH and nothing else: no key, no home. All requests stay on
    loopback; what some clients also fetch (new versions, lists of models) fails at this proxy address.
    """
    home = RUN / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1"} | _NOWHERE | more


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
    """Run a server until the block ends."""
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


@asynccontextmanager
async def wiretape(name: str, data: Path, *options: str | Path) -> AsyncGenerator[str]:
    """Run `wiretape serve` as people start it, until the block ends; yield its URL."""
    port = free_port()
    command: list[str | Path] = [WIRETAPE, "serve", "--port", str(port), "--data", data, *options]
    async with server(name, command, port, environment()):
        yield f"http://127.0.0.1:{port}"


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


@dataclass(frozen=True, slots=True)
class Driver:
    """A program that asks with a client: a line of JSON in, a line of JSON out."""

    name: str
    process: trio.Process

    async def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return its answer; raise RuntimeError if it ends instead."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        await self.process.stdin.send_all(json.dumps(question).encode() + b"\n")
        line = b""
        while not line.endswith(b"\n"):
            more = await self.process.stdout.receive_some()
            if not more:
                raise RuntimeError(f"{self.name} ended: {said(RUN / f'{self.name}.log')}")
            line += more
        answer: dict[str, Any] = json.loads(line)
        return answer


@asynccontextmanager
async def driving(name: str, command: Sequence[str | Path]) -> AsyncGenerator[Driver]:
    """Run a driver until the block ends; its log has its name."""
    name = "".join(letter if letter.isalnum() else "-" for letter in name)
    with (RUN / f"{name}.log").open("wb") as sink:
        process = await trio.lowlevel.open_process(
            [str(each) for each in command], cwd=ROOT, env=environment(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink,
        )  # fmt: skip
    try:
        yield Driver(name, process)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
