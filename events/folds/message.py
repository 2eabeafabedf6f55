"""What the answer says: text, reasoning, refusal, calls and finish of each choice, as the official SDKs have it."""

from dataclasses import dataclass, field
from typing import Final, assert_never

from ..core.json_text import joined_surrogates
from ..core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ForeignFrame,
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

__all__ = ["CallSaid", "Message", "Said"]


#: A string of a few characters costs sixty bytes, so many small ones are joined in between.
_PIECES_JOINED: Final = 1_024


class _Pieces:
    """A text as it comes; `str` is all of it."""

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
class CallSaid:
    """One call as far as it was said."""

    id: str
    name: list[str]
    arguments: _Pieces = field(default_factory=_Pieces)


@dataclass(slots=True)
class Said:
    """One choice, in pieces."""

    text: _Pieces = field(default_factory=_Pieces)
    reasoning: _Pieces = field(default_factory=_Pieces)
    refusal: _Pieces = field(default_factory=_Pieces)
    calls: dict[int, CallSaid] = field(default_factory=dict[int, CallSaid])
    finish: str = ""


class Message:
    """`apply` every event in order; the pieces are joined only when asked, so a stream of any length is linear."""

    def __init__(self) -> None:
        self.id = ""
        self.model = ""
        self.choices: dict[int, Said] = {}

    def apply(self, event: Event) -> None:
        """The next event."""
        match event:
            case AttemptStarted():
                self.choices.clear()
            case ResponseStarted():
                self.id, self.model = event.id, event.model
            case TextDelta():
                self._said(event.choice).text.append(event.text)
            case ReasoningDelta():
                self._said(event.choice).reasoning.append(event.text)
            case RefusalDelta():
                self._said(event.choice).refusal.append(event.text)
            case ToolCallStarted():
                call = self._said(event.choice).calls.setdefault(event.call, CallSaid(event.id, []))
                if not "".join(call.name):
                    call.id, call.name = event.id, [event.name]
            case ToolNameDelta():
                self._call(event).name.append(event.name)
            case ToolArgumentsDelta():
                self._call(event).arguments.append(event.text)
            case Finish():
                said = self._said(event.choice)
                said.finish = said.finish or event.reason
            case (
                ToolArgumentsComplete()
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
        """The visible text."""
        return str(self._said(choice).text)

    def reasoning(self, choice: int = 0) -> str:
        """The thinking."""
        return str(self._said(choice).reasoning)

    def refusal(self, choice: int = 0) -> str:
        """The refusal."""
        return str(self._said(choice).refusal)

    def calls(self, choice: int = 0) -> list[tuple[str, str, str]]:
        """Id, name and arguments of each call, in order of number."""
        calls = sorted(self._said(choice).calls.items())
        return [(call.id, "".join(call.name), str(call.arguments)) for _, call in calls]

    def _said(self, choice: int) -> Said:
        said = self.choices.get(choice)
        if said is None:
            said = self.choices[choice] = Said()
        return said

    def _call(self, event: ToolNameDelta | ToolArgumentsDelta) -> CallSaid:
        calls = self._said(event.choice).calls
        call = calls.get(event.call)
        if call is None:
            call = calls[event.call] = CallSaid("", [])
        return call
