"""What became of each tool call: every state that it went through, and the record that moved it."""

from typing import Final, NamedTuple

from ..core.lifecycle import State
from ..core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
)
from .wire import Call, Wire

__all__ = ["Move", "Tools"]

_SAID: Final = frozenset({TextDelta, ReasoningDelta, RefusalDelta})


class Move(NamedTuple):
    """One transition of one call."""

    n: int
    choice: int
    call: int
    state: State


class Tools:
    """`apply` every event in order; the states are those of the live fold, here with their history."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.moves: list[Move] = []
        self._states: dict[tuple[int, int], State] = {}

    def apply(self, event: Event) -> None:
        """The next event."""
        self.wire.apply(event)
        if type(event) in _SAID:  # nine events of ten, and no call moves
            return
        if isinstance(event, AttemptStarted):
            self.moves.clear()
            self._states.clear()
        elif isinstance(event, ToolCallStarted | ToolNameDelta | ToolArgumentsDelta | ToolArgumentsComplete):
            self._look(event.n, self.wire.choice(event.choice).calls[event.call])
        elif isinstance(event, ToolProgress):
            if event.id in self.wire.ran:
                self._look(event.n, self.wire.ran[event.id])
        elif isinstance(event, Finish):
            for call in (*self.wire.choice(event.choice).calls.values(), *self.wire.ran.values()):
                self._look(event.n, call)
        elif isinstance(event, Ended):
            for call in self.wire.all_calls():
                self._look(event.n, call)

    def _look(self, n: int, call: Call) -> None:
        key = (call.choice, call.number)
        if self._states.get(key) is not call.state:
            self._states[key] = call.state
            self.moves.append(Move(n, call.choice, call.number, call.state))
