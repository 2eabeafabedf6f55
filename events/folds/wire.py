"""What the live path must know: the ending, the calls that are open, whether anything was delivered.

The only fold that runs live. Text does not pass through it after the first piece (it would change nothing), so its size
does not depend on the number of frames; what it keeps, calls with names and arguments, has one bound together.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, assert_never

from ..core.json_text import ABSENT, joined_surrogates, parse
from ..core.lifecycle import State, Trigger, step
from ..core.limits import KEPT_CHARS_MAX
from ..core.model import (
    AttemptStarted,
    Ended,
    Ending,
    Event,
    Finish,
    ForeignFrame,
    HandedOver,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallDamaged,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
    ToolResultSeen,
    UpstreamError,
    Usage,
)

__all__ = ["SIBLING", "UPSTREAM_CALL", "Call", "Choice", "Wire"]

#: How the end of the bytes (the `cause` of an `end` record) is called when no terminator came before it.
_UNTERMINATED: Final[Mapping[str, Ending]] = MappingProxyType(
    {
        "eof": "truncated",
        "closed": "truncated",  # we hung up, after a terminator that did not hold
        "reset": "reset",
        "stalled": "stalled",
        "status": "upstream_error",  # an HTTP status that says so
        "refused": "refused",
        "protocol": "protocol",
        "limit": "limit",
        "client_gone": "client_gone",
        "shutdown": "shutdown",
        "crashed": "crashed",
    }
)

#: The number of the first tool that the upstream runs itself; from here they count down, since calls of a choice count
#: up from 0, with a legacy one at -1.
UPSTREAM_CALL: Final = -2
#: Why a whole call is dropped next to a malformed one: no call of such an answer is run.
SIBLING: Final = "sibling"
#: The upstream's words for its end.
_RAN: Final[Mapping[str, Trigger]] = MappingProxyType({"completed": Trigger.RESULT, "failed": Trigger.ERROR_RESULT})

#: A string of one character costs sixty bytes, so arguments that come in small pieces are joined in between.
_PIECES_JOINED: Final = 1_024
#: What the objects of a call or a choice cost, in characters, not counting its text.
_CALL_OR_CHOICE: Final = 1_024


class Call:
    """One tool call as far as it has come."""

    __slots__ = ("_pieces", "_text", "choice", "custom", "damaged", "id", "name", "number", "reason", "state")

    def __init__(self, choice: int, number: int, id: str, name: str) -> None:  # noqa: A002 - the field's name
        self.choice = choice
        self.number = number
        self.id = id
        self.name = name
        #: Its arguments are free text.
        self.custom = False
        #: A part of the call could not be read.
        self.damaged = False
        self._text: list[str] = []
        self._pieces: list[str] = []
        self.state = State.ANNOUNCED
        #: Of a dropped or malformed call: `length`, `malformed`, `sibling` (of such a one), `unfinished`, or the
        #: stream's ending.
        self.reason = ""

    @property
    def arguments(self) -> str:
        """The arguments so far."""
        return joined_surrogates(self._joined())

    @property
    def internal(self) -> bool:
        """Tools whose name starts with `_` are the upstream's own housekeeping."""
        return self.name.startswith("_")

    def valid(self) -> bool:
        """Return whether it could run: it was read completely, has a name, and its arguments are JSON or free text."""
        return bool(self.name and not self.damaged) and (
            self.custom or parse(self._joined().encode("utf-8", "replace")) is not ABSENT
        )

    @property
    def closes_itself(self) -> bool:
        """Whether the arguments tell by themselves that they are whole: a number might have gone on, and a text."""
        return not self.custom and self._joined().lstrip()[:1] in ("{", "[")

    def say(self, text: str) -> None:
        """Return one more piece of the arguments."""
        self._pieces.append(text)
        if len(self._pieces) == _PIECES_JOINED:
            self._text.append("".join(self._pieces))
            self._pieces.clear()

    def _joined(self) -> str:
        return "".join([*self._text, *self._pieces])


class Choice:
    """One of the n answers."""

    __slots__ = ("calls", "finish")

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        self.finish = ""


class Wire:
    """`apply` every event in order; every prefix of a stream has a state."""

    def __init__(self, kept_chars_max: int = KEPT_CHARS_MAX) -> None:
        self._kept_chars_max = kept_chars_max
        self._begin()

    def _begin(self) -> None:
        self.choices: dict[int, Choice] = {}
        #: Tools that the upstream runs itself, by id; no client is to run them.
        self.ran: dict[str, Call] = {}
        #: Any text, thought or call has come.
        self.content = False
        self.terminated = False
        self.error: UpstreamError | None = None
        self.flags: dict[str, None] = {}
        #: More calls, choices, names and arguments than any answer has: the caller ends it with the cause `limit`.
        self.overflow = False
        self.ended: Ended | None = None
        #: The token counts as the upstream last wrote them, and the model that it named.
        self.usage: dict[str, Any] | None = None
        self.model = ""
        #: A call was handed over to the client.
        self.handed_over = False
        self._unheard: list[Call] = []
        self._left = self._kept_chars_max
        self._dispatched = False

    def apply(self, event: Event) -> None:
        """Return the next event."""
        match event:
            case AttemptStarted():
                self._begin()
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                self.choice(event.choice)
                self.content = True
            case ToolCallStarted():
                self._started(event)
            case ToolNameDelta():
                if self._room(len(event.name)):
                    self._call(event).name += event.name
            case ToolArgumentsDelta():
                self._arguments(event)
            case ToolArgumentsComplete():
                self._closed(self._call(event))
            case HandedOver():
                call = self._call(event)
                if call.state is State.READY:
                    call.state = step(call.state, Trigger.HANDED_OVER)
            case ToolCallDamaged():
                self._call(event).damaged = True
            case Finish():
                self._finished(event)
            case Terminator():
                self.terminated = True
            case UpstreamError():
                self.error = self.error or event
            case ForeignFrame():
                self.flags[event.why] = None
            case Ended():
                self._ended(event)
            case ResponseStarted():
                self._dispatched = True
                self.model = event.model
            case Usage():
                self.usage = event.counts
            case ToolProgress():
                self._progressed(event)
            case ToolResultSeen() | Repaired():
                pass
            case _:
                assert_never(event)

    def choice(self, index: int) -> Choice:
        """Return the state of a choice, from its first mention on."""
        choice = self.choices.get(index)
        if choice is None:
            choice = self.choices[index] = Choice()
            self._dispatched = True
            self._room(_CALL_OR_CHOICE)
        return choice

    def calls(self) -> Iterator[Call]:
        """Return every call that is the client's to run, in order of choice and number."""
        for index in sorted(self.choices):
            yield from self.choices[index].calls.values()

    def all_calls(self) -> Iterator[Call]:
        """Yield these, then the tools that the upstream ran itself."""
        yield from self.calls()
        yield from self.ran.values()

    @property
    def open_calls(self) -> list[Call]:
        """Calls that were neither handed over nor given up."""
        return [call for call in self.calls() if call.state in (State.ANNOUNCED, State.READY)]

    @property
    def malformed_calls(self) -> list[Call]:
        """Calls that the protocol closed over arguments that are not JSON."""
        return [call for call in self.calls() if call.state is State.MALFORMED]

    @property
    def unfinished(self) -> list[int]:
        """Choices without a finish."""
        return [index for index, choice in self.choices.items() if not choice.finish]

    @property
    def said_whole(self) -> bool:
        """Whether an answer that ends here without a finish lacks nothing else: each call tells that it is whole, and
        no tool of the upstream's own runs.
        """
        calls = [call for index in self.unfinished for call in self.choices[index].calls.values()]
        runs = any(call.state is State.RUNNING for call in self.ran.values())
        return self.content and not runs and all(call.valid() and call.closes_itself for call in calls)

    @property
    def idle(self) -> bool:
        """Whether no client runs any call."""
        return not any(call.state is State.RUNNING for call in self.calls())

    @property
    def late_calls(self) -> list[Call]:
        """Calls of which more was heard when they had been handed over: what they would run is not what was asked."""
        return [call for call in self.calls() if call.damaged and call.state is State.RUNNING]

    @property
    def finished(self) -> bool:
        """The protocol's own terminator has come: a finish for every choice that started."""
        return bool(self.choices) and all(choice.finish for choice in self.choices.values())

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
        """Return the flags of the ending."""
        flags = list(self.flags)
        if self.finished and not self.terminated and self.error is None and "synthesised" not in self.flags:
            flags.append("no_done")
        if self.malformed_calls or self.late_calls:
            flags.append("malformed_call")
        return tuple(flags)

    def _started(self, event: ToolCallStarted) -> None:
        choice = self.choice(event.choice)
        self.content = True
        known = choice.calls.get(event.call)
        if known is None:
            self._room(_CALL_OR_CHOICE + len(event.id) + len(event.name))
            known = choice.calls[event.call] = Call(event.choice, event.call, event.id, event.name)
            known.custom = event.custom
        elif not known.name:  # which it waited for, and what it is with it
            known.id, known.name, known.custom = event.id, event.name, event.custom

    def _progressed(self, event: ToolProgress) -> None:
        call = self.ran.get(event.id)
        self._dispatched = True
        if call is None and event.status == "running" and self._room(_CALL_OR_CHOICE + len(event.id) + len(event.name)):
            call = self.ran[event.id] = Call(0, UPSTREAM_CALL - len(self.ran), event.id, event.name)
            call.state = step(call.state, Trigger.RUN_UPSTREAM)
        elif call is not None and call.state is State.RUNNING and event.status in _RAN:
            call.state = step(call.state, _RAN[event.status])

    def _call(
        self, event: ToolNameDelta | ToolArgumentsDelta | ToolArgumentsComplete | HandedOver | ToolCallDamaged
    ) -> Call:
        choice = self.choice(event.choice)
        call = choice.calls.get(event.call)
        if call is None:  # a legacy or foreign stream that never announced it
            call = choice.calls[event.call] = Call(event.choice, event.call, "", "")
        return call

    def _arguments(self, event: ToolArgumentsDelta) -> None:
        if self._room(len(event.text)):
            self._call(event).say(event.text)

    def _room(self, characters: int) -> bool:
        self._left -= characters
        self.overflow = self.overflow or self._left < 0
        return not self.overflow

    def _closed(self, call: Call) -> None:
        if call.state is State.ANNOUNCED:
            call.state = step(call.state, Trigger.VALID if call.valid() else Trigger.INVALID)
            if call.state is State.MALFORMED:
                call.reason = "malformed"

    def _finished(self, event: Finish) -> None:
        choice = self.choice(event.choice)
        choice.finish = choice.finish or event.reason
        malformed = any(call.state is State.MALFORMED for call in choice.calls.values())
        for call in choice.calls.values():
            if call.state is State.READY and malformed:  # the client must run none of them
                call.state = step(call.state, Trigger.SIBLING)
                call.reason = SIBLING
            elif call.state is State.READY:
                call.state = step(call.state, Trigger.HANDED_OVER)
                self.handed_over = True
            elif call.state is State.ANNOUNCED:
                call.state = step(call.state, Trigger.LENGTH)
                call.reason = event.reason
        if self.finished:
            self._unheard += self.drop_running("completed")

    def _ended(self, event: Ended) -> None:
        self.ended = event
        self.drop_open(event.ending)
        self.drop_running(event.ending)

    def take_unheard(self) -> list[Call]:
        """Tools of the upstream's own that are over because the answer is, each once."""
        unheard, self._unheard = self._unheard, []
        return unheard

    def drop_open(self, ending: str) -> list[Call]:
        """Return the stream ended under these calls."""
        dropped = self.open_calls
        for call in dropped:
            call.state = step(call.state, Trigger.CUT)
            call.reason = ending
        return dropped

    def drop_running(self, ending: str) -> list[Call]:
        """Return the answer ended, and nothing was heard of the end of these tools of the upstream's own."""
        dropped = [call for call in self.ran.values() if call.state is State.RUNNING]
        for call in dropped:
            call.state = step(call.state, Trigger.UNHEARD)
            call.reason = "unfinished" if ending == "completed" else ending
        return dropped
