"""The processes of a benchmark, and the yardstick's work: its four cases and our two, each one run of load.py."""

import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final, NamedTuple, cast

ROOT: Final = Path(__file__).parents[2]
#: Environments that the Makefile creates.
CACHE: Final = ROOT / ".cache/bench"
_YARDSTICK: Final = Path(__file__).parent / "yardstick"
#: With the dependencies of upstream.py and load.py.
_RELAY_PYTHON: Final = str(CACHE / "relay/bin/python")

#: relay.py and litellm.yaml name it.
UPSTREAM_PORT: Final = 9100
_QUIET_PORT: Final = 9101

#: LiteLLM imports for ten seconds on a quiet machine.
_START_TIMEOUT_S: Final = 120.0
_STOP_TIMEOUT_S: Final = 40.0


class Party(NamedTuple):
    """A running process that answers on a port."""

    name: str
    port: int
    pid: int


def upstream() -> AbstractContextManager[Party]:
    """Run the yardstick's upstream."""
    command = [_RELAY_PYTHON, str(_YARDSTICK / "upstream.py"), str(UPSTREAM_PORT)]
    return running("direct", UPSTREAM_PORT, command)


def quiet_upstream() -> AbstractContextManager[Party]:
    """Run an upstream that sends one frame per stream and then nothing."""
    command = [sys.executable, "-m", "tests.bench.proxy_idle", str(_QUIET_PORT)]
    return running("quiet upstream", _QUIET_PORT, command, {"PYTHONPATH": str(ROOT)})


def started(
    name: str, data: Path, *, to: int = UPSTREAM_PORT, source: Path | None = None, **settings: object
) -> AbstractContextManager[Party]:
    """Run one proxy in front of the upstream at `to`; `source` holds another commit of Wiretape (see against.py)."""
    match name:
        case "wiretape":
            environ = {f"WIRETAPE_{setting.upper()}": str(value) for setting, value in settings.items()}
            wiretape = [str(Path(sys.executable).parent / "wiretape")]
            if source is not None:
                environ["PYTHONPATH"] = str(source)
                wiretape = [sys.executable, "-c", _entry_point(source)]
            serve = [*wiretape, "serve", "--port", "9300", "--data", str(data)]
            return running(name, 9300, [*serve, "--upstream", f"http://127.0.0.1:{to}/v1"], environ)
        case "floor":
            floor = [sys.executable, "-m", "tests.bench.floor", "9207"]
            return running(name, 9207, floor, {"PYTHONPATH": str(ROOT)})
        case "relay":
            uvicorn = [str(CACHE / "relay/bin/uvicorn"), "relay:app", "--port", "9206", "--log-level", "warning"]
            return running(name, 9206, uvicorn)
        case "litellm":
            litellm = [str(CACHE / "litellm/bin/litellm"), "--config", "litellm.yaml", "--port", "9203"]
            weak = {
                "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
                "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            }
            return running(name, 9203, litellm, weak)
        case _:
            raise ValueError(f"unknown proxy {name}")


def _entry_point(source: Path) -> str:
    """Return a program that calls the `wiretape` command of these sources, whichever module it is in."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, function = project["scripts"]["wiretape"].split(":")
    return f"import sys; from {module} import {function} as main; sys.exit(main())"


@contextmanager
def running(name: str, port: int, command: Sequence[str], environ: Mapping[str, str] | None = None) -> Generator[Party]:
    if _answers(port):
        sys.exit(f"port {port} is taken, and {name} needs it: is another benchmark running?")
    if not Path(command[0]).exists():
        sys.exit(f"{command[0]} is missing: run `make bench-proxy` to install it")
    log = CACHE / f"{name}.log"
    with log.open("wb") as out:
        process = subprocess.Popen(
            command,
            cwd=_YARDSTICK,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environ or {})},
        )
    try:
        until = time.monotonic() + _START_TIMEOUT_S
        while not _answers(port):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"{name} did not start:\n{log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        yield Party(name, port, process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


#: What upstream.py adds to the frames that are asked for: the role, the finish, [DONE].
_FRAMES_AROUND: Final = 3


class Case(NamedTuple):
    """Work of one kind: frames a stream, frames a write of the upstream, milliseconds between writes."""

    frames: int
    per_write: int
    gap_ms: int
    streams: int
    at_once: int

    @property
    def model(self) -> str:
        """The name that upstream.py reads."""
        return f"bench-{self.frames}-{self.per_write}-{self.gap_ms}"


#: As the yardstick's README has them.
CASES: Final = {
    "latency": Case(50, 1, 0, 100, 1),
    "paced": Case(200, 1, 10, 50, 50),
    "flood 1": Case(200, 1, 0, 200, 20),
    "flood 50": Case(200, 50, 0, 200, 20),
}
#: Wiretape's alone: the memory of many, and a thousand streams of ten frames a second, none of which may lose one.
MANY: Final = {"200 streams": Case(200, 1, 25, 200, 200), "1000 streams": Case(100, 1, 100, 1_000, 1_000)}


class Run(NamedTuple):
    """The figures of one run of load.py."""

    cpu_us_frame: float
    first_byte_ms: float
    first_byte_p99_ms: float
    frames: int
    rss_mb: int
    #: One line when a stream or a frame is missing.
    short: str


def run(case: Case, party: Party) -> Run:
    """Run one case against one party."""
    command = [_RELAY_PYTHON, str(_YARDSTICK / "load.py"), str(party.port), "/v1/chat/completions", case.model]
    command += [str(case.streams), str(case.at_once), str(party.pid)]
    said = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    due = case.streams * (case.frames + _FRAMES_AROUND)
    whole = said["complete"] == case.streams and said["frames"] == due
    short = f"{said['complete']} of {case.streams} streams, {said['frames']} of {due} frames, {said['bad']}"
    first = cast("list[float | None]", said["ttfb_ms"])
    return Run(
        said["cpu_us_frame"], first[0] or 0.0, first[1] or 0.0, said["frames"], said["rss_mb"], "" if whole else short
    )


def medians(runs: Sequence[Run]) -> Run:
    """Return the median of each figure, but the most memory and all shortfalls."""
    cpu, first, p99, frames = (statistics.median(column) for column in list(zip(*runs, strict=True))[:4])
    short = "; ".join(dict.fromkeys(each.short for each in runs if each.short))
    return Run(cpu, first, p99, round(frames), max(each.rss_mb for each in runs), short)
