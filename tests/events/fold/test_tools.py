"""The history of every call."""

from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from wiretape.events.folds.tools import Move, Tools


def fold(*events: Event) -> Tools:
    tools = Tools()
    for event in events:
        tools.apply(event)
    return tools


def test_each_state_is_told_once_with_the_record_that_moved_it() -> None:
    assert fold(
        ToolCallStarted(n=1, choice=0, call=0, id="c", name="f"),
        ToolArgumentsDelta(n=2, choice=0, call=0, text="{}"),
        ToolArgumentsComplete(n=3, choice=0, call=0),
        Finish(n=3, choice=0, reason="tool_calls"),
    ).moves == [
        Move(1, 0, 0, State.ANNOUNCED),
        Move(3, 0, 0, State.READY),
        Move(3, 0, 0, State.RUNNING),
    ]


def test_a_new_attempt_starts_from_nothing() -> None:
    assert fold(
        ToolCallStarted(n=1, choice=0, call=0, id="a", name="g"),
        AttemptStarted(n=4),
        ToolCallStarted(n=5, choice=0, call=0, id="c", name="f"),
        TextDelta(n=6, choice=0, text="x"),
        Ended(n=7, ending="reset", cause="reset", flags=()),
    ).moves == [Move(5, 0, 0, State.ANNOUNCED), Move(7, 0, 0, State.DROPPED)]
