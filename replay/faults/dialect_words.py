"""What stands where in a frame of each dialect: text, pieces of calls, the finish, the end; and a frame cut short

The one file of this room that speaks the wire's own words: a recording is cut, and made to fail, in the words of its
dialect, whether or not that dialect is understood wholly.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.chat.entry import said_in
from wiretape.events.core.json_text import as_list, as_object, dumps

__all__ = [
    "Dialect",
    "Piece",
    "dialect_of",
    "error_frame",
    "finishes",
    "pieces",
    "says_text",
    "shortened",
    "terminates",
    "without_finish",
]

Dialect = Literal["chat", "responses", "messages", ""]

#: Tuples, since a type may be any JSON, and a list is in no set.
_BEGINNINGS: Final = ("message_start", "content_block_start", "content_block_delta")
_ENDINGS: Final = ("response.completed", "response.incomplete", "response.failed")
_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")


class Piece(NamedTuple):
    """Of one call: what a frame adds to its name and to its arguments."""

    call: Any
    name: str
    text: str
    #: Its place among the calls of the frame.
    choice: int = 0
    at: int = 0


def dialect_of(values: Iterable[Any]) -> Dialect:
    """By the first frame that only one of them has."""
    for value in values:
        said = as_object(value)
        kind = said.get("type")
        if "choices" in said:
            return "chat"
        if isinstance(kind, str) and kind.startswith("response."):
            return "responses"
        if kind in _BEGINNINGS:
            return "messages"
    return ""


def says_text(dialect: Dialect, value: Any) -> bool:
    """A piece of the answer's text."""
    if dialect == "chat":
        return any(as_object(choice.get("delta")).get("content") for choice in _choices(value))
    said = as_object(value)
    if dialect == "messages":
        return bool(as_object(said.get("delta")).get("text"))
    return said.get("type") == "response.output_text.delta"


def finishes(dialect: Dialect, value: Any) -> bool:
    """Says why the answer ends."""
    if dialect == "chat":
        return any(choice.get("finish_reason") for choice in _choices(value))
    kind = as_object(value).get("type")
    return kind == "message_delta" if dialect == "messages" else kind in _ENDINGS


def terminates(dialect: Dialect, value: Any, payload: bytes | None) -> bool:
    """Is the protocol's own last word."""
    if dialect == "messages":
        return as_object(value).get("type") == "message_stop"
    if dialect == "responses":
        return finishes(dialect, value)
    return payload is not None and payload.strip() == b"[DONE]"


def pieces(dialect: Dialect, value: Any) -> Iterator[Piece]:
    """Of every call that the frame speaks of."""
    said = as_object(value)
    kind, delta = said.get("type"), as_object(said.get("delta"))
    if dialect == "chat":
        for number, choice in enumerate(_choices(said)):
            for at, call in enumerate(map(as_object, as_list(as_object(choice.get("delta")).get("tool_calls")))):
                inner, custom = said_in(call)
                inner = as_object(inner)
                key = (_index(choice.get("index")), _index(call.get("index", at)))
                text = _str(inner.get("input" if custom else "arguments"))
                yield Piece(key, _str(inner.get("name")), text, number, at)
    elif dialect == "messages":
        if kind == "content_block_start":
            yield Piece(_index(said.get("index")), _str(as_object(said.get("content_block")).get("name")), "")
        elif delta.get("type") == "input_json_delta":
            yield Piece(_index(said.get("index")), "", _str(delta.get("partial_json")))
    elif kind == "response.output_item.added":
        yield Piece(_index(said.get("output_index")), _str(as_object(said.get("item")).get("name")), "")
    elif kind in _ARGUMENTS:
        yield Piece(_index(said.get("output_index")), "", _str(said.get("delta")))


def _index(value: Any) -> int | str | None:
    """Which call or choice, where an upstream says it in a way that can be one."""
    return value if isinstance(value, int | str) else None


def shortened(dialect: Dialect, value: Any, piece: Piece, length: int) -> Any:
    """The frame's value with so many characters of this piece, and nothing of what stands behind it."""
    text = piece.text[:length]
    if dialect == "responses":
        return {**value, "delta": text}
    if dialect == "messages":
        return {**value, "delta": {**value["delta"], "partial_json": text}}
    choices = list(value["choices"])
    choice = choices[piece.choice]
    calls = list(choice["delta"]["tool_calls"][: piece.at + 1])
    inner, custom = said_in(calls[-1])
    said = {**as_object(inner), "input" if custom else "arguments": text}
    calls[-1] = {**calls[-1], "custom" if custom else "function": said}
    choices[piece.choice :] = [{**choice, "delta": {**choice["delta"], "tool_calls": calls}, "finish_reason": None}]
    return {**value, "choices": choices}


def without_finish(dialect: Dialect, value: Any) -> Any:
    """The frame's value without saying why it ends; None where it said only that."""
    choices = _choices(value)
    says_more = any(any(as_object(choice.get("delta")).values()) for choice in choices)
    if dialect != "chat" or (not says_more and "usage" not in value):
        return None
    return {**value, "choices": [{**choice, "finish_reason": None} for choice in choices]}


def error_frame(dialect: Dialect, message: str, number: int) -> bytes:
    """As each provider writes one into a stream that has begun."""
    if dialect == "messages":
        value = {"type": "error", "error": {"type": "overloaded_error", "message": message}}
        return b"event: error\ndata: %b\n\n" % dumps(value)
    if dialect == "responses":
        failed = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": number}
        return b"event: error\ndata: %b\n\n" % dumps(failed)
    error = {"message": message, "type": "server_error", "param": None, "code": "server_error"}
    return b"data: %b\n\n" % dumps({"error": error})


def _choices(value: Any) -> list[dict[str, Any]]:
    return [as_object(choice) for choice in as_list(as_object(value).get("choices"))]


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""
