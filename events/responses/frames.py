"""Canonical frames of the Responses protocol: their names, how ours are built, and the kinds of text in them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from ..core import model
from ..core.json_text import as_list, as_object, dumps
from ..core.model import TextPiece
from ..emission.frames import Out

__all__ = [
    "ADDED",
    "ALIASES",
    "ANNOTATED",
    "CANCELLED",
    "CLIENT_CALLS",
    "COMPLETED",
    "CREATED",
    "DONE",
    "ENDS",
    "FAILED",
    "FREE",
    "HOSTED",
    "INCOMPLETE",
    "IN_PROGRESS",
    "KINDS",
    "NO_USAGE",
    "OF_DELTA",
    "OF_DONE",
    "OF_PART",
    "OPENINGS",
    "PARTS",
    "PART_KINDS",
    "PINGS",
    "PLACED",
    "PREFIXES",
    "QUEUED",
    "RESPONSE_DEFAULTS",
    "Kind",
    "begun",
    "error_of",
    "failed",
    "frame_value",
    "is_client_call",
    "item_frames",
    "named",
    "part_frames",
    "response_object",
    "says",
]

CREATED: Final = "response.created"
QUEUED: Final = "response.queued"
IN_PROGRESS: Final = "response.in_progress"
COMPLETED: Final = "response.completed"
INCOMPLETE: Final = "response.incomplete"
FAILED: Final = "response.failed"
ADDED: Final = "response.output_item.added"
DONE: Final = "response.output_item.done"
ANNOTATED: Final = "response.output_text.annotation.added"
OPENINGS: Final = frozenset({CREATED, QUEUED, IN_PROGRESS})
CANCELLED: Final = frozenset({"response.cancelled", "response.canceled"})
#: What keeps a connection open; we have our own.
PINGS: Final = frozenset(
    {"ping", "keepalive", "response.keepalive", "response.ping", "heartbeat", "response.heartbeat"}
)
#: Older and other names of events (Q115, Q118).
ALIASES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "response.done": COMPLETED,
        "response.output_text_annotation.added": ANNOTATED,
        "response.reasoning_part.added": "response.content_part.added",
        "response.reasoning_part.done": "response.content_part.done",
        "response.reasoning.delta": "response.reasoning_text.delta",
        "response.reasoning.done": "response.reasoning_text.done",
        "response.reasoning_summary.delta": "response.reasoning_summary_text.delta",
        "response.reasoning_summary.done": "response.reasoning_summary_text.done",
    }
)
#: Events about tools that the upstream runs, of an item. openai-node raises on names that it does not know.
HOSTED: Final = frozenset(
    f"response.{name}.{state}"
    for name, states in (
        ("code_interpreter_call", ("in_progress", "interpreting", "completed")),
        ("code_interpreter_call_code", ("delta", "done")),
        ("compaction", ("compacting",)),
        ("file_search_call", ("in_progress", "searching", "completed")),
        ("image_generation_call", ("in_progress", "generating", "partial_image", "completed")),
        ("mcp_call", ("in_progress", "completed", "failed")),
        ("mcp_list_tools", ("in_progress", "completed", "failed")),
        ("shell_call_command", ("added", "delta", "done")),
        ("shell_call_output_content", ("delta", "done")),
        ("web_search_call", ("in_progress", "searching", "completed")),
    )
    for state in states
)
#: Events of no item.
FREE: Final = frozenset(
    {
        "response.audio.delta",
        "response.audio.done",
        "response.audio.transcript.delta",
        "response.audio.transcript.done",
    }
)
ENDS: Final = frozenset({COMPLETED, INCOMPLETE, FAILED})


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of text that is streamed: its part, the item that it belongs to, and the names of its events."""

    #: The type of its part; empty if the text is a member of the item itself.
    part: str
    item: str
    #: The member of the item that holds such parts, and the member of frames that numbers them.
    list: str
    index_key: str
    #: The member of its done event, of its part or of its item that holds the whole text.
    member: str
    delta: str
    done: str
    event: Callable[..., TextPiece] | None


def _part(part: str, item: str, parts: str, member: str, name: str, event: Callable[..., TextPiece]) -> Kind:
    return Kind(part, item, parts, f"{parts}_index", member, f"response.{name}.delta", f"response.{name}.done", event)


def _member(item: str, member: str, name: str) -> Kind:
    return Kind("", item, "", "", member, f"response.{name}.delta", f"response.{name}.done", None)


KINDS: Final = (
    _part("output_text", "message", "content", "text", "output_text", model.TextDelta),
    _part("refusal", "message", "content", "refusal", "refusal", model.RefusalDelta),
    _part("reasoning_text", "reasoning", "content", "text", "reasoning_text", model.ReasoningDelta),
    _part("summary_text", "reasoning", "summary", "text", "reasoning_summary_text", model.ReasoningDelta),
    _member("function_call", "arguments", "function_call_arguments"),
    _member("custom_tool_call", "input", "custom_tool_call_input"),
    _member("mcp_call", "arguments", "mcp_call_arguments"),
)
OF_DELTA: Final[Mapping[str, Kind]] = MappingProxyType({kind.delta: kind for kind in KINDS})
OF_DONE: Final[Mapping[str, Kind]] = MappingProxyType({kind.done: kind for kind in KINDS})
#: The kind of a part by its type, and the kind of the text of an item that has no parts.
OF_PART: Final[Mapping[str, Kind]] = MappingProxyType({kind.part or kind.item: kind for kind in KINDS})
#: The events of parts, by the member of the item that holds them.
PARTS: Final[Mapping[str, str]] = MappingProxyType(
    {"content": "response.content_part", "summary": "response.reasoning_summary_part"}
)
#: The same, by the event.
PART_KINDS: Final[Mapping[str, str]] = MappingProxyType(
    {f"{name}.{what}": parts for parts, name in PARTS.items() for what in ("added", "done")}
)
#: Every event of an item.
PLACED: Final = frozenset({ADDED, DONE, ANNOTATED, *OF_DELTA, *OF_DONE, *PART_KINDS, *HOSTED})
#: Calls that the client runs: the member with what it is to do, and the name of a tool that has only one.
CLIENT_CALLS: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {
        "function_call": ("arguments", ""),
        "custom_tool_call": ("input", ""),
        "tool_search_call": ("arguments", "tool_search"),
        "local_shell_call": ("action", "local_shell"),
        "shell_call": ("action", "shell"),
        "apply_patch_call": ("operation", "apply_patch"),
        "computer_call": ("action", "computer"),
    }
)
#: OpenAI checks the prefixes of ids that come back in a history.
PREFIXES: Final[Mapping[str, str]] = MappingProxyType(
    {"message": "msg", "reasoning": "rs", "function_call": "fc", "custom_tool_call": "ctc"}
)
#: The members of a response that SDKs and the Open Responses schema want, with what they mean if nothing was said.
RESPONSE_DEFAULTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "background": False,
        "completed_at": None,
        "error": None,
        "frequency_penalty": 0.0,
        "incomplete_details": None,
        "instructions": None,
        "max_output_tokens": None,
        "max_tool_calls": None,
        "metadata": {},
        "output": [],
        "parallel_tool_calls": True,
        "presence_penalty": 0.0,
        "previous_response_id": None,
        "prompt_cache_key": None,
        "reasoning": {"effort": None, "summary": None},
        "safety_identifier": None,
        "service_tier": "default",
        "store": False,
        "temperature": 1.0,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "top_logprobs": 0,
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": None,
    }
)


#: Where the upstream counted nothing: without an object here opencode takes the finish for unknown, and asks for ever.
NO_USAGE: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
    }
)


def frame_value(kind: str, **members: Any) -> dict[str, Any]:
    """Return the payload of a frame of ours; the writer numbers it."""
    return {"type": kind, "sequence_number": 0, **members}


def named(n: int, value: dict[str, Any], repair: str) -> Out:
    """Return a frame of ours."""
    return Out(n, value, repair=repair, event=value["type"].encode())


def response_object(response_id: str, created: int, model_name: str, **members: Any) -> dict[str, Any]:
    """Return a response with every member that clients want."""
    head = {"id": response_id, "object": "response", "created_at": created, "status": "in_progress"}
    return {**head, "model": model_name, **RESPONSE_DEFAULTS, **members}


def error_of(given: Any) -> dict[str, Any]:
    """Return the error of a `response.failed`: a code, a message, and all other members that came with them."""
    error = as_object(given)
    message, code = error.get("message"), error.get("code") or error.get("type")
    rest = {key: value for key, value in error.items() if key not in ("code", "message", "type", "sequence_number")}
    text = message if isinstance(message, str) else given if isinstance(given, str) else dumps(given).decode()
    return {"code": str(code or "server_error"), "message": text, **rest}


def failed(response: Mapping[str, Any], error: Mapping[str, Any], output: Sequence[Any]) -> dict[str, Any]:
    """Return a `response.failed`."""
    return frame_value(FAILED, response={**response, "status": "failed", "error": error, "output": output})


def is_client_call(item: Mapping[str, Any]) -> bool:
    """Return whether an item is a call that the client runs, and not one that ran where the model is."""
    kind = item.get("type")
    if kind == "tool_search_call":
        return item.get("execution") == "client"
    if kind == "shell_call":
        return as_object(item.get("environment")).get("type") != "container_reference"
    return isinstance(kind, str) and kind in CLIENT_CALLS


def says(value: Mapping[str, Any]) -> bool:
    """Return whether a frame holds content: without it another attempt may still follow."""
    kind = value["type"]
    if kind in OF_DELTA:
        return bool(value.get("delta"))
    begins_text = kind == ADDED and value["item"]["type"] in ("message", "reasoning")
    return kind in (ADDED, DONE) and not begins_text


# -- whole items ------------------------------------------------------------------------------------------------------


def begun(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an item as it is added: what is streamed is still empty."""
    kind = item.get("type")
    empty: dict[str, Any] = {}
    for one in KINDS:
        if one.item == kind and (one.list in item or one.part == "output_text"):
            empty[one.list] = list[Any]()
        elif one.item == kind and not one.list:
            empty[one.member] = ""
    if kind == "reasoning":
        empty["summary"] = list[Any]()
    return {**item, **({"status": "in_progress"} if "status" in item else {}), **empty}


def part_frames(item_id: str, place: int, kind: Kind, index: int, part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the frames of a whole part, or of the text of an item that has no parts."""
    head: dict[str, Any] = {"item_id": item_id, "output_index": place, **({kind.index_key: index} if kind.list else {})}
    text, logprobs = part.get(kind.member), {"logprobs": list[Any]()} if kind.part == "output_text" else {}
    spoken = isinstance(text, str) and text
    frames = [frame_value(kind.delta, **head, delta=text, **logprobs)] if spoken else []
    frames.append(frame_value(kind.done, **head, **{kind.member: text if spoken else ""}, **logprobs))
    if not kind.list:
        return frames
    name, notes = PARTS[kind.list], {"annotations": list[Any]()} if kind.part == "output_text" else {}
    opening = frame_value(f"{name}.added", **head, part={**part, kind.member: "", **notes})
    return [opening, *frames, frame_value(f"{name}.done", **head, part=part)]


def item_frames(item: Mapping[str, Any], place: int) -> list[dict[str, Any]]:
    """Return the frames of a whole item."""
    frames = [frame_value(ADDED, output_index=place, item=begun(item))]
    item_id, kind = item.get("id", ""), OF_PART.get(str(item.get("type")))
    if kind is not None and isinstance(item.get(kind.member), str):
        frames += part_frames(item_id, place, kind, 0, item)
    for parts in ("summary", "content"):
        for index, part in enumerate(as_list(item.get(parts))):
            kind = OF_PART.get(str(as_object(part).get("type")))
            if kind is not None and kind.item == item["type"] and kind.list == parts:
                frames += part_frames(item_id, place, kind, index, part)
    return [*frames, frame_value(DONE, output_index=place, item=item)]
