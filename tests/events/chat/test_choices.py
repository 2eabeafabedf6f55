"""Choices of one stream: rows 32 to 88 of the dialect catalogue, and the corners between. All cases synthetic."""

from typing import Any

import pytest

from tests.events.chat.rows import Row, check
from tests.events.chat.rows_calls import FAULTS, IDENTITY
from tests.events.chat.rows_content import REASONING
from tests.events.chat.rows_envelope import ENVELOPE, FINISH
from tests.support.chat import DONE, HEAD, Run, call, chunk, finish, frame, run, sse, tape, text
from wiretape.events.limits import LISTS_OF_A_DELTA_MAX

HI = text("hi", role=True)
JUNK: list[Any] = [None, True, 5, 1.5, "x", [], [None], [[]], {}, {"a": 1}]


def chat(*frames: bytes, **settings: Any) -> Run:
    """What comes of these frames, without lifecycle frames."""
    return run(tape(list(frames), tool_events=False, **settings))


@pytest.mark.parametrize("row", [*IDENTITY, *FAULTS, *FINISH, *ENVELOPE, *REASONING], ids=lambda row: row.id)
def test_a_row_of_the_catalogue(row: Row) -> None:
    check(row)


@pytest.mark.parametrize("junk", JUNK, ids=str)
@pytest.mark.parametrize("key", ["role", "content", "tool_calls", "function_call", "reasoning", "annotations"])
def test_a_member_of_the_delta_may_be_anything(key: str, junk: Any) -> None:
    result = chat(HI, frame({key: junk}), frame({key: junk, "content": "!"}), finish(), DONE)
    assert result.ended.ending == "completed"


@pytest.mark.parametrize("junk", JUNK, ids=str)
@pytest.mark.parametrize("key", ["index", "delta", "finish_reason", "finishReason"])
def test_a_member_of_the_choice_may_be_anything(key: str, junk: Any) -> None:
    given = {"index": 0, "delta": {"content": "!"}, "finish_reason": None, key: junk}
    result = chat(HI, chunk(given), chunk(given), finish(), finish("stop", 1), DONE)
    assert result.ended.ending == ("upstream_error" if junk == "x" and key.startswith("finish") else "completed")


def test_calls_behind_a_finish_are_withheld_and_text_is_not() -> None:
    late = frame(
        {"content": "!", "tool_calls": [{"index": 0, "id": "a", "function": {"name": "f", "arguments": "{}"}}]}
    )
    result = chat(HI, finish(), late, DONE)
    assert result.sent == [HI, finish(), text("!"), DONE]
    assert result.repairs == ["late_delta", "late_call"]


def test_a_second_choice_with_calls_of_its_own_is_an_answer_of_its_own() -> None:
    starts = [
        call(role=True, choice=number, index=0, id=f"c{number}", type="function", name="f", arguments="[]")
        for number in (0, 1)
    ]
    result = chat(*starts, finish("tool_calls", 0), finish("tool_calls", 1), DONE)
    assert [one.choice for one in result.wire.calls()] == [0, 1]


def test_calls_beside_a_finished_text_are_an_answer_of_their_own() -> None:
    start = call(role=True, choice=1, index=0, id="a", type="function", name="f", arguments="[]")
    result = chat(HI, finish(), start, finish("tool_calls", 1), DONE)
    assert result.sent == [HI, finish(), start, finish("tool_calls", 1), DONE]


def test_a_legacy_call_whole_on_the_chunk_of_its_finish_gets_its_arguments_in_place() -> None:
    result = chat(frame({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}, "function_call"), DONE)
    whole = frame({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, "function_call")
    assert result.sent == [whole, DONE]


def test_a_legacy_call_may_have_an_object_for_arguments() -> None:
    given = frame({"role": "assistant", "function_call": {"name": "f", "arguments": {"x": 1}}})
    result = chat(given, finish("function_call"), DONE)
    assert [one.arguments for one in result.wire.calls()] == ['{"x":1}']


def test_entries_with_an_index_are_counted_by_those_without() -> None:
    result = chat(
        HI,
        frame({"annotations": [{"index": 4}, {"index": 2}]}),
        frame({"annotations": [{"url": "x"}]}),
        finish(),
        DONE,
    )
    assert result.sent[2] == frame({"annotations": [{"index": 5, "url": "x"}]})


def test_parts_of_parts_are_read_to_a_depth() -> None:
    deep: Any = "x"
    for _ in range(500):
        deep = {"type": "text", "text": [deep]}
    result = chat(HI, frame({"content": [deep, "!"]}), finish(), DONE)
    assert result.sent[1] == text("!")


def test_a_thought_in_parts_beside_one_of_its_own_name_is_left_out() -> None:
    both = {
        "reasoning_content": "hm",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "hi"}],
    }
    result = chat(frame({"role": "assistant", **both}), finish(), DONE)
    assert result.sent[0] == frame({"role": "assistant", "reasoning_content": "hm", "content": "hi"})


def test_cumulative_content_and_a_split_thought_go_together() -> None:
    result = chat(
        text("<think>h", role=True),
        text("<think>hm</think>"),
        text("<think>hm</think>hi"),
        finish(),
        DONE,
        cumulative=True,
        think=True,
    )
    assert result.sent[:3] == [
        frame({"reasoning_content": "h", "role": "assistant", "content": ""}),
        frame({"reasoning_content": "m", "content": ""}),
        text("hi"),
    ]


def test_a_split_thought_takes_the_place_of_an_empty_one_under_the_other_name() -> None:
    result = chat(
        frame({"role": "assistant", "reasoning": "", "content": "<think>h</think>i"}), finish(), DONE, think=True
    )
    assert result.sent[0] == frame({"reasoning_content": "h", "role": "assistant", "content": "i"})


def test_text_that_was_held_as_half_a_tag_comes_out_at_a_cut() -> None:
    result = chat(text("<th", role=True), think=True)
    assert result.sent[:2] == [text("", role=True), text("<th")]
    assert result.ended.ending == "truncated"


def test_choices_without_a_use_stay_apart_from_the_fast_way() -> None:
    """`false` is 0 to Python and to no client."""
    odd = sse({**HEAD, "choices": [{"index": False, "delta": {"content": "!"}, "finish_reason": None}]})
    result = chat(HI, text("a"), odd, finish(), DONE)
    assert result.sent[2] == text("!")


def test_two_different_thoughts_under_two_names_both_stay() -> None:
    result = chat(frame({"role": "assistant", "reasoning": "a", "reasoning_content": "b"}), finish(), DONE)
    assert result.repairs == []


LEGACY = [
    frame({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
    frame({"function_call": {"name": "f", "arguments": '{"x":1}'}}),
]


def test_a_legacy_call_lives_by_the_same_rules() -> None:
    """Q29 with Q15 and Q32: its name once, and `stop` over it is its finish."""
    result = run(tape([*LEGACY, finish("stop"), DONE], tool_events=False))
    assert result.sent == [
        LEGACY[0],
        frame({"function_call": {"arguments": '{"x":1}'}}),
        frame({}, "function_call"),
        DONE,
    ]
    assert result.repairs == ["name_repeated", "finish_stop_with_calls"]


def test_a_legacy_call_without_a_finish_is_handed_over_at_done() -> None:
    result = run(tape([*LEGACY, DONE], tool_events=False))
    assert frame({}, "function_call") == result.sent[-2]


def test_a_legacy_call_behind_the_finish_is_withheld_and_told() -> None:
    result = run(tape([text("a", role=True), finish("stop"), *LEGACY, DONE]))
    assert b"function_call" not in result.out
    assert result.ended.flags == ("late_call",)


def test_legacy_arguments_before_the_name_are_arguments() -> None:
    swapped = [
        frame({"role": "assistant", "function_call": {"arguments": "{}"}}),
        frame({"function_call": {"name": "f"}}),
    ]
    result = run(tape([*swapped, finish("function_call"), DONE]))
    assert [(one.name, one.arguments, one.state.value) for one in result.wire.calls()] == [("f", "{}", "running")]


def test_a_legacy_call_and_a_call_are_two() -> None:
    beside = frame(
        {"tool_calls": [{"index": 0, "id": "a", "type": "function", "function": {"name": "g", "arguments": "[]"}}]}
    )
    result = run(tape([*LEGACY, beside, finish("tool_calls"), DONE]))
    assert [(one.name, one.arguments) for one in result.wire.calls()] == [("f", '{"x":1}'), ("g", "[]")]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_so_many_kinds_of_lists_are_numbered(over: int) -> None:
    kinds = LISTS_OF_A_DELTA_MAX + over
    result = run(
        tape([frame({"role": "assistant", **{f"list_{i}": [{"a": 1}] for i in range(kinds)}}), finish(), DONE])
    )
    assert result.repairs.count("entry_index") == min(kinds, LISTS_OF_A_DELTA_MAX)
