"""`emit(tape, profile)`: the bytes that a client gets, from the tape alone (law L3).

The live path feeds each record as it is written, a replay feeds the records of a file: the same machine, so that live
and replayed are equal by construction. Clock, chance, configuration and other tapes reach it only as records.
"""

from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any, Final, Self

from .core.json_text import dumps
from .core.model import Event
from .core.settings import Profile
from .crossing.reader import CrossedReader
from .dialects import DIALECTS
from .emission.engine import Engine
from .folds.run import RunFold
from .folds.summary import StreamSummary
from .tape.record import Record

__all__ = ["EMITTER_VERSION", "Emitter", "RunReader", "Summariser", "emit", "events", "summarise"]

#: Written into `open`. It grows when the same tape would emit other bytes.
EMITTER_VERSION: Final = 3

_LINE_ENDS: Final = MappingProxyType({each.encode(): b"\\u%04x" % ord(each) for each in "\x85\u2028\u2029"})


class Emitter(Engine):
    """The engine with every dialect that we know: feed the records of one tape in order, get frames."""

    dialects = DIALECTS
    cross = CrossedReader


class Summariser:
    """An emitter and the summary fold after it: `feed` the records of one tape in order."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._emitter = Emitter(sink=self._events.append, repairs=False)
        #: Up to date after each record.
        self.summary = StreamSummary()

    @property
    def repairs(self) -> dict[str, int]:
        """How often each repair was made."""
        return dict(self._emitter.ledger.counts)

    def feed(self, *records: Record) -> Self:
        for record in records:
            self._emitter.feed(record)
            self.summary.take(record, self._emitter.wire, self._events)
            self._events.clear()
        return self


class RunReader:
    """The fold of a run, and its events as SSE frames: `feed` the records of all its tapes in order."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._emitter = Emitter()
        #: Up to date after each record.
        self.run = RunFold()

    def feed(self, *records: Record) -> list[bytes]:
        frames: list[bytes] = []
        for record in records:
            if record.kind == "open":
                self._emitter = Emitter(sink=self._events.append, repairs=False)
            self._emitter.feed(record)
            caused = self.run.take(record, self._emitter.wire, self._events)
            frames += [b"id: %d\ndata: %b\n\n" % (event["sequence"], _one_line(event)) for event in caused]
            self._events.clear()
        return frames


def _one_line(event: dict[str, Any]) -> bytes:
    """Return an event as JSON without the line ends that only Unicode knows: httpx and others split lines there."""
    text = dumps(event)
    if text.isascii():
        return text
    for line_end, escaped in _LINE_ENDS.items():
        text = text.replace(line_end, escaped)
    return text


def summarise(records: Iterable[Record]) -> StreamSummary:
    """Return the summary of a tape, whole or not."""
    return Summariser().feed(*records).summary


def emit(tape: Iterable[Record], profile: Profile | None = None) -> bytes:
    """Return the whole of what a client got, or would get in another profile."""
    emitter = Emitter(profile)
    return b"".join(frame for record in tape for frame in emitter.feed(record))


def events(tape: Iterable[Record], *, repairs: bool = True) -> Iterator[Event]:
    """Return every event of a tape in order, the entries of the ledger among them, if they are wanted."""
    seen: list[Any] = []
    emitter = Emitter(sink=seen.append, repairs=repairs)
    for record in tape:
        emitter.feed(record)
        yield from seen
        seen.clear()
