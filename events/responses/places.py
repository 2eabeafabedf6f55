"""The parts of one Responses event, and the words of the protocol."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import as_object
from ..core.places import CallPiece, Part, Words

__all__ = ["ResponsesPlaces"]

_ENDS: Final = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")
_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")

_WORDS: Final = Words(
    path="/responses",
    conversation=MappingProxyType({"input": "item"}),
    surroundings=frozenset({"instructions"}),
    stored=frozenset({"previous_response_id", "item_reference"}),
    ids=frozenset({"call_id", "id", "item_id", "previous_response_id"}),
    id_prefixes=(
        *("resp_", "msg_", "rs_", "fc_", "ctc_", "call_", "ws_", "fs_", "ci_", "cu_", "ig_", "lsh_"),
        *("mcp_", "mcpl_", "mcpr_"),
    ),
    result_ids=("call_id",),
    proofs=frozenset({"encrypted_content"}),
    indexes=frozenset({"content_index", "output_index", "summary_index"}),
    repeated=frozenset({"call_id", "created_at", "item_id", "response_id"}),
    continued=MappingProxyType(
        {
            (b'"response.content_part"', ("part", "text")): (b'"response.output_text"', ("delta",)),
            (b'"response.content_part"', ("part", "refusal")): (b'"response.refusal"', ("delta",)),
            (b'"response.reasoning_summary_part"', ("part", "text")): (
                b'"response.reasoning_summary_text"',
                ("delta",),
            ),
            (b'"response.output_item"', ("item", "arguments")): (b'"response.function_call_arguments"', ("delta",)),
            (b'"response.output_item"', ("item", "input")): (b'"response.custom_tool_call_input"', ("delta",)),
        }
    ),
)


class ResponsesPlaces:
    """The parts of Responses events."""

    words = _WORDS

    def known(self, value: Mapping[str, Any]) -> bool:
        kind = value.get("type")
        named = isinstance(kind, str) and (kind.startswith("response.") or kind in ("error", "keepalive"))
        return named or value.get("object") == "response"

    def has(self, part: Part, value: Mapping[str, Any], payload: bytes) -> bool:
        del payload
        kind = value.get("type")
        return kind == "response.output_text.delta" if part == "text" else kind in _ENDS

    def calls(self, value: Mapping[str, Any]) -> Iterator[CallPiece]:
        kind, key, delta = value.get("type"), repr(value.get("output_index")), value.get("delta")
        if kind == "response.output_item.added":
            name = as_object(value.get("item")).get("name")
            yield CallPiece(key, name if isinstance(name, str) else "", "")
        elif kind in _ARGUMENTS and isinstance(delta, str):
            yield CallPiece(key, "", delta)

    def shortened(self, value: Mapping[str, Any], piece: CallPiece, length: int) -> dict[str, Any]:
        return {**value, "delta": piece.text[:length]}

    def without_finish(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        del value
        return None

    def error(self, message: str, number: int) -> tuple[str, dict[str, Any]]:
        said = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": number}
        return "error", said
