"""Shipping: what tapes get goes to PostgreSQL a moment later, in packs while streams run, in blocks when they ended.

No stream ever waits for that. A few MiB wait in memory; if it is more, only how far each tape was sent, and the rest is
read from the tape. Every connection takes the writer's name again, which raises its epoch: a pack that was under way on
the connection before has then arrived, or never will.
"""

import base64
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from math import inf
from pathlib import Path
from typing import Final, NamedTuple

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps

from ... import limits
from ...security.access import write_whole
from ..catalogue_row import CatalogueRow, StreamRow, row_of_tape
from ..files import FileStore
from ..folder import ended_since
from ..store import StoreError, UnreachableError
from ..tape_file import TapeFile, TapeReader
from .connection import Connection, Server
from .packs import pack, part, row_text
from .schema import check
from .sealing import COLUMNS, ENDED, FORGET, MINE, NAMES, Batch, Fence, Tape, ahead, batches, columns, finish, put, tidy

__all__ = ["FencedError", "Shipper"]

#: Takes the name: at the start from any holder, later only from one that is dead or is this process.
_TAKE: Final = """INSERT INTO wiretape.writer AS w (name, epoch, holder, seen) VALUES ($1, 1, $2, now())
    ON CONFLICT (name) DO UPDATE SET epoch = w.epoch + 1, holder = excluded.holder, seen = now()
    WHERE $3::bool OR w.holder IS NULL OR w.holder = $2 OR w.seen < now() - make_interval(secs => $4)
    RETURNING id, epoch, floor(extract(epoch FROM now()) / 3600)::int"""
_BEAT: Final = f"WITH {MINE} UPDATE wiretape.writer w SET seen = now() FROM mine WHERE w.id = mine.id RETURNING 1"  # noqa: S608
_FLUSH: Final = f"""
    WITH {MINE}, packed AS (
        INSERT INTO wiretape.pack (hour, writer, epoch, seq, body)
        SELECT greatest($5::int, floor(extract(epoch FROM now()) / 3600)::int), id, epoch, $4::bigint, $6::bytea
        FROM mine RETURNING hour
    ), begun AS (
        INSERT INTO wiretape.stream AS s (id, writer, epoch, hour, seq, created, {NAMES})
        SELECT r.id, $1, $2, hour, $4, created, {NAMES}
        FROM packed, json_to_recordset($7::json) AS r(id text, created bigint, {COLUMNS})
        ON CONFLICT (id) DO UPDATE SET (epoch, hour, seq) = (excluded.epoch, excluded.hour, excluded.seq)
            WHERE s.sealed IS NULL
    ) SELECT hour FROM packed"""  # noqa: S608 - our own words
_ARRIVED: Final = "SELECT 1 FROM wiretape.pack WHERE hour >= $1 AND (writer, epoch, seq) = ($2, $3, $4)"
#: Streams that another proxy records now: this folder is a copy of its folder.
_OF_OTHERS: Final = """SELECT s.id FROM wiretape.stream s JOIN wiretape.writer w ON w.id = s.writer
    WHERE s.id = ANY($1) AND s.sealed IS NULL AND w.id <> $2 AND w.holder IS NOT NULL
    AND w.seen > now() - make_interval(secs => $3)"""
#: What reading the whole tape found, of a stream that ended here as there.
_COMPLETE: Final = f"""WITH {MINE} UPDATE wiretape.stream s SET row = r.row
    FROM mine, json_to_recordset($4::json) AS r(id text, ending text, row text)
    WHERE s.id = r.id AND s.ending = r.ending AND s.writer = mine.id AND s.sealed IS NOT NULL"""  # noqa: S608


_CURSOR: Final = "ship.cursor"
_RETRY_S: Final = 0.1
_REFUSED: Final = (
    "Another process records the stream, or took this proxy for dead and ended it. The tape here is whole."
)


class FencedError(Exception):
    """The name of this writer was taken, or it was declared dead; the next connection takes it back if it may."""


class _Stream:
    """A stream that runs: how far its tape was sent, and what the database has."""

    __slots__ = ("at", "held", "name", "placed", "refused", "tape")

    def __init__(self, tape: TapeFile) -> None:
        self.tape, self.name = tape, tape.stream.encode()
        self.at = 0
        #: What the tape has from there on; None if it has to be read.
        self.held: list[bytes] | None = []
        #: The database has its row; and has it as ended by another.
        self.placed = self.refused = False


class _Flight(NamedTuple):
    """A pack under way: where, from where on it has each stream, and when its oldest record was written."""

    place: tuple[int, int, int, int]
    starts: Mapping[_Stream, int]
    since: float


class Shipper:
    """Ships the tapes of one folder. Make it before the first stream, and `run` it in a task."""

    def __init__(
        self,
        server: Server,
        files: FileStore,
        root: Path,
        name: str,
        *,
        dead_s: float,
        keep_days: int | None,
        warn: Callable[..., None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._server, self._files, self._root, self._name = server, files, root, name
        self._dead_s, self._keep_days, self._warn, self._wall = dead_s, keep_days, warn, wall
        #: Records that arrived, streams that expired before they did, and those that others had ended.
        self.records = self.expired_streams = 0
        self.refused = set[str]()
        self.connected = self.fenced = False
        self.fence = self._fallen = Fence(0, 0, None)
        self._token, self._taken, self._warned_at = secrets.token_hex(16), False, -inf
        self._why: str = ""
        self._seq = self._hour = 0
        #: The pack under way, and the last one that arrived.
        self._flight: _Flight | None = None
        self._last: tuple[int, int, int, int] | None = None
        self._streams: dict[str, _Stream] = {}
        #: Streams with more on the tape than was sent; since when, and when the next pack is due.
        self._dirty: dict[_Stream, None] = {}
        self._since, self._due, self._held = 0.0, inf, 0
        #: Ended streams with the time, oldest first; if it has become too `late` for more, `search` the disk from the
        #: cursor on.
        self._queue: dict[str, tuple[CatalogueRow | None, float]] = {}
        self._late = self._search = True
        self._full, self._cursor, self._saved_at = False, 0.0, -inf
        self._sealing: Iterator[Batch] | None = None
        self._seal_at = 0.0
        self._complete: dict[str, StreamRow] = {}
        self._released, self._deleted = list[str](), list[str]()
        self._wake, self._untidy, self._idle = trio.Event(), trio.Event(), trio.Event()
        files.shipping = self

    @property
    def lag_s(self) -> float:
        """How long the oldest record or ending that the database lacks has been on the tape."""
        now, wall = trio.current_time(), self._wall()
        ages = [now - self._since] if self._dirty else []
        ages += [now - self._flight.since] if self._flight else []
        ages += [wall - ended for _, ended in islice(self._queue.values(), 1)]
        return max(0.0, *ages, wall - self._cursor if self._search and self._cursor else 0.0)

    # -- what the store calls -----------------------------------------------------------------------------------------

    def shown(self, tape: TapeFile, lines: bytes | None, row: CatalogueRow | None) -> None:
        """Take one batch."""
        entry = self._streams.get(tape.stream)
        if entry is None:
            entry = self._streams[tape.stream] = _Stream(tape)
        if entry not in self._dirty and not entry.refused:
            if not self._dirty:
                self._since = trio.current_time()
                self._due = self._since + limits.SHIP_FLUSH_S
                self._wake.set()
            self._dirty[entry] = None
        if lines is None or entry.held is None or entry.refused:
            entry.held = None
        else:
            entry.held.append(lines)
            self._held += len(lines)
            if self._held > limits.SHIP_HELD_BYTES_MAX:
                self._held = 0
                for each in self._dirty:
                    each.held = None
        if tape.ended:
            del self._streams[tape.stream]
            if entry.held is None or not entry.placed:
                self._dirty.pop(entry, None)  # the blocks will have it
                self._held -= sum(map(len, entry.held or ()))
            if len(self._queue) >= limits.SHIP_QUEUE_MAX:
                self._late = self._search = True
            if not (self._late or entry.refused):
                if not self._queue:
                    self._seal_at = trio.current_time() + limits.SHIP_GATHER_S
                    self._wake.set()
                self._queue[tape.stream] = row, self._wall()

    def released(self, stream: str) -> None:
        """End a stream in the database as recovery will end its tape, once all its records have arrived."""
        self._released.append(stream)
        self._wake.set()

    def completed(self, row: StreamRow) -> None:
        """Complete the row of an ended stream; in the database, unless that has to catch up anyway."""
        if self.connected and row.stream not in self._queue and len(self._complete) < limits.SHIP_QUEUE_MAX:
            self._complete[row.stream] = row
            self._wake.set()

    def expired(self, streams: Sequence[str]) -> None:
        """Count those that had not arrived; of those that are on disk only, those that began after the cursor."""
        cursor = base64.b32hexencode(int(self._cursor * 1_000).to_bytes(6, "big")).decode().lower()  # as ids begin
        late = [stream for stream in streams if self._search and stream > cursor]
        self._lost([stream for stream in streams if self._queue.pop(stream, None) or stream in late])

    def deleted(self, streams: Sequence[str]) -> None:
        """Delete in the database what was deleted here: nothing that was read before may bring it back."""
        for stream in streams:
            self._queue.pop(stream, None)
        self._deleted += streams
        self._wake.set()

    def _lost(self, streams: Sequence[str]) -> None:
        if streams:
            self.expired_streams += len(streams)
            self._warn("ship_expired", streams=len(streams), why="Tapes expired before the database had them.")

    async def through(self) -> None:
        """Wait until the database has everything."""
        while self._dirty or self._flight or self._queue or self._search:
            await self._idle.wait()

    # -- the connection -----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Ship until cancelled."""
        self._cursor = await trio.to_thread.run_sync(_cursor_in, self._root / _CURSOR, self._wall())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._keep_house)
            nursery.start_soon(self._beat)
            wait_s = _RETRY_S
            while True:
                try:
                    with closing(await self._server.connect()) as connection:
                        await self._take(connection)
                        self.connected, wait_s = True, _RETRY_S
                        await self._ship(connection)
                except FencedError:
                    pass
                except StoreError as error:
                    self._log_waiting(str(error))
                except Exception as error:  # noqa: BLE001 - P20: streams run without, too
                    self._log_waiting(repr(error))
                self.connected, self._sealing = False, None
                await trio.sleep(wait_s)
                wait_s = min(2 * wait_s, limits.SHIP_RETRY_MAX_S, self._dead_s / 4)  # soon enough to be alive

    async def _beat(self) -> None:
        """Show that this process is alive, on a connection of its own: a large record may take long on the other."""
        while True:
            with suppress(Exception), closing(await self._server.connect()) as connection:
                await connection.execute("SET synchronous_commit = off")
                while True:
                    fence = self.fence
                    if self.connected and not await connection.execute(_BEAT, fence):
                        self._fallen = fence
                        self._wake.set()
                    await trio.sleep(self._dead_s / 4)
            await trio.sleep(min(limits.SHIP_RETRY_MAX_S, self._dead_s / 4))

    def _log_waiting(self, why: str) -> None:
        if (now := trio.current_time()) >= self._warned_at + limits.LIMITED_LOG_S or why != self._why:
            self._warned_at, self._why = now, why
            self._warn("ship_waits", why=why)

    async def _take(self, connection: Connection) -> None:
        """Take the name, and find out what the database has of what was sent before."""
        await check(connection)
        found = await connection.execute(_TAKE, (self._name, self._token, not self._taken, self._dead_s))
        self.fenced = not found
        if not found:
            raise StoreError(f"Another proxy runs as {self._name}, so this one ships nothing: set its --instance.")
        ((writer, epoch, hour),) = found
        self._taken, self.fence = True, Fence(writer, epoch, self._token)
        if (flight := self._flight) is not None:
            if await connection.execute(_ARRIVED, flight.place):
                self._arrived(flight.starts)
            else:
                self._take_back(flight.starts, flight.since)
        if self._last and self._last[0] >= hour - 1 and not await connection.execute(_ARRIVED, self._last):
            self._begin_again()
        placed = [stream for stream, entry in self._streams.items() if entry.placed and not entry.refused]
        for stream, *_ in await connection.execute(ENDED, (placed,)):
            if (entry := self._streams.get(stream)) is not None:
                entry.refused = True
                self._dirty.pop(entry, None)
                self._refuse(stream)
        self._day = await ahead(connection)
        self._untidy.set()

    def _arrived(self, streams: Iterable[_Stream]) -> None:
        for entry in streams:
            entry.placed = True
        self._flight = None

    def _take_back(self, starts: Mapping[_Stream, int], since: float) -> None:
        """Send these streams again from there, unless they have ended and blocks will have them."""
        self._flight, self._since = None, since
        for entry, start in starts.items():
            entry.at, entry.held = start, None
            if entry.tape.stream in self._streams and not entry.refused:
                self._dirty[entry] = None

    def _begin_again(self) -> None:
        """Send again what the database had before it lost its last commits, as in a failover."""
        self._take_back(dict.fromkeys(self._streams.values(), 0), trio.current_time())
        for entry in self._streams.values():
            entry.placed = False
        self._search, self._last, self._cursor = True, None, self._wall() - limits.SHIP_LOST_S
        self._warn("ship_again", why="The database lacks what it had; what ended long before may be missing.")

    def _refuse(self, stream: str) -> None:
        if stream not in self.refused:
            self.refused.add(stream)
            self._warn("ship_refused", stream=stream, why=_REFUSED)

    async def _ship(self, connection: Connection) -> None:
        while self.fence != self._fallen:
            now = trio.current_time()
            if self._dirty and now >= self._due:
                await self._flush(connection)
            if self._queue and now >= self._seal_at:
                await self._seal(connection)
            elif self._search and not self._queue:
                await self._find(connection)
            elif self._complete:
                rows, self._complete = self._complete.values(), {}
                more = [{"id": row.stream, "ending": row.ending, "row": row_text(row)} for row in rows]
                await connection.execute(_COMPLETE, (*self.fence, dumps(more).decode()))
            elif self._deleted:
                await connection.execute(FORGET.format("id = ANY($1)"), (deleted := self._deleted[:],))
                del self._deleted[: len(deleted)]
            else:
                await self._rest(now)
        raise FencedError

    async def _rest(self, now: float) -> None:
        for stream in [stream for stream in self._released if self._streams.get(stream) not in self._dirty]:
            self._released.remove(stream)
            self._streams.pop(stream, None)
            self._untidy.set()
        self._cursor = next((ended for _, ended in self._queue.values()), self._wall())
        if now >= self._saved_at + limits.SHIP_CURSOR_S:
            self._saved_at = now
            await trio.to_thread.run_sync(write_whole, self._root / _CURSOR, b"%r" % self._cursor)
        if not (self._dirty or self._queue):
            self._idle.set()
            self._idle = trio.Event()
        due = [self._saved_at + limits.SHIP_CURSOR_S] + ([self._due] if self._dirty else [])
        due += [self._seal_at] if self._queue else []
        with trio.move_on_at(min(due)):
            await self._wake.wait()
        self._wake = trio.Event()

    # -- packs of running streams -------------------------------------------------------------------------------------

    async def _flush(self, connection: Connection) -> None:
        """Send what the dirty tapes have more, up to a bound, and wake those who follow."""
        now, since, pieces, size = trio.current_time(), self._since, list[bytes](), 0
        starts, self._dirty, self._held = {entry: entry.at for entry in self._dirty}, {}, 0
        self._seq += 1
        place = self._hour, self.fence.writer, self.fence.epoch, self._seq
        self._flight = _Flight(place, starts, since)
        for entry, at in list(starts.items()):
            tape = entry.tape
            if entry.held is not None:
                lines, entry.held = b"".join(entry.held), []
            elif size <= limits.SHIP_FLUSH_BYTES:
                lines = await self._lines(entry)
            else:
                self._since, self._due, self._dirty[entry] = since, now, None
                del starts[entry]
                continue
            entry.at, size = at + len(lines), size + len(lines)
            if lines:
                pieces += part(entry.name, lines)
            else:  # blocks will have it, or the tape was taken away
                del starts[entry]
            if entry.at == tape.shown or not lines:
                entry.held = [] if lines else None
                self._dirty.pop(entry, None)  # it may have grown again before its turn
            else:
                self._since, self._due, self._dirty[entry] = since, now, None
        plain, lines = b"".join(pieces), b""
        pieces.clear()  # a record may have 100 MB
        body = pack(plain) if size < limits.SHIP_INLINE_BYTES else await trio.to_thread.run_sync(pack, plain)
        records, plain = plain.count(b"\n") - len(starts), b""
        begun = [entry for entry in starts if not entry.placed]
        rows = dumps([columns(entry.tape.row) for entry in begun]).decode()
        landed = await connection.execute(_FLUSH, (*self.fence, self._seq, self._hour, body, rows))
        if not landed:
            raise FencedError
        self._arrived(begun)
        self._hour = landed[0][0]
        self._last = self._hour, *place[1:]
        self.records += records
        # In a transaction of its own: with a NOTIFY, all commits of the server take turns.
        await connection.execute("SELECT pg_notify('wiretape', $1)", (str(self.fence.writer),))

    async def _lines(self, entry: _Stream) -> bytes:
        """Return the next whole lines from a tape; none if it has gone, or if the blocks will have them."""
        tape, at = entry.tape, entry.at
        if tape.stream not in self._streams:
            return b""

        def read() -> bytes:
            size, left = limits.SHIP_READ_BYTES, tape.shown - at
            fd = self._files.opened(tape.stream)
            try:
                while not (end := (data := os.pread(fd, min(size, left), at)).rfind(b"\n") + 1) and size < left:
                    size *= 2
                return data[:end]
            finally:
                os.close(fd)

        with suppress(FileNotFoundError):
            return await trio.to_thread.run_sync(read)
        return b""

    # -- blocks of ended streams --------------------------------------------------------------------------------------

    async def _seal(self, connection: Connection) -> None:
        """Send one batch of what has ended."""
        if self._sealing is None:
            self._sealing, self._sealing_day = batches(await self._tapes()), self._day
        batch = await trio.to_thread.run_sync(next, self._sealing, None)
        if batch is None:
            self._sealing, self._seal_at = None, trio.current_time() + limits.SHIP_GATHER_S
            return
        done = await put(connection, self.fence, self._sealing_day, batch)
        if done is None:
            raise FencedError
        self._lost(batch.missing)
        for stream in (*done, *batch.missing):
            self._queue.pop(stream, None)
            if not done.get(stream, True):
                self._refuse(stream)

    async def _tapes(self) -> list[Tape]:
        """Return the tapes that have waited longest, with their rows."""
        first = dict(islice(self._queue.items(), limits.SHIP_TAPES))
        unknown = [stream for stream, (row, _) in first.items() if row is None]
        known = await self._files.rows(unknown) if unknown else dict[str, CatalogueRow]()
        tapes: list[Tape] = []
        for stream, (given, _) in first.items():
            opened = partial(self._files.opened, stream)
            row = given or known.get(stream) or await trio.to_thread.run_sync(_row_of, stream, opened)
            if row is not None and row.stream.ending:
                tapes.append(Tape(row, opened))
            else:  # it has no record, or recovery has to end it
                del self._queue[stream]
        return tapes

    async def _find(self, connection: Connection) -> None:
        """Queue what ended while the queue was full, or before this process began."""
        self._late, most = False, limits.SHIP_SCAN_MAX  # what ends from now on is queued again
        since = self._cursor - (0.0 if self._full else limits.SHIP_SLACK_S)
        found = await trio.to_thread.run_sync(ended_since, self._root, since, most)
        sealed = {stream: ending for stream, ending, _ in await connection.execute(ENDED, (list(found),))}
        for (stream,) in await connection.execute(_OF_OTHERS, (list(found), self.fence.writer, self._dead_s)):
            sealed[stream] = ""
            self._refuse(stream)
        rows = await self._files.rows([stream for stream, ending in sealed.items() if ending == "crashed"])
        for stream in [stream for stream, row in rows.items() if row.stream.ending != "crashed"]:
            self._refuse(stream)
        new = {stream: (None, at) for stream, at in found.items() if stream not in sealed}
        self._queue = {stream: at for stream, at in new.items() if stream not in self._streams} | self._queue
        self._full = len(found) == most
        self._search = self._late = self._late or self._full
        self._cursor = max((self._cursor, *found.values()))
        self._untidy.set()

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def _keep_house(self) -> None:
        """On a connection of its own: partitions, retention, and streams that no other process will end."""
        while True:
            with trio.move_on_after(limits.SHIP_TIDY_S) as waiting:
                await self._untidy.wait()
            self._untidy = trio.Event()
            try:
                if self.connected:
                    with closing(await self._server.connect()) as connection:
                        self._day = await ahead(connection)
                        await finish(connection, self.fence, self._has)
                        if waiting.cancelled_caught:  # nothing was lost for so long, so others are connected too
                            await tidy(connection, self._keep_days)
            except UnreachableError:
                pass
            except Exception as error:  # noqa: BLE001 - tried again
                self._warn("ship_untidy", why=str(error))

    def _has(self, stream: str) -> bool:
        """Return whether this process is going to end the stream in the database."""
        return self._search or stream in self._streams or stream in self._queue


def _row_of(stream: str, opened: Callable[[], int]) -> CatalogueRow | None:
    """Return the rows of a tape that the catalogue lacks."""
    with suppress(OSError, TapeError):
        return row_of_tape(stream, TapeReader(opened))
    return None


def _cursor_in(path: Path, now: float) -> float:
    """Return the time before which everything has arrived: long ago if it cannot be right."""
    with suppress(OSError, ValueError):
        if (at := float(path.read_text("ascii"))) <= now:
            return at
    return 0.0
