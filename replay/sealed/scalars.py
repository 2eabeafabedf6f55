"""Every name, string and number of a JSON text, where it stands and on which path, without building its value"""

import json
import re
from collections.abc import Iterator
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["Path", "Scalar", "Sort", "scalars"]

Path = tuple[str | int, ...]

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\)?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
#: Steps of a path from its beginning, and as many from its end. Nobody nests deeper who means well,
#: and whole paths of it would take time and memory by the square of its depth.
_STEPS_MAX: Final = 32
_BACKSLASH: Final = 0x5C
_QUOTE, _OPEN, _CLOSE, _FIRST, _LAST, _COMMA, _COLON = b'"{}[],:'


class Sort(Enum):
    """What stands there."""

    NAME = "name"
    STRING = "string"
    #: A string, or a name, without its end: that of a text which was cut.
    TORN = "torn"
    #: A number, true, false or null.
    OTHER = "other"


class Scalar(NamedTuple):
    """`text[start:end]`, quotes included. Of a name the path is that of its value."""

    sort: Sort
    path: Path
    start: int
    end: int


def scalars(text: bytes) -> Iterator[Scalar]:
    """In order. The text is JSON, or the beginning of one; of any other nothing holds but that it ends."""
    path: list[str | int] = []
    named = False
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        first = text[start]
        if first == _QUOTE:
            if (
                text[end - 1] != _QUOTE
                or end == start + 1
                or (text[end - 2] == _BACKSLASH and _escaped(text, start, end))
            ):
                yield Scalar(Sort.TORN, _path(path), start, end)
            elif path and path[-1] == "" and not named:
                path[-1] = _key(text[start:end])
                named = True
                yield Scalar(Sort.NAME, _path(path), start, end)
            else:
                yield Scalar(Sort.STRING, _path(path), start, end)
        elif first == _OPEN:
            path.append("")
            named = False
        elif first == _FIRST:
            path.append(0)
        elif first in (_CLOSE, _LAST):
            del path[-1:]
        elif first == _COMMA and path:
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else ""
            named = False
        elif first not in (_COMMA, _COLON):
            yield Scalar(Sort.OTHER, _path(path), start, end)


def _path(steps: list[str | int]) -> Path:
    if len(steps) <= 2 * _STEPS_MAX:
        return tuple(steps)
    return (*steps[:_STEPS_MAX], *steps[-_STEPS_MAX:])


def _escaped(text: bytes, start: int, end: int) -> bool:
    """Whether the last quote is one of the string's own."""
    inside = text[start + 1 : end - 1]
    return (len(inside) - len(inside.rstrip(b"\\"))) % 2 == 1


def _key(quoted: bytes) -> str:
    try:
        name: str = json.loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
    except ValueError:
        name = quoted.decode("latin-1")
    return name
