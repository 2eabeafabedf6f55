"""Cross one request: read it in the client's dialect, make it fit every upstream, write it in the upstream's.

Every upstream accepts the order of its turns: neighbours are grouped, and each result is directly after its call.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from ..core.errors import RequestError
from ..core.settings import Facts
from .given import Given
from .losses import CHANGED, LOST
from .names import WayBack, call_id, declare, flat_name
from .request import Choice, Options, Request, Tool
from .turns import Call, Part, Result, Text, Thought, Turn

__all__ = ["Asks", "Crossed", "cross"]

_SYSTEM: Final = ("system", "developer")


class Asks(Protocol):
    """How a dialect asks: it reads a request, or raises RequestError, and writes one, and adds what that loses."""

    def read(self, body: Any) -> Request: ...

    def write(self, request: Request, options: Options, lost: set[str]) -> dict[str, Any]: ...

    def facts(self, body: Any) -> Facts: ...


@dataclass(frozen=True, slots=True)
class Crossed:
    """A request as the upstream of another dialect gets it."""

    body: dict[str, Any]
    #: The `crossing` of the `attempt` record: `tools`, `echo` and `lost`.
    crossing: Mapping[str, Any]
    #: Names of losses.py, sorted.
    lost: tuple[str, ...]
    #: What the upstream's reader must know.
    facts: Facts


def cross(body: Any, *, theirs: Asks, ours: Asks, options: Options) -> Crossed:
    """Return a client's request (`theirs`) in the dialect of the upstream (`ours`).

    Raise RequestError for what no upstream of that dialect can be given.
    """
    request = theirs.read(body)
    if request.previous_id and options.previous is None:
        unknown = f"Previous response with id {request.previous_id!r} not found."
        raise RequestError("previous_response_id", unknown, "previous_response_not_found")
    lost, names = set(request.lost), dict[str, WayBack]()
    written = ours.write(_fitted(request, options, names, lost), options, lost)
    assert lost <= LOST.keys() | CHANGED.keys(), "every loss is in the table"
    tools = {flat: tool._asdict() for flat, tool in names.items()}
    crossing = {"tools": tools, "echo": dict(request.echo), "lost": sorted(lost)}
    return Crossed(written, crossing, tuple(sorted(lost)), ours.facts(written))


def _fitted(request: Request, options: Options, names: dict[str, WayBack], lost: set[str]) -> Request:
    turns = [*request.instructions, *(options.previous or ()), *request.turns]
    tools, choice = _tools(request, turns, names, lost)
    history = _History(lost)
    for turn in turns:
        history.add(turn)
    limit = request.max_tokens
    if limit is None and options.max_tokens is not None:
        limit = options.max_tokens
        lost.add("max_tokens_default")
    if limit is not None and options.max_tokens_max is not None and limit > options.max_tokens_max:
        limit = options.max_tokens_max
        lost.add("max_tokens_clamped")
    return replace(
        request,
        turns=tuple(_system_first(history.turns(), lost) if options.system_first else history.turns()),
        tools=tools,
        choice=choice,
        # Without a call there are none in parallel, and some upstreams refuse the flag.
        parallel=request.parallel if tools and (choice is None or choice.mode != "none") else None,
        max_tokens=limit,
    )


def _tools(
    request: Request, turns: Sequence[Turn], names: dict[str, WayBack], lost: set[str]
) -> tuple[tuple[Tool, ...], Choice | None]:
    """Return the tools that the upstream gets, each once under its flat name, and the choice among them."""
    found = request.found | {part.name for turn in turns for part in turn.parts if isinstance(part, Call)}
    tools: dict[tuple[str, str], Tool] = {}
    for tool in request.tools:
        if not tool.deferred or request.searches or tool.name in found:
            tools.setdefault((tool.name, tool.namespace), tool)
    if any((tool.name, tool.namespace) not in tools for tool in request.tools):
        lost.add("deferred_tools")
    choice = request.choice
    if choice is not None and choice.allowed is not None:
        tools = {key: tool for key, tool in tools.items() if key in choice.allowed}
    declared = tuple(
        replace(tool, name=declare(names, WayBack(tool.name, tool.namespace, tool.kind)), namespace="")
        for tool in tools.values()
    )
    if choice is None or (not declared and choice.mode in ("auto", "none")):
        return declared, None
    if choice.mode == "tool" and choice.tool not in tools:
        raise Given(None, "tool_choice").refuse(f"the tool {choice.tool[0]!r} is not among the tools that cross.")
    if not declared:
        raise Given(None, "tool_choice").refuse("no tool that crosses could be called.")
    return declared, replace(choice, tool=(flat_name(*choice.tool), "")) if choice.mode == "tool" else choice


@dataclass(slots=True, eq=False)
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

    def turns(self) -> Iterator[Turn]:
        for step in self._steps:
            yield Turn(step.role, tuple(step.parts))
            if step.results:
                yield Turn("user", tuple(step.results))

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


def _system_first(turns: Iterator[Turn], lost: set[str]) -> Iterator[Turn]:
    """Yield the turns with each later system message as a user's text in a tag."""
    leading = True
    for turn in turns:
        leading = leading and turn.role in _SYSTEM
        if leading or turn.role not in _SYSTEM:
            yield turn
        else:
            lost.add("system_moved")
            yield Turn("user", (Text(f"<system>\n{turn.text}\n</system>"),))
