"""The recorders: how each is made to record one answer, and to give it back."""

import json
import subprocess
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import trio

from tests.replay.raw_client import Heard, ask, from_json

from ..places import CACHE, NODE_MODULES, WIRETAPE, environment
from ..processes import free_port, listens, server

__all__ = ["NOBODY", "PEERS", "Asker", "Peer"]

#: Asks with a body and a key.
Asker = Callable[[bytes, str], Awaitable[Heard]]
_Open = Callable[[int, Path], AbstractAsyncContextManager[Asker]]

_MITMDUMP: Final = CACHE / "mitmproxy/bin/mitmdump"
_VCR: Final = CACHE / "vcrpy/bin/python"
_VCR_CLIENT: Final = Path(__file__).with_name("vcr_client.py")
_AIMOCK: Final = NODE_MODULES / "@copilotkit/aimock/dist/cli.js"
_POLL_S: Final = 0.02
#: What it was asked on another port counts, what it does not know is refused.
_PLAYED: Final = ("--server-replay", "{flows}", *(part for name in (
    "server_replay_ignore_host", "server_replay_ignore_port", "server_replay_kill_extra"
) for part in ("--set", f"{name}=true")), "--set", "connection_strategy=lazy")  # fmt: skip
#: A replay has no upstream; requests to one fail.
NOBODY: Final = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One recorder, in one way of using it."""

    name: str
    package: str
    #: With the port of the upstream, and a folder of its own; what it wrote is there when it has ended.
    record: _Open
    #: A port without a listener.
    replay: _Open
    needs: Path


async def _asked(port: int, body: bytes, key: str) -> Heard:
    """Not as its first request: what has just started loads what it needs."""
    await trio.to_thread.run_sync(partial(ask, port, b"", "/v1/models", method="GET"))
    return await trio.to_thread.run_sync(partial(ask, port, body, key=key))


@asynccontextmanager
async def _wiretape_records(options: tuple[str, ...], upstream: int, folder: Path) -> AsyncGenerator[Asker]:
    """Its command is one that waits until we close its stdin."""
    port = free_port()
    command = [str(WIRETAPE), "record", "--upstream", f"http://127.0.0.1:{upstream}/v1", "--port", str(port)]
    command += ["-o", str(folder / "run.tape"), *options, "--", "cat"]
    scratch = folder / "tmp"
    scratch.mkdir()
    process = await trio.lowlevel.open_process(
        command, env=environment(TMPDIR=str(scratch)), cwd=folder, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    while not await listens(port):  # noqa: ASYNC110 - another process opens it
        await trio.sleep(_POLL_S)
    yield partial(_asked, port)
    assert process.stdin is not None
    await process.stdin.aclose()
    await process.wait()


@asynccontextmanager
async def _wiretape_replays(_: int, folder: Path) -> AsyncGenerator[Asker]:
    port = free_port()
    command: list[str | Path] = [WIRETAPE, "replay", folder / "run.tape", "--port", str(port), "--speed", "original"]
    async with server("comparison-wiretape", command, port, environment()):
        yield partial(_asked, port)


@asynccontextmanager
async def _aimock_records(upstream: int, folder: Path) -> AsyncGenerator[Asker]:
    port = free_port()
    command: list[str | Path] = ["node", _AIMOCK, "-p", str(port), "-f", folder, "--record"]
    command += ["--provider-openai", f"http://127.0.0.1:{upstream}"]
    async with server("comparison-aimock", command, port, environment()):
        yield partial(_asked, port)


@asynccontextmanager
async def _aimock_replays(_: int, folder: Path) -> AsyncGenerator[Asker]:
    port = free_port()
    command: list[str | Path] = ["node", _AIMOCK, "-p", str(port), "-f", _written(folder), "--strict"]
    async with server("comparison-aimock", command, port, environment()):
        yield partial(_asked, port)


def _written(folder: Path) -> Path:
    """Where aimock puts them is its own affair."""
    return next((path.parent for path in sorted(folder.rglob("*.json"))), folder)


@asynccontextmanager
async def _mitmproxy(options: tuple[str, ...], upstream: int, folder: Path) -> AsyncGenerator[Asker]:
    port = free_port()
    command: list[str | Path] = [_MITMDUMP, "-q", "--listen-host", "127.0.0.1", "-p", str(port)]
    command += ["--mode", f"reverse:http://127.0.0.1:{upstream}", "--set", f"confdir={folder / 'conf'}"]
    command += [option.format(flows=folder / "run.flows") for option in options]
    async with server("comparison-mitmproxy", command, port, environment()):
        yield partial(_asked, port)


async def _vcr_asks(mode: str, port: int, folder: Path, body: bytes, key: str) -> Heard:
    command = [str(_VCR), str(_VCR_CLIENT), mode, str(folder / "run.yaml"), str(port), key]
    done = await trio.run_process(command, stdin=body, env=environment(), capture_stdout=True, capture_stderr=True)
    return from_json(json.loads(done.stdout))


@asynccontextmanager
async def _vcr(mode: str, port: int, folder: Path) -> AsyncGenerator[Asker]:
    """The port is part of what it looks for."""
    await trio.lowlevel.checkpoint()
    if mode == "once":
        (folder / "port").write_text(str(port))
    was = int((folder / "port").read_text())
    yield partial(_vcr_asks, mode, was, folder)


@asynccontextmanager
async def _again(upstream: int, folder: Path) -> AsyncGenerator[Asker]:
    """What this machine makes of the same upstream, asked a second time."""
    await trio.lowlevel.checkpoint()
    if upstream != NOBODY:
        (folder / "port").write_text(str(upstream))
    yield partial(_asked, int((folder / "port").read_text()))


PEERS: Final = (
    Peer(
        name="Wiretape, `--exact`", package="wiretape", needs=WIRETAPE,
        record=partial(_wiretape_records, ("--exact",)), replay=_wiretape_replays,
    ),
    Peer(
        name="Wiretape", package="wiretape", needs=WIRETAPE,
        record=partial(_wiretape_records, ()), replay=_wiretape_replays,
    ),
    Peer(name="none: the upstream asked again", package="wiretape", needs=WIRETAPE, record=_again, replay=_again),
    Peer(name="aimock", package="@copilotkit/aimock (npm)", needs=_AIMOCK, record=_aimock_records,
         replay=_aimock_replays),
    Peer(name="VCR.py, httpx", package="vcrpy", needs=_VCR, record=partial(_vcr, "once"), replay=partial(_vcr, "none")),
    Peer(
        name="mitmproxy", package="mitmproxy", needs=_MITMDUMP,
        record=partial(_mitmproxy, ("-w", "{flows}")),
        replay=partial(_mitmproxy, _PLAYED),
    ),
    Peer(
        name="mitmproxy, streaming", package="mitmproxy", needs=_MITMDUMP,
        record=partial(_mitmproxy, ("-w", "{flows}", "--set", "stream_large_bodies=1")),
        replay=partial(_mitmproxy, _PLAYED),
    ),
)  # fmt: skip
