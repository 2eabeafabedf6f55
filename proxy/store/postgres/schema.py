"""The tables in PostgreSQL: created and upgraded by `wiretape db migrate`, checked by every start."""

from typing import Final

from .connection import Connection, RefusedError

__all__ = ["VERSION", "check", "migrate"]

#: The statements of each version, in order: the n-th reaches version n. Released ones never change.
_UPGRADES: Final = (
    """-- Where an administrator made it, no right to create one is needed.
DO $$ BEGIN IF to_regnamespace('wiretape') IS NULL THEN CREATE SCHEMA wiretape; END IF; END $$;
CREATE TABLE wiretape.fact (name text PRIMARY KEY, value bytea NOT NULL);
-- One proxy under one name. Only the holder of the present epoch ships; without a holder it is dead.
CREATE TABLE wiretape.writer (
    id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE,
    epoch bigint NOT NULL, holder text, seen timestamptz NOT NULL);
-- What was flushed at once, of all streams of a writer; hours since 1970. Compressed already, so not once more.
CREATE TABLE wiretape.pack (
    hour int, writer int, epoch bigint, seq bigint, body bytea NOT NULL,
    PRIMARY KEY (hour, writer, epoch, seq)) PARTITION BY LIST (hour);
ALTER TABLE wiretape.pack ALTER body SET STORAGE EXTERNAL;
-- hour and seq are those of the first pack with its records, null if only blocks have them; created is in seconds
-- since 1970, day that of its blocks.
CREATE TABLE wiretape.stream (
    id text COLLATE "C" PRIMARY KEY, writer int NOT NULL, epoch bigint NOT NULL, hour int, seq bigint,
    created bigint NOT NULL, caller text NOT NULL, model text NOT NULL, route text NOT NULL,
    ending text NOT NULL DEFAULT '', run text, turn int, session text,
    row text NOT NULL, records int NOT NULL DEFAULT 0, sealed timestamptz, day date);
CREATE INDEX ON wiretape.stream (created, id);
CREATE INDEX ON wiretape.stream (writer) WHERE sealed IS NULL;
CREATE INDEX ON wiretape.stream (hour) WHERE sealed IS NULL;
CREATE INDEX ON wiretape.stream (day);
CREATE INDEX ON wiretape.stream (sealed);
CREATE INDEX ON wiretape.stream (run, turn) WHERE run IS NOT NULL;
CREATE INDEX ON wiretape.stream (session) WHERE session IS NOT NULL;
-- A part of a sealed tape: the records from n up to and without upto; the day is that of the sealing.
CREATE TABLE wiretape.block (
    day date, stream text COLLATE "C", n int, upto int NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (day, stream, n)) PARTITION BY LIST (day);
ALTER TABLE wiretape.block ALTER body SET STORAGE EXTERNAL;
-- Of sealed streams; place is that of the call in its stream, and same a hash of name and arguments.
CREATE TABLE wiretape.call (
    caller text NOT NULL, call text NOT NULL, stream text COLLATE "C" NOT NULL, at_us bigint NOT NULL,
    same text NOT NULL, place int NOT NULL DEFAULT 0, row text NOT NULL);
CREATE INDEX ON wiretape.call (caller, call, same, at_us);
CREATE INDEX ON wiretape.call (stream);
CREATE TABLE wiretape.answer (
    caller text NOT NULL, call text NOT NULL, stream text COLLATE "C" NOT NULL, at_us bigint NOT NULL,
    same text NOT NULL, made_by text NOT NULL DEFAULT '', row text NOT NULL);
CREATE INDEX ON wiretape.answer (caller, call, same, at_us);
CREATE INDEX ON wiretape.answer (stream);
CREATE INDEX ON wiretape.answer (made_by) WHERE made_by <> '';
-- What proxies agree on and ask each other (shared.py).
CREATE TABLE wiretape.claim (name text PRIMARY KEY, writer int NOT NULL, at timestamptz NOT NULL DEFAULT now());
CREATE TABLE wiretape.signal (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, writer int NOT NULL,
    stream text NOT NULL, what text NOT NULL, keys text NOT NULL, at timestamptz NOT NULL DEFAULT now(),
    taken bool NOT NULL DEFAULT false, answer text);
CREATE INDEX ON wiretape.signal (writer) WHERE NOT taken;
CREATE TABLE wiretape.reader (stream text, writer int, until timestamptz NOT NULL, PRIMARY KEY (stream, writer))""",
)
#: The version that this release reads and writes.
VERSION: Final = len(_UPGRADES)
#: Two migrations at once take turns: "wiretape" in bytes.
_LOCK: Final = int.from_bytes(b"wiretape", "big")
#: Partitions are created and dropped by the owner only.
_RIGHTS: Final = """SELECT current_user::text, relowner::regrole::text, pg_has_role(relowner, 'USAGE') FROM pg_class
    WHERE oid = 'wiretape.pack'::regclass"""


async def _found_version(connection: Connection) -> int:
    """Return the version of the tables; 0 if there are none."""
    ((known,),) = await connection.execute("SELECT to_regclass('wiretape.fact') IS NOT NULL")
    sql = "SELECT value FROM wiretape.fact WHERE name = 'version'"
    return int((await connection.execute(sql))[0][0]) if known else 0


async def migrate(connection: Connection) -> tuple[int, int]:
    """Create or upgrade the tables, all or nothing. Return the version before and after."""
    await connection.execute("BEGIN")
    await connection.execute("SELECT pg_advisory_xact_lock($1)", (_LOCK,))
    before = await _found_version(connection)
    if before > VERSION:
        raise RefusedError(_newer(before))
    for statement in ";\n".join(_UPGRADES[before:]).split(";\n"):
        await connection.execute(statement)
    await connection.execute("DELETE FROM wiretape.fact WHERE name = 'version'")
    await connection.execute("INSERT INTO wiretape.fact VALUES ('version', $1)", (str(VERSION).encode(),))
    await connection.execute("COMMIT")
    return before, VERSION


async def check(connection: Connection, *, writes: bool = True) -> None:
    """Raise RefusedError with one line unless this release can read the tables, and this user can ship to them."""
    found = await _found_version(connection)
    if found > VERSION:
        raise RefusedError(_newer(found))
    if found < VERSION:
        what = f"tables of version {found}, and {VERSION} is needed" if found else "no tables of Wiretape"
        raise RefusedError(f'The database has {what}: run "wiretape db migrate".')
    ((user, owner, member),) = await connection.execute(_RIGHTS)
    if writes and not member:
        raise RefusedError(f"{user} may not create partitions: log in as {owner}, or GRANT {owner} TO {user}.")


def _newer(found: int) -> str:
    return f"The database has tables of version {found}, and this release knows {VERSION}: upgrade Wiretape."
