"""Replace ids from recorded responses with those of today's responses in later requests.

Two ids correspond if they have the same kind of payload, path, type and name, and the same number among those.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_object, dumps, is_list, is_object, parse
from wiretape.events.tape.record import Record

from ..playback.player import attempts_of

__all__ = ["CarriedIds", "LostIdError"]

#: Members whose value is an id, besides those that end with `_id` or `_ids`.
_ID_NAMES: Final = frozenset({"container", "conversation", "id", "toolCallId"})
#: Members that a model, a user or a tool fills.
_CONTENT: Final = frozenset({"args", "arguments", "input_schema", "metadata", "parameters", "schema"})
#: Ids as sealing renames them, such as `resp_1`; no provider knows them.
_RENAMED: Final = re.compile(r"[a-z]{2,8}[-_]\d{1,6}")
#: Members that name an object that the upstream must know.
_STORED: Final = frozenset({"file_id", "input_file_id", "previous_response_id", "thread_id"})
_PATH_PARTS: Final = re.compile(r"([/?&=])")

_Place = tuple[tuple[str, ...], int]


class LostIdError(Exception):
    """A request names an id that has no counterpart today."""


class CarriedIds:
    """The ids of the responses so far, recorded and live."""

    def __init__(self) -> None:
        #: The live id for each recorded one; None if the live response has none in its place.
        self._live: dict[str, str | None] = {}

    def learn(self, recorded: Sequence[Record], live: Sequence[Record]) -> None:
        """Pair the ids of one response; both must have decoded bodies."""
        then, now = _ids_by_place(recorded), _ids_by_place(live)
        for place, name in then.items():
            same = name if name in now.values() else now.get(place)
            if same is not None or name not in self._live:
                self._live[name] = same

    def path(self, path: str) -> str:
        """Return the path to send today; raise LostIdError."""
        parts = _PATH_PARTS.split(path)
        return "".join(self._replaced(part, stored=True) if part in self._live else part for part in parts)

    def body(self, body: bytes) -> bytes:
        """Return the body to send today, unchanged if no id changes; raise LostIdError."""
        value = parse(body)
        if value is ABSENT:
            return body
        members = list(_members(value))
        ids = [id_ for _, _, id_ in members]
        changed = False
        for holder, at, id_ in members:
            # A reference, or a result whose call is not part of the same request.
            referenced = at == "id" and holder.get("type") == "item_reference"
            alone = at == "call_id" and ids.count(id_) == 1
            new = self._replaced(id_, stored=at in _STORED or referenced or alone)
            changed = changed or new != id_
            holder[at] = new
        return dumps(value) if changed else body

    def _replaced(self, name: str, *, stored: bool) -> str:
        if name not in self._live:
            if stored and _RENAMED.fullmatch(name):
                raise LostIdError(f"it names {name}, which no response on the tape gave out")
            return name
        live = self._live[name]
        if live is None and stored:
            raise LostIdError(f"it names {name}, and the live response has no id in its place")
        return name if live is None else live


def _members(value: Any) -> Iterator[tuple[Any, str | int, str]]:
    """Yield the holder, the key and the id of each id in a request."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if is_list(value):
            waiting += value
        elif is_object(value):
            for name, each in value.items():
                if name in _CONTENT or (name == "input" and "type" in value):
                    continue
                if isinstance(each, str) and (name in _ID_NAMES or name.endswith("_id")):
                    yield value, name, each
                elif is_list(each) and name.endswith("_ids"):
                    yield from ((each, at, one) for at, one in enumerate(each) if isinstance(one, str))
                else:
                    waiting.append(each)


def _ids_by_place(records: Sequence[Record]) -> dict[_Place, str]:
    """Return the ids of a response: each counts once for a place."""
    found: dict[_Place, str] = {}
    numbers: dict[tuple[str, ...], int] = {}
    seen: set[tuple[tuple[str, ...], str]] = set()
    for kind, value in _payloads(records):
        for where, name in _ids(value, kind):
            if (where, name) not in seen:
                seen.add((where, name))
                numbers[where] = numbers.get(where, 0) + 1
                found[where, numbers[where]] = name
    return found


def _payloads(records: Sequence[Record]) -> Iterator[tuple[str, Any]]:
    body: list[bytes] = []
    for record in attempts_of(records)[-1]:
        if record.kind == "frame":
            frame = record.frame()
            value = parse(frame.payload) if frame.payload else ABSENT
            kind = as_object(value).get("type")
            yield (kind if isinstance(kind, str) else frame.event.decode("utf-8", "replace")), value
        elif record.kind == "body":
            body.append(record.raw or b"")
    whole = b"".join(body)
    value = parse(whole)
    yield from [("", value)] if value is not ABSENT else (("", parse(line)) for line in whole.splitlines())


def _ids(value: Any, kind: str) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield path and value of each id, in the order of the text."""
    waiting: list[tuple[Any, tuple[str, ...]]] = [(value, (kind,))]
    while waiting:
        value, path = waiting.pop()
        if is_list(value):
            waiting += [(each, path) for each in reversed(value)]
        elif is_object(value):
            function = as_object(value.get("function"))
            sort = tuple(str(word) for word in (value.get("type"), value.get("name") or function.get("name")) if word)
            for name, each in value.items():
                if isinstance(each, str) and each and (name in _ID_NAMES or name.endswith("_id")):
                    yield (*path, *sort, name), each
            skipped = {*_CONTENT, "input"}
            waiting += [(each, (*path, name)) for name, each in reversed(value.items()) if name not in skipped]
