"""Edits of JSON text in place: what is not edited keeps its very bytes.

Re-serialising would lose big integers and repeated keys and costs more, so a repair names members to drop, set or
rename, and everything else of the payload is copied. Streams ask for the same edits on frame after frame in which only
one string differs; the places are then known from the frame before (`_Template`).
"""

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Final, NamedTuple

from .json_text import Member, dumps, elements, members

_QUOTE: Final = 34

__all__ = ["Action", "Edit", "Op", "Path", "Splicer", "apply", "locate"]

Path = tuple[str | int, ...]


class Action(Enum):
    """What happens to a member."""

    DROP = "drop"
    #: Replace the value, or insert the member at the front of its object.
    SET = "set"
    #: `value` is the new key, without quotes.
    RENAME = "rename"
    #: The value's own text becomes a JSON string: 12 -> "12", {"a":1} -> "{\"a\":1}".
    QUOTE = "quote"
    #: The element at `path` leaves its array.
    OMIT = "omit"


class Op(NamedTuple):
    """One named change of one member of the object at `path` (or of the element at `path` itself)."""

    repair: str
    path: Path
    action: Action
    key: str = ""
    value: bytes = b""


class Edit(NamedTuple):
    """`payload[start:end]` becomes `new`."""

    repair: str
    start: int
    end: int
    new: bytes


def apply(payload: bytes, edits: Sequence[Edit]) -> bytes:
    """The payload with the edits made; they are in order and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        pieces.append(payload[position : edit.start])
        pieces.append(edit.new)
        position = edit.end
    pieces.append(payload[position:])
    return b"".join(pieces)


def locate(payload: bytes, ops: Sequence[Op]) -> list[Edit]:
    """The edits that carry out `ops`, in order of place."""
    return _locate(payload, ops, _Places(payload))


def _locate(payload: bytes, ops: Sequence[Op], places: "_Places") -> list[Edit]:
    omitted = {op.path: op.repair for op in ops if op.action is Action.OMIT}
    edits: list[Edit] = []
    for array in dict.fromkeys(path[:-1] for path in omitted):
        spans = places.elements(array)
        edits += _removals(spans, [omitted.get((*array, number)) for number in range(len(spans))])
    by_object: dict[Path, list[Op]] = {}
    for op in ops:
        if op.action is not Action.OMIT:
            by_object.setdefault(op.path, []).append(op)
    for path, changes in by_object.items():
        edits += _edits_of_object(payload, places, path, changes)
    return sorted(edits, key=lambda edit: (edit.start, edit.end))


class _Places:
    """Where the objects and arrays of one payload stand, each read once."""

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._members: dict[Path, list[Member]] = {}
        self._elements: dict[Path, list[tuple[int, int]]] = {}

    def start(self, path: Path) -> int:
        if not path:
            return self._payload.index(b"{")
        parent, last = path[:-1], path[-1]
        if isinstance(last, int):
            return self.elements(parent)[last][0]
        # Of repeated keys the last one counts, as in every JSON reader that we know.
        return [member for member in self.members(parent) if member.key == last][-1].value

    def elements(self, path: Path) -> list[tuple[int, int]]:
        if path not in self._elements:
            self._elements[path] = elements(self._payload, self.start(path))
        return self._elements[path]

    def members(self, path: Path) -> list[Member]:
        if path not in self._members:
            self._members[path] = members(self._payload, self.start(path))
        return self._members[path]


def _removals(spans: Sequence[tuple[int, int]], repairs: Sequence[str | None]) -> list[Edit]:
    """Each removed part takes one comma along: the one before it, or behind it while nothing kept comes before."""
    edits: list[Edit] = []
    kept_before = False
    for place, ((start, end), repair) in enumerate(zip(spans, repairs, strict=True)):
        if repair is None:
            kept_before = True
        elif kept_before:
            edits.append(Edit(repair, spans[place - 1][1], end, b""))
        else:
            edits.append(Edit(repair, start, spans[place + 1][0] if place + 1 < len(spans) else end, b""))
    return edits


def _edits_of_object(payload: bytes, places: _Places, path: Path, ops: list[Op]) -> list[Edit]:
    present = places.members(path)
    dropped = {op.key: op.repair for op in ops if op.action is Action.DROP}
    repairs = [dropped.get(member.key) for member in present]
    edits = _removals([(member.start, member.end) for member in present], repairs)
    inserted: list[Op] = []
    for op in ops:
        target = next((member for member in reversed(present) if member.key == op.key), None)
        if op.action is Action.DROP:
            continue
        if target is None:
            assert op.action is Action.SET, f"{op.key!r} is not there: {op.repair} cannot {op.action.value} it"
            inserted.append(op)
        elif op.action is Action.RENAME:
            edits.append(Edit(op.repair, target.start, target.key_end, dumps(op.value.decode())))
        else:
            text = payload[target.value : target.end]
            new = op.value if op.action is Action.SET else dumps(text.decode())
            edits.append(Edit(op.repair, target.value, target.end, new))
    at = places.start(path) + 1
    kept = None in repairs
    for place, op in enumerate(inserted):
        comma = b"," if kept or place + 1 < len(inserted) else b""
        edits.append(Edit(op.repair, at, at, b"%b:%b%b" % (dumps(op.key), op.value, comma)))
    return edits


class _Template(NamedTuple):
    """A payload whose ops are located, as the text between the strings that may change: as it came, and as it goes."""

    ops: Sequence[Op]
    literals: list[bytes]
    new: list[bytes]


#: The inside of a JSON string: what stands between two equal literals is that one string, so no key or bracket moved.
_INSIDE_STRING: Final = re.compile(rb'(?:[^"\\]++|\\.)*+')


class Splicer:
    """Carries out ops on frame after frame of one stream."""

    __slots__ = ("_holes", "_template")

    def __init__(self, holes: Sequence[tuple[Path, str]]) -> None:
        """`holes` are the members (path, key) whose string changes from frame to frame."""
        self._holes = holes
        self._template: _Template | None = None

    def apply(self, payload: bytes, ops: Sequence[Op]) -> bytes:
        """The payload with the ops carried out."""
        if self._template is not None and self._template.ops == ops and (new := self.again(payload)) is not None:
            return new
        places = _Places(payload)
        edits = _locate(payload, ops, places)
        self._template = self._learn(payload, ops, edits, places)
        return apply(payload, edits)

    @property
    def ops(self) -> Sequence[Op]:
        """The ops that `again` carries out."""
        return self._template.ops if self._template is not None else ()

    def again(self, payload: bytes) -> bytes | None:
        """The same ops as last time, if this payload differs from that one only inside the strings that may change."""
        template = self._template
        if template is None or not payload.startswith(template.literals[0]):
            return None
        position = len(template.literals[0])
        parts = [template.new[0]]
        for literal, new in zip(template.literals[1:], template.new[1:], strict=True):
            inside = _INSIDE_STRING.match(payload, position)
            end = inside.end() if inside else position
            if not payload.startswith(literal, end):
                return None
            parts += (payload[position:end], new)
            position = end + len(literal)
        return b"".join(parts) if position == len(payload) else None

    def _learn(self, payload: bytes, ops: Sequence[Op], edits: list[Edit], places: "_Places") -> _Template | None:
        holes = [
            (start, end)
            for start, end in sorted(self._holes_of(payload, places))
            if all(edit.end <= start or edit.start >= end for edit in edits)
        ]
        if not holes:
            return None
        literals: list[bytes] = []
        new: list[bytes] = []
        begin = 0
        for end, following in [*holes, (len(payload), len(payload))]:
            literal = payload[begin:end]
            inside = [edit for edit in edits if begin <= edit.start and edit.end <= end]
            literals.append(literal)
            new.append(
                apply(literal, [edit._replace(start=edit.start - begin, end=edit.end - begin) for edit in inside])
            )
            begin = following
        return _Template(ops, literals, new)

    def _holes_of(self, payload: bytes, places: "_Places") -> Iterator[tuple[int, int]]:
        """The insides of the strings that may change."""
        for path, key in self._holes:
            try:
                hole = next((member for member in reversed(places.members(path)) if member.key == key), None)
            except (IndexError, AssertionError):
                continue  # this payload has no such object
            if hole is not None and payload[hole.value] == _QUOTE:
                yield hole.value + 1, hole.end - 1
