"""What a start, `wiretape db migrate` and `wiretape doctor` make of a database: one line where something is wrong."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from tests.postgres.cluster import OWNER, STRANGER, Database, free_port
from tests.postgres.machine import Machine
from wiretape.proxy.cli.main import main
from wiretape.proxy.config.model import Config
from wiretape.proxy.store.postgres import schema, server_at
from wiretape.proxy.store.postgres.connection import RefusedError
from wiretape.proxy.store.postgres.schema import VERSION, check, migrate
from wiretape.proxy.store.postgres.start import agree, instance_of
from wiretape.proxy.store.store import StoreError

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, environment: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs a command in this process and returns its code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str) -> tuple[int, str, str]:
        capfd.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*arguments])
        out, err = capfd.readouterr()
        assert isinstance(left.value.code, int)
        return left.value.code, str(out), str(err)

    return run


def refused(run: Run, store: str, code: int, words: str) -> None:
    """A start with this store leaves with this code and one line."""
    given = ("--upstream", "http://127.0.0.1:9/v1", "--port", "0", "--data", "data", "--store", store)
    left = run("serve", *given)
    assert left[:2] == (code, "")
    assert words in left[2]
    assert left[2].count("\n") == 1
    assert "s3cret" not in left[2]


def test_a_database_that_cannot_be_used_refuses_the_start(
    run: Run, database: Database, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(run, database.url.replace("://", "://a:s3cret@").replace(f"{OWNER}@", ""), 2, "PGPASSFILE")
    refused(run, database.url + "?none=s3cret", 2, "refuses the URL")
    refused(run, empty_database.url, 2, 'run "wiretape db migrate"')
    refused(run, database.url_of(STRANGER), 2, "permission denied for schema wiretape")
    refused(run, database.url + "_absent", 2, "does not exist")
    database.sql(f"GRANT ALL ON SCHEMA wiretape TO {STRANGER}")
    database.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA wiretape TO {STRANGER}")
    refused(run, database.url_of(STRANGER), 2, f"log in as {OWNER}, or GRANT {OWNER} TO {STRANGER}")
    database.sql("UPDATE wiretape.fact SET value = '99' WHERE name = 'version'")
    refused(run, database.url, 2, f"version 99, and this release knows {VERSION}")
    monkeypatch.setenv("PGPASSWORD", "wrong s3cret")
    refused(run, database.url, 2, "password authentication failed")
    refused(run, database.url_of(OWNER, free_port()), 3, "Connection refused (a first start needs it")


def test_migrate_is_repeated_without_effect_and_refuses_in_one_line(
    run: Run, database: Database, empty_database: Database
) -> None:
    assert run("db", "migrate", "--store", empty_database.url) == (
        0,
        f"schema wiretape: version {VERSION} (was 0)\n",
        "",
    )
    empty_database.sql("INSERT INTO wiretape.claim VALUES ('it', 1)")
    again = run("db", "migrate", "--store", empty_database.url)
    assert again == (0, f"schema wiretape: version {VERSION}, nothing to do\n", "")
    assert empty_database.sql("SELECT name FROM wiretape.claim") == [("it",)]
    database.sql("UPDATE wiretape.fact SET value = '99' WHERE name = 'version'")
    for url, words in (
        (database.url, "upgrade Wiretape"),
        (database.url_of(STRANGER), "permission denied"),
        (database.url_of(OWNER, free_port()), "Connection refused"),
    ):
        code, out, err = run("db", "migrate", "--store", url)
        assert (code, out, err.count("\n")) == (3, "", 1)
        assert words in err


async def test_a_later_release_upgrades_the_tables_and_this_one_refuses_them(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.sql("INSERT INTO wiretape.claim VALUES ('it', 1)")
    connection = await server_at(database.url).connect()
    upgrades = schema._UPGRADES  # pyright: ignore[reportPrivateUsage] - a release that does not exist yet
    later = "ALTER TABLE wiretape.claim ADD note text DEFAULT 'new'"
    monkeypatch.setattr(schema, "_UPGRADES", (*upgrades, later))
    monkeypatch.setattr(schema, "VERSION", VERSION + 1)
    with pytest.raises(RefusedError, match=f"version {VERSION}, and {VERSION + 1} is needed: run "):
        await check(connection)
    assert await migrate(connection) == (VERSION, VERSION + 1)
    await check(connection)
    assert database.sql("SELECT name, note FROM wiretape.claim") == [("it", "new")]
    monkeypatch.undo()
    with pytest.raises(RefusedError, match="upgrade Wiretape"):
        await check(connection)
    connection.close()


async def test_two_migrations_at_once_make_one_schema(empty_database: Database) -> None:
    done: list[tuple[int, int]] = []

    async def one() -> None:
        connection = await server_at(empty_database.url).connect()
        done.append(await migrate(connection))
        await check(connection)
        connection.close()

    async with trio.open_nursery() as nursery:
        for _ in range(4):
            nursery.start_soon(one)
    assert sorted(done) == [(0, VERSION), *[(VERSION, VERSION)] * 3]


async def test_a_schema_made_by_an_administrator_is_filled_in(empty_database: Database) -> None:
    empty_database.sql(f"REVOKE CREATE ON DATABASE {empty_database.name} FROM {OWNER}")
    empty_database.sql(f"CREATE SCHEMA wiretape AUTHORIZATION {OWNER}")
    connection = await server_at(empty_database.url).connect()
    assert await migrate(connection) == (0, VERSION)
    connection.close()


async def test_the_first_proxy_gives_its_salt_and_others_take_it(tmp_path: Path, database: Database) -> None:
    server, away = server_at(database.url), server_at(database.url_of(OWNER, free_port()))
    said: list[object] = []

    def warn(event: str, **fields: object) -> None:
        assert event == "store"
        said.append(fields["why"])

    first, fresh, other = (tmp_path / name for name in ("first", "fresh", "other"))
    for folder, salt in ((first, b"f" * 32), (other, b"o" * 32)):
        folder.mkdir()
        (folder / "caller.salt").write_bytes(salt)
    with pytest.raises(StoreError, match="a first start needs it"):
        await agree(away, first, warn)
    for folder in (first, fresh):
        await agree(server, folder, warn)
    assert said == []
    for _ in range(2):
        await agree(server, other, warn)
    assert len(said) == 1
    assert (other / "caller.salt.before").read_bytes() == b"o" * 32
    await agree(away, other, warn)
    assert len(said) == 2
    assert {(folder / "caller.salt").read_bytes() for folder in (first, fresh, other)} == {b"f" * 32}


async def test_proxies_that_start_together_have_one_salt(tmp_path: Path, database: Database) -> None:
    folders = [tmp_path / str(number) for number in range(8)]
    async with trio.open_nursery() as nursery:
        for folder in folders:
            nursery.start_soon(agree, server_at(database.url), folder, pytest.fail)
    assert len({(folder / "caller.salt").read_bytes() for folder in folders}) == 1


def test_a_proxy_without_a_name_keeps_the_one_it_made(tmp_path: Path) -> None:
    config = Config(data=tmp_path)
    name = instance_of(config, tmp_path)
    assert name == instance_of(config, tmp_path)
    assert re.fullmatch(r"[A-Za-z0-9_.-]+-[0-9a-f]{4}", name)
    assert instance_of(replace(config, data=tmp_path / "w1"), tmp_path) == f"{name}-w1"
    assert instance_of(replace(config, instance="it"), tmp_path) == "it"


async def test_a_proxy_starts_without_its_database_if_it_started_with_it_before(
    tmp_path: Path, database: Database
) -> None:
    machine = Machine("a", tmp_path, database, 9)
    await machine.start()
    assert await machine.get("/wiretape/healthz")
    await machine.stop()
    again = Machine("a", tmp_path, database, 9, store=database.url_of(OWNER, free_port()))
    await again.start()
    assert await again.get("/wiretape/healthz")
    await again.stop()
    assert "Connection refused" in again.log


def findings(run: Run, store: str, data: Path) -> dict[str, str]:
    _, out, _ = run("doctor", "--data", str(data), "--store", store)
    return {name: f"{state} {said}" for state, name, said in (line.split(maxsplit=2) for line in out.splitlines())}


def test_doctor_looks_at_the_database(run: Run, database: Database, tmp_path: Path) -> None:
    found = findings(run, database.url, tmp_path)
    assert found["store"].startswith("ok PostgreSQL ")
    assert "clock" not in found
    assert "no server is running" in found["shipping"]
    machine = Machine("a", tmp_path, database, 9)
    trio.run(machine.start)
    assert trio.run(machine.get, "/wiretape/healthz")
    assert findings(run, database.url, machine.data)["shipping"] == "ok lag 0.0 s"
    other = Machine("a", tmp_path / "other", database, 9)
    (tmp_path / "other").mkdir()
    trio.run(other.start)
    assert trio.run(other.get, "/wiretape/healthz")
    said = (
        findings(run, database.url, machine.data)["shipping"] for _ in range(50)
    )  # it notices at its next sign of life
    assert any("another proxy has the same name" in each for each in said)
    trio.run(machine.stop)
    trio.run(other.stop)
    assert "permission denied" in findings(run, database.url_of(STRANGER), tmp_path)["store"]
    assert "WRONG connection to server" in findings(run, database.url_of(OWNER, free_port()), tmp_path)["store"]
