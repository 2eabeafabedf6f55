"""`wiretape record`: the command finds the proxy, receives the upstream's bytes, and all streams are on one tape."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
import trio

from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.proxy.config.model import Route, Target
from wiretape.replay.cli.recording import base_urls, recorded, unproxied
from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream, json_answer, script_of
from wiretape.replay.playback.server import Upstream, listening
from wiretape.replay.sealed.files import load

pytestmark = pytest.mark.slow

WIRETAPE = (sys.executable, "-m", "wiretape")
ONE = b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[%b]}\n\n'
WORD = ONE % '{"index":0,"delta":{"role":"assistant","content":"Grüße"}}'.encode()
SPLIT = WORD.index(b"\xbc")
#: The first read ends inside a character.
TEXT = [WORD[:SPLIT], WORD[SPLIT:], ONE % b'{"index":0,"delta":{},"finish_reason":"stop"}' + b"data: [DONE]\n\n"]
GAP_S = 0.03
#: Sends a request for each argument, and prints the responses.
ASK = """
import http.client, json, os, sys, urllib.parse
base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
for model in sys.argv[1:]:
    connection = http.client.HTTPConnection(base.netloc)
    body = json.dumps({"model": model, "stream": True, "messages": [{"role": "user", "content": "?"}]})
    connection.request("POST", base.path + "/chat/completions", body, {"Content-Type": "application/json"})
    try:
        sys.stdout.buffer.write(connection.getresponse().read())
    except (OSError, http.client.HTTPException) as error:
        print(type(error).__name__, file=sys.stderr)
sys.stdout.flush()
"""

#: Hangs up after the first bytes.
LEAVE = """
import http.client, json, os, sys, urllib.parse
base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
connection = http.client.HTTPConnection(base.netloc)
body = json.dumps({"model": sys.argv[1], "stream": True})
connection.request("POST", base.path + "/chat/completions", body, {"Content-Type": "application/json"})
connection.getresponse().read(10)
connection.close()
"""


def answer(request: Request) -> Script:
    """Return the script of the requested model."""
    if b'"cut"' in request.body:
        return event_stream(TEXT[:2], gap_s=GAP_S, end=Fault.RESET)
    if b'"busy"' in request.body:
        return json_answer(b'{"error":{"message":"slow down"}}', 429)
    if b'"endless"' in request.body:
        return Script(steps=[Step(0, WORD), Step(0, Fault.STALL)])
    return event_stream(TEXT, gap_s=GAP_S)


class Done:
    """The result of a run."""

    def __init__(self, process: "subprocess.CompletedProcess[bytes]", tape: Path) -> None:
        self.code, self.out, self.messages = process.returncode, process.stdout, process.stderr.decode()
        self.streams: Sequence[Sequence[Record]] = load(tape).streams if tape.exists() else ()
        self.endings: list[object] = [records[-1].keys["ending"] for records in self.streams]


class Runner:
    """`wiretape record` in a folder, with an upstream."""

    def __init__(self, folder: Path, upstream: str, seen: Upstream) -> None:
        self.folder = folder
        self.tape = folder / "run.tape"
        self.upstream: str | None = upstream
        self.seen = seen
        (folder / "tmp").mkdir()
        self._env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8"}

    def _words(self, options: Sequence[str], command: Sequence[str]) -> list[str]:
        where = [] if self.upstream is None else ["--upstream", self.upstream]
        return [*WIRETAPE, "record", *where, "-o", str(self.tape), *options, "--", *command]

    async def run(self, *command: str, options: Sequence[str] = ("--exact",), stdin: bytes = b"") -> Done:
        """Run a command."""
        self.tape.unlink(missing_ok=True)
        with trio.fail_after(60):
            process = await trio.run_process(
                self._words(options, command), env=self._env, cwd=self.folder, stdin=stdin,
                capture_stdout=True, capture_stderr=True, check=False,
            )  # fmt: skip
        return Done(process, self.tape)

    async def ask(self, *models: str, child: str = ASK, options: Sequence[str] = ("--exact",)) -> Done:
        """Run a child that requests these models."""
        return await self.run(sys.executable, "-c", child, *models, options=options)

    async def start(self, child: str, *, terminal: int | None = None) -> trio.Process:
        """Start a child that prints `ready` and waits, and wait for that."""
        words = self._words((), [sys.executable, "-c", child, "text"])
        if terminal is not None:
            controlled = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
            words = [sys.executable, "-c", f"{controlled}; os.execv(sys.argv[1], sys.argv[1:])", *words]
        process = await trio.lowlevel.open_process(
            words, env=self._env, stdin=terminal, stdout=subprocess.PIPE, start_new_session=True
        )
        assert process.stdout is not None
        printed = b""
        while b"ready" not in printed:
            more = await process.stdout.receive_some()
            assert more, printed
            printed += more
        return process

    @property
    def left(self) -> list[Path]:
        """The temporary files that stay."""
        return list((self.folder / "tmp").iterdir())


@pytest.fixture
async def runner(tmp_path: Path) -> AsyncGenerator[Runner]:
    async with listening(answer) as (upstream, seen):
        yield Runner(tmp_path, upstream, seen)


async def ended(process: trio.Process) -> tuple[int, bytes]:
    """Wait for a started process; return its exit code, and what it printed after `ready`."""
    assert process.stdout is not None
    printed = b"".join([data async for data in process.stdout])
    return await process.wait(), printed


async def test_streams_are_on_one_tape_in_order_and_the_command_gets_the_bytes(runner: Runner) -> None:
    done = await runner.ask("text", "busy", "text", "cut")
    assert (done.code, done.endings) == (0, ["completed", "upstream_error", "completed", "reset"])
    assert done.out == b"".join([*TEXT, b'{"error":{"message":"slow down"}}', *TEXT])
    for number, pieces in ((0, TEXT), (3, TEXT[:2])):
        assert b"".join(data for _, data in reads(done.streams[number])) == b"".join(pieces)
    assert len(runner.seen.seen) == 4, "a refused request is sent once"
    assert done.messages.splitlines()[-1].endswith("run.tape: 4 streams (2 completed, 1 upstream_error, 1 reset)")
    assert runner.left == []


#: Sends two requests with a foreign Host, one that is not marked as JSON, and then correct ones.
REFUSED = """
import http.client, os, sys, urllib.parse
base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
for host, kind in [("gateway:80", "application/json")] * 2 + [(base.netloc, "text/plain")] + [
    (base.netloc, "application/json") for _ in sys.argv[1:]
]:
    connection = http.client.HTTPConnection(base.netloc)
    headers = {"Content-Type": kind, "Host": host}
    connection.request("POST", base.path + "/chat/completions", '{"stream":true,"messages":[]}', headers)
    connection.getresponse().read()
"""
REASONS = "requests that the proxy refused: 1 with status 415, 2 with status 421"


async def test_refused_requests_are_reported_with_the_reason(runner: Runner) -> None:
    none = await runner.ask(child=REFUSED)
    assert len(runner.seen.seen) == 0
    one = await runner.ask("one", child=REFUSED)
    assert (none.code, none.messages.splitlines()[-1]) == (1, f"wiretape: nothing was recorded: {REASONS}")
    assert (one.code, one.endings) == (0, ["completed"])
    assert one.messages.splitlines()[-1].endswith(f"run.tape: 1 stream (1 completed); {REASONS}")


async def test_a_client_of_another_dialect_is_crossed_and_its_replay_gives_the_same(runner: Runner) -> None:
    child = ASK.replace("/chat/completions", "/messages").replace('"stream": True', '"stream": True, "max_tokens": 9')
    done = await runner.ask("text", child=child, options=["--speaks=chat"])
    assert (done.code, done.endings) == (0, ["completed"])
    [outcome] = runner.seen.seen
    assert outcome.request.target.endswith(b"/chat/completions")
    assert done.out.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert script_of(done.streams[0]).body == done.out


async def test_abandoned_stream_is_recorded_to_its_end_by_default(runner: Runner) -> None:
    recorded = await runner.ask("text", child=LEAVE)
    assert (recorded.code, recorded.endings) == (0, ["completed"])
    cancelled = await runner.ask("endless", child=LEAVE, options=["--on-client-gone=cancel"])
    assert (cancelled.code, cancelled.endings) == (0, ["client_gone"])


async def test_exit_code_and_stdin_are_the_commands_own(runner: Runner) -> None:
    child = ASK + "\nsys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(7)"
    done = await runner.run(sys.executable, "-c", child, "text", stdin=b"in\n")
    assert (done.code, done.endings) == (7, ["completed"])
    assert done.out.endswith(b"in\n")


async def test_upstream_and_profile_come_from_the_configuration(runner: Runner) -> None:
    settings = f'upstream = "{runner.upstream}"\ndurability = "none"\nprofile = "strict"\n'
    (runner.folder / "wiretape.toml").write_text(settings)
    runner.upstream = None
    done = await runner.ask("cut")
    assert done.code == 0
    assert b'"error"' in done.out, "the strict profile reports the cut in the stream"


CANARY = "sk-proj-canaryPastedIntoAPrompt0123456789abcdefABCDEF"


async def test_key_in_a_prompt_is_redacted_and_exact_is_refused(runner: Runner) -> None:
    child = ASK.replace('"?"', f'"my key is {CANARY}"')
    refused = await runner.ask("text", child=child)
    assert (refused.code, refused.endings) == (3, [])
    assert "not sealed; the live tapes stay in" in refused.messages
    assert CANARY not in refused.messages
    redacted = await runner.ask("text", child=child, options=())
    assert (redacted.code, redacted.endings) == (0, ["completed"])
    assert CANARY.encode() not in runner.tape.read_bytes()
    assert len(runner.left) == 1, "a run that was not sealed keeps its folder"


def test_damaged_tape_does_not_affect_others(tmp_path: Path) -> None:
    whole = next(iter(sorted((Path(__file__).parents[2] / "fixtures/format-1").glob("*.tape")))).read_bytes()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "2026-11-18").mkdir()
    (tmp_path / "2026-11-18/a.tape").write_bytes(whole)
    (tmp_path / "2026-11-18/b.tape").write_bytes(b"".join(lines[:3] + lines[5:]))
    streams, damaged = recorded(tmp_path)
    assert len(streams) == len(damaged) == 1
    assert "b.tape" in damaged[0]
    assert recorded(tmp_path, frozenset({"a", "b"})) == ([], [])


async def test_failures_have_exit_codes_and_one_line(runner: Runner) -> None:
    upstream, elsewhere = runner.upstream, "https://api.example.com/v1"
    assert upstream is not None
    port = upstream.removesuffix("/v1").rpartition(":")[2]
    for to, command, options, code, words in (
        (upstream, ["true"], (), 1, "nothing was recorded"),
        (upstream, ["sh", "-c", "exit 5"], (), 5, "nothing was recorded"),
        (upstream, ["no-such-command"], (), 3, "no-such-command cannot be run"),
        (elsewhere, ["true"], ("--port", port), 3, "in use"),
        (None, ["true"], (), 2, "no upstream"),
        (elsewhere, [], (), 2, "no command"),
        (None, ["true"], ("--ide-s=5",), 2, "did you mean --idle-s"),
    ):
        runner.upstream = to
        done = await runner.run(*command, options=options)
        assert done.code == code
        assert words in done.messages.splitlines()[-1]
        assert not done.streams
    assert runner.left == []


WAITS = (
    ASK
    + """
import signal, time
signals = []
signal.signal(signal.SIGINT, lambda *_: signals.append("INT"))
signal.signal(signal.SIGTERM, lambda *_: signals.append("TERM"))
print("ready", flush=True)
while not signals:
    time.sleep(0.01)
time.sleep(0.3)
print(*signals, flush=True)
sys.exit(9)
"""
)


@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, b"TERM\n"), (signal.SIGINT, b"INT\n")])
async def test_signals_reach_the_command_and_the_recording_is_sealed(
    runner: Runner, number: signal.Signals, word: bytes
) -> None:
    process = await runner.start(WAITS)
    process.send_signal(number)
    assert await ended(process) == (9, word)
    assert [records[-1].keys["ending"] for records in load(runner.tape).streams] == ["completed"]


async def test_signal_after_the_command_ends_the_wait_for_its_streams(runner: Runner) -> None:
    grandchild = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {ASK!r}, 'endless'])\n"
    process = await runner.start(grandchild + "time.sleep(0.7)\nprint('ready', flush=True)")
    await trio.sleep(0.3)
    process.send_signal(signal.SIGTERM)
    with trio.fail_after(15):
        assert await ended(process) == (0, b"")
    assert [records[-1].keys["ending"] for records in load(runner.tape).streams] == ["shutdown"]


async def test_ctrl_c_at_a_terminal_reaches_the_command_once(runner: Runner) -> None:
    keyboard, terminal = pty.openpty()
    process = await runner.start(WAITS, terminal=terminal)
    os.write(keyboard, b"\x03")
    assert await ended(process) == (9, b"INT\n")
    os.close(keyboard)
    os.close(terminal)
    assert load(runner.tape).streams


async def test_live_tapes_can_be_sealed_after_kill_9(runner: Runner) -> None:
    def live() -> list[Path]:
        payload = WORD.removeprefix(b"data: ").strip()
        tapes = (runner.folder / "tmp").glob("wiretape-record-*/live/*.tape")
        return [path for path in tapes if payload in path.read_bytes()]

    child = ASK.replace("for model in", "print('ready', flush=True)\nfor model in").replace(
        '"stream"', '"x": "endless", "stream"'
    )
    process = await runner.start(child)
    with trio.fail_after(30):
        while not live():  # noqa: ASYNC110 - another process writes it
            await trio.sleep(0.01)
    process.kill()
    await ended(process)
    sealed = runner.folder / "sealed.tape"
    command = [*WIRETAPE, "seal", str(live()[0]), "-o", str(sealed), "--exact"]
    done = await trio.run_process(command, check=False, capture_stderr=True)
    assert (done.returncode, done.stderr) == (0, b"")
    (records,) = load(sealed).streams
    assert b"".join(data for _, data in reads(records)) == WORD


ROUTE = Route(name="", targets=(Target(name="x", url="https://gateway.example.com/v1"),))
OPENAI = Route(name="", targets=(Target(name="x", url="https://api.openai.com/v1"),))
URL = "http://127.0.0.1:1"


def test_variables_follow_the_routes() -> None:
    both = base_urls(URL, {"": ROUTE})
    assert both["OPENAI_BASE_URL"] == both["OPENAI_API_BASE"] == f"{URL}/v1"
    assert both["ANTHROPIC_BASE_URL"] == both["ANTHROPIC_API_BASE"] == URL
    named = base_urls(URL, {"": OPENAI, "anthropic": ROUTE})
    assert (named["OPENAI_BASE_URL"], named["ANTHROPIC_BASE_URL"]) == (f"{URL}/v1", f"{URL}/anthropic")
    assert not any("ANTHROPIC" in name for name in base_urls(URL, {"": OPENAI})), "Anthropic keys never go to OpenAI"
    assert set(base_urls(URL, {"openai": ROUTE})) == {"OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_BASE_URL"}


def test_loopback_is_excluded_from_the_http_proxy() -> None:
    assert unproxied({"A": "b"}) == {"A": "b"}
    direct = unproxied({"HTTP_PROXY": "http://p:1", "no_proxy": "x.example.com"})
    assert direct["no_proxy"] == "x.example.com,127.0.0.1,localhost"
    assert direct["NO_PROXY"] == "127.0.0.1,localhost"
