"""What the database knows of all streams: lists, rows, calls and results, and what runs."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import trio

from ...limits import SAME_CALLS_MAX, SOURCE_WAIT_S, STORE_PLACES
from ..catalogue_row import Alike, AnswerRow, CallRow, CatalogueRow, StreamRow, Wanted
from ..store import PAGE_MAX, Filter, SearchError, StoreError, Term, UnreachableError
from .connection import Connection, Server
from .packs import row_from, same, word

__all__ = ["DEAD", "Pool", "Questions"]

#: A row as PostgreSQL can take it apart: its texts have no NUL.
_JSON: Final = r"replace(s.row, '\u0000', '\ufffd')::json"
#: The columns of a row that the terms of a filter name.
_NAMED: Final = """EXISTS (SELECT FROM json_to_record({}) AS named(created bigint, model text, ending text, route text,
    dialect text, path text, run text, tools text, repairs text, silence_us bigint, lost bigint) WHERE {})"""
#: Terms on columns of the table itself.
_COLUMNS: Final = ("created ", "route ", "run ", "ending ")
#: Rows that are parsed without a thread: 3 ms.
_INLINE_ROWS: Final = 200
#: Whether no process writes to it any more, or will soon be known not to.
DEAD: Final = "(w.holder IS NULL OR w.seen < now() - make_interval(secs => $1))"
_PAGE: Final = f"""SELECT s.row, s.writer, s.sealed IS NULL AND {DEAD} FROM wiretape.stream s
    JOIN wiretape.writer w ON w.id = s.writer WHERE {{}} ORDER BY s.created DESC, s.id DESC LIMIT $2"""  # noqa: S608
_ROWS: Final = """SELECT 0, id, row, 0 FROM wiretape.stream WHERE sealed IS NOT NULL AND id = ANY($1)
    UNION ALL SELECT 1, stream, row, place FROM wiretape.call WHERE stream = ANY($1)
    UNION ALL SELECT 2, stream, row, 0 FROM wiretape.answer WHERE stream = ANY($1) ORDER BY 1, 4"""
_LATEST: Final = f"""SELECT row FROM wiretape.{{}} WHERE caller = w.caller AND call = w.call
    AND same BETWEEN least AND most ORDER BY at_us DESC LIMIT {SAME_CALLS_MAX}"""  # noqa: S608 - our own words
_ALIKE: Final = f"""WITH w AS (SELECT * FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[])
        WITH ORDINALITY AS w(caller, call, least, most, made_by, n))
    SELECT n, 0, row FROM w, LATERAL ({_LATEST.format("call")}) c
    UNION ALL SELECT n, 1, row FROM w, LATERAL ({_LATEST.format("answer")}) a
    UNION SELECT n, 1, row FROM w JOIN wiretape.answer USING (made_by, caller, call)
    WHERE made_by <> '' AND same BETWEEN least AND most"""  # noqa: S608 - our own words


class Pool:
    """Connections for questions, a few at once. Every question raises `UnreachableError` without an answer in time."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self._idle: list[Connection] = []
        self._places = trio.Semaphore(STORE_PLACES)

    async def ask(self, sql: str, values: Sequence[Any] = (), *, within_s: float = SOURCE_WAIT_S) -> list[Any]:
        """Return the rows of an answer."""
        why = f"The database did not answer within {within_s:g} s."
        with trio.move_on_after(within_s):
            async with self._places:
                try:
                    return await self._answer(sql, values)
                except StoreError as error:
                    why = str(error)
        raise UnreachableError(why)

    async def _answer(self, sql: str, values: Sequence[Any]) -> list[Any]:
        while self._idle:
            with suppress(UnreachableError):  # the server may have been restarted since its last answer
                return await self._on(self._idle.pop(), sql, values)
        return await self._on(await self.server.connect(), sql, values)

    async def _on(self, connection: Connection, sql: str, values: Sequence[Any]) -> list[Any]:
        try:
            rows = await connection.execute(sql, values)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return rows


class Questions:
    """The answers of one database. A writer that looks dead is reported to `doubt`."""

    def __init__(self, server: Server, own: str, dead_s: float) -> None:
        """`own` is the name of this process as a writer, empty for a reader."""
        self.pool = Pool(server)
        self.dead_s = dead_s
        self._own = own

    def doubt(self, writer: int) -> None:
        """Take note that a writer looks dead."""

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        """Return one page."""
        if which.text:
            raise SearchError("Texts are searched among the streams of this process only.")
        terms = [Term(f"s.{name} = ?", (value,)) for name, value in which.words.items()]
        terms += [Term("s.turn = 1", ())] * which.runs
        terms += [Term("(s.created, s.id) < (?, ?)", which.before.place)] if which.before else []
        for sql, values in which.terms:
            if sql.startswith(("instr(tools", "instr(repairs")):  # quick, and true of few rows
                terms.append(Term("strpos(s.row, ?) > 0", values))
            of_column = sql.startswith(_COLUMNS)
            named = f"s.{sql}" if of_column else _NAMED.format(_JSON, sql.replace("instr(", "strpos("))
            terms.append(Term(named, values))
        return await self._page(terms, min(limit, PAGE_MAX))

    async def recent(self) -> Sequence[StreamRow]:
        """Return the latest streams of others that run, and those that ended a moment ago."""
        news = Term("(s.sealed IS NULL OR s.sealed > now() - interval '5 s')", ())
        return await self._page([news, Term("w.name <> ?", (self._own,))], _INLINE_ROWS)

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Return what is not sealed. A dead process is found out a while after the first doubt."""
        terms = [Term("s.id = ANY(?)", ([*streams],)), Term("s.sealed IS NULL", ()), Term("w.name <> ?", (self._own,))]
        return [row.stream for row in await self._page(terms, len(streams))]

    async def _page(self, terms: Sequence[Term], limit: int) -> Sequence[StreamRow]:
        sql, values = " AND ".join(["true", *(term.sql for term in terms)]), list[Any]((self.dead_s, limit))
        for value in (value for term in terms for value in term.values):
            values.append(word(value) if isinstance(value, str) else value)
            sql = sql.replace("?", f"${len(values)}", 1)
        found = await self.pool.ask(_PAGE.format(sql), values)
        for writer in {writer for _, writer, doubtful in found if doubtful}:
            self.doubt(writer)

        def rows() -> Sequence[StreamRow]:
            return [row_from(StreamRow, text) for text, *_ in found]

        return await trio.to_thread.run_sync(rows) if len(found) > _INLINE_ROWS else rows()

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        """Return all rows of sealed streams."""
        found: dict[str, CatalogueRow] = {}
        calls, answers = defaultdict[str, list[CallRow]](list), defaultdict[str, list[AnswerRow]](list)
        for kind, stream, text, _ in await self.pool.ask(_ROWS, (list(streams),)):
            if kind == 0:
                found[stream] = CatalogueRow(row_from(StreamRow, text), ())
            elif kind == 1:
                calls[stream].append(row_from(CallRow, text))
            else:
                answers[stream].append(row_from(AnswerRow, text))
        return {
            stream: CatalogueRow(row.stream, tuple(calls[stream]), tuple(answers[stream]))
            for stream, row in found.items()
        }

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        """Return the calls and results of sealed streams."""
        alike: Sequence[Alike] = [([], []) for _ in wanted]
        asked: list[Sequence[str]] = []
        for (caller, call, *rest), lost, made_by in wanted:
            # A hash is hexadecimal, so these are all.
            bounds = ("", "g") if lost else (same(*rest), same(*rest))
            asked.append((word(caller), word(call), *bounds, word(made_by)))
        for n, kind, text in await self.pool.ask(_ALIKE, [list(column) for column in zip(*asked, strict=True)]):
            calls, answers = alike[int(n) - 1]
            if kind == 0:
                calls.append(row_from(CallRow, text))
            else:
                answers.append(row_from(AnswerRow, text))
        return alike
