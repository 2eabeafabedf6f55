"""The words of each dialect that recordings need: text, pieces of calls, finish, end, and an error frame."""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.chat.chunk import function_of
from wiretape.events.core.json_text import as_list, as_object, dumps

__all__ = [
    "CHAT_MEMBER",
    "Dialect",
    "call_pieces",
    "dialect_of",
    "error_frame",
    "finishes",
    "has_text",
    "shortened",
    "terminates",
    "without_finish",
]

Dialect = Literal["chat", "responses", "messages", ""]

#: The member of chat chunks and completions that no other dialect has.
CHAT_MEMBER: Final = "choices"
#: Tuples, because a type may be any JSON, also an unhashable list.
_MESSAGES_TYPES: Final = ("message_start", "content_block_start", "content_block_delta")
_RESPONSES_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_RESPONSES_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")


class _CallPiece(NamedTuple):
    """What a frame adds to the name and the arguments of one call."""

    #: The call's index, which may be any JSON.
    call: str
    name: str
    text: str
    #: Its position in the frame.
    choice: int = 0
    at: int = 0


def dialect_of(values: Iterable[Any]) -> Dialect:
    """Return the dialect of the first frame that only one of them has."""
    for value in map(as_object, values):
        kind = value.get("type")
        if CHAT_MEMBER in value:
            return "chat"
        if isinstance(kind, str) and kind.startswith("response."):
            return "responses"
        if kind in _MESSAGES_TYPES:
            return "messages"
    return ""


def has_text(dialect: Dialect, value: Any) -> bool:
    """Return whether a frame has a piece of the text."""
    if dialect == "chat":
        return any(as_object(choice.get("delta")).get("content") for choice in _choices(value))
    if dialect == "messages":
        return bool(as_object(as_object(value).get("delta")).get("text"))
    return as_object(value).get("type") == "response.output_text.delta"


def finishes(dialect: Dialect, value: Any) -> bool:
    """Return whether a frame has the finish reason."""
    if dialect == "chat":
        return any(choice.get("finish_reason") for choice in _choices(value))
    kind = as_object(value).get("type")
    return kind == "message_delta" if dialect == "messages" else kind in _RESPONSES_ENDS


def terminates(dialect: Dialect, value: Any, payload: bytes | None) -> bool:
    """Return whether a frame is the last one of its protocol."""
    if dialect == "messages":
        return as_object(value).get("type") == "message_stop"
    if dialect == "responses":
        return finishes(dialect, value)
    return payload is not None and payload.strip() == b"[DONE]"


def call_pieces(dialect: Dialect, value: Any) -> Iterator[_CallPiece]:
    """Yield the pieces of calls in a frame."""
    frame = as_object(value)
    if dialect == "chat":
        for number, choice in enumerate(_choices(frame)):
            for at, call in enumerate(map(as_object, as_list(as_object(choice.get("delta")).get("tool_calls")))):
                inner, custom = function_of(call)
                said = as_object(inner)
                key = repr((choice.get("index"), call.get("index", at)))
                text = _str(said.get("input" if custom else "arguments"))
                yield _CallPiece(key, _str(said.get("name")), text, number, at)
        return
    kind, delta = frame.get("type"), as_object(frame.get("delta"))
    key = repr(frame.get("index" if dialect == "messages" else "output_index"))
    if kind in ("content_block_start", "response.output_item.added"):
        begun = as_object(frame.get("content_block" if dialect == "messages" else "item"))
        yield _CallPiece(key, _str(begun.get("name")), "")
    elif delta.get("type") == "input_json_delta":
        yield _CallPiece(key, "", _str(delta.get("partial_json")))
    elif kind in _RESPONSES_ARGUMENTS:
        yield _CallPiece(key, "", _str(frame.get("delta")))


def shortened(dialect: Dialect, value: Any, piece: _CallPiece, length: int) -> Any:
    """Return a frame with so many characters of a piece and nothing after it."""
    text = piece.text[:length]
    if dialect == "responses":
        return {**value, "delta": text}
    if dialect == "messages":
        return {**value, "delta": {**value["delta"], "partial_json": text}}
    choices = list(value["choices"])
    choice = choices[piece.choice]
    calls = list(choice["delta"]["tool_calls"][: piece.at + 1])
    inner, custom = function_of(calls[-1])
    cut = {**as_object(inner), "input" if custom else "arguments": text}
    calls[-1] = {**calls[-1], "custom" if custom else "function": cut}
    choices[piece.choice :] = [{**choice, "delta": {**choice["delta"], "tool_calls": calls}, "finish_reason": None}]
    return {**value, "choices": choices}


def without_finish(dialect: Dialect, value: Any) -> Any:
    """Return a frame without its finish reason; None if nothing else is left."""
    choices = _choices(value)
    has_more = any(any(as_object(choice.get("delta")).values()) for choice in choices)
    if dialect != "chat" or (not has_more and "usage" not in value):
        return None
    return {**value, "choices": [{**choice, "finish_reason": None} for choice in choices]}


def error_frame(dialect: Dialect, message: str, number: int) -> bytes:
    """Return an error as each provider sends one inside a stream."""
    if dialect == "messages":
        value: dict[str, Any] = {"type": "error", "error": {"type": "overloaded_error", "message": message}}
    elif dialect == "responses":
        value = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": number}
    else:
        error = {"message": message, "type": "server_error", "param": None, "code": "server_error"}
        return b"data: %b\n\n" % dumps({"error": error})
    return b"event: error\ndata: %b\n\n" % dumps(value)


def _choices(value: Any) -> list[dict[str, Any]]:
    return [as_object(choice) for choice in as_list(as_object(value).get("choices"))]


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
