"""The judge of the readers: what it takes for the truth, and that it sees every way in which a reading can err."""

from typing import Any

import pytest

from .readers import Case, Due, Verdict, added_up, shaped, wrong

DUE = Due(text="Hi", reasoning="hm", calls=[["call_1", "f", '{"a":1}']], finish="tool_calls", usage=[1, 2, 3])
SAID: dict[str, Any] = {
    "text": "Hi",
    "reasoning": "hm",
    "calls": [["call_1", "f", {"a": 1}]],
    "finish": "tool_calls",
    "usage": [1, 2, 3],
    "error": "",
}
WRONG: dict[str, list[Any]] = {
    "text": ["", "HiHi"],
    "reasoning": ["", "hmhm"],
    "calls": [[], [["call_1call_1", "f", {"a": 1}]], [["call_1", "f", {}]], SAID["calls"] * 2],
    "finish": ["", "stop", "tool_callstool_calls"],
    "usage": [None, [2, 4, 6], [1, 2, 4]],
    "error": ["APIError: cut"],
}


def test_a_right_reading_has_no_fault() -> None:
    assert wrong(SAID, DUE) == []


def test_a_client_may_lack_reasoning_and_totals() -> None:
    assert wrong(SAID | {"reasoning": None, "usage": [1, 2]}, DUE) == []


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_wrong_member_is_named(name: str, value: Any) -> None:
    assert wrong(SAID | {name: value}, DUE) == [name]


def verdict(came: dict[str, Any], sent: dict[str, Any], due: Due = DUE, error_due: str = "") -> Verdict:
    made = Verdict()
    made.add(Case("a", b"", b"", b"", due, error_due), came, sent)
    return made


def test_what_is_right_as_it_came_and_wrong_as_sent_is_lost() -> None:
    assert len(verdict(SAID, SAID | {"calls": []}).lost) == 1
    assert verdict(SAID | {"calls": []}, SAID).lost == []


def test_a_reading_with_a_fault_may_not_get_another() -> None:
    assert len(verdict(SAID | {"finish": ""}, SAID | {"usage": None}).lost) == 1


def test_wrong_either_way_is_excused_only_where_the_reader_cannot_do_better() -> None:
    twice: dict[str, Any] = SAID | {"calls": SAID["calls"] * 2}
    assert len(verdict(twice, twice).wrong) == 1
    cut = Due(text="Hi", reasoning="hm", calls=[["call_1", "f", '{"a":']], finish="length", usage=[1, 2, 3])
    repaired: dict[str, Any] = SAID | {"finish": "length", "calls": [["call_1", "f", {}]]}
    assert not verdict(repaired, repaired, cut).wrong
    assert len(verdict(repaired, repaired | {"usage": None}, cut).lost) == 1


def test_an_error_that_is_due_must_be_shown() -> None:
    assert len(verdict(SAID, SAID, error_due="truncated").lost) == 1
    assert verdict(SAID, SAID | {"error": "APIError"}, error_due="truncated").lost == []


def test_each_shape_adds_up_to_the_answer_from_which_it_was_made() -> None:
    cases = shaped()
    assert len(cases) > 500
    assert [one.id for one in cases if added_up(one.upstream) != one.due] == []
