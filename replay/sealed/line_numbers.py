"""Which line of its file each record of a recording stands on, so that a person finds it"""

from collections.abc import Mapping, Sequence

from wiretape.events.tape.record import Record

from .sealed import MARK, decode

__all__ = ["lines_of"]


def lines_of(data: bytes, streams: Sequence[Sequence[Record]]) -> list[Mapping[int, int]]:
    """Of each stream, record number to line, from 1."""
    if not data.startswith(MARK):
        return [{record.n: record.n + 1 for record in records} for records in streams]
    lines = decode(data, verify=False).lines
    return [
        dict(zip((record.n for record in records), places, strict=True))
        for records, places in zip(streams, lines, strict=True)
    ]
