"""The accumulated message of a stream: text, reasoning, refusal, calls and finish reason, as official SDKs have it."""

from dataclasses import dataclass, field
from typing import Final, assert_never

from ..core.json_text import joined_surrogates
from ..core.model import (
    AttemptStarted,
    Ended,
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

__all__ = ["CallSoFar", "ChoiceSoFar", "Message"]


#: A string of a few characters costs sixty bytes, so pieces are joined every so many.
_PIECES_JOINED: Final = 1_024


class _Pieces:
    """A text in pieces; `str` joins them."""

    __slots__ = ("_joined", "_pieces")

    def __init__(self) -> None:
        self._joined: list[str] = []
        self._pieces: list[str] = []

    def append(self, piece: str) -> None:
        pieces = self._pieces
        pieces.append(piece)
        if len(pieces) == _PIECES_JOINED:
            self._joined.append("".join(pieces))
            pieces.clear()

    def __str__(self) -> str:
        return joined_surrogates("".join([*self._joined, *self._pieces]))


@dataclass(slots=True)
class CallSoFar:
    """One call so far."""

    id: str
    name: list[str]
    arguments: _Pieces = field(default_factory=_Pieces)


@dataclass(slots=True)
class ChoiceSoFar:
    """One choice so far."""

    text: _Pieces = field(default_factory=_Pieces)
    reasoning: _Pieces = field(default_factory=_Pieces)
    refusal: _Pieces = field(default_factory=_Pieces)
    calls: dict[int, CallSoFar] = field(default_factory=dict[int, CallSoFar])
    finish: str = ""


class Message:
    """The message of a stream; `apply` every event in order. Pieces are joined on demand, so any length is linear."""

    def __init__(self) -> None:
        self.id = ""
        self.model = ""
        self.choices: dict[int, ChoiceSoFar] = {}

    def apply(self, event: Event) -> None:
        """Add the next event."""
        match event:
            case AttemptStarted():
                self.choices.clear()
            case ResponseStarted():
                self.id, self.model = event.id, event.model
            case TextDelta():
                self._choice(event.choice).text.append(event.text)
            case ReasoningDelta():
                self._choice(event.choice).reasoning.append(event.text)
            case RefusalDelta():
                self._choice(event.choice).refusal.append(event.text)
            case ToolCallStarted():
                call = self._choice(event.choice).calls.setdefault(event.call, CallSoFar(event.id, []))
                if not "".join(call.name):
                    call.id, call.name = event.id, [event.name]
            case ToolNameDelta():
                self._call(event).name.append(event.name)
            case ToolArgumentsDelta():
                self._call(event).arguments.append(event.text)
            case Finish():
                choice = self._choice(event.choice)
                choice.finish = choice.finish or event.reason
            case (
                ToolArgumentsComplete()
                | HandedOver()
                | ToolCallDamaged()
                | ToolResultSeen()
                | ToolProgress()
                | Usage()
                | Terminator()
                | UpstreamError()
                | ForeignFrame()
                | Repaired()
                | Ended()
            ):
                pass
            case _:
                assert_never(event)

    def text(self, choice: int = 0) -> str:
        """Return the visible text."""
        return str(self._choice(choice).text)

    def reasoning(self, choice: int = 0) -> str:
        """Return the reasoning."""
        return str(self._choice(choice).reasoning)

    def refusal(self, choice: int = 0) -> str:
        """Return the refusal."""
        return str(self._choice(choice).refusal)

    def calls(self, choice: int = 0) -> list[tuple[str, str, str]]:
        """Return id, name and arguments of each call, in order of number."""
        calls = sorted(self._choice(choice).calls.items())
        return [(call.id, "".join(call.name), str(call.arguments)) for _, call in calls]

    def _choice(self, choice: int) -> ChoiceSoFar:
        found = self.choices.get(choice)
        if found is None:
            found = self.choices[choice] = ChoiceSoFar()
        return found

    def _call(self, event: ToolNameDelta | ToolArgumentsDelta) -> CallSoFar:
        calls = self._choice(event.choice).calls
        call = calls.get(event.call)
        if call is None:
            call = calls[event.call] = CallSoFar("", [])
        return call
