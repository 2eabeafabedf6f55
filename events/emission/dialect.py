"""What the engine needs from a dialect: a reader of the upstream's frames and a writer of the client's.

    record -> Reader -> Step (events and the frame that carries them) -> engine -> Writer -> frames

The reader knows the quirks: the identity of calls, think tags, shapes of errors. The writer knows the envelope, the
roles and numbers of frames, where usage goes, and the words of warnings. Both live for one attempt.
"""

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol

from ..core.json_text import apply, locate
from ..core.limits import SKIPPED_BYTES_MAX
from ..core.model import Event, ToolCallStarted, UpstreamError
from ..core.settings import Facts, Settings
from ..folds.wire import Call, Wire
from ..tape.record import NO_KEYS, Record
from ..wire.sse import parse_block
from .frames import Ledger, Out

__all__ = [
    "NO_CALL",
    "Composer",
    "Context",
    "Counts",
    "Cross",
    "Dialect",
    "Held",
    "Reader",
    "Split",
    "Spoken",
    "Step",
    "Writer",
    "count_in",
]


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
    #: Frames that the client has of this stream, without content, from an attempt before this one.
    opened: int = 0
    #: What the request that was crossed needs on the way back: the `crossing` of the `attempt` record.
    crossing: Mapping[str, Any] = NO_KEYS


class Counts(NamedTuple):
    """What an answer cost, as chat and Responses count it: cached tokens inside the input. None was not counted."""

    input: int | None = None
    output: int | None = None
    cached: int | None = None
    cache_write: int | None = None
    reasoning: int | None = None


#: The number of no call.
NO_CALL: Final = -1_000_000


class Held(NamedTuple):
    """A frame that waits until its call is handed over, or, with `call` None, all calls of its choice.

    With `call` NO_CALL it is of no call, and waits for its place after the frame before it.
    """

    choice: int
    call: int | None
    out: Out
    #: Some clients run the call once they have this frame, so the report that it runs comes before it.
    closes: bool = False


class Split(NamedTuple):
    """A frame divided into what is sent now and what is held with its calls."""

    now: Out | None
    later: Sequence[Held]
    delivers: bool


class Reader(Protocol):
    """Reads what the upstream sent in one attempt. It never raises on upstream data."""

    @property
    def room(self) -> int:
        """The characters of text that it can still take before the stream ends as `limit`."""
        return SKIPPED_BYTES_MAX

    #: Read one frame.
    def frame(self, record: Record) -> Sequence[Step]: ...

    #: Read the bytes after the last frame.
    def rest(self, n: int, data: bytes) -> Sequence[Step]: ...

    #: Read a whole answer that came where a stream was due.
    def body(self, n: int, data: bytes) -> Sequence[Step]: ...

    #: Return what waited for another frame, since none follows.
    def flush(self) -> Sequence[Step]: ...

    def supply(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - by default it came
        """Return what is missing before a terminator, if all else has come."""
        return ()

    def repeated(self, text: str) -> None:  # noqa: ARG002 - by default nothing is kept
        """Take the text of frames like the last one, which were sent without being read."""
        return

    def opening(self, n: int) -> Sequence[Step]:  # noqa: ARG002 - by default the upstream begins its answer itself
        """Return the first frames of a stream whose upstream has sent nothing yet, if they are ours to write."""
        return []


class Writer(Protocol):
    """Writes the frames of one emitted stream."""

    #: No keepalive but a comment is possible until the first frame has been encoded.
    opens: bool = False
    #: The number of the next frame; None if frames are not numbered.
    number: int | None = None
    #: The terminator, in a dialect whose answers may be whole without it.
    terminator: bytes = b""

    #: Return the frame for a step; None if the step has no frame, or if it is kept for the end.
    def write(self, step: Step) -> Out | None: ...

    #: Hold the parts of a frame about calls that are not handed over yet, and remove those about lost calls.
    def split(self, out: Out) -> Split: ...

    #: Remove the claim that these choices are finished, because a call in them is malformed.
    def withhold_finish(self, out: Out, choices: set[int]) -> None: ...

    #: Return a lifecycle frame, as part of a choice that has begun; `said` are the members that every dialect has.
    def card(self, n: int, choice: int, said: dict[str, Any]) -> Out: ...

    def http_error(self, out: Out) -> bytes:
        """Return the body of the HTTP error that reports an upstream's error, to a client that has no status yet."""
        return parse_block(out.frame()).payload or b""

    #: Return what keeps a waiting client.
    def keepalive(self, n: int) -> Out: ...

    #: Return a visible warning about lost calls.
    def warning(self, n: int, code: str, lost: Sequence[Call]) -> list[Out]: ...

    def introduce(self, out: Out) -> list[Out]:  # noqa: ARG002 - by default nothing
        """Return what must come before other frames, taken out of the frame `out` that follows them."""
        return []

    def tail(self) -> list[Out]:
        """Return the frames that were kept for the end."""
        return []

    #: Return the frames that end a stream which must not be taken for whole, the tail among them.
    #: `lost` are the calls that no client may run, `finished` the choices whose finish the client has.
    def close(self, n: int, code: str, lost: Sequence[Call], finished: set[int]) -> list[Out]: ...

    #: Return the bytes of a frame and enter its changes in the ledger; called in the order of sending.
    def encode(self, out: Out) -> bytes: ...


class Composer(Protocol):
    """Makes the canonical frames of one answer from the events of a reader of another dialect, in valid order.

    The events are of choice 0 and in the order of `crossing/serial.py`: while a call is open, all others are about it.
    Its steps hold the events that the frames mean in its own dialect, `HandedOver` among them.
    """

    @property
    def room(self) -> int:
        """The characters of text that it can still take before the stream ends as `limit`."""
        return SKIPPED_BYTES_MAX

    #: Return the frames that begin an answer, once.
    def open(self, n: int) -> Sequence[Step]: ...

    #: Return the frames of some events of one record, no `Terminator` and no `UpstreamError` among them. With a
    #: `Finish` every open item is closed; what ends the answer waits for `close`, since usage may follow.
    def compose(self, n: int, events: Iterable[Event]) -> Sequence[Step]: ...

    #: Return the starts of calls that have no frame, because the answer ends before they are shown.
    def lose(self, n: int, calls: Iterable[ToolCallStarted]) -> Sequence[Step]: ...

    def repeated(self, text: str) -> None:  # noqa: ARG002 - by default nothing is kept
        """Take the text of frames like the last one, which were sent without being composed."""
        return

    #: Return the frames that end a whole answer, at a time in seconds since 1970, if that is known. The last step ends
    #: with a `Terminator`.
    def close(self, n: int, counts: Counts | None, at: int | None) -> Sequence[Step]: ...

    #: Return the frame of an upstream's error. The step ends with the `UpstreamError`.
    def fail(self, n: int, error: UpstreamError) -> Step: ...


class Dialect(Protocol):
    """One wire protocol."""

    #: Return a reader for one attempt.
    def reader(self, context: Context) -> Reader: ...

    #: Return a writer for one attempt.
    def writer(self, context: Context) -> Writer: ...

    #: Return a composer for one attempt.
    def composer(self, context: Context) -> Composer: ...

    #: Return what the usage of an upstream says.
    def counts(self, usage: Mapping[str, Any]) -> Counts: ...

    #: Return the whole answer that a client gets who did not ask for a stream, from the canonical frames of one.
    def whole(self, values: Iterable[Any]) -> dict[str, Any]: ...


class Spoken:
    """What every dialect says of itself, and how it is unless it says otherwise."""

    #: The member of one of its messages that holds calls, if they are not part of its content.
    calls = ""
    #: The header with a key.
    key_header = b"authorization"
    #: Headers that its upstreams demand.
    needed_headers: tuple[tuple[bytes, bytes], ...] = ()
    #: The beginnings of headers that mean nothing to other dialects.
    own_headers: tuple[bytes, ...] = ()
    #: Parameters of the query that mean nothing to other dialects.
    parameters: frozenset[bytes] = frozenset()
    #: HTTP statuses that its words for errors stand for.
    statuses: Mapping[str, int] = NO_KEYS

    def asks_usage(self, body: Any) -> bool | None:  # noqa: ARG002 - usage is part of every answer
        """Return whether a request says how usage is to be streamed."""
        return None

    def continues(self, body: Any) -> str:  # noqa: ARG002 - answers are not continued by id
        """Return the id of the answer that a request continues."""
        return ""

    def referenced(self, body: Any) -> dict[str, str]:  # noqa: ARG002 - the history is always sent whole
        """Return the ids of what a request names instead of repeating it, and those of their answers."""
        return {}

    def unstreamed(self, body: bytes) -> bytes:
        """Return the body with a whole answer asked for instead of a stream."""
        return apply(body, locate(body, {("stream",): b"false"}))


def count_in(counts: Mapping[str, Any], key: str) -> int | None:
    """Return a count of tokens, if it is one."""
    count = counts.get(key)
    return count if type(count) is int and count >= 0 else None


class Cross(Protocol):
    """What makes a reader of one dialect whose frames are of another one."""

    def __call__(self, theirs: Dialect, ours: Dialect, context: Context) -> Reader: ...
