"""Real processes: how the proxy stops, what clients get, and what it leaves on the disk."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.failures.child import COMMAND, Child, answered, asking, ended_tapes, endless, serving
from tests.proxy.scripted import reset
from tests.support.house import DONE, Peer, at_once, finish, post, role, text

pytestmark = pytest.mark.slow


def endings(root: Path) -> list[str]:
    return [records[-1].keys["ending"] for records in ended_tapes(root)]


@pytest.mark.case("P01")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_running_streams_are_drained_and_then_ended_as_shutdown(tmp_path: Path, number: signal.Signals) -> None:
    async with serving(tmp_path / "data", endless(), {"WIRETAPE_SHUTDOWN_DRAIN_S": "1"}) as child:
        clients = [await asking(child) for _ in range(3)]
        idle = await child.connect()
        child.signal(number)
        with trio.fail_after(5):
            assert await idle.receive_some() == b""  # idle connections end at once, while streams still run
        assert b'"code":"shutdown"' not in await clients[0].receive_some()
        refusing = await _ask(child)
        bodies: list[bytes] = []

        async def rest(client: trio.SocketStream) -> None:
            bodies.append(await answered(client))

        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(rest, client)
            code, after_s = await child.exited(6)
        assert code == 0
        assert 0.5 <= after_s <= 4
        assert refusing in (b"", b"503")
        for body in bodies:
            assert b'"code":"shutdown"' in body
            assert b"[DONE]" not in body
            assert body.endswith(b"0\r\n\r\n")
        assert endings(child.data) == ["shutdown"] * 3


async def _ask(child: Child) -> bytes:
    """The status of a new request while it stops; nothing where no connection is taken."""
    try:
        stream = await child.connect()
        await stream.send_all(post().replace(b":8787", b":%d" % child.port))
        return bytes(await stream.receive_some()).split(b" ")[1]
    except (OSError, trio.BrokenResourceError, IndexError):
        return b""


@pytest.mark.case("P01")
async def test_stream_that_ends_during_the_drain_is_complete(tmp_path: Path) -> None:
    script = Peer(role(), text("hi"), finish(), DONE, every_s=0.4)
    async with serving(tmp_path / "data", script, {"WIRETAPE_SHUTDOWN_DRAIN_S": "20"}) as child:
        client = await asking(child)
        child.signal(signal.SIGTERM)
        body = await answered(client)
        assert b"[DONE]" in body
        code, _ = await child.exited(3)  # it does not wait for the limit
        assert (code, endings(child.data)) == (0, ["completed"])


@pytest.mark.case("P01")
async def test_idle_proxy_stops_at_once(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", endless()) as child:
        child.signal(signal.SIGTERM)
        code, after_s = await child.exited(3)
        assert code == 0
        assert after_s < 1.5


@pytest.mark.case("P01", "C09")
async def test_body_that_completes_during_shutdown_starts_no_stream(tmp_path: Path) -> None:
    """It was let in before the signal, and would have been waited for without end."""
    async with serving(tmp_path / "data", endless(), {"WIRETAPE_SHUTDOWN_DRAIN_S": "1"}) as child:
        running = await asking(child)
        late = await child.connect()
        data = post().replace(b":8787", b":%d" % child.port)
        await late.send_all(data[:-5])
        await trio.sleep(0.2)
        child.signal(signal.SIGTERM)
        await trio.sleep(0.2)
        await late.send_all(data[-5:])
        assert b" 503 " in await answered(late)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answered, running)
            code, _ = await child.exited(6)
        assert (code, endings(child.data)) == (0, ["shutdown"])


@pytest.mark.case("P02")
async def test_client_that_reads_nothing_does_not_delay_shutdown(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", endless(0), {"WIRETAPE_SHUTDOWN_DRAIN_S": "1"}) as child:
        stalled = await asking(child, buffer=4_096)
        await trio.sleep(1)
        child.signal(signal.SIGTERM)
        code, after_s = await child.exited(7)
        assert code == 0
        assert after_s <= 1 + 5
        assert endings(child.data) == ["shutdown"]
        await stalled.aclose()


@pytest.mark.case("P03")
@pytest.mark.parametrize("stalls", [False, True], ids=["readers that read", "a reader that stalls"])
async def test_second_signal_stops_within_a_second(tmp_path: Path, stalls: bool) -> None:
    async with serving(tmp_path / "data", endless(0.01), {"WIRETAPE_SHUTDOWN_DRAIN_S": "30"}) as child:
        clients = [await asking(child, buffer=4_096 if stalls else 0) for _ in range(3)]
        await trio.sleep(0.5)
        child.signal(signal.SIGTERM)
        await trio.sleep(0.5)
        child.signal(signal.SIGINT)
        code, after_s = await child.exited(3)
        assert code == 0
        assert after_s <= 1.5  # one, and what a busy machine adds to it
        assert endings(child.data) == ["shutdown"] * 3
        for client in clients:
            await client.aclose()


@pytest.mark.case("C02", "C03")
async def test_real_reset_closes_the_upstream_each_time(tmp_path: Path) -> None:
    left: list[float] = []
    after_s: list[float] = []

    async def script(stream: trio.abc.Stream) -> None:
        try:
            await endless(0.01)(stream)
        finally:
            left.append(trio.current_time())

    async with serving(tmp_path / "data", script) as child:
        for number in range(5):
            client = await asking(child)
            await client.receive_some()
            gone = trio.current_time()
            reset(client)
            with trio.fail_after(5):
                while len(left) <= number:  # noqa: ASYNC110 - the clock of another process
                    await trio.sleep(0.002)
            after_s.append(left[number] - gone)
        assert min(after_s) < 0.3  # 50 ms on a quiet machine; what a busy one adds, it does not add each time
        await child.stop()
        assert endings(child.data) == ["client_gone"] * 5


@pytest.mark.case("P17")
async def test_stopped_process_continues_where_it_was(tmp_path: Path) -> None:
    """Three seconds against an idle limit of two: what came meanwhile was there before the clock said so."""

    async def goes_on(client: trio.SocketStream) -> None:
        with trio.fail_after(10):
            data = b""
            while data.count(b"word") < 10:
                data += await client.receive_some()
            assert b"error" not in data

    environment = {"WIRETAPE_IDLE_S": "2", "WIRETAPE_FIRST_BYTE_S": "2", "WIRETAPE_SHUTDOWN_DRAIN_S": "0"}
    async with serving(tmp_path / "data", endless(0.05), environment) as child:
        clients = [await asking(child) for _ in range(5)]
        child.signal(signal.SIGSTOP)
        await trio.sleep(3)
        child.signal(signal.SIGCONT)
        async with trio.open_nursery() as nursery:
            for client in clients:
                nursery.start_soon(goes_on, client)
        await child.stop(*clients)
        assert endings(child.data) == ["shutdown"] * 5


@pytest.mark.case("P18", "P08")
@pytest.mark.parametrize("wrong", ["a word", "a number", "no upstream", "a file for a folder", "a public host"])
def test_startup_failure_is_one_line_and_an_exit_code(tmp_path: Path, wrong: str) -> None:
    environment: dict[str, str] = {}
    given = ["--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", str(tmp_path / "data")]
    match wrong:
        case "a word":
            environment["WIRETAPE_ON_PARTIAL"] = "perhaps"
        case "a number":
            environment["WIRETAPE_IDLE_S"] = "soon"
        case "no upstream":
            given = given[2:]
        case "a file for a folder":
            (tmp_path / "data").write_text("")
        case _:
            given += ["--host", "0.0.0.0"]  # noqa: S104 - is refused
    done = subprocess.run(
        [*COMMAND, "serve", *given],
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, **environment},
        check=False,
        timeout=30,
    )
    assert done.returncode not in (0, 1)
    assert done.stdout == b""
    lines = done.stderr.decode().strip().splitlines()
    assert "Traceback" not in done.stderr.decode()
    assert lines
    assert len(lines) == 1 or wrong == "a public host"  # which prints a key to copy


@pytest.mark.case("P15", "P18")
async def test_second_proxy_on_the_same_folder_does_not_start(tmp_path: Path) -> None:
    async with serving(tmp_path / "data", endless(), {"WIRETAPE_SHUTDOWN_DRAIN_S": "0"}) as child:
        client = await asking(child)
        given = ["serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", str(child.data)]
        done = await trio.run_process([*COMMAND, *given], capture_stdout=True, capture_stderr=True, check=False)
        assert (done.returncode, done.stdout) == (3, b"")
        assert b"in use by another process" in done.stderr
        assert done.stderr.count(b"\n") == 1
        with trio.fail_after(1):
            assert b"word" in await client.receive_some()
        await child.stop(client)
        assert endings(child.data) == ["shutdown"]


@pytest.mark.case("P19")
@pytest.mark.parametrize("how", ["closed", "full"])
async def test_full_stderr_blocks_nothing(tmp_path: Path, how: str) -> None:
    cut = at_once(role(), text("hi"))  # one warning each
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    if how == "full":
        while True:
            try:
                os.write(writing, b"x" * 4_096)
            except BlockingIOError:
                break
        os.set_blocking(writing, True)
    before = ["sh", "-c", 'exec "$@" 2>&-', "sh"] if how == "closed" else []
    try:
        async with serving(tmp_path / "data", cut, stderr=writing, before=before) as child:
            for _ in range(60):
                stream = await child.connect()
                request = post().replace(b":8787", b":%d" % child.port)
                await stream.send_all(request)
                got = b""
                with trio.fail_after(5):
                    while not got.endswith(b"0\r\n\r\n"):
                        data = await stream.receive_some()
                        assert data
                        got += data
                assert b'"code":"truncated"' in got
                await stream.aclose()
            child.signal(signal.SIGTERM)
            code, after_s = await child.exited(5)
            assert code == 0
            assert after_s < 3
        assert endings(child.data) == ["truncated"] * 60
    finally:
        os.close(reading)
        os.close(writing)


LIMITED = """
import os, resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[1])))
os.execv(sys.argv[2], sys.argv[2:])
"""


@pytest.mark.case("P10")
async def test_new_streams_are_refused_before_descriptors_run_out(tmp_path: Path) -> None:
    """118 descriptors are room for ten streams; connections that only lie there make way for those that ask."""
    before = [sys.executable, "-c", LIMITED, "118"]
    async with serving(tmp_path / "data", endless(0.2), {"WIRETAPE_SHUTDOWN_DRAIN_S": "0"}, before=before) as child:
        clients = [await asking(child) for _ in range(10)]
        assert [await _ask(child) for _ in range(5)] == [b"503"] * 5
        crowd = [await child.connect() for _ in range(150)]
        await trio.sleep(2.5)
        for client in clients:  # those that run go on
            with trio.fail_after(2):
                assert b"word" in await client.receive_some()
        for each in crowd:
            await each.aclose()
        await trio.sleep(0.5)
        await clients.pop().aclose()
        await trio.sleep(0.5)
        clients.append(await asking(child))  # and there is room again
        await child.stop(*clients)
        lines: list[Any] = [json.loads(line) for line in child.log.splitlines()]
        complaints = [line for line in lines if "accept" in str(line)]
        assert len(complaints) <= 5
        assert sorted(endings(child.data)) == ["client_gone", *["shutdown"] * 10]
