"""Canonical chunks and whole answers to events."""

from typing import Any

import pytest

from wiretape.events.chat import chunk
from wiretape.events.core.model import (
    Event,
    Finish,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    Usage,
)


def of_delta(delta: dict[str, Any], reason: str | None = None, **extra: Any) -> list[Event]:
    return list(chunk.events({"choices": [{"index": 1, "delta": delta, "finish_reason": reason}], **extra}, 4))


CASES: list[Any] = [
    pytest.param({"content": "hi"}, [TextDelta(n=4, choice=1, text="hi")], id="text"),
    pytest.param({"content": ""}, [], id="an empty piece says nothing"),
    pytest.param({"content": None, "role": "assistant"}, [], id="nor does a role"),
    pytest.param({"refusal": "no"}, [RefusalDelta(n=4, choice=1, text="no")], id="refusal (Q84)"),
    pytest.param({"reasoning_content": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="reasoning (Q74)"),
    pytest.param({"reasoning": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="the other name (Q73)"),
    pytest.param(
        {"reasoning": "a", "reasoning_content": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="both, once"
    ),
    pytest.param(
        {"reasoning": "b", "reasoning_content": "a"},
        [ReasoningDelta(n=4, choice=1, text="a"), ReasoningDelta(n=4, choice=1, text="b")],
        id="both, and they differ",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        [ToolCallStarted(n=4, choice=1, call=0, id="c", name="f")],
        id="a call starts",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        [
            ToolCallStarted(n=4, choice=1, call=0, id="c", name="f"),
            ToolArgumentsDelta(n=4, choice=1, call=0, text="{}"),
        ],
        id="a whole call (Q12)",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c"}]}, [ToolCallStarted(n=4, choice=1, call=0, id="c", name="")], id="bare"
    ),
    pytest.param(
        {"tool_calls": [{"index": 2, "function": {"name": "_x"}}]},
        [ToolNameDelta(n=4, choice=1, call=2, name="_x")],
        id="a further piece of a name (Q16)",
    ),
    pytest.param(
        {"function_call": {"name": "f", "arguments": "{"}},
        [
            ToolCallStarted(n=4, choice=1, call=chunk.LEGACY_CALL, id="function_call_1", name="f"),
            ToolArgumentsDelta(n=4, choice=1, call=chunk.LEGACY_CALL, text="{"),
        ],
        id="the legacy call (Q29)",
    ),
    pytest.param({"function_call": {"name": "", "arguments": None}}, [], id="an empty legacy call"),
]


@pytest.mark.parametrize(("delta", "events"), CASES)
def test_a_delta(delta: dict[str, Any], events: list[Event]) -> None:
    assert of_delta(delta) == events


def test_the_finish_comes_after_the_content_of_its_chunk_and_usage_last() -> None:
    assert of_delta({"content": "."}, "stop", usage={"total_tokens": 1}) == [
        TextDelta(n=4, choice=1, text="."),
        Finish(n=4, choice=1, reason="stop"),
        Usage(n=4, counts={"total_tokens": 1}),
    ]
    assert of_delta({}, usage={}) == []
