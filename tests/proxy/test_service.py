"""`wiretape serve` as a service: sockets from systemd, its state for systemd, and `wiretape health`."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.failures.child import COMMAND, serving
from tests.support.house import Peer
from wiretape.proxy.cli.health import quick_address
from wiretape.proxy.server.server import BindError
from wiretape.proxy.server.systemd import inherited

#: Starts a command as systemd does for a socket unit: with a listening socket as descriptor 3.
ACTIVATED: Final = """
import os, socket, sys
kind, host = sys.argv[1:3]
listening = socket.socket(getattr(socket, kind))
listening.bind((host, 0) if kind == "AF_INET" else host)
listening.listen()
os.dup2(listening.fileno(), 3)
os.set_inheritable(3, True)
os.environ |= {"LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
os.execv(sys.argv[3], sys.argv[3:])
"""


def activated(kind: str, host: str) -> list[str]:
    return [sys.executable, "-c", ACTIVATED, kind, host]


async def run(command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(30):
        return await trio.run_process(command, capture_stdout=True, capture_stderr=True, check=False)


@pytest.mark.slow
async def test_service_takes_its_socket_from_systemd_and_reports_its_state(tmp_path: Path) -> None:
    with trio.socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        await manager.bind(str(tmp_path / "notify"))
        environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
        before = activated("AF_INET", "127.0.0.1")
        async with serving(tmp_path / "data", Peer(), environment, before=before) as child:
            health = [*COMMAND, "health", "--ready"]
            with trio.fail_after(10):
                assert await manager.recv(100) == b"READY=1"
            assert (await run([*health, "--port", str(child.port)])).returncode == 0
            child.signal(signal.SIGTERM)
            with trio.fail_after(10):
                assert await manager.recv(100) == b"STOPPING=1"
            assert (await child.exited(10))[0] == 0
            said = await run(["env", f"WIRETAPE_PORT={child.port}", *health])
    assert (said.returncode, said.stderr.count(b"\n")) == (1, 1)
    assert said.stderr.startswith(b"wiretape: no answer from 127.0.0.1 port %d: " % child.port)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "host", "code", "why"),
    [
        ("AF_INET", "0.0.0.0", 2, b"callers on other machines need a Wiretape key"),  # noqa: S104 - refused
        ("AF_UNIX", "socket", 3, b"may only listen on TCP ports"),
    ],
)
async def test_service_refuses_sockets_that_it_would_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, host: str, code: int, why: bytes
) -> None:
    monkeypatch.chdir(tmp_path)
    said = await run([*activated(kind, host), *COMMAND, "serve", "--upstream", "http://127.0.0.1:1/v1"])
    assert (said.returncode, why in said.stderr) == (code, True), said.stderr


def test_number_of_sockets_must_be_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LISTEN_PID", str(os.getpid()))
    monkeypatch.setenv("LISTEN_FDS", "junk")
    with pytest.raises(BindError, match="LISTEN_FDS must be"):
        inherited()


@pytest.mark.parametrize(
    ("arguments", "environ", "address"),
    [
        ([], {}, ("127.0.0.1", 8787)),
        (["--ready"], {"WIRETAPE_HOST": "::", "WIRETAPE_PORT": "9000"}, ("::", 9000)),
        (["--port", "9000"], {}, None),
        (["--help"], {}, None),
        ([], {"WIRETAPE_CONFIG": "other.toml"}, None),
        ([], {"WIRETAPE_PORT": "tcp://10.0.0.1:8787"}, None),  # by Kubernetes, for a service of this name
    ],
)
def test_health_reads_the_configuration_only_where_it_must(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environ: Mapping[str, str],
    address: tuple[str, int] | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert quick_address(arguments, environ) == address
    (tmp_path / "wiretape.toml").touch()
    assert quick_address(arguments, environ) is None
