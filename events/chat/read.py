"""Canonical chat frames to events; never raises on upstream data."""

from collections.abc import Iterator
from typing import Any, Final

from ..core.json_text import as_list, as_object, is_object
from ..core.model import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    ToolResultSeen,
    Usage,
)

__all__ = ["LEGACY_CALL", "delivers", "events", "orphans", "results", "says_content", "says_text", "texts"]

#: The number of a legacy `function_call`, beside which the calls of the same choice count from 0.
LEGACY_CALL: Final = -1


def events(value: dict[str, Any], n: int) -> Iterator[Event]:
    """The events of one canonical chunk, deltas before the finish (Q13, Q43)."""
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


def texts(value: dict[str, Any], n: int) -> Iterator[Event]:
    """The same of a chunk of which it is known that its one choice says nothing but text."""
    (choice,) = value["choices"]
    yield from _texts(choice["delta"], n, choice["index"])
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


def delivers(value: dict[str, Any]) -> bool:
    """Whether a canonical chunk carries anything beyond role, usage and empty deltas."""
    return any(choice.get("finish_reason") or says_content(choice["delta"]) for choice in value["choices"])


def says_content(delta: dict[str, Any]) -> bool:
    """Whether a delta says more than a role; what we do not know is content too."""
    return any(part and key != "role" for key, part in delta.items())


def says_text(value: Any) -> bool:
    """Whether some choice of a chunk, whatever its shape, brings a piece of text."""
    return any(
        as_object(as_object(choice).get("delta")).get("content") for choice in as_list(as_object(value).get("choices"))
    )


def results(given: Any, n: int) -> Iterator[ToolResultSeen]:
    """The tool results that the proxy found in the request, from the keys of a `results` record; each id once."""
    seen: set[str] = set()
    for entry in as_list(given):
        fields = as_object(entry)
        call_id, name, output, duration = (fields.get(key) for key in ("id", "name", "output", "duration_ms"))
        if isinstance(call_id, str) and call_id not in seen:
            seen.add(call_id)
            yield ToolResultSeen(
                n=n,
                id=call_id,
                name=name if isinstance(name, str) and fields.get("orphan") is not True else "",
                failed=fields.get("failed") is True,
                output=output if isinstance(output, str) else "",
                duration_ms=duration if type(duration) is int else None,
            )


def orphans(given: Any) -> int:
    """How many of them answer no call of the message before them."""
    return sum(as_object(entry).get("orphan") is True for entry in as_list(given))
