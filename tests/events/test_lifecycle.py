"""The table of a call's life, checked as a whole."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tests.support.chat import DONE, call, finish, run, tape
from wiretape.events.core.lifecycle import STATUS_ON_WIRE, TABLE, TERMINAL, State, Trigger
from wiretape.events.emit import summarise


def test_only_the_hand_over_makes_a_call_run_or_the_upstream_itself() -> None:
    ways = [(state, trigger) for state, moves in TABLE.items() for trigger, to in moves.items() if to is State.RUNNING]
    assert ways == [(State.ANNOUNCED, Trigger.RUN_UPSTREAM), (State.READY, Trigger.HANDED_OVER)]


def test_a_call_that_was_not_closed_with_json_never_runs() -> None:
    assert [state for state, moves in TABLE.items() if moves.get(Trigger.VALID)] == [State.ANNOUNCED]
    assert [state for state, moves in TABLE.items() for to in moves.values() if to is State.READY] == [State.ANNOUNCED]


def test_calls_end_in_these_states() -> None:
    assert {State.COMPLETED, State.FAILED, State.DROPPED, State.MALFORMED, State.ABANDONED} == TERMINAL


# -- the table against the folds and the emitter ---------------------------------------------------------------------

HALF = '{"path":'
#: One thing that a stream may say, or how it may end, and what each means for a call by the table.
SAID: dict[str, bytes] = {
    "start": call(role=True, index=0, id="call_1", type="function", name="read", arguments=""),
    "half": call(index=0, arguments=HALF),
    "rest": call(index=0, arguments='"a"}'),
    "tool_calls": finish("tool_calls"),
    "stop": finish("stop"),
    "length": finish("length"),
    "done": DONE,
}
WORDS = [word for size in range(4) for word in product(SAID, repeat=size)]


def expected(word: tuple[str, ...]) -> list[State]:
    """The life of the one call, by the table alone."""
    state, states, arguments = State.ANNOUNCED, [State.ANNOUNCED], ""
    triggers: list[Trigger] = []
    for said in word:
        arguments += {"half": HALF, "rest": '"a"}'}.get(said, "")
        whole = arguments in ("", HALF + '"a"}')
        if said in ("tool_calls", "stop"):
            triggers = [Trigger.VALID, Trigger.HANDED_OVER] if whole else [Trigger.INVALID]
        elif said == "length":
            triggers = [Trigger.LENGTH]
        elif said == "done":  # it closes what is whole, and else it is an end like any other
            triggers = [Trigger.VALID, Trigger.HANDED_OVER] if whole and arguments else [Trigger.CUT]
        if triggers:
            break
    for trigger in triggers or [Trigger.CUT]:
        state = TABLE[state][trigger]
        states.append(state)
    return states


@pytest.mark.parametrize("settings", [{}, {"tools": "held"}, {"on_partial": "warn"}], ids=["live", "held", "warn"])
def test_calls_of_any_stream_follow_the_table(settings: dict[str, Any]) -> None:
    """All words of up to three more things after the first delta of a call, each read as a stream."""
    for word in WORDS:
        result = run(tape(SAID["start"] + b"".join(SAID[said] for said in word if said != "start"), **settings))
        lived = [state for _, state in next(summarise(result.records).wire.all_calls()).moves]
        assert lived == expected(tuple(said for said in word if said != "start")), word
        frames = [json.loads(each.partition(b"data: ")[2]) for each in result.sent if each.startswith(b"event:")]
        told = [
            frame["status"] for frame in frames if frame["toolCallId"] == "call_1"
        ]  # a second value is another call
        assert told == [STATUS_ON_WIRE[each] for each in lived if each in STATUS_ON_WIRE], word


class Life(RuleBasedStateMachine):
    """Law L7 on the table alone: at most one `running` and one terminal word, in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State.ANNOUNCED
        self.told: list[str] = []

    @rule(trigger=st.sampled_from(Trigger))
    def something_happens(self, trigger: Trigger) -> None:
        if trigger in TABLE[self.state]:
            self.state = TABLE[self.state][trigger]
            if self.state in STATUS_ON_WIRE:
                self.told.append(STATUS_ON_WIRE[self.state])

    @invariant()
    def told_once(self) -> None:
        assert self.told in (
            [],
            ["running"],
            ["dropped"],
            ["running", "completed"],
            ["running", "failed"],
            ["running", "dropped"],
        )


TestLife: Any = Life.TestCase
