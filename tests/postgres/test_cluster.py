"""The server that these tests run on does what they take for granted."""

import psycopg
import pytest

from tests.postgres.cluster import Cluster, Database


def test_what_was_committed_survives_a_kill_of_the_server(cluster: Cluster, empty_database: Database) -> None:
    with psycopg.connect(empty_database.url, autocommit=True) as connection:
        connection.execute("CREATE TABLE it AS SELECT 1")
        assert empty_database.backends() == [connection.info.backend_pid]
        cluster.kill()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(empty_database.url)
    cluster.start()
    assert empty_database.sql("SELECT * FROM it") == [(1,)]
