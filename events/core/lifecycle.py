"""The life of a tool call as one table; the diagram in docs/ is drawn from it.

Two rules:

1. A call is handed over only when its choice finished and its arguments are JSON, or the free text of a custom tool;
   until then no client may run it.
2. Every call ends in exactly one terminal state, and on the wire (law L7) at most one `running` comes before at most
   one terminal event.

A ready call is handed over in the step that finishes its choice, and the next request may bring its result. Nothing
inside a stream shows that a call was abandoned; readers of the catalogue compute it. A tool that the upstream runs
itself is never handed over: the same stream reports that it runs and how it ended.
"""

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

__all__ = ["CUT_FINISHES", "STATUS_ON_WIRE", "TABLE", "TERMINAL", "State", "Trigger"]


class State(Enum):
    """The state of a call."""

    #: Its first delta has come.
    ANNOUNCED = "announced"
    #: Closed by the protocol, arguments are JSON, or free text.
    READY = "ready"
    #: Handed over to the client, or run by the upstream itself.
    RUNNING = "running"
    #: The client's next request brought its result, or the upstream reported its end.
    COMPLETED = "completed"
    #: It brought a result that the protocol marks as an error.
    FAILED = "failed"
    #: Cut short, ended by the output limit or a content filter, or whole next to a malformed one.
    DROPPED = "dropped"
    #: Closed by the protocol, arguments are not JSON.
    MALFORMED = "malformed"
    #: Handed over and never answered.
    ABANDONED = "abandoned"


class Trigger(Enum):
    """What moves it."""

    VALID = "closed with JSON arguments, or the free text of a custom tool"
    INVALID = "closed with other arguments"
    HANDED_OVER = "handed over with the finish"
    RUN_UPSTREAM = "the upstream runs it itself"
    LENGTH = "ended by length or a content filter"
    SIBLING = "another call of its choice is malformed"
    CUT = "stream ended"
    RESULT = "result seen"
    ERROR_RESULT = "error result seen"
    UNANSWERED = "never answered"
    UNHEARD = "answer ended before the upstream reported its end"


#: The next state; a trigger that a state does not have is our own bug.
TABLE: Final[Mapping[State, Mapping[Trigger, State]]] = MappingProxyType(
    {
        State.ANNOUNCED: {
            Trigger.VALID: State.READY,
            Trigger.INVALID: State.MALFORMED,
            Trigger.RUN_UPSTREAM: State.RUNNING,
            Trigger.LENGTH: State.DROPPED,
            Trigger.CUT: State.DROPPED,
        },
        State.READY: {
            Trigger.HANDED_OVER: State.RUNNING,
            Trigger.SIBLING: State.DROPPED,
            Trigger.CUT: State.DROPPED,
        },
        State.RUNNING: {
            Trigger.RESULT: State.COMPLETED,
            Trigger.ERROR_RESULT: State.FAILED,
            Trigger.UNANSWERED: State.ABANDONED,
            Trigger.UNHEARD: State.DROPPED,
        },
        **{state: {} for state in (State.COMPLETED, State.FAILED, State.DROPPED, State.MALFORMED, State.ABANDONED)},
    }
)

TERMINAL: Final = frozenset(state for state, moves in TABLE.items() if not moves)

#: The status in a lifecycle frame. A malformed call is reported as dropped, with its reason; the others never are.
STATUS_ON_WIRE: Final[Mapping[State, str]] = MappingProxyType(
    {state: state.value for state in (State.RUNNING, State.COMPLETED, State.FAILED, State.DROPPED)}
    | {State.MALFORMED: State.DROPPED.value}
)

#: Finish reasons that cut the open calls of their choice, so that none may be taken for whole.
CUT_FINISHES: Final = frozenset({"length", "content_filter"})
