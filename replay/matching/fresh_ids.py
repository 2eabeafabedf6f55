"""New ids for an answer that is served again, as a provider gives them: who caches by id is caught by it

A function of what was asked before, so a run can be repeated. Only ids change, and the pieces that hold them grow: what
is no JSON, and what a model said, stays. Whoever sends such an id back asks for what was recorded under the old one,
and is told of it by the id that it sent; what a stream names and another one made has the id that was given out last.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import is_list, is_object, parse
from wiretape.events.wire.sse import Decoder

from ..playback.script import Request, Script, Step
from .key import IDS

__all__ = ["Asked", "FreshIds"]

_NAMES: Final = frozenset({*IDS, "generation_id", "message_id", "response_id", "toolCallId"})
#: A member that may be one, or name one that is known, where no string holds it (there its quotes are escaped).
_MEMBER: Final = re.compile(rb'"(?:[a-z]\w*)?(?:id|Id)"\s*:\s*"([^"\\]+)"')
#: `chatcmpl-`, `call_`, `toolu_`: the kind of an id stays.
_KIND: Final = re.compile(rb"[a-z]{1,12}[_-]")
#: As many as OpenAI's call ids have.
_CHARS: Final = 24
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
_CHANCE: Final = re.compile(rb"(?<![a-z0-9])[a-z0-9]{%d}(?![a-z0-9])" % _CHARS)
#: Ids of ours that are known again; the first ones are forgotten first.
_KNOWN_MAX: Final = 200_000
#: What a model or a tool said, not the provider.
_SAID: Final = frozenset({"arguments", "input", "metadata", "tools"})


class Asked(NamedTuple):
    """A request with the recorded ids; and of these, which its client sent."""

    request: Request
    sent: Mapping[bytes, bytes]


_NOTHING: Final = Asked(Request(b"POST", b"/", (), b""), {})


class FreshIds:
    """Those of one server, for as long as it lives."""

    def __init__(self, servings: int = 0) -> None:
        self._servings = servings
        #: Of the random part of each that was given out: that id, and the recorded one.
        self._recorded: dict[bytes, tuple[bytes, bytes]] = {}
        #: Of each conversation and recorded id the one that was given out last, and by which stream.
        self._latest: dict[tuple[int, bytes], tuple[bytes, int]] = {}

    def asked(self, request: Request) -> Asked:
        """The request with the recorded ids."""
        sent: dict[bytes, bytes] = {}

        def recorded(found: re.Match[bytes]) -> bytes:
            if found[0] not in self._recorded:
                return found[0]
            new, old = self._recorded[found[0]]
            sent[old] = new
            return old[len(new) - _CHARS :]  # its kind stands before it

        if not self._recorded:
            return Asked(request, sent)
        target, body = (_CHANCE.sub(recorded, data) for data in (request.target, request.body))
        return Asked(request._replace(target=target, body=body), sent)

    def over(self, script: Script, place: int = 0, conversation: int = 0, asked: Asked = _NOTHING) -> Script:
        """The answer of the stream at this place, with ids that only this serving has. A GET makes nothing, so what it
        names and was given out keeps that name; what is made has a new one, also where the recording has one twice.
        """
        self._servings += 1
        whole = b"".join(step.what for step in script.steps if isinstance(step.what, bytes))
        own, makes = _ids(whole), asked.request.method != b"GET"
        edits: list[tuple[int, int, bytes]] = []
        for found in _MEMBER.finditer(whole):
            old = found[1]
            known, by = self._latest.get((conversation, old), (b"", place))
            if old in asked.sent:
                edits.append((*found.span(1), asked.sent[old]))
            elif known and by != place and not (makes and old in own):
                edits.append((*found.span(1), known))
            elif old in own:
                edits.append((*found.span(1), self._given(old, place, conversation)))
        return _edited(script, edits, len(whole))

    def _given(self, old: bytes, place: int, conversation: int) -> bytes:
        new = _fresh(old, self._servings)
        self._recorded[new[-_CHARS:]] = new, old
        self._latest[conversation, old] = new, place
        if len(self._recorded) > _KNOWN_MAX:
            del self._recorded[next(iter(self._recorded))]
        return new


def _edited(script: Script, edits: Sequence[tuple[int, int, bytes]], before: int) -> Script:
    if not edits:
        return script
    steps = list(_steps(script.steps, edits))
    size = sum(len(step.what) for step in steps if isinstance(step.what, bytes))
    headers = [
        (name, b"%d" % (int(value) + size - before) if name.lower() == b"content-length" else value)
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


def _fresh(old: bytes, serving: int) -> bytes:
    kind = _KIND.match(old)
    chance = hashlib.shake_256(b"%d:%b" % (serving, old)).digest(_CHARS)
    return (kind[0] if kind else b"") + bytes(_LETTERS[number % len(_LETTERS)] for number in chance)
