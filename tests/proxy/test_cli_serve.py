"""`wiretape serve` as a process, and the reading verbs while it runs."""

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import pytest
import trio

from tests.proxy.store_cases import flat, stream_of
from wiretape.events.tape.record import encode
from wiretape.proxy.cli.main import announcement
from wiretape.replay.playback.script import Fault, Request, Script, event_stream, json_answer
from wiretape.replay.playback.server import listening

COMMAND = [sys.executable, "-m", "wiretape.proxy.cli.main"]
FRAME = b'data: {"id":"1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}\n\n'
SAYS_HI = FRAME % b'{"index":0,"delta":{"role":"assistant","content":"hi"},"finish_reason":null}'


@contextmanager
def upstream() -> Generator[str]:
    """Run an upstream in a thread that sends `hi` and then nothing."""
    said: Queue[tuple[str, trio.lowlevel.TrioToken, trio.CancelScope]] = Queue()

    def choose(request: Request) -> Script:
        if request.method == b"GET":
            return json_answer(b'{"object":"list","data":[]}')
        return event_stream([SAYS_HI], end=Fault.STALL)

    async def serve() -> None:
        with trio.CancelScope() as scope:
            async with listening(choose) as (url, _):
                said.put((url, trio.lowlevel.current_trio_token(), scope))
                await trio.sleep_forever()

    thread = threading.Thread(target=trio.run, args=(serve,))
    thread.start()
    url, token, scope = said.get(timeout=10)
    try:
        yield url
    finally:
        token.run_sync_soon(scope.cancel)
        thread.join()


@contextmanager
def served(url: str, data: Path, *options: str) -> Generator[tuple[subprocess.Popen[str], str, str]]:
    """Run the server; yield the process, its base URL and its first lines."""
    process = subprocess.Popen(
        [*COMMAND, "serve", "--upstream", url, "--port", "0", "--data", data, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        lines = [process.stdout.readline() for _ in range(3)]
        yield process, lines[0].strip(), "".join(lines)
    finally:
        process.kill()
        process.communicate()


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=30)


def posted(base: str) -> urllib.request.Request:
    body = json.dumps({"model": "m", "stream": True, "messages": []}).encode()
    return urllib.request.Request(  # noqa: S310 - our own address
        f"{base}/chat/completions", body, {"Content-Type": "application/json"}
    )


@pytest.mark.slow
def test_live_stream_is_listed_and_followed_and_ends_at_shutdown(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with upstream() as url, served(url, data, "--shutdown-drain-s", "0") as (process, base, lines):
        with urllib.request.urlopen(posted(base), timeout=10) as answer:  # noqa: S310
            assert b'"hi"' in answer.readline()
            (row,) = json.loads(run("ls", "--live", "--json", "--data", data).stdout)
            assert (row["live"], row["model"], row["ending"]) == (True, "m", None)

            follower = subprocess.Popen([*COMMAND, "follow", row["id"][:8], "--data", data], stdout=subprocess.PIPE)
            assert follower.stdout is not None
            assert os.read(follower.stdout.fileno(), 100) == b"hi"

            assert "in use by another process" in run("reindex", "--data", data).stderr
            process.send_signal(signal.SIGTERM)
            rest = answer.read()
        assert follower.communicate(timeout=10)[0] == b"\n[shutdown]\n"
        assert follower.returncode == 0
        out, err = process.communicate(timeout=10)
        assert (process.returncode, out) == (0, ""), err
    assert b'"error"' in rest
    assert lines == announcement(base.removesuffix("/v1"))
    assert row["id"] in err
    assert "Traceback" not in err
    assert json.loads(run("show", row["id"], "--json", "--data", data).stdout)["ending"] == "shutdown"


@pytest.mark.slow
def test_lines_to_copy_work(tmp_path: Path) -> None:
    with upstream() as url, served(url, tmp_path / "data") as (_, base, lines):
        _, export, curl = lines.splitlines()
        assert export == f"export OPENAI_BASE_URL={base}"
        assert curl.startswith(f"curl -N {base}/chat/completions ")
        with urllib.request.urlopen(f"{base}/models", timeout=10) as answer:  # noqa: S310
            assert json.load(answer)["object"] == "list"
        words = subprocess.run(
            ["sh", "-c", f"printf '%s\\n' {curl}"], capture_output=True, text=True, check=True
        ).stdout
        assert json.loads(words.splitlines()[-1])["stream"] is True


@pytest.mark.slow
def test_python_without_assertions_is_refused() -> None:
    done = subprocess.run([sys.executable, "-O", *COMMAND[1:], "ls"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("wiretape: python -O removes the assertions")
    assert done.stderr.count("\n") == 1


def shell(script: str, *arguments: str | Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run a shell script in which "$@" is the command with these arguments."""
    words = ["sh", "-c", script, "sh", *COMMAND, *arguments]
    return subprocess.run(
        words, capture_output=True, text=True, check=False, timeout=30, env={**os.environ, **environ}, encoding="utf-8"
    )


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["ls", "--json"], ["show", "s1", "--tape"]], ids=" ".join)
def test_closed_stdout_is_not_an_error(verb: list[str], tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    (tmp_path / "live/s1.tape").write_bytes(b"".join(encode(record) for record in flat(stream_of("s1"))))
    for closed in (">&-", ">&- <&-", "| true"):
        done = shell(f'"$@" {closed}', *verb, "--data", tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["", "> /dev/full"], ids=["left", "full"])
def test_server_runs_without_a_reader_of_stdout(reader: str, tmp_path: Path) -> None:
    """`wiretape serve | true` used to end at once, with exit code 0 and no message."""
    arguments = ["--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", str(tmp_path / "data")]
    words = ["sh", "-c", f'exec "$@" {reader}', "sh", *COMMAND, "serve", *arguments]
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert process.stderr is not None
    line = process.stderr.readline()
    try:
        said = json.loads(line)
        assert said["event"] == "not_announced"
        with urllib.request.urlopen(f"{said['url']}/wiretape/healthz", timeout=10) as answer:  # noqa: S310
            assert json.load(answer) == {"alive": True}
    finally:
        process.terminate()
        rest = process.communicate(timeout=10)[1]
    assert (process.returncode, "Traceback" in line + rest) == (0, False)


@pytest.mark.slow
def test_console_that_lacks_a_character_gets_an_escape(tmp_path: Path) -> None:
    console = {"LC_ALL": "C", "PYTHONUTF8": "0"}
    (tmp_path / "live").mkdir()
    tape = b"".join(encode(record) for record in flat(stream_of("s1", model="caf\u00e9", end=False)))
    (tmp_path / "live/s1.tape").write_bytes(tape)
    said = shell('"$@"', "show", "s1", "--data", tmp_path, **console)
    assert (said.returncode, said.stderr) == (0, "")
    assert r"caf\xe9" in said.stdout
    for verb in (["show", "s1"], ["ls"]):
        asked = shell('"$@"', *verb, "--json", "--data", tmp_path, **console)
        assert r"caf\u00e9" in asked.stdout, "JSON has its own escape"
        assert json.loads(asked.stdout)


@pytest.mark.slow
def test_full_disk_during_reindex_is_one_error_line(tmp_path: Path) -> None:
    (tmp_path / "live").mkdir()
    done = shell('ulimit -f 1; "$@"', "reindex", "--data", tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith(f"wiretape: the catalogue of {tmp_path} cannot be written: ")
