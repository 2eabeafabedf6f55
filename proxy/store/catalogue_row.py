"""What the catalogue says of one tape: its row, its tool calls, the results it brought; a pure fold over the records"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import BODY_BYTES_MAX
from wiretape.events.core.model import Event, ResponseStarted
from wiretape.events.emission.emit import Emitter
from wiretape.events.folds.usage import UsageFold
from wiretape.events.tape.record import NO_KEYS, Record

from ..limits import DIGEST_SLOW_BYTES_MAX, DIGESTED_BYTES_MAX, PARSE_INLINE_BYTES_MAX, REQUEST_END_BYTES

__all__ = [
    "AnswerRow",
    "CallRow",
    "Entry",
    "EntryFold",
    "StreamRow",
    "digest",
    "digests",
    "entry_of",
    "opened",
    "request_digest",
]

#: A frame that may count tokens. Inside a string of JSON the quotes would be escaped.
_USAGE: Final = re.compile(rb'"usage"\s*:\s*\{')
#: What the dialects call the two counts that all of them have.
_INPUT: Final = ("prompt_tokens", "input_tokens")
_OUTPUT: Final = ("completion_tokens", "output_tokens")
#: SQLite's integers; a count beyond them is junk.
_INTEGER_MAX: Final = 2**63 - 1
#: Of a hash of arguments: 64 bits, so that no two calls of one caller are taken for one by chance.
_DIGEST_CHARS: Final = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One stream. Times are microseconds since `open`, except `created`: seconds since 1970."""

    stream: str
    created: int
    caller: str
    route: str
    dialect: str
    #: The one that was asked for, which does not change while the stream lives; the upstream's word where none was.
    model: str
    #: Empty while it has not ended.
    ending: str = ""
    flags: tuple[str, ...] = ()
    #: As the upstream counted, never estimated.
    input_tokens: int | None = None
    output_tokens: int | None = None
    usage: str | None = None
    first_frame_us: int | None = None
    first_content_us: int | None = None
    duration_us: int | None = None

    @property
    def place(self) -> tuple[int, str]:
        """Where it stands among others: by time, then by id, so that paging never skips nor repeats."""
        return self.created, self.stream


@dataclass(frozen=True, slots=True, kw_only=True)
class CallRow:
    """One tool call of one stream, in the state in which its own stream left it."""

    caller: str
    call: str
    stream: str
    name: str
    state: str
    #: When the client could run it, microseconds since 1970; the end of its stream where it never could.
    handed_us: int
    #: Of a call that was handed over, its `digest`.
    arguments: str = ""
    #: How many messages its request had; -1 where that is not known.
    messages: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRow:
    """One tool result that the request of a stream brought; orphans have none."""

    caller: str
    call: str
    #: The one that it came with.
    stream: str
    name: str
    #: The `digest` of the call's, as the history repeats them.
    arguments: str
    #: How many messages stand before the one that made the call.
    after: int
    failed: bool
    #: When the request had come, microseconds since 1970.
    arrived_us: int
    #: The stream that made the call, where that was known before the first frame.
    made_by: str = ""
    #: The `request_digest` of the request: a retry has the same. Empty on tapes that do not say it.
    request: str = ""


class Entry(NamedTuple):
    """All rows of one tape."""

    stream: StreamRow
    calls: tuple[CallRow, ...]
    answers: tuple[AnswerRow, ...] = ()


def entry_of(stream: str, records: Iterable[Record]) -> Entry:
    """The rows of a whole tape, or of as much of it as there is."""
    fold = EntryFold(stream)
    for record in records:
        fold.feed(record)
    return fold.entry()


class EntryFold:
    """`feed` every record, or `look` at it behind the emitter of the live path, which then has to be given here."""

    def __init__(self, stream: str, emitter: Emitter | None = None) -> None:
        self._emitter = emitter or Emitter()
        self._row = StreamRow(stream=stream, created=0, caller="", route="", dialect="", model="")
        self._opening: list[Record] = []
        self._first: Record | None = None
        self._first_frame_us: int | None = None
        self._usage: Record | None = None
        self._bodies: list[Record] = []
        self._bodies_bytes_left = BODY_BYTES_MAX
        self._first_content_us: int | None = None
        self._end: Record | None = None
        self._content = False
        self._opened_us = 0
        self._messages = -1
        self._results: Mapping[str, Any] = NO_KEYS

    def feed(self, record: Record) -> None:
        """The next record."""
        self._emitter.feed(record)
        self.look(record)

    def look(self, record: Record) -> None:
        """The next record, which the emitter has had already."""
        if record.kind == "frame":
            if self._first_frame_us is None:
                self._first_frame_us = record.t
            if self._first is None and record.payload is not None:
                self._first = record
            if record.payload is not None and _USAGE.search(record.payload) and not self._over(record.n):
                self._usage = record
        else:
            self._other(record)
        if not self._content and self._emitter.wire.content:  # of a call that was waited with, by the end alone
            self._content, self._first_content_us = True, record.t

    def _over(self, n: int) -> bool:
        """What comes behind an end counts for nothing; an error may bring its own count."""
        wire = self._emitter.wire
        return wire.terminated or (wire.error is not None and wire.error.n < n)

    def _other(self, record: Record) -> None:
        match record.kind:
            case "open" | "request":
                self._opening.append(record)
                self._row = opened(self._row, record)
                self._begin(record)
            case "results":
                self._results = record.keys
            case "attempt":  # what came before counts for nothing
                self._first = self._usage = self._first_frame_us = self._first_content_us = None
                self._bodies.clear()
                self._bodies_bytes_left = BODY_BYTES_MAX
                self._content = False
            case "body" if self._row.dialect and self._bodies_bytes_left > 0:  # of what is only relayed nothing is kept
                self._bodies.append(record)
                self._bodies_bytes_left -= len(record.raw or b"")
            case "end":
                self._end = record
            case _:
                pass

    def _begin(self, record: Record) -> None:
        if record.kind == "open":
            said = record.keys.get("created_us")
            known = type(said) is int and said // 1_000_000 == self._row.created
            self._opened_us = int(said or 0) if known else self._row.created * 1_000_000
        else:
            messages = record.keys.get("messages")
            self._messages = messages if type(messages) is int and 0 <= messages <= _INTEGER_MAX else -1

    def entry(self) -> Entry:
        """The rows."""
        begun = self._row
        model, counts = self._said()
        ending, flags = ("", ()) if self._end is None else self._ended(self._end)
        row = StreamRow(
            stream=begun.stream,
            created=begun.created,
            caller=begun.caller,
            route=begun.route,
            dialect=begun.dialect,
            model=begun.model or model,
            ending=ending,
            flags=flags,
            input_tokens=_count(counts, _INPUT),
            output_tokens=_count(counts, _OUTPUT),
            usage=None if counts is None else dumps(counts).decode("utf-8", "replace"),
            first_frame_us=self._first_frame_us,
            first_content_us=self._first_content_us,
            duration_us=None if self._end is None else self._end.t,
        )
        answers = tuple(self._answers(row)) if self._results else ()
        return Entry(row, tuple(self._calls(row)), answers)

    def _said(self) -> tuple[str, dict[str, Any] | None]:
        """Model and token counts, from a tape of the few records that can hold them: events of every frame cost more
        than all the rest."""
        if self._row.model and self._usage is None and not self._bodies:
            return "", None
        seen: list[Event] = []
        emitter = Emitter(sink=seen.append)
        telling = [self._first, *self._bodies, self._usage if self._usage is not self._first else None, self._end]
        for record in [*self._opening, *filter(None, telling)]:
            emitter.feed(record)
        usage = UsageFold()
        for event in seen:
            usage.apply(event)
        models = [event.model for event in seen if isinstance(event, ResponseStarted) and event.model]
        return (_text(models[0]) if models else ""), usage.counts

    def _ended(self, end: Record) -> tuple[str, tuple[str, ...]]:
        """The tape's own word; what the folds find where it has none."""
        ending, flags = end.keys.get("ending"), end.keys.get("flags")
        ended = self._emitter.wire.ended
        if not isinstance(ending, str):
            ending, flags = (ended.ending, list(ended.flags)) if ended else ("internal", [])
        said = tuple(_text(flag) for flag in as_list(flags) if isinstance(flag, str))
        return _text(ending), said

    def _calls(self, row: StreamRow) -> Iterable[CallRow]:
        """Of ids that a stream uses twice the first counts, as in the whole catalogue."""
        handed_us = self._opened_us + (self._emitter.stream.handed_us or row.duration_us or 0)
        seen: set[str] = set()
        calls = list(self._emitter.wire.all_calls())
        said = digests(call.arguments if call.state is State.RUNNING else "" for call in calls)
        for call, arguments in zip(calls, said, strict=True):
            key = _text(call.id)
            if not key or key in seen:
                continue
            seen.add(key)
            yield CallRow(
                caller=row.caller,
                call=key,
                stream=row.stream,
                name=_text(call.name),
                state=call.state.value,
                handed_us=handed_us,
                arguments=arguments if call.state is State.RUNNING else "",
                messages=self._messages,
            )

    def _answers(self, row: StreamRow) -> Iterable[AnswerRow]:
        after, request = self._results.get("after"), _text(self._results.get("request"))
        seen = {""}
        for entry in as_list(self._results.get("results")):
            fields = as_object(entry)
            key = _text(fields.get("id"))
            if key in seen or fields.get("orphan") is True:
                continue
            seen.add(key)
            yield AnswerRow(
                caller=row.caller,
                call=key,
                stream=row.stream,
                name=_text(fields.get("name")),
                arguments=_text(fields.get("arguments")),
                after=after if type(after) is int and 0 <= after <= _INTEGER_MAX else -1,
                failed=fields.get("failed") is True,
                arrived_us=self._opened_us,
                made_by=_text(fields.get("stream")),
                request=request,
            )


def opened(row: StreamRow, record: Record) -> StreamRow:
    """The row of a stream that has just begun, with what an `open` or `request` record says."""
    keys: Mapping[str, Any] = record.keys or NO_KEYS
    if record.kind == "request":
        facts: dict[str, Any] = as_object(keys.get("facts"))
        model = _text(facts.get("model"))
        created, caller, route, dialect = row.created, row.caller, row.route, row.dialect
    else:
        model = row.model
        said = keys.get("created")
        created = said if type(said) is int and 0 <= said <= 253_402_300_799 else 0
        caller, route, dialect = _text(keys.get("caller")), _text(keys.get("route")), _text(keys.get("dialect"))
    # Not `replace`, which costs three times as much.
    return StreamRow(stream=row.stream, created=created, caller=caller, route=route, dialect=dialect, model=model)


def _count(counts: dict[str, Any] | None, names: tuple[str, ...]) -> int | None:
    for name in names:
        count: Any = (counts or {}).get(name)
        if type(count) is int and 0 <= count <= _INTEGER_MAX:
            return count
    return None


def _text(value: Any) -> str:
    """A lone surrogate is a character that SQLite does not take."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else ""


def digests(each: Iterable[str]) -> list[str]:
    """Of the arguments of some calls; the empty word for those beyond a bound."""
    left, found = DIGESTED_BYTES_MAX, list[str]()
    for arguments in each:
        left -= len(arguments)
        found.append(digest(arguments) if left >= 0 else "")
    return found


def request_digest(body: bytes) -> str:
    """The same for a request that is sent again as it was; of a long one its length and both its ends are looked at."""
    ends = body if len(body) <= 2 * REQUEST_END_BYTES else body[:REQUEST_END_BYTES] + body[-REQUEST_END_BYTES:]
    said = hashlib.sha256(b"%d " % len(body))
    said.update(ends)
    return said.hexdigest()[:_DIGEST_CHARS]


def digest(arguments: str) -> str:
    """The same for arguments that a client has written anew: other spaces, other order, 1.0 for 1.

    Long ones are taken as they are, because to read them would hold up everybody; and so are those of some length that
    only the standard library's json can write.
    """
    said = arguments.encode("utf-8", "surrogatepass")
    if len(said) <= PARSE_INLINE_BYTES_MAX:
        value: Any = parse(said) if said.strip() else {}
        if value is not ABSENT:
            said = _canonical(value, said)
    return hashlib.sha256(said).hexdigest()[:_DIGEST_CHARS]


def _canonical(value: Any, said: bytes) -> bytes:
    """Written in one way. By bytes, as 100,000 values are 3 ms for orjson and 50 for a look at each of them."""
    try:
        written = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except orjson.JSONEncodeError:  # half an emoji, a huge integer, depth
        if len(said) > DIGEST_SLOW_BYTES_MAX:
            return said
        try:
            written = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        except (RecursionError, ValueError):
            return said
    # Numbers that a JavaScript client writes without their `.0`; the same in a string loses it, too, on both sides.
    return written.replace(b".0,", b",").replace(b".0]", b"]").replace(b".0}", b"}")
