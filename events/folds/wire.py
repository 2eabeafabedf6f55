"""What the live path must know: the ending, the calls that are open, whether anything was delivered.

The only fold that runs live. Text does not pass through it after the first piece (it would change nothing), so its size
does not depend on the number of frames; what it keeps, calls with names and arguments, has one bound together.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from io import StringIO
from types import MappingProxyType
from typing import Any, Final, assert_never, get_args

from ..core import model
from ..core.json_text import ABSENT, as_object, is_object, joined_surrogates, parse
from ..core.lifecycle import CUT_FINISHES, TABLE, State, Trigger
from ..core.limits import KEPT_CHARS_MAX, LABEL_CHARS_MAX, PREVIEW_BYTES_MAX
from ..core.model import CallEvent, Ending, Event

__all__ = ["SIBLING", "UPSTREAM_CALL", "Call", "Choice", "Wire", "counts_tokens", "short", "tokens"]

#: The ending for the `cause` of an `end` record without a terminator before it. Most endings are a cause by themselves.
#: We hang up (`closed`) after a terminator that did not hold; `status` is an HTTP status that reports an error.
_UNTERMINATED: Final[Mapping[str, Ending]] = MappingProxyType(
    {
        **{ending: ending for ending in get_args(Ending) if ending not in ("completed", "truncated", "upstream_error")},
        "eof": "truncated",
        "closed": "truncated",
        "status": "upstream_error",
    }
)

#: The number of the first tool that the upstream runs itself; from here they count down, since calls of a choice count
#: up from 0, with a legacy one at -1.
UPSTREAM_CALL: Final = -2
#: Why a whole call is dropped next to a malformed one: no call of such an answer is run.
SIBLING: Final = "sibling"
#: The upstream's words for its end.
_RAN: Final[Mapping[str, Trigger]] = MappingProxyType({"completed": Trigger.RESULT, "failed": Trigger.ERROR_RESULT})

#: What the objects of a call or a choice cost, in characters, not counting its text.
_CALL_OR_CHOICE: Final = 16 * 1_024


@dataclass(slots=True, eq=False)
class Call:
    """One tool call as far as it has come."""

    choice: int
    number: int
    id: str
    name: str
    #: Its arguments are free text.
    custom: bool = False
    #: A part of the call could not be read.
    damaged: bool = False
    #: It began after its choice ended without a call to run: the client takes the answer for whole without it.
    late: bool = False
    text: StringIO = field(default_factory=StringIO)
    state: State = State.ANNOUNCED
    #: Of a dropped or malformed call: `length`, `malformed`, `sibling` (of such a one), `unfinished`, or the stream's
    #: ending.
    reason: str = ""
    #: Each state that it entered, and the record that caused it.
    moves: list[tuple[int, State]] = field(default_factory=list[tuple[int, State]])

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return joined_surrogates(self.text.getvalue())

    @property
    def label(self) -> str:
        """A short preview of the main argument: the first string in the arguments, or the text of a custom tool."""
        if self.custom:
            text = self.arguments[:PREVIEW_BYTES_MAX]
        else:
            value = as_object(parse(self.arguments.encode("utf-8", "replace")))
            text = next((text for text in value.values() if isinstance(text, str)), "")
        return short(" ".join(text.split()))

    def valid(self) -> bool:
        """Return whether it could run: it was read completely, has a name, and its arguments are JSON or free text."""
        return bool(self.name and not (self.damaged or self.late)) and (
            self.custom or parse(self.text.getvalue().encode("utf-8", "replace")) is not ABSENT
        )

    @property
    def closes_itself(self) -> bool:
        """Whether the arguments show by themselves that they are complete; a number or free text might go on."""
        return not self.custom and self.text.getvalue().lstrip()[:1] in ("{", "[")

    def move(self, n: int, trigger: Trigger, reason: str = "") -> None:
        """Change the state by the table, because of record `n`."""
        self.state = TABLE[self.state][trigger]
        self.reason = reason or self.reason
        self.moves.append((n, self.state))


@dataclass(slots=True, eq=False)
class Choice:
    """One of the n answers."""

    calls: dict[int, Call] = field(default_factory=dict[int, Call])
    #: The calls that no finish has closed, and those that the last one closed; parallel calls may each bring one.
    open: dict[int, Call] = field(default_factory=dict[int, Call])
    closed: list[Call] = field(default_factory=list[Call])
    finish: str = ""
    #: A call is malformed, so that no client may run those that close with it.
    malformed: bool = False
    handed_over: bool = False

    def call(self, event: CallEvent) -> Call:
        """Return the call of an event; a legacy or foreign stream may never have announced it."""
        call = self.calls.get(event.call)
        if call is None:
            call = self.calls[event.call] = self.open[event.call] = Call(event.choice, event.call, "", "")
            call.moves.append((event.n, call.state))
        return call


def short(label: str) -> str:
    """Return as much of a label as one line of a tool card shows."""
    return label if len(label) <= LABEL_CHARS_MAX else label[: LABEL_CHARS_MAX - 1] + "…"


def tokens(counts: Mapping[str, Any]) -> dict[str, int] | None:
    """Return input, output and total of what usage counts, under any dialect's names; None if it lacks one of two."""
    asked, answered, total = (
        next((counts[name] for name in names if type(counts.get(name)) is int and counts[name] >= 0), None)
        for names in (("input_tokens", "prompt_tokens"), ("output_tokens", "completion_tokens"), ("total_tokens",))
    )
    if asked is None or answered is None:
        return None
    for name in ("cache_read_input_tokens", "cache_creation_input_tokens"):  # Messages counts them next to the input
        beside = counts.get(name)
        asked += beside if type(beside) is int and beside > 0 else 0
    return {"input_tokens": asked, "output_tokens": answered, "total_tokens": total or asked + answered}


def counts_tokens(counts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what usage counts, details included; all zeros, before or after the real counts, say nothing (Q70)."""
    found = {key: counts_tokens(count) if is_object(count) else count for key, count in counts.items()}
    return {key: count for key, count in found.items() if count and isinstance(count, int | float | dict)}


class Wire:
    """The live state of one attempt: `apply` every event in order; every prefix of a stream has a state."""

    def __init__(self, kept_chars_max: int = KEPT_CHARS_MAX) -> None:
        self.choices: dict[int, Choice] = {}
        #: Tools that the upstream runs itself, by id; no client is to run them.
        self.ran: dict[str, Call] = {}
        #: Any text, thought, sound or call has come.
        self.content = False
        #: Choices without a finish.
        self.unfinished: dict[int, Choice] = {}
        #: The answer is whole: every choice that started has a finish.
        self.finished = False
        #: The protocol's own terminator has come.
        self.terminated = False
        self.error: model.UpstreamError | None = None
        self.flags: dict[str, None] = {}
        #: More calls, choices, names and arguments than any answer has: the caller ends it with the cause `limit`.
        self.overflow = False
        self.ended: model.Ended | None = None
        #: The token counts as the upstream last wrote them, and the answer's id and model as it named them.
        self.usage: dict[str, Any] | None = None
        self.id = self.model = ""
        #: A call was handed over to the client.
        self.handed_over = False
        #: Tools of the upstream's own that are over because the answer is.
        self.unheard: list[Call] = []
        self._left = kept_chars_max
        self._dispatched = False

    def apply(self, event: Event) -> None:
        match event:
            case model.TextDelta() | model.ReasoningDelta() | model.RefusalDelta() | model.AudioDelta():
                self.choice(event.choice)
                self.content = True
            case model.ToolArgumentsDelta():
                if self._room(len(event.text)):
                    self.choice(event.choice).call(event).text.write(event.text)
            case model.ToolCallStarted():
                self._started(event)
            case model.ToolNameDelta():
                if self._room(len(event.name)):
                    self.choice(event.choice).call(event).name += event.name
            case model.ToolArgumentsComplete():
                choice = self.choice(event.choice)
                call = choice.call(event)
                if call.state is State.ANNOUNCED and call.valid():
                    call.move(event.n, Trigger.VALID)
                elif call.state is State.ANNOUNCED:
                    call.move(event.n, Trigger.INVALID, "malformed")
                    choice.malformed = True
            case model.HandedOver():
                choice = self.choice(event.choice)
                call = choice.call(event)
                if call.state is State.READY:
                    del choice.open[event.call]
                    call.move(event.n, Trigger.HANDED_OVER)
                    self.handed_over = choice.handed_over = True
            case model.ToolCallDamaged():
                self.choice(event.choice).call(event).damaged = True
            case model.Finish():
                self._finish(event)
            case model.Terminator():
                self.terminated = True
            case model.UpstreamError():
                self.error = self.error or event
            case model.ForeignFrame():
                self.flags[event.why] = None
            case model.Ended():
                self.ended = event
                self.drop(event.n, event.ending)
            case model.ResponseStarted():
                self._dispatched = True
                self.id, self.model = event.id, event.model
            case model.Usage():
                if self.usage is None or counts_tokens(event.counts) not in ({}, counts_tokens(self.usage)):
                    self.usage = event.counts  # the same again may name further zeros, and clients get the first
            case model.ToolProgress():
                self._progressed(event)
            case model.AttemptStarted() | model.ToolResultSeen() | model.Repaired() | model.Proof():
                pass
            case _:
                assert_never(event)

    def choice(self, index: int) -> Choice:
        """Return the state of a choice, from its first mention on."""
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = self.unfinished[index] = Choice()
            self._dispatched = True
            self.finished = False
            self._room(_CALL_OR_CHOICE)
        return choice

    def calls(self) -> Iterator[Call]:
        """Yield every call that is the client's to run, in order of choice and number."""
        for index in sorted(self.choices):
            yield from self.choices[index].calls.values()

    def completed_by(self, event: model.Finish) -> list[model.ToolArgumentsComplete]:
        """Return the ends of open calls that a finish means, unless it cuts them."""
        calls = () if event.reason in CUT_FINISHES else self.choice(event.choice).open
        return [model.ToolArgumentsComplete(n=event.n, choice=event.choice, call=call) for call in calls]

    def all_calls(self) -> Iterator[Call]:
        """Yield these, then the tools that the upstream ran itself."""
        yield from self.calls()
        yield from self.ran.values()

    @property
    def said_whole(self) -> bool:
        """Whether an answer that ends here lacks nothing but its finish: every call is complete, no own tool runs."""
        calls = [call for choice in self.unfinished.values() for call in choice.calls.values()]
        runs = any(call.state is State.RUNNING for call in self.ran.values())
        return self.content and not runs and all(call.valid() and call.closes_itself for call in calls)

    @property
    def late_calls(self) -> list[Call]:
        """Calls that went on after they were handed over: what a client would run is not what was asked."""
        return [call for call in self.calls() if call.damaged and call.state is State.RUNNING]

    def ending(self, cause: str) -> Ending:
        """Return the one ending, if the bytes end now for this cause."""
        if self.error is not None:
            return "upstream_error"
        if self.overflow:
            return "limit"
        if self.finished:
            return "completed"
        if self.terminated:
            return "truncated"
        if cause == "eof" and not self._dispatched and "not_a_stream" in self.flags:
            return "protocol"
        return _UNTERMINATED.get(cause, "internal")

    def all_flags(self) -> tuple[str, ...]:
        flags = list(self.flags)
        if self.finished and not self.terminated and self.error is None and "synthesised" not in self.flags:
            flags.append("no_done")
        if self.late_calls or any(call.state is State.MALFORMED for call in self.calls()):
            flags.append("malformed_call")
        return tuple(flags)

    def drop(self, n: int, ending: str) -> list[Call]:
        """Drop and return the calls that were not handed over and the tools that still run: the stream ended."""
        dropped = [call for call in self.calls() if call.state in (State.ANNOUNCED, State.READY)]
        for call in dropped:
            call.move(n, Trigger.CUT, ending)
        return dropped + self._drop_running(n, ending)

    def _drop_running(self, n: int, ending: str) -> list[Call]:
        """Drop and return the upstream's own tools that still run: the answer ended without word of their end."""
        dropped = [call for call in self.ran.values() if call.state is State.RUNNING]
        for call in dropped:
            call.move(n, Trigger.UNHEARD, "unfinished" if ending == "completed" else ending)
        return dropped

    def _started(self, event: model.ToolCallStarted) -> None:
        choice = self.choice(event.choice)
        self.content = True
        if event.call not in choice.calls:
            self._room(_CALL_OR_CHOICE + len(event.id) + len(event.name))
        call = choice.call(event)
        if choice.finish and event.call in choice.open:
            call.late = not choice.handed_over
            self.unfinished[event.choice] = choice
            self.finished = False
        if not call.name:  # it is new, or it waited for the name, which says what it is
            call.id, call.name, call.custom = event.id, event.name, event.custom

    def _progressed(self, event: model.ToolProgress) -> None:
        call = self.ran.get(event.id)
        self._dispatched = True
        if call is None and event.status == "running" and self._room(_CALL_OR_CHOICE + len(event.id) + len(event.name)):
            call = self.ran[event.id] = Call(0, UPSTREAM_CALL - len(self.ran), event.id, event.name)
            call.move(event.n, Trigger.RUN_UPSTREAM)
        elif call is not None and call.state is State.RUNNING and event.status in _RAN:
            call.move(event.n, _RAN[event.status])

    def _room(self, characters: int) -> bool:
        self._left -= characters
        self.overflow = self.overflow or self._left < 0
        return not self.overflow

    def _finish(self, event: model.Finish) -> None:
        choice = self.choice(event.choice)
        choice.finish = choice.finish or event.reason
        self.unfinished.pop(event.choice, None)
        choice.closed, choice.open = list(choice.open.values()), {}
        for call in choice.closed:
            if call.state is State.READY and choice.malformed:  # the client must run none of them
                call.move(event.n, Trigger.SIBLING, SIBLING)
            elif call.state is State.READY:
                call.move(event.n, Trigger.HANDED_OVER)
                self.handed_over = choice.handed_over = True
            elif call.state is State.ANNOUNCED and not call.late and event.reason == choice.finish:
                call.move(event.n, Trigger.LENGTH, event.reason)
            elif call.state is State.ANNOUNCED:  # no client would know by its finish that this one is cut
                call.late = choice.malformed = True
                call.move(event.n, Trigger.INVALID, "malformed")
        self.finished = not self.unfinished
        if self.finished:
            self.unheard += self._drop_running(event.n, "completed")
