"""The closed union of frozen events; the file everybody reads first.

A stream of any dialect is a sequence of these. Each carries `n`, the number of the tape record that caused it;
which stream it belongs to is the tape's business. `match` over `Event` ends in `assert_never`.
"""

from dataclasses import dataclass
from typing import Any, Literal

from .json_text import ABSENT

__all__ = [
    "AttemptStarted",
    "Ended",
    "Ending",
    "Event",
    "Finish",
    "ForeignFrame",
    "HandedOver",
    "ReasoningDelta",
    "RefusalDelta",
    "Repaired",
    "ResponseStarted",
    "Terminator",
    "TextDelta",
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
class AttemptStarted:
    """A request to the upstream begins; what came before does not count, since no client has seen it."""

    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseStarted:
    """The first frame that names the answer."""

    n: int
    id: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of visible text."""

    n: int
    choice: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """A piece of thinking, under any name."""

    n: int
    choice: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalDelta:
    """A piece of a refusal."""

    n: int
    choice: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """A call has its id and (the first piece of) its name. `call` counts the calls of a choice from 0."""

    n: int
    choice: int
    call: int
    id: str
    name: str
    #: Of a custom tool, whose input is free text: its arguments are no JSON.
    custom: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolNameDelta:
    """A further piece of a name that is streamed in pieces."""

    n: int
    choice: int
    call: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentsDelta:
    """A piece of a call's arguments."""

    n: int
    choice: int
    call: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolArgumentsComplete:
    """The protocol closed the call: nothing more will come, which says nothing yet about valid JSON."""

    n: int
    choice: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HandedOver:
    """A call went to the client before its choice finished; the finish of a choice hands over all others."""

    n: int
    choice: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallDamaged:
    """Something that was or may have been part of a call could not be read: no client may run it."""

    n: int
    choice: int
    call: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResultSeen:
    """The request answers a call of the turn before. `output` is a preview; `name` is empty for an orphan."""

    n: int
    id: str
    name: str
    failed: bool
    output: str
    duration_ms: int | None

    @property
    def internal(self) -> bool:
        """Whether it is internal: tools whose name starts with `_` are not shown on the wire."""
        return self.name.startswith("_")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolProgress:
    """A tool that the upstream runs itself changed its state."""

    n: int
    id: str
    name: str
    status: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Token counts as the upstream gave them; the last one counts, never a sum."""

    n: int
    counts: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """The upstream's finish_reason for one choice, in one of the words that the dialect knows."""

    n: int
    choice: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terminator:
    """The protocol's own last frame."""

    n: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamError:
    """The upstream said in-band that it failed."""

    n: int
    message: str
    code: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignFrame:
    """A frame that the dialect does not know, and why; it stays on the tape."""

    n: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """One entry of the ledger: a difference between what came and what was emitted.

    With a `key`, one member of the object at `path` in the payload of the record's frame changed from `before` to
    `after` (an integer key is an element that left its list); ABSENT means that it was not or is no longer in there.
    Without a key, `before` and `after` are whole frames: one was added, withheld or replaced. An entry with neither
    marks something that was noticed and not changed. Entries of one record apply in order.
    """

    n: int
    repair: str
    path: tuple[str | int, ...] = ()
    key: str | int | None = None
    before: Any = ABSENT
    after: Any = ABSENT


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """The stream's one ending."""

    n: int
    ending: Ending
    cause: str
    flags: tuple[str, ...]


Event = (
    AttemptStarted
    | ResponseStarted
    | TextDelta
    | ReasoningDelta
    | RefusalDelta
    | ToolCallStarted
    | ToolNameDelta
    | ToolArgumentsDelta
    | ToolArgumentsComplete
    | HandedOver
    | ToolCallDamaged
    | ToolResultSeen
    | ToolProgress
    | Usage
    | Finish
    | Terminator
    | UpstreamError
    | ForeignFrame
    | Repaired
    | Ended
)
