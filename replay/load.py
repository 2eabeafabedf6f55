"""A recording from a file, whatever form it has: a live tape or a sealed one"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from wiretape.events.errors import TapeError
from wiretape.events.record import NO_KEYS, Record
from wiretape.events.tape import Reader

from .beside import read
from .sealed import MARK, decode, spoilt

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
    """From the bytes of a file. A live tape may still run: it is whole up to its last record."""
    if data.startswith(MARK):
        sealed = decode(data, verify=verify)
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
