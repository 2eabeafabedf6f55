"""What people and clients see of all machines: the API, the inspector, and `ls`, `show` and `follow --store`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.house.tree import ROOT
from tests.postgres.cluster import Database
from tests.postgres.fleet import KEY, Fleet, ended_on, fleet, until
from tests.postgres.machine import Machine

OTHERS_KEY = "Authorization: Bearer sk-2"


def wiretape(database: Database, folder: Path, *arguments: str, code: int = 0, **environment: str) -> str:
    """Return what a command of a person at any machine prints; of one that fails, its one line."""
    done = subprocess.run(
        [sys.executable, "-m", "wiretape", *arguments],
        cwd=ROOT,
        env={**database.environment, "HOME": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    if code:
        assert done.stderr.count("\n") == 1, done.stderr
    return done.stdout + done.stderr


async def got(machine: Machine, path: str, key: str = KEY) -> Any:
    """Return what a machine answers."""
    answer = await machine.get(f"/wiretape/{path}", key)
    assert answer is not None
    return answer


async def test_another_machine_shows_a_stream_as_it_runs_and_after(database: Database, tmp_path: Path) -> None:
    async with fleet(database, tmp_path) as there:
        one, other = await there.add("one"), await there.add("other")
        feed = bytearray()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: other.get("/wiretape/streams?follow=1", KEY, got=feed))
            await check(there, one, other, feed)
            nursery.cancel_scope.cancel()


async def check(there: Fleet, one: Machine, other: Machine, feed: bytearray) -> None:
    stream, _ = await there.stream_on(one)
    await until(lambda: f'"id":"{stream}","live":true'.encode() in feed)
    (row,) = json.loads((await got(other, "streams")).body)["streams"]
    assert (row["id"], row["live"], row["ending"]) == (stream, True, None)
    assert json.loads((await got(other, "streams?live=1")).body)["streams"] == [row]
    assert json.loads((await got(other, "streams?live=0")).body)["streams"] == []
    summary = json.loads((await got(other, f"streams/{stream}")).body)
    assert (summary["live"], summary["damage"], summary["model"]) == (True, [], "m")
    (turn,) = json.loads((await got(other, f"streams/{stream}/conversation")).body)["streams"]
    assert (turn["id"], turn["live"]) == (stream, True)
    missing = await got(other, f"streams/{stream}", OTHERS_KEY)
    assert (missing.status, missing.body) == (404, (await got(other, "streams/nothing", KEY)).body)
    assert json.loads((await got(other, "streams", OTHERS_KEY)).body)["streams"] == []
    there.speaking.finish.set()
    await ended_on(other, stream)
    await until(lambda: f'"id":"{stream}","live":false'.encode() in feed)
    for path in (f"streams/{stream}", f"streams/{stream}/events", f"streams/{stream}/inspect?repairs=1"):
        assert (await got(other, path)).body == (await got(one, path)).body
    assert json.loads((await got(other, "streams?q=ending:completed")).body)["streams"][0]["id"] == stream
    words = await got(other, "streams?q=%22word%201%22")
    assert (words.status, words.headers.get("x-wiretape-partial")) == (200, "search")


async def test_commands_read_the_streams_of_all_machines(database: Database, tmp_path: Path) -> None:
    store = ("--store", database.url)
    async with fleet(database, tmp_path) as there:
        one, other = await there.add("one"), await there.add("other")
        first, _ = await there.stream_on(one)
        second, _ = await there.stream_on(other)

        def run(*arguments: str, **how: Any) -> str:
            return wiretape(database, tmp_path, *arguments, *store, **how)

        async def ran(*arguments: str, **how: Any) -> str:
            return await trio.to_thread.run_sync(lambda: run(*arguments, **how))

        listed = json.loads(await ran("ls", "--json"))
        assert [(row["id"], row["live"]) for row in listed] == [(second, True), (first, True)]
        said: list[str] = []
        async with trio.open_nursery() as nursery:

            async def follow() -> None:
                said.append(await ran("follow", first))

            nursery.start_soon(follow)
            await trio.sleep(1.5)
            there.speaking.finish.set()
        assert said[0].startswith("word 0 word 1 ")
        assert said[0].endswith("[completed]\n")
        await ended_on(one, second)
        assert json.loads(await ran("show", second[:20], "--json"))["ending"] == "completed"
        assert (await ran("show", first, "--tape")).encode() == await ended_on(one, first)
        assert "completed" in await ran("ls", "--ending", "completed", "-n", "1")
        assert (await ran("ls", "-n", "1")).endswith("more: --all\n")
        assert "no such streams in the database" in await ran("ls", "--model", "other")
        assert "that begins with 'zzz'" in await ran("show", "zzz", code=3)
        assert "words are searched" in await ran("ls", "--grep", "word", code=2)
        assert "excludes --data" in await ran("ls", "--data", str(tmp_path), code=2)


@pytest.mark.parametrize(
    ("url", "said", "code"),
    [
        ("nonsense", "must be a URL", 2),
        ("postgresql://wiretape@127.0.0.1:1/x", "refused", 3),
        ("postgresql://nobody@{there}/{name}", "authentication failed", 3),
        ("postgresql://wiretape@{there}/nothing", "does not exist", 3),
    ],
)
def test_a_database_that_cannot_be_read_is_one_line(
    database: Database, tmp_path: Path, url: str, said: str, code: int
) -> None:
    there, _, name = database.url.rpartition("@")[2].partition("/")
    url = url.format(there=there, name=name)
    for verb in (("ls",), ("show", "abc"), ("follow", "abc")):
        assert said in wiretape(database, tmp_path, *verb, "--store", url, code=code)


def test_a_database_without_tables_says_what_to_do(empty_database: Database, tmp_path: Path) -> None:
    assert "wiretape db migrate" in wiretape(empty_database, tmp_path, "ls", "--store", empty_database.url, code=3)
