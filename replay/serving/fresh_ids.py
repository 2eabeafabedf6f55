"""Give a response new ids each time it is served, to catch clients that cache by id.

Ids depend only on the order of requests, so a run can be repeated. A client may send a new id back: the request is
matched with the recorded id, and the response names the new one again.
"""

import hashlib
import re
from collections.abc import Mapping
from typing import Any, Final

from wiretape.events.core.json_text import is_list, is_object, parse
from wiretape.events.wire.sse import Decoder

from ..matching.key import IDS
from ..playback.script import Request, Script, Splice, spliced

__all__ = ["FreshIds"]

_NAMES: Final = frozenset({*IDS, "generation_id", "message_id", "response_id", "toolCallId"})
#: A member that may be an id; inside a string its quotes would be escaped.
_MEMBER: Final = re.compile(rb'"(?:[a-z]\w*)?(?:id|Id)"\s*:\s*"([^"\\]+)"')
#: The prefix of an id, which stays: `chatcmpl-`, `call_`, `toolu_`.
_PREFIX: Final = re.compile(rb"[a-z]{1,12}[_-]")
#: Random characters of an id, as many as in OpenAI's call ids.
_CHARS: Final = 24
_LETTERS: Final = b"abcdefghijklmnopqrstuvwxyz0123456789"
_RANDOM: Final = re.compile(rb"(?<![a-z0-9])[a-z0-9]{%d}(?![a-z0-9])" % _CHARS)
#: Ids remembered; the oldest are forgotten first.
_KNOWN_MAX: Final = 200_000
#: Members that a model or a tool fills.
_CONTENT: Final = frozenset({"arguments", "input", "metadata", "tools"})


class FreshIds:
    """The ids that one server has given out."""

    def __init__(self, served: int = 0) -> None:
        self._served = served
        #: By the random part of each new id: the new and the recorded one.
        self._recorded: dict[bytes, tuple[bytes, bytes]] = {}
        #: For each conversation and recorded id: the latest new one, and the stream that gave it out.
        self._latest: dict[tuple[int, bytes], tuple[bytes, int]] = {}

    def with_recorded_ids(self, request: Request) -> tuple[Request, dict[bytes, bytes]]:
        """Return the request with recorded ids, and the new id that the client sent for each."""
        sent: dict[bytes, bytes] = {}

        def recorded(found: re.Match[bytes]) -> bytes:
            if found[0] not in self._recorded:
                return found[0]
            new, old = self._recorded[found[0]]
            sent[old] = new
            return old[len(new) - _CHARS :]  # the prefix precedes the match

        if not self._recorded:
            return request, sent
        target, body = (_RANDOM.sub(recorded, data) for data in (request.target, request.body))
        return request._replace(target=target, body=body), sent

    def over(
        self,
        script: Script,
        place: int = 0,
        conversation: int = 0,
        sent: Mapping[bytes, bytes] | None = None,
        *,
        makes: bool = True,
    ) -> Script:
        """Return the response of a stream with new ids. A GET makes no object, so known ids keep their new name."""
        self._served += 1
        body = script.body
        own = _ids(body)
        edits: list[Splice] = []
        for found in _MEMBER.finditer(body):
            old = found[1]
            known, by = self._latest.get((conversation, old), (b"", place))
            if sent and old in sent:
                edits.append((*found.span(1), sent[old]))
            elif known and by != place and not (makes and old in own):
                edits.append((*found.span(1), known))
            elif old in own:
                edits.append((*found.span(1), self._new(old, place, conversation)))
        return spliced(script, edits) if edits else script

    def _new(self, old: bytes, place: int, conversation: int) -> bytes:
        prefix = _PREFIX.match(old)
        random = hashlib.shake_256(b"%d:%b" % (self._served, old)).digest(_CHARS)
        new = (prefix[0] if prefix else b"") + bytes(_LETTERS[number % len(_LETTERS)] for number in random)
        self._recorded[new[-_CHARS:]] = new, old
        self._latest[conversation, old] = new, place
        if len(self._recorded) > _KNOWN_MAX:
            del self._recorded[next(iter(self._recorded))]
        return new


def _ids(data: bytes) -> set[bytes]:
    """Return the ids in an event stream, or in a JSON body; the id of a model is its name and stays."""
    found: set[bytes] = set()
    payloads = [frame.payload for frame in Decoder().feed(data) if frame.payload]
    waiting: list[Any] = [parse(payload) for payload in payloads or [data]]
    while waiting:
        value = waiting.pop()
        if is_list(value):
            waiting += value
        elif is_object(value):
            for name, each in value.items():
                if name in _NAMES and isinstance(each, str):
                    if value.get("object") != "model":
                        found.add(each.encode("utf-8", "surrogatepass"))
                elif name not in _CONTENT:
                    waiting.append(each)
    return found
