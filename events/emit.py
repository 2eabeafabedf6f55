"""`emit(tape, profile)`: the bytes that a client gets, from the tape alone (law L3).

The live path feeds each record as it is written, a replay feeds the records of a file: the same machine, so that live
and replayed are equal by construction. Clock, chance, configuration and other tapes reach it only as records.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, Self, get_args

from .chat.repair import Chat
from .core.json_text import as_list
from .core.model import Ended, Ending, Event
from .core.settings import Profile, Settings
from .emission.dialect import Dialect
from .emission.engine import Stream
from .emission.ledger import Ledger
from .folds.summary import StreamSummary
from .folds.wire import Wire
from .tape.record import Record, Shape

__all__ = ["DIALECTS", "EMITTER_VERSION", "KEEPALIVE", "Emitter", "Summariser", "emit", "events", "summarise"]

#: Written into `open`. It grows when the same tape would emit other bytes.
EMITTER_VERSION: Final = 2

#: The dialects that are read and written; streams of others are emitted as they came.
DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType({"chat": Chat()})

#: The comment that a `keepalive` record emits.
KEEPALIVE: Final = b": keepalive\n\n"

#: What a client got of a record, verbatim: the upstream's bytes, or the error answer that it was given instead.
_CARRIERS: Final = frozenset({"frame", "rest", "body", "commit"})


class Emitter:
    """Feed the records of one tape in order, get frames.

    The dialect comes with the `open` record. A tape without one, or of an unknown dialect, is emitted as it came.
    """

    def __init__(
        self, profile: Profile | None = None, sink: Callable[[Event], None] | None = None, *, repairs: bool = True
    ) -> None:
        """Pass every event to the sink; without `repairs`, none of the ledger, which cost more than the rest."""
        self._profile: Profile | None = profile
        self._sink = sink
        self._repairs = repairs
        self._verbatim = self._foreign = True
        #: The client has the head of a stream.
        self._streaming = False

    @cached_property
    def stream(self) -> Stream:
        """The engine; before `open`, one that has seen nothing."""
        return Stream(DIALECTS["chat"], Settings(), sink=self._sink)

    @property
    def wire(self) -> Wire:
        """The live fold."""
        return self.stream.wire

    @property
    def ledger(self) -> Ledger:
        """The counts of repairs."""
        return Ledger() if self._verbatim else self.stream.ledger

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """Return what the `end` record is to say if the bytes end now for this cause: the one ending, and the flags."""
        return self.stream.ending(cause)

    def feed(self, record: Record) -> list[bytes]:
        """Return the frames that go out on account of this record, each whole."""
        if record.kind == "open":
            self._open(record)
        if self._foreign:
            self._pass(record)
            frames = []
        else:
            frames = self.stream.feed(record)
        if record.kind == "commit":
            self._streaming = record.raw is None
        if not self._verbatim:
            return [KEEPALIVE] if record.kind == "keepalive" and self._streaming else frames
        return [record.raw] if record.raw and record.kind in _CARRIERS else []

    def _open(self, record: Record) -> None:
        settings = Settings.of(record.keys, self._profile)
        dialect = record.keys.get("dialect")
        known = DIALECTS.get(dialect) if isinstance(dialect, str) else None
        self._foreign = known is None
        self._verbatim = settings.profile == "transparent" or self._foreign
        stream_id, created = record.keys.get("stream"), record.keys.get("created")
        self.stream = Stream(
            known or DIALECTS["chat"],
            settings,
            stream_id if isinstance(stream_id, str) else "",
            created if type(created) is int else 0,
            self._sink,
            repairs=self._repairs and not self._verbatim,
            writes=not self._verbatim,
        )

    def _pass(self, record: Record) -> None:
        """Of a dialect that we do not read, HTTP alone says how it ended, and `end` has that word."""
        ending: Any = record.keys.get("ending")
        if record.kind == "end" and self._sink is not None and ending in get_args(Ending):
            flags = tuple(flag for flag in as_list(record.keys.get("flags")) if isinstance(flag, str))
            self._sink(Ended(n=record.n, ending=ending, cause=str(record.keys.get("cause")), flags=flags))


class Summariser:
    """An emitter and the summary fold after it: `feed` the records of one tape in order."""

    def __init__(self) -> None:
        self._events: list[Any] = []
        self._emitter = Emitter(sink=self._events.append, repairs=False)
        self._shape: Shape | None = None
        #: Up to date after each record.
        self.summary = StreamSummary()

    @property
    def repairs(self) -> dict[str, int]:
        """How often each repair was made."""
        return dict(self._emitter.ledger.counts)

    def feed(self, *records: Record) -> Self:
        """Add records."""
        for record in records:
            self._emitter.feed(self._with_shape(record))
            self.summary.take(record, self._emitter.wire, self._events)
            self._events.clear()
        return self

    def _with_shape(self, record: Record) -> Record:
        """Give a frame the shape of the one before, as on the live path, which is three times as fast."""
        if record.kind != "frame" or record.payload is None or record.keys:
            return record
        if self._shape is None or not self._shape.fits(record.payload):
            self._shape = Shape.of(record.payload)
        return record._replace(shape=self._shape)


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
