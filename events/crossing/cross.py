"""Cross one request: read it in the client's dialect, make it fit every upstream, write it in the upstream's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from ..core.errors import RequestError
from ..core.settings import Facts
from .given import Given
from .history import ordered, system_first
from .losses import CHANGED, LOST
from .names import WayBack, declare, flat_name
from .request import Choice, Options, Request, Tool
from .turns import Call, Turn

__all__ = ["Crossed", "Reads", "Writes", "cross"]


class Reads(Protocol):
    """The dialect of a client: reads its requests, and raises RequestError for what cannot cross."""

    def read(self, body: Any) -> Request: ...


class Writes(Protocol):
    """The dialect of an upstream: writes a request whose names, ids and order fit, and adds what it loses."""

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


def cross(body: Any, *, theirs: Reads, ours: Writes, options: Options) -> Crossed:
    """Return a client's request (`theirs`) in the dialect of the upstream (`ours`).

    Raise RequestError for what no upstream of that dialect can be given.
    """
    request = theirs.read(body)
    lost = set(request.lost)
    if request.previous_id and options.previous is None:
        raise RequestError(
            "previous_response_id",
            f"Previous response with id {request.previous_id!r} not found.",
            "previous_response_not_found",
        )
    names = dict[str, WayBack]()
    fitted = _fitted(request, options, names, lost)
    written = ours.write(fitted, options, lost)
    assert lost <= LOST.keys() | CHANGED.keys(), "every loss is in the table"
    names_lost = tuple(sorted(lost))
    crossing = {
        "tools": {flat: tool._asdict() for flat, tool in names.items()},
        "echo": dict(request.echo),
        "lost": list(names_lost),
    }
    return Crossed(written, crossing, names_lost, ours.facts(written))


def _fitted(request: Request, options: Options, names: dict[str, WayBack], lost: set[str]) -> Request:
    turns = [*request.instructions, *(options.previous or ()), *request.turns]
    tools, choice = _tools(request, turns, names, lost)
    fitted = ordered(turns, lost)
    limit = request.max_tokens
    if limit is None and options.max_tokens is not None:
        limit = options.max_tokens
        lost.add("max_tokens_default")
    if limit is not None and options.max_tokens_max is not None and limit > options.max_tokens_max:
        limit = options.max_tokens_max
        lost.add("max_tokens_clamped")
    return replace(
        request,
        turns=tuple(system_first(fitted, lost)) if options.system_first else fitted,
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
    calls = [part for turn in turns for part in turn.parts if isinstance(part, Call)]
    found = request.found | {call.name for call in calls}
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
    if choice.mode == "tool":
        if choice.tool not in tools:
            raise Given(None, "tool_choice").refuse(f"the tool {choice.tool[0]!r} is not among the tools that cross.")
        flat = flat_name(*choice.tool)
        return declared, replace(choice, tool=(flat, ""))
    if not declared:
        raise Given(None, "tool_choice").refuse("no tool that crosses could be called.")
    return declared, choice
