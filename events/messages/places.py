"""The parts of one Messages event, and the words of the protocol."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..core.json_text import as_object
from ..core.places import CallPiece, Part, Places, Words

__all__ = ["MessagesPlaces"]

_BLOCK: Final = b'"content_block"'


class MessagesPlaces(Places):
    """The parts of Messages events."""

    words = Words(
        path="/messages",
        conversation={"messages": "message"},
        surroundings=frozenset({"system"}),
        ids=frozenset({"id", "tool_use_id"}),
        id_prefixes=("msg_", "toolu_", "srvtoolu_"),
        result_ids=("tool_use_id",),
        results=frozenset({"tool_result"}),
        proofs=frozenset({"signature"}),
        sealed_types=frozenset({"redacted_thinking"}),
        repeated=frozenset({"stop_reason"}),
        reasons=frozenset({"stop_reason"}),
        continued={
            (_BLOCK, ("content_block", "text")): (_BLOCK, ("delta", "text")),
            (_BLOCK, ("content_block", "thinking")): (_BLOCK, ("delta", "thinking")),
            (_BLOCK, ("content_block", "input")): (_BLOCK, ("delta", "partial_json")),
        },
    )

    def known(self, value: Mapping[str, Any]) -> bool:
        kind = value.get("type")
        return isinstance(kind, str) and kind.startswith(("message", "content_block", "ping", "error"))

    def has(self, part: Part, value: Mapping[str, Any], payload: bytes) -> bool:  # noqa: ARG002 - a type says it
        if part == "text":
            return bool(as_object(value.get("delta")).get("text"))
        return value.get("type") == ("message_delta" if part == "finish" else "message_stop")

    def calls(self, value: Mapping[str, Any]) -> Iterator[CallPiece]:
        key, delta = repr(value.get("index")), as_object(value.get("delta"))
        text = delta.get("partial_json")
        if value.get("type") == "content_block_start":
            name = as_object(value.get("content_block")).get("name")
            yield CallPiece(key, name if isinstance(name, str) else "", "")
        elif delta.get("type") == "input_json_delta" and isinstance(text, str):
            yield CallPiece(key, "", text)

    def shortened(self, value: Mapping[str, Any], piece: CallPiece, length: int) -> dict[str, Any]:
        return {**value, "delta": {**value["delta"], "partial_json": piece.text[:length]}}

    def error(self, message: str, number: int) -> tuple[str, dict[str, Any]]:  # noqa: ARG002 - no number
        return "error", {"type": "error", "error": {"type": "overloaded_error", "message": message}}
