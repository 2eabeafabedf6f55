"""A recording from a file, whatever form it has: a live tape or a sealed one"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import Reader

from .blobs import read
from .sealed import MARK, Sealed, decode, spoilt

__all__ = ["Recording", "load", "parse"]


class Recording(NamedTuple):
    """What was recorded: of a live tape one stream, of a sealed one a conversation. `header` is empty of a live one."""

    header: Mapping[str, Any]
    streams: Sequence[Sequence[Record]]


def load(path: Path, *, verify: bool = True) -> Recording:
    """With what lies beside it. Raises TapeError, which names the file and the place."""
    try:
        return parse(read(path), verify=verify)
    except TapeError as error:
        raise TapeError(f"{path}: {error}") from error


def parse(data: bytes, *, verify: bool = True) -> Recording:
    """From the bytes of a file. A live tape may still run: it is whole up to its last record. A sealed one has as many
    streams as its header says, if that says a number; where it is to be sealed anew too, which would hide the loss.
    """
    if data.startswith(MARK):
        sealed = decode(data, verify=verify)
        if reason := _missing(sealed):
            raise TapeError(reason)
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


def _missing(sealed: Sealed) -> str:
    """Why it is not whole. A file that was cut short behind a stream's fold line looks whole otherwise."""
    said, found = sealed.header.get("streams"), len(sealed.streams)
    if type(said) is not int or said == found:
        return ""
    there = "is 1" if found == 1 else f"are {found}"
    how = f'record it anew, or, where streams were taken out or added by hand, say "streams":{found} there'
    return f"line 1: the header says {said} streams, and there {there}: was the file cut short? {how}"
