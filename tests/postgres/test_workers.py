"""Workers on a shared database: also what lies in folders that no process writes to any more reaches it."""

from pathlib import Path

import pytest

from tests.postgres.cluster import OWNER, Database
from tests.postgres.fleet import ended_on, fleet, until_same
from tests.postgres.relay import relayed


@pytest.mark.slow
async def test_tapes_of_other_numbers_of_workers_reach_other_machines(database: Database, tmp_path: Path) -> None:
    made: dict[str, bytes] = {}
    async with relayed(database.cluster.port) as relay, fleet(database, tmp_path) as there:
        address, server = database.url_of(OWNER, relay.port), relay.target
        one, other = await there.add("one", store=address), await there.add("other")
        relay.target = 1  # where nothing listens
        relay.cut()
        for workers in ("1", "3"):
            await one.stop()
            one.options = ("--workers", workers)
            await one.start()
            for _ in range(6):
                stream, _ = await there.stream_on(one)
                there.speaking.finish.set()
                made[stream] = await ended_on(one, stream)
        await one.stop()
        assert {path.parent.parent.name for path in one.data.rglob("*.tape")} == {"one", "w0", "w1", "w2"}
        relay.target = server
        one.options = ("--workers", "2")
        await one.start()
        for stream, tape in made.items():
            await until_same(other, stream, tape)
