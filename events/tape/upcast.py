"""Older tape format to the next, one pure function a step, in a table."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from .record import Record

__all__ = ["FORMAT", "STEPS", "upcast"]

#: The format that this version writes. Unknown kinds and keys never need a new one: they are kept as they are.
FORMAT: Final = 1

#: From format n to n + 1. A tape of every format stays in fixtures/ for ever.
STEPS: Final[Mapping[int, Callable[[Record], Record]]] = MappingProxyType({})


def upcast(record: Record, version: int, steps: Mapping[int, Callable[[Record], Record]] = STEPS) -> Record:
    """Return the record as the newest format has it."""
    for step in sorted(steps):
        if step >= version:
            record = steps[step](record)
    return record
