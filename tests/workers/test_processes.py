"""Real workers on one port: what a kill leaves, how they stop, and what keeps them from starting."""

import os
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import trio

from tests.failures.child import COMMAND, Child, answered, endless, serving
from tests.support.house import post
from tests.workers.team import number_of, sent, whole
from wiretape.events.emit import emit
from wiretape.proxy.http1 import Dechunker
from wiretape.proxy.store.folder import folders_in, holder
from wiretape.proxy.store.tape_file import records_of

pytestmark = pytest.mark.slow

TWO = {"WIRETAPE_WORKERS": "2", "WIRETAPE_SHUTDOWN_DRAIN_S": "0"}


def pid_of(data: Path, number: int) -> int:
    """The process that holds the folder of a worker, 0 if none does."""
    return int((data / f"w{number}" / "lock").read_text() or 0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what another process does."""
    with trio.fail_after(20):
        while not condition():  # noqa: ASYNC110 - it happens in another process
            await trio.sleep(0.02)


async def streams_of_both(child: Child) -> dict[int, tuple[str, trio.SocketStream, bytes]]:
    """For each worker a stream that runs, its client, and what that has got of its body."""
    found: dict[int, tuple[str, trio.SocketStream, bytes]] = {}
    with trio.fail_after(20):
        while len(found) < 2:
            client, got = await child.connect(), b""
            await client.send_all(post().replace(b":8787", b":%d" % child.port))
            while b"\r\n\r\n" not in got:
                got += await client.receive_some()
            head, _, body = got.partition(b"\r\n\r\n")
            stream = head.lower().partition(b"x-wiretape-stream: ")[2][:32].decode()
            found[number_of(stream)] = stream, client, body
    return found


async def test_a_killed_worker_loses_nothing_delivered_and_no_stream_of_the_other(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, endless(0.01), TWO) as child:
        (killed, client, begun), (_, other, _) = (await streams_of_both(child)).values()
        number = number_of(killed)
        pid, path = pid_of(data, number), f"/wiretape/streams/{killed}/events"
        await trio.sleep(0.3)
        os.kill(pid, signal.SIGKILL)
        followers = [await sent(child.port, "GET", path) for _ in range(6)]  # at once, of both workers
        body = Dechunker()
        body.feed(begun + (await answered(client)).removesuffix(b"<reset>"))
        delivered = b"".join(body.parts)
        bodies = {(await whole(follower)).body for follower in followers}
        assert len(bodies) == 1
        [tape] = data.glob(f"w{number}/2*/{killed}.tape")
        records = [*records_of(tape)]
        assert emit(records).startswith(delivered)
        assert delivered.count(b"word ") > 10
        assert bodies.pop().count(b'"word "') == b"".join(record.raw or b"" for record in records).count(b'"word "')
        assert records[-1].keys["ending"] == "crashed"
        assert b"word " in await other.receive_some()  # goes on
        await until(lambda: pid_of(data, number) not in (0, pid))
        await child.stop(other)
    assert b'"event": "worker_ended", "worker": %d, "code": -9' % number in child.log
    assert not [*data.glob("w*/live/*")]


async def test_workers_end_with_their_parent_and_streams_get_their_ending(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with serving(data, endless(), {"WIRETAPE_WORKERS": "2"}) as child:  # which would drain for 30 s
        streams = await streams_of_both(child)
        pids = [pid_of(data, number) for number in (0, 1)]
        child.signal(signal.SIGKILL)
        for _, client, _ in streams.values():
            assert b'"code":"shutdown"' in await answered(client)
        await until(
            lambda: not any(Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids if Path(f"/proc/{pid}").exists())
        )


def refused(data: Path, *options: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """What a server says that does not start."""
    given = [*COMMAND, "serve", "--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", str(data), *options]
    return subprocess.run(
        given, capture_output=True, text=True, timeout=30, check=False, cwd=data.parent, env={**os.environ, **environ}
    )


def test_a_worker_that_cannot_start_leaves_nothing_half_started(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "w1").mkdir(parents=True, mode=0o700)
    (data / "w1").chmod(0o770)
    said = refused(data, "--workers", "2")
    assert said.returncode == 3
    assert said.stdout == ""
    [error] = [line for line in said.stderr.splitlines() if not line.startswith("{")]
    assert error == f"wiretape: data folder {data}/w1 cannot be used: other users may write to it: run chmod go-w on it"
    assert not any(holder(folder) for folder in folders_in(data))
