"""Edits of JSON text in place: what is not edited keeps its very bytes.

For request bodies of megabytes, which cost too much to parse and write again for one member. (Frames of a stream are
edited parsed: emission/frames.py.)
"""

import json
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from .json_text import ABSENT, STRING_OR_BRACKET, dumps

__all__ = ["Edit", "Member", "Op", "Path", "Places", "apply", "locate", "members"]

#: The keys and places that lead to a value.
Path = tuple[str | int, ...]

_STRING: Final = rb'"(?:[^"\\]++|\\.)*+"'
_VALUE: Final = rb"\s*+(" + _STRING + rb'|[^\s"{\[,}\]]++|[{\[])'
_MEMBER: Final = re.compile(rb"\s*+(" + _STRING + rb")\s*+:" + _VALUE)
_ELEMENT: Final = re.compile(rb"()" + _VALUE)
_NEXT: Final = re.compile(rb"\s*+[,}\]]")


class Op(NamedTuple):
    """One change: the member or element at `path` gets this value (a new member comes first), or is removed."""

    path: Path
    value: bytes | None


class Edit(NamedTuple):
    """`payload[start:end]` becomes `new`."""

    start: int
    end: int
    new: bytes


class Member(NamedTuple):
    """A member of an object or an element of an array: where it and its value start, and where both end."""

    key: str | int
    start: int
    value: int
    end: int


def apply(payload: bytes, edits: Sequence[Edit]) -> bytes:
    """Return the payload with the edits made; they are in order and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        pieces += payload[position : edit.start], edit.new
        position = edit.end
    return b"".join([*pieces, payload[position:]])


def members(text: bytes, at: int) -> list[Member]:
    """Return what the object or array that opens at `at` holds, repeated keys included. The text must be JSON."""
    found: list[Member] = []
    pattern = _MEMBER if text[at : at + 1] == b"{" else _ELEMENT
    position = at + 1
    while match := pattern.match(text, position):
        start, end = match.span(2)
        if text[start] in b"{[":
            depth = 0
            for token in STRING_OR_BRACKET.finditer(text, start):
                end = token.end()
                depth += (text[end - 1] in b"{[") - (text[end - 1] in b"}]")
                if not depth:
                    break
        following = _NEXT.match(text, end)
        assert following is not None, "members reads only what parse accepted"
        position = following.end()
        quoted = match[1]
        if quoted:
            key = json.loads(quoted) if b"\\" in quoted else quoted[1:-1].decode()
            found.append(Member(key, match.start(1), start, end))
        else:
            found.append(Member(len(found), start, start, end))
    return found


class Places:
    """Where the values of one JSON text are; each object and array is read once."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._members: dict[Path, list[Member]] = {}

    def members(self, path: Path) -> list[Member]:
        if path not in self._members:
            self._members[path] = members(self._text, self.start(path))
        return self._members[path]

    def start(self, path: Path) -> int:
        return self._member(path).value if path else self._text.index(b"{")

    def text(self, path: Path) -> bytes:
        """Return the text of a value."""
        member = self._member(path)
        return self._text[member.value : member.end]

    def _member(self, path: Path) -> Member:
        # Of repeated keys the last one counts, as in every JSON reader that we know.
        return next(member for member in reversed(self.members(path[:-1])) if member.key == path[-1])


def locate(payload: bytes, ops: Sequence[Op]) -> list[Edit]:
    """Return the edits that carry out `ops`, in order of place. A removal takes every repetition of a key."""
    places = Places(payload)
    containers: dict[Path, dict[str | int, bytes | None]] = {}
    for op in ops:
        containers.setdefault(op.path[:-1], {})[op.path[-1]] = op.value
    edits: list[Edit] = []
    for path, wanted in containers.items():
        present = places.members(path)
        last = {member.key: member for member in present}
        kept = False
        for place, member in enumerate(present):
            new = wanted.get(member.key, ABSENT)
            if new is None:
                # One comma goes with it: the one before it or, if nothing is before it, the one after it.
                start = present[place - 1].end if kept else member.start
                after = present[place + 1].start if place + 1 < len(present) and not kept else member.end
                edits.append(Edit(start, after, b""))
                continue
            kept = True
            if new is not ABSENT and member is last[member.key]:
                edits.append(Edit(member.value, member.end, new))
        at = places.start(path) + 1
        inserted = [(key, value) for key, value in wanted.items() if value is not None and key not in last]
        for place, (key, value) in enumerate(inserted):
            comma = b"," if kept or place + 1 < len(inserted) else b""
            edits.append(Edit(at, at, b"%b:%b%b" % (dumps(key), value, comma)))
    return sorted(edits, key=lambda edit: (edit.start, edit.end))
