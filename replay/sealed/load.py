"""Read a recording from a file of either form: a live tape or a sealed one"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Reader

from .blobs import read
from .sealed import MARK, decode, spoilt

__all__ = ["Recording", "lines_of", "load", "parse"]


class Recording(NamedTuple):
    """A live tape's stream, or a sealed tape's conversation. A live tape has an empty header."""

    header: Mapping[str, Any]
    streams: Sequence[Sequence[Record]]


def load(path: Path, *, verify: bool = True) -> Recording:
    """Read a file with its blobs. Raises TapeError, which names the file and the place."""
    try:
        return parse(read(path), verify=verify)
    except TapeError as error:
        raise TapeError(f"{path}: {error}") from error


def parse(data: bytes, *, verify: bool = True) -> Recording:
    """Read the bytes of a file. A live tape may still grow: it is read up to its last complete record.

    A sealed tape has as many streams as its header states: one cut short after a stream looks complete otherwise.
    """
    if data.startswith(MARK):
        sealed = decode(data, verify=verify)
        stated, found = sealed.header.get("streams"), len(sealed.streams)
        if type(stated) is int and stated != found:
            raise TapeError(
                f"line 1: the header states {stated} streams, and the file has {found}: was it cut short? Record it "
                f'again, or, if streams were taken out or added by hand, write "streams":{found} there'
            )
        return Recording(sealed.header, sealed.streams)
    if reason := spoilt(data):
        raise TapeError(reason)
    reader = Reader()
    records = reader.feed(data)
    if reader.damage:
        at, reason = reader.damage[0]
        raise TapeError(f"byte {at}: {reason}")
    if not records:
        raise TapeError("no recording: neither a live tape nor a sealed one")
    return Recording(NO_KEYS, [records])


def lines_of(data: bytes, streams: Sequence[Sequence[Record]]) -> list[Mapping[int, int]]:
    """Return the line of each record of each stream, from 1, by the record's number."""
    if not data.startswith(MARK):
        return [{record.n: record.n + 1 for record in records} for records in streams]
    lines = decode(data, verify=False).lines
    return [
        dict(zip((record.n for record in records), places, strict=True))
        for records, places in zip(streams, lines, strict=True)
    ]
