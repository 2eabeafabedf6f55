"""Every name, string and number of a JSON text with its place and path, read without building a value"""

import json
import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["Path", "Scalar", "Sort", "scalars", "unquoted"]

Path = tuple[str | int, ...]

_TOKEN: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\)?|[{}\[\],:]|[^\s{}\[\],:"]++', re.DOTALL)
#: Steps of a path kept from its beginning, and as many from its end: whole paths of deeply nested JSON would take time
#: and memory by the square of its depth.
_STEPS_MAX: Final = 32
_BACKSLASH: Final = 0x5C
_QUOTE, _OPEN, _CLOSE, _FIRST, _LAST, _COMMA, _COLON = b'"{}[],:'
#: A surrogate pair is one character: two halves are no text that a model or a fold produces.
_ESCAPE: Final = re.compile(
    r"\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})|\\u([0-9a-fA-F]{4})|\\(.)|([^\\]+)|\\", re.DOTALL
)
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class Sort(Enum):
    """The sort of a scalar."""

    NAME = "name"
    STRING = "string"
    #: A string or a name without its end, in a text that was cut.
    TORN = "torn"
    #: A number, true, false or null.
    OTHER = "other"


class Scalar(NamedTuple):
    """The scalar at `text[start:end]`, quotes included. A name has the path of its value."""

    sort: Sort
    path: Path
    start: int
    end: int


def scalars(text: bytes) -> list[Scalar]:
    """Return the scalars of JSON, or of its beginning, in order. For any other text the result is arbitrary."""
    found: list[Scalar] = []
    path: list[str | int] = []
    named = False
    for token in _TOKEN.finditer(text):
        start, end = token.span()
        first = text[start]
        sort: Sort | None = None
        if first == _QUOTE:
            closed = text[end - 1] == _QUOTE and end > start + 1
            if not closed or (text[end - 2] == _BACKSLASH and _escaped(text, start, end)):
                sort = Sort.TORN
            elif path and path[-1] == "" and not named:
                path[-1] = _key(text[start:end])
                named = True
                sort = Sort.NAME
            else:
                sort = Sort.STRING
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
            sort = Sort.OTHER
        if sort is not None:
            shown = tuple(path) if len(path) <= 2 * _STEPS_MAX else (*path[:_STEPS_MAX], *path[-_STEPS_MAX:])
            found.append(Scalar(sort, shown, start, end))
    return found


def _escaped(text: bytes, start: int, end: int) -> bool:
    """Return whether the last quote belongs to the string."""
    inside = text[start + 1 : end - 1]
    return (len(inside) - len(inside.rstrip(b"\\"))) % 2 == 1


def _key(quoted: bytes) -> str:
    try:
        name: str = json.loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
    except ValueError:
        name = quoted.decode("latin-1")
    return name


def unquoted(inside: str, at: int, *, in_bytes: bool = False) -> tuple[str, Sequence[int]]:
    """Return the text inside the quotes of a string, and the place of each character in the JSON, and of the end.

    The string begins at `at`; places count characters, or bytes of UTF-8.
    """
    if "\\" not in inside and (inside.isascii() or not in_bytes):
        return inside, range(at, at + len(inside) + 1)
    text: list[str] = []
    places = [at]
    for match in _ESCAPE.finditer(inside):
        for char in match[5] or _char(match):
            text.append(char)
            size = len(char.encode("utf-8", "surrogateescape")) if in_bytes and match[5] else 1
            places.append(places[-1] + size)
        if not match[5]:
            places[-1] = places[-2] + len(match[0].encode("utf-8", "surrogateescape") if in_bytes else match[0])
    return "".join(text), places


def _char(escape: re.Match[str]) -> str:
    if escape[1]:
        return bytes.fromhex(escape[1] + escape[2]).decode("utf-16-be")
    if escape[3]:
        return chr(int(escape[3], 16))
    return _SIMPLE.get(escape[4] or "", escape[4] or "\\")
