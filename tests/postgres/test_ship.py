"""Local tapes reach the database: every record, once, through outages and kills."""

import math
import os
import random
import shutil
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
import trio

from tests.postgres.cluster import Cluster, Database
from tests.postgres.shipped import Ship, in_blocks, in_packs, shipping, tape_in, until
from tests.proxy.store_cases import put, stream_of
from wiretape.proxy.config.model import Keep
from wiretape.proxy.store.catalogue_row import CallRow, StreamRow
from wiretape.proxy.store.postgres import sealing, server_at
from wiretape.proxy.store.postgres import ship as ship_module
from wiretape.proxy.store.postgres.connection import Connection
from wiretape.proxy.store.postgres.packs import row_from
from wiretape.proxy.store.postgres.sealing import ahead, bury, tidy
from wiretape.proxy.store.postgres.ship import Shipper
from wiretape.proxy.store.store import UnreachableError


async def test_a_running_stream_is_in_packs_and_an_ended_one_in_blocks(database: Database, tmp_path: Path) -> None:
    batches = stream_of("s1", reads=20, call_id="call-1")
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", batches[:5])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        assert database.sql("SELECT caller, model, ending FROM wiretape.stream") == [("caller-1", "m", "")]
        for batch in batches[5:]:
            await ship.files.append("s1", batch)
        await ship.shipper.through()
        assert ship.shipper.lag_s == 0
        assert in_blocks(database, "s1") == tape_in(tmp_path, "s1")
        assert tape_in(tmp_path, "s1").startswith(in_packs(database, "s1"))
        assert database.sql("SELECT caller, call FROM wiretape.call") == [("caller-1", "call-1")]
        assert database.sql("SELECT ending FROM wiretape.stream") == [("completed",)]
        assert not ship.said


async def test_statements_that_are_cut_at_any_moment_lose_and_double_nothing(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the server has it, while it runs (the server goes on), or when only the answer is lost."""
    dice = random.Random(7)  # noqa: S311 - no secret
    streams, cuts = [f"s{number}" for number in range(60)], 0
    execute = Connection.execute

    async def cut(self: Connection, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        nonlocal cuts
        fate = dice.random() * (1 if "wiretape.pack" in sql else 10)
        if fate > 0.1:
            with trio.move_on_after(dice.random() / 500 if fate < 0.2 else math.inf):
                found = await execute(self, sql, values)
                if fate > 0.3:
                    return found
        cuts += 1
        self.close()
        raise UnreachableError("cut")

    async with shipping(tmp_path, database) as ship:
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "execute", cut)
            await recorded(ship, streams, dice)
        with trio.fail_after(20):
            await ship.shipper.through()
        for stream in streams:
            assert in_blocks(database, stream) == tape_in(tmp_path, stream)
            assert tape_in(tmp_path, stream).startswith(in_packs(database, stream))
        assert cuts > 1
        assert not ship.heard("ship_refused")


async def recorded(ship: Ship, streams: Sequence[str], dice: random.Random) -> None:
    """Record streams of different lengths at once, in about three seconds."""

    async def record(stream: str) -> None:
        batches = stream_of(stream, reads=dice.randint(1, 60))
        await trio.sleep(dice.random())
        await ship.files.create(stream)
        for batch in batches:
            await ship.files.append(stream, batch)
            await trio.sleep(dice.random() / 15)

    async with trio.open_nursery() as recording:
        for stream in streams:
            recording.start_soon(record, stream)


async def declared_dead(database: Database, name: str = "a") -> None:
    """Do what a reader does that has seen nothing of a writer for long enough."""
    connection = await server_at(database.url).connect()
    sql = "SELECT id, epoch, seen FROM wiretape.writer WHERE name = $1"
    for writer in await connection.execute(sql, (name,)):
        await bury(connection, *writer)
    connection.close()


async def ended_by_another(database: Database, root: Path) -> None:
    """Declare a writer dead in the middle of a stream, which goes on."""
    batches = stream_of("s1", reads=30)
    async with shipping(root, database) as ship:
        await put(ship.files, "s1", batches[:10])
        await until(lambda: in_packs(database, "s1") == tape_in(root, "s1"))
        await declared_dead(database)
        ended = in_blocks(database, "s1")
        for batch in batches[10:]:
            await ship.files.append("s1", batch)
            await trio.sleep(0.01)
        await put(ship.files, "s2", stream_of("s2"))
        with trio.fail_after(20):
            await ship.shipper.through()
        # The law: nothing is added to what another has ended, and all that comes later arrives.
        assert in_blocks(database, "s1") == ended
        assert ended is not None
        assert ended.startswith(in_packs(database, "s1"))
        assert b'"ending":"crashed"' in ended
        assert in_blocks(database, "s2") == tape_in(root, "s2")
        assert [fields["stream"] for fields in ship.heard("ship_refused")] == ["s1"] == list(ship.shipper.refused)
        assert b'"ending":"completed"' in tape_in(root, "s1")


async def test_a_writer_that_was_declared_dead_adds_nothing(database: Database, tmp_path: Path) -> None:
    await ended_by_another(database, tmp_path)


async def test_without_the_fence_it_would(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    unfenced = "id = $1::int AND ($2::bigint, $3::text) IS NOT NULL"
    fence = "id = $1::int AND epoch = $2::bigint AND holder IS NOT DISTINCT FROM $3::text"
    for module, name in ((ship_module, "_FLUSH"), (ship_module, "_BEAT"), (sealing, "_SEAL")):
        statement = getattr(module, name)
        assert fence in statement
        monkeypatch.setattr(module, name, statement.replace(fence, unfenced))
    with pytest.raises(ExceptionGroup) as failed:
        await ended_by_another(database, tmp_path)
    assert failed.group_contains(AssertionError)


async def test_a_stream_of_which_nothing_was_shipped_outlives_a_declaration(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await until(lambda: ship.shipper.connected)
        await declared_dead(database)
        await put(ship.files, "s1", stream_of("s1"))
        with trio.fail_after(20):
            await ship.shipper.through()
        assert in_blocks(database, "s1") == tape_in(tmp_path, "s1")
        assert ship.shipper.fence.epoch > 2
        assert not ship.said


async def test_of_two_proxies_under_one_name_the_first_is_fenced(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path / "a", database) as first:
        batches = stream_of("s1", reads=30)
        await put(first.files, "s1", batches[:5])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path / "a", "s1"))
        async with shipping(tmp_path / "b", database) as second:
            await put(second.files, "s2", stream_of("s2")[:5])
            await until(lambda: first.heard("ship_waits"))
            assert "Another proxy" in first.said[0][1]["why"]
            assert first.shipper.fenced
            for batch in batches[5:]:
                await first.files.append("s1", batch)
            for batch in stream_of("s2")[5:]:
                await second.files.append("s2", batch)
            ended = await until(lambda: in_blocks(database, "s1"))
            assert b'"ending":"crashed"' in ended
            with trio.fail_after(20):
                await second.shipper.through()
            assert in_blocks(database, "s2") == tape_in(tmp_path / "b", "s2")
            assert first.shipper.lag_s > 0
            assert first.shipper.records == in_packs(database, "s1").count(b"\n"), "what it shipped before"


async def test_a_copy_of_a_folder_ends_nothing_that_runs(database: Database, tmp_path: Path) -> None:
    batches = stream_of("s1", reads=30)
    async with shipping(tmp_path / "a", database) as ship:
        await put(ship.files, "s1", batches[:5])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path / "a", "s1"))
        shutil.copytree(tmp_path / "a", tmp_path / "x")
        async with shipping(tmp_path / "x", database, name="x") as copy:
            with trio.fail_after(20):
                await copy.shipper.through()
            assert [fields["stream"] for fields in copy.heard("ship_refused")] == ["s1"]
        for batch in batches[5:]:
            await ship.files.append("s1", batch)
        with trio.fail_after(20):
            await ship.shipper.through()
        assert in_blocks(database, "s1") == tape_in(tmp_path / "a", "s1")
        assert not ship.said


async def test_a_restart_seals_what_the_crash_left(database: Database, tmp_path: Path) -> None:
    batches = stream_of("s1", reads=30)
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", batches[:10])
        await put(ship.files, "s2", stream_of("s2"))
        await until(lambda: in_blocks(database, "s2"))
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        ship.files.shipping = None
        await put(ship.files, "s3", stream_of("s3"))
        await ship.files.append("s1", batches[10])
    async with shipping(tmp_path, database) as ship:
        with trio.fail_after(20):
            await ship.shipper.through()
        for stream in ("s1", "s2", "s3"):
            assert in_blocks(database, stream) == tape_in(tmp_path, stream)
        assert b'"ending":"crashed"' in tape_in(tmp_path, "s1")
        assert not ship.said


async def test_a_restart_leaves_what_another_has_ended(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1", reads=30)[:10])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        ship.files.shipping = None
        for batch in stream_of("s1", reads=30)[10:]:
            await ship.files.append("s1", batch)
    await declared_dead(database)
    ended = in_blocks(database, "s1")
    async with shipping(tmp_path, database) as ship:
        with trio.fail_after(20):
            await ship.shipper.through()
        assert ended is not None
        assert in_blocks(database, "s1") == ended != tape_in(tmp_path, "s1")
        assert [fields["stream"] for fields in ship.heard("ship_refused")] == ["s1"]


async def test_a_tape_that_is_given_up_ends_in_the_database_as_recovery_ends_it(
    database: Database, tmp_path: Path
) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1")[:5])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        await ship.files.release("s1")
        ended = await until(lambda: in_blocks(database, "s1"))
    async with shipping(tmp_path, database) as ship:
        with trio.fail_after(20):
            await ship.shipper.through()
        assert in_blocks(database, "s1") == ended == tape_in(tmp_path, "s1")
        assert not ship.said


async def test_what_a_failover_lost_is_sent_again(database: Database, tmp_path: Path) -> None:
    batches = stream_of("s1", reads=30)
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", batches[:10])
        await put(ship.files, "s2", stream_of("s2"))
        await until(lambda: in_blocks(database, "s2") and in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        database.sql("DELETE FROM wiretape.pack; DELETE FROM wiretape.stream; DELETE FROM wiretape.block")
        for pid in database.backends():
            database.sql("SELECT pg_terminate_backend(%s)", pid)
        await ship.files.append("s1", batches[10])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        for batch in batches[11:]:
            await ship.files.append("s1", batch)
        with trio.fail_after(20):
            await ship.shipper.through()
        for stream in ("s1", "s2"):
            assert in_blocks(database, stream) == tape_in(tmp_path, stream)


async def test_what_is_released_while_it_waits_ends_whole(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1", reads=30)[:20])
        await ship.files.release("s1")
        ended = await until(lambda: in_blocks(database, "s1"))
        assert ship.shipper.lag_s == 0
    async with shipping(tmp_path, database) as ship:
        with trio.fail_after(20):
            await ship.shipper.through()
        assert in_blocks(database, "s1") == ended == tape_in(tmp_path, "s1")
        assert not ship.said


async def test_ids_that_no_index_takes_stop_nothing(database: Database, tmp_path: Path) -> None:
    strange = "\0" + "".join(map(chr, range(0x4E00, 0x4E00 + 9_000)))
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1", call_id=strange, caller="\0", model=strange, session=strange))
        with trio.fail_after(20):
            await ship.shipper.through()
        ((row,),) = database.sql("SELECT row FROM wiretape.call")
        assert row_from(CallRow, row).call == strange


async def test_a_statement_that_takes_long_looks_like_no_death(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database, dead_s=1) as ship:
        await until(lambda: ship.shipper.connected)
        with psycopg.connect(f"{database.url}") as other:
            other.execute("LOCK TABLE wiretape.pack")
            await put(ship.files, "s1", stream_of("s1")[:5])
            for _ in range(4):
                seen = database.sql("SELECT seen FROM wiretape.writer")
                await until(lambda: database.sql("SELECT seen FROM wiretape.writer") > seen)  # noqa: B023
            assert ship.shipper.lag_s > 0.5
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        assert ship.shipper.fence.epoch == 1


async def test_a_stream_that_grows_while_a_pack_is_gathered_goes_on(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its lines come into a pack that is being read from the tapes of others."""
    batches, read = stream_of("s1", reads=30), Shipper._lines  # pyright: ignore[reportPrivateUsage]
    async with shipping(tmp_path, database) as ship:

        async def slowly(self: Shipper, entry: Any) -> bytes:
            await ship.files.append("s1", batches.pop(0))
            return await read(self, entry)

        await put(ship.files, "s1", [batches.pop(0)])
        await until(lambda: in_packs(database, "s1"))
        await put(ship.files, "s2", stream_of("s2", body=bytes(300_000))[:2])  # written in a thread, so it is read
        with monkeypatch.context() as patch:
            patch.setattr(Shipper, "_lines", slowly)
            await ship.files.append("s1", batches.pop(0))
            await until(lambda: in_packs(database, "s2") == tape_in(tmp_path, "s2"))
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        for batch in batches:
            await ship.files.append("s1", batch)
        await until(lambda: in_blocks(database, "s1"))
        assert in_blocks(database, "s1") == tape_in(tmp_path, "s1")


async def test_what_is_deleted_here_goes_from_the_database_too(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        for stream in ("s1", "s2"):
            await put(ship.files, stream, stream_of(stream, call_id="call-1"))
        with trio.fail_after(20):
            await ship.shipper.through()
        await ship.files.delete(["s1"])
        await put(ship.files, "s3", stream_of("s3"))
        await ship.files.delete(["s3"])
        await until(lambda: database.sql("SELECT id FROM wiretape.stream") == [("s2",)])
        assert {stream for (stream,) in database.sql("SELECT stream FROM wiretape.block")} == {"s2"}
        assert database.sql("SELECT stream FROM wiretape.call") == [("s2",)]


async def test_what_expires_during_an_outage_leaves_nothing(
    database: Database, tmp_path: Path, cluster: Cluster
) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1")[:5])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        await trio.to_thread.run_sync(cluster.stop)
        try:
            for batch in stream_of("s1")[5:]:
                await ship.files.append("s1", batch)
            await put(ship.files, "s2", stream_of("s2"))
            gone = [await ship.files.expire(time.time() + 1e9, Keep(days=0)) for _ in range(2)]
            assert {stream for streams in gone for stream in streams} == {"s1", "s2"}
        finally:
            cluster.spawn()
            await trio.to_thread.run_sync(cluster.wait)
        with trio.fail_after(20):
            await ship.shipper.through()
        assert ship.shipper.expired_streams == 2
        ended = await until(lambda: in_blocks(database, "s1"))
        assert ended.startswith(in_packs(database, "s1"))
        assert database.sql("SELECT id FROM wiretape.stream") == [("s1",)]


async def test_a_row_without_a_record_goes(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1")[:5])
        await until(lambda: in_packs(database, "s1"))
        database.sql("UPDATE wiretape.stream SET id = 's2'")
    await declared_dead(database)
    assert database.sql("SELECT id FROM wiretape.stream") == []


async def test_large_tapes_go_in_parts(database: Database, tmp_path: Path) -> None:
    """Larger than what is compressed on the loop, than what waits in memory, and than one line may be read at once."""
    body = os.urandom(9_000_000).hex().encode()
    async with shipping(tmp_path, database) as ship:
        batches = stream_of("s1", reads=4_000, body=b'{"image":"%b"}' % body)
        await put(ship.files, "s1", batches[:2_000])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
        for batch in batches[2_000:]:
            await ship.files.append("s1", batch)
        with trio.fail_after(20):
            await ship.shipper.through()
        assert in_blocks(database, "s1") == tape_in(tmp_path, "s1")
        assert len(database.sql("SELECT 1 FROM wiretape.block")) > 1


async def test_what_the_whole_tape_says_reaches_the_row(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1"))
        found = "SELECT row FROM wiretape.stream WHERE row LIKE '%\"read\":1%'"
        ((row,),) = await until(lambda: database.sql(found))
        assert row_from(StreamRow, row).spark is not None


async def tidied(database: Database, keep_days: int | None = 7) -> None:
    """Run the house-keeping once."""
    with closing(await server_at(database.url).connect()) as connection:
        await ahead(connection)
        await tidy(connection, keep_days)


def partitions(database: Database) -> set[str]:
    """Return the names of all partitions."""
    sql = "SELECT relname FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relkind = 'r'"
    return {name for (name,) in database.sql(sql)}


async def test_packs_go_an_hour_after_their_streams_are_sealed(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1")[:5])
        await until(lambda: in_packs(database, "s1"))
        ((hour,),) = database.sql("SELECT hour FROM wiretape.stream")
        old = hour - 3
        database.sql(f"CREATE TABLE wiretape.pack_{old} PARTITION OF wiretape.pack FOR VALUES IN ({old})")
        database.sql(f"ALTER TABLE wiretape.pack_{old} OWNER TO wiretape")
        database.sql("UPDATE wiretape.stream SET hour = %s", old)
        await tidied(database)
        assert {f"pack_{old}", f"pack_{hour}", f"pack_{hour + 1}"} <= partitions(database)
        for batch in stream_of("s1")[5:]:
            await ship.files.append("s1", batch)
        with trio.fail_after(20):
            await ship.shipper.through()
        await tidied(database)
        assert f"pack_{old}" not in partitions(database)
        assert f"pack_{hour}" in partitions(database)


async def test_what_is_older_than_keep_days_goes(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        for stream in ("s1", "s2"):
            await put(ship.files, stream, stream_of(stream, call_id="call-1"))
        with trio.fail_after(20):
            await ship.shipper.through()
    sql = "CREATE TABLE wiretape.block_20000101 PARTITION OF wiretape.block FOR VALUES IN ('2000-01-01')"
    database.sql(f"{sql}; ALTER TABLE wiretape.block_20000101 OWNER TO wiretape")
    database.sql("UPDATE wiretape.stream SET day = '2000-01-01' WHERE id = 's1'")
    await tidied(database, keep_days=None)
    assert len(database.sql("SELECT 1 FROM wiretape.call")) == 2
    await tidied(database)
    assert (
        database.sql("SELECT id FROM wiretape.stream") == database.sql("SELECT stream FROM wiretape.call") == [("s2",)]
    )
    assert "block_20000101" not in partitions(database)


async def test_a_writer_that_is_silent_for_an_hour_is_buried(database: Database, tmp_path: Path) -> None:
    async with shipping(tmp_path, database) as ship:
        await put(ship.files, "s1", stream_of("s1", reads=30)[:9])
        await until(lambda: in_packs(database, "s1") == tape_in(tmp_path, "s1"))
    await tidied(database)
    assert in_blocks(database, "s1") is None
    database.sql("UPDATE wiretape.writer SET seen = now() - interval '61 minutes'")
    await tidied(database)
    ended = in_blocks(database, "s1")
    assert ended is not None
    assert ended.startswith(tape_in(tmp_path, "s1"))
    assert b'"ending":"crashed"' in ended


async def test_a_reader_of_all_packs_stops_no_proxy(database: Database, tmp_path: Path) -> None:
    """As pg_dump does, for hours; partitions come nevertheless, and are dropped later."""
    async with shipping(tmp_path, database) as ship:
        await until(lambda: ship.shipper.connected)
        last = max(partitions(database))
        database.sql("ALTER TABLE wiretape.pack DETACH PARTITION wiretape." + last)
        database.sql(f"DROP TABLE wiretape.{last}")
        with psycopg.connect(database.url) as dump:
            dump.execute("SELECT count(*) FROM wiretape.pack")
            with trio.fail_after(5):
                await tidied(database)
                assert last in partitions(database)
                await put(ship.files, "s1", stream_of("s1"))
                await ship.shipper.through()
