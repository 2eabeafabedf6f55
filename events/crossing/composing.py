"""What the composers of all dialects share: calls under the client's ids and names, and proofs that wait for a thought.

A composer makes the canonical frames of one answer out of events in the order of `Serial`. Its steps hold the events
that the frames mean in its own dialect.
"""

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Final

from ..core import model
from ..core.model import Event
from ..emission.dialect import Composer, Context, Step
from ..emission.frames import Out
from .envelope import seal
from .names import WayBack, call_id, way_back

__all__ = ["CHOICE", "CROSSED", "Composing", "framed"]

#: The repair that makes every composed frame.
CROSSED: Final = "crossed"
#: A client of another dialect gets one choice.
CHOICE: Final = (0,)


def framed(n: int, value: dict[str, Any], *events: Event, delivers: bool = False) -> Step:
    """Return a step with a frame whose payload has a type."""
    return Step(n, events, Out(n, value, repair=CROSSED, event=value["type"].encode()), delivers, CHOICE)


class Composing(Composer):
    """The part of a composer that every dialect needs."""

    #: How the ids begin that we give to calls.
    prefix: ClassVar = "call_"

    def __init__(self, context: Context) -> None:
        self._context = context
        self._model = context.facts.model
        self._opened = context.opened > 0
        #: The calls that have begun, as the client knows them.
        self._calls: dict[int, model.ToolCallStarted] = {}
        #: Proofs that no frame has carried yet: of thoughts, and of calls by their number.
        self._proofs: list[tuple[str, Any]] = []
        self._call_proofs: dict[int, list[tuple[str, Any]]] = {}
        #: The first finish reason.
        self._reason = ""

    def open(self, n: int) -> Sequence[Step]:
        """Return the frames that begin an answer, once."""
        if self._opened:
            return ()
        self._opened = True
        return self._opening(n)

    def compose(self, n: int, events: Iterable[Event]) -> list[Step]:
        """Return the frames of some events of one record."""
        steps: list[Step] = []
        for event in events:
            match event:
                case model.TextDelta() | model.ReasoningDelta() | model.RefusalDelta():
                    steps += self._say(n, event)
                case model.ResponseStarted():
                    self._model = event.model or self._model
                    steps += self.open(n)
                case model.Proof():
                    steps += self._prove(n, event)
                case model.ToolCallStarted():
                    self._calls[event.call], tool = self._renamed(event)
                    steps += self._begin(n, self._calls[event.call], tool)
                case model.ToolArgumentsDelta():
                    steps += self._argue(n, event)
                case model.ToolArgumentsComplete():
                    steps += self._complete(n, event)
                case model.Finish():
                    self._reason = self._reason or event.reason
                    steps += [*self.open(n), *self._finish(n, event)]
                case _:
                    steps.append(Step(n, (event,)))
        return steps

    def lose(self, n: int, calls: Iterable[model.ToolCallStarted]) -> list[Step]:
        """Report calls that have no frame, because the answer ends before they are shown."""
        return [Step(n, (replace(self._renamed(event)[0], n=n),)) for event in calls]

    def _renamed(self, event: model.ToolCallStarted) -> tuple[model.ToolCallStarted, WayBack]:
        """Return the start of a call in the client's words, and what else it calls the tool."""
        known_id = call_id(event.id or f"{self.prefix}{self._context.stream_id}_{event.call}", self.prefix)
        tool = way_back(self._context.crossing, event.name)
        return replace(event, id=known_id, name=tool.name), tool

    def _prove(self, n: int, event: model.Proof) -> Sequence[Step]:  # noqa: ARG002 - a subclass needs it
        """Keep a proof for the thought that is open, or for one of its own."""
        proofs = self._proofs if event.call is None else self._call_proofs.setdefault(event.call, [])
        proofs.append((event.kind, event.value))
        return ()

    @property
    def _proven(self) -> bool:
        """Whether proofs wait."""
        return bool(self._proofs or self._call_proofs)

    def _sealed(self, n: int) -> str:
        """Return the envelope of all proofs that wait; empty if there are none, or if they are too long."""
        if not self._proven:
            return ""
        by_id = {self._calls[number].id: given for number, given in self._call_proofs.items() if number in self._calls}
        sealed = seal(self._proofs, by_id)
        self._proofs, self._call_proofs = [], {}
        if sealed is None:
            self._context.ledger.enter(n, "lost_proof")
        return sealed or ""

    @abstractmethod
    def _opening(self, n: int) -> Sequence[Step]: ...

    @abstractmethod
    def _say(self, n: int, event: model.TextPiece) -> Sequence[Step]: ...

    @abstractmethod
    def _begin(self, n: int, event: model.ToolCallStarted, tool: WayBack) -> Sequence[Step]: ...

    @abstractmethod
    def _argue(self, n: int, event: model.ToolArgumentsDelta) -> Sequence[Step]: ...

    @abstractmethod
    def _complete(self, n: int, event: model.ToolArgumentsComplete) -> Sequence[Step]: ...

    @abstractmethod
    def _finish(self, n: int, event: model.Finish) -> Sequence[Step]: ...
