"""The parts of one chat completions frame, and the words of the protocol."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from ..core.json_text import as_list, as_object
from ..core.places import CallPiece, Part, Words
from .chunk import CALLS, CHOICES, function_of

__all__ = ["ChatPlaces"]

_WORDS: Final = Words(
    path="/chat/completions",
    conversation=MappingProxyType({"messages": "message"}),
    ids=frozenset({"id", "tool_call_id"}),
    id_prefixes=("chatcmpl-", "cmpl-", "gen-", "call_"),
    result_ids=("tool_call_id",),
    results=frozenset({"tool", "function"}),
    proofs=frozenset({"thought_signature"}),
    sealed_types=frozenset({"reasoning.encrypted"}),
    repeated=frozenset({"finish_reason", "native_finish_reason", "tool_call_id"}),
    reasons=frozenset({"finish_reason"}),
    reasoning=frozenset({"reasoning_content"}),
)


class ChatPlaces:
    """The parts of chunks."""

    words = _WORDS

    def known(self, value: Mapping[str, Any]) -> bool:
        return CHOICES in value

    def has(self, part: Part, value: Mapping[str, Any], payload: bytes) -> bool:
        match part:
            case "text":
                return any(as_object(choice.get("delta")).get("content") for choice in _choices(value))
            case "finish":
                return any(choice.get("finish_reason") for choice in _choices(value))
            case _:
                return payload.strip() == b"[DONE]"

    def calls(self, value: Mapping[str, Any]) -> Iterator[CallPiece]:
        for number, choice in enumerate(_choices(value)):
            for at, call in enumerate(map(as_object, as_list(as_object(choice.get("delta")).get(CALLS)))):
                inner, custom = function_of(call)
                said = as_object(inner)
                key = repr((choice.get("index"), call.get("index", at)))
                text = _str(said.get("input" if custom else "arguments"))
                yield CallPiece(key, _str(said.get("name")), text, number, at)

    def shortened(self, value: Mapping[str, Any], piece: CallPiece, length: int) -> dict[str, Any]:
        choices = list(value[CHOICES])
        choice = choices[piece.choice]
        calls = list(choice["delta"][CALLS][: piece.at + 1])
        inner, custom = function_of(calls[-1])
        cut = {**as_object(inner), "input" if custom else "arguments": piece.text[:length]}
        calls[-1] = {**calls[-1], "custom" if custom else "function": cut}
        choices[piece.choice :] = [{**choice, "delta": {**choice["delta"], CALLS: calls}, "finish_reason": None}]
        return {**value, CHOICES: choices}

    def without_finish(self, value: Mapping[str, Any]) -> dict[str, Any] | None:
        choices = _choices(value)
        has_more = any(any(as_object(choice.get("delta")).values()) for choice in choices)
        if not has_more and "usage" not in value:
            return None
        return {**value, CHOICES: [{**choice, "finish_reason": None} for choice in choices]}

    def error(self, message: str, number: int) -> tuple[str, dict[str, Any]]:
        del number
        error = {"message": message, "type": "server_error", "param": None, "code": "server_error"}
        return "", {"error": error}


def _choices(value: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [as_object(choice) for choice in as_list(value.get(CHOICES))]


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
