"""`wiretape record`: the command finds the proxy, receives the upstream's bytes, and all streams are on one tape."""

import os
import pty
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import trio
from typer.testing import CliRunner

from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads
from wiretape.proxy.cli.main import app
from wiretape.proxy.config.model import Route, Target
from wiretape.replay.cli.recording import CLIENTS, base_urls, recorded, unproxied
from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream, json_answer
from wiretape.replay.playback.server import listening
from wiretape.replay.sealed.files import load

pytestmark = pytest.mark.slow

RECORD = (sys.executable, "-m", "wiretape.proxy.cli.main", "record")
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
import http.client, os, urllib.parse
base = urllib.parse.urlsplit(os.environ["OPENAI_BASE_URL"])
connection = http.client.HTTPConnection(base.netloc)
connection.request("POST", base.path + "/chat/completions", '{"stream":true}', {"Content-Type": "application/json"})
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


async def record(
    folder: Path,
    *command: str,
    upstream: str | None = None,
    options: Sequence[str] = (),
    stdin: bytes = b"",
    exact: bool = True,
) -> Done:
    """Run `wiretape record` with temporary folders below this one."""
    (folder / "tmp").mkdir(exist_ok=True)
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder / "tmp"), "LANG": "C.UTF-8"}
    tape = folder / "run.tape"
    where = [] if upstream is None else ["--upstream", upstream]
    words = [*RECORD, *where, "-o", str(tape), *(["--exact"] if exact else []), *options, "--", *command]
    with trio.fail_after(60):
        process = await trio.run_process(
            words, env=env, cwd=folder, stdin=stdin, capture_stdout=True, capture_stderr=True, check=False
        )
    return Done(process, tape)


def left(folder: Path) -> list[Path]:
    return list((folder / "tmp").iterdir())


async def test_streams_are_on_one_tape_in_order_and_the_command_gets_the_bytes(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, seen):
        done = await record(tmp_path, sys.executable, "-c", ASK, "text", "busy", "text", upstream=upstream)
    assert (done.code, done.endings) == (0, ["completed", "upstream_error", "completed"])
    assert done.out == b"".join(TEXT) + b'{"error":{"message":"slow down"}}' + b"".join(TEXT)
    assert b"".join(data for _, data in reads(done.streams[0])) == b"".join(TEXT)
    assert len(seen.seen) == 3, "a refused request is sent once"
    assert done.messages.splitlines()[-1].endswith("run.tape: 3 streams (2 completed, 1 upstream_error)")
    assert left(tmp_path) == []


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
REASONS = (
    "3 requests were refused by the proxy: 1 with 415 Unsupported Media Type (a chat request without Content-Type "
    "application/json), 2 with 421 Misdirected Request (the Host is not this machine: see the setting `hosts`)"
)


async def test_refused_requests_are_reported_with_the_reason(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, seen):
        none = await record(tmp_path, sys.executable, "-c", REFUSED, upstream=upstream)
        assert len(seen.seen) == 0
        one = await record(tmp_path, sys.executable, "-c", REFUSED, "one", upstream=upstream)
    assert (none.code, none.messages.splitlines()[-1]) == (1, f"wiretape: nothing was recorded: {REASONS}")
    assert (one.code, one.endings) == (0, ["completed"])
    assert one.messages.splitlines()[-1].endswith(f"run.tape: 1 stream (1 completed); {REASONS}")


async def test_recording_twice_changes_only_the_clock(tmp_path: Path) -> None:
    files: list[list[bytes]] = []
    upstreams: set[str] = set()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        async with listening(answer) as (upstream, _):
            upstreams.add(upstream)
            done = await record(
                tmp_path / name, sys.executable, "-c", ASK, "text", "busy", upstream=upstream, exact=False
            )
        assert done.code == 0
        lines = next((tmp_path / name).glob("*.tape")).read_bytes().splitlines()
        files.append([line for line in lines if not line.startswith(b'{"k":"clock"')])
    assert len(upstreams) == 2
    assert files[0] == files[1]
    assert sum(line.startswith(b'{"k":"attempt"') for line in files[0]) == 2


async def test_reset_upstream_is_recorded_as_reset(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, _):
        done = await record(tmp_path, sys.executable, "-c", ASK, "cut", upstream=upstream)
    assert (done.code, done.endings) == (0, ["reset"])
    assert b"".join(data for _, data in reads(done.streams[0])) == b"".join(TEXT[:2])


@pytest.mark.parametrize(("options", "ending"), [((), "completed"), (("--on-client-gone=cancel",), "client_gone")])
async def test_abandoned_stream_is_recorded_to_its_end_by_default(
    tmp_path: Path, options: tuple[str, ...], ending: str
) -> None:
    async with listening(answer) as (upstream, _):
        done = await record(tmp_path, sys.executable, "-c", LEAVE, upstream=upstream, options=options)
    assert (done.code, done.endings) == (0, [ending])


async def test_exit_code_and_stdin_are_the_commands_own(tmp_path: Path) -> None:
    child = ASK + "\nsys.stdout.buffer.write(sys.stdin.buffer.read()); sys.exit(7)"
    async with listening(answer) as (upstream, _):
        done = await record(tmp_path, sys.executable, "-c", child, "text", upstream=upstream, stdin=b"in\n")
    assert (done.code, done.endings) == (7, ["completed"])
    assert done.out.endswith(b"in\n")


async def test_upstream_and_profile_come_from_the_configuration(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, _):
        (tmp_path / "wiretape.toml").write_text(f'upstream = "{upstream}"\ndurability = "none"\nprofile = "strict"\n')
        done = await record(tmp_path, sys.executable, "-c", ASK, "cut")
    assert done.code == 0
    assert b'"error"' in done.out, "the strict profile reports the cut in the stream"


async def test_data_folder_keeps_live_tapes_and_only_this_run_is_sealed(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, _):
        for _ in range(2):
            options = ["--data", str(tmp_path / "kept")]
            done = await record(tmp_path, sys.executable, "-c", ASK, "text", upstream=upstream, options=options)
            assert done.endings == ["completed"]
    assert len(list((tmp_path / "kept").glob("*/*.tape"))) == 2


CANARY = "sk-proj-canaryPastedIntoAPrompt0123456789abcdefABCDEF"


async def test_key_in_a_prompt_is_redacted_and_exact_is_refused(tmp_path: Path) -> None:
    child = ASK.replace('"?"', f'"my key is {CANARY}"')
    async with listening(answer) as (upstream, _):
        refused = await record(tmp_path, sys.executable, "-c", child, "text", upstream=upstream)
        plainly = await record(tmp_path, sys.executable, "-c", child, "text", upstream=upstream, exact=False)
    assert (refused.code, refused.endings) == (3, [])
    assert "not sealed; the live tapes stay in" in refused.messages
    assert CANARY not in refused.messages
    assert (plainly.code, plainly.endings) == (0, ["completed"])
    assert CANARY.encode() not in (tmp_path / "run.tape").read_bytes()
    assert len(left(tmp_path)) == 1, "a run that was not sealed keeps its folder"


def test_damaged_tape_does_not_affect_others(tmp_path: Path) -> None:
    whole = next(iter(sorted((Path(__file__).parents[2] / "fixtures/format-1").glob("*.tape")))).read_bytes()
    lines = whole.splitlines(keepends=True)
    (tmp_path / "day").mkdir()
    (tmp_path / "day/a.tape").write_bytes(whole)
    (tmp_path / "day/b.tape").write_bytes(b"".join(lines[:3] + lines[5:]))
    streams, damaged = recorded(tmp_path)
    assert len(streams) == len(damaged) == 1
    assert "b.tape" in damaged[0]
    assert recorded(tmp_path, frozenset({"a", "b"})) == ([], [])


async def test_failures_have_exit_codes_and_one_line(tmp_path: Path) -> None:
    async with listening(answer) as (upstream, _):
        nothing = await record(tmp_path, "true", upstream=upstream)
        failed = await record(tmp_path, "sh", "-c", "exit 5", upstream=upstream)
        absent = await record(tmp_path, "no-such-command", upstream=upstream)
        port = upstream.removesuffix("/v1").rpartition(":")[2]
        taken = await record(tmp_path, "true", upstream="https://api.example.com/v1", options=["--port", port])
    nowhere = await record(tmp_path, "true")
    empty = await record(tmp_path, upstream="https://api.example.com/v1")
    strange = await record(tmp_path, "true", options=["--ide-s=5"])
    runs = (nothing, failed, absent, taken, nowhere, empty, strange)
    assert [done.code for done in runs] == [1, 5, 3, 3, 2, 2, 2]
    messages = (*["nothing was recorded"] * 2, "no-such-command cannot be run", "in use", "no upstream",
            "no command", "did you mean --idle-s")  # fmt: skip
    for done, words in zip(runs, messages, strict=True):
        assert words in done.messages.splitlines()[-1]
        assert not done.streams
    assert left(tmp_path) == []


async def test_stream_that_outlives_the_command_ends_as_shutdown(tmp_path: Path) -> None:
    grandchild = f"{sys.executable} -c '{ASK}' endless >/dev/null 2>&1 & sleep 0.7"
    async with listening(answer) as (upstream, _):
        done = await record(tmp_path, "sh", "-c", grandchild, upstream=upstream, options=["--shutdown-drain-s=0.2"])
    assert done.endings == ["shutdown"]


def _started(folder: Path, upstream: str, child: str, *, terminal: int | None = None) -> subprocess.Popen[bytes]:
    """Start a run whose command prints `ready` and waits."""
    env = {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder), "LANG": "C.UTF-8"}
    words = [*RECORD, "--upstream", upstream, "-o", str(folder / "run.tape"), "--", sys.executable, "-c", child, "text"]
    if terminal is None:
        return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)
    controlled = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
    )
    return subprocess.Popen(
        [sys.executable, "-c", controlled, *words],
        env=env, stdin=terminal, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip


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


async def _until(process: "subprocess.Popen[bytes]", word: bytes) -> bytes:
    assert process.stdout is not None
    said = b""
    while word not in said:
        more = await trio.to_thread.run_sync(process.stdout.readline)
        assert more, process.communicate()[1].decode()
        said += more
    return said


@pytest.mark.parametrize(("number", "word"), [(signal.SIGTERM, b"TERM\n"), (signal.SIGINT, b"INT\n")])
async def test_signals_reach_the_command_and_the_recording_is_sealed(
    tmp_path: Path, number: signal.Signals, word: bytes
) -> None:
    async with listening(answer) as (upstream, _):
        process = _started(tmp_path, upstream, WAITS)
        await _until(process, b"ready")
        process.send_signal(number)
        out, _ = await trio.to_thread.run_sync(process.communicate)
    assert (process.returncode, out) == (9, word)
    assert [records[-1].keys["ending"] for records in load(tmp_path / "run.tape").streams] == ["completed"]


async def test_signal_after_the_command_ends_the_wait_for_its_streams(tmp_path: Path) -> None:
    grandchild = f"import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', {ASK!r}, 'endless'])\n"
    child = grandchild + "time.sleep(0.7)\nprint('ready', flush=True)"
    async with listening(answer) as (upstream, _):
        process = _started(tmp_path, upstream, child)
        await _until(process, b"ready")
        await trio.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        with trio.fail_after(15):
            await trio.to_thread.run_sync(process.communicate)
    assert process.returncode == 0
    assert [records[-1].keys["ending"] for records in load(tmp_path / "run.tape").streams] == ["shutdown"]


async def test_ctrl_c_at_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    keyboard, terminal = pty.openpty()
    async with listening(answer) as (upstream, _):
        process = _started(tmp_path, upstream, WAITS, terminal=terminal)
        await _until(process, b"ready")
        os.write(keyboard, b"\x03")
        out, _ = await trio.to_thread.run_sync(process.communicate)
    os.close(keyboard)
    os.close(terminal)
    assert (process.returncode, out) == (9, b"INT\n")
    assert load(tmp_path / "run.tape").streams


def _live(folder: Path, word: bytes) -> list[Path]:
    """Return the tapes of running streams that contain this frame."""
    payload = word.removeprefix(b"data: ").strip()
    return [path for path in folder.glob("wiretape-record-*/live/*.tape") if payload in path.read_bytes()]


async def test_live_tapes_can_be_sealed_after_kill_9(tmp_path: Path) -> None:
    child = ASK.replace("for model in", "print('ready', flush=True)\nfor model in").replace(
        '"stream"', '"x": "endless", "stream"'
    )
    async with listening(answer) as (upstream, seen):
        process = _started(tmp_path, upstream, child)
        await _until(process, b"ready")
        with trio.fail_after(30):
            while not seen.seen or not seen.seen[0].pieces or not _live(tmp_path, WORD):  # noqa: ASYNC110 - another process writes it
                await trio.sleep(0.01)
        process.kill()
        await trio.to_thread.run_sync(process.communicate)
    (live,) = _live(tmp_path, WORD)
    sealed = tmp_path / "sealed.tape"
    command = [sys.executable, "-m", "wiretape.proxy.cli.main", "seal", str(live), "-o", str(sealed), "--exact"]
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


def test_snippets_name_the_address() -> None:
    for client, snippet in CLIENTS.items():
        assert ("URL/v1" in snippet.text) is (client != "claude-code")


def test_print_config_fills_in_the_port() -> None:
    done = CliRunner().invoke(app, ["record", "--print-config", "codex", "--port", "4321"])
    assert done.exit_code == 0
    assert 'base_url = "http://127.0.0.1:4321/v1"' in done.stdout
    assert "wiretape record --port 4321 -- codex exec" in done.stderr
