"""`<think>` at the head of a text, cut anywhere (Q78). All cases synthetic."""

from itertools import combinations

import pytest

from wiretape.events.chat.content import Think
from wiretape.events.core.limits import THINK_HEAD_CHARS_MAX

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
        parts.append(think.release())
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
