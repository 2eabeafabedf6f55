"""The strings of a recording as text with the place of each character, those that came in pieces joined again

A secret may stand in a string, or be streamed: then each frame holds a piece of it, under one path and index.
"""

import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from wiretape.events.emit import events
from wiretape.events.model import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
)
from wiretape.events.record import Record

from .edited import Text
from .scalars import Path, Sort, scalars

__all__ = ["Joined", "Piece", "channels", "folded", "outside", "pieces_of"]

#: Numbers that say which of several streams inside a stream a piece belongs to.
_INDEXES: Final = frozenset({"choice", "content_index", "index", "output_index", "summary_index"})
#: What a frame says anew each time.
_WHOLE: Final = frozenset(
    {"call_id", "created_at", "event", "finish_reason", "id", "item_id", "model", "name", "native_finish_reason",
     "object", "obfuscation", "p", "provider", "response_id", "role", "service_tier", "status", "stop_reason",
     "system_fingerprint", "tool_call_id", "type"}
)  # fmt: skip
_ESCAPE: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\(.)|([^\\]+)|\\", re.DOTALL)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}
_LINE: Final = re.compile(rb"[^\r\n]+")


class Piece(NamedTuple):
    """A string, or a part of one: of which text (by number), on which path, and where in it each character begins."""

    text: int
    path: Path
    name: bool
    said: str
    #: One more than there are characters.
    places: Sequence[int]


class Joined(NamedTuple):
    """Pieces one after the other."""

    pieces: Sequence[Piece]
    said: str
    #: Where each piece begins.
    starts: Sequence[int]

    @staticmethod
    def of(pieces: Sequence[Piece]) -> "Joined":
        """In their order."""
        starts: list[int] = []
        at = 0
        for piece in pieces:
            starts.append(at)
            at += len(piece.said)
        return Joined(pieces, "".join(piece.said for piece in pieces), starts)

    def parts(self, start: int, end: int) -> Iterator[tuple[Piece, int, int]]:
        """The parts of pieces that make up so much of the text: which, and where in the bytes of its text."""
        for number in range(max(0, bisect_right(self.starts, start) - 1), len(self.pieces)):
            begin = self.starts[number]
            if begin >= end:
                return
            piece = self.pieces[number]
            first, last = max(0, start - begin), min(len(piece.said), end - begin)
            if first < last:
                yield piece, piece.places[first], piece.places[last]


def pieces_of(text: Text, number: int) -> Iterator[Piece]:
    """The strings of its JSON, names of members among them; of what is no JSON its lines or the whole."""
    json = text.json
    if not json:
        yield from _plain(text, number)
        return
    for scalar in scalars(json):
        if scalar.sort is Sort.OTHER:
            continue
        end = scalar.end - (scalar.sort is not Sort.TORN)
        said, places = _unquoted(json[scalar.start + 1 : end], text.place(scalar.start) + 1)
        yield Piece(number, scalar.path, scalar.sort is Sort.NAME, said, places)


def outside(text: Text, number: int) -> Iterator[Piece]:
    """What frames the JSON: event names and such."""
    at = 0
    for start, end in text.spans:
        yield _bytes(text.raw[at:start], at, number)
        at = end
    if at and at < len(text.raw):
        yield _bytes(text.raw[at:], at, number)


def _plain(text: Text, number: int) -> Iterator[Piece]:
    if text.kind in ("frame", "rest"):  # whose lines have a meaning
        for line in _LINE.finditer(text.raw):
            yield _bytes(line[0], line.start(), number)
    else:
        yield _bytes(text.raw, 0, number)


def _bytes(raw: bytes, at: int, number: int) -> Piece:
    return Piece(number, (), name=False, said=raw.decode("latin-1"), places=range(at, at + len(raw) + 1))


def _unquoted(inside: bytes, at: int) -> tuple[str, Sequence[int]]:
    text = inside.decode("utf-8", "surrogateescape")
    if b"\\" not in inside:
        if len(text) == len(inside):
            return text, range(at, at + len(inside) + 1)
        return text, _places(text, at)
    said: list[str] = []
    places: list[int] = []
    for match in _ESCAPE.finditer(text):
        if match[3]:
            said.append(match[3])
            inner = _places(match[3], at)
            places += inner[:-1]
            at = inner[-1]
        else:
            said.append(chr(int(match[1], 16)) if match[1] else _SIMPLE.get(match[2] or "", match[2] or "\\"))
            places.append(at)
            at += len(match[0].encode("utf-8", "surrogateescape"))
    return "".join(said), [*places, at]


def _places(text: str, at: int) -> Sequence[int]:
    if text.isascii():
        return range(at, at + len(text) + 1)
    places = [at]
    for char in text:
        at += 1 if char < "\x80" or "\udc80" <= char <= "\udcff" else len(char.encode("utf-8", "surrogatepass"))
        places.append(at)
    return places


# -- joined -----------------------------------------------------------------------------------------------------------


def channels(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """Of each attempt the strings that came in several frames, in order of their first piece."""
    found: dict[object, list[Piece]] = {}
    attempt = 0
    begun = [at for at, record in enumerate(records) if record.kind == "attempt"]
    for number, text in enumerate(texts):
        if text.kind not in ("frame", "rest"):
            continue
        here = bisect_right(begun, text.of[0])
        if here != attempt:
            yield from _several(found.values())
            found, attempt = {}, here
        if text.spans:
            for key, piece in _keyed(text, number):
                found.setdefault(key, []).append(piece)
    yield from _several(found.values())


def _several(found: Iterable[list[Piece]]) -> Iterator[Joined]:
    return (Joined.of(pieces) for pieces in found if len(pieces) > 1)


def _keyed(text: Text, number: int) -> Iterator[tuple[object, Piece]]:
    json = text.json
    indexes: dict[Path, bytes] = {}
    kind = b""
    kept: list[tuple[Path, Piece]] = []
    for scalar in scalars(json):
        path = scalar.path
        name = path[-1] if path else ""
        if scalar.sort is Sort.NAME:
            continue
        if scalar.sort is Sort.OTHER:
            if name in _INDEXES:
                indexes[path[:-1]] = indexes.get(path[:-1], b"") + b"%b," % json[scalar.start : scalar.end]
        elif path == ("type",):
            kind = json[scalar.start : scalar.end]
        elif name not in _WHOLE:
            end = scalar.end - (scalar.sort is not Sort.TORN)
            said, places = _unquoted(json[scalar.start + 1 : end], text.place(scalar.start) + 1)
            if said:
                kept.append((path, Piece(number, path, name=False, said=said, places=places)))
    root = indexes.get((), b"")
    for path, piece in kept:
        # What says no index has that of its place: many say it in the first piece only.
        steps = tuple(
            indexes.get(path[: depth + 1], b"%d," % step) if isinstance(step, int) else step
            for depth, step in enumerate(path)
        )
        match path:
            case (*_, "content", int(), "text"):  # a part of a text that is a string in other frames
                steps = steps[:-2]
            case _:
                pass
        yield (kind, root, steps), piece


# -- as our folds have it ---------------------------------------------------------------------------------------------


def folded(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """The texts and calls that a chat stream comes to, by the pieces that they were read from."""
    if not records or records[0].keys.get("dialect") != "chat":
        return
    frames = {records[text.of[0]].n: number for number, text in enumerate(texts) if text.kind == "frame" and text.spans}
    frames |= {records[at].n: number for number, text in enumerate(texts) if text.kind == "body" for at in text.of}
    found: dict[object, list[Piece]] = {}
    left: dict[int, list[Piece]] = {}
    for event in events(records, repairs=False):
        match event:
            case TextDelta(text=said) | ReasoningDelta(text=said) | RefusalDelta(text=said):
                key: object = (type(event), event.choice)
            case ToolArgumentsDelta(text=said):
                key = (type(event), event.choice, event.call)
            case ToolCallStarted(name=said) | ToolNameDelta(name=said):
                key = (ToolNameDelta, event.choice, event.call)
            case _:
                continue
        number = frames.get(event.n)
        if number is None or not said:
            continue
        if number not in left:
            left[number] = [piece for piece in pieces_of(texts[number], number) if piece.said and not piece.name]
        found.setdefault(key, []).extend(_spelled(said, left[number]))
    yield from _several(found.values())


def _spelled(said: str, left: list[Piece]) -> list[Piece]:
    """The pieces of a frame that make up what it said, each taken once."""
    for at, piece in enumerate(left):
        if piece.said == said:
            return [left.pop(at)]
    taken: list[Piece] = []
    at = 0
    for piece in list(left):
        if said.startswith(piece.said, at):
            taken.append(piece)
            at += len(piece.said)
    return taken if at == len(said) else []
