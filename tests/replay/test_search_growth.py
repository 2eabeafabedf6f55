"""The search for secrets takes work in proportion to the text, for any text. Counted, not timed."""

import base64
import random
import re
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import pytest

from tests.replay.canaries import CANARIES
from tests.support.regex_steps import Steps
from wiretape.replay.redaction import shapes
from wiretape.replay.redaction.shapes import find

#: Pieces of text to be repeated.
PIECES: Final = {
    "quotes": '"',
    "single quotes": "'",
    "names": "key=",
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "nested JSON": '{"a":"',
    "nested JSON in strings": '{\\"a\\":\\"',
    "members": "'password':\"",
    "secrets": "password=hunter2x ",
    "a query": "?key=aaaaaaaa&",
    "slashes": "a/",
    "names of files": "a/b.",
    "beginnings of private keys": "-----BEGIN PRIVATE KEY-----\n",
    "dots": "eyJhbGciOiJ9.",
    "white space": " ",
    "empty lines": "\r\n",
    "percent signs": "%41",
    "addresses": "a://b:c@",
    "placeholders": "[redacted-secret-1] ",
    "cookies": "cookie: a=b; ",
}
#: Whole texts, as of a member's value, and parts of a text.
WHOLE: Final = frozenset(
    {"_UUID", "_DIGEST", "_FILE", "_DIRECTORY", "_PLAIN_WORD", "_PHRASE", "_COOKIES", "_ATTRIBUTE", "_LIKELY_VALUE",
     "_SHORT_VALUE", "_NUMBER", "_HEADER_VALUE", "_HEADER", *(f"_HARMLESS[{number}]" for number in range(3))}
)  # fmt: skip
AROUND: Final = {"alone": "*", "a value": '{"key":"*"}', "a value in a value": '{"a":"{\\"password\\":\\"*'}
BASE64: Final = base64.b64encode(random.Random(1).randbytes(60_000)).decode()  # noqa: S311 - no secret


def text_of(piece: str, chars: int) -> str:
    return BASE64[:chars] if piece == "base64" else (PIECES[piece] * chars)[:chars]


def patterns() -> "dict[str, re.Pattern[str]]":
    """Every pattern of the search by its name."""
    found: dict[str, re.Pattern[str]] = {}
    for name, value in vars(shapes).items():
        group: Any = value
        for number, each in enumerate(group if isinstance(value, tuple) else [value]):
            pattern: Any = each
            if isinstance(each, re.Pattern) and isinstance(pattern.pattern, str):
                found[f"{name}[{number}]" if isinstance(value, tuple) else name] = pattern
    return found


def calls_of(act: Callable[[], object]) -> int:
    """Return how many functions are called, steps of generators included."""
    count = 0

    def profile(_: FrameType, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("piece", ["base64", *PIECES])
def test_twice_the_text_takes_twice_the_calls(piece: str, around: str) -> None:
    """Seen: 10 s for 512 KB of base64 as the value of `key`, and each hit compared with all hits before it."""
    small, large = (AROUND[around].replace("*", text_of(piece, chars)) for chars in (4_000, 8_000))
    find(small)  # imports and caches
    assert calls_of(lambda: find(large)) <= 2.2 * calls_of(lambda: find(small)) + 200


def steps_of(name: str, pattern: "re.Pattern[str]", text: str) -> int:
    steps = Steps(pattern, text)
    if name in WHOLE:
        steps.fullmatch()
    else:
        steps.finditer()
    return steps.count


#: These have an alternative for each vendor; `make bench` counts their steps.
LONG: Final = frozenset({"_KEY", "_GLUED", "_BEGINNING", "_WORTH_A_LOOK"})


@pytest.mark.parametrize("name", sorted(patterns().keys() - LONG))
def test_twice_the_text_takes_each_pattern_twice_the_steps(name: str) -> None:
    pattern = patterns()[name]
    for piece in ("base64", *PIECES):
        small, large = (steps_of(name, pattern, text_of(piece, chars)) for chars in (500, 1_000))
        assert large <= 2.2 * small + 100, piece


@pytest.mark.parametrize("name", sorted(patterns()))
def test_the_count_is_of_the_search_that_runs(name: str) -> None:
    pattern = patterns()[name]
    for vendor in sorted(CANARIES)[:: 30 if name in LONG else 9]:
        text = f'x{{"key":"{CANARIES[vendor][:60]}"}} https://a:b1@c.example/?password=hunter2 '
        assert Steps(pattern, text).finditer() == [match.span() for match in pattern.finditer(text)]
