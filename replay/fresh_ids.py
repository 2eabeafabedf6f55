"""New ids for an answer that is served again, as a provider gives them: who caches by id is caught by it

Each is as long as the recorded one and made of the same kinds of characters, so reads and lengths stay what they were;
and a function of the serving alone, so a run can be repeated.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final

from wiretape.events.json_text import is_list, is_object, parse
from wiretape.events.sse import Decoder

from .key import IDS
from .script import Script, Step

__all__ = ["with_fresh_ids"]

#: Shorter ones are numbers somebody counts by, and two fresh ones might be the same.
_ID_CHARS_MIN: Final = 6
#: `chatcmpl-`, `call_`, `toolu_`: the kind of an id stays.
_KIND: Final = re.compile(r"[a-z]{1,12}[_-]")
#: What a model or a tool said, not the provider.
_SAID: Final = frozenset({"arguments", "input", "metadata", "tools", "text", "content_filter_results"})


def with_fresh_ids(script: Script, serving: int) -> Script:
    """The script with ids that only this serving has."""
    whole = b"".join(step.what for step in script.steps if isinstance(step.what, bytes))
    fresh = whole
    for old in sorted(_ids(whole)):
        fresh = fresh.replace(b'"%b"' % old.encode(), b'"%b"' % _fresh(old, serving).encode())
    assert len(fresh) == len(whole), "an id changed its length"
    return script if fresh == whole else replace(script, steps=list(_steps(script, fresh)))


def _steps(script: Script, data: bytes) -> Iterator[Step]:
    at = 0
    for delay_s, what in script.steps:
        if isinstance(what, bytes):
            yield Step(delay_s, data[at : at + len(what)])
            at += len(what)
        else:
            yield Step(delay_s, what)


def _ids(data: bytes) -> set[str]:
    """Of every frame; of what is no event stream, of the whole."""
    found: set[str] = set()
    decoder = Decoder()
    payloads = [frame.payload for frame in decoder.feed(data) if frame.payload]
    for payload in payloads or [data]:
        _collect(parse(payload), found)
    return found


def _collect(value: Any, found: set[str]) -> None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if is_list(value):
            waiting += value
        elif is_object(value):
            found |= {each for name, each in value.items() if name in IDS and _is_id(each)}
            waiting += [each for name, each in value.items() if name not in _SAID]


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and len(value) >= _ID_CHARS_MIN and value.isascii() and '"' not in value


def _fresh(old: str, serving: int) -> str:
    kind = _KIND.match(old)
    kept = kind[0] if kind else ""
    rest = old[len(kept) :]
    hexadecimal = re.fullmatch(r"[0-9a-f-]+", rest) is not None
    chance = hashlib.shake_256(f"{serving}:{old}".encode()).digest(len(rest))
    return kept + "".join(_like(one, number, hexadecimal=hexadecimal) for one, number in zip(rest, chance, strict=True))


def _like(one: str, number: int, *, hexadecimal: bool) -> str:
    if one.isdigit():
        return "0123456789"[number % 10]
    if not one.isalpha():
        return one
    letters = "abcdef" if hexadecimal else "abcdefghijklmnopqrstuvwxyz"
    return letters[number % len(letters)].upper() if one.isupper() else letters[number % len(letters)]
