"""Summaries of tapes: an emitter that reads the records, and the summary fold behind it."""

from collections.abc import Iterable
from typing import Any, Self

from ..folds.summary import StreamSummary
from ..tape.record import Record
from .emit import Emitter

__all__ = ["Summariser", "summarise"]


class Summariser:
    """`feed` the records of one tape in order; `summary` is up to date after each."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._emitter = Emitter(sink=self._events.append, repairs=False)
        self.summary = StreamSummary()

    @property
    def repairs(self) -> dict[str, int]:
        """How often each repair was made."""
        return dict(self._emitter.ledger.counts)

    def feed(self, *records: Record) -> Self:
        """Add records."""
        for record in records:
            self._emitter.feed(record)
            self.summary.take(record, self._emitter.wire, self._events)
            self._events.clear()
        return self


def summarise(records: Iterable[Record]) -> StreamSummary:
    """Return the summary of a whole tape, or of as much of it as there is."""
    return Summariser().feed(*records).summary
