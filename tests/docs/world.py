"""What the examples need: a scripted upstream, one proxy for all pages, and a folder with the files that they name."""

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Final
from unittest import mock

import httpx

from tests.docs import agent
from tests.docs.blocks import Block, blocks_of, like, shows, values_of
from tests.replay.format_samples import HAR, SAMPLES
from tests.support import chat
from tests.support.tapes import conversation, records_of, text, write
from wiretape.events.core.json_text import as_list, as_object, dumps, parse
from wiretape.events.tape.record import encode
from wiretape.events.tape.tape import Reader
from wiretape.replay.playback.script import Request, Script, event_stream
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.seal import seal

#: These pages are one story, read in this order.
TUTORIAL: Final = tuple(f"docs/start/{name}.md" for name in ("first-stream", "inspector", "test"))
SCRIPTS: Final = Path(sys.executable).parent
KEY: Final = "sk-of-the-documents"
HEADERS: Final = {"Authorization": f"Bearer {KEY}"}
#: The examples name a fixed port, and a test may not: two runs would meet there.
_SHIM: Final = f"""#!/bin/sh
case "$*" in "replay "*--port*) ;; "replay "*) set -- "$@" --port 0;; esac
exec {SCRIPTS}/wiretape "$@"
"""
#: `make newcomer` runs the same lines with the real tools and the built wheel.
_UVX: Final = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do shift 2; done
exec "$@"
"""
_UV: Final = """#!/bin/sh
if [ "$1" = venv ]; then mkdir -p .venv/bin; : >.venv/bin/activate; fi
"""
_SERVICE: Final = re.compile(r"\bwiretape (?:serve|replay)\b")
_CITY: Final = ['{"city"', ': "Os', 'lo"}']
_WORDS: Final = ["Sunny", " in", " Oslo", ", 4 °C", " — take", " a scarf 🧣."]

WEATHER_TEST: Final = """
import os
from agent import ask_weather

def test_weather(tape):
    assert "scarf" in ask_weather(base_url=tape.url)
"""
#: `wiretape record` gives the address to the command that it runs.
RECORDED_TEST: Final = """
import os
from agent import ask_weather

def test_weather():
    assert "scarf" in ask_weather(base_url=os.environ["OPENAI_BASE_URL"])
"""
#: The second run of the page about pytest shows a test that fails.
DRIFTING_TEST: Final = """
import sys
import httpx

def test_weather(tape):
    question = "ho" if "--tape=replay" in sys.argv else "hi"
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}]}
    httpx.post(f"{tape.url}/chat/completions", json=body)
"""


def choose(request: Request) -> Script:
    """Answer as a provider does: call the tool if there is one and it has not answered yet, then answer in text."""
    body = as_object(parse(request.body))
    last = as_object(([*as_list(body.get("messages"))] or [{}])[-1])
    if body.get("tools") and last.get("role") != "tool":
        pieces = [chat.call(index=0, arguments=piece) for piece in _CITY]
        first = chat.call(role=True, index=0, id="call_1", type="function", name="get_weather", arguments="")
        return event_stream([first, *pieces, chat.finish("tool_calls"), chat.DONE])
    return event_stream([chat.text("", role=True), *map(chat.text, _WORDS), chat.finish(), chat.DONE])


@dataclass(frozen=True)
class World:
    """The running processes, and the values of what examples write as a placeholder."""

    upstream: str
    #: The command of README.md that started the proxy, and its output.
    serve: str
    printed: str
    data: Path
    #: The id of a stream as `wiretape ls` prints it.
    short_id: str
    #: The sealed tape of what the agent asked.
    weather: bytes

    @property
    def origin(self) -> str:
        """The address of the proxy."""
        return self.printed.partition("/v1")[0]

    def filled(self, command: str, folder: Path) -> str:
        """Return a command with the values of its placeholders."""
        command = re.sub(r"https://api\.(openai|example)\.com/v1", self.upstream, command)
        command = command.replace("http://127.0.0.1:8787", self.origin).replace("/tmp/", f"{folder}/tmp/")  # noqa: S108
        return re.sub(r" ID\b", f" {self.short_id}", command)


def environment(folder: Path, data: Path) -> dict[str, str]:
    """Return the environment of the examples of one page."""
    keys = {"OPENAI_API_KEY": KEY, "API_KEY": KEY}
    path = os.pathsep.join([str(folder / "bin"), str(SCRIPTS), os.environ["PATH"]])
    home = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8", "COLUMNS": "200", "BROWSER": "true"}
    return {"PATH": path, **home, **keys, "WIRETAPE_DATA": str(data), "WIRETAPE_PORT": "0"}


@contextmanager
def world(folder: Path) -> Generator[World]:
    """Run the proxy as README.md says, with some streams."""
    thread = Thread()
    upstream = f"{thread.serve('up', choose)}/v1"
    line = next(
        command.partition(" #")[0].strip()
        for block in blocks_of("README.md", "console")
        for command, _ in block.commands()
        if " serve " in command
    )
    made(folder, "README.md")
    data = folder / "data"
    command = line.replace("https://api.openai.com/v1", upstream)
    process = subprocess.Popen(
        ["sh", "-c", f"exec {command}"],
        env=environment(folder, data),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert process.stdout is not None
    try:
        printed = os.read(process.stdout.fileno(), 1 << 16).decode()  # it is written at once
        assert "/v1\n" in printed, f"{line} did not start"
        with mock.patch.dict(os.environ, {"OPENAI_API_KEY": KEY}):
            agent.run_agent(printed.partition("\n")[0])
        streams = httpx.Client(base_url=f"{printed.partition('/v1')[0]}/wiretape", headers=HEADERS)
        with streams:
            ids = sorted(row["id"] for row in streams.get("/streams").json()["streams"])
            for each in ids:
                streams.get(f"/streams/{each}/events").raise_for_status()  # until its end
            weather = seal([Reader().feed(streams.get(f"/streams/{each}/tape").content) for each in ids])
        yield World(upstream, line, printed, data, ids[-1][:12], weather)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        process.stdout.close()
        thread.close()


def shimmed(folder: Path) -> None:
    """Write the commands that stand in for those of a user's machine."""
    for name, script in {"wiretape": _SHIM, "uvx": _UVX, "uv": _UV, "pipx": _UV}.items():
        write(folder / "bin" / name, script.encode())
        (folder / "bin" / name).chmod(0o755)


def made(folder: Path, page: str, weather: bytes = b"") -> None:
    """Write the files that the examples of a page name."""
    shimmed(folder)
    write(folder / ".curlrc", b"fail\n")  # otherwise curl ends with 0 after a 404
    write(folder / "agent.py", (Path(__file__).parent / "agent.py").read_bytes())
    for name in ("weather.tape", "tapes/weather.tape"):
        write(folder / name, weather)
    write(folder / "old/weather.tape", weather.replace(b'"ending":"completed","', b'"ending":"truncated","'))
    hello, other = conversation(text("hi", "Hello")), conversation(text("hi", "Help"))
    for name, tape in {"monday": hello, "tuesday": other, "tapes/hello": hello}.items():
        write(folder / f"{name}.tape", tape)
    for name in ("help.tape", "new.tape", "new/weather.tape"):
        write(folder / "tmp" / name, other)
    write(folder / "tests/tapes/test_drift/test_weather.tape", hello)
    write(folder / "tests/test_drift.py", DRIFTING_TEST.encode())
    write(folder / "tests/test_weather.py", (RECORDED_TEST if page.endswith("/record.md") else WEATHER_TEST).encode())
    write(folder / "pytest.ini", f"[pytest]\npythonpath = {folder}\naddopts = -p no:cacheprovider\n".encode())
    live = b"".join(map(encode, records_of(text("hi", "Hello"))))
    write(folder / "tmp/wiretape-record-x/live/s.tape", live)
    write(folder / "recorded.har", dumps(HAR))
    write(folder / "cassette.yaml", SAMPLES["vcr"][0])
    payloads = [frame[6:].strip() for frame in (chat.text("Hello"), chat.finish())]
    write(folder / "weather.chunks.txt", b"\n".join([*payloads, b""]))
    for block in blocks_of(page):
        if block.file:
            write(folder / block.file, block.text.encode())


def commands_of(*pages: str) -> list[tuple[Block, str, str]]:
    """Return the commands of some pages that run here, each with its block and its documented output.

    A Python file of the tutorial is written at its place in the story.
    """
    commands: list[tuple[Block, str, str]] = []
    for block in chain.from_iterable(map(blocks_of, pages)):
        if block.language == "console" and block.runs:
            commands += [(block, command, output) for command, output in block.commands()]
        if (name := block.file) and block.page in TUTORIAL:
            commands.append((block, f"cat >{name} <<'FILE'\n{block.text}FILE", ""))
    return commands


def script_of(
    commands: list[tuple[Block, str, str]], filled: Callable[[str], str], running: World | None = None
) -> str:
    """Return one shell script for commands; `running` is the proxy that one of them has started already."""
    lines = ["set -m"]
    for number, (_, command, output) in enumerate(commands):
        words, out = filled(command), f'"$OUT/{number}"'
        if running is not None and command.partition(" #")[0].strip() == running.serve:
            lines.append(f"printf %s {shlex.quote(running.printed)} >{out}; echo 0 >{out}.code")
        elif _SERVICE.search(command):
            own = "" if running is None else f'export WIRETAPE_DATA="$PWD/data{number}"; '
            lines += [
                f"mkfifo {out}.pipe",
                f'({own}{words}\n) >{out}.pipe 2>{out}.err & pids="$pids $!"',
                f"exec 3<{out}.pipe",
                f'for n in $(seq {max(output.count(chr(10)), 1)}); do read -r line <&3 && echo "$line"; done >{out}',
                f"kill -0 $!; echo $? >{out}.code",
            ]
        else:
            lines += [f"{{ {words}\n}} >{out} 2>&1", f"echo $? >{out}.code"]
    return "\n".join([*lines, 'eval "$LAST"', "for pid in $pids; do kill -INT -- -$pid; done; wait", ""])


def ran(script: str, folder: Path, environ: dict[str, str]) -> Path:
    """Run a script; return the folder with the output and the exit code of each command."""
    out = folder / "out"
    out.mkdir()
    whole = {**environ, "OUT": str(out)}
    subprocess.run(["bash", "-c", script], cwd=folder, env=whole, check=True, timeout=300, capture_output=True)
    return out


def check(out: Path, commands: list[tuple[Block, str, str]], *pages: str) -> None:
    """Compare what commands printed with what their pages show."""
    for number, (block, command, output) in enumerate(commands):
        printed = (out / str(number)).read_text(encoding="utf-8")
        code = int((out / f"{number}.code").read_text())
        assert code == block.exit_code, f"{block.page}:{block.line}: {command}\n{printed}"
        assert shows(printed, output), f"{block.page}:{block.line}: {command}\n{printed}"
    everything = "\n".join(file.read_text(encoding="utf-8") for file in sorted(out.glob("*[0-9rt]")))
    values = [value for line in everything.splitlines() if line.startswith("{") for value in values_of(line)]
    for page in pages:
        for block in blocks_of(page, "text"):
            assert shows(everything, block.text), f"{page}:{block.line}: {everything}"
        for block in blocks_of(page, "json"):
            for value in values_of(block.text):
                assert any(like(value, each) for each in values), f"{page}:{block.line}: {value}"


def free_ports(count: int) -> list[int]:
    """Return ports that were free a moment ago."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def filled(command: str, *, upstream: str, provider: int, proxy: int) -> str:
    """Return a command with the upstream, free ports, and the newest stream in place of `ID`."""
    command = command.replace("https://api.openai.com/v1", upstream)
    command = re.sub(r"\b9000\b", str(provider), command).replace("8787", str(proxy))
    return re.sub(r" ID\b", """ $(wiretape ls --json | grep -m 1 '"id"' | cut -d '"' -f 4)""", command)
