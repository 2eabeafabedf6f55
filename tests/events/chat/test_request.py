"""The facts of a request of any shape. All cases synthetic."""

from typing import Any

import pytest

from wiretape.events.chat.request import facts
from wiretape.events.core.settings import Facts


def test_a_request_with_everything() -> None:
    body = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}],
        "functions": [{"name": "h"}],
    }
    known = Facts(stream=True, usage=True, model="m", choices=2, tools=frozenset({"f", "g", "h"}))
    assert facts(body) == known
    assert Facts.of({"facts": known.to_keys()}) == known


@pytest.mark.parametrize("n", [None, 1], ids=str)
def test_one_answer_is_the_default(n: int | None) -> None:
    assert facts({"n": n}).choices == 1
    assert facts({}).choices == 1


@pytest.mark.parametrize("junk", [None, 5, True, "x", [], [None], [[]], {}, {"name": 5}, [{"function": 5}]], ids=str)
def test_junk_is_nothing(junk: Any) -> None:
    assert facts(junk) == Facts(stream=False, choices=1)
    members = {"stream_options": junk, "tools": junk, "functions": junk}
    assert facts(members) == Facts(stream=False, choices=1)


@pytest.mark.parametrize("junk", ["2", 2.0, True, [], {}], ids=str)
def test_a_junk_count_of_answers_is_unknown(junk: Any) -> None:
    assert facts({"n": junk}).choices is None
