"""Some of the kills that `python -m tests.postgres.kills` makes, and that they would find a missing fence."""

from pathlib import Path

import trio

from tests.postgres.cluster import Database
from tests.postgres.fleet import ended_on, ending_of, fleet, tape_on, until_shipped
from tests.postgres.kills import killed


async def test_kills_of_proxies_workers_and_the_server_lose_nothing(database: Database, tmp_path: Path) -> None:
    world, judge = await killed(8, database, tmp_path, 0)
    assert judge.wrong == []
    assert world.kills >= 8
    assert judge.streams > 20
    assert judge.events > 100, "hardly anything was followed"


async def test_a_proxy_without_the_fence_writes_over_what_was_ended_elsewhere(
    database: Database, tmp_path: Path
) -> None:
    async with fleet(database, tmp_path) as there:
        paused = await there.add("paused", program=("-m", "tests.postgres.unfenced"))
        other = await there.add("other")
        stream, _ = await there.stream_on(paused)
        await until_shipped(database, stream)
        paused.pause()
        ended = await ended_on(other, stream)
        assert ending_of(ended) == "crashed"
        paused.resume()
        there.speaking.finish.set()
        await ended_on(paused, stream)
        with trio.fail_after(30):
            while await tape_on(other, stream) == ended:  # noqa: ASYNC110 - it happens in another process
                await trio.sleep(0.1)
