"""Ids that recorded answers gave out, in later requests as the live answers give them, by place

Which stands in whose place is told by the kind of the payload, the path of the member, the type and name of what it is
the id of, and its number among those.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_object, dumps, is_list, is_object, parse
from wiretape.events.tape.record import Record

from ..compare.bytes import last_attempt

__all__ = ["Carried", "LostId"]

#: Members whose value is an id, besides all that end with `_id` or `_ids`.
_NAMES: Final = frozenset({"container", "conversation", "id", "toolCallId"})
#: What a model, a user or a tool wrote, whatever its members are called.
_SAID: Final = frozenset({"args", "arguments", "input_schema", "metadata", "parameters", "schema"})
#: As sealing renames them: `resp_1`, `chatcmpl-2`. No provider knows such a one.
_RENAMED: Final = re.compile(r"[a-z]{2,8}[-_]\d{1,6}")
#: Members that name what an upstream keeps, so that it must know the id.
_KEPT: Final = frozenset({"file_id", "input_file_id", "previous_response_id", "thread_id"})
_PARTS: Final = re.compile(r"([/?&=])")


class LostId(Exception):  # noqa: N818 - told as a TapeError, or by the difference that is its reason
    """An id that a request names, and for which there is none today."""


class _Place(NamedTuple):
    #: Of the payload, path, type and name.
    where: tuple[str, ...]
    #: Among all ids in such a place.
    number: int


class Carried:
    """What the answers gave out so far, then and now."""

    def __init__(self) -> None:
        #: None where today's answer has none in that place.
        self._now: dict[str, str | None] = {}

    def learn(self, recorded: Sequence[Record], live: Sequence[Record]) -> None:
        """Of one answer, both with plain bodies."""
        then, now = _given(recorded), _given(live)
        by_place = {place: name for name, places in now.items() for place in places}
        for name, places in then.items():
            same = name if name in now else next((by_place[place] for place in places if place in by_place), None)
            if same is not None or name not in self._now:
                self._now[name] = same

    def path(self, path: str) -> str:
        """The path of a request that is sent today; raises LostId."""
        return "".join(self._of(part, kept=True) if part in self._now else part for part in _PARTS.split(path))

    def body(self, body: bytes) -> bytes:
        """The body of it; the very bytes where no id changes. Raises LostId."""
        value = parse(body)
        if value is ABSENT:
            return body
        members = list(_members(value))
        changed = False
        for holder, at, id_ in members:
            name = at if isinstance(at, str) else ""
            kept = name in _KEPT or (name == "id" and holder.get("type") == "item_reference")
            # Of a call that stands in an answer before, and not in the request itself.
            lone = name == "call_id" and sum(each == id_ for _, _, each in members) == 1
            new = self._of(id_, kept=kept or lone)
            changed = changed or new != id_
            holder[at] = new
        return dumps(value) if changed else body

    def _of(self, name: str, *, kept: bool) -> str:
        if name not in self._now:
            if kept and _RENAMED.fullmatch(name):
                raise LostId(f"it names {name}, which no answer on the tape gave out")
            return name
        now = self._now[name]
        if now is None and kept:
            raise LostId(f"it names {name}, and the live answer has no id in the place of that one")
        return name if now is None else now


def _members(value: Any) -> Iterator[tuple[Any, str | int, str]]:
    """Each id of a request: what holds it, where, and the id."""
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if is_list(value):
            waiting += value
        elif is_object(value):
            for name, each in value.items():
                if name in _SAID or (name == "input" and "type" in value):
                    continue
                if isinstance(each, str) and (name in _NAMES or name.endswith("_id")):
                    yield value, name, each
                elif is_list(each) and name.endswith("_ids"):
                    yield from ((each, at, one) for at, one in enumerate(each) if isinstance(one, str))
                else:
                    waiting.append(each)


def _given(records: Sequence[Record]) -> dict[str, list[_Place]]:
    """The ids of an answer, each with its places."""
    found: dict[str, list[_Place]] = {}
    counts: dict[tuple[str, ...], int] = {}
    seen: set[tuple[tuple[str, ...], str]] = set()
    for kind, value in _payloads(records):
        for where, name in _ids(value, kind):
            if (where, name) not in seen:
                seen.add((where, name))
                counts[where] = counts.get(where, 0) + 1
                found.setdefault(name, []).append(_Place(where, counts[where]))
    return found


def _payloads(records: Sequence[Record]) -> Iterator[tuple[str, Any]]:
    body: list[bytes] = []
    for record in last_attempt(records):
        if record.kind == "frame":
            frame = record.frame()
            value = parse(frame.payload) if frame.payload else ABSENT
            kind = as_object(value).get("type")
            yield (kind if isinstance(kind, str) else frame.event.decode("utf-8", "replace")), value
        elif record.kind == "body":
            body.append(record.raw or b"")
    whole = b"".join(body)
    value = parse(whole)
    if value is not ABSENT:
        yield "", value
    else:
        yield from (("", parse(line)) for line in whole.splitlines())


def _ids(value: Any, kind: str) -> Iterator[tuple[tuple[str, ...], str]]:
    waiting: list[tuple[Any, tuple[str, ...]]] = [(value, (kind,))]
    while waiting:
        value, path = waiting.pop()
        if is_list(value):
            waiting += [(each, path) for each in reversed(value)]
        elif is_object(value):
            function = as_object(value.get("function"))
            sort = tuple(str(said) for said in (value.get("type"), value.get("name") or function.get("name")) if said)
            for name, each in value.items():
                if isinstance(each, str) and each and (name in _NAMES or name.endswith("_id")):
                    yield (*path, *sort, name), each
            waiting += [
                (each, (*path, name)) for name, each in reversed(value.items()) if name not in _SAID and name != "input"
            ]
