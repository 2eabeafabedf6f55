"""Record every fixture below fixtures/ again from real upstreams: `python -m tests.real.record_fixtures`."""

import argparse
import json
import shutil
import signal
import socket
import struct
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import trio

from tests.support.markdown import table
from wiretape.replay.sealed.files import load

from .clients import question, versions
from .fixtures.cases import CASES, Case
from .hermes import Model
from .processes import PYTHONS, ROOT, RUN, WIRETAPE, environment, free_port, server
from .servers import LONG_S, TEXT, Up, aimock, failure, hermes, litellm, llama


@asynccontextmanager
async def wire(port: int, way: str, after: int) -> AsyncGenerator[int]:
    """Relay to this port, and break after this many reads of the upstream."""

    async def passed(client: trio.SocketStream) -> None:
        async def there() -> None:
            with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
                async for data in client:
                    await upstream.send_all(data)

        upstream = await trio.open_tcp_stream("127.0.0.1", port)
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            async with client, upstream, trio.open_nursery() as nursery:
                nursery.start_soon(there)
                for _ in range(after):
                    await client.send_all(await upstream.receive_some())
                if way == "garbage":
                    await client.send_all(b"this is no chunk\r\n")
                else:
                    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, passed, [listener])
        yield listener.socket.getsockname()[1]
        nursery.cancel_scope.cancel()


def _answers() -> list[dict[str, Any]]:
    text = {"content": TEXT}
    usage = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}
    reasoning = text | {"reasoning": "Two towns come to mind, one fits."}
    weather = {"name": "get_weather", "arguments": {"city": "Paris"}}
    clock = {"name": "get_time", "arguments": {"zone": "Europe/Paris", "why": "東京 is 8 h ahead 😀"}}
    call = {"toolCalls": [weather]}
    limit = failure("slow down", "rate_limit_exceeded", 429)
    return [
        {"match": {"model": "text"}, "response": text, "latency": 10},
        {"match": {"model": "usage"}, "response": text | {"usage": usage}, "latency": 5},
        {"match": {"model": "reasoning"}, "response": reasoning, "latency": 5},
        {"match": {"model": "tiny"}, "response": text, "chunkSize": 1, "latency": 2},
        {"match": {"model": "tool", "hasToolResult": True}, "response": text},
        {"match": {"model": "tool"}, "response": call, "chunkSize": 4, "latency": 5},
        {"match": {"model": "tools"}, "response": {"toolCalls": [weather, clock]}, "chunkSize": 5, "latency": 5},
        {"match": {"model": "both"}, "response": text | call, "chunkSize": 8, "latency": 5},
        {"match": {"model": "length"}, "response": text | {"finishReason": "length"}},
        {"match": {"model": "refused"}, "response": failure("no such model", "model_not_found", 404)},
        {"match": {"model": "limited"}, "response": limit | {"retryAfter": LONG_S}},
        {"match": {"model": "broken"}, "response": failure("the engine is overloaded", "overloaded", 503)},
        {"match": {"model": "cut"}, "response": text, "truncateAfterChunks": 4, "latency": 20},
        {"match": {"model": "cut-tool"}, "response": call, "chunkSize": 3, "truncateAfterChunks": 5, "latency": 20},
        {"match": {"model": "slow"}, "response": text, "latency": 150},
        {"match": {"model": "slow-tool"}, "response": call, "chunkSize": 3, "latency": 150},
        {"match": {"model": "embedding"}, "response": {"embedding": [0.25, -0.5, 0.125, 1.0]}},
    ]


@asynccontextmanager
async def _litellm() -> AsyncGenerator[Up]:
    mocked = {"text": TEXT, "limited": "litellm.RateLimitError"}
    relayed = {"tool": "tool", "cut-tool": "cut-tool", "behind": "text"}
    async with (
        aimock("fixtures-aimock", _answers()) as behind,
        litellm("fixtures-litellm", mocked, relayed, behind.url) as up,
    ):
        yield up


@asynccontextmanager
async def _nobody() -> AsyncGenerator[Up]:
    """Provide a port without a listener."""
    await trio.lowlevel.checkpoint()
    yield Up(free_port(), "x")


STARTS: Final = MappingProxyType[str, Callable[[], AbstractAsyncContextManager[Up]]]({
    "aimock": lambda: aimock("fixtures-aimock", _answers()),
    "litellm": _litellm,
    "llama": partial(llama, "fixtures-llama"),
    "hermes": lambda: hermes("fixtures-hermes", Model()),
    "nobody": _nobody,
})  # fmt: skip


FOLDER: Final = ROOT / "fixtures"
_ASK: Final = Path(__file__).parent / "fixtures/ask.py"
_POLL_S: Final = 0.02
_CASE_S: Final = 90.0
#: Frames on the tape, then it is made to fail.
_FRAMES: Final = 3
#: After these the upstream is no longer what it was.
_SPENT: Final = ("kill_upstream", "stop_upstream")
_PLANTED: Final = [sys.executable, "-m", "tests.real.fixtures.planted"]


async def recorded(case: Case, up: Up, number: int) -> str:
    """Write the file; return the ending of its last stream."""
    out = FOLDER / f"{case.stem}.{number}.tape"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.unlink(missing_ok=True)
    data = RUN / "fixtures-tapes" / case.stem
    shutil.rmtree(data, ignore_errors=True)
    with trio.fail_after(_CASE_S):
        said = await (_served if case.fault in ("terminate_proxy", "kill_proxy") else _recorded)(case, up, data, out)
    if not out.exists():
        raise RuntimeError(f"{case.stem}: {said}")
    return str(load(out).streams[-1][-1].keys.get("ending", "live"))


async def _recorded(case: Case, up: Up, data: Path, out: Path) -> str:
    port = free_port()
    async with AsyncExitStack() as stack:
        upstream = up.port
        if case.fault in ("reset", "garbage"):
            # The head comes in a read of its own.
            upstream = await stack.enter_async_context(wire(up.port, case.fault, _FRAMES + 1))
        nursery = await stack.enter_async_context(trio.open_nursery())
        command = _PLANTED if case.fault == "planted" else [str(WIRETAPE)]
        command = [*command, "record", "--upstream", f"http://127.0.0.1:{upstream}/v1", "--data", str(data)]
        command += ["--port", str(port), "-o", str(out), *case.options, "--", *_child(case)]
        if case.fault in _SPENT:
            nursery.start_soon(_fail, data, up, signal.SIGKILL if case.fault == "kill_upstream" else signal.SIGSTOP)
        said = await _run(command, _stdin(case, up, port))
        nursery.cancel_scope.cancel()
    return said


async def _served(case: Case, up: Up, data: Path, out: Path) -> str:
    """Stop or kill a server in place of `record`; after a kill its next start repairs the tape."""
    port = free_port()
    command: list[str | Path] = [WIRETAPE, "serve", "--upstream", up.url, "--data", data, "--port", str(port)]
    command += ["--profile", "transparent", "--shutdown-drain-s", "0"]
    env = environment(OPENAI_BASE_URL=f"http://127.0.0.1:{port}/v1")
    async with server("fixtures-wiretape", command, port, env) as process, trio.open_nursery() as nursery:
        nursery.start_soon(_run, _child(case), _stdin(case, up, port), env)
        await _frames(data)
        process.send_signal(signal.SIGTERM if case.fault == "terminate_proxy" else signal.SIGKILL)
        await process.wait()
    if case.fault == "kill_proxy":
        async with server("fixtures-wiretape", command, port, env):
            while _tapes(data, "live"):  # noqa: ASYNC110 - it listens before it has looked
                await trio.sleep(_POLL_S)
    return await _run([str(WIRETAPE), "seal", *_tapes(data, "2*"), "-o", str(out)], b"")


def _tapes(data: Path, folder: str) -> list[str]:
    return sorted(map(str, data.glob(f"{folder}/*.tape")))


async def _fail(data: Path, up: Up, number: signal.Signals) -> None:
    await _frames(data)
    assert up.process is not None
    up.process.send_signal(number)


async def _frames(data: Path) -> None:
    """Wait for frames on the tape of a running stream."""
    while not _enough(data):  # noqa: ASYNC110 - another process writes it
        await trio.sleep(_POLL_S)


def _enough(data: Path) -> bool:
    return any(Path(path).read_bytes().count(b'"k":"frame"') >= _FRAMES for path in _tapes(data, "live"))


def _child(case: Case) -> list[str]:
    if case.driver:
        return [str(PYTHONS["clients"]), "-m", f"tests.real.drivers.{case.driver}"]
    return [sys.executable, str(_ASK)]


def _stdin(case: Case, up: Up, port: int) -> bytes:
    fixed: dict[str, Any] = {"key": up.key}
    if case.driver:
        fixed = question(f"http://127.0.0.1:{port}/v1", up.key, "", "How is the weather in Paris?", retries=0, turns=2)
    return b"".join(json.dumps({**fixed, **one}).encode() + b"\n" for one in case.asks)


async def _run(command: Sequence[str], stdin: bytes, env: dict[str, str] | None = None) -> str:
    done = await trio.run_process(
        command, stdin=stdin, env=env or environment(), cwd=ROOT, capture_stdout=True, capture_stderr=True, check=False
    )
    return f"{done.returncode}: {done.stderr.decode(errors='replace')[-500:]}"


_BEGIN: Final = "<!-- recorded: begin -->"
_END: Final = "<!-- recorded: end -->"
_PACKAGES: Final = {
    "aimock": "@copilotkit/aimock (npm)",
    "litellm": "litellm",
    "llama": "llama-cpp-python",
    "hermes": "hermes-agent",
    "nobody": "none",
}


async def _record(cases: Sequence[Case]) -> list[str]:
    """Record the cases; return what went wrong."""
    wrong: list[str] = []
    for (upstream, _), group in groupby(cases, key=lambda case: (case.upstream, case.stem * (case.fault in _SPENT))):
        async with STARTS[upstream]() as up:
            for case in group:
                for number in range(1, case.times + 1):
                    try:
                        ending = await recorded(case, up, number)
                    except (RuntimeError, trio.TooSlowError, OSError) as error:
                        ending = repr(error)
                    sys.stdout.write(f"{case.stem}.{number}: {ending}\n")
                    sys.stdout.flush()
                    if ending != case.ending:
                        wrong.append(f"{case.stem}.{number}: {ending} instead of {case.ending}")
            if up.process is not None and any(case.fault == "stop_upstream" for case in cases):
                up.process.kill()
    return wrong


def _origin(cases: Sequence[Case], before: str) -> str:
    """Return the table: new rows for these cases, and the old ones of all others that there are."""
    known, day = versions(), time.strftime("%Y-%m-%d", time.gmtime())
    upstreams = {name: f"{package} {known.get(package, '')}".strip() for name, package in _PACKAGES.items()}
    kept = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in before.splitlines()]
    old = {row[0]: row for row in kept if row[0].startswith("`")}
    rows: list[Sequence[str]] = []
    for case in CASES:
        for number in range(1, case.times + 1):
            name = f"`{case.stem}.{number}.tape`"
            if case in cases:
                rows.append((name, case.says, case.ending, upstreams[case.upstream], day))
            elif name in old:
                rows.append(old[name])
    return f"{_BEGIN}\n{table(['file', 'what', 'ending of the last stream', 'upstream', 'recorded'], rows)}{_END}"


def main() -> int:
    """Record what the arguments name, and write their rows of the table; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.record_fixtures", description=__doc__)
    parser.add_argument("--case", action="append", default=[], help="only those whose name holds this")
    asked = parser.parse_args()
    cases = [case for case in CASES if not asked.case or any(each in case.stem for each in asked.case)]
    RUN.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    wrong = trio.run(_record, cases)
    place = FOLDER / "ORIGIN.md"
    before, _, rest = place.read_text(encoding="utf-8").partition(_BEGIN)
    rows, _, rest = rest.partition(_END)
    place.write_text(before + _origin(cases, rows) + rest, encoding="utf-8")
    sys.stdout.write("".join(f"WRONG {each}\n" for each in wrong))
    sys.stdout.write(f"{len(cases)} cases, {len(wrong)} wrong, {time.monotonic() - began:.0f} s\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
