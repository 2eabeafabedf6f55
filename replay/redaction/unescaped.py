"""A text as it is behind its escapes, those of JSON, URLs, HTML and programs, several times over, and where it stood

Texts are only decoded with their places where something is found in them.
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

__all__ = ["Decoded", "decoded"]


class Decoded(NamedTuple):
    """A text, and where each of its characters began, and the end."""

    text: str
    places: Sequence[int]


_JSON: Final = re.compile(r"\\u([0-9a-fA-F]{4})|\\([^u])")
_URL: Final = re.compile(r"(?:%[0-9a-fA-F]{2})+")
#: All at once, and escapes as programs write them.
_ALL: Final = re.compile(
    r"\\u([0-9a-fA-F]{4})|\\x([0-9a-fA-F]{2})|\\([^ux])|((?:%[0-9a-fA-F]{2})+)|(&(?:\#\d{1,7}|\#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos);)"
)
#: Where that finds more than JSON twice or a URL once.
_MORE: Final = re.compile(r"(?:%|\\u00)(?:25|26|5[cC])|&(?:#|amp;|lt;|gt;|quot;|apos;)|\\x[0-9a-fA-F]{2}|\\{3}")
_SIMPLE: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


def _json_text(match: re.Match[str]) -> str:
    return chr(int(match[1], 16)) if match[1] else _SIMPLE.get(match[2], match[2])


def _url_text(match: re.Match[str]) -> str:
    return unquote(match[0], "latin-1")


def _any_text(match: re.Match[str]) -> str:
    if code := match[1] or match[2]:
        return chr(int(code, 16))
    if match[3]:
        return _SIMPLE.get(match[3], match[3])
    return unquote(match[4], "latin-1") if match[4] else html.unescape(match[5])


_Step = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]
_JSON_STEP: Final[_Step] = (_JSON, _json_text)
_URL_STEP: Final[_Step] = (_URL, _url_text)
_ANY_STEP: Final[_Step] = (_ALL, _any_text)
#: How often everything is taken off: arguments that are JSON, in a log that is JSON, in a page.
_LAYERS: Final = 4


def decoded(text: str, found: Callable[[str], bool]) -> Iterator[Decoded]:
    """The text in each of the ways in which something is found that is not found as it stands."""
    seen = {text}
    for steps in _ways(text):
        plain = text
        for pattern, said in steps:
            plain = pattern.sub(said, plain)
        if plain not in seen and found(plain):
            yield _with_places(text, steps)
        seen.add(plain)


def _ways(text: str) -> Iterator[Sequence[_Step]]:
    if "\\" in text:
        yield (_JSON_STEP,)
        if "\\\\" in text:
            yield (_JSON_STEP, _JSON_STEP)
    if "%" in text:
        yield (_URL_STEP,)
    if _MORE.search(text) or ("%" in text and "\\" in text):
        for layers in range(1, _LAYERS + 1):
            yield (_ANY_STEP,) * layers


def _with_places(text: str, steps: Sequence[_Step]) -> Decoded:
    whole = Decoded(text, range(len(text) + 1))
    for pattern, said in steps:
        further = _once(whole.text, pattern, said)
        whole = Decoded(further.text, [whole.places[place] for place in further.places])
    return whole


def _once(text: str, pattern: re.Pattern[str], said: Callable[[re.Match[str]], str]) -> Decoded:
    parts: list[str] = []
    places: list[int] = []
    at = 0
    for match in pattern.finditer(text):
        places += range(at, match.start())
        parts.append(text[at : match.start()])
        inner = said(match)
        # A run of %xx is cut evenly: each stands for one character.
        step = (match.end() - match.start()) // max(1, len(inner))
        places += [match.start() + step * number for number in range(len(inner))]
        parts.append(inner)
        at = match.end()
    places += range(at, len(text) + 1)
    return Decoded("".join([*parts, text[at:]]), places)
