"""`emit(tape, profile)`: the bytes that a client gets, from the tape alone (law L3).

The live path feeds each record as it is written, a replay feeds the records of a file: the same machine, so that live
and replayed are equal by construction. Clock, chance, configuration and other tapes reach it only as records.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Final, get_args

from ..chat.stream import ChatStream
from ..core.json_text import as_list
from ..core.model import Ended, Ending, Event
from ..core.settings import Profile, Settings
from ..folds.wire import Wire
from ..tape.record import Record
from .ledger import Ledger

__all__ = ["EMITTER_VERSION", "KEEPALIVE", "Emitter", "emit", "events"]

#: Written into `open`. It grows when the same tape would emit other bytes.
EMITTER_VERSION: Final = 1

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
        """Who wants no entries of the ledger (`Repaired`) among the events says so: they cost more than the rest."""
        self._profile: Profile | None = profile
        self._sink = sink
        self._repairs = repairs
        self._verbatim = self._foreign = True
        #: The client has the head of a stream.
        self._streaming = False

    @cached_property
    def stream(self) -> ChatStream:
        """What reads the records; before `open`, if anybody asks, one that has seen nothing."""
        return ChatStream(Settings(), "", 0, self._sink)

    @property
    def wire(self) -> Wire:
        """The live fold."""
        return self.stream.wire

    @property
    def ledger(self) -> Ledger:
        """The counts of repairs."""
        return Ledger() if self._verbatim else self.stream.ledger

    def ending(self, cause: str) -> tuple[Ending, tuple[str, ...]]:
        """What the `end` record is to say if the bytes end now for this cause: the one ending, and the flags."""
        return self.stream.ending(cause)

    def feed(self, record: Record) -> list[bytes]:
        """The frames that go out on account of this record, each whole."""
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
        self._foreign = record.keys.get("dialect") != "chat"
        self._verbatim = settings.profile == "transparent" or self._foreign
        stream_id, created = record.keys.get("stream"), record.keys.get("created")
        self.stream = ChatStream(
            settings,
            stream_id if isinstance(stream_id, str) else "",
            created if type(created) is int else 0,
            self._sink,
            repairs=self._repairs and not self._verbatim,  # what goes out as it came needs none
        )

    def _pass(self, record: Record) -> None:
        """Of a dialect that we do not read, HTTP alone says how it ended, and `end` has that word."""
        ending: Any = record.keys.get("ending")
        if record.kind == "end" and self._sink is not None and ending in get_args(Ending):
            flags = tuple(flag for flag in as_list(record.keys.get("flags")) if isinstance(flag, str))
            self._sink(Ended(n=record.n, ending=ending, cause=str(record.keys.get("cause")), flags=flags))


def emit(tape: Iterable[Record], profile: Profile | None = None) -> bytes:
    """The whole of what a client got, or would get in another profile."""
    emitter = Emitter(profile)
    return b"".join(frame for record in tape for frame in emitter.feed(record))


def events(tape: Iterable[Record], *, repairs: bool = True) -> Iterator[Event]:
    """Every event of a tape in order, the entries of the ledger among them, if they are wanted."""
    seen: list[Any] = []
    emitter = Emitter(sink=seen.append, repairs=repairs)
    for record in tape:
        emitter.feed(record)
        yield from seen
        seen.clear()
