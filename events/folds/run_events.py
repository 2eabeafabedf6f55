"""The events of runs: their JSON Schemas, and the words of failures and warnings."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import as_object, as_text, parse
from ..core.limits import PREVIEW_BYTES_MAX
from .summary import StreamSummary
from .wire import Call

__all__ = ["CLOSED", "COMMON", "REASONS", "RUN_EVENTS", "event_schema", "failure", "object_schema", "phrase", "warning"]

_TEXT: Final[Mapping[str, Any]] = {"type": "string"}
_FLAG: Final[Mapping[str, Any]] = {"type": "boolean"}
_COUNT: Final[Mapping[str, Any]] = {"type": "integer", "minimum": 0}
_CALL: Final[Mapping[str, Any]] = {"call_id": _TEXT, "tool": _TEXT}
#: Why a run was cancelled.
REASONS: Final = ("asked", "unwatched", "waited", "upstream")


def object_schema(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema of an object with these fields; a name that ends in `?` may be absent, `*` allows any."""
    properties = {name.rstrip("?"): schema for name, schema in fields.items() if name != "*"}
    required = [name for name in properties if name in fields]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": "*" in fields}


#: The fields of each event besides those that all have, as JSON Schema.
RUN_EVENTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "run.started": {"model": _TEXT, "session_id?": _TEXT},
        "message.delta": {"delta": _TEXT},
        "reasoning.delta": {"delta": _TEXT},
        "reasoning.available": {"text": _TEXT},
        "tool.started": {**_CALL, "preview": _TEXT},
        "tool.arguments.delta": {**_CALL, "delta": _TEXT},
        "tool.completed": {**_CALL, "duration": {"type": "number", "minimum": 0}, "error": _FLAG},
        "run.waiting_for_tools": {"calls": {"type": "array", "items": object_schema({**_CALL, "arguments": _TEXT})}},
        "run.warning": {"code": _TEXT, "message": _TEXT, "calls": {"type": "array", "items": object_schema(_CALL)}},
        "approval.request": {"*": {}},
        "approval.responded": {"choice": _TEXT, "resolved?": _COUNT},
        "run.completed": {
            "output": _TEXT,
            "usage?": object_schema({"input_tokens": _COUNT, "output_tokens": _COUNT, "total_tokens": _COUNT}),
            "recovered?": _FLAG,
        },
        "run.failed": {"error": _TEXT, "code": _TEXT, "output?": _TEXT, "recovered?": _FLAG},
        "run.cancelled": {"reason": {"enum": [*REASONS]}, "recovered?": _FLAG},
    }
)
#: The fields that all events have.
COMMON: Final[Mapping[str, Any]] = MappingProxyType(
    {"event": _TEXT, "run_id": _TEXT, "timestamp": {"type": "number"}, "sequence": {"type": "integer", "minimum": 1}}
)

#: What happened, by ending or warning, where neither the upstream nor a failed attempt gives a reason.
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "truncated": "The upstream ended its answer before it was complete",
        "reset": "The upstream reset the connection before its answer was complete",
        "stalled": "The upstream sent nothing for too long",
        "upstream_error": "The upstream reported an error",
        "refused": "The upstream could not be reached",
        "protocol": "The upstream did not answer with a stream",
        "limit": "The answer of the upstream exceeds a limit",
        "client_gone": "The run was stopped before its answer was complete",
        "shutdown": "Wiretape was shut down before the answer was complete",
        "crashed": "Wiretape crashed before the answer was complete",
        "internal": "Wiretape failed on this run; its tape holds what came before",
        "malformed_call": "The model made a malformed tool call",
        "malformed": "The model made a malformed tool call",
        "sibling": "Another tool call of the same answer is malformed",
        "unfinished": "The upstream never reported the end of its tool",
        "length": "The answer was cut at its output limit",
        "content_filter": "The answer was cut by a content filter",
    }
)
#: The states of a run that is over. The others are started, running, stopping and the two that wait.
CLOSED: Final = frozenset({"completed", "failed", "cancelled"})


def event_schema(event: str) -> dict[str, Any]:
    """Return the JSON Schema of one event of `RUN_EVENTS`."""
    return object_schema({**COMMON, "event": {"const": event}, **RUN_EVENTS[event]})


def phrase(code: str, reason: Any = None, said: Any = None, tools: Iterable[str] = ()) -> str:
    """Return a sentence: the reason, or that of a code, the tools whose calls are lost, and what the upstream said."""
    sentence = " ".join(as_text(reason).split()).rstrip(".") or _WHY.get(code, f"The answer is marked {code}")
    if named := ", ".join(tools):
        sentence += f" (lost tool calls: {named[:PREVIEW_BYTES_MAX]})"
    words = " ".join(as_text(as_object(said).get("message", said)).split())[:PREVIEW_BYTES_MAX].rstrip(".")
    return as_text(f"{sentence}: {words}." if words else f"{sentence}.")


def warning(code: str, calls: Iterable[tuple[str, str]]) -> dict[str, Any]:
    """Return the fields of a `run.warning`; calls are ids and names."""
    named = [{"call_id": as_text(call_id), "tool": as_text(tool)} for call_id, tool in calls]
    return {"code": code, "message": phrase(code, tools=[one["tool"] for one in named]), "calls": named}


def failure(code: str, turn: StreamSummary, lost: Iterable[Call]) -> str:
    """Return why a turn failed: the error that the upstream sent, or else what its last attempt reports."""
    tools = [call.name for call in lost]
    if error := turn.wire.error:
        return phrase(code, said=error.message, tools=tools)
    attempt = turn.attempts[-1] if turn.attempts else {}
    answer = as_object(parse(as_text(attempt.get("error")).encode()))
    return phrase(code, as_object(attempt.get("failure")).get("message"), answer.get("error"), tools)
