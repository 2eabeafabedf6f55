"""`wiretape replay` and `wiretape cut`: one process with a port, and usage errors in process."""

import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.replay.dialects import ANSWERS, PATHS
from tests.replay.made import asked, sealed, stream
from wiretape.proxy.cli.main import main

pytestmark = pytest.mark.slow

#: Every connection and name look-up fails in the interpreter.
GUARDED = """
import sys
def guard(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        if event != "socket.getaddrinfo" or arguments[0] not in ("127.0.0.1", b"127.0.0.1"):
            raise SystemExit(f"GUARD: {event} {arguments[1:]}")
sys.addaudithook(guard)
from wiretape.proxy.cli.main import main
main(sys.argv[1:])
"""


class Heard(NamedTuple):
    """A response, and how it ended: `ended` properly, `cut`, `reset`, or `silent` beyond the timeout."""

    status: int
    headers: dict[str, str]
    body: bytes
    ending: str


def ask(port: int, body: bytes, path: str = "/v1/chat/completions", *, patience_s: float = 15.0) -> Heard:
    """Send one request and return what came."""
    status, headers, read = 0, dict[str, str](), list[bytes]()
    connection = HTTPConnection("127.0.0.1", port, timeout=patience_s)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            status, headers = response.status, {name.lower(): value for name, value in response.getheaders()}
            while data := response.read1(65_536):
                read.append(data)
            ending = "cut" if response.length else "ended"
    except TimeoutError:
        ending = "silent"
    except HTTPException:  # also a close before the head, which is a ConnectionResetError too
        ending = "cut"
    except ConnectionResetError:
        ending = "reset"
    finally:
        connection.close()
    return Heard(status, headers, b"".join(read), ending)


class Running:
    """A running replay, and its output."""

    def __init__(self, process: "subprocess.Popen[str]", announced: list[str]) -> None:
        self.announced = announced
        self.port = int(announced[0].rpartition(":")[2].removesuffix("/v1"))
        self.status: int | None = None
        self.lines: list[str] = []
        self.stopped_s = 0.0
        self._process = process

    def ask(self, text: str = "hi", dialect: str = "chat", **more: float) -> Heard:
        return ask(self.port, asked(text, dialect), PATHS[dialect], **more)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        began = time.monotonic()
        self._process.send_signal(how)
        _, said = self._process.communicate(timeout=20)
        self.stopped_s = time.monotonic() - began
        self.status, self.lines = self._process.returncode, said.splitlines()


@contextmanager
def replaying(*options: str | Path) -> Generator[Running]:
    process = subprocess.Popen(
        [sys.executable, "-c", GUARDED, "replay", *options, "--port", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        announced = [process.stdout.readline().rstrip() for _ in range(3)]
        assert announced[0], process.communicate()[1]
        yield Running(process, announced)
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[object, str, str]:
    """Run a command in this process; return its exit code, stdout and stderr."""
    with pytest.raises(SystemExit) as ended:
        main([*map(str, arguments)])
    said = capsys.readouterr()
    return ended.value.code, said.out, said.err


@pytest.fixture
def tape(tmp_path: Path) -> Path:
    path = tmp_path / "a.tape"
    path.write_bytes(sealed(*[stream(dialect=dialect) for dialect in ANSWERS]))
    return path


def test_a_recording_on_a_port(tape: Path) -> None:
    with replaying(tape) as replay:
        base = f"http://127.0.0.1:{replay.port}"
        assert replay.announced == [
            f"{base}/v1",
            f"export OPENAI_BASE_URL={base}/v1",
            f"export ANTHROPIC_BASE_URL={base}",
        ]
        for dialect in ("chat", "responses"):
            heard = replay.ask(dialect=dialect)
            assert (heard.status, heard.body, heard.ending) == (200, b"".join(ANSWERS[dialect]), "ended")
        missed = replay.ask("something else")
        replay.stop(signal.SIGTERM)
    assert missed.status == 599
    assert b"to record it: wiretape record --upstream URL -o " in missed.body
    assert [line.partition(" -> ")[0] for line in replay.lines[:2]] == [f"POST {PATHS[each]}" for each in ANSWERS][:2]
    assert "stream 1, which differs in" in replay.lines[2]
    assert replay.lines[3:] == [
        f"{tape}, stream 3 was not requested",
        "wiretape: 1 of 3 requests were not recorded",
    ]
    assert (replay.status, replay.stopped_s < 2) == (1, True)


def test_fault_and_match_options(tape: Path) -> None:
    options = ("--fault", "cut@tool:write_file#1", "--fault", "attempts=429/3,ok#2", "--fault", "stall@frame:2#3")
    with replaying(tape, *options, "--match", "position") as replay:
        first = replay.ask("other words")
        limited, second = replay.ask(dialect="responses"), replay.ask(dialect="responses")
        silent = replay.ask(dialect="messages", patience_s=0.5)
        replay.stop()
    assert (silent.ending, silent.body.count(b"data: "), replay.stopped_s < 2) == ("silent", 2, True)
    assert first.ending == "cut"
    assert b'"arguments":"{"' in first.body
    assert (limited.status, limited.headers["retry-after"]) == (429, "3")
    assert second.status == 200
    assert "the request differs" in replay.lines[0]


WRONG = {
    "--speed fast": (2, "--speed is instant, original or a factor such as 10, not fast"),
    "--fault cut": (2, "--fault: fault 'cut': cut takes a place, as in cut@frame:3"),
    "--match words": (2, "'words' is not one of 'key', 'position'"),
    "--host 0.0.0.0": (3, "0.0.0.0:8788: a replay listens on loopback alone"),
    "--max-gap -1": (2, "-1"),
}


@pytest.mark.parametrize("options", WRONG)
def test_usage_errors_are_one_line(options: str, tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, message = WRONG[options]
    done, out, err = run(capsys, "replay", tape, *options.split())
    assert (done, out, err.count("\n")) == (code, "", 1)
    assert message in err


def test_missing_and_broken_tapes_are_one_line(tmp_path: Path, tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, broken, out = (tmp_path / f"{name}.tape" for name in ("missing", "broken", "out"))
    broken.write_bytes(b"{}\n")
    for path in (missing, broken):
        for verb in (("replay", path), ("cut", path, "--after", "frame:1", "-o", out)):
            code, _, err = run(capsys, *verb)
            assert (code, err.count("\n")) == (3, 1)
            assert path.name in err
    code, _, err = run(capsys, "cut", tape, "--after", "frame", "-o", out)
    assert code == 2
    assert err.startswith("wiretape: --after frame: 'frame' is not a place, as in start, end, finish, done, frame:3,")
    assert err.count("\n") == 1
    assert not out.exists()


def test_a_taken_port_is_one_line(tape: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, _, err = run(capsys, "replay", tape, "--port", str(port))
    assert (code, err) == (3, f"wiretape: 127.0.0.1:{port}: Address already in use\n")
