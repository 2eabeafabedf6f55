"""Answer requests from recordings: the stream, its faults, and what the client sent and received."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from http.client import INTERNAL_SERVER_ERROR
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Event
from wiretape.events.dialects import PLACES
from wiretape.events.emit import events, summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import reads

from ..faults.faults import Faults
from ..matching.match import LOOSELY, NO_RETRY, Deck, How, Miss, Row, Taken, prepare_of, request_of
from ..playback.script import INSTANT, Request, Script, Speed, as_played, attempts_of, json_answer, script_of
from ..playback.server import Served, place_of_fault
from ..redaction.plain_text import plain_body
from ..redaction.redact import shown_path
from ..sealed.files import Recording, load
from .runs import Runs, call_rows

__all__ = ["Call", "Fold", "Outcome", "Sent", "Serving", "deck_of", "load_deck"]

#: Lists of a request, and what one element is called.
_CONVERSATION: Final = {name: kind for places in PLACES.values() for name, kind in places.words.conversation.items()}
#: Unused streams that are listed by name.
_LISTED_MAX: Final = 20
#: States of calls that a client may run.
_HANDED_OVER: Final = frozenset({State.READY, State.RUNNING, State.COMPLETED, State.FAILED, State.ABANDONED})


@dataclass(frozen=True)
class Sent:
    """A request as the client sent it; nothing in it comes from the tape."""

    method: str
    #: As the provider would have received it.
    path: str
    #: By lower-case name; the last of several with one name.
    headers: Mapping[str, str]
    body: bytes

    @staticmethod
    def of(request: Request) -> "Sent":
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in request.headers}
        return Sent(request.method.decode("latin-1"), request.target.decode("latin-1"), headers, request.body)

    @cached_property
    def json(self) -> Any:
        """The body, decompressed and parsed; None if it is not JSON."""
        value = parse(plain_body(self.headers.items(), self.body))
        return None if value is ABSENT else value

    def __str__(self) -> str:
        body: dict[str, Any] = as_object(self.json)
        model = body.get("model")
        of_model = f", model {model}" if isinstance(model, str) else ""
        lists = ((kind, as_list(body.get(name))) for name, kind in _CONVERSATION.items())
        with_messages = "".join(f", {len(each)} {kind}s" for kind, each in lists if each)
        path = shown_path(self.path.encode("latin-1", "replace"))
        return f"{self.method} {path} ({len(self.body)} bytes{of_model}{with_messages})"


class Call(NamedTuple):
    """A tool call as far as the client received it."""

    id: str
    name: str
    arguments: str
    #: See docs/concepts/tool-calls.md.
    state: str
    #: The call is complete and its arguments are valid, so a client may run it.
    whole: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """The accumulated message; exchanges without a dialect have only an ending."""

    ending: str
    flags: Sequence[str]
    text: str
    reasoning: str
    refusal: str
    finish: str
    calls: Sequence[Call]
    usage: Mapping[str, int] | None
    #: What a person should know: a code, and the names of the tools concerned.
    warnings: Sequence[tuple[str, Sequence[str]]]


class Outcome:
    """One response as its client received it, with any fault."""

    def __init__(self, recorded: Sequence[Record], played: Script | None = None) -> None:
        """`played` is the script that was played, unless it was the recorded one."""
        self._recorded, self._played = recorded, played

    @cached_property
    def records(self) -> Sequence[Record]:
        """The tape of this response."""
        return self._recorded if self._played is None else as_played(self._recorded, self._played)

    @cached_property
    def events(self) -> list[Event]:
        """The events in order."""
        return list(events(self.records))

    @cached_property
    def timing(self) -> list[tuple[float, int]]:
        """The time of each read in seconds since the request, and its size in bytes."""
        began = self.records[0].t
        return [((t - began) / 1_000_000, len(data)) for t, data in reads(attempts_of(self.records)[-1])]

    @cached_property
    def fold(self) -> Fold:
        """The accumulated message."""
        summary = summarise(self.records)
        answer, ended = summary.answer(), summary.wire.ended
        ending, flags = (ended.ending, ended.flags) if ended is not None else ("", ())
        if not summary.dialect:
            ending, flags = summary.ending or "", tuple(summary.flags)
        return Fold(
            ending=ending,
            flags=flags,
            text=answer.text,
            reasoning=answer.reasoning,
            refusal=answer.refusal,
            finish=answer.finish,
            calls=[
                Call(call.id, call.name, call.arguments, call.state.value, call.state in _HANDED_OVER)
                for call in summary.wire.all_calls()
            ],
            usage=summary.wire.usage,
            warnings=[(code, [name for _, name in calls]) for code, calls in summary.warnings if summary.dialect],
        )


def load_deck(paths: Sequence[Path], how: How, *, repeat: bool = False) -> Deck:
    """Return the streams of these files. Raise TapeError if one of them cannot be played."""
    named = [(str(path), load(path)) for path in paths]
    record = f"wiretape record --upstream URL -o {paths[0] if len(paths) == 1 else 'FILE'} -- COMMAND"
    return deck_of(named, how, repeat=repeat, record=record)


def deck_of(named: Iterable[tuple[str, Recording]], how: How, *, repeat: bool = False, record: str = "") -> Deck:
    """Return the streams of recordings, each a conversation with its name, which may be empty.

    `record` is the command that records a missing stream.
    """
    rows: list[Row] = []
    for conversation, (name, (header, recorded)) in enumerate(named):
        prepare = prepare_of(header)
        for number, records in enumerate(recorded, 1):
            words = [name] * bool(name) + [f"stream {number}"] * (not name or len(recorded) > 1)
            # Live tapes belong together: a run may have several.
            rows.append(Row(records, ", ".join(words), conversation if header else -1, prepare))
    return Deck([*rows, *call_rows(rows)], how, repeat=repeat, record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Answer:
    """The recorded response to one request."""

    taken: Taken
    script: Script
    #: A fault changed status, bytes or ending.
    faulty: bool
    #: The script is played exactly as it was recorded.
    recorded: bool

    def line(self) -> str:
        notes = ["faulty"] * self.faulty + [self.taken.note()]
        noted = f" ({'; '.join(filter(None, notes))})" if any(notes) else ""
        script = self.script
        if script.unanswered is not None:
            return f"no response, {script.unanswered.value}{noted}"
        chunks = [what for _, what in script.steps if isinstance(what, bytes) and what and script.has_body]
        end = script.fault.value if script.fault is not None else "complete"
        return f"{script.status}, {sum(map(len, chunks))} bytes in {len(chunks)} chunks, {end}{noted}"


class Serving:
    """Answers requests from any thread. `say` gets a line for each; without it, the attributes keep what happened."""

    def __init__(
        self,
        deck: Deck,
        faults: Faults,
        *,
        speed: Speed = INSTANT,
        all_headers: bool = False,
        say: Callable[[str], None] | None = None,
    ) -> None:
        self.deck = deck
        #: May be replaced between requests.
        self.faults = faults
        self.requests = 0
        #: Requests without a recorded response.
        self.missed = 0
        #: What happened, in order; empty with `say`.
        self.sent: list[Sent] = []
        self.answers: list[Outcome] = []
        self.misses: list[Miss] = []
        #: A line for each response that was found loosely.
        self.loose: list[str] = []
        #: Some response differed from the recorded one, so the client may have taken another path.
        self.changed = False
        #: The first internal error: nothing else can be trusted then.
        self.broken: Exception | None = None
        self._speed = speed
        self._runs = Runs(deck, speed)
        self._all_headers = all_headers
        self._say = say
        self._log: list[tuple[Sent, Taken | None, Outcome | None]] = []
        self._lock = Lock()

    def choose(self, request: Request) -> Script:
        """Return the response. Our own bugs end one response and not the server."""
        with self._lock:
            self.requests += 1
            try:
                answer = self._take(request)
            except Exception as error:  # noqa: BLE001 - see above
                return self._failed(request, error)
            if isinstance(answer, Miss):
                line = f"miss: {'; '.join(each.strip() for each in answer.lines())}"
            else:
                line = f"{self.deck.rows[answer.taken.place].name}: {answer.line()}"
            self.missed += isinstance(answer, Miss)
            self._note(request, answer, line)
            return answer.script

    def _take(self, request: Request) -> _Answer | Miss:
        if (view := self._runs.view(request)) is not None:
            seen, recorded = view
            faulty, _ = self.faults.over(recorded, seen.place)
            return _Answer(taken=seen, script=faulty, faulty=_content(faulty) != _content(recorded), recorded=False)
        taken = self.deck.take(request)
        if isinstance(taken, Miss):
            return taken
        recorded = script_of(taken.records, speed=self._speed, all_headers=self._all_headers)
        faulty, answered = self.faults.over(recorded, taken.place)
        if not answered:
            self.deck.broke(request, taken)
        elif (row := self.deck.rows[taken.place]).call:
            self._runs.called(row)
        return _Answer(
            taken=taken,
            script=replace(faulty, headers=[*faulty.headers, LOOSELY]) if taken.loosely else faulty,
            faulty=_content(faulty) != _content(recorded),
            recorded=faulty == recorded,
        )

    def _failed(self, request: Request, error: Exception) -> Script:
        self.missed += 1
        self.broken = self.broken or error
        message = place_of_fault(error)
        self._note(request, None, f"internal error: {message}")
        said = {"message": message, "type": "wiretape_error", "code": "internal"}
        body = dumps({"type": "error", "error": said})
        script = json_answer(body, INTERNAL_SERVER_ERROR)
        return replace(script, headers=[*script.headers, NO_RETRY])

    def _note(self, request: Request, answer: _Answer | Miss | None, line: str) -> None:
        if self._say is not None:
            self._say(f"{_shown(request)} -> {line}")
            return
        self.sent.append(sent := Sent.of(request))
        if not isinstance(answer, _Answer):
            self.misses += [answer] if answer is not None else []
            self._log.append((sent, None, None))
            return
        taken = answer.taken
        self.answers.append(outcome := Outcome(taken.records, None if answer.recorded else answer.script))
        self._log.append((sent, taken, outcome))
        self.changed = self.changed or answer.faulty
        if taken.loosely:
            self.loose.append(f"request {len(self.sent)} is {self.deck.rows[taken.place].name}, {taken.note()}")

    # -- on the command line ------------------------------------------------------------------------------------------

    def ended(self, served: Served) -> None:
        """Report a client that left before all of its response was sent."""
        if self._say is not None and served.ended == "left" and served.pieces < served.due:
            sent = f"{served.pieces} of {served.due} chunks, {served.bytes} bytes"
            self._say(f"{_shown(served.request)}: the client left after {sent}")

    def remaining(self) -> list[str]:
        """Return lines about streams that were never requested and faults that never applied."""
        unused = self._unused
        lines = [f"{self.deck.rows[place].name} was not requested" for place in unused[:_LISTED_MAX]]
        if len(unused) > _LISTED_MAX:
            lines.append(f"nor were {len(unused) - _LISTED_MAX} more")
        return [*lines, *(f"fault {text} had no place in any response" for text in self.faults.unapplied)]

    # -- in a test ----------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """A line for each request with its response."""
        lines: list[str] = []
        for number, (sent, taken, outcome) in enumerate(self._log, 1):
            words = "no recorded response"
            if taken is not None and outcome is not None:
                words = ", ".join([self.deck.rows[taken.place].name, outcome.fold.ending, *map(str, taken.drift)])
            lines.append(f"{number}. {sent} -> {words}")
        return lines

    @property
    def unused(self) -> list[str]:
        """A line for each stream that was not requested."""
        rows = [self.deck.rows[place] for place in self._unused]
        return [f"{row.name}: {Sent.of(request_of(row.records))}" for row in rows]

    @property
    def _unused(self) -> list[int]:
        """The streams that were not requested; a stream that a fault broke was."""
        return [place for place in self.deck.unused if place not in self.faults.requested]


def _shown(request: Request) -> str:
    return f"{request.method.decode('latin-1')} {shown_path(request.target)}"


def _content(script: Script) -> tuple[object, ...]:
    """Return what a client can distinguish, without read boundaries and delays."""
    return script.status, script.body, script.fault, script.unanswered
