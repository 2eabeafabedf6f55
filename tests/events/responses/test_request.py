"""What a Responses request contains: facts, and the results of tools."""

from typing import Any

import pytest

from wiretape.events.core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from wiretape.events.core.settings import Facts
from wiretape.events.dialects import DIALECTS

RESPONSES = DIALECTS["responses"]
CALL = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x":1}'}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "done"}
USER = {"role": "user", "content": "hi"}


def results(*items: Any) -> Any:
    """Return the results in a request with these items."""
    return RESPONSES.results_in({"input": [*items]})


def test_facts_of_a_request() -> None:
    tools = [
        {"type": "function", "name": "f"},
        {"type": "custom", "name": "c"},
        {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "in"}, {"type": "namespace"}]},
        {"type": "local_shell"},
        {"type": "web_search"},
        5,
    ]
    more = {"type": "additional_tools", "tools": [{"type": "function", "name": "late"}]}
    body = {"model": "m", "stream": True, "tools": tools, "input": [USER, more]}
    named = frozenset({"f", "c", "in", "local_shell", "late"})
    assert RESPONSES.facts(body) == Facts(stream=True, usage=True, model="m", choices=1, tools=named)


JUNK: list[Any] = [
    None,
    5,
    [],
    {},
    {"model": 5, "tools": 5, "input": "hi"},
    {"input": [None, [], {"type": []}, {"type": {}}]},
]


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_facts_and_results_of_junk(junk: Any) -> None:
    assert RESPONSES.facts(junk) == Facts(stream=False, usage=True, choices=1)
    assert RESPONSES.results_in(junk) is None


def test_results_after_the_last_answer() -> None:
    found = results(USER, CALL, OUTPUT, {"type": "reasoning"}, {**CALL, "call_id": "c2"}, {**OUTPUT, "call_id": "c2"})
    assert found.after == 3
    assert found.results == [("c2", "f", "done", False, False, '{"x":1}')]


def test_results_of_an_older_turn_are_not_new() -> None:
    assert results(CALL, OUTPUT, {"role": "assistant", "content": "ok"}, USER) is None


def test_result_of_no_call_is_an_orphan() -> None:
    assert results(OUTPUT).results == [("c1", "", "done", False, True, "")]
    assert results({**OUTPUT, "call_id": None}).results == [("", "", "done", False, True, "")]


@pytest.mark.parametrize(
    ("kind", "call", "output", "due"),
    [
        ("custom_tool_call", {"name": "p", "input": "a"}, {"output": "o"}, ("p", "o", "a")),
        ("local_shell_call", {"action": {"a": 1}}, {"output": "o"}, ("local_shell", "o", '{"a":1}')),
        ("shell_call", {"action": {}}, {"output": [{"stdout": "x"}]}, ("shell", '[{"stdout":"x"}]', "{}")),
        ("apply_patch_call", {}, {"output": None}, ("apply_patch", "", "")),
        ("computer_call", {"action": {}}, {"output": {"u": 1}}, ("computer", '{"u":1}', "{}")),
        ("tool_search_call", {"arguments": {"q": 1}}, {"tools": []}, ("tool_search", "[]", '{"q":1}')),
    ],
)
def test_results_of_every_kind(kind: str, call: dict[str, Any], output: dict[str, Any], due: tuple[str, ...]) -> None:
    answer = "tool_search_output" if kind == "tool_search_call" else f"{kind}_output"
    (found,) = results({**call, "type": kind, "call_id": "c"}, {**output, "type": answer, "call_id": "c"}).results
    assert (found.name, found.output, found.arguments, found.orphan) == (*due, False)


def test_approval_of_a_tool() -> None:
    asked = {"type": "mcp_approval_request", "id": "a", "name": "look", "arguments": "{}"}
    (found,) = results(asked, {"type": "mcp_approval_response", "approval_request_id": "a", "approve": False}).results
    assert (found.id, found.name, found.output, found.failed) == ("a", "look", "false", True)


def test_output_in_parts_and_long_output() -> None:
    parts = [{"type": "input_text", "text": "a"}, {"type": "input_image"}, {"text": "b"}]
    (found,) = results(CALL, {**OUTPUT, "output": parts, "is_error": True}).results
    assert (found.output, found.failed) == ("ab", True)
    (found,) = results(CALL, {**OUTPUT, "output": "x" * 2 * PREVIEW_BYTES_MAX}).results
    assert len(found.output) == PREVIEW_BYTES_MAX


def test_results_have_a_limit_and_each_id_counts_once() -> None:
    many = [{**OUTPUT, "call_id": f"c{number}"} for number in range(RESULTS_MAX + 2)]
    found = results(*many, many[0])
    assert (len(found.results), found.more) == (RESULTS_MAX, 2)


def test_request_for_a_whole_answer_instead_of_a_stream() -> None:
    assert (
        RESPONSES.unstreamed(b'{"stream":true,"stream_options":{"a":1},"input":"hi"}')
        == b'{"stream":false,"input":"hi"}'
    )
    assert RESPONSES.asks_usage({}) is None
