"""Places in a streamed response, at which a fault happens; docs/replay.md lists them."""

import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_object, dumps, parse
from wiretape.events.wire.sse import Decoder

from ..normalize.dialect_words import Dialect, call_pieces, dialect_of, finishes, has_text, shortened, terminates

__all__ = ["PLACES", "Place", "PlaceError", "PlacedFrame", "Places", "Point", "place_of"]

#: The first byte of a character of several bytes.
_LEAD: Final = re.compile(rb"[\xc2-\xf4](?=[\x80-\xbf])")
_PLACE: Final = re.compile(r"([a-z]+)(?:_call)?(?::(.*?))?(?:\+(\d{1,9}))?")

#: What follows the colon of each word.
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
    """A place that cannot be parsed."""


class Place(NamedTuple):
    """A parsed place."""

    word: str
    number: int = 0
    name: str = ""
    #: Bytes, or characters of arguments, further on.
    further: int = 0


def place_of(text: str) -> Place:
    """Parse a place; raise PlaceError."""
    found = _PLACE.fullmatch(text)
    takes = PLACES.get(found[1]) if found is not None else None
    if found is None or takes is None:
        raise PlaceError(f"{text!r} is not a place: {', '.join(PLACES)} (as in frame:3, byte:120, tool:write_file)")
    word, value, further = found[1], found[2], int(found[3] or 0)
    if further and word not in ("frame", "tool"):
        raise PlaceError(f"{text!r}: only frame and tool take +N")
    if not takes:
        if value is not None:
            raise PlaceError(f"{text!r}: {word} takes no value")
        return Place(word)
    if takes == "name":
        if not value:
            raise PlaceError(f"{text!r}: tool takes a name, as in tool:write_file, or tool:*")
        return Place(word, name=value, further=further or 1)
    from_1 = takes == "number or 1"
    value = "1" if value is None and from_1 else value
    if value is None or not re.fullmatch(r"\d{1,12}", value) or (from_1 and int(value) == 0):
        raise PlaceError(f"{text!r}: {word} takes a number, as in {word}:3")
    return Place(word, int(value), further=further)


class Point(NamedTuple):
    """A place in one body: how many bytes precede it, and the shortened frame that follows them."""

    kept: int
    tail: bytes = b""


class PlacedFrame(NamedTuple):
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
        self.frames: Sequence[PlacedFrame] = list(_frames(body))
        self.dialect: Dialect = dialect_of(frame.value for frame in self.frames)

    def point(self, place: Place) -> Point | None:
        """Return a place in this body; None if the body does not have it."""
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
                kept = place.further + (frames[number - 1].end if number else 0)
                return Point(kept) if kept <= len(self.body) else None
            case "text":
                texts = [frame for frame in frames if has_text(self.dialect, frame.value)]
                return Point(texts[number - 1].end) if number <= len(texts) else None
            case "tool":
                return self._in_arguments(place)
            case _:
                found = self.frame(place)
                return Point(found.start) if found is not None else None

    def frame(self, place: Place) -> PlacedFrame | None:
        """Return the frame that a place names."""
        match place.word:
            case "frame":
                return self.frames[place.number - 1] if 1 <= place.number <= len(self.frames) else None
            case "usage":
                return next((frame for frame in self.frames if as_object(frame.value).get("usage")), None)
            case "finish":
                return self.finish
            case _:
                return self.done

    def whole_frames(self, kept: int) -> int:
        """Return how many of these bytes are whole frames: after half a line, another frame could not be read."""
        return max((frame.end for frame in self.frames if frame.end <= kept), default=0)

    @property
    def finish(self) -> PlacedFrame | None:
        """The frame with the finish reason."""
        return next((frame for frame in self.frames if finishes(self.dialect, frame.value)), None)

    @property
    def done(self) -> PlacedFrame | None:
        """The last frame of the protocol."""
        return next((each for each in self.frames if terminates(self.dialect, each.value, each.payload)), None)

    def _in_arguments(self, place: Place) -> Point | None:
        """Return the place after so many characters of one call's arguments."""
        names: dict[Any, str] = {}
        wanted: Any = ABSENT
        left = place.further
        for frame in self.frames:
            for piece in call_pieces(self.dialect, frame.value):
                names[piece.call] = names.get(piece.call, "") + piece.name
                if wanted is ABSENT and piece.text and place.name in ("*", names[piece.call]):
                    wanted = piece.call
                if piece.call != wanted:
                    continue
                if len(piece.text) >= left:
                    return Point(frame.start, frame.with_value(shortened(self.dialect, frame.value, piece, left)))
                left -= len(piece.text)
        return None


def _frames(body: bytes) -> Iterator[PlacedFrame]:
    decoder = Decoder()
    start = 0
    for frame in [*decoder.feed(body), *decoder.close()]:
        end = start + len(frame.raw)
        value = ABSENT if frame.payload is None else parse(frame.payload)
        yield PlacedFrame(start, end, frame.payload, value, frame.event)
        start = end
