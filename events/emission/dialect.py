"""What the engine needs from a dialect: a reader of the upstream's frames and a writer of the client's.

    record -> Reader -> Step (events and the frame that carries them) -> engine -> Writer -> frames

The reader knows the quirks: the identity of calls, think tags, shapes of errors. The writer knows the envelope, the
roles and numbers of frames, where usage goes, and the words of warnings. Both live for one attempt.
"""

from collections.abc import Container, Sequence
from typing import NamedTuple, Protocol

from ..core.model import Event, ToolResultSeen
from ..core.settings import Facts, Settings
from ..folds.wire import Call, Wire
from ..tape.record import Record
from .frames import Ledger, Out

__all__ = ["Context", "Dialect", "Held", "Reader", "Split", "Step", "Writer"]


class Step(NamedTuple):
    """What one frame, or part of one, means. `Terminator` and `UpstreamError` are the last event of their step."""

    n: int
    events: Sequence[Event] = ()
    #: The frame that carries it; None if nothing is sent.
    out: Out | None = None
    #: Content: once the frame is sent, no other attempt may follow.
    delivers: bool = False
    #: Choices that the frame mentions, with or without an event.
    choices: Sequence[int] = ()
    #: Frames of the same shape are repaired alike and mean the same but for their text, while nothing else happens.
    plain: bool = False


class Context(NamedTuple):
    """What one attempt of one stream starts from."""

    facts: Facts
    settings: Settings
    stream_id: str
    #: Seconds since 1970.
    created: int
    #: The live state, which the engine keeps.
    live: Wire
    ledger: Ledger
    #: Ids of calls whose results the client's request brought and this stream reports.
    answered: Container[str]


class Held(NamedTuple):
    """A frame that waits until its call is handed over, or, with `call` None, all calls of its choice."""

    choice: int
    call: int | None
    out: Out


class Split(NamedTuple):
    """A frame divided into what is sent now and what is held with its calls."""

    now: Out | None
    later: Sequence[Held]
    delivers: bool


class Reader(Protocol):
    """Reads what the upstream sent in one attempt. It never raises on upstream data."""

    #: Read one frame.
    def frame(self, record: Record) -> Sequence[Step]: ...

    #: Read the bytes after the last frame.
    def rest(self, n: int, data: bytes) -> Sequence[Step]: ...

    #: Read a whole answer that came where a stream was due.
    def body(self, n: int, data: bytes) -> Sequence[Step]: ...

    #: Return what waited for another frame, since none follows.
    def flush(self) -> Sequence[Step]: ...

    #: Return what is missing before a terminator, if all else has come.
    def supply(self, n: int) -> Sequence[Step]: ...


class Writer(Protocol):
    """Writes the frames of one emitted stream."""

    #: Return the frame for a step; None if the step has no frame, or if it is kept for the end.
    def write(self, step: Step) -> Out | None: ...

    #: Hold the parts of a frame about calls that are not handed over yet, and remove those about lost calls.
    def split(self, out: Out) -> Split: ...

    #: Remove the claim that these choices are finished, because a call in them is malformed.
    def withhold_finish(self, out: Out, choices: set[int]) -> None: ...

    #: Return the frame that reports the state of a call.
    def call_card(self, n: int, call: Call, status: str) -> Out: ...

    #: Return the frame that reports the result of a call, as part of a choice that has begun.
    def result_card(self, n: int, choice: int, result: ToolResultSeen) -> Out: ...

    #: Return a visible warning about lost calls.
    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]: ...

    #: Return what must come before other frames, taken out of the frame `out` that follows them.
    def introduce(self, out: Out) -> list[Out]: ...

    #: Return the frames that were kept for the end.
    def tail(self) -> list[Out]: ...

    #: Return the frames that end a stream which must not be taken for whole, the tail among them.
    #: `lost` are the calls that no client may run, `finished` the choices whose finish the client has.
    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]: ...

    #: Return the terminator that the upstream left out.
    def done(self, n: int) -> Out: ...

    #: Return the bytes of a frame and enter its changes in the ledger; called in the order of sending.
    def encode(self, out: Out) -> bytes: ...


class Dialect(Protocol):
    """One wire protocol."""

    #: Return a reader for one attempt.
    def reader(self, context: Context) -> Reader: ...

    #: Return a writer for one attempt.
    def writer(self, context: Context) -> Writer: ...
