"""The history of every call."""

from wiretape.events.fold.tools import Move, Tools
from wiretape.events.lifecycle import State
from wiretape.events.model import Finish, ToolArgumentsComplete, ToolArgumentsDelta, ToolCallStarted


def test_each_state_is_told_once_with_the_record_that_moved_it() -> None:
    fold = Tools()
    for event in (
        ToolCallStarted(n=1, choice=0, call=0, id="c", name="f"),
        ToolArgumentsDelta(n=2, choice=0, call=0, text="{}"),
        ToolArgumentsComplete(n=3, choice=0, call=0),
        Finish(n=3, choice=0, reason="tool_calls"),
    ):
        fold.apply(event)
    assert fold.moves == [
        Move(1, 0, 0, State.ANNOUNCED),
        Move(3, 0, 0, State.READY),
        Move(3, 0, 0, State.RUNNING),
    ]
