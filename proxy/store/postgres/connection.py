"""A connection to PostgreSQL on trio: psycopg's generators speak the protocol, this module waits for the socket.

psycopg does not promise what its generators yield. Where that is not as known, a thread waits as psycopg itself would.
"""

from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, Final

import trio
from psycopg import errors, generators, pq, waiting
from psycopg.abc import ConnDict
from psycopg.adapt import PyFormat, Transformer
from psycopg.conninfo import conninfo_attempts, conninfo_to_dict, make_conninfo

from ...config.model import ConfigError
from ...limits import STORE_ANSWER_S, STORE_LOOK_S, STORE_STATEMENT_S
from ..store import StoreError, UnreachableError

__all__ = ["AS_KNOWN", "Connection", "RefusedError", "Server", "in_thread"]

#: Runs a generator of psycopg about a socket.
_Drive = Callable[[Generator[Any, Any, Any], int | None], Awaitable[Any]]

#: A lost server is noticed; after a failover the host that takes writes is found.
_DEFAULTS: Final = (
    "client_encoding=UTF8 fallback_application_name=wiretape target_session_attrs=read-write keepalives_idle=4 "
    f"keepalives_interval=2 keepalives_count=2 tcp_user_timeout={STORE_ANSWER_S * 1000:.0f}"
)
#: The server ends statements of lost clients. One may take long, as its time begins before its values have arrived.
_SESSION: Final = f"""SELECT set_config('client_connection_check_interval', '{STORE_LOOK_S:g}s', false),
    set_config('statement_timeout', '{STORE_STATEMENT_S:g}s', false)"""
#: Beginnings of SQLSTATEs. What may pass: lost, standby, deadlock, no room, locked, stopped, broken disk; what an
#: operator must change: login, database, schema, rights.
_LATER: Final = ("08", "25", "40", "53", "55", "57", "58")
_REFUSED: Final = ("28", "3D", "3F", "42")
#: Before the login libpq has but a sentence: these are for an operator, others may pass.
_REFUSALS: Final = (
    *("authentication failed", "no password", "pg_hba.conf", "does not exist", "permission denied", "not permitted"),
    *("certificate", "SSL was required"),
)
#: Whether the installed psycopg yields what `_driven` expects.
AS_KNOWN: Final = [*map(int, waiting.Wait)] == [1, 2, 3] and [*map(int, waiting.Ready)] == [0, 1, 2, 3]


class RefusedError(StoreError):
    """The database refuses the login, the rights or the schema."""


async def in_thread(waits: Generator[Any, Any, Any], socket: int | None) -> Any:
    """Run a generator of psycopg with psycopg's own loop."""
    loop: Any = waiting.wait_conn if socket is None else partial(waiting.wait, fileno=socket)
    with trio.fail_after(STORE_ANSWER_S):
        return await trio.to_thread.run_sync(loop, waits, abandon_on_cancel=True)


async def _driven(waits: Generator[Any, Any, Any], socket: int | None) -> Any:
    """Run a generator of psycopg, which yields what to wait for; while it connects, after the socket."""
    try:
        want = next(waits)
        while True:
            at, want = want if socket is None else (socket, want)
            reads = want == waiting.Wait.R  # otherwise it sends, and the server answers only afterwards
            with trio.fail_after(STORE_ANSWER_S):
                await (trio.lowlevel.wait_readable if reads else trio.lowlevel.wait_writable)(at)
            want = waits.send(waiting.Ready.R if reads else waiting.Ready.W)
    except StopIteration as done:
        return done.value


class Server:
    """A database by its URL, which has no password: that comes from PGPASSWORD, PGPASSFILE or a service file."""

    def __init__(self, url: str, drive: _Drive = _driven if AS_KNOWN else in_thread) -> None:
        self._drive = drive
        self._good: ConnDict = {}
        try:
            self._params: ConnDict = conninfo_to_dict(_DEFAULTS) | conninfo_to_dict(url)
        except errors.Error:  # its message repeats what was given
            raise ConfigError("store: PostgreSQL's client refuses the URL") from None

    async def connect(self) -> "Connection":
        """Return a new connection to the first address that has one. Raises a StoreError of one line."""
        failure: Exception | None = None
        try:
            found = await trio.to_thread.run_sync(conninfo_attempts, self._params, abandon_on_cancel=True)
            for attempt in sorted(found, key=lambda each: each != self._good):  # first the address of last time
                try:
                    pgconn = await self._drive(generators.connect(make_conninfo("", **attempt)), None)
                except (errors.Error, trio.TooSlowError) as error:
                    failure = error
                else:
                    self._good, connection = attempt, Connection(pgconn, self._drive)
                    await connection.execute(_SESSION)
                    return connection
        except errors.Error as error:  # no host has an address
            failure = error
        assert failure is not None
        raise _translated(failure) from failure


class Connection:
    """One session, used by one task at a time. An error or a cancellation closes it, except while it is `notified`."""

    def __init__(self, pgconn: pq.abc.PGconn, drive: _Drive) -> None:
        self.usable = True
        self._pgconn, self._drive = pgconn, drive
        self._adapt = Transformer()
        self._payloads = payloads = deque[str]()
        pgconn.notify_handler = lambda notify: payloads.append(notify.extra.decode())

    async def execute(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run one statement, with values for $1, $2 and so on, and return its rows."""
        with self._in_use():
            given = self._adapt.dump_sequence(values, [PyFormat.AUTO] * len(values))
            types, formats = self._adapt.types, self._adapt.formats
            self._pgconn.send_query_params(sql.encode(), given, types, formats, pq.Format.BINARY)
            result = (await self._drive(generators.execute(self._pgconn), self._pgconn.socket))[-1]
            if result.status == pq.ExecStatus.FATAL_ERROR:
                raise errors.error_from_result(result)
            self._adapt.set_pgresult(result)
            return self._adapt.load_rows(0, result.ntuples, tuple)

    async def notified(self) -> str:
        """Return the payload of the next NOTIFY on a channel that this session listens to."""
        while True:
            with self._in_use():
                while notify := self._pgconn.notifies():
                    self._payloads.append(notify.extra.decode())
                if self._payloads:
                    return self._payloads.popleft()
                socket = self._pgconn.socket
            with suppress(trio.ClosedResourceError):  # by another task
                await trio.lowlevel.wait_readable(socket)
            with self._in_use():
                self._pgconn.consume_input()

    def close(self) -> None:
        """Close it; the server undoes a transaction that was not committed."""
        self.usable = False
        if self._pgconn.status == pq.ConnStatus.OK:  # otherwise the descriptor may be another's by now
            trio.lowlevel.notify_closing(self._pgconn.socket)
        self._pgconn.finish()

    @contextmanager
    def _in_use(self) -> Generator[None]:
        if not self.usable:
            raise UnreachableError("The connection to the database is closed.")
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, (errors.Error, trio.TooSlowError)):
                raise _translated(error) from error
            raise


def _translated(error: Exception) -> StoreError:
    """Return our error, without the details of the server, which quote what was recorded."""
    if not isinstance(error, errors.Error):
        return UnreachableError(f"The database did not answer within {STORE_ANSWER_S:g} s.")
    state, line = error.sqlstate or "", error.diag.message_primary
    if line is None:
        line = " ".join(str(error).partition("\n")[0].removeprefix("connection failed: ").split())
        return RefusedError(line) if any(words in line for words in _REFUSALS) else UnreachableError(line)
    if state.startswith(_LATER):
        return UnreachableError(line)
    return RefusedError(line) if state.startswith(_REFUSED) else StoreError(line)
