"""The catalogue rows of one tape: the stream, its tool calls, and the tool results that its request brought."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

import orjson

from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.emit import Emitter
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.folds.wire import Call
from wiretape.events.tape.record import NO_KEYS, Record

from ..limits import DIGESTED_BYTES_MAX, PARSE_INLINE_BYTES_MAX, REQUEST_END_BYTES

__all__ = [
    "AnswerRow",
    "CallRow",
    "CatalogueRow",
    "StreamRow",
    "digest",
    "digests",
    "opened_row",
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

    @property
    def place(self) -> tuple[int, str]:
        """The sort key: by time, then by id, so that paging never skips nor repeats."""
        return self.created, self.stream


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
    return row_of(stream, summary)


def opened_row(stream: str, opening: Mapping[str, Any], request: Mapping[str, Any] = NO_KEYS) -> StreamRow:
    """Return the row of a stream that runs, from the keys of its `open` and `request` records."""
    created = opening.get("created")
    model = as_object(request.get("facts")).get("model")
    caller, route, dialect, model = _texts(*map(opening.get, ("caller", "route", "dialect")), model)
    created = created if type(created) is int and 0 <= created <= _CREATED_MAX else 0
    return StreamRow(stream=stream, created=created, caller=caller, route=route, dialect=dialect, model=model)


def row_of(stream: str, summary: StreamSummary) -> CatalogueRow:
    """Return the rows of a stream."""
    begun = opened_row(stream, summary.opening, summary.request)
    created_us = summary.opening.get("created_us")
    known = type(created_us) is int and created_us // 1_000_000 == begun.created
    opened_us = int(created_us or 0) if known else begun.created * 1_000_000
    usage = summary.wire.usage
    model, ending, *flags = _texts(summary.wire.model, summary.ending, *summary.flags)
    row = replace(
        begun,
        model=begun.model or model,
        ending=ending,
        flags=tuple(flags) if summary.end is not None else (),
        input_tokens=_count(usage, _INPUT),
        output_tokens=_count(usage, _OUTPUT),
        usage=None if usage is None else dumps(usage).decode("utf-8", "replace"),
        first_frame_us=summary.first_frame_us,
        first_content_us=summary.first_content_us,
        duration_us=None if summary.end is None else summary.end.t,
    )
    return CatalogueRow(row, tuple(_calls(row, summary, opened_us)), tuple(_answers(row, summary.results, opened_us)))


def _calls(row: StreamRow, summary: StreamSummary, opened_us: int) -> Iterator[CallRow]:
    """Of calls that share an id within a stream the first counts, as in the whole catalogue."""
    calls: dict[str, Call] = {}
    for call in summary.wire.all_calls():
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
            handed_us=opened_us + (summary.handed_us or row.duration_us or 0),
            arguments=arguments.get(key, ""),
            messages=_natural(summary.request.get("messages")),
        )


def _answers(row: StreamRow, keys: Mapping[str, Any], opened_us: int) -> Iterator[AnswerRow]:
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
            arrived_us=opened_us,
            made_by=made_by,
            request=_texts(keys.get("request"))[0],
        )


def _natural(value: Any) -> int:
    """Return a count that SQLite takes, or -1."""
    return value if type(value) is int and 0 <= value <= _INTEGER_MAX else -1


def _count(counts: dict[str, Any] | None, names: tuple[str, ...]) -> int | None:
    for name in names:
        count: Any = (counts or {}).get(name)
        if type(count) is int and 0 <= count <= _INTEGER_MAX:
            return count
    return None


def _texts(*values: Any) -> list[str]:
    """Return the texts without lone surrogates, which SQLite does not take; for anything else the empty one."""
    texts: list[str] = []
    for value in values:
        text = value if isinstance(value, str) else ""
        texts.append(text.encode("utf-8", "replace").decode())
    return texts


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
