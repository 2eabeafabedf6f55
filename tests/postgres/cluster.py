"""A PostgreSQL server for tests: Debian's binaries, a temporary folder, never as root, on a Unix socket and loopback.

The processes die with the process that started them. A test that stops, kills or pauses the server has it again by
`start` or `resume`.
"""

import os
import pwd
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import psycopg
from psycopg import sql

__all__ = [
    "ABSENT",
    "OWNER",
    "PASSWORD",
    "STRANGER",
    "Cluster",
    "Database",
    "below",
    "binaries",
    "free_port",
    "temporary_cluster",
]

ABSENT: Final = "UNTESTED: no PostgreSQL found in PATH or /usr/lib/postgresql (on Debian: apt-get install postgresql)"
#: Owns every database; STRANGER may log in and has no rights.
OWNER: Final = "wiretape"
STRANGER: Final = "stranger"
PASSWORD: Final = "pg-s3cret'pass word"  # noqa: S105 - of these tests only

_START_TIMEOUT_S: Final = 60.0
#: It writes down what is in memory, while other tests use the disk.
_STOP_TIMEOUT_S: Final = 300.0
#: Small, and nothing that makes the background busy. Only `fsync` changes what a crash leaves, so it is the caller's.
_SETTINGS: Final = {
    "listen_addresses": "127.0.0.1",
    "shared_buffers": "32MB",
    "max_connections": "60",
    "max_wal_senders": "4",
    "autovacuum_naptime": "10min",
    "log_min_messages": "warning",
    "lc_messages": "C",
}
_ACCESS: Final = """\
local all         postgres trust
local replication postgres trust
local all         all      scram-sha-256
host  all         all      127.0.0.1/32 scram-sha-256
"""


def binaries() -> Path | None:
    """Return the folder of the newest server, if there is one."""
    found = shutil.which("initdb")
    places = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *([Path(found).resolve()] if found else [])]
    versions = {int(match[1]): place.parent for place in places if (match := re.search(r"/(\d+)/bin/", str(place)))}
    if versions:
        return versions[max(versions)]
    return places[0].parent if places else None


def _user() -> str:
    """Return who runs the server: initdb and postgres refuse root."""
    if os.getuid():
        return pwd.getpwuid(os.getuid()).pw_name
    with suppress(KeyError):
        return pwd.getpwnam("postgres").pw_name
    return "nobody"


def free_port() -> int:
    """Return a port below those that the system gives to clients, so that it is still free after a restart."""
    while True:
        port = random.randrange(20_000, 32_000)  # noqa: S311 - no secret
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def below(pid: int) -> list[int]:
    """Return the processes that any thread of a process has started; none if it is gone."""
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, children.read_text().split())
    return found


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes() != b""
    return False


@dataclass(frozen=True, slots=True)
class Database:
    """One database of a cluster."""

    cluster: "Cluster"
    name: str

    @property
    def url(self) -> str:
        """The way over TCP, without the password."""
        return self.url_of(OWNER)

    def url_of(self, role: str, port: int | None = None) -> str:
        """Return the way for another role, or through a relay on another port."""
        return f"postgresql://{role}@127.0.0.1:{port or self.cluster.port}/{self.name}"

    @property
    def environment(self) -> dict[str, str]:
        """The environment of a process that uses it."""
        clean = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "WIRETAPE_"))}
        return clean | {"PGPASSWORD": PASSWORD}

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        return self.cluster.sql(statement, *values, database=self.name)

    def backends(self) -> list[int]:
        """Return the processes that serve its clients, the oldest first."""
        which = "datname = %s AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        order = "ORDER BY backend_start"
        return [pid for (pid,) in self.sql(f"SELECT pid FROM pg_stat_activity WHERE {which} {order}", self.name)]  # noqa: S608


class Cluster:
    """One server and its data."""

    def __init__(self, root: Path, settings: Mapping[str, str] | None = None) -> None:
        found = binaries()
        assert found is not None, ABSENT
        self.root = root
        self.port = free_port()
        self._bin = found
        self._settings = _SETTINGS | dict(settings or {})
        self._server: subprocess.Popen[bytes] | None = None
        root.mkdir(exist_ok=True)
        shutil.chown(root, _user())

    @property
    def log(self) -> str:
        """What the server reported."""
        return (self.root / "log").read_text(errors="replace")

    @property
    def pid(self) -> int:
        """The postmaster."""
        assert self._server is not None
        return self._server.pid

    # -- making -------------------------------------------------------------------------------------------------------

    def initialise(self) -> None:
        """Make the data folder; the server does not run afterwards."""
        self._run("initdb", "--pgdata", "data", "-U", "postgres", "--no-sync", "--encoding=UTF8", "--locale=C.UTF-8")
        (self.root / "data/pg_hba.conf").write_text(_ACCESS)

    def create_roles(self) -> None:
        """Create OWNER and STRANGER, both with PASSWORD."""
        for role in (OWNER, STRANGER):
            self.sql(f"CREATE ROLE {role} LOGIN")
            self.set_password(role, PASSWORD)

    def set_password(self, role: str, password: str) -> None:
        """Change the password of a role; open connections stay."""
        with self.connected("postgres") as connection:
            changed = sql.SQL("ALTER ROLE {} PASSWORD {}")
            connection.execute(changed.format(sql.Identifier(role), sql.Literal(password)))

    def create(self, name: str, template: str = "template1", tablespace: str = "pg_default") -> Database:
        """Create a database of OWNER."""
        self.sql(f"CREATE DATABASE {name} OWNER {OWNER} TEMPLATE {template} TABLESPACE {tablespace}")
        return Database(self, name)

    def drop(self, database: Database) -> None:
        """Drop a database and end its connections."""
        self.sql(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")

    def standby(self, root: Path) -> "Cluster":
        """Return a copy that follows this server on a port of its own; it is neither started nor promoted."""
        other = Cluster(root, self._settings)
        source = f"host={self.root} port={self.port} user=postgres"
        other._run("pg_basebackup", "-D", "data", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-d", source)
        return other

    # -- the server's life --------------------------------------------------------------------------------------------

    def spawn(self) -> None:
        """Start the server without waiting for it. From the main thread: the server dies with the starting thread."""
        assert self._server is None, "the server is running"
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        command = self._command("postgres", "-D", "data", "-p", str(self.port), "-k", str(self.root), *options)
        with (self.root / "log").open("ab") as log:
            self._server = subprocess.Popen(command, cwd=self.root, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        """Return once the server takes connections."""
        until = time.monotonic() + _START_TIMEOUT_S
        while True:
            try:
                with self.connected("postgres"):
                    return
            except psycopg.OperationalError:
                assert self._server is not None
                assert self._server.poll() is None, self.log[-2_000:]
                assert time.monotonic() < until, self.log[-2_000:]
                time.sleep(0.02)

    def start(self) -> None:
        """Start the server."""
        self.spawn()
        self.wait()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT ends connections, SIGQUIT does not even write down what is in memory."""
        if self._server is not None:
            self.resume()
            self._server.send_signal(how)
            self._server.wait(_STOP_TIMEOUT_S)
            self._server = None

    def kill(self) -> None:
        """Kill every process at once, as the end of the machine would."""
        server, self._server = self._server, None
        if server is None:
            return
        server.send_signal(signal.SIGSTOP)  # it starts no other process meanwhile
        children = below(server.pid)
        for pid in children:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        server.kill()
        server.wait()
        while any(map(_runs, children)):
            time.sleep(0.001)

    def pause(self) -> None:
        """Stop all its processes: it answers nothing, and its connections stay open."""
        self._signal_all(signal.SIGSTOP)

    def resume(self) -> None:
        """Let them go on."""
        self._signal_all(signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby a server that writes."""
        self.sql("SELECT pg_promote()")

    # -- asking -------------------------------------------------------------------------------------------------------

    @contextmanager
    def connected(self, database: str) -> "Generator[psycopg.Connection[tuple[Any, ...]]]":
        """Connect as the superuser, over the Unix socket."""
        with psycopg.connect(
            host=str(self.root), port=self.port, user="postgres", dbname=database, autocommit=True, connect_timeout=5
        ) as connection:
            yield connection

    def sql(self, statement: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        with self.connected(database) as connection:
            cursor = connection.execute(statement.encode(), values or None)
            return cursor.fetchall() if cursor.description else []

    # -- processes ----------------------------------------------------------------------------------------------------

    def _command(self, program: str, *arguments: str) -> list[str]:
        identity = (
            [] if os.getuid() else [f"--reuid={_user()}", f"--regid={pwd.getpwnam(_user()).pw_gid}", "--init-groups"]
        )
        return ["setpriv", *identity, "--pdeathsig=INT", str(self._bin / program), *arguments]

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            self._command(program, *arguments), cwd=self.root, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{program}: {done.stdout}{done.stderr}"

    def _signal_all(self, which: signal.Signals) -> None:
        if self._server is not None:
            for pid in (self.pid, *below(self.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, which)


@contextmanager
def temporary_cluster(*, fsync: bool = False, settings: Mapping[str, str] | None = None) -> Generator[Cluster]:
    """A running cluster with its roles, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="wiretape-pg-") as folder:
        Path(folder).chmod(0o755)
        cluster = Cluster(Path(folder) / "c", {"fsync": "on" if fsync else "off", **(settings or {})})
        cluster.initialise()
        cluster.start()
        try:
            cluster.create_roles()
            yield cluster
        finally:
            cluster.kill()
