"""The disposable SQLite index of all ended tapes. It holds nothing that the tapes do not and is rebuilt from them.

One connection, in one thread: waiting rows are written together in one transaction (4 us a row, against 59 us each),
and questions are answered after them. SQLite before 3.51.3 can corrupt a file when two connections write or checkpoint
at once, so no second one ever does: other processes only `peek`.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import fields
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final, TypeVar

import trio

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.tape.record import Record

from ..limits import READING_BYTES, READING_PACE_S, READING_REST_S, SAME_CALLS_MAX
from .catalogue_row import (
    Alike,
    AnswerRow,
    CallRow,
    CatalogueRow,
    StreamRow,
    Wanted,
    columns_of,
    key_of,
    read_whole,
    row_of_tape,
)
from .folder import Folder, days_in, tapes_in
from .store import Filter, SearchError, StoreError
from .tape_file import TapeReader, opened_for_reading, records_of

__all__ = ["SEARCHABLE", "Book", "Catalogue", "Rows", "peek", "read_row", "reindex"]

_T = TypeVar("_T")
_Row = TypeVar("_Row", StreamRow, CallRow, AnswerRow)

#: Stored in the file. A file with another version is rebuilt, because its rows mean something else.
_VERSION: Final = 5
#: How far a tape was read if its text is in the index; 1 if it is not.
SEARCHABLE: Final = 2
#: Tapes indexed between two questions while the catalogue catches up: about 50 ms.
_STEP: Final = 20
#: Rebuilds per run: a disk that keeps damaging the file must not keep us busy.
_REBUILDS: Final = 3
#: SQLite's own page cache; the first 3,500 streams fill it for good.
_PAGES_KB: Final = 1_024

_TABLES: Final[Mapping[type[Any], str]] = {StreamRow: "streams", CallRow: "calls", AnswerRow: "answers"}
_COLUMNS: Final = {kind: ", ".join(field.name for field in fields(kind)) for kind in _TABLES}
_SCHEMA: Final = f"""
    CREATE TABLE streams ({_COLUMNS[StreamRow]}, PRIMARY KEY (created, stream));
    CREATE UNIQUE INDEX streams_by_id ON streams (stream);
    CREATE INDEX streams_by_run ON streams (run) WHERE run IS NOT NULL;
    CREATE INDEX streams_by_session ON streams (session) WHERE session IS NOT NULL;
    CREATE INDEX runs ON streams (created, stream) WHERE turn = 1;
    CREATE INDEX streams_by_read ON streams (read, created);
    CREATE TABLE calls ({_COLUMNS[CallRow]}, PRIMARY KEY (caller, call, handed_us, stream));
    CREATE INDEX calls_by_stream ON calls (stream);
    CREATE TABLE answers ({_COLUMNS[AnswerRow]}, PRIMARY KEY (caller, call, arrived_us, stream));
    CREATE INDEX answers_by_stream ON answers (stream);
    CREATE INDEX answers_by_call ON answers (made_by);
"""
#: The text of each stream, by the row of its stream. It holds the text itself: without it, SQLite before 3.43 cannot
#: remove an entry.
_WORDS: Final = "CREATE VIRTUAL TABLE IF NOT EXISTS words USING fts5(text)"
_FORGET_WORDS: Final = "DELETE FROM words WHERE rowid IN (SELECT rowid FROM streams WHERE stream = ?)"
#: Columns that hold JSON, or nothing if it is empty, and what their values are.
_AS_JSON: Final[Mapping[str, Callable[[Any], Any]]] = {
    "flags": lambda flags: tuple(flags or ()),
    "repairs": lambda repairs: repairs or {},
    "tools": lambda calls: tuple((name, state) for name, state in calls or ()),
    "spark": lambda points: points and tuple(points),
}
_MARKS: Final = {kind: ",".join("?" * len(fields(kind))) for kind in _TABLES}
_INSERT: Final = {kind: f"INSERT INTO {_TABLES[kind]} ({_COLUMNS[kind]}) VALUES ({_MARKS[kind]})" for kind in _TABLES}  # noqa: S608 - our own words


class Rows:
    """The rows of a catalogue, over any connection to it."""

    def __init__(self, base: sqlite3.Connection) -> None:
        self.base = base

    def streams(self) -> frozenset[str]:
        """Return every stream that it knows."""
        return frozenset(stream for (stream,) in self.base.execute("SELECT stream FROM streams"))

    def page(self, which: Filter, limit: int) -> list[StreamRow]:
        """Return one page, the latest first."""
        where, values = _where(which)
        try:
            return self._select(StreamRow, f"{where} ORDER BY created DESC, stream DESC LIMIT ?", *values, limit)
        except sqlite3.OperationalError as error:
            if which.text and ("words" in str(error) or "fts5" in str(error)):
                why = "search = false, requests = hash, or SQLite without FTS5"
                raise SearchError(f"Texts are not searched here: {why}.") from error
            raise

    def count(self, which: Filter) -> int:
        """Return how many streams all pages have."""
        where, values = _where(which)
        return int(self.base.execute(f"SELECT count(*) FROM streams {where}", values).fetchone()[0])  # noqa: S608 - our own words

    def rows(self, stream: str) -> CatalogueRow | None:
        """Return all rows of a stream, the calls in order."""
        where = "WHERE stream = ? ORDER BY rowid"
        if not (found := self._select(StreamRow, where, stream)):
            return None
        calls, answers = self._select(CallRow, where, stream), self._select(AnswerRow, where, stream)
        return CatalogueRow(found[0], tuple(calls), tuple(answers))

    def known(self, streams: Iterable[str]) -> dict[str, CatalogueRow]:
        """Return all rows of those of these streams that it knows."""
        return {stream: found for stream in streams if (found := self.rows(stream)) is not None}

    def alike(self, wanted: Wanted) -> Alike:
        """Return all calls and results with this key; of many the latest."""
        key, lost, made_by = wanted
        columns, known = ("caller, call", key[:2]) if lost else ("caller, call, name, arguments", key)
        same = f"WHERE ({columns}) = ({','.join('?' * len(known))}) ORDER BY {{}} DESC LIMIT {SAME_CALLS_MAX}"
        calls = self._select(CallRow, same.format("handed_us"), *known)
        answers = self._select(AnswerRow, same.format("arrived_us"), *known)
        if made_by:
            linked = self._select(AnswerRow, "WHERE made_by = ?", made_by)
            answers += [answer for answer in linked if key_of(answer) == key and answer not in answers]
        return calls, answers

    def _select(self, kind: type[_Row], rest: str, *values: Any) -> list[_Row]:
        found: list[_Row] = []
        columns = _COLUMNS[kind]
        for row in self.base.execute(f"SELECT {columns} FROM {_TABLES[kind]} {rest}", values):  # noqa: S608 - our own words
            named: dict[str, Any] = dict(zip(columns.split(", "), row, strict=True))
            if kind is StreamRow:
                named |= {name: made(parse((named[name] or "null").encode())) for name, made in _AS_JSON.items()}
            found.append(kind(**named))
        return found


def _where(which: Filter) -> tuple[str, list[Any]]:
    """Return the condition of a filter and its values."""
    terms = [f"{name} = ?" for name in which.words] + ["turn = 1"] * which.runs
    values: list[Any] = [*which.words.values()]
    for term in which.terms:
        terms.append(term.sql)
        values += term.values
    if which.text:
        terms.append("rowid IN (SELECT rowid FROM words WHERE words MATCH ?)")
        values.append(which.text)
    if which.before is not None:
        terms.append("(created, stream) < (?, ?)")
        values += which.before.place
    return (f"WHERE {' AND '.join(terms)}" if terms else ""), values


def peek(root: Path, question: Callable[[Rows], _T]) -> _T | None:
    """Ask the catalogue of a folder that another process may hold; None if it is unreadable or of another version.

    The connection can only read, so it never takes part in a checkpoint. If no process has the file open it leaves no
    trace either: without a log next to the file, nothing changes while we read.
    """
    path = root / "catalogue.db"
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm", "-journal")]
    if any(each.exists() and not each.is_file() for each in files):  # SQLite would wait for a pipe for ever
        return None
    how = "mode=ro" if files[1].exists() else "mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?{how}", uri=True)) as base:
            return question(Rows(base)) if base.execute("PRAGMA user_version").fetchone() == (_VERSION,) else None
    except sqlite3.DatabaseError:
        return None


def read_row(stream: str, path: str | Path, *more: Record) -> CatalogueRow | None:
    """Return the rows of a tape, as if it had `more` records; None if it is gone, unreadable, or of a newer format."""
    try:
        return row_of_tape(stream, chain(records_of(path), more))
    except (OSError, TapeError):
        return None
    except Exception:  # noqa: BLE001 - a bug in our reading must hide neither this tape nor any other
        return row_of_tape(stream, (each for each in records_of(path) if each.kind in ("open", "request", "end")))


def reindex(folder: Folder) -> int:
    """Rebuild the whole catalogue of a held folder that no other process has open; return how many streams it has.

    Raises StoreError if it cannot be written; the next server completes what there is.
    """
    _remove(folder.root / "catalogue.db")
    try:
        with closing(Book(folder)) as book:
            while book.catch_up():
                pass
            return len(book.streams())
    except sqlite3.Error as error:
        raise StoreError(f"the catalogue of {folder.root} cannot be written: {error}") from error


class Catalogue:
    """The catalogue as the serving task sees it; a thread of its own does the work."""

    def __init__(
        self, folder: Folder, warn: Callable[[str], None], on_read: Callable[[StreamRow], None], *, search: bool
    ) -> None:
        """Return at once. In the thread, missing tapes are added and a damaged file is replaced."""
        self._on_read = on_read
        self._search = search
        self._folder = folder
        self._warn = warn
        self._trio = trio.lowlevel.current_trio_token()
        self._waiting: deque[tuple[str, str, CatalogueRow | None]] = deque()
        self._scheduled = False
        self._book: Book | None = None
        self._closing = False
        self._warned = False
        #: The file was not written, and lacks what the tapes have.
        self._behind = False
        self._rebuilds_left = _REBUILDS
        self._thread = ThreadPoolExecutor(1, "wiretape-catalogue")
        self._news, self._closed = threading.Event(), threading.Event()
        self._thread.submit(self._catch_up)
        self._reader = threading.Thread(target=self._read_ended, name="wiretape-reader", daemon=True)
        self._reader.start()

    def enter(self, stream: str, path: str, row: CatalogueRow | None) -> None:
        """Add an ended stream: its rows, or its tape to find them in. Known at once, written with the next `write`."""
        self._waiting.append((stream, path, row))

    def write(self) -> None:
        """Write what was entered, in one transaction, and what could not be written before. Returns at once."""
        if (self._waiting or self._behind) and not self._scheduled:
            self._scheduled = True
            self._thread.submit(self._drain)

    async def ask(self, question: "Callable[[Book], _T]", nothing: _T) -> _T:
        """Return the answer once everything entered is written; `nothing` if the file cannot be used."""
        done = trio.Event()

        def answered(_: Future[_T]) -> None:
            with suppress(trio.RunFinishedError):
                self._trio.run_sync_soon(done.set)

        self._thread.submit(self._drain)
        future = self._thread.submit(self._with_book, question, nothing)
        future.add_done_callback(answered)
        await done.wait()
        return future.result()

    def close(self) -> None:
        """Write everything entered and close the file. Blocks; call it in a thread."""
        self._closing = True
        self._closed.set()
        self._news.set()
        self._reader.join()
        self._thread.submit(self._drain)
        self._thread.shutdown()
        if self._book is not None:
            self._book.close()

    # -- in the thread ------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        self._scheduled = False  # first: an entry made from now on schedules another drain
        rows: list[CatalogueRow] = []
        while self._waiting:
            stream, path, row = self._waiting.popleft()
            row = row or read_row(stream, path)
            if row is None and (moved := self._folder.ended_path(stream)) is not None:
                row = read_row(stream, moved)
            if row is not None:
                rows.append(row)
        if rows or self._behind:
            self._with_book(lambda book: book.enter(rows), None)
            self._news.set()

    def _read_ended(self) -> None:
        """Read whole tapes for their rows and the search, slowly, in a thread of its own."""
        while self._news.wait() and not self._closed.wait(READING_REST_S):
            self._news.clear()
            done = True  # a catalogue that takes nothing now is tried again after the next stream
            while done and not self._closed.is_set():
                done = False
                for row in self._thread.submit(self._with_book, Book.unread, list[StreamRow]()).result():
                    done = self._read(row) or done

    def _read(self, row: StreamRow) -> bool:
        """Complete a row; return whether that was written."""
        try:
            row, text = read_whole(row, self._records(self._folder.ended_path(row.stream) or ""))
        except Exception as error:  # noqa: BLE001 - a bug in our reading must hide neither this tape nor any other
            self._warn(f"the text of {row.stream} cannot be searched: {error!r}")
            text = ""
        if self._closed.is_set():
            return False
        done: bool = self._thread.submit(self._with_book, lambda book: book.complete(row, text), False).result()
        with suppress(trio.RunFinishedError):
            self._trio.run_sync_soon(self._on_read, row)
        return done

    def _records(self, path: str) -> Iterator[Record]:
        reader = TapeReader(lambda: opened_for_reading(path))
        with suppress(OSError, TapeError):  # expired, or cut: what was read is all there is
            while (records := reader.read(READING_BYTES)) and not self._closed.wait(READING_PACE_S):
                yield from records

    def _catch_up(self) -> None:
        self._news.set()
        if not self._closing and self._with_book(lambda book: book.catch_up(), False):
            with suppress(RuntimeError):  # shut down meanwhile
                self._thread.submit(self._catch_up)

    def _with_book(self, work: "Callable[[Book], _T]", nothing: _T) -> _T:
        """Do the work, or return `nothing`: everything in the file is on the tapes, so its faults harm no stream.

        After a fault the file is opened once more, now and for the next work, and gets what it lacks from the tapes.
        """
        for _ in range(2):
            try:
                if self._book is None:
                    self._book = Book(self._folder, search=self._search)
                done = work(self._book)
            except (sqlite3.Error, OSError) as error:
                self._failed(error)
                continue
            if self._behind:
                self._behind = self._warned = False
                with suppress(RuntimeError):  # shut down meanwhile; the next start finds it
                    self._thread.submit(self._catch_up)
            return done
        return nothing

    def _failed(self, error: Exception) -> None:
        """Close the file, and remove it if it is damaged."""
        damaged = isinstance(error, sqlite3.DatabaseError) and not isinstance(error, sqlite3.OperationalError)
        if not self._warned:
            what = "is damaged and is rebuilt" if damaged else "cannot be used; what it lacks is added later"
            self._warn(f"catalogue.db {what} from the tapes: {error}")
        self._behind = self._warned = True
        with suppress(sqlite3.Error, OSError):
            book, self._book = self._book, None
            if book is not None:
                book.close()
            if damaged and self._rebuilds_left:
                self._rebuilds_left -= 1
                _remove(self._folder.root / "catalogue.db")


class Book(Rows):
    """The file itself, used by one thread at a time."""

    def __init__(self, folder: Folder, *, search: bool = True) -> None:
        """With `search` it also has the text of each answer."""
        self._folder = folder
        self._steps: Generator[bool] | None = None
        #: It has an index of texts.
        self.searchable = False
        path = folder.root / "catalogue.db"
        path.touch(mode=0o600)
        super().__init__(sqlite3.connect(path, isolation_level=None, check_same_thread=False))
        try:
            self.base.execute("PRAGMA journal_mode = WAL")
            self.base.execute("PRAGMA synchronous = NORMAL")
            self.base.execute(f"PRAGMA cache_size = -{_PAGES_KB}")
            self._make_tables(search=search)
        except BaseException:
            self.base.close()
            raise

    def _make_tables(self, *, search: bool) -> None:
        (version,) = self.base.execute("PRAGMA user_version").fetchone()
        if version != _VERSION:
            self.base.execute("DROP TABLE IF EXISTS words")  # with its own tables
            for (name,) in self.base.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                self.base.execute(f'DROP TABLE "{name}"')
            self.base.executescript(f"BEGIN; {_SCHEMA} PRAGMA user_version = {_VERSION}; COMMIT;")
        elif (verdict := self.base.execute("PRAGMA quick_check(1)").fetchone()[0]) != "ok":
            raise sqlite3.DatabaseError(verdict)
        with suppress(sqlite3.OperationalError):  # this SQLite has no FTS5
            if search:
                self.base.execute(_WORDS)
                self.searchable = True
            else:
                self.base.executescript("UPDATE streams SET read = 1 WHERE read > 1; DROP TABLE IF EXISTS words;")

    def close(self) -> None:
        """Close the file, which takes in its log."""
        if self._steps is not None:
            self._steps.close()  # it may hold a folder open
        self.base.close()

    def page(self, which: Filter, limit: int, *, whole: bool = False) -> list[StreamRow]:
        """Return one page, the latest first; with `whole` not before every tape has its row."""
        while whole and self.catch_up():
            pass
        return super().page(which, limit)

    def enter(self, rows: Iterable[CatalogueRow]) -> None:
        """Add or replace rows in one transaction."""
        found = list(rows)
        with self.base:
            self.base.execute("BEGIN")
            self._delete([(row.stream.stream,) for row in found])
            for stream, calls, answers in found:
                rows_: list[StreamRow | CallRow | AnswerRow] = [stream, *calls, *answers]
                for row in rows_:
                    self.base.execute(_INSERT[type(row)], columns_of(row))

    def complete(self, row: StreamRow, text: str) -> bool:
        """Write what the whole tape of a stream says; return whether its row is still there."""
        values = dumps(row.repairs).decode(), row.silence_us, dumps(row.spark).decode(), 1 + self.searchable, row.stream
        with self.base:
            self.base.execute("BEGIN")
            sql = "UPDATE streams SET repairs = ?, silence_us = ?, spark = ?, read = ? WHERE stream = ?"
            done = self.base.execute(sql, values).rowcount > 0
            if self.searchable:
                self.base.execute(_FORGET_WORDS, (row.stream,))
                sql = "INSERT INTO words (rowid, text) SELECT rowid, ? FROM streams WHERE stream = ?"
                self.base.execute(sql, (text, row.stream))
        return done

    def unread(self) -> list[StreamRow]:
        """Return some streams whose tapes were not read so far, the latest first."""
        where = "WHERE read < ? ORDER BY created DESC LIMIT ?"
        return self._select(StreamRow, where, 1 + self.searchable, _STEP)

    def forget(self, streams: Iterable[str]) -> None:
        """Remove the rows of these streams."""
        with self.base:
            self.base.execute("BEGIN")
            self._delete([(stream,) for stream in streams])

    def _delete(self, keys: Sequence[tuple[str]]) -> None:
        if self.searchable:
            self.base.executemany(_FORGET_WORDS, keys)
        for table in _TABLES.values():
            self.base.executemany(f"DELETE FROM {table} WHERE stream = ?", keys)  # noqa: S608 - our own words

    def catch_up(self) -> bool:
        """Take a step towards the state of the tapes, and return whether more is left.

        Streams without a tape go, tapes without a row come: that mends a kill between a tape's end and its row, a power
        loss, and a deleted file. Only a step's ids are held: all ids and paths took 21 MB of 28,000 tapes, for good.
        """
        if self._steps is None:
            self._steps = self._walk()
        return next(self._steps, False)

    def _walk(self) -> Generator[bool]:
        at = (-(2**63), "")
        page = "SELECT created, stream FROM streams WHERE (created, stream) > (?, ?) ORDER BY created, stream LIMIT ?"
        while rows := self.base.execute(page, (*at, _STEP)).fetchall():
            at = rows[-1]
            self.forget([stream for created, stream in rows if not self._folder.holds(stream, created)])
            yield True
        root = self._folder.root
        tapes = ((stream, each.path) for day in days_in(root) for stream, each in tapes_in(root / day.isoformat()))
        while step := list(islice(tapes, _STEP)):
            known = "SELECT 1 FROM streams WHERE stream = ?"
            missing = [tape for tape in step if self.base.execute(known, tape[:1]).fetchone() is None]
            found = (read_row(stream, path) for stream, path in missing)
            self.enter(row for row in found if row is not None)
            yield True


def _remove(path: Path) -> None:
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
