"""Canonical chat frames to events; never raises on upstream data."""

from collections.abc import Iterator
from typing import Any, Final

from ..core.json_text import is_object
from ..core.model import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    Usage,
)

__all__ = ["LEGACY_CALL", "events", "says_content"]

#: The number of a legacy `function_call`; other calls of its choice count from 0.
LEGACY_CALL: Final = -1


def events(value: dict[str, Any], n: int) -> Iterator[Event]:
    """Return the events of one canonical chunk, deltas before the finish (Q13, Q43)."""
    for choice in value["choices"]:
        index: int = choice["index"]
        delta: dict[str, Any] = choice["delta"]
        yield from _texts(delta, n, index)
        yield from _calls(delta, n, index)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            yield Finish(n=n, choice=index, reason=reason)
    usage = value.get("usage")
    if is_object(usage) and usage:
        yield Usage(n=n, counts=usage)


def _texts(delta: dict[str, Any], n: int, choice: int) -> Iterator[Event]:
    thought, other = delta.get("reasoning_content"), delta.get("reasoning")
    if isinstance(thought, str) and thought:
        yield ReasoningDelta(n=n, choice=choice, text=thought)
    if isinstance(other, str) and other and other != thought:
        yield ReasoningDelta(n=n, choice=choice, text=other)
    text, refusal = delta.get("content"), delta.get("refusal")
    if isinstance(text, str) and text:
        yield TextDelta(n=n, choice=choice, text=text)
    if isinstance(refusal, str) and refusal:
        yield RefusalDelta(n=n, choice=choice, text=refusal)


def _calls(delta: dict[str, Any], n: int, choice: int) -> Iterator[Event]:
    for entry in delta.get("tool_calls") or ():
        custom = "custom" in entry  # repair leaves one of both
        said: dict[str, Any] = entry["custom"] if custom else entry.get("function") or {}
        name, arguments = said.get("name"), said.get("input" if custom else "arguments")
        if "id" in entry:
            call, call_id = entry["index"], entry["id"]
            yield ToolCallStarted(n=n, choice=choice, call=call, id=call_id, name=name or "", custom=custom)
        elif name:
            yield ToolNameDelta(n=n, choice=choice, call=entry["index"], name=name)
        if arguments:
            yield ToolArgumentsDelta(n=n, choice=choice, call=entry["index"], text=arguments)
    legacy = delta.get("function_call")
    if is_object(legacy):
        yield from _legacy_call(legacy, n, choice)


def _legacy_call(function: dict[str, Any], n: int, choice: int) -> Iterator[Event]:
    """`function_call` passes to the client as it came (Q29); its life is followed like that of any call."""
    name, arguments = function.get("name"), function.get("arguments")
    if isinstance(name, str) and name:
        yield ToolCallStarted(n=n, choice=choice, call=LEGACY_CALL, id=f"function_call_{choice}", name=name)
    if isinstance(arguments, str) and arguments:
        yield ToolArgumentsDelta(n=n, choice=choice, call=LEGACY_CALL, text=arguments)


def says_content(delta: dict[str, Any]) -> bool:
    """Return whether a delta contains more than a role; unknown members are content too."""
    return any(part and key != "role" for key, part in delta.items())
