"""The disposable index of all ended tapes in SQLite; what it says, the tapes say, and it is rebuilt from them.

One connection, in one thread: writes that wait are taken together in one transaction (4 us a row, against 59 us each),
and whoever asks is answered behind them. SQLite before 3.51.3 can corrupt itself when two connections write or
checkpoint at once, so there is never a second one that does: other processes only `peek`.
"""

import sqlite3
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from itertools import islice
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps, parse

from ..limits import SAME_CALLS_MAX
from .catalogue_row import AnswerRow, CallRow, CatalogueRow, StreamRow, row_of_tape
from .folder import Folder
from .linking import Fate, Key, Link, fates, key_of, link_of
from .store import PAGE_MAX, Filter, StoreError
from .tape_file import records_of

__all__ = ["Book", "Catalogue", "Peek", "peek", "peek_fates", "read_row", "reindex"]

_T = TypeVar("_T")

#: Written into the file: another number, another meaning of the rows, so it is built anew.
_VERSION: Final = 3
#: Tapes indexed between two questions while it catches up: about 50 ms.
_STEP: Final = 20
#: Of one run: a disk that damages the file again each time must not keep us busy.
_REBUILDS: Final = 3
_SUFFIXES: Final = ("", "-wal", "-shm")

_SCHEMA: Final = """
    CREATE TABLE streams (
        created INTEGER NOT NULL, stream TEXT NOT NULL, caller TEXT NOT NULL, route TEXT NOT NULL,
        dialect TEXT NOT NULL, model TEXT NOT NULL, ending TEXT NOT NULL, flags TEXT NOT NULL,
        input_tokens INTEGER, output_tokens INTEGER, usage TEXT,
        first_frame_us INTEGER, first_content_us INTEGER, duration_us INTEGER,
        PRIMARY KEY (created, stream)
    );
    CREATE UNIQUE INDEX streams_by_id ON streams (stream);
    CREATE TABLE calls (
        caller TEXT NOT NULL, call TEXT NOT NULL, handed_us INTEGER NOT NULL, stream TEXT NOT NULL,
        name TEXT NOT NULL, state TEXT NOT NULL, arguments TEXT NOT NULL, messages INTEGER NOT NULL,
        PRIMARY KEY (caller, call, handed_us, stream)
    );
    CREATE INDEX calls_by_stream ON calls (stream);
    CREATE TABLE answers (
        caller TEXT NOT NULL, call TEXT NOT NULL, arrived_us INTEGER NOT NULL, stream TEXT NOT NULL,
        name TEXT NOT NULL, arguments TEXT NOT NULL, after INTEGER NOT NULL, failed INTEGER NOT NULL,
        made_by TEXT NOT NULL, request TEXT NOT NULL,
        PRIMARY KEY (caller, call, arrived_us, stream)
    );
    CREATE INDEX answers_by_stream ON answers (stream);
    CREATE INDEX answers_by_call ON answers (made_by);
"""
_STREAM: Final = (
    "created, stream, caller, route, dialect, model, ending, flags, input_tokens, output_tokens, usage, "
    "first_frame_us, first_content_us, duration_us"
)
_CALL: Final = "caller, call, handed_us, stream, name, state, arguments, messages"
_ANSWER: Final = "caller, call, arrived_us, stream, name, arguments, after, failed, made_by, request"
_STREAM_NAMES: Final = tuple(_STREAM.split(", "))
_CALL_NAMES: Final = tuple(_CALL.split(", "))
_ANSWER_NAMES: Final = tuple(_ANSWER.split(", "))
_stream_members: Final = attrgetter(*_STREAM_NAMES)
_call_members: Final = attrgetter(*_CALL_NAMES)
_answer_members: Final = attrgetter(*_ANSWER_NAMES)
_STREAM_MARKS: Final = f"({','.join('?' * len(_STREAM_NAMES))})"
#: Pages that SQLite keeps beside the kernel: filled for good by the first 3,500 streams.
_PAGES_KB: Final = 1_024
#: Rows of one statement. Each number of them is a statement of its own, which sqlite3 keeps: of 1 to 100 rows they
#: took 6 MB, so there are 1, 2, 4 .. 64 (0.2 MB), and what is too few is filled up with the last row again.
_TOGETHER_MAX: Final = 64
_ROWS_BEHIND: Final = (
    "SELECT created, stream FROM streams WHERE (created, stream) > (?, ?) ORDER BY created, stream LIMIT ?"
)
_FLAGS_AT: Final = _STREAM_NAMES.index("flags")


class Peek(NamedTuple):
    """What another process's catalogue says: one page, and every stream that it knows."""

    page: Sequence[StreamRow]
    known: frozenset[str]


def peek(root: Path, which: Filter, limit: int) -> Peek | None:
    """Reads the catalogue of a folder that another process may hold; None where it cannot be read or is none of ours.

    The connection can only read, so it never takes part in a checkpoint. Where nobody has the file open it leaves no
    trace either: without a log beside it, nothing changes while we look.
    """

    def look(base: sqlite3.Connection) -> Peek:
        known = frozenset(stream for (stream,) in base.execute("SELECT stream FROM streams"))
        return Peek(_page(base, which, limit), known)

    return _peeked(root, look)


def peek_fates(root: Path, stream: str, now: float) -> Mapping[str, Fate]:
    """What became of the calls of a stream, as far as another process's catalogue says it."""
    return _peeked(root, lambda base: _fates(base, stream, now)) or {}


def _peeked(root: Path, look: Callable[[sqlite3.Connection], _T]) -> _T | None:
    path = root / "catalogue.db"
    how = "mode=ro" if path.with_name(path.name + "-wal").exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as base:
            return look(base) if base.execute("PRAGMA user_version").fetchone() == (_VERSION,) else None
    except sqlite3.DatabaseError:
        return None


def read_row(stream: str, path: str | Path) -> CatalogueRow | None:
    """The rows of a tape; None where it is gone, unreadable, or of a format that this version refuses."""
    try:
        return row_of_tape(stream, records_of(path))
    except (OSError, TapeError):
        return None
    except Exception:  # noqa: BLE001 - our own reading failed on it: that must hide no other tape, nor this one
        told = (record for record in records_of(path) if record.kind in ("open", "request", "end"))
        return row_of_tape(stream, told)


def reindex(folder: Folder) -> int:
    """The whole catalogue anew; how many streams it holds. The folder must be held, and nobody else have it open.

    Raises StoreError where it cannot be written; what there is of it the next server completes.
    """
    _remove(folder.root / "catalogue.db")
    try:
        with closing(Book(folder)) as book:
            while book.catch_up():
                pass
            return book.count()
    except sqlite3.Error as error:
        raise StoreError(f"the catalogue of {folder.root} cannot be written: {error}") from error


class Catalogue:
    """Questions and entries from the serving task; the work is done in a thread of its own."""

    def __init__(self, folder: Folder, warn: Callable[[str], None]) -> None:
        """Returns at once. What tapes it lacks it takes in on the side, and a damaged file it replaces."""
        self._folder = folder
        self._warn = warn
        self._trio = trio.lowlevel.current_trio_token()
        self._waiting: deque[tuple[str, str, CatalogueRow | None]] = deque()
        self._scheduled = False
        self._book: Book | None = None
        self._closing = False
        self._warned = False
        self._rebuilds_left = _REBUILDS
        self._thread = ThreadPoolExecutor(1, "wiretape-catalogue")
        self._thread.submit(self._catch_up)

    def enter(self, stream: str, path: str, entry: CatalogueRow | None) -> None:
        """An ended stream: its rows, or its tape to find them in. Known from now on; written with the next `write`."""
        self._waiting.append((stream, path, entry))

    def write(self) -> None:
        """What was entered, in one transaction. Returns at once."""
        if self._waiting and not self._scheduled:
            self._scheduled = True
            self._thread.submit(self._drain)

    async def list(self, which: Filter, limit: int) -> Sequence[StreamRow]:
        """One page, the latest first."""
        return await self._ask(lambda book: book.list(which, min(limit, PAGE_MAX)), [])

    async def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
    ) -> Sequence[Link | None]:
        """What each result that has just come answers; streams that ended a moment ago are known."""
        return await self._ask(lambda book: book.find_calls(answers, running), [None] * len(answers))

    async def fates(self, stream: str, now: float) -> Mapping[str, Fate]:
        """What became of the calls of a stream."""
        return await self._ask(lambda book: _fates(book.base, stream, now), {})

    async def forget(self, streams: Collection[str]) -> None:
        """Their tapes are gone."""
        await self._ask(lambda book: book.forget(streams), None)

    def close(self) -> None:
        """Everything entered is in the file. Blocks; to be called in a thread."""
        self._closing = True
        self._thread.submit(self._drain)
        self._thread.shutdown()
        if self._book is not None:
            self._book.close()

    async def _ask(self, question: "Callable[[Book], _T]", nothing: _T) -> _T:
        done = trio.Event()

        def tell(_: Future[_T]) -> None:
            with suppress(trio.RunFinishedError):
                self._trio.run_sync_soon(done.set)

        def answer() -> _T:
            self._drain()
            return self._with_book(question, nothing)

        future = self._thread.submit(answer)
        future.add_done_callback(tell)
        await done.wait()
        return future.result()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Whoever writes after the first line asks for another drain, so nothing is left waiting."""
        self._scheduled = False
        rows: list[CatalogueRow] = []
        while self._waiting:
            stream, path, entry = self._waiting.popleft()
            entry = entry or read_row(stream, path)
            if entry is None and (moved := self._folder.ended_path(stream)) is not None:
                entry = read_row(stream, moved)
            if entry is not None:
                rows.append(entry)
        if rows:
            self._with_book(lambda book: book.enter(rows), None)

    def _catch_up(self) -> None:
        if not self._closing and self._with_book(lambda book: book.catch_up(), False):
            with suppress(RuntimeError):  # shut down meanwhile
                self._thread.submit(self._catch_up)

    def _with_book(self, work: "Callable[[Book], _T]", nothing: _T) -> _T:
        """What the file can be made to say. It holds nothing that the tapes do not, so no fault of its is anyone's."""
        try:
            if self._book is None:
                self._book = Book(self._folder)
            return work(self._book)
        except (sqlite3.OperationalError, OSError) as error:
            self._say(f"catalogue.db cannot be used, what it misses is made good at the next start: {error}")
        except sqlite3.DatabaseError as error:
            self._say(f"catalogue.db is damaged and is built anew from the tapes: {error}")
            self._replace()
        return nothing

    def _say(self, warning: str) -> None:
        if not self._warned:
            self._warned = True
            self._warn(warning)

    def _replace(self) -> None:
        if self._book is not None:
            self._book.close()
        self._book = None
        if self._rebuilds_left:
            self._rebuilds_left -= 1
            _remove(self._folder.root / "catalogue.db")
            with suppress(RuntimeError):  # shut down meanwhile; the next start finds it
                self._thread.submit(self._catch_up)


class Book:
    """The file itself."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        path = folder.root / "catalogue.db"
        path.touch(mode=0o600)
        self._steps: Generator[bool] | None = None
        self.base = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            self.base.execute("PRAGMA journal_mode = WAL")
            self.base.execute("PRAGMA synchronous = NORMAL")
            self.base.execute(f"PRAGMA cache_size = -{_PAGES_KB}")
            self._make_tables()
        except BaseException:
            self.base.close()
            raise

    def _make_tables(self) -> None:
        (version,) = self.base.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            for (name,) in self.base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                self.base.execute(f'DROP TABLE "{name}"')
            self.base.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif (said := self.base.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(said)

    def close(self) -> None:
        """The log is folded into the file."""
        if self._steps is not None:
            self._steps.close()  # which may hold a folder open
        self.base.close()

    def count(self) -> int:
        """How many streams it knows."""
        (count,) = self.base.execute("SELECT count(*) FROM streams").fetchone()
        return int(count)

    def enter(self, entries: Iterable[CatalogueRow]) -> None:
        """In one transaction. A stream that is known already is known better now."""
        entries = list(entries)
        with self.base:
            self.base.execute("BEGIN")
            for at in range(0, len(entries), _TOGETHER_MAX):
                self._enter(entries[at : at + _TOGETHER_MAX])

    def _enter(self, entries: Sequence[CatalogueRow]) -> None:
        """Few statements for many rows: sqlite3 lets go of the interpreter for each one, and has to wait for it again
        (112 us of CPU a row, row by row beside a busy server; 46 to 63 together).
        """
        filled = _filled(entries)
        streams = [entry.stream.stream for entry in filled]
        marks = ",".join("?" * len(streams))
        for table in ("calls", "answers", "streams"):
            self.base.execute(f"DELETE FROM {table} WHERE stream IN ({marks})", streams)  # noqa: S608 - our own words
        rows = ",".join([_STREAM_MARKS] * len(streams))
        self.base.execute(
            f"INSERT OR REPLACE INTO streams ({_STREAM}) VALUES {rows}",  # noqa: S608 - our own words
            [value for entry in filled for value in _stream_values(entry.stream)],
        )
        if calls := [_call_values(call) for entry in entries for call in entry.calls]:
            self.base.executemany(f"INSERT INTO calls ({_CALL}) VALUES (?,?,?,?,?,?,?,?)", calls)  # noqa: S608 - our own words
        if answers := [_answer_members(answer) for entry in entries for answer in entry.answers]:
            self.base.executemany(f"INSERT INTO answers ({_ANSWER}) VALUES (?,?,?,?,?,?,?,?,?,?)", answers)  # noqa: S608

    def forget(self, streams: Iterable[str]) -> None:
        """Their rows."""
        keys = [(stream,) for stream in streams]
        with self.base:
            self.base.execute("BEGIN")
            for table in ("calls", "answers", "streams"):
                self.base.executemany(f"DELETE FROM {table} WHERE stream = ?", keys)  # noqa: S608 - our own words

    def list(self, which: Filter, limit: int) -> Sequence[StreamRow]:
        """One page, the latest first."""
        return _page(self.base, which, limit)

    def find_calls(
        self, answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
    ) -> Sequence[Link | None]:
        """What each of these answers."""
        keys = [key_of(answer) for answer in answers]
        return [
            link_of(answer, *_same(self.base, key), running.get(key, ()))
            for answer, key in zip(answers, keys, strict=True)
        ]

    def catch_up(self) -> bool:
        """A step towards what the tapes say: streams without a tape go, tapes without a row come. Whether more is left.

        So a kill between a tape's end and its row, a power loss and a deleted file are all made good by the same walk.
        It holds a step's ids at a time: those of all, and their paths, took 21 MB of 28,000, and for good.
        """
        if self._steps is None:
            self._steps = self._walk()
        return next(self._steps, False)

    def _walk(self) -> Generator[bool]:
        at = (-(2**63), "")
        while rows := self.base.execute(_ROWS_BEHIND, (*at, _TOGETHER_MAX)).fetchall():
            at = rows[-1]
            self.forget([stream for created, stream in rows if not self._folder.holds(stream, created)])
            yield True
        tapes = self._folder.ended()
        while step := list(islice(tapes, _TOGETHER_MAX)):
            streams = _filled([stream for stream, _ in step])
            marks = ",".join("?" * len(streams))
            query = f"SELECT stream FROM streams WHERE stream IN ({marks})"  # noqa: S608 - our own words
            known = {stream for (stream,) in self.base.execute(query, streams)}
            missing = [tape for tape in step if tape[0] not in known]
            for begin in range(0, len(missing), _STEP):
                entries = (read_row(stream, path) for stream, path in missing[begin : begin + _STEP])
                self.enter(entry for entry in entries if entry is not None)
                yield True
            if not missing:
                yield True


def _filled(rows: Sequence[_T]) -> Sequence[_T]:
    """To a power of two, with the last again."""
    return [*rows, *[rows[-1]] * ((1 << (len(rows) - 1).bit_length()) - len(rows))]


def _remove(path: Path) -> None:
    for suffix in _SUFFIXES:
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _page(base: sqlite3.Connection, which: Filter, limit: int) -> Sequence[StreamRow]:
    words = {"caller": which.caller, "model": which.model, "route": which.route, "ending": which.ending}
    terms = [f"{name} = ?" for name, word in words.items() if word is not None]
    values: list[Any] = [word for word in words.values() if word is not None]
    if which.before is not None:
        terms.append("(created, stream) < (?, ?)")
        values += which.before.place
    where = f"WHERE {' AND '.join(terms)}" if terms else ""
    query = f"SELECT {_STREAM} FROM streams {where} ORDER BY created DESC, stream DESC LIMIT ?"  # noqa: S608
    return [_stream_row(values) for values in base.execute(query, [*values, limit])]


def _stream_values(row: StreamRow) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _stream_members(row)
    return (*values[:_FLAGS_AT], dumps(row.flags).decode(), *values[_FLAGS_AT + 1 :])


def _stream_row(values: Sequence[Any]) -> StreamRow:
    named: dict[str, Any] = dict(zip(_STREAM_NAMES, values, strict=True))
    named["flags"] = tuple(parse(named["flags"].encode()))
    return StreamRow(**named)


def _call_values(row: CallRow) -> tuple[Any, ...]:
    values: tuple[Any, ...] = _call_members(row)
    return values


def _fates(base: sqlite3.Connection, stream: str, now: float) -> dict[str, Fate]:
    query = f"SELECT {_CALL} FROM calls WHERE stream = ?"  # noqa: S608 - our own words
    own = [_call_row(values) for values in base.execute(query, (stream,))]
    query = f"SELECT {_ANSWER} FROM answers WHERE made_by = ?"  # noqa: S608 - our own words
    linked = [_answer_row(values) for values in base.execute(query, (stream,))]
    rows: dict[Key, tuple[list[CallRow], list[AnswerRow]]] = {}
    for call in own:
        calls, answers = rows[key_of(call)] = _same(base, key_of(call))
        calls += [call] if call not in calls else []
        answers += [answer for answer in linked if key_of(answer) == key_of(call) and answer not in answers]
    return fates(own, rows, now)


def _same(base: sqlite3.Connection, key: Key) -> tuple[list[CallRow], list[AnswerRow]]:
    """All calls and answers that cannot be told apart by what they are; of very many the latest."""
    found: list[list[Any]] = []
    for names, table, order in ((_CALL, "calls", "handed_us"), (_ANSWER, "answers", "arrived_us")):
        query = (
            f"SELECT {names} FROM {table} WHERE (caller, call, name, arguments) = (?, ?, ?, ?)"  # noqa: S608 - our own words
            f" ORDER BY {order} DESC LIMIT {SAME_CALLS_MAX}"
        )
        found.append(base.execute(query, key).fetchall())
    return [_call_row(values) for values in found[0]], [_answer_row(values) for values in found[1]]


def _answer_row(values: Sequence[Any]) -> AnswerRow:
    named: dict[str, Any] = dict(zip(_ANSWER_NAMES, values, strict=True))
    named["failed"] = bool(named["failed"])
    return AnswerRow(**named)


def _call_row(values: Sequence[Any]) -> CallRow:
    named: dict[str, Any] = dict(zip(_CALL_NAMES, values, strict=True))
    return CallRow(**named)
