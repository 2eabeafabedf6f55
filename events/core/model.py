"""The closed union of frozen events; the file everybody reads first.

A stream of any dialect is a sequence of these. Each carries `n`, the number of the tape record that caused it;
which stream it belongs to is the tape's business. `match` over `Event` ends in `assert_never`.
"""

from dataclasses import dataclass
from typing import Any, Literal

from .json_text import ABSENT

__all__ = [
    "AttemptStarted",
    "AudioDelta",
    "CallEvent",
    "CallPiece",
    "Ended",
    "Ending",
    "Event",
    "Finish",
    "ForeignFrame",
    "HandedOver",
    "Proof",
    "ReasoningDelta",
    "RefusalDelta",
    "Repaired",
    "ResponseStarted",
    "Terminator",
    "TextDelta",
    "TextPiece",
    "ToolArgumentsComplete",
    "ToolArgumentsDelta",
    "ToolCallDamaged",
    "ToolCallStarted",
    "ToolNameDelta",
    "ToolProgress",
    "ToolResultSeen",
    "UpstreamError",
    "Usage",
]

#: Every stream has exactly one. `completed` needs the protocol's own terminator; an EOF never is one.
Ending = Literal[
    "completed",
    "truncated",
    "reset",
    "stalled",
    "upstream_error",
    "refused",
    "protocol",
    "limit",
    "client_gone",
    "shutdown",
    "crashed",
    "internal",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Caused:
    #: The number of the record that caused it.
    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece(_Caused):
    choice: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _OfCall(_Caused):
    choice: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptStarted(_Caused):
    """A request to the upstream begins; what came before does not count, since no client has seen it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted(_Caused):
    """The first frame that names the answer."""

    id: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(_Piece):
    """A piece of visible text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(_Piece):
    """A piece of thinking, under any name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalDelta(_Piece):
    """A piece of a refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AudioDelta(_Caused):
    """A piece of a spoken answer; the sound itself stays in its frame."""

    choice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted(_OfCall):
    """A call has its id and (the first piece of) its name. `call` counts the calls of a choice from 0."""

    id: str
    name: str
    #: Of a custom tool, whose input is free text: its arguments are no JSON.
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNameDelta(_OfCall):
    """A further piece of a name that is streamed in pieces."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentsDelta(_OfCall):
    """A piece of a call's arguments."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentsComplete(_OfCall):
    """The protocol closed the call: no more arguments follow, and they may still be invalid JSON."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver(_OfCall):
    """A call went to the client before its choice finished; the finish of a choice hands over all others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDamaged(_OfCall):
    """Something that was or may have been part of a call could not be read: no client may run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof(_Caused):
    """An opaque value that the upstream wants back with the thought or the call before it, word for word.

    `kind` is `signature` or `redacted_thinking` (Messages), `encrypted_content` (Responses), or the name of a member of
    a chat delta or of one of its calls (`reasoning_details`, `extra_content`).
    """

    choice: int
    #: The number of the call that it belongs to; None for a thought.
    call: int | None
    kind: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultSeen(_Caused):
    """The request answers a call of the turn before. `output` is a preview; `name` is empty for an orphan."""

    id: str
    name: str
    failed: bool
    output: str
    duration_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress(_Caused):
    """A tool that the upstream runs itself changed its state."""

    id: str
    name: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage(_Caused):
    """Token counts as the upstream gave them; the last one counts, never a sum."""

    counts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish(_Caused):
    """The upstream's finish_reason for one choice, in one of the words that the dialect knows."""

    choice: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminator(_Caused):
    """The protocol's own last frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamError(_Caused):
    """The upstream reported a failure inside the stream."""

    message: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFrame(_Caused):
    """A frame that the dialect does not know, and why; it stays on the tape."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired(_Caused):
    """One entry of the ledger: a difference between what came and what was emitted.

    With a `key`, one member of the object at `path` in the payload of the record's frame changed from `before` to
    `after` (an integer key is an element that left its list); ABSENT means that it is missing on that side.
    Without a key, `before` and `after` are whole frames: one was added, withheld or replaced. An entry with neither
    marks something that was noticed and not changed. Entries of one record apply in order.
    """

    repair: str
    path: tuple[str | int, ...] = ()
    key: str | int | None = None
    before: Any = ABSENT
    after: Any = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended(_Caused):
    """The stream's one ending."""

    ending: Ending
    cause: str
    flags: tuple[str, ...]


#: Visible text, thinking and refusals.
TextPiece = TextDelta | ReasoningDelta | RefusalDelta
#: What the upstream writes of a call.
CallPiece = ToolCallStarted | ToolNameDelta | ToolArgumentsDelta
#: What is about one call of a choice.
CallEvent = CallPiece | ToolArgumentsComplete | HandedOver | ToolCallDamaged
_Begin = AttemptStarted | ResponseStarted
_Close = Usage | Finish | Terminator | UpstreamError | ForeignFrame
Event = _Begin | TextPiece | AudioDelta | Proof | CallEvent | ToolResultSeen | ToolProgress | _Close | Repaired | Ended
