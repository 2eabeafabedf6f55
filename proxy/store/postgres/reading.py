"""The tapes of other proxies, read from the database: blocks of those that have ended, packs of those that run.

All readers of the running streams of one writer share its `_Tail`. It reads packs for those that are up to date, and in
turn for late ones, and hands each the lines of its stream in order until that has enough.
"""

from collections import deque
from collections.abc import Callable, Collection, Sequence
from contextlib import closing, suppress
from math import inf
from typing import Any, Final
from weakref import WeakSet

import trio

from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage, Reader

from ...limits import STORE_ANSWER_S, STORE_PROBE_S, TAIL_INLINE_BYTES, TAIL_LOOK_UP_S, TAIL_POLL_S, TAIL_WAITING_BYTES
from ..store import StoreError, StreamMissingError, UnreachableError
from ..tape_file import Charged
from .connection import Connection, Server
from .packs import NUMBERED, unblock, unpack, word
from .questions import DEAD, Pool, Questions
from .sealing import bury

__all__ = ["PostgresSource"]

#: Where a pack is: hour, epoch and number.
_Place = tuple[int, int, int]
#: Packs that are read at once, unless they have more bytes.
_PACKS_MAX: Final = 16
_BYTES_MAX: Final = 1024 * 1024
#: Compressed bytes of a block that are fetched without a charge: a longer one has a long line. That is held as
#: compressed bytes, as lines and as a record.
_LONG_BYTES: Final = 1024 * 1024
_LONG_TIMES: Final = 4
#: Streams whose end every step looks for.
_ASKED_MAX: Final = 50
_STREAM: Final = f"""SELECT writer, hour, s.epoch, seq, day, {DEAD} FROM wiretape.stream s
    JOIN wiretape.writer w ON w.id = s.writer WHERE s.id = $2"""  # noqa: S608 - our own words
_BLOCK: Final = """SELECT octet_length(body), CASE WHEN octet_length(body) <= $4 THEN body END FROM wiretape.block
    WHERE day = $1 AND stream = $2 AND upto > $3 ORDER BY n LIMIT 1"""
_PACKS: Final = f"""SELECT hour, epoch, seq, body FROM (
    SELECT p.*, sum(octet_length(body)) OVER (ORDER BY hour, epoch, seq) - octet_length(body) AS before
    FROM generate_series($2::int, floor(extract(epoch FROM now()) / 3600)::int + 2) AS h, LATERAL (
        SELECT hour, epoch, seq, body FROM wiretape.pack WHERE hour = h AND writer = $1 AND (epoch, seq) >
            (CASE WHEN h = $2 THEN $3::bigint ELSE -1 END, CASE WHEN h = $2 THEN $4::bigint ELSE -1 END)
        ORDER BY epoch, seq LIMIT {_PACKS_MAX}) p
    ) AS packs WHERE before < {_BYTES_MAX} ORDER BY hour, epoch, seq LIMIT {_PACKS_MAX}"""  # noqa: S608 - our own words
_SEALED: Final = "SELECT id, day FROM wiretape.stream WHERE id = ANY($1) AND sealed IS NOT NULL"
_WRITER: Final = "SELECT epoch, seen FROM wiretape.writer WHERE id = $1"


class PostgresSource(Questions):
    """What other proxies have. `run` in a task for as long as it is used."""

    def __init__(self, server: Server, own: str, dead_s: float, warn: Callable[..., None]) -> None:
        super().__init__(server, own, dead_s)
        self.server, self.warn = server, warn
        #: Apart from the questions, which may take longer.
        self.tapes = Pool(server)
        self._tails: dict[str, _Tail] = {}
        self._watched = trio.Event()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Read for those who follow, and be woken when something was sent; without that tails look now and then."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            while True:
                await self._watched.wait()
                with suppress(StoreError):
                    await self._listen(await self.server.connect())
                await trio.sleep(STORE_PROBE_S)

    async def _listen(self, connection: Connection) -> None:
        with closing(connection):
            await connection.execute("LISTEN wiretape")
            while self._tails:
                with trio.move_on_after(1):
                    if tail := self._tails.get(await connection.notified()):
                        tail.news.set()
            self._watched = trio.Event()

    def read(self, stream: str, from_n: int = 0) -> "_Lines":
        """Return the records so far."""
        return _Lines(self, stream, from_n, waits=False)

    def follow(self, stream: str, from_n: int = 0) -> "_Lines":
        """Return the records so far and those still to come."""
        return _Lines(self, stream, from_n, waits=True)

    def doubt(self, writer: int) -> None:
        """Watch a writer for long enough to know whether it is dead."""
        self.tail(writer).until = trio.current_time() + 2 * self.dead_s

    def tail(self, writer: int) -> "_Tail":
        """Return the tail of a writer."""
        if str(writer) not in self._tails:
            assert self._nursery is not None, "it is read while it runs"
            self._tails[str(writer)] = _Tail(self, writer)
            self._nursery.start_soon(self._keep, self._tails[str(writer)])
            self._watched.set()
        return self._tails[str(writer)]

    async def _keep(self, tail: "_Tail") -> None:
        while tail.wanted:
            try:
                await tail.step()
            except Exception as error:  # noqa: BLE001 - these readers end, and nothing else
                away = isinstance(error, UnreachableError)
                if not away:
                    self.warn("store", why=f"The streams of writer {tail.writer} cannot be followed: {error!r}")
                tail.fail(StoreError("The tape of this stream cannot be read."), waiting=not away)
                await trio.sleep(STORE_PROBE_S)
        del self._tails[str(tail.writer)]


class _Lines(Charged):
    """The records of one stream in batches."""

    def __init__(self, source: PostgresSource, stream: str, from_n: int, *, waits: bool) -> None:
        super().__init__()
        self.cancellable = True
        self.stream, self.waits = word(stream), waits
        #: The last pack from which it has all lines; and the day of its blocks, once it is sealed.
        self.place: _Place = (0, 0, 0)
        self.day: Any = None
        #: What it raises once it has no more lines.
        self.over: Exception | None = None
        self.news = trio.Event()
        self._source, self._from_n, self._next_n = source, from_n, 0
        self._tail: _Tail | None = None
        self._size = 0
        self._parts: deque[bytes] = deque()
        self._reader = Reader()

    def __aiter__(self) -> "_Lines":
        return self

    @property
    def damage(self) -> Sequence[Damage]:
        """What was wrong with the tape when it was shipped."""
        return self._reader.damage

    @property
    def hungry(self) -> bool:
        """Whether it takes more lines."""
        return self._size < TAIL_WAITING_BYTES

    def take(self, lines: bytes) -> None:
        """Keep lines for the next batch."""
        self._parts.append(lines)
        self._size += len(lines)
        self.news.set()

    async def __anext__(self) -> list[Record]:
        await self.charge(0)
        if self._tail is None and self.day is None:
            await self._find()
        while not self._reader.ended:
            records: list[Record] | None = []
            if self._parts:
                records = await self._decoded(self._parts[0])
                hungry, self._size = self.hungry, self._size - len(self._parts.popleft())
                if not hungry and self._tail is not None:
                    self._tail.news.set()
            elif self.day is not None:
                try:
                    records = await self._block()
                except UnreachableError:
                    if not (self.waits and self._next_n):
                        raise
                    await trio.sleep(STORE_PROBE_S)
                    continue
                if records is None:
                    break
            elif self.over is not None:
                raise self.over
            else:
                await self.news.wait()
                self.news = trio.Event()
            if records := [record for record in records or () if record.n >= self._from_n]:
                return records
        raise StopAsyncIteration

    async def _find(self) -> None:
        """Find out where the stream is, and ask for its packs if it runs."""
        found = await self._source.pool.ask(_STREAM, (self._source.dead_s, self.stream))
        if not found:
            raise StreamMissingError(f"there is no stream {self.stream}")
        writer, hour, epoch, seq, self.day, doubtful = found[0]
        if self.day is None:
            self.place, self._tail = (hour, epoch, seq - 1), self._source.tail(writer)
            self._tail.enter(self)
            if doubtful:
                self._source.doubt(writer)

    async def _block(self) -> list[Record] | None:
        """Return the records of the next block; one with a long line is charged before it is fetched."""
        size, body = _LONG_BYTES, None
        while body is None:
            values = (self.day, self.stream, self._next_n, size)
            found = await self._source.tapes.ask(_BLOCK, values, within_s=STORE_ANSWER_S)
            if not found:
                return None
            size, body = found[0]
            if body is None:
                await self.charge(_LONG_TIMES * size)
        return await self._decoded(await trio.to_thread.run_sync(unblock, bytes(body)))

    async def _decoded(self, lines: bytes) -> list[Record]:
        """Return the records of these lines that are new. What the database has lost is sent again from record 0."""

        def decoded() -> list[Record]:
            at, first = 0, NUMBERED.match(lines)
            while first is not None and int(first[1]) < self._next_n:
                at = lines.index(b"\n", at) + 1
                first = NUMBERED.match(lines, at)
            return self._reader.feed(lines[at:])

        records = await trio.to_thread.run_sync(decoded) if len(lines) > TAIL_WAITING_BYTES else decoded()
        self._next_n = records[-1].n + 1 if records else self._next_n
        return records


class _Tail:
    """The packs of one writer, for all readers of its running streams."""

    def __init__(self, source: PostgresSource, writer: int) -> None:
        self.writer = writer
        #: There may be new packs, or a new reader.
        self.news = trio.Event()
        #: It is kept at least so long.
        self.until = trio.current_time() + 1
        self._source = source
        self._readers: WeakSet[_Lines] = WeakSet()
        self._pause_s = TAIL_POLL_S[0]
        self._looked_up_at = self._watched_at = -inf
        #: The writer's last sign of life, and since when it has been the last.
        self._sign: tuple[Any, float] = (None, 0.0)

    @property
    def wanted(self) -> bool:
        """Whether it has readers, or is to find out more about its writer."""
        return bool(self._readers) or trio.current_time() < self.until

    def enter(self, reader: _Lines) -> None:
        """Hand lines to a reader, from its place on."""
        self._readers.add(reader)
        self.news.set()

    def _leave(self, reader: _Lines) -> None:
        self._readers.discard(reader)
        reader.news.set()

    def fail(self, error: StoreError, *, waiting: bool) -> None:
        """End its readers, or only those that want what there is."""
        self._sign = (None, 0.0)  # it could give none either
        for reader in [reader for reader in self._readers if waiting or not reader.waits]:
            reader.over = error
            self._leave(reader)

    async def step(self) -> None:
        """Hand on the next packs to late readers and to the others; then wait for news."""
        readers = [reader for reader in self._readers if reader.hungry]
        front = max([reader.place for reader in readers], default=(0, 0, 0))
        came = 0
        for is_behind in (True, False):
            if group := [reader for reader in readers if (reader.place < front) == is_behind]:
                came += await self._read_on(group)
        await self._watch()
        self._pause_s = TAIL_POLL_S[0] if came else min(2 * self._pause_s, TAIL_POLL_S[1])
        if came < _PACKS_MAX and all(reader.waits for reader in readers):
            with trio.move_on_after(self._pause_s):
                await self.news.wait()
            self.news = trio.Event()

    async def _read_on(self, group: Sequence[_Lines]) -> int:
        """Hand on the packs after those that all of the group have, and return how many there were."""
        after, streams = min(reader.place for reader in group), {reader.stream for reader in group}
        packs = await self._source.tapes.ask(_PACKS, (self.writer, *after), within_s=STORE_ANSWER_S)

        def unpacked() -> list[dict[str, bytes]]:
            return [{name: part for name, part in unpack(body) if name in streams} for *_, body in packs]

        large = sum(len(body) for *_, body in packs) > TAIL_INLINE_BYTES
        found, quiet = await trio.to_thread.run_sync(unpacked) if large else unpacked(), set(group)
        for (hour, epoch, seq, _), parts in zip(packs, found, strict=True):
            for reader in group:
                if reader.hungry and (hour, epoch, seq) > reader.place:
                    reader.place = (hour, epoch, seq)
                    if part := parts.get(reader.stream):
                        reader.take(part)
                        quiet.discard(reader)
        for reader in group if not packs else ():
            if not reader.waits:
                reader.over = StopAsyncIteration()
                self._leave(reader)
        await self._look_up(quiet)
        return len(packs)

    async def _look_up(self, quiet: Collection[_Lines]) -> None:
        """Send readers whose stream was sealed to its blocks. Of many, that is not asked in every step."""
        now = trio.current_time()
        if quiet and now >= self._looked_up_at + TAIL_LOOK_UP_S * (len(quiet) > _ASKED_MAX):
            self._looked_up_at = now
            sealed = dict(await self._source.tapes.ask(_SEALED, ([reader.stream for reader in quiet],)))
            for reader in [reader for reader in quiet if reader.stream in sealed]:
                reader.day = sealed[reader.stream]
                self._leave(reader)

    async def _watch(self) -> None:
        """Declare the writer dead after a time without a sign of life, through all of which it was looked at: it is not
        dead because the database was away, or this process was stopped.
        """
        now, dead_s, before = trio.current_time(), self._source.dead_s, self._watched_at
        if now >= before + dead_s / 4:
            self._watched_at = now
            for sign in await self._source.tapes.ask(_WRITER, (self.writer,)):
                if sign != self._sign[0] or now > before + dead_s:
                    self._sign = sign, now
                elif now >= self._sign[1] + dead_s:
                    self._sign = None, now
                    with closing(await self._source.server.connect()) as connection:
                        await bury(connection, self.writer, *sign)
