"""`wiretape serve` as a process, and the reading verbs while it runs."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.failures.child import COMMAND, answered, asking, serving
from tests.proxy.store_cases import flat, stream_of
from tests.support.house import Peer, answer, text
from wiretape.events.tape.record import encode
from wiretape.proxy.cli.main import announcement, warn_of_missing_keys
from wiretape.proxy.config.model import Config, Key, Route, Secret, Target
from wiretape.proxy.config.urls import address_of

TARGET = Target(name="a.test/v1", url="https://a.test/v1")
PLAIN = Config(data=Path(), routes={"": Route(name="", targets=(TARGET,))})
OWN_KEY = Key("default", Secret("o" * 40))
BASE, BEARER = "http://127.0.0.1:1/v1", '-H "Authorization: Bearer $OPENAI_API_KEY"'


def routed(name: str = "", **target: Any) -> Config:
    return replace(PLAIN, routes={name: Route(name=name, targets=(replace(TARGET, **target),))})


async def run(*arguments: str | Path) -> subprocess.CompletedProcess[bytes]:
    with trio.fail_after(30):
        return await trio.run_process(
            [*COMMAND, *map(str, arguments)], capture_stdout=True, capture_stderr=True, check=False
        )


@pytest.mark.slow
async def test_live_stream_is_listed_and_followed_and_ends_at_shutdown(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, Peer(text("hi"), end="stall"), {"WIRETAPE_SHUTDOWN_DRAIN_S": "0"}) as child:
        client = await asking(child)
        (row,) = json.loads((await run("ls", "--live", "--json", "--data", data)).stdout)
        assert (row["live"], row["model"], row["ending"]) == (True, "m", None)

        command = [*COMMAND, "follow", row["id"][:8], "--data", str(data)]
        follower = await trio.lowlevel.open_process(command, stdout=subprocess.PIPE)
        assert follower.stdout is not None
        with trio.fail_after(30):
            assert await follower.stdout.receive_some(100) == b"hi"
            assert b"in use by another process" in (await run("reindex", "--data", data)).stderr
            child.signal(signal.SIGTERM)
            assert b'"error"' in await answered(client)
            assert b"".join([bytes(said) async for said in follower.stdout]) == b"\n[shutdown]\n"
            assert (await follower.wait(), (await child.exited(10))[0]) == (0, 0)
        await child.logged.wait()
        assert "\n".join([*child.lines, ""]) == announcement(child.url.removesuffix("/v1"), PLAIN)
        assert row["id"].encode() in child.log
        assert b"Traceback" not in child.log
    assert json.loads((await run("show", row["id"], "--json", "--data", data)).stdout)["ending"] == "shutdown"


@pytest.mark.parametrize(
    ("config", "said"),
    [
        pytest.param(PLAIN, [BASE, "", BEARER], id="the caller's key passes through"),
        pytest.param(replace(PLAIN, keys=(OWN_KEY,)), [BASE, 'OPENAI_API_KEY="$WIRETAPE_KEY"', BEARER], id="own key"),
        pytest.param(
            replace(PLAIN, keys=(OWN_KEY._replace(name="bob"),)), [BASE, "the Wiretape key of bob", BEARER], id="named"
        ),
        pytest.param(routed(key=Secret("k" * 40)), [BASE, "", ""], id="the upstream has a key of its own"),
        pytest.param(routed(key_header="api-key"), [BASE, "", '-H "api-key: $OPENAI_API_KEY"'], id="another header"),
        pytest.param(routed("azure"), ["http://127.0.0.1:1/azure/v1", "", BEARER], id="only a named route"),
    ],
)
def test_lines_to_copy_are_what_a_client_must_send(config: Config, said: list[str]) -> None:
    lines = announcement("http://127.0.0.1:1", config).splitlines()
    base, key, header = said
    assert lines[:2] == [base, f"export OPENAI_BASE_URL={base}"]
    assert key in lines[2] if key else len(lines) == 3
    assert lines[-1].startswith(f"curl -N {base}/chat/completions ")
    assert header in lines[-1]
    assert lines[-1].count("KEY") == bool(header)


@pytest.mark.parametrize(
    ("host", "shown"),
    [("0.0.0.0", "127.0.0.1"), ("::", "[::1]"), ("[::]", "[::1]"), ("::1", "[::1]"), ("me.test", "me.test")],  # noqa: S104
)
def test_an_address_that_no_client_can_connect_to_is_not_printed(host: str, shown: str) -> None:
    assert address_of(host, 1) == f"http://{shown}:1"


def test_an_upstream_that_gets_no_key_is_named_with_the_cure(capfd: pytest.CaptureFixture[str]) -> None:
    """With a key of Wiretape's own the caller's is not passed on, so the upstream needs one from us."""
    own, kept = replace(PLAIN, keys=(OWN_KEY,)), routed(caller_key=False)
    for config, warned in ((PLAIN, 0), (own, 1), (routed(key=Secret("k" * 40)), 0), (kept, 1)):
        warn_of_missing_keys(config)
        said = capfd.readouterr().err
        assert said.count("\n") == warned
        assert all(words in said for words in ("a.test/v1", "key_env", "WIRETAPE_UPSTREAM_KEY_ENV")) == bool(warned)


@pytest.mark.slow
async def test_lines_to_copy_work(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", answer(200, b'{"object":"list"}')) as child:
        _, export, curl = child.lines
        assert export == f"export OPENAI_BASE_URL={child.url}"
        assert curl.startswith(f"curl -N {child.url}/chat/completions ")
        models = partial(urllib.request.urlopen, f"{child.url}/models", timeout=10)
        with await trio.to_thread.run_sync(models) as listed:
            assert json.load(listed) == {"object": "list"}
        words = (await trio.run_process(["sh", "-c", f"printf '%s\\n' {curl}"], capture_stdout=True)).stdout
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


def test_the_driver_of_the_store_is_imported_by_a_store_alone(tmp_path: Path) -> None:
    """A process without the extra: nothing else misses it, and `--store` names it."""
    program = """import sys
sys.modules["psycopg"] = sys.modules["zstandard"] = None
import wiretape.proxy.serve, wiretape.proxy.cli.doctor
from wiretape.proxy.cli.main import main
main(["serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--store", "postgresql://u@h/d"])"""
    environ = {"HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environ, check=False)
    assert done.returncode == 2
    assert done.stderr == 'wiretape: store: needs the PostgreSQL driver: pip install "wiretape[postgres]"\n'
