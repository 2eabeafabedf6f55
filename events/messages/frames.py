"""Messages frames: the kinds of frames, blocks and deltas that readers know, and how ours are built.

The tables hold what anthropic-python 2.10 knows, its beta types included: @ai-sdk/anthropic makes an error part of any
other type.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from ..emission.frames import Out

__all__ = ["BLOCKS", "DELTAS", "ERRORS", "INPUT_BLOCKS", "block_delta", "block_frame", "message_start", "ours"]

#: Tools that the upstream runs, by the word that begins the type of their result.
_HOSTED: Final = (
    *("advisor", "bash_code_execution", "code_execution", "mcp", "text_editor_code_execution"),
    *("tool_search", "web_fetch", "web_search"),
)
#: Each type of block with the members that every reader needs, and what they are without content.
BLOCKS: Final[Mapping[str, Mapping[str, Any]]] = {
    "text": {"text": ""},
    "thinking": {"thinking": "", "signature": ""},
    "redacted_thinking": {"data": ""},
    "tool_use": {"name": ""},  # its id must be its own
    "server_tool_use": {"id": "", "name": ""},
    "mcp_tool_use": {"id": "", "name": "", "server_name": ""},
    **{kind: {} for kind in ("compaction", "container_upload", "fallback", "mcp_tool_listing")},
    **{f"{tool}_tool_result": {"tool_use_id": ""} for tool in _HOSTED},
}
#: Blocks whose input comes as JSON text; the upstream runs all but the first.
INPUT_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


class _DeltaKind(NamedTuple):
    """A type of delta: the type of block that it belongs to (empty: any with input), and its member of text."""

    block: str
    member: str


DELTAS: Final[Mapping[str, _DeltaKind]] = {
    "text_delta": _DeltaKind("text", "text"),
    "thinking_delta": _DeltaKind("thinking", "thinking"),
    "signature_delta": _DeltaKind("thinking", "signature"),
    "input_json_delta": _DeltaKind("", "partial_json"),
    "citations_delta": _DeltaKind("text", ""),
    "compaction_delta": _DeltaKind("compaction", ""),
}

#: Anthropic's word for each status of an HTTP error.
ERRORS: Final[Mapping[int, str]] = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def ours(n: int, value: dict[str, Any], repair: str, came: bytes | None = None) -> Out:
    """Return a frame that we write, with the `event:` line that its type demands."""
    return Out(n, value, repair=repair, came=came, event=value["type"].encode())


def message_start(message_id: str, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"id": message_id, "type": "message", "role": "assistant", "model": model, "content": []}
    usage = {"input_tokens": 0, "output_tokens": 0}
    message |= {"stop_reason": None, "stop_sequence": None, "usage": usage}
    return {"type": "message_start", "message": message}


def block_frame(what: str, index: int = 0, **members: Any) -> dict[str, Any]:
    """Return the payload of a `start`, a `delta` or a `stop`; the writer numbers it."""
    return {"type": f"content_block_{what}", "index": index, **members}


def block_delta(kind: str, text: str, index: int = 0) -> dict[str, Any]:
    return block_frame("delta", index, delta={"type": kind, DELTAS[kind].member: text})
