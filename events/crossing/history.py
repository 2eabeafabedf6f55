"""Turns in an order that every upstream accepts: neighbours grouped, each result directly after its call."""

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from .names import call_id, flat_name
from .turns import Call, Part, Result, Text, Thought, Turn

__all__ = ["ordered", "system_first"]


@dataclass(slots=True)
class _Step:
    """One turn, with the results of its calls if it is the assistant's."""

    role: Literal["system", "developer", "user", "assistant"]
    parts: list[Part]
    results: list[Part] = field(default_factory=list[Part])
    #: Where its first call is, and how many have no result yet.
    first_call: int | None = None
    pending: int = 0


class _History:
    """Orders turns; ids and names of calls become those that the upstream gets."""

    def __init__(self, lost: set[str]) -> None:
        self._lost = lost
        self._steps: list[_Step] = []
        self._proofs: dict[str, tuple[tuple[str, Any], ...]] = {}
        #: Calls without a result by the client's id, each with those of the same turn; the latest turn is last.
        self._pending: dict[str, list[tuple[_Step, deque[Call]]]] = {}
        self._ids: set[str] = set()
        self._uses: dict[str, int] = {}

    def add(self, turn: Turn) -> None:
        if turn.role == "assistant":
            self._answer(turn)
            return
        rest: list[Part] = []
        for part in turn.parts:
            if not isinstance(part, Result):
                rest.append(part)
            elif waiting := self._pending.get(part.id):
                step, calls = waiting[-1]
                call = calls.popleft()
                if not calls:
                    waiting.pop()
                step.pending -= 1
                step.results.append(replace(part, id=call.id, kind=call.kind, name=call.name))
            else:
                self._lost.add("orphan_results")
                rest += [Text(f"[Result of tool call {part.id}]"), *part.parts]
        if rest or not turn.parts:
            self._steps.append(_Step(turn.role, rest))

    def turns(self) -> Iterator[Turn]:
        for step in self._steps:
            yield Turn(step.role, tuple(step.parts))
            if step.results:
                yield Turn("user", tuple(step.results))

    def _answer(self, turn: Turn) -> None:
        step = self._steps[-1] if self._steps else None
        if step is None or step.role != "assistant" or (step.results and not step.pending):
            step = _Step("assistant", [])
            self._steps.append(step)
        for part in turn.parts:
            if isinstance(part, Thought):
                self._proofs.update(part.calls)
        if step.first_call is not None and not any(isinstance(part, Call) for part in turn.parts):
            step.parts[step.first_call : step.first_call] = turn.parts
            step.first_call += len(turn.parts)
        else:
            for part in turn.parts:
                step.parts.append(self._called(part, step) if isinstance(part, Call) else part)

    def _called(self, call: Call, step: _Step) -> Call:
        """Note a call, under its flat name and an id that is used once: Anthropic refuses one that comes again."""
        made, uses = call_id(call.id), self._uses.get(call.id, 0)
        while made in self._ids:
            uses += 1
            made = call_id(f"{call.id} {uses}")
        self._ids.add(made)
        self._uses[call.id] = uses
        proofs = call.proofs or self._proofs.get(call.id, ())
        noted = replace(call, id=made, name=flat_name(call.name, call.namespace), namespace="", proofs=proofs)
        waiting = self._pending.setdefault(call.id, [])
        if not waiting or waiting[-1][0] is not step:
            waiting.append((step, deque()))
        waiting[-1][1].append(noted)
        step.first_call = len(step.parts) if step.first_call is None else step.first_call
        step.pending += 1
        return noted


def ordered(turns: Sequence[Turn], lost: set[str]) -> tuple[Turn, ...]:
    """Return the turns in order, with their calls and results as the upstream gets them."""
    history = _History(lost)
    for turn in turns:
        history.add(turn)
    return tuple(history.turns())


def system_first(turns: Sequence[Turn], lost: set[str]) -> Iterator[Turn]:
    """Yield the turns with each later system message as a user's text in a tag."""
    leading = True
    for turn in turns:
        leading = leading and turn.role in ("system", "developer")
        if leading or turn.role not in ("system", "developer"):
            yield turn
            continue
        lost.add("system_moved")
        yield Turn("user", (Text(f"<system>\n{turn.text}\n</system>"),))
