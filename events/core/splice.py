"""Edits of JSON text in place: what is not edited keeps its very bytes.

For request bodies of megabytes, which cost too much to parse and write again for one member. (Frames of a stream are
edited parsed: emission/frames.py.)
"""

from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple

from .json_text import Member, dumps, elements, members

__all__ = ["Action", "Edit", "Op", "Path", "Places", "apply", "locate"]

Path = tuple[str | int, ...]


class Action(Enum):
    """What happens to a member."""

    DROP = "drop"
    #: Replace the value, or insert the member at the front of its object.
    SET = "set"
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
    """Return the payload with the edits made; they are in order and do not overlap."""
    pieces: list[bytes] = []
    position = 0
    for edit in edits:
        pieces.append(payload[position : edit.start])
        pieces.append(edit.new)
        position = edit.end
    pieces.append(payload[position:])
    return b"".join(pieces)


def locate(payload: bytes, ops: Sequence[Op]) -> list[Edit]:
    """Return the edits that carry out `ops`, in order of place."""
    places = Places(payload)
    containers: dict[Path, list[Op]] = {}
    for op in ops:
        containers.setdefault(op.path[:-1] if op.action is Action.OMIT else op.path, []).append(op)
    edits: list[Edit] = []
    for path, changes in containers.items():
        if changes[0].action is Action.OMIT:
            repairs = {op.path[-1]: op.repair for op in changes}
            spans = places.elements(path)
            edits += _removals(spans, [repairs.get(number) for number in range(len(spans))])
        else:
            edits += _edits_of_object(places, path, changes)
    return sorted(edits, key=lambda edit: (edit.start, edit.end))


class Places:
    """Where the values of one JSON text are; each object and array is read once."""

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

    def text(self, path: Path, key: str) -> bytes:
        """Return the text of a member of the object at `path`."""
        member = [member for member in self.members(path) if member.key == key][-1]
        return self._payload[member.value : member.end]

    def elements(self, path: Path) -> list[tuple[int, int]]:
        if path not in self._elements:
            self._elements[path] = elements(self._payload, self.start(path))
        return self._elements[path]

    def members(self, path: Path) -> list[Member]:
        if path not in self._members:
            self._members[path] = members(self._payload, self.start(path))
        return self._members[path]


def _removals(spans: Sequence[tuple[int, int]], repairs: Sequence[str | None]) -> list[Edit]:
    """Return edits that remove parts, each with one comma: the one before it or, if nothing precedes, after it."""
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


def _edits_of_object(places: Places, path: Path, ops: list[Op]) -> list[Edit]:
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
            inserted.append(op)
        else:
            edits.append(Edit(op.repair, target.value, target.end, op.value))
    at = places.start(path) + 1
    kept = None in repairs
    for place, op in enumerate(inserted):
        comma = b"," if kept or place + 1 < len(inserted) else b""
        edits.append(Edit(op.repair, at, at, b"%b:%b%b" % (dumps(op.key), op.value, comma)))
    return edits
