"""Which call a result answers, and what became of each call: tables of rows."""

from dataclasses import replace

import pytest

from wiretape.events.core.lifecycle import State
from wiretape.proxy.limits import ABANDONED_AFTER_S
from wiretape.proxy.store.catalogue_row import AnswerRow, CallRow, Fate, Running, fates, key_of, links

SECOND_US = 1_000_000


def made(stream: str, at_s: float, *, messages: int = 1, state: str = "running", call: str = "call_0") -> CallRow:
    return CallRow(
        caller="me",
        call=call,
        stream=stream,
        name="read",
        state=state,
        handed_us=int(at_s * SECOND_US),
        arguments="00",
        messages=messages,
    )


def came(
    stream: str, at_s: float, *, after: int = 1, by: str = "", failed: bool = False, request: str = ""
) -> AnswerRow:
    return AnswerRow(
        caller="me",
        call="call_0",
        stream=stream,
        name="read",
        arguments="00",
        after=after,
        failed=failed,
        arrived_us=int(at_s * SECOND_US),
        made_by=by,
        request=request,
    )


def linked(calls: list[CallRow], answers: list[AnswerRow]) -> dict[str, str]:
    return {stream: call.stream for stream, call in links(calls, answers).items()}


@pytest.mark.parametrize(
    ("calls", "answers", "expected"),
    [
        ([], [came("b", 2)], {}),
        ([made("a", 1)], [came("b", 2)], {"b": "a"}),
        ([made("a", 3)], [came("b", 2)], {}),
        ([made("a", 2.5)], [came("b", 2)], {"b": "a"}),
        ([made("a", 2.500001)], [came("b", 2)], {}),
        ([made("a", 1), made("x", 2.1)], [came("b", 2)], {"b": "a"}),
        ([made("a", 2.1)], [came("b", 2, by="expired")], {}),
        ([made("a", 1, state="dropped")], [came("b", 2)], {}),
        ([made("a", 1)], [came("c", 3), came("b", 2)], {"b": "a", "c": "a"}),
        ([made("a", 1), made("b", 3, messages=3)], [came("b", 2), came("c", 4, after=3)], {"b": "a", "c": "b"}),
        ([made("a", 1), made("x", 2, messages=7)], [came("b", 3), came("y", 4, after=7)], {"b": "a", "y": "x"}),
        ([made("a", 1), made("x", 2)], [came("y", 3), came("b", 4)], {"y": "x", "b": "a"}),
        ([made("a", 1), made("b", 9, messages=3)], [came("b", 2), came("c", 10)], {"b": "a", "c": "a"}),
        ([made("a", 1), made("x", 2)], [came("b", 3, by="a"), came("c", 4)], {"b": "a", "c": "x"}),
        ([made("a", 1)], [came("b", 2, by="expired")], {}),
        (
            [made("a", 1), made("x", 2)],
            [came("y", 3, request="r"), came("z", 4, request="r"), came("b", 5, request="s")],
            {"y": "x", "z": "x", "b": "a"},
        ),
        (
            [made("a", 1), made("x", 2)],
            [came("b", 3, by="a", request="r"), came("c", 4, request="r"), came("d", 5, request="r")],
            {"b": "a", "c": "a", "d": "a"},
        ),
        (
            [made("a", 1), made("b", 3)],
            [came("x", 2, request="r"), came("y", 4, request="r"), came("z", 5, request="r")],
            {"x": "a", "y": "b", "z": "b"},
        ),
        (
            [made("a", 1), made("b", 3, messages=7)],
            [came("x", 2, request="r"), came("y", 4, request="r")],
            {"x": "a", "y": "a"},
        ),
        ([made("a", 1)], [came("x", 2, by="expired", request="r"), came("y", 3, request="r")], {}),
    ],
    ids=[
        "a call from before Wiretape",
        "the one call",
        "a call that came later",
        "a call of a machine whose clock is ahead",
        "a call that is too far ahead",
        "a call ahead, though another came before",
        "a call ahead, though the result is known to be of another",
        "a call that was never handed over",
        "a retried request",
        "an id of every turn",
        "two conversations, by the number of messages",
        "two that are alike in all: the latest that waits",
        "a regenerated answer, though a later call has the same id",
        "what was linked before is linked so",
        "and not elsewhere when it has expired",
        "a retry answers what the first one answered, and not the call that was given up for it",
        "a retry of what was linked before",
        "the same conversation from its beginning, to the letter",
        "a retry, though another conversation went on",
        "a retry of what answered a call that has expired",
    ],
)
def test_which_call_a_result_answers(calls: list[CallRow], answers: list[AnswerRow], expected: dict[str, str]) -> None:
    assert linked(calls, answers) == expected
    assert linked(calls[::-1], answers[::-1]) == expected


def test_running_results_are_found_by_key_until_they_leave() -> None:
    running = Running()
    first, second, other = came("b", 2), came("c", 3), replace(came("c", 3), call="call_1")
    running.enter([first])
    running.enter([second, other])
    running.enter([replace(first, made_by="a")])
    one, two = came("d", 4), replace(came("d", 4), call="call_1")
    assert running.like([one]) == {key_of(one): [replace(first, made_by="a"), second]}
    assert running.like([one, two]) == {key_of(one): [replace(first, made_by="a"), second], key_of(two): [other]}
    running.leave([second, other])
    running.leave([second, other])
    assert running.like([one, two]) == {key_of(one): [replace(first, made_by="a")]}
    running.leave([first])
    assert running.like([one]) == {}
    assert len(running) == 0


def fates_of(own: list[CallRow], answers: list[AnswerRow], now_s: float = 10) -> dict[str, Fate]:
    rows = {key_of(call): ([call], [each for each in answers if key_of(each) == key_of(call)]) for call in own}
    return fates(own, rows, now_s)


#: Three messages precede the call and its result.
LOST_CALL = replace(made("a", 1), state="dropped", arguments="", messages=3)


@pytest.mark.parametrize(
    ("others", "results", "answered_by"),
    [
        pytest.param([], [came("b", 2, after=3)], "b", id="a client ran it"),
        pytest.param([], [came("c", 3, after=3), came("b", 2, after=3)], "b", id="the first result counts"),
        pytest.param([], [came("b", 2, after=5)], "", id="a later turn with the same id"),
        pytest.param([], [came("b", 0.5, after=3)], "", id="a result from before the call"),
        pytest.param([], [came("b", 2, after=3, by="x")], "", id="a result that belongs to another call"),
        pytest.param([made("x", 0.5)], [came("b", 2, after=3)], "", id="a result of a call that was handed over"),
        pytest.param([replace(LOST_CALL, stream="x", handed_us=1_500_000)], [came("b", 2, after=3)], "", id="a retry"),
    ],
)
def test_a_lost_call_is_known_to_have_run_if_a_later_request_has_its_result(
    others: list[CallRow], results: list[AnswerRow], answered_by: str
) -> None:
    found = fates([LOST_CALL], {key_of(LOST_CALL): ([LOST_CALL, *others], results)}, 10)
    assert found == ({"call_0": Fate(State.DROPPED, answered_by)} if answered_by else {})


def test_first_of_two_results_counts() -> None:
    two = [came("c", 3, failed=True), came("b", 2)]
    assert fates_of([made("a", 1)], two) == {"call_0": Fate(State.COMPLETED, "b", 1_000)}


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_call_without_a_result_is_abandoned_after_a_while(over: int) -> None:
    late = 1 + ABANDONED_AFTER_S + over
    fated = State.ABANDONED if over > 0 else State.RUNNING
    assert fates_of([made("a", 1)], [], late) == {"call_0": Fate(fated)}
    answered = Fate(State.COMPLETED, "b", int((late - 1) * 1_000))
    assert fates_of([made("a", 1)], [came("b", late)], 10 * late) == {"call_0": answered}


def test_a_call_is_abandoned_when_the_conversation_goes_on_without_it() -> None:
    own = [made("a", 1), made("a", 1, call="call_1")]
    assert fates_of(own, []) == {"call_0": Fate(State.RUNNING), "call_1": Fate(State.RUNNING)}
    assert fates_of(own, [came("b", 2)])["call_1"] == Fate(State.ABANDONED)
