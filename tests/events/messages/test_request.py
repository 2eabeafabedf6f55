"""What a Messages request contains: facts, and tool results in the shapes that Claude Code sends."""

from typing import Any

import pytest

from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from wiretape.events.core.results import Result
from wiretape.events.core.settings import Facts
from wiretape.events.crossing.envelope import seal
from wiretape.events.messages.dialect import Messages

MESSAGES = Messages()


def call(call_id: Any = "toolu_1", name: Any = "f", **members: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"x": 1}, **members}


def result(call_id: Any = "toolu_1", content: Any = "done", **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **members}


def turn(*messages: tuple[str, Any]) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": content} for role, content in messages]}


def test_the_facts_of_a_request() -> None:
    tools = [{"name": "f"}, {"type": "web_search_20250305", "name": "web_search"}, {"name": ""}, {"name": 5}, "x"]
    facts = MESSAGES.facts({"model": "m", "stream": True, "tools": tools})
    assert facts == Facts(stream=True, usage=True, model="m", choices=1, tools=frozenset({"f", "web_search"}))


@pytest.mark.parametrize("junk", [None, 5, [], {"model": 5, "tools": 5, "stream": "yes"}])
def test_junk_has_facts(junk: Any) -> None:
    assert MESSAGES.facts(junk) == Facts(stream=False, usage=True, model="", choices=1, tools=frozenset())


def test_results_answer_the_last_assistant_message_across_system_ones() -> None:
    body = turn(
        ("user", "go"),
        ("assistant", [call("toolu_0", "old")]),
        ("user", [result("toolu_0", "old")]),
        ("assistant", [{"type": "text", "text": "now"}, call(), call("toolu_2", "g")]),
        ("system", [{"type": "text", "text": "reminder"}]),
        ("user", [result(), {"type": "text", "text": "and"}]),
        ("user", [result("toolu_2", "no", is_error=True)]),
        ("system", "reminder"),
    )
    found = MESSAGES.results_in(body)
    assert found is not None
    assert found.results == [
        Result("toolu_1", "f", "done", failed=False, arguments='{"x":1}'),
        Result("toolu_2", "g", "no", failed=True, arguments='{"x":1}'),
    ]
    assert (found.after, found.more) == (3, 0)


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("done", "done"),
        ([{"type": "text", "text": "a"}, {"type": "image", "source": "x"}, {"type": "text", "text": "b"}], "ab"),
        ([{"type": "tool_reference", "tool_name": "g"}, {"type": "text", "text": "Tool loaded."}], "gTool loaded."),
        ([{"type": "document"}], ""),
        (None, ""),
        ([5, {"text": 5}], ""),
        ("x" * (PREVIEW_BYTES_MAX + 1), "x" * PREVIEW_BYTES_MAX),
        ([{"text": "x" * PREVIEW_BYTES_MAX}, {"text": "y"}], "x" * PREVIEW_BYTES_MAX),
    ],
)
def test_what_a_result_says(content: Any, output: str) -> None:
    found = MESSAGES.results_in(turn(("assistant", [call()]), ("user", [result(content=content)])))
    assert found is not None
    assert [one.output for one in found.results] == [output]


@pytest.mark.parametrize(
    "body",
    [
        None,
        {},
        {"messages": 5},
        turn(("user", "hi")),
        turn(("assistant", [call()])),
        turn(("assistant", [call()]), ("user", [result()]), ("assistant", "done"), ("user", "hi")),
        {"messages": ["x", None]},
    ],
)
def test_a_request_without_results(body: Any) -> None:
    assert MESSAGES.results_in(body) is None


def test_results_of_no_call_are_orphans() -> None:
    found = MESSAGES.results_in(
        turn(("assistant", [call(5), call("a", 5, input=None)]), ("user", [result(5), result("b")]))
    )
    assert found is not None
    assert [(one.id, one.orphan) for one in found.results] == [("", True), ("b", True)]
    nameless = MESSAGES.results_in(turn(("assistant", [call("a", 5)]), ("user", [result("a")])))
    assert nameless is not None
    assert nameless.results == [Result("a", "", "done", arguments='{"x":1}')]
    first = MESSAGES.results_in(turn(("user", [result("a"), result("a", "again")])))
    assert first is not None
    assert [(one.output, one.orphan) for one in first.results] == [("done", True)]


def test_so_many_results_are_kept() -> None:
    found = MESSAGES.results_in(turn(("user", [result(str(number)) for number in range(RESULTS_MAX + 3)])))
    assert found is not None
    assert (len(found.results), found.more) == (RESULTS_MAX, 3)


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (422, "invalid_request_error"),
        (502, "api_error"),
        (529, "overloaded_error"),
    ],
)
def test_an_http_error_has_the_word_of_its_status(status: int, word: str) -> None:
    body = MESSAGES.error_body(status, "no", kind="wiretape_error", param="model")
    assert body == {
        "type": "error",
        "error": {"type": word, "message": "no", "code": "wiretape_error", "param": "model"},
    }
    assert MESSAGES.error_body(status, "no")["error"] == {"type": word, "message": "no"}


def test_a_stream_becomes_a_whole_answer_and_nothing_is_continued() -> None:
    assert MESSAGES.unstreamed(b'{"stream": true, "model": "m"}') == b'{"stream": false, "model": "m"}'
    assert MESSAGES.continues({"previous_response_id": "x"}) == ""
    MESSAGES.asks_usage({})


def test_a_body_without_the_envelopes_that_we_made() -> None:
    sealed = {"type": "thinking", "thinking": "hm", "signature": seal([("reasoning_details", [])])}
    signed = {"type": "thinking", "thinking": "hm", "signature": "EqQB"}
    body = turn(("user", "go"), ("assistant", [sealed, signed, call()]))
    assert parse(MESSAGES.unsealed(dumps(body))) == turn(("user", "go"), ("assistant", [signed, call()]))
    assert MESSAGES.referenced(body) == {}
