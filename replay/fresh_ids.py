"""New ids for an answer that is served again, as a provider gives them: who caches by id is caught by it

A function of the serving alone, so a run can be repeated. Only ids change, and the pieces that hold them grow: what is
no JSON, and what a model said, stays.
"""

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from wiretape.events.json_text import is_list, is_object, parse
from wiretape.events.sse import Decoder

from .key import IDS
from .script import Script, Step

__all__ = ["with_fresh_ids"]

_NAMES: Final = frozenset({*IDS, "generation_id", "message_id", "response_id", "toolCallId"})
#: A member that may be one, where no string holds it (there its quotes are escaped).
_MEMBER: Final = re.compile(rb'"(?:%b)"\s*:\s*"([^"\\]+)"' % "|".join(sorted(_NAMES)).encode())
#: `chatcmpl-`, `call_`, `toolu_`: the kind of an id stays.
_KIND: Final = re.compile(r"[a-z]{1,12}[_-]")
#: As many as OpenAI's call ids have.
_CHARS: Final = 24
_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz0123456789"
#: What a model or a tool said, not the provider.
_SAID: Final = frozenset({"arguments", "input", "metadata", "tools"})


def with_fresh_ids(script: Script, serving: int) -> Script:
    """The script with ids that only this serving has."""
    whole = b"".join(step.what for step in script.steps if isinstance(step.what, bytes))
    ids = _ids(whole)
    edits = [
        (found.start(1), found.end(1), _fresh(found[1].decode("latin-1"), serving).encode("latin-1"))
        for found in _MEMBER.finditer(whole)
        if found[1] in ids
    ]
    if not edits:
        return script
    steps = list(_steps(script.steps, edits))
    size = sum(len(step.what) for step in steps if isinstance(step.what, bytes))
    headers = [
        (name, b"%d" % (int(value) + size - len(whole)) if name.lower() == b"content-length" else value)
        for name, value in script.headers
    ]
    return replace(script, steps=steps, headers=headers)


def _steps(steps: Sequence[Step], edits: Sequence[tuple[int, int, bytes]]) -> Iterator[Step]:
    """The same pieces; a new id is wholly in the one in which the old one began."""
    waiting = list(reversed(edits))
    at = done = 0  # where this piece starts, and up to where the old bytes are used
    for delay_s, what in steps:
        if not isinstance(what, bytes):
            yield Step(delay_s, what)
            continue
        end, parts = at + len(what), list[bytes]()
        while waiting and waiting[-1][0] < end:
            start, behind, new = waiting.pop()
            parts += [what[max(0, done - at) : start - at], new]
            done = behind
        parts.append(what[max(0, done - at) :])
        yield Step(delay_s, b"".join(parts))
        at, done = end, max(done, end)


def _ids(data: bytes) -> set[bytes]:
    """Of every frame; of what is no event stream, of the whole."""
    found: set[bytes] = set()
    payloads = [frame.payload for frame in Decoder().feed(data) if frame.payload]
    for payload in payloads or [data]:
        _collect(parse(payload), found)
    return found


def _collect(value: Any, found: set[bytes]) -> None:
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if is_list(value):
            waiting += value
        elif is_object(value):
            named = value.get("object") == "model"  # its id is its name
            for name, each in value.items():
                if name in _NAMES and isinstance(each, str):
                    if not named:
                        found.add(each.encode("utf-8", "surrogatepass"))
                elif name not in _SAID:
                    waiting.append(each)


def _fresh(old: str, serving: int) -> str:
    kind = _KIND.match(old)
    chance = hashlib.shake_256(f"{serving}:{old}".encode("utf-8", "surrogatepass")).digest(_CHARS)
    return (kind[0] if kind else "") + "".join(_LETTERS[number % len(_LETTERS)] for number in chance)
