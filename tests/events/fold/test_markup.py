"""Leaked markup is found wherever its pieces were cut (Q77, Q78, Q81 to Q83). All cases are synthetic."""

import pytest

from tests.support.chat import DONE, finish, run, tape, text
from wiretape.events.core.model import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta
from wiretape.events.emit import summarise
from wiretape.events.folds.summary import Markup, Warned

CASES = [
    ("Q77 Q78 <think> in text", "<think>hm</think>", ("leaked_think",)),
    ("Q78 only the closing tag", "hm</think>hi", ("leaked_think",)),
    ("Q81 Kimi's section", "<|tool_calls_section_begin|>", ("leaked_tool_section",)),
    ("Q81 Kimi's call", "<|tool_call_begin|>", ("leaked_tool_section",)),
    ("Q81 Kimi's other dialect", "<|open|>tools", ("leaked_tool_section",)),
    ("Q82 DeepSeek, full-width pipes", "<\uff5cDSML\uff5cinvoke", ("leaked_dsml",)),
    ("Q82 DeepSeek, plain pipes", "<|DSML|invoke", ("leaked_dsml",)),
    ("Q82 DeepSeek, drawn pipes", "<\u2502DSML\u2502invoke", ("leaked_dsml",)),
    ("Q83 Qwen", "<tool_call>{}</tool_call>", ("leaked_tool_call",)),
    ("Q83 Qwen's coder", "<function=f>", ("leaked_tool_call",)),
    ("two at once", "<tool_call></think>", ("leaked_think", "leaked_tool_call")),
    ("nothing", "a < b, <thinker>, <|x|>, DSML", ()),
]


@pytest.mark.parametrize(("words", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_markup_in_text_is_found_wherever_it_is_cut(words: str, found: tuple[str, ...]) -> None:
    for cut in range(len(words) + 1):
        markup = Markup()
        for piece in ("long before " * 3, words[:cut], words[cut:]):
            markup.apply(TextDelta(n=0, choice=0, text=piece))
        assert sorted(markup.found) == sorted(found)
        one_by_one = Markup()
        for letter in words:
            one_by_one.apply(TextDelta(n=0, choice=0, text=letter))
        assert sorted(one_by_one.found) == sorted(found)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (ReasoningDelta(n=0, choice=0, text="<think><tool_call>"), ("leaked_tool_call",)),
        (ToolArgumentsDelta(n=0, choice=0, call=0, text="<think><tool_call><|DSML|"), ("leaked_dsml",)),
    ],
    ids=["a thought", "arguments"],
)
def test_markup_is_found_only_where_it_is_out_of_place(event: Event, found: tuple[str, ...]) -> None:
    markup = Markup()
    markup.apply(event)
    assert tuple(markup.found) == found


def test_pieces_of_different_texts_do_not_make_a_marker() -> None:
    markup = Markup()
    markup.apply(TextDelta(n=0, choice=0, text="<thi"))
    markup.apply(TextDelta(n=0, choice=1, text="nk>"))
    markup.apply(ReasoningDelta(n=0, choice=0, text="nk>"))
    assert not markup.found


def test_leaked_markup_is_a_warning_and_no_repair() -> None:
    result = run(tape([text("<tool_call>", role=True), finish(), DONE]))
    assert summarise(result.records).warnings == [Warned("leaked_tool_call", ())]
    assert result.repairs == []
