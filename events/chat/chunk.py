"""Chat chunks: what canonical ones mean, and how ours are built."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from ..core.json_text import dumps, is_list, is_object
from ..core.model import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    Terminator,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    UpstreamError,
    Usage,
)

__all__ = [
    "CALLS",
    "CHUNK",
    "DONE",
    "LEGACY_CALL",
    "PROGRESS_EVENT",
    "Envelope",
    "call_members",
    "choices_of",
    "chunk",
    "counts_of",
    "events",
    "function_of",
    "has",
    "payloads",
    "says_content",
]

#: The finish of an answer that calls tools.
CALLS: Final = "tool_calls"
CHUNK: Final = "chat.completion.chunk"
DONE: Final = b"data: [DONE]\n\n"
PROGRESS_EVENT: Final = b"hermes.tool.progress"
#: The number of a legacy `function_call`; other calls of its choice count from 0.
LEGACY_CALL: Final = -1
_TEXTS: Final = (
    ("reasoning_content", ReasoningDelta),
    ("reasoning", ReasoningDelta),
    ("content", TextDelta),
    ("refusal", RefusalDelta),
)


# -- reading ----------------------------------------------------------------------------------------------------------


def choices_of(value: dict[str, Any]) -> list[Any]:
    """Return the choices, or none if they are not a list."""
    choices: Any = value.get("choices")
    return choices if is_list(choices) else []


def has(choice: Any, key: str) -> bool:
    """Return whether a choice has an object under `key`: the `delta` of a chunk or the `message` of a whole answer."""
    return is_object(choice) and is_object(choice.get(key))


def says_content(delta: dict[str, Any]) -> bool:
    """Return whether a delta contains more than a role; unknown members are content too."""
    return any(delta[key] and key != "role" for key in delta)


def counts_of(value: dict[str, Any]) -> dict[str, Any] | None:
    """Return the token counts of a chunk, an answer or an error, if it has any."""
    usage = value.get("usage")
    return usage if is_object(usage) and usage else None


def function_of(entry: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the member of an entry of `tool_calls` with its name and arguments, and whether the tool is a custom one.

    Gateways may write both members, one of them empty; then the type decides, or which of them says something.
    """
    function, custom, is_custom = entry.get("function"), entry.get("custom"), entry.get("type") == "custom"
    says = is_object(function) and bool(function.get("name") or function.get("arguments"))
    if is_object(custom) and (is_custom or not says):
        return custom, True
    return (function, False) if is_object(function) else (None, is_custom)


def events(value: dict[str, Any], n: int) -> list[Event]:
    """Return the events of one canonical chunk, deltas before the finish (Q13, Q43)."""
    found: list[Event] = []
    for choice in value["choices"]:
        index: int = choice["index"]
        delta: dict[str, Any] = choice["delta"]
        for key, kind in _TEXTS:
            text = delta.get(key)
            if isinstance(text, str) and text and not (key == "reasoning" and text == delta.get("reasoning_content")):
                found.append(kind(n=n, choice=index, text=text))
        if "tool_calls" in delta or "function_call" in delta:
            found += _calls(delta, n, index)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            found.append(Finish(n=n, choice=index, reason=reason))
    if counts := counts_of(value):
        found.append(Usage(n=n, counts=counts))
    return found


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
    if is_object(legacy):  # the client gets it as it came (Q29); its life is followed like that of any call
        name, arguments = legacy.get("name"), legacy.get("arguments")
        if isinstance(name, str) and name:
            yield ToolCallStarted(n=n, choice=choice, call=LEGACY_CALL, id=f"function_call_{choice}", name=name)
        if isinstance(arguments, str) and arguments:
            yield ToolArgumentsDelta(n=n, choice=choice, call=LEGACY_CALL, text=arguments)


# -- writing ----------------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Envelope:
    """What every chunk of one stream repeats; settled once, by the first frame that contains it."""

    id: str = ""
    model: str = ""
    created: int = 0

    def members(self) -> dict[str, Any]:
        """Return the members of a chunk without its choices."""
        return {"id": self.id, "object": CHUNK, "created": self.created, "model": self.model}


def chunk(envelope: Envelope, choice: int, delta: Mapping[str, Any], finish: str | None = None) -> dict[str, Any]:
    """Return a chunk of one choice."""
    return {**envelope.members(), "choices": [{"index": choice, "delta": delta, "finish_reason": finish}]}


def call_members(*, custom: bool, **said: str) -> dict[str, Any]:
    """Return what an entry says of a call: a function takes `arguments`, a custom tool a free text as `input`."""
    if custom and "arguments" in said:
        said["input"] = said.pop("arguments")
    return {"custom" if custom else "function": said}


_Said = TextDelta | ReasoningDelta | RefusalDelta | ToolCallStarted | ToolNameDelta | ToolArgumentsDelta | Finish


def payloads(events: Iterable[Event], envelope: Envelope) -> Iterator[bytes]:
    """Yield a payload for each event that has a form in this dialect: a whole stream made from events."""
    roles: set[int] = set()
    custom: dict[tuple[int, int], bool] = {}
    for event in events:
        if isinstance(event, _Said):
            role = {} if event.choice in roles else {"role": "assistant"}
            roles.add(event.choice)
            reason = event.reason if isinstance(event, Finish) else None
            yield dumps(chunk(envelope, event.choice, role | _delta(event, custom), reason))
        elif isinstance(event, Usage):
            yield dumps({**envelope.members(), "choices": [], "usage": event.counts})
        elif isinstance(event, Terminator):
            yield b"[DONE]"
        elif isinstance(event, UpstreamError):
            yield dumps({"error": {"message": event.message, "type": "upstream_error", "code": event.code}})


def _delta(event: _Said, custom: dict[tuple[int, int], bool]) -> dict[str, Any]:
    """Return the delta of an event; `custom` knows which of the calls so far are of custom tools."""
    if isinstance(event, Finish):
        return {}
    if isinstance(event, TextDelta | ReasoningDelta | RefusalDelta):
        return {next(key for key, kind in _TEXTS if type(event) is kind): event.text}
    entry: dict[str, Any] = {"index": event.call}
    said: dict[str, str] = {}
    if isinstance(event, ToolCallStarted):
        custom[event.choice, event.call] = event.custom
        entry |= {"id": event.id, "type": "custom" if event.custom else "function"}
        said = {"name": event.name, "arguments": ""}
    elif isinstance(event, ToolNameDelta):
        said["name"] = event.name
    else:
        said["arguments"] = event.text
    members = call_members(custom=custom.get((event.choice, event.call), False), **said)
    return {"tool_calls": [entry | members]}
