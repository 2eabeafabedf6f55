"""What one worker answers about the streams and runs of another."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.failures.child import answered, endless
from tests.support.house import ASKED, DONE, Peer, at_once, finish, role, text
from tests.workers.team import Said, Team, number_of, team
from wiretape.proxy.cli.main import main
from wiretape.proxy.config.model import Keep

HI = at_once(role(), text("hi"), finish(), DONE)
#: Ends after half a second.
SLOW = Peer(role(), *(text(f"{n} ") for n in range(20)), finish(), DONE, every_s=0.02)
ONE, OTHER = "Authorization: Bearer sk-one", "Authorization: Bearer sk-other"


async def stream_of(workers: Team, number: int, *headers: str) -> str:
    """A stream that has ended in this worker."""
    said = await workers.ask(number, "POST", "/v1/chat/completions", ASKED, *headers)
    assert said.status == 200
    stream = said.headers["x-wiretape-stream"]
    assert number_of(stream) == number
    return stream


async def begun(workers: Team, number: int, *headers: str) -> tuple[trio.SocketStream, str]:
    """A stream that runs in this worker, and its client."""
    client = await workers.send(number, "POST", "/v1/chat/completions", ASKED, *headers)
    head = b""
    while b"\r\n\r\n" not in head:
        head += await client.receive_some()
    return client, head.lower().partition(b"x-wiretape-stream: ")[2][:32].decode()


def frames(said: Said) -> list[bytes]:
    """The frames of a follower, without comments."""
    return [frame for frame in said.body.split(b"\n\n") if not frame.startswith(b":")]


async def test_every_worker_answers_about_streams_that_ended_in_another(tmp_path: Path) -> None:
    async with team(tmp_path / "data", HI) as workers:
        stream = await stream_of(workers, 0)
        await workers.settle()
        for path in ("", "/events", "/tape", "/inspect", "/conversation"):
            asked = f"/wiretape/streams/{stream}{path}"
            here, there = await workers.get(0, asked), await workers.get(1, asked)
            assert here.status == 200
            assert here == there


async def test_lists_of_all_workers_are_one(tmp_path: Path) -> None:
    async with team(tmp_path / "data", HI) as workers:
        made = [await stream_of(workers, number % 2) for number in range(5)]
        await workers.settle()
        for number in (0, 1):
            pages = list[str]()
            at: str | None = ""
            while at is not None:
                page = (await workers.get(number, f"/wiretape/streams?limit=2{at and '&before=' + at}")).json
                pages += [row["id"] for row in page["streams"]]
                at = page["next"]
            assert sorted(pages) == sorted(made)


async def test_a_stream_is_followed_and_resumed_through_any_worker_while_it_runs(tmp_path: Path) -> None:
    async with team(tmp_path / "data", SLOW) as workers:
        client, stream = await begun(workers, 0)
        path, followed = f"/wiretape/streams/{stream}/events", dict[int, Said]()
        [row] = (await workers.get(1, "/wiretape/streams?live=1")).json["streams"]
        assert (row["id"], row["live"], row["ending"]) == (stream, True, None)

        async def follow(number: int) -> None:
            followed[number] = await workers.get(number, path)

        async with trio.open_nursery() as nursery:
            for number in (0, 1):
                nursery.start_soon(follow, number)
            await answered(client)
        assert frames(followed[0]) == frames(followed[1])
        assert len(frames(followed[0])) > 20
        middle = frames(followed[0])[10]
        last = middle.partition(b"\n")[0].removeprefix(b"id: ").decode()
        for number in (0, 1):
            rest = await workers.get(number, path, f"Last-Event-ID: {last}")
            assert frames(rest) == frames(followed[0])[11:]


async def test_a_follower_through_another_worker_keeps_the_upstream_until_it_leaves(tmp_path: Path) -> None:
    async with team(tmp_path / "data", endless()) as workers:
        client, stream = await begun(workers, 0)
        follower = await workers.send(1, "GET", f"/wiretape/streams/{stream}/events")
        await follower.receive_some()
        registry = workers.workers[0].assembly.registry
        assert registry.live[stream].readers == 2
        await client.aclose()
        with trio.fail_after(2):
            while registry.live[stream].readers > 1:
                await follower.receive_some()
        await follower.receive_some()  # it goes on
        await follower.aclose()
        with trio.fail_after(2):
            while stream in registry.live:  # noqa: ASYNC110 - it ends in a moment
                await trio.sleep(0.01)
        assert (await workers.get(1, f"/wiretape/streams/{stream}")).json["ending"] == "client_gone"


async def test_streams_of_other_callers_stay_hidden_in_every_worker(tmp_path: Path) -> None:
    async with team(tmp_path / "data", endless()) as workers:
        _, stream = await begun(workers, 0, ONE)
        unknown = stream[:-1] + ("0" if stream[-1] != "0" else "1")
        path = f"/wiretape/streams/{stream}"
        assert (await workers.get(1, path, ONE)).json["live"] is True
        answers = [await workers.get(1, each, OTHER) for each in (path, f"/wiretape/streams/{unknown}")]
        assert answers[0] == answers[1]
        assert answers[0].status == 404
        assert (await workers.get(1, "/wiretape/streams", OTHER)).json["streams"] == []


async def test_what_workers_ask_each_other_is_not_answered_over_tcp(tmp_path: Path) -> None:
    async with team(tmp_path / "data", HI) as workers:
        for headers in ((), (ONE,)):
            for path in ("/metrics", "/w1/metrics"):
                assert (await workers.get(0, path, *headers)).status == 404
        socket = tmp_path / "data" / "w0" / "control.sock"
        assert socket.stat().st_mode & 0o777 == 0o600


def value_of(text: bytes, series: str) -> float:
    """The value of a series."""
    [line] = [line for line in text.decode().splitlines() if line.startswith(f"{series} ")]
    return float(line.rpartition(" ")[2])


COMPLETED = 'wiretape_streams_total{ending="completed",route=""}'


async def test_one_scrape_counts_everything_once_and_counters_outlive_a_worker(tmp_path: Path) -> None:
    root = tmp_path / "data"
    async with team(root, HI) as workers:
        for number in (0, 0, 1):
            await stream_of(workers, number)
        for number in (0, 1):
            said = (await workers.get(number, "/wiretape/metrics")).body
            assert value_of(said, COMPLETED) == 3
            assert value_of(said, "wiretape_stream_duration_seconds_count") == 3
            assert value_of(said, 'wiretape_stream_duration_seconds_bucket{le="+Inf"}') == 3
            assert value_of(said, "wiretape_streams_live") == 0
            assert said.count(b"\nwiretape_build_info{") == said.count(b"\nwiretape_disk_free_bytes ") == 1
            assert value_of(said, 'wiretape_build_info{version="0.1.0"}') == 1
    async with team(root, HI, 0) as workers:  # the other one is away
        await stream_of(workers, 0)
        assert value_of((await workers.get(0, "/wiretape/metrics")).body, COMPLETED) == 4


async def test_rows_of_all_workers_are_followed_in_one_feed(tmp_path: Path) -> None:
    slow = Peer(role(), *(text(f"{n} ") for n in range(30)), finish(), DONE, every_s=0.05)
    async with team(tmp_path / "data", slow) as workers:
        feed = await workers.send(1, "GET", "/wiretape/streams?follow=1")
        client, stream = await begun(workers, 0)
        seen: dict[tuple[bool, str | None], int] = {}
        data = b""
        with trio.fail_after(10):
            while (False, "completed") not in seen:
                data += await feed.receive_some()
                for line in data.split(b"\n"):
                    if stream.encode() in line and line.endswith((b"}", b"}\r")):
                        row = json.loads(line)
                        seen[row["live"], row["ending"]] = 1
        assert (True, None) in seen
        await client.aclose()


async def test_tapes_of_before_and_of_other_numbers_of_workers_are_read_and_expire(tmp_path: Path) -> None:
    root, made = tmp_path / "data", set[str]()
    for count in (1, 3, 2, 1):
        async with team(root, HI, count=count) as workers:
            for number in range(count):
                said = await workers.ask(number, "POST", "/v1/chat/completions", ASKED)
                made.add(said.headers["x-wiretape-stream"])
            await workers.settle()
            for number in range(count):
                rows = (await workers.get(number, "/wiretape/streams")).json["streams"]
                assert {row["id"] for row in rows} == made
                for stream in made:
                    tape = await workers.get(number, f"/wiretape/streams/{stream}/tape")
                    assert tape.body.endswith(b"}\n")
    assert {path.parent.parent.name for path in root.rglob("*.tape")} == {"data", "w0", "w1", "w2"}
    async with team(root, HI, keep=Keep(bytes=120), streams_max=9) as workers:
        for each in workers.workers.values():  # two workers, and two more folders with tapes
            config = each.assembly.services.config
            assert (config.keep.bytes, config.streams_max) == (30, 4)
        # The first one keeps what no worker writes to.
        for each in workers.workers.values():
            await each.assembly.services.store.expire(time.time(), Keep(bytes=0))
    assert not [*root.rglob("*.tape")]


async def test_verbs_of_the_command_line_read_all_folders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "data"
    async with team(root, HI) as workers:
        made = [await stream_of(workers, number) for number in (0, 1)]
        _, live = await begun(workers, 1)
        del live
    for verb in (["ls", "--json"], ["show", made[1], "--json"], ["reindex", "--json"], ["doctor"]):
        with pytest.raises(SystemExit):
            main([*verb, "--data", str(root)])
    said = capsys.readouterr().out
    assert all(stream in said for stream in made)
    assert '{"data": ' in said


# -- runs --------------------------------------------------------------------------------------------------------------


def run_json(said: Said) -> Any:
    assert said.status < 300, said
    return said.json


async def test_a_run_is_started_once_whichever_workers_are_asked(tmp_path: Path) -> None:
    async with team(tmp_path / "data", HI) as workers:
        runs = list[str]()

        async def start(number: int) -> None:
            said = await workers.ask(number, "POST", "/v1/runs", {"input": "hi", "model": "m"}, "Idempotency-Key: k")
            runs.append(run_json(said)["run_id"])

        async with trio.open_nursery() as nursery:
            for number in (0, 1, 0, 1):
                nursery.start_soon(start, number)
        assert len(set(runs)) == 1
        for number in (0, 1):
            events = await workers.get(number, f"/v1/runs/{runs[0]}/events")
            assert b"run.completed" in events.body
            await workers.settle()
            page = run_json(await workers.get(number, "/v1/runs"))
            assert [run["run_id"] for run in page["data"]] == [runs[0]]


async def test_runs_are_counted_and_stopped_in_all_workers_together(tmp_path: Path) -> None:
    async with team(tmp_path / "data", endless(), runs_max=3) as workers:
        runs = list[str]()
        for number in (0, 1, 1):
            runs.append(
                run_json(await workers.ask(number, "POST", "/v1/runs", {"input": "hi", "model": "m"}))["run_id"]
            )
        for number in (0, 1):
            refused = await workers.ask(number, "POST", "/v1/runs", {"input": "hi", "model": "m"})
            assert (refused.status, refused.json["error"]["code"]) == (429, "runs_max")
            other = await workers.ask(number, "GET", f"/v1/runs/{runs[0]}", None, OTHER)
            assert other.status == 404
        owners = {int(run[4:], 16) % 2 for run in runs}
        assert owners == {0, 1}
        for run in runs:
            assert run_json(await workers.ask(1, "POST", f"/v1/runs/{run}/stop"))["status"] == "stopping"
        for number in (0, 1, 0):
            run_json(await workers.ask(number, "POST", "/v1/runs", {"input": "hi", "model": "m"}))
