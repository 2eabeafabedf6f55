"""The parts of one Responses event, and the words of the protocol."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..core.json_text import as_object
from ..core.places import CallPiece, Part, Places, Words
from .frames import ADDED, ENDS, OF_ITEM

__all__ = ["ResponsesPlaces"]

_ENDS: Final = (*ENDS, "response.done")


class ResponsesPlaces(Places):
    """The parts of Responses events."""

    words = Words(
        path="/responses",
        conversation={"input": "item"},
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
        continued={
            (b'"response.%b"' % begun, path): (b'"response.%b"' % text, ("delta",))
            for begun, path, text in (
                (b"content_part", ("part", "text"), b"output_text"),
                (b"content_part", ("part", "refusal"), b"refusal"),
                (b"reasoning_summary_part", ("part", "text"), b"reasoning_summary_text"),
                (b"output_item", ("item", "arguments"), b"function_call_arguments"),
                (b"output_item", ("item", "input"), b"custom_tool_call_input"),
            )
        },
    )

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
        if kind == ADDED:
            name = as_object(value.get("item")).get("name")
            yield CallPiece(key, name if isinstance(name, str) else "", "")
        elif kind in (OF_ITEM["function_call"].delta, OF_ITEM["custom_tool_call"].delta) and isinstance(delta, str):
            yield CallPiece(key, "", delta)

    def shortened(self, value: Mapping[str, Any], piece: CallPiece, length: int) -> dict[str, Any]:
        return {**value, "delta": piece.text[:length]}

    def error(self, message: str, number: int) -> tuple[str, dict[str, Any]]:
        said = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": number}
        return "error", said
