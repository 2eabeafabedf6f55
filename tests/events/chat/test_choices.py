"""Choices of one stream: the corners between rows 32 to 88 of the dialect catalogue. All cases synthetic."""

from itertools import combinations
from typing import Any

import pytest

from tests.support.chat import (
    DONE,
    Run,
    begin,
    call_entry,
    finish,
    frame,
    run,
    tape,
    text,
    tool_calls,
)
from wiretape.events.chat.content import Think
from wiretape.events.core.limits import LISTS_OF_A_DELTA_MAX, THINK_HEAD_CHARS_MAX

HI = text("hi", role=True)
ASKED: dict[str, Any] = {"stream": True, "model": "m"}
ROLE = {"role": "assistant", "content": "x"}
BESIDE = begin("a", "f", "[]", choice=1)
JUNK: list[Any] = [None, True, 5, 1.5, "x", [], [None], [[]], {}, {"a": 1}]


def chat(*frames: bytes, **settings: Any) -> Run:
    """What comes of these frames, without lifecycle frames."""
    return run(tape(list(frames), tool_events=False, **settings))


@pytest.mark.parametrize("junk", JUNK, ids=str)
@pytest.mark.parametrize("key", ["role", "content", "tool_calls", "function_call", "reasoning", "annotations"])
def test_a_member_of_the_delta_may_be_anything(key: str, junk: Any) -> None:
    result = chat(HI, frame({key: junk}), frame({key: junk, "content": "!"}), finish(), DONE)
    assert result.ended.ending == "completed"


def test_a_legacy_call_whole_on_the_chunk_of_its_finish_gets_its_arguments_in_place() -> None:
    result = chat(frame({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}, "function_call"), DONE)
    whole = frame({"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}}, "function_call")
    assert result.sent == [whole, DONE]


def test_entries_with_an_index_are_counted_by_those_without() -> None:
    result = chat(
        HI, frame({"annotations": [{"index": 4}, {"index": 2}]}), frame({"annotations": [{"url": "x"}]}), finish(), DONE
    )
    assert result.sent[2] == frame({"annotations": [{"index": 5, "url": "x"}]})


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


def test_a_legacy_call_and_a_call_are_two() -> None:
    beside = tool_calls(call_entry("a", "g", "[]"))
    result = run(tape([*LEGACY, beside, finish("tool_calls"), DONE]))
    assert [(one.name, one.arguments) for one in result.wire.calls()] == [("f", '{"x":1}'), ("g", "[]")]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_so_many_kinds_of_lists_are_numbered(over: int) -> None:
    kinds = LISTS_OF_A_DELTA_MAX + over
    result = run(
        tape([frame({"role": "assistant", **{f"list_{i}": [{"a": 1}] for i in range(kinds)}}), finish(), DONE])
    )
    assert result.repairs.count("entry_index") == min(kinds, LISTS_OF_A_DELTA_MAX)


# -- which choice -----------------------------------------------------------------------------------------------------

INDEX_MAX = 2**31 - 1


@pytest.mark.parametrize(("index", "sent"), [(INDEX_MAX, INDEX_MAX), (INDEX_MAX + 1, 0), (-1, 0), (1, 1), (True, 0)])
def test_an_index_is_a_number_up_to_a_bound(index: Any, sent: int) -> None:
    result = chat(text("hi", role=True, index=index), finish("stop", index), DONE, request={**ASKED, "n": 2})
    assert result.sent == [text("hi", role=True, index=sent), finish("stop", sent), DONE]


@pytest.mark.parametrize("n", [None, 1, 2, 0, "x"])
def test_the_only_choice_may_have_any_number(n: Any) -> None:
    start = begin("a", "f", "[]", role=True, choice=1)
    frames = [start, finish("tool_calls", 1), DONE]
    assert chat(*frames, request={**ASKED, "n": n}).sent == frames


@pytest.mark.parametrize(("n", "merged"), [(None, True), (1, True), (0, False), (2, False), ("x", False)], ids=str)
def test_calls_join_the_text_where_one_answer_was_asked_for(n: Any, *, merged: bool) -> None:
    result = chat(HI, BESIDE, finish("stop"), finish("tool_calls", 1), DONE, request={**ASKED, "n": n})
    assert [one.choice for one in result.wire.calls()] == [0 if merged else 1]
    assert result.ended.ending == "completed"


@pytest.mark.parametrize("delta", [{}, ROLE, {**ROLE, "content": ""}, {**ROLE, "tool_calls": []}], ids=str)
def test_a_choice_without_calls_is_an_answer_of_its_own(delta: dict[str, Any]) -> None:
    result = chat(HI, frame({"role": "assistant", **delta}, None, 1), finish(), finish("stop", 1), DONE)
    assert sorted(result.wire.choices) == [0, 1]
    assert result.sent[1] == frame({"role": "assistant", **delta}, None, 1)


@pytest.mark.parametrize("word", ["length", "content_filter", "tool_calls", "function_call"])
def test_only_stop_is_the_finish_of_a_part(word: str) -> None:
    result = chat(HI, BESIDE, finish(word), DONE)
    assert result.sent[2] == finish(word)
    assert "finish_of_part" not in result.repairs


def test_a_third_choice_finishes_by_itself() -> None:
    third = text("ho", role=True, index=2)
    result = chat(HI, BESIDE, third, finish("stop"), finish("stop", 2), finish("tool_calls", 1), DONE)
    assert result.sent[3:5] == [frame({}, None), finish("stop", 2)]


# -- one delta --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["tool_calls", "function_call"])
@pytest.mark.parametrize("junk", ["x", 5, True], ids=str)
def test_junk_calls_are_late_only_after_a_finish(key: str, junk: Any) -> None:
    before = chat(HI, frame({key: junk, "content": "!"}), finish(), DONE)
    behind = chat(HI, finish(), frame({key: junk, "content": "!"}), DONE)
    assert (before.repairs, before.ended.flags) == (["calls_not_list"], ())
    assert (sorted(behind.repairs), sorted(behind.ended.flags)) == (["late_call", "late_delta"],) * 2


def part(inside: Any) -> Any:
    """A text part around another one."""
    return {"type": "text", "text": inside}


@pytest.mark.parametrize(
    ("content", "read"),
    [
        ([part([part("x")])], "x"),
        ([part([part(["x"])])], ""),
        ([[[["x"]]]], "x"),
        ([[[[["x"]]]]], ""),
        (part([part(["x"])]), "x"),
        (part([part([part("x")])]), ""),
        (part(part(part(part("x")))), "x"),
        (part(part(part(part(part("x"))))), ""),
    ],
    ids=str,
)
def test_four_levels_of_parts_are_read(content: Any, read: str) -> None:
    result = chat(HI, frame({"content": content}), finish(), DONE)
    assert result.sent[1] == text(read)


@pytest.mark.parametrize("thoughts", [("a", "b"), ("b", "a")])
@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_two_thoughts_that_differ_both_stay(name: str, thoughts: tuple[str, str]) -> None:
    both = frame({"role": "assistant", "reasoning": thoughts[0], "reasoning_content": thoughts[1]})
    assert chat(both, finish(), DONE, reasoning=name).sent[0] == both


def test_half_a_tag_in_a_thought_that_came_under_its_own_name_is_left_out() -> None:
    first = frame({"role": "assistant", "reasoning_content": "hm", "content": "<think>hm</th"})
    result = chat(first, finish(), DONE, think=True)
    assert result.sent == [frame({"role": "assistant", "reasoning_content": "hm", "content": ""}), finish(), DONE]


@pytest.mark.parametrize("first", [5, None, {"index": 4}], ids=str)
def test_every_entry_of_a_list_is_numbered(first: Any) -> None:
    (delta,) = chat(HI, frame({"annotations": [first, {"a": 1}]})).sent[1:2]
    assert delta == frame({"annotations": [first, {"index": 5 if isinstance(first, dict) else 0, "a": 1}]})


def test_a_call_that_comes_under_both_names_is_one_call() -> None:
    """As llama-cpp-python sends each of its deltas."""

    def twice(arguments: str, **first: str) -> bytes:
        function = {"name": "w", "arguments": arguments}
        entry = {"index": 0, "id": "call_1", "type": "function", "function": function}
        return frame({**first, "function_call": function, "tool_calls": [entry]})

    alone = frame({"function_call": {"name": "w", "arguments": "{}"}})
    result = chat(HI, twice("{"), twice("}"), alone, finish("tool_calls"), DONE)
    assert [(call.id, call.name, call.arguments) for call in result.wire.calls()] == [("call_1", "w", "{}")]
    assert b"function_call" not in result.out
    assert result.repairs.count("legacy_call_twin") == 3


CASES = [
    ("", "", ""),
    ("hi", "", "hi"),
    ("  hi", "", "  hi"),
    ("<think>hm</think>hi", "hm", "hi"),
    (" \n<think>hm</think>\nhi", "hm", "\nhi"),
    ("<think></think>hi", "", "hi"),
    ("<think>hm", "hm", ""),
    ("<think>a < b </thin", "a < b </thin", ""),
    ("<think>a</thi</think>b", "a</thi", "b"),
    ("<thin", "", "<thin"),
    ("<thinker>", "", "<thinker>"),
    ("hi <think>no</think>", "", "hi <think>no</think>"),
    ("</think>hi", "", "</think>hi"),
    ("<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
]


@pytest.mark.parametrize(("text", "thought", "answer"), CASES)
def test_every_two_cuts_give_the_same(text: str, thought: str, answer: str) -> None:
    for first, second in [(0, 0), *combinations(range(len(text) + 1), 2)]:
        think = Think()
        parts = [think.feed(piece) for piece in (text[:first], text[first:second], text[second:])]
        parts.append(think.feed("", last=True))
        assert ("".join(a for a, _ in parts), "".join(b for _, b in parts)) == (thought, answer)
        assert think.over


def test_nothing_is_held_that_is_decided() -> None:
    think = Think()
    assert think.feed("<think>a </th") == ("a ", "")
    assert think.feed("e") == ("</the", "")
    assert think.feed("</think>b") == ("", "b")
    assert think.feed("<think>") == ("", "<think>")


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_white_space_is_waited_through_up_to_a_bound(over: int) -> None:
    think = Think()
    space = " " * (THINK_HEAD_CHARS_MAX + over)
    assert think.feed(space) == (("", space) if over > 0 else ("", ""))
    assert think.over is (over > 0)
