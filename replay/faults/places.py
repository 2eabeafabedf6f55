"""The places in a response of any dialect: frames, bytes, text, arguments of calls, and its end."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core import places as dialects
from wiretape.events.core.errors import WiretapeError
from wiretape.events.core.json_text import ABSENT, as_object, dumps, parse
from wiretape.events.dialects import PLACES as DIALECTS
from wiretape.events.wire.sse import Decoder

__all__ = ["PLACES", "FaultError", "Place", "Places", "place_of"]

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
        return _frame(self.event, value)


def _frame(event: bytes, value: Any) -> bytes:
    return b"%bdata: %b\n\n" % (b"event: %b\n" % event if event else b"", dumps(value))


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
        #: Those of its dialect; None if it has none that is known.
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
        value = as_object(frame.value)
        match word:
            case "usage":
                return bool(value.get("usage"))
            case "text" | "finish" | "done" if self.dialect is not None:
                return frame.payload is not None and self.dialect.has(word, value, frame.payload)
            case _:
                return False

    def without(self, frame: _Frame, word: str) -> bytes:
        """Return what is left of a frame without the part that a place names, if it has others."""
        if word != "finish" or self.dialect is None:
            return b""
        left = self.dialect.without_finish(as_object(frame.value))
        return b"" if left is None else frame.with_value(left)

    def error(self, message: str) -> bytes | None:
        """Return an error as each provider sends one inside a stream; None if the dialect is unknown."""
        if self.dialect is None:
            return None
        event, value = self.dialect.error(message, len(self.frames))
        return _frame(event.encode(), value)

    def _in_arguments(self, place: Place) -> tuple[int, bytes] | None:
        """Return the place after so many characters of one call's arguments."""
        names: dict[str, str] = {}
        wanted: str | None = None
        left = place.further
        if self.dialect is None:
            return None
        for frame in self.frames:
            value = as_object(frame.value)
            for piece in self.dialect.calls(value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is None and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return frame.start, frame.with_value(self.dialect.shortened(value, piece, left))
                left -= len(piece.text)
        return None


def _dialect_of(values: Iterable[Any]) -> dialects.Places | None:
    """Return the dialect of the first frame that only one of them has: two send `error`."""
    for value in map(as_object, values):
        found = [each for each in DIALECTS.values() if each.known(value)]
        if len(found) == 1:
            return found[0]
    return None
