"""The strings of a recording as text, with the place of each character in the bytes that it was read from

A secret may stand in a string, in what is no JSON, or in pieces that are joined (channels.py).
"""

import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from ..sealed.edits import Text
from ..sealed.scalars import Path, Scalar, Sort, scalars

__all__ = ["Joined", "Piece", "outside", "piece_at", "pieces_of", "plain"]

#: Two escapes may be one character: as two of them it is none that a model or a fold says.
_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)|([^\\]+)|\\", re.DOTALL
)
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


def pieces_of(text: Text, number: int, *, names: bool = True) -> Iterator[Piece]:
    """The strings of its JSON, and names of members if wanted; of what is no JSON its lines or the whole."""
    json = text.json
    if not json:
        yield from _plain(text, number)
        return
    for scalar in scalars(json):
        if scalar.sort is not Sort.OTHER and (names or scalar.sort is not Sort.NAME):
            yield piece_at(json, scalar, text.place(scalar.start), number)


def piece_at(json: bytes, scalar: Scalar, place: int, number: int) -> Piece:
    """A string of a JSON text, which stands at this place of its bytes."""
    end = scalar.end - (scalar.sort is not Sort.TORN)
    said, places = _unquoted(json[scalar.start + 1 : end], place + 1)
    return Piece(number, scalar.path, scalar.sort is Sort.NAME, said, places)


def outside(text: Text, number: int) -> Iterator[Piece]:
    """What frames the JSON: event names and such."""
    at = 0
    for start, end in text.spans:
        yield plain(text.raw[at:start], at, number)
        at = end
    if at and at < len(text.raw):
        yield plain(text.raw[at:], at, number)


def _plain(text: Text, number: int) -> Iterator[Piece]:
    if text.kind in ("frame", "rest"):  # whose lines have a meaning
        for line in _LINE.finditer(text.raw):
            yield plain(line[0], line.start(), number)
    else:
        yield plain(text.raw, 0, number)


def plain(raw: bytes, at: int, number: int) -> Piece:
    """Bytes as they stand."""
    return Piece(number, (), name=False, said=raw.decode("latin-1"), places=range(at, at + len(raw) + 1))


def _unquoted(inside: bytes, at: int) -> tuple[str, Sequence[int]]:
    text = inside.decode("utf-8", "surrogateescape")
    if b"\\" not in inside:
        return text, range(at, at + len(inside) + 1) if len(text) == len(inside) else _places(text, at)
    said: list[str] = []
    places: list[int] = []
    for match in _ESCAPE.finditer(text):
        if match[5]:
            said.append(match[5])
            inner = _places(match[5], at)
            places += inner[:-1]
            at = inner[-1]
        else:
            said.append(_char(match))
            places.append(at)
            at += len(match[0].encode("utf-8", "surrogateescape"))
    return "".join(said), [*places, at]


def _char(escape: re.Match[str]) -> str:
    if escape[1]:
        return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")
    if escape[3]:
        return chr(int(escape[3], 16))
    return _SIMPLE.get(escape[4] or "", escape[4] or "\\")


def _places(text: str, at: int) -> Sequence[int]:
    if text.isascii():
        return range(at, at + len(text) + 1)
    places = [at]
    for char in text:
        at += 1 if char < "\x80" or "\udc80" <= char <= "\udcff" else len(char.encode("utf-8", "surrogatepass"))
        places.append(at)
    return places
