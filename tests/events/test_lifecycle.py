"""The table of a call's life, checked as a whole."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from wiretape.events.lifecycle import STATUS_ON_WIRE, TABLE, TERMINAL, State, Trigger, step


def test_every_state_is_in_the_table_and_every_trigger_is_used() -> None:
    assert set(TABLE) == set(State)
    assert {trigger for moves in TABLE.values() for trigger in moves} == set(Trigger)


def test_every_state_can_be_reached_and_every_life_can_end() -> None:
    reached = {State.ANNOUNCED}
    for _ in State:
        reached |= {state for known in reached for state in TABLE[known].values()}
    assert reached == set(State)
    assert {State.COMPLETED, State.FAILED, State.DROPPED, State.MALFORMED, State.ABANDONED} == TERMINAL


def test_only_the_hand_over_makes_a_call_run_or_the_upstream_itself() -> None:
    ways = [(state, trigger) for state, moves in TABLE.items() for trigger, to in moves.items() if to is State.RUNNING]
    assert ways == [(State.ANNOUNCED, Trigger.RUN_UPSTREAM), (State.READY, Trigger.HANDED_OVER)]


def test_a_call_that_was_not_closed_with_json_never_runs() -> None:
    assert [state for state, moves in TABLE.items() if moves.get(Trigger.VALID)] == [State.ANNOUNCED]
    assert [state for state, moves in TABLE.items() for to in moves.values() if to is State.READY] == [State.ANNOUNCED]


@pytest.mark.parametrize("state", [state for state in State if state in TERMINAL])
def test_nothing_follows_a_terminal_state(state: State) -> None:
    for trigger in Trigger:
        with pytest.raises(KeyError):
            step(state, trigger)


class Life(RuleBasedStateMachine):
    """Law L7 on the table alone: whatever happens, at most one `running` and one terminal word, in that order."""

    def __init__(self) -> None:
        super().__init__()
        self.state = State.ANNOUNCED
        self.told: list[str] = []

    @rule(trigger=st.sampled_from(Trigger))
    def something_happens(self, trigger: Trigger) -> None:
        if trigger in TABLE[self.state]:
            self.state = step(self.state, trigger)
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
