"""Places in a streamed answer: behind a frame, a byte, half a character, a text, or the first of a tool's arguments

frame:3       behind the third frame             text      behind the first frame with text (text:3 the third)
frame:3+10    ten bytes into the fourth          tool:X    behind the first character of the arguments of a call of X
byte:120      behind that many bytes             tool:X+9  behind the ninth; tool:* is a call of anything
char:2        inside the second character        finish    before the frame that says why it ends
              of several bytes                   done      before the frame that ends it
start, end    before all, behind all
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.json_text import ABSENT, as_list, as_object, dumps, parse
from wiretape.events.sse import Decoder

__all__ = ["PLACES", "Dialect", "Marked", "Marks", "Place", "PlaceError", "Point", "place_of"]

Dialect = Literal["chat", "responses", "messages", ""]

#: A character of several bytes: its first byte, which a cut behind it leaves alone.
_LEAD: Final = re.compile(rb"[\xc2-\xf4](?=[\x80-\xbf])")
_PLACE: Final = re.compile(r"([a-z]+)(?:_call)?(?::(.*?))?(?:\+(\d{1,9}))?")

#: By word: whether it takes a number (and which one without), a name, and how far behind it one may go.
PLACES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "start": "",
        "end": "",
        "finish": "",
        "done": "",
        "frame": "number",
        "byte": "number",
        "char": "number or 1",
        "text": "number or 1",
        "tool": "name",
    }
)


class PlaceError(ValueError):
    """What is no place; one line."""


class Place(NamedTuple):
    """As it was written, read."""

    word: str
    number: int = 0
    name: str = ""
    #: So many bytes, or characters of arguments, further.
    further: int = 0


def place_of(text: str) -> Place:
    """Raises PlaceError."""
    found = _PLACE.fullmatch(text)
    takes = PLACES.get(found[1]) if found is not None else None
    if found is None or takes is None:
        raise PlaceError(f"{text!r} is no place: {', '.join(PLACES)} (as in frame:3, byte:120, tool:write_file)")
    word, value, further = found[1], found[2], int(found[3] or 0)
    if further and word not in ("frame", "tool"):
        raise PlaceError(f"{text!r}: only frame and tool take +N")
    if not takes:
        if value is not None:
            raise PlaceError(f"{text!r}: {word} takes nothing behind it")
        return Place(word)
    if takes == "name":
        if not value:
            raise PlaceError(f"{text!r}: tool takes a name, as in tool:write_file, or tool:*")
        return Place(word, name=value, further=further or 1)
    if value is None and takes.endswith("1"):
        value = "1"
    if value is None or not re.fullmatch(r"\d{1,12}", value) or (takes.endswith("1") and int(value) == 0):
        raise PlaceError(f"{text!r}: {word} takes a number, as in {word}:3")
    return Place(word, int(value), further=further)


class Point(NamedTuple):
    """What is kept there: so many bytes, and then these, where a frame had to be shortened."""

    kept: int
    tail: bytes = b""


class Marked(NamedTuple):
    """One frame, and where it stands."""

    start: int
    end: int
    payload: bytes | None
    value: Any
    event: bytes

    def with_value(self, value: Any) -> bytes:
        """It with another value."""
        head = b"event: %b\n" % self.event if self.event else b""
        return b"%bdata: %b\n\n" % (head, dumps(value))


class Marks:
    """Of one body, whatever its dialect; of what is no event stream only bytes and characters are places."""

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.frames: Sequence[Marked] = list(_frames(body))
        self.dialect: Dialect = _dialect(self.frames)

    def point(self, place: Place) -> Point | None:
        """Where that is; None where this body has no such place."""
        frames, number = self.frames, place.number
        match place.word:
            case "start":
                return Point(0)
            case "end":
                return Point(len(self.body))
            case "byte":
                return Point(number) if number <= len(self.body) else None
            case "char":
                leads = [found.end() for found in _LEAD.finditer(self.body)]
                return Point(leads[number - 1]) if number <= len(leads) else None
            case "frame":
                if number > len(frames):
                    return None
                kept = frames[number - 1].end + place.further if number else place.further
                return Point(kept) if kept <= len(self.body) else None
            case "text":
                said = [frame for frame in frames if _text(self.dialect, frame.value)]
                return Point(said[number - 1].end) if number <= len(said) else None
            case "tool":
                return self._in_arguments(place)
            case _:
                found = self.finish if place.word == "finish" else self.done
                return Point(found.start) if found is not None else None

    @property
    def finish(self) -> Marked | None:
        """The frame that says why it ends."""
        return next((frame for frame in self.frames if _finishes(self.dialect, frame.value)), None)

    @property
    def done(self) -> Marked | None:
        """The frame that ends it."""
        return next((frame for frame in self.frames if _terminates(self.dialect, frame)), None)

    def frame(self, number: int) -> Marked | None:
        """The n-th, from 1."""
        return self.frames[number - 1] if 1 <= number <= len(self.frames) else None

    def _in_arguments(self, place: Place) -> Point | None:
        """Behind so many characters of one call's arguments: that frame is shortened, where it holds more."""
        names: dict[Any, str] = {}
        wanted: Any = ABSENT
        left = place.further
        for frame in self.frames:
            for piece in _pieces(self.dialect, frame.value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is ABSENT and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return Point(frame.start, frame.with_value(_shortened(self.dialect, frame.value, piece, left)))
                left -= len(piece.text)
        return None


def _frames(body: bytes) -> Iterator[Marked]:
    decoder = Decoder()
    start = 0
    for frame in [*decoder.feed(body), *decoder.close()]:
        end = start + len(frame.raw)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        yield Marked(start, end, frame.payload, value, frame.event)
        start = end


# -- what the three dialects say --------------------------------------------------------------------------------------


def _dialect(frames: Sequence[Marked]) -> Dialect:
    """By the first frame that only one of them has."""
    for frame in frames:
        said = as_object(frame.value)
        kind = said.get("type")
        if "choices" in said:
            return "chat"
        if isinstance(kind, str) and kind.startswith("response."):
            return "responses"
        if kind in ("message_start", "content_block_start", "content_block_delta"):
            return "messages"
    return ""


def _choices(value: Any) -> list[dict[str, Any]]:
    return [as_object(choice) for choice in as_list(as_object(value).get("choices"))]


def _text(dialect: Dialect, value: Any) -> bool:
    if dialect == "chat":
        return any(as_object(choice.get("delta")).get("content") for choice in _choices(value))
    said = as_object(value)
    if dialect == "messages":
        return bool(as_object(said.get("delta")).get("text"))
    return said.get("type") == "response.output_text.delta"


def _finishes(dialect: Dialect, value: Any) -> bool:
    if dialect == "chat":
        return any(choice.get("finish_reason") for choice in _choices(value))
    kind = as_object(value).get("type")
    if dialect == "messages":
        return kind == "message_delta"
    return kind in ("response.completed", "response.incomplete", "response.failed")


def _terminates(dialect: Dialect, frame: Marked) -> bool:
    if dialect == "messages":
        return as_object(frame.value).get("type") == "message_stop"
    if dialect == "responses":
        return _finishes(dialect, frame.value)
    return frame.payload is not None and frame.payload.strip() == b"[DONE]"


class _Piece(NamedTuple):
    """Of one call: what a frame adds to its name and to its arguments."""

    call: Any
    name: str
    text: str
    #: Its place among the calls of the frame.
    choice: int = 0
    at: int = 0


def _pieces(dialect: Dialect, value: Any) -> Iterator[_Piece]:
    said = as_object(value)
    kind, delta = said.get("type"), as_object(said.get("delta"))
    if dialect == "chat":
        for number, choice in enumerate(_choices(said)):
            for at, call in enumerate(map(as_object, as_list(as_object(choice.get("delta")).get("tool_calls")))):
                function = as_object(call.get("function"))
                key = (choice.get("index"), call.get("index", at))
                yield _Piece(key, _str(function.get("name")), _str(function.get("arguments")), number, at)
    elif dialect == "messages":
        if kind == "content_block_start":
            yield _Piece(said.get("index"), _str(as_object(said.get("content_block")).get("name")), "")
        elif delta.get("type") == "input_json_delta":
            yield _Piece(said.get("index"), "", _str(delta.get("partial_json")))
    elif kind == "response.output_item.added":
        yield _Piece(said.get("output_index"), _str(as_object(said.get("item")).get("name")), "")
    elif kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
        yield _Piece(said.get("output_index"), "", _str(said.get("delta")))


def _str(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _shortened(dialect: Dialect, value: Any, piece: _Piece, length: int) -> Any:
    """The frame's value with so many characters of this piece, and nothing of what stands behind it."""
    text = piece.text[:length]
    if dialect == "responses":
        return {**value, "delta": text}
    if dialect == "messages":
        return {**value, "delta": {**value["delta"], "partial_json": text}}
    choices = list(value["choices"])
    choice = choices[piece.choice]
    calls = list(choice["delta"]["tool_calls"][: piece.at + 1])
    calls[-1] = {**calls[-1], "function": {**calls[-1]["function"], "arguments": text}}
    choices[piece.choice :] = [{**choice, "delta": {**choice["delta"], "tool_calls": calls}, "finish_reason": None}]
    return {**value, "choices": choices}
