"""Fixtures over a real PostgreSQL server: one for the session, a fresh database for each test."""

import itertools
import os
import subprocess
import sys
from collections.abc import Callable, Generator

import pytest

from tests.house.tree import ROOT
from tests.postgres.cluster import ABSENT, PASSWORD, Cluster, Database, binaries, temporary_cluster

#: Set by `make test-postgres-ci`: without PostgreSQL nothing is skipped, it fails.
REQUIRED = "WIRETAPE_TEST_POSTGRES"
_TEMPLATE = "migrated"
_numbers = itertools.count()


@pytest.fixture(scope="session")
def cluster() -> Generator[Cluster]:
    """The server of this session, which every test leaves running."""
    if binaries() is None:
        if REQUIRED in os.environ:
            pytest.fail(ABSENT)
        pytest.skip(ABSENT)
    with temporary_cluster() as cluster:
        yield cluster


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No setting of the machine, and the password where libpq looks for it."""
    for name in [name for name in os.environ if name.startswith(("PG", "WIRETAPE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


@pytest.fixture(scope="session")
def template(cluster: Cluster) -> str:
    """The name of a database with the schema, as `wiretape db migrate` makes it."""
    database = cluster.create(_TEMPLATE)
    migrate(database)
    return _TEMPLATE


@pytest.fixture
def make_database(cluster: Cluster, environment: None) -> Callable[[str], Database]:
    """Return a function that creates a database from a template. It goes with the server: dropping one takes longer."""
    return lambda template: cluster.create(f"test_{next(_numbers)}", template)


@pytest.fixture
def database(make_database: Callable[[str], Database], template: str) -> Database:
    """A database of its own with the schema; PGPASSWORD is set."""
    return make_database(template)


@pytest.fixture
def empty_database(make_database: Callable[[str], Database]) -> Database:
    """A database of its own without the schema; PGPASSWORD is set."""
    return make_database("template1")


def migrate(database: Database) -> None:
    """Make the schema as a user does."""
    command = [sys.executable, "-m", "wiretape", "db", "migrate", "--store", database.url]
    done = subprocess.run(command, cwd=ROOT, env=database.environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
