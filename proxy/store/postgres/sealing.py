"""How streams end in the database: whole tapes as blocks, also those of a dead writer, and partitions that come and go.

Each statement checks in itself that its writer may still write, so it is done whole or not at all. No lock is ever held
over a round trip: a paused process would keep others from declaring it dead.
"""

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps

from ..catalogue import read_row
from ..catalogue_row import AnswerRow, CallRow, CatalogueRow, StreamRow
from ..files import mend
from ..folder import is_stream_id
from ..tape_file import opened_for_reading
from .connection import Connection
from .packs import blocks, row_text, same, unpack, word

__all__ = [
    "COLUMNS",
    "ENDED",
    "FORGET",
    "MINE",
    "NAMES",
    "Batch",
    "Fence",
    "Tape",
    "ahead",
    "batches",
    "bury",
    "columns",
    "finish",
    "put",
    "tidy",
]

#: What one statement seals: tapes, and bytes of blocks.
_TAPES: Final = 16
_BATCH_BYTES: Final = 256 * 1024
#: Packs read at once while a dead writer's tapes are put together, and bytes that wait for their files.
_PACKS: Final = 64
_SPOOL_BYTES: Final = 8 * 1024 * 1024
#: A partition that is being read is dropped later: everything else would wait for a DROP that waits.
_LOCK_MS: Final = 100
_INT_MAX: Final = 2**31 - 1
COLUMNS: Final = "caller text, model text, route text, ending text, run text, turn int, session text, row text"
_KEY_COLUMNS: Final = "caller text, call text, same text, stream text, at_us bigint, row text"
_KEY: Final = "caller, call, same, stream, at_us, row"
NAMES: Final = COLUMNS.replace(" text", "").replace(" int", "")
#: Yields one row if the writer still holds its name; it cannot be taken before the statement has ended.
MINE: Final = """mine AS (SELECT id, epoch FROM wiretape.writer
    WHERE id = $1::int AND epoch = $2::bigint AND holder IS NOT DISTINCT FROM $3::text FOR SHARE)"""
_SEAL: Final = f"""
    WITH {MINE}, open AS (
        SELECT given.id FROM mine, unnest($4::text[]) AS given(id)
        WHERE NOT EXISTS (SELECT FROM wiretape.stream s WHERE s.id = given.id AND s.sealed IS NOT NULL)
    ), laid AS (
        INSERT INTO wiretape.block (day, stream, n, upto, body)
        SELECT $5::date, stream, n, upto, substr($6::bytea, at, size)
        FROM json_to_recordset($7::json) AS b(stream text, n int, upto int, at int, size int) JOIN open ON id = stream
        ON CONFLICT (day, stream, n) DO UPDATE SET upto = excluded.upto, body = excluded.body
    ), ended AS (
        INSERT INTO wiretape.stream AS s (id, writer, epoch, created, records, day, sealed, {NAMES})
        SELECT r.id, $1, $2, r.created, r.records, $5, now(), {NAMES}
        FROM json_to_recordset($8::json) AS r(id text, created bigint, records int, {COLUMNS}) JOIN open USING (id)
        ON CONFLICT (id) DO UPDATE SET (records, day, sealed, {NAMES}) =
            (excluded.records, excluded.day, excluded.sealed, {", ".join(f"excluded.{c}" for c in NAMES.split(", "))})
            WHERE s.sealed IS NULL RETURNING id
    ), called AS (
        INSERT INTO wiretape.call ({_KEY}, place) SELECT {_KEY}, place FROM json_to_recordset($9::json)
            AS c({_KEY_COLUMNS}, place int) JOIN ended ON id = stream
    ), answered AS (
        INSERT INTO wiretape.answer ({_KEY}, made_by) SELECT {_KEY}, made_by FROM json_to_recordset($10::json)
            AS a({_KEY_COLUMNS}, made_by text) JOIN ended ON id = stream
    ) SELECT (SELECT count(*) FROM mine), ARRAY(SELECT id FROM ended)"""  # noqa: S608 - our own words
ENDED: Final = "SELECT id, ending, records FROM wiretape.stream WHERE id = ANY($1) AND sealed IS NOT NULL"
#: Streams of which no record arrived, and none will.
_NEVER_WAS: Final = f"""WITH {MINE} DELETE FROM wiretape.stream s USING mine
    WHERE s.id = ANY($4::text[]) AND s.sealed IS NULL"""  # noqa: S608 - our own words
_DEAD: Final = """UPDATE wiretape.writer SET epoch = epoch + 1, holder = NULL
    WHERE id = $1 AND epoch = $2 AND seen = $3 RETURNING epoch"""
#: Writers that left unsealed streams an hour ago. One that was only stopped comes back and seals them from its tapes.
_SILENT: Final = """SELECT id, epoch, seen FROM wiretape.writer w WHERE seen < now() - interval '1 hour'
    AND EXISTS (SELECT FROM wiretape.stream s WHERE s.writer = w.id AND s.sealed IS NULL)"""
#: Packs of the hours before the last, if every stream in them is sealed; and blocks of days that are not kept.
_DROPPABLE: Final = """SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid,
    (SELECT floor(extract(epoch FROM now()) / 3600) - 1 AS h, min(hour) AS needed FROM wiretape.stream
        WHERE sealed IS NULL) AS hours
    WHERE i.inhparent = 'wiretape.pack'::regclass AND substring(c.relname FROM 6)::int < least(h, needed)
    UNION ALL SELECT c.relname FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'wiretape.block'::regclass
        AND to_date(substring(c.relname FROM 7), 'YYYYMMDD') < (now() AT TIME ZONE 'UTC')::date - $1::int"""
#: Everything about streams, chosen by a condition.
FORGET: Final = """WITH gone AS (DELETE FROM wiretape.stream WHERE {} RETURNING id, day
    ), blocks AS (DELETE FROM wiretape.block b USING gone WHERE b.day = gone.day AND b.stream = gone.id
    ), calls AS (DELETE FROM wiretape.call USING gone WHERE stream = gone.id
    ), answers AS (DELETE FROM wiretape.answer USING gone WHERE stream = gone.id) SELECT id FROM gone"""
_OLD: Final = """id IN (SELECT id FROM wiretape.stream
    WHERE day < (now() AT TIME ZONE 'UTC')::date - $1::int LIMIT 1000)"""
#: What runs no longer need, since none waits for so long.
_LEFT_OVER: Final = (
    "claim WHERE at < now() - interval '8 days'",
    "signal WHERE at < now() - interval '30 days'",
    "reader WHERE until < now() - interval '1 hour'",
)
_HOURS: Final = """SELECT substring(c.relname FROM 6)::int FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = 'wiretape.pack'::regclass AND substring(c.relname FROM 6)::int >= $1 ORDER BY 1"""
#: Attached, which waits for no reader; a partition created in its place would wait for every dump.
_AHEAD: Final = """DO $$
DECLARE
    h int := floor(extract(epoch FROM now()) / 3600); d date := (now() AT TIME ZONE 'UTC')::date; p record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtext('wiretape.ahead'));
    FOR p IN SELECT 'pack' AS of, 'pack_' || n AS name, n::text AS value FROM generate_series(h, h + 2) AS n
        UNION ALL SELECT 'block', 'block_' || to_char(d + n, 'YYYYMMDD'), (d + n)::text FROM generate_series(0, 1) AS n
    LOOP
        IF to_regclass('wiretape.' || p.name) IS NULL THEN
            EXECUTE format('CREATE TABLE wiretape.%I (LIKE wiretape.%I INCLUDING ALL)', p.name, p.of);
            EXECUTE format('ALTER TABLE wiretape.%I ATTACH PARTITION wiretape.%I FOR VALUES IN (%L)',
                p.of, p.name, p.value);
        END IF;
    END LOOP;
END $$"""


class Fence(NamedTuple):
    """Who may write: a writer in one of its epochs, with the token of its holder; without one it is dead."""

    writer: int
    epoch: int
    holder: str | None


class Tape(NamedTuple):
    """A tape that has ended: its rows, and what returns a descriptor of its file."""

    row: CatalogueRow
    opened: Callable[[], int]


class Batch:
    """What one statement seals: blocks of some tapes, and the rows of those that are complete with it."""

    def __init__(self) -> None:
        #: What each complete tape is: its ending, and how many records it has.
        self.complete: dict[str, tuple[str, int]] = {}
        #: Streams whose tapes are gone.
        self.missing: list[str] = []
        self._body = bytearray()
        self._blocks: list[dict[str, Any]] = []
        self._rows: list[dict[str, Any]] = []
        self._calls: list[dict[str, Any]] = []
        self._answers: list[dict[str, Any]] = []

    @property
    def full(self) -> bool:
        """Whether it is enough for one statement."""
        return len(self.complete) >= _TAPES or len(self._body) >= _BATCH_BYTES

    def lay(self, stream: str, n: int, upto: int, body: bytes) -> None:
        """Add a block."""
        self._blocks.append({"stream": stream, "n": n, "upto": upto, "at": len(self._body) + 1, "size": len(body)})
        self._body += body

    def close(self, row: CatalogueRow, records: int) -> None:
        """Add the rows of a tape whose last block was added."""
        stream, calls, answers = row
        self.complete[stream.stream] = stream.ending, records
        self._rows.append({**columns(stream), "records": records})
        for place, call in enumerate(calls):
            self._calls.append({**_key(call), "at_us": call.handed_us, "place": place})
        for answer in answers:
            self._answers.append({**_key(answer), "at_us": answer.arrived_us, "made_by": word(answer.made_by)})

    def values(self, day: date) -> list[Any]:
        """Return the values of the statement after those of the fence."""
        streams = list({block["stream"] for block in self._blocks} | self.complete.keys())
        lists = (self._blocks, self._rows, self._calls, self._answers)
        blocks_, *rows = (dumps(each).decode() for each in lists)
        return [streams, day, bytes(self._body), blocks_, *rows]


def columns(row: StreamRow) -> dict[str, Any]:
    """Return what a stream's row in the database contains of the one in the catalogue."""
    texts = {name: word(getattr(row, name)) for name in ("caller", "model", "route", "ending")}
    turn = None if row.turn is None else min(row.turn, _INT_MAX)
    more = {"run": row.run and word(row.run), "turn": turn, "session": row.session and word(row.session)}
    return {"id": row.stream, "created": row.created, **texts, **more, "row": row_text(row)}


def _key(row: CallRow | AnswerRow) -> dict[str, Any]:
    alike = {"caller": word(row.caller), "call": word(row.call), "same": same(row.name, row.arguments)}
    return {**alike, "stream": row.stream, "row": row_text(row)}


def batches(tapes: Iterable[Tape]) -> Iterator[Batch]:
    """Read tapes and yield what to seal. Blocks; call it in a thread."""
    batch = Batch()
    for row, opened in tapes:
        stream, upto = row.stream.stream, 0
        try:
            fd = opened()
        except FileNotFoundError:
            batch.missing.append(stream)
            continue
        try:
            for n, upto, body in blocks(partial(os.pread, fd)):
                batch.lay(stream, n, upto, body)
                if batch.full:
                    yield batch
                    batch = Batch()
        finally:
            os.close(fd)
        batch.close(row, upto)
    yield batch


async def put(connection: Connection, fence: Fence, day: date, batch: Batch) -> Mapping[str, bool] | None:
    """Seal a batch. Return of each complete stream whether the database has it whole, as it is here: if not, it was
    sealed by others. None if the fence is down.
    """
    ((mine, sealed),) = await connection.execute(_SEAL, [*fence, *batch.values(day)])
    if not mine:
        return None
    others = [stream for stream in batch.complete if stream not in sealed]
    ended = {stream: as_ for stream, *as_ in await connection.execute(ENDED, (others,))} if others else {}
    whole = batch.complete
    return {stream: stream in sealed or ended.get(stream) == [*whole[stream]] for stream in whole}


# -- writers that died ------------------------------------------------------------------------------------------------


async def bury(connection: Connection, writer: int, epoch: int, seen: object) -> None:
    """Declare a writer dead that is as it was seen, and end its streams as `crashed`. May be repeated at any time."""
    for (next_epoch,) in await connection.execute(_DEAD, (writer, epoch, seen)):
        await finish(connection, Fence(writer, next_epoch, None), lambda _: False)


async def finish(connection: Connection, fence: Fence, spares: Callable[[str], bool]) -> None:
    """Seal the unsealed streams of a writer from its packs, as recovery mends tapes; not those that are spared."""
    sql = "SELECT id, hour, epoch, seq FROM wiretape.stream WHERE writer = $1 AND sealed IS NULL AND hour IS NOT NULL"
    found = await connection.execute(sql, (fence.writer,))
    first = {stream: tuple(place) for stream, *place in found if not spares(stream) and is_stream_id(stream)}
    if not first:
        return
    ((day,),) = await connection.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
    with tempfile.TemporaryDirectory(prefix="wiretape-") as folder:
        paths = {stream: Path(folder, f"{stream}.tape") for stream in first}
        await _put_together(connection, fence.writer, first, paths)
        found_batches = batches(_mended(paths))
        while (batch := await trio.to_thread.run_sync(next, found_batches, None)) is not None:
            if await put(connection, fence, day, batch) is None:
                return
        empty = [stream for stream, path in paths.items() if not path.stat().st_size]
        await connection.execute(_NEVER_WAS, (*fence, empty))


async def _put_together(
    connection: Connection, writer: int, first: Mapping[str, tuple[int, ...]], paths: Mapping[str, Path]
) -> None:
    """Write the tapes of streams as far as the packs of their writer go, each from its first one (hour, epoch, seq)."""
    sql = """SELECT epoch, seq, body FROM wiretape.pack WHERE hour = $1 AND writer = $2
        AND (epoch, seq) > ($3, $4) ORDER BY epoch, seq LIMIT $5"""
    lines, size = {stream: bytearray() for stream in first}, 0

    def spool() -> None:
        for stream, held in lines.items():
            with paths[stream].open("ab") as file:
                file.write(held)
            held.clear()

    for (hour,) in await connection.execute(_HOURS, (min(first.values())[0],)):
        start_hour, epoch, seq = min(first.values())
        epoch, seq = (epoch, seq - 1) if hour == start_hour else (0, 0)
        while packs := await connection.execute(sql, (hour, writer, epoch, seq, _PACKS)):
            for epoch, seq, body in packs:
                for stream, part in unpack(body):
                    if stream in first and (hour, epoch, seq) >= first[stream]:
                        lines[stream] += part
                        size += len(part)
                if size >= _SPOOL_BYTES:
                    await trio.to_thread.run_sync(spool)
                    size = 0
    await trio.to_thread.run_sync(spool)


def _mended(paths: Mapping[str, Path]) -> Iterator[Tape]:
    for stream, path in paths.items():
        with suppress(TapeError):  # of a newer release, which can end it
            mend(path)
        row = read_row(stream, path)
        if row is not None and row.stream.ending:
            yield Tape(row, partial(opened_for_reading, path))


# -- partitions and retention -----------------------------------------------------------------------------------------


async def ahead(connection: Connection) -> date:
    """Create the partitions of the next hours and days, and return the day on which streams are sealed now."""
    await connection.execute(_AHEAD)
    ((day,),) = await connection.execute("SELECT (now() AT TIME ZONE 'UTC')::date")
    found: date = day
    return found


async def tidy(connection: Connection, keep_days: int | None) -> None:
    """Bury writers that are gone, and drop what is old; one proxy at a time."""
    ((alone,),) = await connection.execute("SELECT pg_try_advisory_lock(hashtext('wiretape.tidy'))")
    if not alone:
        return
    for writer in await connection.execute(_SILENT):
        await bury(connection, *writer)
    await connection.execute(f"SELECT set_config('lock_timeout', '{_LOCK_MS}', false)")
    for (name,) in await connection.execute(_DROPPABLE, (keep_days,)):
        await connection.execute(f"DROP TABLE wiretape.{name}")
    while keep_days is not None and await connection.execute(FORGET.format(_OLD), (keep_days,)):
        pass
    for what in _LEFT_OVER:
        await connection.execute(f"DELETE FROM wiretape.{what}")  # noqa: S608 - our own words
