"""Which bytes of a recording are secrets: of each text in order, without overlap; found by look, by name and in pieces

What a name says of a string may stand beside it: `["x-api-key", "..."]`, `{"name": "Authorization", "value": "..."}`.
"""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from wiretape.events.tape.record import Record

from ..sealed.edits import Text
from ..sealed.scalars import Path, Sort, scalars
from .beginnings import torn
from .joined_text import channels, folded, last_said
from .names import is_header, is_pair, is_secret_number, is_secret_value
from .shapes import find, merged
from .strings import Joined, Piece, outside, pieces_of
from .vendors import Hit

__all__ = ["Form", "Span", "cut", "found", "hits_of", "take"]

#: How what stands for a secret is written: as it is, as a string of JSON, as arguments of a tool, with quotes or inside
#: those that stand there, or escaped for a URL.
Form = Literal["plain", "json", "arguments", "inside", "url"]

_SCHEME: Final = re.compile(r"(?:(?i:bearer|basic|token)\s+)?")
#: Numbers under a name are only looked for where there is such a name.
_NAMES_NUMBERS: Final = re.compile(rb"(?i)pass|pwd|secret|api.?key")
#: Strings, and characters of each, whose search is kept for the next frame that says the same: below a megabyte.
_REPEATED_MAX, _REPEATED_CHARS_MAX = 2048, 64
#: As each dialect says that the model was stopped.
_CUT_SHORT: Final = re.compile(rb'"(?:length|max_tokens|MAX_TOKENS|max_output_tokens)"')
_SAYS_NAME: Final = frozenset({"header", "key", "name"})


class Span(NamedTuple):
    """Bytes of one text that go, and what the secret is that stood there; None of a piece behind the first."""

    text: int
    start: int
    end: int
    path: Path
    vendor: str
    secret: str | None
    form: Form = "plain"


def found(records: Sequence[Record], parts: Sequence[Text], taken: dict[int, list[Span]]) -> None:
    """What looks like a secret, where nothing is taken yet."""
    escaped: set[tuple[int, int]] = set()
    for joined in (*channels(records, parts), *folded(records, parts)):
        escaped |= _escaped(joined)
        for hit in find(joined.said):
            take(taken, cut(joined, hit))
    for number, text in enumerate(parts):
        for piece, name in _with_names(pieces_of(text, number)):
            if (number, piece.places[0]) in escaped:
                piece = piece._replace(said=piece.said[1:], places=piece.places[1:])  # noqa: PLW2901 - what is left
            for hit in hits_of(piece, name):
                take(taken, cut(Joined.of([piece]), hit))
        if text.spans:
            take(taken, _numbers(text, number))
            for piece in outside(text, number):
                for hit in find(piece.said):
                    take(taken, cut(Joined.of([piece]), hit))
    for joined in last_said(records, parts) if _is_torn(records, parts) else ():
        for hit in torn(joined.said):
            take(taken, cut(joined, hit))


def _is_torn(records: Sequence[Record], parts: Sequence[Text]) -> bool:
    """Whether its answer stopped before its end: the stream did, or the model, at the most that it may say."""
    last = records[-1] if records else None
    if last is not None and last.kind == "end" and last.keys.get("ending") == "completed":
        return any(_CUT_SHORT.search(text.raw) for text in parts if text.kind in ("frame", "body"))
    return True


def _escaped(joined: Joined) -> set[tuple[int, int]]:
    """Pieces that begin behind a backslash: by themselves their first character would begin an escape of its own."""
    found: set[tuple[int, int]] = set()
    open_ = False
    for piece in joined.pieces:
        if open_ and piece.said:
            found.add((piece.text, piece.places[0]))
        bare = piece.said[1:] if open_ and piece.said else piece.said
        if piece.said:
            open_ = (len(bare) - len(bare.rstrip("\\"))) % 2 == 1
    return found


def take(taken: dict[int, list[Span]], spans: Iterable[Span]) -> None:
    """All of a secret, or what of it is not taken yet; in order, so a look at both neighbours is enough."""
    for span in spans:
        others = taken.setdefault(span.text, [])
        at = bisect_left(others, span.start, key=_start)
        if (at == 0 or others[at - 1].end <= span.start) and (at == len(others) or span.end <= others[at].start):
            others.insert(at, span)


def _start(span: Span) -> int:
    return span.start


def cut(joined: Joined, hit: Hit) -> list[Span]:
    """The bytes of a secret, in however many pieces."""
    spans: list[Span] = []
    for piece, start, end in joined.parts(hit.start, hit.end):
        spans.append(Span(piece.text, start, end, piece.path, hit.vendor, None if spans else hit.secret))
    return spans


def hits_of(piece: Piece, name: str = "") -> Sequence[Hit]:
    """By its look, and by its name: that of its member, unless another one is given."""
    if piece.name:
        name = ""
    elif not name:
        name = next((step for step in reversed(piece.path) if isinstance(step, str) and step != "value"), "")
    return _repeated(piece.said, name) if len(piece.said) <= _REPEATED_CHARS_MAX else _hits(piece.said, name)


def _hits(said: str, name: str) -> Sequence[Hit]:
    hits = find(said)
    if name and is_secret_value(name, said):
        # All of it, whatever of it looks like a key; the word before a credential may stay.
        start = len(_SCHEME.match(said)[0]) if hits else 0  # type: ignore[index]
        if not (hits and hits[0].start <= start and hits[-1].end == len(said) and len(hits) == 1):
            vendor = hits[0].vendor if hits else "secret"
            hits = [Hit(start, len(said), vendor, said[start:]), *(hit for hit in hits if hit.start < start)]
    return merged(hits)


#: Most strings of a frame are those of the one before.
_repeated: Final = lru_cache(_REPEATED_MAX)(_hits)


def _with_names(pieces: Iterable[Piece]) -> Iterator[tuple[Piece, str]]:
    """Each with the name that a neighbour says it has; mostly none."""
    held = list(pieces)
    named: dict[Path, str] = {}
    for piece in held:
        last = piece.path[-1] if piece.path else ""
        if piece.name:
            continue
        if last in _SAYS_NAME:
            named.setdefault((*piece.path[:-1], "value"), piece.said)
        elif isinstance(last, int) and is_header(piece.said):
            named[(*piece.path[:-1], last + 1)] = piece.said
    for piece in held:
        name = named.get(piece.path, "") if named and not piece.name else ""
        if name and isinstance(piece.path[-1], int) and not is_pair(name, piece.said):
            name = ""
        yield piece, name


def _numbers(text: Text, number: int) -> Iterator[Span]:
    """A password of digits alone; what stands for it is a string."""
    if _NAMES_NUMBERS.search(text.raw) is None:
        return
    json = text.json
    for scalar in scalars(json):
        if scalar.sort is Sort.OTHER and scalar.path:
            name, digits = scalar.path[-1], json[scalar.start : scalar.end].decode("latin-1")
            if isinstance(name, str) and is_secret_number(name, digits):
                start = text.place(scalar.start)
                yield Span(number, start, start + len(digits), scalar.path, "secret", digits, "json")
