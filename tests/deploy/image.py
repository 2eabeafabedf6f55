"""Build the image's folders with the commands of deploy/Dockerfile, and run its command line as a container would.

The build runs in a root folder that shares system and interpreter with this machine; the program runs in the same one
under the conditions of deploy/compose.yaml: read-only except for one folder, as the Dockerfile's user, without home,
capabilities or new privileges, as process 1. It needs root, and leave to mount.
"""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio

from tests.failures.child import answered, endless
from tests.house.tree import ROOT
from tests.proxy.scripted import listening
from tests.support.house import ASKED, post

_DOCKERFILE: Final = ROOT / "deploy/Dockerfile"
_KEY: Final = "k" * 40
_DRAIN_S: Final = 2
#: What a stop may take beyond the drain: flush, the last ending, the interpreter's own end.
_AFTER_S: Final = 5
_SYSTEM: Final = ("bin", "dev", "etc", "lib", "lib64", "sbin", "usr", sys.base_prefix.lstrip("/"))

#: Makes a folder the root of a command: the system's folders are bound read-only, with `run` all else is too but /data.
_ENTER: Final = """
root=$1 how=$2 system=$3; shift 3
mount --bind "$root" "$root"
for place in $system; do
    if [ -L "/$place" ]; then ln -sfn "$(readlink "/$place")" "$root/$place"; continue; fi
    [ -d "/$place" ] || continue
    mkdir -p "$root/$place" && mount --bind "/$place" "$root/$place" && mount -o remount,bind,ro "$root/$place"
done
mkdir -p "$root/proc" && mount -t proc proc "$root/proc"
if [ "$how" = run ]; then mount --bind "$root/data" "$root/data" && mount -o remount,bind,ro "$root"; fi
exec chroot "$root" "$@"
"""

#: Prints the conditions under which it runs.
_CONDITIONS: Final = """
import json, os
status = dict(line.split(":\\t", 1) for line in open("/proc/self/status") if ":\\t" in line)
print(json.dumps({
    "uid": os.getuid(), "gid": os.getgid(), "process": os.getpid(), "home": os.environ.get("HOME"),
    "capabilities": {status[name].strip() for name in ("CapEff", "CapPrm", "CapBnd", "CapInh")} == {"0" * 16},
    "new privileges": status["NoNewPrivs"].strip() == "0",
    "writable": [at for at, _, _ in os.walk("/") if not at.startswith(("/proc", "/sys")) and os.access(at, os.W_OK)],
}))
"""


def instructions() -> list[tuple[str, str]]:
    """Return the Dockerfile's instructions, each on one line."""
    lines = [line for line in _DOCKERFILE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    whole = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in whole.splitlines() if line)]


def build(root: Path) -> None:
    """Run the first stage: its COPY and its RUN."""
    stage = instructions()[: instructions().index(("FROM", "${PYTHON}"))]
    (copied,) = (rest.split() for word, rest in stage if word == "COPY")
    (command,) = (rest for word, rest in stage if word == "RUN")
    for place in ("tmp", "root", "data"):
        (root / place).mkdir(parents=True)
    for pattern in copied[:-1]:
        for path in ROOT.glob(pattern):
            shutil.copy(path, root / copied[-1].strip("/"))
    environment = {
        name: value for name, value in os.environ.items() if name.startswith(("PIP_", "http", "HTTP", "no_"))
    }
    _, _, command = command.partition(" ")  # the cache mount
    environment |= {"HOME": "/root", "PATH": f"{sys.base_prefix}/bin:/usr/bin:/bin", "PIP_QUIET": "2"}
    subprocess.run(entering(root, "build", ["env", "-i", *pairs(environment), "sh", "-euc", command]), check=True)
    shutil.rmtree(root / "tmp")


def pairs(environment: Mapping[str, str]) -> list[str]:
    """Return NAME=value for each variable."""
    return [f"{name}={value}" for name, value in environment.items()]


def entering(root: Path, how: str, command: list[str]) -> list[str]:
    """Return the command with a folder as its root, in process and mount namespaces of its own."""
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return [*unshare, "sh", "-euc", _ENTER, "enter", str(root), how, " ".join(_SYSTEM), *command]


def container(root: Path, command: list[str], environment: Mapping[str, str]) -> list[str]:
    """Return a command under the conditions of the image: its last stage's variables, user and folder."""
    stage = instructions()[instructions().index(("FROM", "${PYTHON}")) :]
    last = dict(stage)
    user, _, group = last["USER"].partition(":")
    limits = ["--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
    variables = [*last["ENV"].split(), *pairs(environment), "PATH=/usr/local/bin:/usr/bin:/bin"]
    start = ["setpriv", f"--reuid={user}", f"--regid={group}", *limits, "env", "-i", f"--chdir={last['WORKDIR']}"]
    return entering(root, "run", [*start, *variables, *command])


def said(command: list[str]) -> Any:
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout)


def health(root: Path, environment: Mapping[str, str]) -> int:
    """Run the image's HEALTHCHECK."""
    command = json.loads(dict(instructions())["HEALTHCHECK"].partition("CMD ")[2])
    return subprocess.run(
        container(root, command, environment), check=False, capture_output=True, timeout=30
    ).returncode


def inner_of(unshare: int) -> int:
    """Return the process that is number 1 in its own namespace."""
    return int(Path(f"/proc/{unshare}/task/{unshare}/children").read_text(encoding="ascii"))


async def serve(root: Path) -> str:
    """Start the image's command line, ask for a stream that never ends, and stop it: return what was seen."""
    own = dict(instructions())
    command = [*json.loads(own["ENTRYPOINT"]), *json.loads(own["CMD"])]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    async with listening(endless()) as (upstream, _):
        environment = {
            "WIRETAPE_PORT": str(port),
            "WIRETAPE_KEY": _KEY,
            "WIRETAPE_UPSTREAM": f"http://127.0.0.1:{upstream}/v1",
            "WIRETAPE_SHUTDOWN_DRAIN_S": str(_DRAIN_S),
        }
        assert health(root, environment) == 1, "healthy before it runs"
        process = await trio.lowlevel.open_process(container(root, command, environment), stdout=subprocess.PIPE)
        try:
            assert process.stdout is not None
            with trio.fail_after(30):
                announced = bytes(await process.stdout.receive_some())
                assert announced.startswith(b"http://127.0.0.1:%d/v1" % port), announced
                assert await trio.to_thread.run_sync(health, root, environment) == 0
                client = await trio.open_tcp_stream("127.0.0.1", port)
                await client.send_all(post(ASKED, f"Authorization: Bearer {_KEY}"))
                assert b"200" in await client.receive_some()
                os.kill(inner_of(process.pid), signal.SIGTERM)
                began = trio.current_time()
                rest = await answered(client)
                code = await process.wait()
            took_s = trio.current_time() - began
        finally:
            if process.returncode is None:
                process.kill()
    assert b'"error"' in rest, "the client was not told that its stream was cut"
    assert (code, took_s < _DRAIN_S + _AFTER_S) == (0, True), (code, took_s)
    (row,) = said(container(root, [*command[:1], "ls", "--json"], {}))
    assert row["ending"] == "shutdown", row
    return f"exit 0 {took_s:.1f} s after SIGTERM, with a drain of {_DRAIN_S} s and a stream that never ends"


def check(folder: Path) -> str:
    """Build and run; return what was seen. Raise PermissionError where this process may not mount."""
    if subprocess.run(
        ["unshare", "--mount", "--pid", "--fork", "mount", "-t", "tmpfs", "none", "/mnt"],
        check=False,
        capture_output=True,
    ).returncode:
        raise PermissionError
    root = folder / "root"
    build(root)
    found = said(container(root, ["/opt/wiretape/bin/python", "-c", _CONDITIONS], {}))
    assert found == {
        "uid": 65532,
        "gid": 65532,
        "process": 1,
        "home": None,
        "capabilities": True,
        "new privileges": False,
        "writable": ["/data"],
    }, found
    return f"uid 65532, process 1, no home, no capabilities, only /data writable: {trio.run(serve, root)}"
