"""What the examples need: a scripted upstream, one proxy for all pages, and a folder with the files that they name."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest import mock

import httpx

from tests.docs import agent
from tests.docs.blocks import blocks_of
from tests.house.tree import ROOT
from tests.replay.format_samples import HAR, SAMPLES
from tests.support import chat
from tests.support.tapes import conversation, records_of, text, write
from wiretape.events.core.json_text import as_list, as_object, dumps, parse
from wiretape.events.tape.record import encode
from wiretape.events.tape.tape import Reader
from wiretape.replay.playback.script import Request, Script, event_stream
from wiretape.replay.pytest_plugin.thread import Thread
from wiretape.replay.seal import seal

SCRIPTS: Final = Path(sys.executable).parent
KEY: Final = "sk-of-the-documents"
HEADERS: Final = {"Authorization": f"Bearer {KEY}"}
#: The examples name a fixed port, and a test may not: two runs would meet there.
_SHIM: Final = f"""#!/bin/sh
case "$*" in "replay "*--port*) ;; "replay "*) set -- "$@" --port 0;; esac
exec {SCRIPTS}/wiretape "$@"
"""
_MAKE: Final = f"""#!/bin/sh
exec {shutil.which("make")} --no-print-directory -C {ROOT} RUN={SCRIPTS}/wiretape -o {SCRIPTS}/wiretape "$@"
"""
_SERVICE: Final = re.compile(r"(?:\S*wiretape|make) (?:serve|replay)\b")
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
    home = {"HOME": str(folder), "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8", "COLUMNS": "200"}
    return {"PATH": path, **home, **keys, "WIRETAPE_DATA": str(data), "WIRETAPE_PORT": "0"}


@contextmanager
def world(folder: Path) -> Generator[World]:
    """Run the proxy as README.md says, with some streams."""
    thread = Thread()
    upstream = f"{thread.serve('up', choose)}/v1"
    written = next(
        command.partition(" #")[0].strip()
        for block in blocks_of("README.md", "console")
        for command, _ in block.commands()
        if command.startswith("make serve")
    )
    made(folder, "README.md")
    data = folder / "data"
    command = written.replace("https://api.openai.com/v1", upstream)
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
        assert "/v1\n" in printed, f"{written} did not start"
        with mock.patch.dict(os.environ, {"OPENAI_API_KEY": KEY}):
            agent.run_agent(printed.partition("\n")[0])
        streams = httpx.Client(base_url=f"{printed.partition('/v1')[0]}/wiretape", headers=HEADERS)
        with streams:
            ids = sorted(row["id"] for row in streams.get("/streams").json()["streams"])
            for each in ids:
                streams.get(f"/streams/{each}/events").raise_for_status()  # until its end
            weather = seal([Reader().feed(streams.get(f"/streams/{each}/tape").content) for each in ids])
        yield World(upstream, written, printed, data, ids[-1][:12], weather)
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(20)
        process.stdout.close()
        thread.close()


def made(folder: Path, page: str, weather: bytes = b"") -> None:
    """Write the files that the examples of a page name."""
    for name, script in {"bin/wiretape": _SHIM, ".venv-run/bin/wiretape": _SHIM, "bin/make": _MAKE}.items():
        write(folder / name, script.encode())
        (folder / name).chmod(0o755)
    write(folder / ".curlrc", b"fail\n")  # otherwise curl ends with 0 after a 404
    write(folder / "agent.py", (Path(__file__).parent / "agent.py").read_bytes())
    for name in ("weather.tape", "tapes/weather.tape"):
        write(folder / name, weather)
    write(folder / "old/weather.tape", weather.replace(b'"ending":"completed","', b'"ending":"truncated","'))
    hello, other = conversation(text("hi", "Hello")), conversation(text("hi", "Help"))
    write(folder / "tapes/hello.tape", hello)
    for name in ("help.tape", "new.tape", "new/weather.tape"):
        write(folder / "tmp" / name, other)
    write(folder / "tests/tapes/test_drift/test_weather.tape", hello)
    write(folder / "tests/test_drift.py", DRIFTING_TEST.encode())
    write(folder / "tests/test_weather.py", (RECORDED_TEST if "recording" in page else WEATHER_TEST).encode())
    write(folder / "pytest.ini", f"[pytest]\npythonpath = {folder}\naddopts = -p no:cacheprovider\n".encode())
    live = b"".join(map(encode, records_of(text("hi", "Hello"))))
    write(folder / "tmp/wiretape-record-x/live/s.tape", live)
    write(folder / "recorded.har", dumps(HAR))
    write(folder / "cassette.yaml", SAMPLES["vcr"][0])
    payloads = [frame[6:].strip() for frame in (chat.text("Hello"), chat.finish())]
    write(folder / "weather.chunks.txt", b"\n".join([*payloads, b""]))
    for block in blocks_of(page, "python"):
        if named := re.match(r"# (\w+\.py)\n", block.text):
            write(folder / named[1], block.text.encode())


def script_of(page: str, world: World, folder: Path) -> tuple[str, list[tuple[Any, str, str]]]:
    """Return one shell script for the commands of a page, and each of them with its block and documented output."""
    commands = [
        (block, command, output)
        for block in blocks_of(page, "console")
        if block.runs
        for command, output in block.commands()
    ]
    lines = ["set -m"]
    for number, (_, command, output) in enumerate(commands):
        words, out = world.filled(command, folder), f'"$OUT/{number}"'
        if command.partition(" #")[0].strip() == world.serve:
            lines.append(f"printf %s {shlex.quote(world.printed)} >{out}; echo 0 >{out}.code")
        elif _SERVICE.search(command):
            lines += [
                f"mkfifo {out}.pipe",
                f'(export WIRETAPE_DATA="$PWD/data{number}"; {words}\n) >{out}.pipe 2>{out}.err & pids="$pids $!"',
                f"exec 3<{out}.pipe",
                f'for n in $(seq {max(output.count(chr(10)), 1)}); do read -r line <&3 && echo "$line"; done >{out}',
                f"kill -0 $!; echo $? >{out}.code",
            ]
        else:
            lines += [f"{{ {words}\n}} >{out} 2>&1", f"echo $? >{out}.code"]
    return "\n".join([*lines, 'eval "$LAST"', "for pid in $pids; do kill -INT -- -$pid; done; wait", ""]), commands
