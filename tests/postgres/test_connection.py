"""What the store relies on in psycopg, natively on trio and in threads: values, errors, cancellation, notifications."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
import trio
import trio.testing

from tests.postgres.cluster import Cluster, Database, free_port
from tests.postgres.relay import relayed
from tests.proxy.certificates import needs_openssl
from wiretape.proxy.config.model import ConfigError
from wiretape.proxy.limits import STORE_ANSWER_S
from wiretape.proxy.store.postgres.connection import AS_KNOWN, RefusedError, Server, in_thread
from wiretape.proxy.store.store import StoreError, UnreachableError

Kind = Callable[[str], Server]


@pytest.fixture(params=["driven", "in threads"])
def kind(request: pytest.FixtureRequest) -> Kind:
    """Return what makes servers whose connections are driven by trio, or wait in threads."""
    return Server if request.param == "driven" else partial(Server, drive=in_thread)


def test_the_installed_psycopg_is_driven_by_trio() -> None:
    assert AS_KNOWN


async def test_values_come_back_as_they_went(kind: Kind, empty_database: Database) -> None:
    connection = await kind(empty_database.url).connect()
    values = (2**40, "a\tb\n\\ü'", bytes(range(256)), None, ["a", 'b"c'], [b"\0", b"x"], 1.5, True)
    casts = ("int8", "text", "bytea", "int", "text[]", "bytea[]", "float8", "bool")
    sql = ", ".join(f"${number}::{cast}" for number, cast in enumerate(casts, 1))
    assert await connection.execute(f"SELECT {sql}", values) == [values]
    assert await connection.execute("SELECT n FROM generate_series(1, 3) n") == [(1,), (2,), (3,)]
    assert await connection.execute("CREATE TABLE it (body bytea)") == []
    connection.close()


async def test_a_statement_larger_than_every_buffer_arrives(kind: Kind, empty_database: Database) -> None:
    connection = await kind(empty_database.url).connect()
    body = bytes(range(256)) * 150_000
    assert await connection.execute("SELECT $1::bytea", (body,)) == [(body,)]
    connection.close()


FAULTS = {
    "SELECT 1 FROM absent": RefusedError,
    "SELECT pg_read_file('/etc/passwd')": RefusedError,
    "SELECT pg_terminate_backend(pg_backend_pid())": UnreachableError,
    "SELECT 'a secret text'::int": StoreError,
    "INSERT INTO one VALUES ('a secret text')": StoreError,
}


@pytest.mark.parametrize("sql", FAULTS)
async def test_an_error_is_of_a_kind_has_one_line_and_closes(kind: Kind, empty_database: Database, sql: str) -> None:
    empty_database.sql("CREATE TABLE one AS SELECT 'a secret text' AS it")
    empty_database.sql("CREATE UNIQUE INDEX ON one (it)")
    empty_database.sql("GRANT ALL ON one TO wiretape")
    connection = await kind(empty_database.url).connect()
    with pytest.raises(StoreError) as raised:
        await connection.execute(sql)
    assert type(raised.value) is FAULTS[sql]
    assert "\n" not in str(raised.value)
    assert not connection.usable
    with pytest.raises(UnreachableError):
        await connection.execute("SELECT 1")


async def test_a_cancelled_statement_closes_and_a_cancelled_wait_for_news_does_not(
    kind: Kind, empty_database: Database
) -> None:
    server = kind(empty_database.url)
    listener, speaker = await server.connect(), await server.connect()
    await listener.execute("LISTEN it")
    with trio.move_on_after(0.1):
        await listener.notified()
    assert listener.usable
    for payload in ("a", "b"):  # one comes with the answer to the next statement, one alone
        await speaker.execute("SELECT pg_notify('it', $1)", (payload,))
        assert await listener.execute("SELECT 1") == [(1,)]
    assert [await listener.notified(), await listener.notified()] == ["a", "b"]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(speaker.execute, "SELECT pg_notify('it', 'c')")
        assert await listener.notified() == "c"
    with trio.move_on_after(0.1):
        await listener.execute("SELECT pg_sleep(600)")
    with pytest.raises(UnreachableError):
        await listener.execute("SELECT 1")
    speaker.close()
    with trio.fail_after(20):  # the server ends it too
        while await trio.to_thread.run_sync(empty_database.backends):
            pass


async def test_the_end_of_the_server_ends_a_wait_for_news(kind: Kind, empty_database: Database) -> None:
    connection = await kind(empty_database.url).connect()
    await connection.execute("LISTEN it")
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(UnreachableError):
                await connection.notified()
            assert not connection.usable

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        empty_database.sql("SELECT pg_terminate_backend(%s)", *empty_database.backends())


async def test_another_task_that_closes_ends_a_wait_for_news(kind: Kind, empty_database: Database) -> None:
    connection = await kind(empty_database.url).connect()
    async with trio.open_nursery() as nursery:

        async def wait() -> None:
            with pytest.raises(UnreachableError):
                await connection.notified()

        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        connection.close()


@pytest.mark.slow
async def test_a_silent_server_is_noticed_while_a_slow_one_is_waited_for(kind: Kind, empty_database: Database) -> None:
    """No answer for STORE_ANSWER_S is the end; bytes that move are none, on a connection driven natively."""
    async with relayed(empty_database.cluster.port) as relay:
        server = kind(empty_database.url_of("wiretape", relay.port))
        connection = await server.connect()
        relay.stall()
        for attempt in (connection.execute("SELECT 1"), server.connect()):
            began = trio.current_time()
            with pytest.raises(UnreachableError, match=r"did not answer|timeout"):
                await attempt
            assert trio.current_time() - began < STORE_ANSWER_S + 2
        relay.go_on()
        if kind is Server:
            relay.bytes_s = 1_000_000
            connection = await server.connect()
            began, body = trio.current_time(), bytes(10_000_000)
            assert await connection.execute("SELECT length($1::bytea)", (body,)) == [(len(body),)]
            assert trio.current_time() - began > STORE_ANSWER_S
            connection.close()


async def test_the_first_host_that_takes_writes_is_used(kind: Kind, empty_database: Database) -> None:
    cluster, name = empty_database.cluster, empty_database.name
    server = kind(f"postgresql://wiretape@127.0.0.1:{free_port()},127.0.0.1:{cluster.port}/{name}")
    connection = await server.connect()
    connection.close()
    empty_database.sql(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    with pytest.raises(UnreachableError, match="read-only"):
        await kind(empty_database.url).connect()


async def test_a_refusal_differs_from_a_server_that_is_away(
    kind: Kind, empty_database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    for url in ("postgresql://u@127.0.0.1:1/d", "postgresql://u@absent.invalid/d", "postgresql:///d?host=/absent"):
        with pytest.raises(UnreachableError):
            await kind(url).connect()
    with pytest.raises(RefusedError, match="absent"):
        await kind(empty_database.url + "absent").connect()
    monkeypatch.setenv("PGPASSWORD", "wrong")
    with pytest.raises(RefusedError, match="password") as raised:
        await kind(empty_database.url).connect()
    assert "wrong" not in str(raised.value)
    with pytest.raises(ConfigError):
        kind("postgresql://h/d?absent=1")


@needs_openssl
async def test_statements_and_news_pass_through_tls(kind: Kind, cluster: Cluster, empty_database: Database) -> None:
    data = cluster.root / "data"
    made = ("-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=it", "-addext", "subjectAltName=IP:127.0.0.1")
    openssl = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *made]
    await trio.run_process(openssl, cwd=data, capture_stdout=True, capture_stderr=True)
    (data / "server.key").chmod(0o600)
    shutil.chown(data / "server.key", data.owner())
    cluster.sql("ALTER SYSTEM SET ssl = on")
    cluster.sql("SELECT pg_reload_conf()")
    try:
        server = kind(f"{empty_database.url}?sslmode=verify-full&sslrootcert={data}/server.crt")
        with trio.fail_after(20):  # the server reads its settings a moment later
            while True:
                with suppress(UnreachableError):
                    listener, speaker = await server.connect(), await server.connect()
                    break
        body = bytes(range(256)) * 50_000
        await listener.execute("LISTEN it")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(speaker.execute, "SELECT pg_notify('it', 'a'), $1::bytea", (body,))
            assert await listener.notified() == "a"
        assert await listener.execute("SELECT $1::bytea", (body,)) == [(body,)]
        listener.close()
        speaker.close()
    finally:
        cluster.sql("ALTER SYSTEM RESET ssl")
        cluster.sql("SELECT pg_reload_conf()")
