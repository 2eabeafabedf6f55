"""The catalogue rows of one tape: stream, tool calls and tool results; and which call a result answers.

A result names its call by an id that some providers reuse in every turn, so it belongs to a call only if caller, id,
name and arguments are all equal. Of several such calls it is the one whose request had as many messages as precede the
call in the returned history; then one without an answer; then the latest. A request that came before, word for word,
answers what it answered then, unless such a call was handed over since: a retry is not a new conversation. Of several
results of one call the first counts, so a retried request gets the answer that the first one got. The rules use nothing
but rows: a catalogue rebuilt from the tapes decides as the old one did.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import islice
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import orjson

from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.core.lifecycle import TABLE, State, Trigger
from wiretape.events.emit import Emitter, Summariser
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.folds.wire import UPSTREAM_CALL, Call
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record

from ..limits import (
    ABANDONED_AFTER_S,
    CLOCKS_APART_MAX_S,
    DIGESTED_BYTES_MAX,
    PARSE_INLINE_BYTES_MAX,
    REQUEST_END_BYTES,
    SEARCHED_CHARS_MAX,
    SPARK_POINTS,
    TOOL_NAME_CHARS_MAX,
    TOOLS_LISTED_MAX,
)

__all__ = [
    "NO_FATES",
    "OPENING",
    "Alike",
    "AnswerRow",
    "CallRow",
    "CatalogueRow",
    "Fate",
    "Key",
    "Link",
    "Running",
    "StreamRow",
    "Wanted",
    "columns_of",
    "digest",
    "digests",
    "fated",
    "fates",
    "find_calls",
    "key_of",
    "links",
    "opened_row",
    "read_whole",
    "request_digest",
    "row_of",
    "row_of_tape",
]

#: The names of the two counts that every dialect has.
_INPUT: Final = ("prompt_tokens", "input_tokens")
_OUTPUT: Final = ("completion_tokens", "output_tokens")
#: The largest integer that SQLite stores; a count beyond it is junk.
_INTEGER_MAX: Final = 2**63 - 1
#: The last second of the year 9999.
_CREATED_MAX: Final = 253_402_300_799
_SECOND_US: Final = 1_000_000
#: The records whose keys tell all of a stream that is known when it begins.
OPENING: Final = frozenset({"open", "run", "request"})
#: The last row of a page, as `next` names it.
_CURSOR: Final = re.compile(r"([0-9]{1,15})\.([A-Za-z0-9_-]{1,128})", re.ASCII)
#: How far apart the clocks of two machines may be: a result without another call may answer one that seems later.
_CLOCKS_US: Final = int(CLOCKS_APART_MAX_S * _SECOND_US)
#: 64 bits of a hash of arguments, so that no two calls of one caller are confused by chance.
_DIGEST_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """A stream. Times are microseconds since `open`, except `created`: seconds since 1970."""

    stream: str
    created: int
    caller: str
    route: str
    dialect: str
    #: The model that was requested, which is constant while the stream runs; the upstream's name for it if none was.
    model: str
    #: Empty while it has not ended.
    ending: str = ""
    flags: tuple[str, ...] = ()
    #: As counted by the upstream, never estimated.
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage: str | None = None
    first_frame_us: int | None = None
    first_content_us: int | None = None
    duration_us: int | None = None
    #: The run that it is a turn of, its number there, and the session of the run.
    run: str | None = None
    turn: int | None = None
    session: str | None = None
    #: When it began, in microseconds since 1970.
    created_us: int = 0
    #: The HTTP status that the client got, and the path that it asked for.
    status: int | None = None
    path: str = ""
    attempts: int = 0
    #: How often each repair was made.
    repairs: Mapping[str, int] = field(default_factory=dict[str, int])
    #: Name and state of each tool call in its own stream, up to a bound; and how many calls no client could run.
    tools: tuple[tuple[str, str], ...] = ()
    lost: int = 0
    #: What `read_whole` adds: the longest silence, and the bytes received in each fortieth of the duration.
    silence_us: int | None = None
    spark: tuple[int, ...] | None = None
    #: How far the ended tape was read for that: 1, or 2 with its text.
    read: int = 0

    @property
    def place(self) -> tuple[int, str]:
        """The sort key: by time, then by id, so that paging never skips nor repeats."""
        return self.created, self.stream

    @property
    def cursor(self) -> str:
        """The place, as a caller gives it back to get the next page."""
        return f"{self.created}.{self.stream}"

    @property
    def handed_over(self) -> bool:
        """Whether the stream has ended and left calls to its client, of which other streams may know more."""
        return bool(self.ending) and any(state == State.RUNNING.value for _, state in self.tools)

    @staticmethod
    def at(cursor: str) -> "StreamRow | None":
        """Return a row at this place, or None if this is not a cursor."""
        match = _CURSOR.fullmatch(cursor)
        return match and StreamRow(stream=match[2], created=int(match[1]), caller="", route="", dialect="", model="")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """A tool call, in the state in which its own stream left it."""

    caller: str
    call: str
    stream: str
    name: str
    state: str
    #: When the client could run it, in microseconds since 1970; the end of its stream if it never could.
    handed_us: int
    #: The `digest` of its arguments if it was handed over.
    arguments: str = ""
    #: How many messages its request had; -1 if unknown.
    messages: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """A tool result that the request of a stream brought; orphans get no row."""

    caller: str
    call: str
    #: The stream whose request brought it.
    stream: str
    name: str
    #: The `digest` of the call's arguments, as the history repeats them.
    arguments: str
    #: How many messages precede the one that made the call.
    after: int
    failed: bool
    #: When the request had arrived, in microseconds since 1970.
    arrived_us: int
    #: The stream that made the call, if that was known before the first frame.
    made_by: str = ""
    #: The `request_digest` of the request, equal for a retry. Empty on tapes without one.
    request: str = ""


def columns_of(row: StreamRow | CallRow | AnswerRow) -> list[Any]:
    """Return the values of a row as SQLite keeps them: tuples and tables as JSON, or NULL if empty."""
    values = _MEMBERS[type(row)](row)
    return [each if not isinstance(each, tuple | dict) else dumps(each).decode() if each else None for each in values]


_MEMBERS: Final[Mapping[type[Any], Callable[[Any], tuple[Any, ...]]]] = {
    kind: attrgetter(*(each.name for each in fields(kind))) for kind in (StreamRow, CallRow, AnswerRow)
}


class CatalogueRow(NamedTuple):
    """All rows of one tape."""

    stream: StreamRow
    calls: tuple[CallRow, ...]
    answers: tuple[AnswerRow, ...] = ()


def row_of_tape(stream: str, records: Iterable[Record]) -> CatalogueRow:
    """Return the rows of a tape, complete or not."""
    emitter, summary = Emitter(), StreamSummary()
    for record in records:
        emitter.feed(record)
        summary.take(record, emitter.wire)
    return row_of(stream, summary, emitter.ledger.counts)


def opened_row(
    stream: str, opening: Mapping[str, Any], request: Mapping[str, Any] = NO_KEYS, turn: Mapping[str, Any] = NO_KEYS
) -> StreamRow:
    """Return the row of a stream that runs, from the keys of its `open`, `request` and `run` records."""
    created = opening.get("created")
    model = as_object(request.get("facts")).get("model")
    named = map(opening.get, ("caller", "route", "dialect", "run", "session"))
    caller, route, dialect, run, session, model, path = _texts(*named, model, request.get("path"))
    created = created if type(created) is int and 0 <= created <= _CREATED_MAX else 0
    created_us = opening.get("created_us")
    known = type(created_us) is int and created_us // _SECOND_US == created
    return StreamRow(
        stream=stream,
        created=created,
        caller=caller,
        route=route,
        dialect=dialect,
        model=model,
        run=run or None,
        turn=_natural(turn.get("turn")) if run and turn else None,
        session=session or None,
        created_us=int(created_us or 0) if known else created * _SECOND_US,
        path=path,
    )


def row_of(stream: str, summary: StreamSummary, repairs: Mapping[str, int]) -> CatalogueRow:
    """Return the rows of a stream."""
    called = list(summary.wire.all_calls())
    begun = opened_row(stream, summary.opening, summary.request, summary.turn)
    usage = summary.wire.usage
    model, ending, *flags = _texts(summary.wire.model, summary.ending, *summary.flags)
    lost = (State.DROPPED, State.MALFORMED)
    row = replace(
        begun,
        model=begun.model or model,
        ending=ending,
        flags=tuple(flags) if summary.end is not None else (),
        input_tokens=_count(usage, _INPUT) if usage else None,
        output_tokens=_count(usage, _OUTPUT) if usage else None,
        usage=None if usage is None else dumps(usage).decode("utf-8", "replace"),
        first_frame_us=summary.first_frame_us,
        first_content_us=summary.first_content_us,
        duration_us=None if summary.end is None else summary.end.t,
        status=status if type(status := summary.status) is int and 0 < status < 1_000 else None,
        attempts=len(summary.attempts),
        repairs=dict(repairs),
        tools=_tools(called) if called else (),
        lost=len([call for call in called if call.state in lost and call.number > UPSTREAM_CALL]) if called else 0,
    )
    return CatalogueRow(row, tuple(_calls(row, summary, called)), tuple(_answers(row, summary.results)))


def _tools(called: Iterable[Call]) -> tuple[tuple[str, str], ...]:
    """Return name and state of the first calls."""
    return tuple(
        (_texts(call.name[:TOOL_NAME_CHARS_MAX])[0], call.state.value) for call in islice(called, TOOLS_LISTED_MAX)
    )


def _calls(row: StreamRow, summary: StreamSummary, called: Iterable[Call]) -> Iterator[CallRow]:
    """Of calls that share an id within a stream the first counts, as in the whole catalogue."""
    calls: dict[str, Call] = {}
    for call in called:
        calls.setdefault(_texts(call.id)[0], call)
    calls.pop("", None)
    handed = {key: call.arguments for key, call in calls.items() if call.state is State.RUNNING}
    arguments = dict(zip(handed, digests(handed.values()), strict=True))
    for key, call in calls.items():
        yield CallRow(
            caller=row.caller,
            call=key,
            stream=row.stream,
            name=_texts(call.name)[0],
            state=call.state.value,
            handed_us=row.created_us + (summary.handed_us or row.duration_us or 0),
            arguments=arguments.get(key, ""),
            messages=_natural(summary.request.get("messages")),
        )


def _answers(row: StreamRow, keys: Mapping[str, Any]) -> Iterator[AnswerRow]:
    seen = {""}
    for result in map(as_object, as_list(keys.get("results"))):
        key, name, arguments, made_by = _texts(*map(result.get, ("id", "name", "arguments", "stream")))
        if key in seen or result.get("orphan") is True:
            continue
        seen.add(key)
        yield AnswerRow(
            caller=row.caller,
            call=key,
            stream=row.stream,
            name=name,
            arguments=arguments,
            after=_natural(keys.get("after")),
            failed=result.get("failed") is True,
            arrived_us=row.created_us,
            made_by=made_by,
            request=_texts(keys.get("request"))[0],
        )


def read_whole(row: StreamRow, records: Iterable[Record]) -> tuple[StreamRow, str]:
    """Return the row of a tape with what takes longer than its end may, and all text of the model, calls included."""
    step_us, spark, summarised = max(1, (row.duration_us or 0) // SPARK_POINTS), [0] * SPARK_POINTS, Summariser()
    for record in records:
        if record.kind in RECEIVED:
            spark[min(record.t // step_us, SPARK_POINTS - 1)] += len(record.raw or b"")
        summarised.feed(record)
    summary = summarised.summary
    said = [part for answer in summary.answers for part in answer[1:4]]
    said += [part for call in summary.wire.all_calls() for part in (call.name, call.arguments)]
    silence_us = summary.longest_silence_us
    row = replace(row, repairs=summarised.repairs, silence_us=silence_us, spark=tuple(spark), read=1)
    return row, _texts("\n".join(filter(None, said))[:SEARCHED_CHARS_MAX])[0]


def _natural(value: Any) -> int:
    """Return a count that SQLite takes, or -1."""
    return value if type(value) is int and 0 <= value <= _INTEGER_MAX else -1


def _count(counts: dict[str, Any], names: tuple[str, ...]) -> int | None:
    for name in filter(counts.__contains__, names):
        count = _natural(counts[name])
        if count >= 0:
            return count
    return None


def _texts(*values: Any) -> list[str]:
    """Return the texts without lone surrogates, which SQLite does not take; for anything else the empty one."""
    return [value.encode("utf-8", "replace").decode() if isinstance(value, str) else "" for value in values]


def digests(each: Iterable[str]) -> list[str]:
    """Return the digests of the arguments of several calls, the empty string for those beyond a bound."""
    left, found = DIGESTED_BYTES_MAX, list[str]()
    for arguments in each:
        left -= len(arguments)
        found.append(digest(arguments) if left >= 0 else "")
    return found


def request_digest(body: bytes) -> str:
    """Return a hash that is equal for a request sent again; a long one is hashed by its length and both its ends."""
    ends = body if len(body) <= 2 * REQUEST_END_BYTES else body[:REQUEST_END_BYTES] + body[-REQUEST_END_BYTES:]
    said = hashlib.sha256(b"%d " % len(body))
    said.update(ends)
    return said.hexdigest()[:_DIGEST_CHARS]


def digest(arguments: str) -> str:
    """Return a hash that is equal for arguments that a client rewrote: other spaces, other order, 1.0 for 1.

    Long arguments are hashed as they came: parsing them would block the loop.
    """
    text = arguments.encode("utf-8", "surrogatepass")
    if len(text) <= PARSE_INLINE_BYTES_MAX:
        value: Any = parse(text) if text.strip() else {}
        if value is not ABSENT:
            # A JavaScript client writes numbers without `.0`. In a string it is lost too, but on both sides. Edited as
            # bytes: 100,000 values take orjson 3 ms, and a visit to each value 50.
            try:
                text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
            except orjson.JSONEncodeError:  # half an emoji, a huge integer
                text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
            text = text.replace(b".0,", b",").replace(b".0]", b"]").replace(b".0}", b"}")
    return hashlib.sha256(text).hexdigest()[:_DIGEST_CHARS]


# -- which call a result answers --------------------------------------------------------------------------------------

#: Caller, id, name and arguments: what a call and its result have in common.
Key = tuple[str, str, str, str]
#: All calls and all results with one key.
Alike = tuple[list[CallRow], list[AnswerRow]]


class Wanted(NamedTuple):
    """A question for the calls and the results that have a key in common."""

    key: Key
    #: Of a lost call, whose arguments may be cut, what has the same caller and id.
    lost: bool = False
    #: The stream that made the call. Results known to answer that one are found even if there are very many others.
    made_by: str = ""

    @staticmethod
    def of(call: CallRow) -> "Wanted":
        """Return the question for all that says what became of a call."""
        return Wanted(key_of(call), not call.arguments, call.stream)


class Link(NamedTuple):
    """The stream that made a call, and the time until its first result."""

    stream: str
    duration_ms: int


class Fate(NamedTuple):
    """What became of a call that was handed over."""

    state: State
    #: The stream whose request brought the result.
    answered_by: str = ""
    duration_ms: int | None = None


NO_FATES: Final[Mapping[str, Fate]] = MappingProxyType({})


class Running:
    """The results that running streams brought: no catalogue has them yet, and a retry has to find them."""

    def __init__(self) -> None:
        self._by_key: dict[Key, dict[str, AnswerRow]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_key.values()))

    def enter(self, rows: Iterable[AnswerRow]) -> None:
        """Add or update the results of one stream."""
        for row in rows:
            self._by_key.setdefault(key_of(row), {})[row.stream] = row

    def leave(self, rows: Iterable[AnswerRow]) -> None:
        """Remove results: the catalogue has them, or their stream failed."""
        for row in rows:
            alike = self._by_key.get(key_of(row), {})
            alike.pop(row.stream, None)
            if not alike:
                self._by_key.pop(key_of(row), None)

    def like(self, rows: Iterable[AnswerRow]) -> dict[Key, Sequence[AnswerRow]]:
        """Return all results that have the key of one of these, as they are now."""
        keys = {key_of(row) for row in rows}
        return {key: list(self._by_key[key].values()) for key in keys if key in self._by_key}


def key_of(row: CallRow | AnswerRow) -> Key:
    """Return what has to be equal."""
    return row.caller, row.call, row.name, row.arguments


def links(calls: Iterable[CallRow], answers: Iterable[AnswerRow]) -> dict[str, CallRow]:
    """Return the call that each result belongs to, by the stream that brought it; all rows have one key."""
    by_stream = {call.stream: call for call in calls if call.state == State.RUNNING.value and call.arguments}
    found: dict[str, CallRow] = {}
    answered: set[str] = set()
    before: dict[str, tuple[AnswerRow, CallRow | None]] = {}
    for answer in sorted(answers, key=_arrival):
        if answer.made_by:
            call = by_stream.get(answer.made_by)
        elif answer.request in before:
            # The same request again: a retry, unless a call was handed over since that nothing has answered.
            last, call = before[answer.request]
            new = [
                each
                for each in by_stream.values()
                if last.arrived_us < each.handed_us and each.messages == answer.after and each.stream not in answered
            ]
            call = _best(new, answer, answered) or call
        else:
            call = _best(by_stream.values(), answer, answered) or _best(
                by_stream.values(), answer, answered, _CLOCKS_US
            )
        if call is not None:
            found[answer.stream] = call
            answered.add(call.stream)
        if answer.request:
            before[answer.request] = answer, call
    return found


def _arrival(answer: AnswerRow) -> tuple[int, str]:
    return answer.arrived_us, answer.stream


def _best(calls: Iterable[CallRow], answer: AnswerRow, answered: set[str], apart_us: int = 0) -> CallRow | None:
    def rank(call: CallRow) -> tuple[bool, bool, int, str]:
        return call.messages == answer.after, call.stream not in answered, call.handed_us, call.stream

    return max((call for call in calls if call.handed_us <= answer.arrived_us + apart_us), key=rank, default=None)


def find_calls(
    rows: Iterable[Alike], answers: Sequence[AnswerRow], running: Mapping[Key, Sequence[AnswerRow]]
) -> list[Link | None]:
    """Return where each of these new results belongs, given all `rows` with its key and results of running streams."""
    found: list[Link | None] = []
    for new, (calls, known) in zip(answers, rows, strict=True):
        brought = {answer.stream: answer for answer in (*running.get(key_of(new), ()), *known, new)}.values()
        made = links(calls, brought)
        call = made.get(new.stream)
        firsts = sorted((answer for answer in brought if made.get(answer.stream) is call), key=_arrival)
        found.append(None if call is None else Link(call.stream, _duration_ms(call, firsts[0])))
    return found


def _duration_ms(call: CallRow, answer: AnswerRow) -> int:
    return max(0, answer.arrived_us - call.handed_us) // 1_000


def fates(
    own: Sequence[CallRow], rows: Mapping[Key, tuple[Sequence[CallRow], Sequence[AnswerRow]]], now_s: float
) -> dict[str, Fate]:
    """Return the fates of the calls that one stream handed over, by id; `rows` are all that have one of their keys.

    A call without an answer is abandoned when the conversation went on without it (a result of another call of its
    stream has come), or after a while. A result that comes later still counts. A call that was lost has a fate only if
    a client ran it all the same; its rows are all that have its caller and id, since its arguments may be cut.
    """
    fated: dict[str, Fate] = {}
    known: dict[Key, tuple[list[CallRow], Sequence[AnswerRow]]] = {}
    for call in own:  # of very many calls that are alike it may be none of the latest
        calls, answers = rows.get(key_of(call), ((), ()))
        known[key_of(call)] = [*calls, *(() if call in calls else (call,))], answers
    handed = [call for call in own if call.state == State.RUNNING.value]
    for call in handed:
        calls, answers = known[key_of(call)]
        made = links(calls, answers)
        mine = [answer for answer in answers if answer.stream in made and made[answer.stream].stream == call.stream]
        first = min(mine, key=_arrival, default=None)
        if first is None:
            fated[call.call] = Fate(State.RUNNING)
        else:
            state = TABLE[State.RUNNING][Trigger.ERROR_RESULT if first.failed else Trigger.RESULT]
            fated[call.call] = Fate(state, first.stream, _duration_ms(call, first))
    went_on = any(fate.answered_by for fate in fated.values())
    for call in handed:
        late = now_s * _SECOND_US - call.handed_us > ABANDONED_AFTER_S * _SECOND_US
        if not fated[call.call].answered_by and (went_on or late):
            fated[call.call] = Fate(TABLE[State.RUNNING][Trigger.UNANSWERED])
    for call in own:
        if call.call not in fated and (answer := _answer_to_lost(call, *known[key_of(call)])):
            fated[call.call] = Fate(State(call.state), answer.stream)
    return fated


def fated(row: StreamRow, calls: Iterable[CallRow], known: Mapping[str, Fate]) -> StreamRow:
    """Return the row of a stream that has ended with what became of the calls that it handed over."""
    handed = State.RUNNING.value
    states = iter([known[call.call].state.value for call in calls if call.state == handed and call.call in known])
    tools = [(name, next(states, state) if state == handed else state) for name, state in row.tools]
    return replace(row, tools=tuple(tools))


def _answer_to_lost(call: CallRow, calls: Iterable[CallRow], answers: Iterable[AnswerRow]) -> AnswerRow | None:
    """Return the first result that the latest call of this name, at this place of a conversation, can have."""
    alike = [each for each in calls if (each.name, each.messages) == (call.name, call.messages) != (call.name, -1)]
    for answer in sorted(answers, key=_arrival):
        before = [each for each in alike if each.handed_us <= answer.arrived_us]
        here = not answer.made_by and (answer.name, answer.after) == (call.name, call.messages)
        here = here and key_of(answer) not in map(key_of, calls)  # it answers one that was handed over
        if here and before and max(before, key=lambda each: (each.handed_us, each.stream)) == call:
            return answer
    return None
