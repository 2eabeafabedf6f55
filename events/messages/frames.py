"""Messages frames: the kinds of frames, blocks and deltas that readers know, and how ours are built.

The tables hold what anthropic-python 2.10 knows, its beta types included: @ai-sdk/anthropic makes an error part of any
other type.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from ..core.json_text import as_object, dumps, is_object
from ..emission.frames import Out

__all__ = [
    "BLOCKS",
    "DELTAS",
    "INPUT_BLOCKS",
    "OPENED",
    "STOP_REASONS",
    "DeltaKind",
    "block_delta",
    "block_start",
    "block_stop",
    "error",
    "merged",
    "message_delta",
    "message_start",
    "ours",
]

_RESULT: Final[Mapping[str, Any]] = {"tool_use_id": ""}
#: Each type of block with the members that every reader needs, and what they are without content.
BLOCKS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "redacted_thinking": {"data": ""},
        "tool_use": {"name": "", "input": {}},  # its id must be its own
        "server_tool_use": {"id": "", "name": "", "input": {}},
        "mcp_tool_use": {"id": "", "name": "", "server_name": "", "input": {}},
        "compaction": {},
        "container_upload": {},
        "fallback": {},
        "mcp_tool_listing": {},
        "advisor_tool_result": _RESULT,
        "bash_code_execution_tool_result": _RESULT,
        "code_execution_tool_result": _RESULT,
        "mcp_tool_result": _RESULT,
        "text_editor_code_execution_tool_result": _RESULT,
        "tool_search_tool_result": _RESULT,
        "web_fetch_tool_result": _RESULT,
        "web_search_tool_result": _RESULT,
    }
)
#: Blocks whose input comes as JSON text; the upstream runs all but the first.
INPUT_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
#: Blocks whose content may come with their start, and the delta that it belongs in.
OPENED: Final[Mapping[str, str]] = MappingProxyType({"text": "text_delta", "thinking": "thinking_delta"})


class DeltaKind(NamedTuple):
    """A type of delta: the type of block that it belongs to (empty: any with input), and its member of text."""

    block: str
    member: str


DELTAS: Final[Mapping[str, DeltaKind]] = MappingProxyType(
    {
        "text_delta": DeltaKind("text", "text"),
        "thinking_delta": DeltaKind("thinking", "thinking"),
        "signature_delta": DeltaKind("thinking", "signature"),
        "input_json_delta": DeltaKind("", "partial_json"),
        "citations_delta": DeltaKind("text", ""),
        "compaction_delta": DeltaKind("compaction", ""),
    }
)

#: The finish of each stop reason in the words of all dialects; any other one is `stop`, with a flag.
STOP_REASONS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "pause_turn": "stop",
        "compaction": "stop",
        "tool_use": "tool_calls",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
    }
)


def ours(n: int, value: dict[str, Any], repair: str, came: bytes | None = None) -> Out:
    """Return a frame that we write, with the `event:` line that its type demands."""
    return Out(n, value, repair=repair, came=came, event=value["type"].encode())


def message_start(message_id: str, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 0, "output_tokens": 0}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    return {"type": "message_start", "message": message}


def block_start(block: Mapping[str, Any], index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def block_delta(kind: str, text: str, index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, DELTAS[kind].member: text}}


def block_stop(index: int = 0) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def message_delta(reason: str, usage: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the frame with the end of a message; SDKs demand a number of output tokens: 0 if none is known."""
    output = as_object(usage).get("output_tokens")
    counts = {"output_tokens": output if type(output) is int else 0}
    return {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": counts}


def merged(usage: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return cumulative counts: later ones replace earlier ones, but neither null nor a mere 0 says anything."""
    return {**usage, **{key: count for key, count in more.items() if count or (key not in usage and count is not None)}}


def error(given: Any) -> dict[str, Any]:
    """Return an error event of what an upstream wrote of its failure, in any shape; other members stay."""
    frame: dict[str, Any] = {}
    if is_object(given) and given.get("error"):
        frame, given = given, given["error"]
    details = given if is_object(given) else {"message": given if isinstance(given, str) else dumps(given).decode()}
    kind, message = details.get("type"), details.get("message")
    kind = kind if isinstance(kind, str) and kind not in ("", "error") else "api_error"
    message = message if isinstance(message, str) else dumps(details).decode()
    return {**frame, "type": "error", "error": {**details, "type": kind, "message": message}}
