"""What happens to several proxies on one database when something fails: each fault on real processes and servers."""

import base64
import json
import os
import subprocess
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.postgres.cluster import OWNER, PASSWORD, Cluster, Database, temporary_cluster
from tests.postgres.conftest import migrate
from tests.postgres.fleet import (
    DEAD_S,
    KEY,
    cut_short,
    ended_on,
    ending_of,
    fleet,
    metric,
    tape_on,
    until,
    until_count,
    until_same,
    until_shipped,
    until_whole,
)
from tests.postgres.relay import relayed

# -- fencing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pause_s", [3 * DEAD_S, pytest.param(60, marks=pytest.mark.slow)])
async def test_a_paused_proxy_writes_nothing_over_what_was_ended_elsewhere(
    database: Database, tmp_path: Path, pause_s: float
) -> None:
    async with fleet(database, tmp_path) as there:
        paused, other = await there.add("paused"), await there.add("other")
        stream, got = await there.stream_on(paused)
        await until_shipped(database, stream)
        paused.pause()
        ended = await ended_on(other, stream)
        assert ending_of(ended) == "crashed"
        await trio.sleep(max(0, pause_s - DEAD_S))
        paused.resume()
        there.speaking.finish.set()
        own = await ended_on(paused, stream)
        await until_whole(got, own)
        assert ending_of(own) == "completed"
        later, _ = await there.stream_on(paused)
        there.speaking.finish.set()
        assert await ended_on(other, later) == await ended_on(paused, later)  # it has its name again
        assert await tape_on(other, stream) == ended
        assert cut_short(ended, own)
        assert await metric(paused, "wiretape_ship_refused_streams_total") == 1


async def test_of_two_proxies_under_one_name_the_first_is_fenced_and_serves_on(
    database: Database, tmp_path: Path
) -> None:
    async with fleet(database, tmp_path) as there:
        first, other = await there.add("same"), await there.add("other")
        stream, got = await there.stream_on(first)
        second = await there.add("second", "--instance", "same")
        theirs, _ = await there.stream_on(second)
        ended = await ended_on(other, stream)
        assert ending_of(ended) == "crashed"
        there.speaking.finish.set()
        own = await ended_on(first, stream)
        await until_whole(got, own)
        assert (ending_of(own), cut_short(ended, own)) == ("completed", True)
        assert await ended_on(other, theirs) == await ended_on(second, theirs)
        after, _ = await there.stream_on(first)
        there.speaking.finish.set()
        await ended_on(first, after)
        assert await tape_on(other, after) == b"", "the fenced proxy ships nothing"
        await until(lambda: "Another proxy runs as same" in first.log)


# -- the database is away ---------------------------------------------------------------------------------------------


async def test_streams_go_on_while_the_server_is_down_and_are_whole_everywhere_afterwards(
    cluster: Cluster, database: Database, tmp_path: Path
) -> None:
    async with fleet(database, tmp_path) as there:
        one, other = await there.add("one"), await there.add("other")
        before, got_before = await there.stream_on(one)
        followed = await there.follow(other, before)
        await until_count(followed, 3)
        cluster.stop()
        during, got_during = await there.stream_on(one)
        seen = got_before.count(b"word")
        await trio.sleep(3 * DEAD_S)  # longer than a silent writer is believed in
        await until_count(got_before, seen + 20)
        listed = await one.get("/wiretape/streams", KEY)
        assert listed is not None
        assert (listed.status, listed.headers.get("x-wiretape-partial")) == (200, "store")
        assert during in listed.body.decode()
        cluster.start()
        again = await there.follow(other, before)  # it reads at once, before the other writer was heard of again
        await until_count(again, seen)
        there.speaking.finish.set()
        for stream, got in ((before, got_before), (during, got_during)):
            own = await ended_on(one, stream)
            await until_whole(got, own)
            assert ending_of(own) == "completed"
            await until_same(other, stream, own)


async def test_a_changed_password_is_read_again_from_its_file(
    cluster: Cluster, database: Database, tmp_path: Path
) -> None:
    passwords = tmp_path / "pgpass"

    def write(password: str) -> None:
        passwords.write_text(f"*:*:*:*:{password}\n".replace("'", "'"))
        passwords.chmod(0o600)

    write(PASSWORD)
    async with fleet(database, tmp_path) as there:
        one = await there.add("one", password_file=passwords)
        other = await there.add("other", password_file=passwords)
        stream, got = await there.stream_on(one)
        await until_shipped(database, stream)
        try:
            cluster.set_password(OWNER, "n3w-Pass")
            database.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'wiretape'")
            await until(lambda: "password authentication failed" in one.log)
            seen = got.count(b"word")
            await until_count(got, seen + 20)
            write("n3w-Pass")
            there.speaking.finish.set()
            await until_same(other, stream, await ended_on(one, stream))
        finally:
            cluster.set_password(OWNER, PASSWORD)
        assert PASSWORD not in one.log + other.log
        assert "n3w-Pass" not in one.log + other.log


async def test_a_failover_to_another_server_at_the_same_address_loses_nothing(
    tmp_path: Path, environment: None
) -> None:
    with temporary_cluster() as first:
        database = first.create("moved")
        migrate(database)
        second = first.standby(first.root.parent / "second")
        second.start()
        try:
            async with relayed(first.port) as relay, fleet(database, tmp_path) as there:
                address = database.url_of(OWNER, relay.port)
                one, other = await there.add("one", store=address), await there.add("other", store=address)
                ended, _ = await there.stream_on(one)
                there.speaking.finish.set()
                own = await ended_on(one, ended)
                await until_same(other, ended, own)
                running, _ = await there.stream_on(one)
                followed = await there.follow(other, running)
                await until_count(followed, 5)
                first.kill()
                relay.cut()
                second.promote()
                relay.target = second.port
                seen = followed.count(b"word")
                again = await there.follow(other, running)
                await until_count(again, seen + 20)
                there.speaking.finish.set()
                await until_same(other, running, await ended_on(one, running))
                assert await tape_on(other, ended) == own
        finally:
            second.stop()
            first.start()


@pytest.mark.slow
async def test_a_slow_server_slows_no_client_and_a_silent_one_is_noticed(database: Database, tmp_path: Path) -> None:
    async with relayed(database.cluster.port) as relay, fleet(database, tmp_path) as there:
        one, other = await there.add("one", store=database.url_of(OWNER, relay.port)), await there.add("other")
        there.speaking.pace_s = 0.001
        relay.bytes_s = 2_000
        stream, got = await there.stream_on(one)
        began = got.count(b"word")
        await trio.sleep(2)
        assert got.count(b"word") - began > 500, "its clients wait for the database"
        relay.stall()
        asked = trio.current_time()
        listed = await one.get("/wiretape/streams", KEY)
        assert listed is not None
        assert listed.headers.get("x-wiretape-partial") == "store"
        assert trio.current_time() - asked < 4
        connections = relay.accepted
        await until(lambda: relay.accepted > connections, 20)  # it gives up the silent connections
        relay.bytes_s = None
        relay.go_on()
        there.speaking.finish.set()
        own = await ended_on(one, stream)
        await until_whole(got, own)
        await ended_on(other, stream)


@pytest.mark.slow
async def test_a_large_record_on_a_slow_line_is_no_reason_to_declare_its_proxy_dead(
    database: Database, tmp_path: Path
) -> None:
    async with relayed(database.cluster.port) as relay, fleet(database, tmp_path) as there:
        one, other = await there.add("one", store=database.url_of(OWNER, relay.port)), await there.add("other")
        stream, got = await there.stream_on(one)
        followed = await there.follow(other, stream)
        await until_count(followed, 3)
        relay.bytes_s = 200_000
        large, _ = await there.stream_on(one, base64.b64encode(os.urandom(int(4 * DEAD_S * relay.bytes_s))).decode())
        await until_shipped(database, large)
        relay.bytes_s = None
        there.speaking.finish.set()
        own = await ended_on(one, stream)
        await until_whole(got, own)
        await until_same(other, stream, own)


# -- no room ----------------------------------------------------------------------------------------------------------


@contextmanager
def small_disk(folder: Path, megabytes: int, owner: str) -> Generator[Path]:
    """A file system of its own, of so many megabytes."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,uid={owner},mode=700", "tmpfs", str(folder)]
    if subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("UNTESTED: no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Leave no room; return the file to remove."""
    ballast = folder / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    return ballast


async def test_a_full_disk_of_the_server_delays_and_loses_nothing(
    cluster: Cluster, template: str, environment: None, tmp_path: Path
) -> None:
    with small_disk(cluster.root.parent / "small", 40, "postgres") as disk:
        cluster.sql(f"CREATE TABLESPACE small LOCATION '{disk}'")
        database = cluster.create("small", template, "small")
        try:
            async with fleet(database, tmp_path) as there:
                one, other = await there.add("one"), await there.add("other")
                ballast = fill(disk)
                there.speaking.pace_s = 0.001
                stream, got = await there.stream_on(one)
                await until(lambda: "No space left" in one.log or "could not extend" in one.log)
                seen = got.count(b"word")
                await until_count(got, seen + 100)
                ballast.unlink()
                there.speaking.finish.set()
                own = await ended_on(one, stream)
                await until_whole(got, own)
                await until_same(other, stream, own)
        finally:
            cluster.drop(database)
            cluster.sql("DROP TABLESPACE small")


async def test_a_full_disk_of_a_proxy_ends_its_streams_the_same_everywhere(database: Database, tmp_path: Path) -> None:
    with small_disk(tmp_path / "full", 20, str(os.getuid())) as disk:
        async with fleet(database, tmp_path) as there:
            full, other = await there.add("full"), await there.add("other")
            stream, _ = await there.stream_on(full)
            ballast = fill(disk)
            own = await ended_on(full, stream)
            assert ending_of(own) == "crashed"  # its end could not be written; recovery will end it the same
            refused = bytearray()
            await full.ask(refused, KEY)
            assert refused.startswith(b"HTTP/1.1 503")
            ballast.unlink()
            await until_same(other, stream, await tape_on(full, stream))
            later, _ = await there.stream_on(full)
            there.speaking.finish.set()
            await until_same(other, later, await ended_on(full, later))


# -- clocks -----------------------------------------------------------------------------------------------------------


async def test_machines_whose_clocks_differ_by_days_read_each_other(database: Database, tmp_path: Path) -> None:
    async with fleet(database, tmp_path) as there:
        ahead = await there.add("ahead", program=("-m", "tests.postgres.skewed", "+259200"))
        behind = await there.add("behind", program=("-m", "tests.postgres.skewed", "-259200"))
        streams = [(machine, await there.stream_on(machine)) for machine in (behind, ahead)]
        for machine, reader in ((ahead, behind), (behind, ahead)):
            stream = next(stream for each, (stream, _) in streams if each is machine)
            followed = await there.follow(reader, stream)
            await until_count(followed, 5)
        await trio.sleep(2 * DEAD_S)
        there.speaking.finish.set()
        for machine, (stream, got) in streams:
            own = await ended_on(machine, stream)
            await until_whole(got, own)
            assert ending_of(own) == "completed"
            await until_same(ahead if machine is behind else behind, stream, own)
        for machine in (ahead, behind):
            listed = await machine.get("/wiretape/streams", KEY)
            assert listed is not None
            rows: list[dict[str, Any]] = json.loads(listed.body)["streams"]
            assert [row["id"] for row in rows] == [streams[1][1][0], streams[0][1][0]]
