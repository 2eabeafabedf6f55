"""The places in a response of any dialect: frames, bytes, text, arguments of calls, and its end."""

import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.chat.chunk import function_of
from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.wire.sse import Decoder

__all__ = ["PLACES", "FaultError", "Place", "Places", "error_frame", "place_of", "without_finish"]

#: By word: what may follow it. A `char` or a `text` without a number is the first one.
PLACES: Final[Mapping[str, str]] = MappingProxyType(
    dict.fromkeys(("start", "end", "finish", "done"), "")
    | dict.fromkeys(("frame", "byte"), r":\d{1,12}")
    | dict.fromkeys(("char", "text"), r"(?::[1-9]\d{0,11})?")
    | {"tool": ":.+"}
)
_PLACE: Final = re.compile(r"([a-z]+)(?:_call)?(:.*?)?(?:\+(\d{1,9}))?")
#: The first byte of a character of several bytes.
_LEAD: Final = re.compile(rb"[\xc2-\xf4](?=[\x80-\xbf])")
#: Tuples, because a type may be any JSON, also an unhashable list.
_MESSAGES_TYPES: Final = ("message_start", "content_block_start", "content_block_delta")
_RESPONSES_ENDS: Final = ("response.completed", "response.incomplete", "response.failed")
_RESPONSES_ARGUMENTS: Final = ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta")


class FaultError(WiretapeError):
    """A fault that cannot be parsed."""


class Place(NamedTuple):
    """A parsed place."""

    word: str
    number: int = 0
    name: str = ""
    #: Bytes, or characters of arguments, further on.
    further: int = 0


def place_of(text: str) -> Place:
    """Parse a place; raise FaultError."""
    found = _PLACE.fullmatch(text)
    word, value, further = found.groups("") if found is not None else ("", "", "")
    if word not in PLACES or not re.fullmatch(PLACES[word], value) or (further and word not in ("frame", "tool")):
        forms = "start, end, finish, done, frame:3, frame:3+10, byte:120, char, text:2, tool:write_file, tool:*+5"
        raise FaultError(f"{text!r} is not a place, as in {forms}")
    if word == "tool":
        return Place(word, name=value[1:], further=int(further or 0) or 1)
    return Place(word, int(value[1:] or 1), further=int(further or 0))


# -- places -----------------------------------------------------------------------------------------------------------


class _Frame(NamedTuple):
    """One frame and its position in the body."""

    start: int
    end: int
    payload: bytes | None
    value: Any
    event: bytes

    def with_value(self, value: Any) -> bytes:
        """Return the frame with another value."""
        head = b"event: %b\n" % self.event if self.event else b""
        return b"%bdata: %b\n\n" % (head, dumps(value))


class Places:
    """The places of one body in any dialect. What is not an event stream has only bytes and characters."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.frames: list[_Frame] = []
        start, decoder = 0, Decoder()
        for frame in [*decoder.feed(body), *decoder.close()]:
            end = start + len(frame.raw)
            value = ABSENT if frame.payload is None else parse(frame.payload)
            self.frames.append(_Frame(start, end, frame.payload, value, frame.event))
            start = end
        #: `chat`, `responses`, `messages`, or nothing.
        self.dialect = _dialect_of(frame.value for frame in self.frames)

    def point(self, place: Place) -> tuple[int, bytes] | None:
        """Return how many bytes precede a place, and the shortened frame that follows them; None if it is absent."""
        number, ends = place.number, [0, *(frame.end for frame in self.frames)]
        found: int | None = None
        match place.word:
            case "start":
                found = 0
            case "end":
                found = len(self.body)
            case "byte":
                found = number
            case "char":
                leads = [lead.end() for lead in _LEAD.finditer(self.body)]
                found = leads[number - 1] if number <= len(leads) else None
            case "frame":
                found = ends[number] + place.further if number < len(ends) else None
            case "text":
                texts = [frame.end for frame in self.frames if self._has(frame, "text")]
                found = texts[number - 1] if number <= len(texts) else None
            case "tool":
                return self._in_arguments(place)
            case _:
                frame = self.first(place.word)
                found = frame.start if frame is not None else None
        return None if found is None or found > len(self.body) else (found, b"")

    def frame(self, place: Place) -> _Frame | None:
        """Return the frame that a place names."""
        if place.word != "frame":
            return self.first(place.word)
        return self.frames[place.number - 1] if 1 <= place.number <= len(self.frames) else None

    def first(self, word: str) -> _Frame | None:
        """Return the first frame with the usage or the finish reason, or that ends the protocol."""
        return next((frame for frame in self.frames if self._has(frame, word)), None)

    def _has(self, frame: _Frame, word: str) -> bool:
        value, choices = as_object(frame.value), _choices(frame.value)
        kind = value.get("type")
        match word, self.dialect:
            case "usage", _:
                return bool(value.get("usage"))
            case "text", "chat":
                return any(as_object(choice.get("delta")).get("content") for choice in choices)
            case "text", "messages":
                return bool(as_object(value.get("delta")).get("text"))
            case "text", _:
                return kind == "response.output_text.delta"
            case "finish", "chat":
                return any(choice.get("finish_reason") for choice in choices)
            case "finish" | "done", "responses":
                return kind in _RESPONSES_ENDS
            case "finish" | "done", "messages":
                return kind == ("message_delta" if word == "finish" else "message_stop")
            case _:
                return word == "done" and frame.payload is not None and frame.payload.strip() == b"[DONE]"

    def _in_arguments(self, place: Place) -> tuple[int, bytes] | None:
        """Return the place after so many characters of one call's arguments."""
        names: dict[Any, str] = {}
        wanted: Any = ABSENT
        left = place.further
        for frame in self.frames:
            for piece in _call_pieces(self.dialect, frame.value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is ABSENT and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return frame.start, frame.with_value(_shortened(self.dialect, frame.value, piece, left))
                left -= len(piece.text)
        return None


# -- dialects ---------------------------------------------------------------------------------------------------------


class _CallPiece(NamedTuple):
    """What a frame adds to the name and the arguments of one call."""

    #: The call's index, which may be any JSON.
    call: str
    name: str
    text: str
    #: Its position in the frame.
    choice: int = 0
    at: int = 0


def _dialect_of(values: Iterable[Any]) -> str:
    """Return the dialect of the first frame that only one of them has."""
    for value in map(as_object, values):
        kind = value.get("type")
        if "choices" in value:
            return "chat"
        if isinstance(kind, str) and kind.startswith("response."):
            return "responses"
        if kind in _MESSAGES_TYPES:
            return "messages"
    return ""


def _call_pieces(dialect: str, value: Any) -> Iterator[_CallPiece]:
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


def _shortened(dialect: str, value: Any, piece: _CallPiece, length: int) -> Any:
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


def without_finish(dialect: str, value: Any) -> Any:
    """Return a frame without its finish reason; None if nothing else is left."""
    choices = _choices(value)
    has_more = any(any(as_object(choice.get("delta")).values()) for choice in choices)
    if dialect != "chat" or (not has_more and "usage" not in value):
        return None
    return {**value, "choices": [{**choice, "finish_reason": None} for choice in choices]}


def error_frame(dialect: str, message: str, number: int) -> bytes:
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
