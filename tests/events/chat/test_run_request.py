"""Requests for runs: the wrong member is named, and the chat requests that are made from them."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.chat import DONE, call, finish, frame, tape, text
from wiretape.events.chat.run_request import (
    RunRequestError,
    chat_request,
    check_outputs,
    check_start,
    history_of,
    next_request,
    start_request,
)
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.limits import SESSION_CHARS_MAX
from wiretape.events.emit import summarise
from wiretape.events.folds.summary import StreamSummary

SAID = {"role": "user", "content": "hi"}

WRONG: Mapping[str, tuple[Any, str]] = {
    "no input": ({"model": "m"}, "input"),
    "null input": ({"input": None}, "input"),
    "empty input": ({"input": ""}, "input"),
    "empty list": ({"input": []}, "input"),
    "number": ({"input": 1}, "input"),
    "a message without a role": ({"input": [{"content": "hi"}]}, "input"),
    "messages": ({"input": "hi", "messages": []}, "messages"),
    "stream": ({"input": "hi", "stream": True}, "stream"),
    "stream options": ({"input": "hi", "stream_options": None}, "stream_options"),
    "several answers": ({"input": "hi", "n": 2}, "n"),
    "model": ({"input": "hi", "model": 1}, "model"),
    "instructions": ({"input": "hi", "instructions": []}, "instructions"),
    "history": ({"input": "hi", "conversation_history": ["hi"]}, "conversation_history"),
    "no list of tools": ({"input": "hi", "tools": {}}, "tools"),
    "no tool": ({"input": "hi", "tools": [1]}, "tools[0]"),
    "no name": ({"input": "hi", "tools": [{"type": "function", "name": "f"}, {"type": "function"}]}, "tools[1]"),
    "no name inside": ({"input": "hi", "tools": [{"type": "function", "function": {"description": "x"}}]}, "tools[0]"),
    "a hosted tool": ({"input": "hi", "tools": [{"type": "web_search"}]}, "tools[0]"),
    "a long session": ({"input": "hi", "session_id": "x" * (SESSION_CHARS_MAX + 1)}, "session_id"),
    "no session": ({"input": "hi", "session_id": ""}, "session_id"),
    "half an emoji": ({"input": "hi", "session_id": "\ud83d"}, "session_id"),
    "metadata": ({"input": "hi", "metadata": []}, "metadata"),
    "arguments": ({"input": "hi", "stream_tool_arguments": 1}, "stream_tool_arguments"),
    "previous": ({"input": "hi", "previous_response_id": 1}, "previous_response_id"),
}


@pytest.mark.parametrize(("body", "param"), WRONG.values(), ids=WRONG)
def test_a_wrong_member_is_named(body: Any, param: str) -> None:
    with pytest.raises(RunRequestError) as caught:
        check_start(dumps(body))
    assert (caught.value.param, caught.value.code) == (param, "invalid_parameter")
    assert str(caught.value).startswith(param)


def test_a_chat_request_has_the_other_members_as_they_are() -> None:
    function: dict[str, Any] = {"name": "f", "parameters": {}, "strict": True}
    custom = {"type": "custom", "custom": {"name": "c"}}
    body: dict[str, Any] = {
        "input": [SAID],
        "instructions": "Be brief.",
        "tools": [{"type": "function", **function}, {"type": "function", "function": function}, custom],
        "session_id": "x" * SESSION_CHARS_MAX,
        "metadata": {"a": 1},
        "stream_tool_arguments": True,
        "temperature": 0,
        "top_p": None,
    }
    chat: dict[str, Any] = {"type": "function", "function": function}
    assert parse(chat_request(check_start(dumps(body)), [{"role": "user", "content": "ho"}])) == {
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "ho"}, SAID],
        "tools": [chat, chat, custom],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    assert parse(chat_request(check_start(b'{"input":"hi","model":"m"}'), []))["messages"] == [SAID]


PENDING: Mapping[str, Any] = {"a": {}, "b": {}}
BAD_OUTPUTS: Mapping[str, tuple[Any, str, str]] = {
    "none": (None, "tool_outputs", "invalid_parameter"),
    "empty": ([], "tool_outputs", "invalid_parameter"),
    "no object": ([1], "tool_outputs[0].call_id", "invalid_parameter"),
    "no output": ([{"call_id": "a"}], "tool_outputs[0].output", "invalid_parameter"),
    "no output of a failure": ([{"call_id": "a", "error": True}], "tool_outputs[0].output", "invalid_parameter"),
    "error": ([{"call_id": "a", "output": "x", "error": 1}], "tool_outputs[0].error", "invalid_parameter"),
    "unknown": ([{"call_id": "c", "output": "x"}], "tool_outputs[0].call_id", "call_not_pending"),
    "repeated": ([{"call_id": "a", "output": "x"}] * 2, "tool_outputs[1].call_id", "call_not_pending"),
    "missing": ([{"call_id": "a", "output": "x"}], "tool_outputs", "invalid_parameter"),
}


@pytest.mark.parametrize(("given", "param", "code"), BAD_OUTPUTS.values(), ids=BAD_OUTPUTS)
def test_outputs_that_do_not_fit_the_calls_are_refused(given: Any, param: str, code: str) -> None:
    with pytest.raises(RunRequestError) as caught:
        check_outputs(dumps({"tool_outputs": given}), PENDING, "waiting_for_tools")
    assert (caught.value.param, caught.value.code) == (param, code)


def test_a_run_that_does_not_wait_takes_no_outputs() -> None:
    outputs = dumps({"tool_outputs": [{"call_id": "a", "output": "x"}]})
    with pytest.raises(RunRequestError, match="of a: it is running") as caught:
        check_outputs(outputs, {}, "running")
    assert caught.value.code == "run_not_waiting"


def answered(*frames: bytes) -> StreamSummary:
    return summarise(tape([*frames, DONE]))


def test_the_next_request_repeats_the_calls_with_their_outputs() -> None:
    summary = answered(
        text("Let me look."),
        call(index=0, id="a", name="f", arguments='{"x":1}'),
        call(index=1, id="b", name="g", arguments=""),
        finish("tool_calls"),
    )
    given = [
        {"call_id": "b", "output": {"y": 2}, "error": "late"},
        {"call_id": "a", "output": "", "error": "no such file"},
    ]
    outputs = check_outputs(dumps({"tool_outputs": given}), PENDING, "waiting_for_tools")
    asked = parse(next_request(dumps({"model": "m", "messages": [SAID]}), summary, outputs))
    calls = [
        {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
        {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
    ]
    assert asked == {
        "model": "m",
        "messages": [
            SAID,
            {"role": "assistant", "content": "Let me look.", "tool_calls": calls},
            {"role": "tool", "tool_call_id": "a", "content": "no such file"},
            {"role": "tool", "tool_call_id": "b", "content": '{"y":2}\nlate'},
        ],
    }


def test_a_custom_call_is_repeated_with_its_text() -> None:
    started = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "some text"}}
    summary = answered(frame({"tool_calls": [started]}), finish("tool_calls"))
    asked = parse(next_request(b"{}", summary, [{"call_id": "a", "output": "x"}]))
    assert asked["messages"][0] == {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "custom", "custom": {"name": "f", "input": "some text"}}],
    }


def test_a_history_has_neither_old_instructions_nor_calls_without_outputs() -> None:
    system = {"role": "system", "content": "Be brief."}
    last, hello = dumps({"messages": [system, SAID]}), {"role": "assistant", "content": "Hello."}
    assert history_of(b'{"input":"hi","instructions":"Be brief."}', last, "Hello.") == [SAID, hello]
    assert history_of(b'{"input":"hi"}', last, "Hello.") == [system, SAID, hello]
    assert history_of(b"", dumps({"messages": [SAID]}), "") == [SAID]


def test_the_history_of_a_relayed_run_is_what_the_upstream_was_sent() -> None:
    before, hello = {"role": "user", "content": "before"}, {"role": "assistant", "content": "Hello."}
    last = dumps({"conversation_history": [before], "input": "hi", "instructions": "Be brief."})
    assert history_of(last, last, "Hello.") == [before, SAID, hello]


def test_a_relayed_run_sends_the_conversation_as_roles_and_texts() -> None:
    parts = {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "image"}, {"text": "b"}]}
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "x"}]}
    history = [
        parts,
        called,
        {"role": "tool", "tool_call_id": "x", "content": "18"},
        "junk",
        {"role": "user", "content": 1},
    ]
    body = dumps({"input": [SAID, {"role": "user", "content": "more"}], "previous_response_id": "run_1", "model": "m"})
    sent = parse(start_request(body, check_start(body, own=False), history))
    texts = [{"role": "assistant", "content": "ab"}, SAID]
    assert sent == {"model": "m", "conversation_history": texts, "input": [{"role": "user", "content": "more"}]}


@pytest.mark.parametrize("body", [b'{"input": "hi" }', b'{ "input":"hi","conversation_history":[]}'])
def test_a_relayed_run_without_a_known_conversation_is_sent_as_it_came(body: bytes) -> None:
    history = [SAID] if b"history" in body else []
    assert start_request(body, check_start(body, own=False), history) == body


def test_a_relayed_run_brings_no_tools() -> None:
    assert check_start(b'{"input":"hi","tools":[]}', own=False)["tools"] == []
    with pytest.raises(RunRequestError) as caught:
        check_start(b'{"input":"hi","tools":[{"type":"function","name":"f"}]}', own=False)
    assert caught.value.param == "tools"
