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
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.wire.sse import Decoder

from .dialect_words import Dialect, dialect_of, finishes, pieces, says_text, shortened, terminates

__all__ = ["PLACES", "Marked", "Marks", "Place", "PlaceError", "Point", "place_of"]

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
        self.dialect: Dialect = dialect_of(frame.value for frame in self.frames)

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
                said = [frame for frame in frames if says_text(self.dialect, frame.value)]
                return Point(said[number - 1].end) if number <= len(said) else None
            case "tool":
                return self._in_arguments(place)
            case _:
                found = self.finish if place.word == "finish" else self.done
                return Point(found.start) if found is not None else None

    def whole(self, kept: int) -> int:
        """So many of these bytes are whole frames: behind a half line nobody could read another frame."""
        return max((frame.end for frame in self.frames if frame.end <= kept), default=0)

    @property
    def finish(self) -> Marked | None:
        """The frame that says why it ends."""
        return next((frame for frame in self.frames if finishes(self.dialect, frame.value)), None)

    @property
    def done(self) -> Marked | None:
        """The frame that ends it."""
        return next((each for each in self.frames if terminates(self.dialect, each.value, each.payload)), None)

    def frame(self, number: int) -> Marked | None:
        """The n-th, from 1."""
        return self.frames[number - 1] if 1 <= number <= len(self.frames) else None

    def _in_arguments(self, place: Place) -> Point | None:
        """Behind so many characters of one call's arguments: that frame is shortened, where it holds more."""
        names: dict[Any, str] = {}
        wanted: Any = ABSENT
        left = place.further
        for frame in self.frames:
            for piece in pieces(self.dialect, frame.value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is ABSENT and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return Point(frame.start, frame.with_value(shortened(self.dialect, frame.value, piece, left)))
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
