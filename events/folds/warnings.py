"""What a person must be told: which tool calls were lost and why, and what the stream's flags mean."""

from typing import NamedTuple

from ..core.lifecycle import State
from ..core.model import Ended, Event
from .markup import Markup
from .wire import Call, Wire

__all__ = ["Warned", "Warnings"]


class Warned(NamedTuple):
    """One thing gone wrong; `calls` are the ids and names of the tools that it hit."""

    code: str
    calls: tuple[tuple[str, str], ...]


class Warnings:
    """`apply` every event in order; `found` is whole once the stream has ended."""

    def __init__(self) -> None:
        self.found: list[Warned] = []
        self._wire = Wire()
        self._markup = Markup()

    def apply(self, event: Event) -> None:
        """The next event."""
        self._wire.apply(event)
        self._markup.apply(event)
        if isinstance(event, Ended):
            self._ended(event)

    def _ended(self, ended: Ended) -> None:
        by_reason: dict[str, list[Call]] = {}
        for call in self._wire.all_calls():
            if call.state in (State.DROPPED, State.MALFORMED):
                by_reason.setdefault(call.reason, []).append(call)
        for reason, calls in by_reason.items():
            self.found.append(Warned(reason, tuple((call.id, call.name) for call in calls)))
        if ended.ending != "completed" and ended.ending not in by_reason:
            self.found.append(Warned(ended.ending, ()))
        self.found += [Warned(flag, ()) for flag in ended.flags if flag != "malformed_call"]
        self.found += [Warned(name, ()) for name in self._markup.found]
