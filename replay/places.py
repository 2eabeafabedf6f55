"""Which line of its file each record of a recording stands on, so that a person finds it"""

from collections.abc import Mapping, Sequence
from typing import Final

from wiretape.events.json_text import as_object, parse
from wiretape.events.record import Record

from .sealed import MARK

__all__ = ["lines_of"]

#: Lines of a sealed tape that are no records.
_NO_RECORDS: Final = frozenset({"clock", "fold", "item", "message", "tool"})
#: Records that have no line of their own there.
_WITHOUT_LINE: Final = frozenset({"commit", "gone", "keepalive"})


def lines_of(data: bytes, streams: Sequence[Sequence[Record]]) -> list[Mapping[int, int]]:
    """Of each stream, record number to line, from 1; nothing where the file is not laid out as expected."""
    if not data.startswith(MARK):
        return [{record.n: record.n + 1 for record in records} for records in streams]
    numbers: list[list[int]] = [[]]
    for number, line in enumerate(data.splitlines()[1:], 2):
        kind = as_object(parse(line)).get("k")
        if kind == "fold":
            numbers.append([])
        elif kind not in _NO_RECORDS:
            numbers[-1].append(number)
    places: list[Mapping[int, int]] = []
    for records, lines in zip(streams, numbers, strict=False):
        with_line = [record.n for record in records if record.kind not in _WITHOUT_LINE]
        places.append(dict(zip(with_line, lines, strict=True)) if len(with_line) == len(lines) else {})
    return places
