"""Requests of the shape that codex, Claude Code and others send, in every direction, and back."""

from typing import Any, Final

import pytest

from tests.events.crossing.asking import PAIRS, assistant, chat, crossed, messages, responses, user
from wiretape.events.core.errors import RequestError
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.crossing.envelope import seal
from wiretape.events.crossing.request import Options
from wiretape.events.dialects import DIALECTS
from wiretape.events.responses.ask import earlier, sealed_items
from wiretape.events.responses.dialect import Responses

RESPONSES: Final = Responses()
SCHEMA: Final = {"type": "object", "properties": {"cmd": {"type": "string"}}, "required": ["cmd"]}
UNPARSED: Final = "__unparsedToolInput"
IMAGE_URL: Final = "data:image/png;base64,aGk="


def codex() -> dict[str, Any]:
    """Return a second turn as codex asks for it: instructions as a developer's item, every kind of tool."""
    grammar = {"type": "grammar", "syntax": "lark", "definition": "start: line+"}
    wait = {"type": "function", "name": "wait", "description": "Waits.", "parameters": SCHEMA, "strict": False}
    return responses(
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "In /tmp."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Use ls."}], "content": None},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
        {"type": "function_call", "name": "exec", "arguments": '{"cmd": "ls"}', "call_id": "call_1"},
        {"type": "function_call", "name": "wait", "namespace": "clock", "arguments": "{}", "call_id": "call_2"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.txt"},
        {"type": "function_call_output", "call_id": "call_2", "output": "Waited."},
        stream=True,
        store=False,
        include=["reasoning.encrypted_content"],
        tool_choice="auto",
        parallel_tool_calls=True,
        prompt_cache_key="thread",
        reasoning={"effort": "medium", "summary": "auto", "context": "all_turns"},
        client_metadata={"turn": "1"},
        text={"verbosity": "low"},
        tools=[
            {"type": "function", "name": "exec", "description": "Runs.", "parameters": SCHEMA, "strict": False},
            {"type": "namespace", "name": "clock", "description": "Time.", "tools": [wait]},
            {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar},
            {"type": "web_search"},
        ],
    )


def claude_code() -> dict[str, Any]:
    """Return a second turn as Claude Code asks for it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **SCHEMA}
    call = {"type": "tool_use", "id": "toolu_1", "name": "Bash", "input": {"cmd": "ls"}}
    bad = {"type": "tool_use", "id": "toolu_2", "name": "Bash", "input": {UNPARSED: {"raw": '{"cmd": "l', "len": 10}}}
    return messages(
        {
            "role": "user",
            "content": [{"type": "text", "text": "Remember."}, {"type": "text", "text": "List the files."}],
        },
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "Use ls.", "signature": ""}, call, bad]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "toolu_1", "content": "a.txt", "is_error": False},
                {"type": "tool_result", "tool_use_id": "toolu_2", "content": "Not JSON.", "is_error": True},
                {"type": "text", "text": "Go on.", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {"role": "system", "content": [{"type": "text", "text": "2 skills."}], "output_config": {"effort": "low"}},
        system=[{"type": "text", "text": "You are a tool."}, {"type": "text", "text": "Be brief."}],
        tools=[
            {"name": "Bash", "description": "Runs.", "input_schema": schema},
            {"name": "DeferredToolPlaceholder", "input_schema": SCHEMA, "defer_loading": True},
        ],
        metadata={"user_id": '{"device_id":"d","account_uuid":"","session_id":"s-1","more":"' + "x" * 80 + '"}'},
        thinking={"type": "adaptive", "display": "summarized"},
        context_management={"edits": [{"type": "clear_thinking_20251015"}]},
        output_config={"effort": "high"},
        stream=True,
    )


def opencode() -> dict[str, Any]:
    """Return a second turn as opencode asks a chat upstream for it."""
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
    function = {"name": "bash", "description": "Runs.", "parameters": SCHEMA}
    return chat(
        {"role": "system", "content": "Be brief."},
        user([{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": IMAGE_URL}}]),
        assistant("", tool_calls=[call], reasoning_content="Use ls."),
        {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
        max_tokens=32000,
        stream=True,
        stream_options={"include_usage": True},
        tool_choice="auto",
        tools=[{"type": "function", "function": function}],
    )


BODIES: Final = {"chat": opencode, "responses": codex, "messages": claude_code}


def test_codex_in_front_of_chat() -> None:
    found = crossed(codex(), "responses", "chat")
    body = found.body
    assert [each["role"] for each in body["messages"]] == ["system", "user", "user", "assistant", "tool", "tool"]
    assert body["messages"][3] == {
        "role": "assistant",
        "content": "I look.",
        "reasoning_content": "Use ls.",
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "exec", "arguments": '{"cmd": "ls"}'}},
            {"id": "call_2", "type": "function", "function": {"name": "clock__wait", "arguments": "{}"}},
        ],
    }
    assert [each["function"]["name"] for each in body["tools"]] == ["exec", "clock__wait", "apply_patch"]
    assert {key: body[key] for key in ("reasoning_effort", "parallel_tool_calls", "prompt_cache_key", "verbosity")} == {
        "reasoning_effort": "medium",
        "parallel_tool_calls": True,
        "prompt_cache_key": "thread",
        "verbosity": "low",
    }
    assert found.lost == ("client_metadata", "hosted_tools", "reasoning_mode", "reasoning_summary")
    assert "store" not in body
    assert found.crossing["echo"]["tool_choice"] == "auto"
    assert len(found.crossing["echo"]["tools"]) == 4
    assert found.crossing["tools"]["clock__wait"] == {"name": "wait", "namespace": "clock", "kind": "function"}
    assert found.facts.tools == {"exec", "clock__wait", "apply_patch"}


def test_tools_are_repeated_with_every_member_that_the_answer_has() -> None:
    bare = {"type": "function", "name": "wait", "parameters": SCHEMA}
    tools = crossed(responses(user(), tools=[bare, {"type": "web_search"}]), "responses", "chat").crossing["echo"][
        "tools"
    ]
    assert tools == [{**bare, "description": None, "strict": True}, {"type": "web_search"}]


def test_codex_in_front_of_messages() -> None:
    found = crossed(codex(), "responses", "messages")
    body = found.body
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    assert [each["role"] for each in body["messages"]] == ["user", "assistant", "user"]
    assert [block["type"] for block in body["messages"][1]["content"]] == ["text", "tool_use", "tool_use"]
    assert [block["type"] for block in body["messages"][2]["content"]] == ["tool_result", "tool_result"]
    assert body["max_tokens"] == 32_000
    assert body["tool_choice"] == {"type": "auto"}
    assert body["output_config"] == {"effort": "medium"}
    assert {"thinking", "reasoning_history", "verbosity", "prompt_cache_key", "max_tokens_default"} <= set(found.lost)


def test_claude_code_in_front_of_chat() -> None:
    found = crossed(claude_code(), "messages", "chat", Options(max_tokens_max=500))
    body = found.body
    roles = ["system", "user", "assistant", "tool", "tool", "user", "system"]
    assert [each["role"] for each in body["messages"]] == roles
    assert body["messages"][0]["content"] == "You are a tool.\n\nBe brief."
    assert body["messages"][2]["reasoning_content"] == "Use ls."
    bad = body["messages"][2]["tool_calls"][1]["function"]["arguments"]
    assert bad.startswith('{"__unparsedToolInput":')
    assert body["max_completion_tokens"] == 500
    assert body["reasoning_effort"] == "high"
    assert body["prompt_cache_key"] == "s-1"
    assert body["user"].startswith("user_")
    assert len(body["user"]) <= 64
    assert [each["function"]["name"] for each in body["tools"]] == ["Bash"]
    assert found.lost == (
        "cache_control",
        "context_management",
        "deferred_tools",
        "effort",
        "is_error",
        "max_tokens_clamped",
        "reasoning_summary",
    )


def test_claude_code_in_front_of_responses() -> None:
    found = crossed(claude_code(), "messages", "responses")
    body = found.body
    assert body["instructions"] == "You are a tool.\n\nBe brief."
    kinds = [item.get("role", item["type"]) for item in body["input"]]
    calls, outputs = ["function_call"] * 2, ["function_call_output"] * 2
    assert kinds == ["user", *calls, *outputs, "user", "system"]
    assert body["reasoning"] == {"effort": "high", "summary": "auto"}
    assert body["include"] == ["reasoning.encrypted_content"]
    assert "reasoning_history" in found.lost


def test_opencode_in_front_of_messages() -> None:
    body = crossed(opencode(), "chat", "messages").body
    assert body["system"] == [{"type": "text", "text": "Be brief."}]
    asked, called, result = body["messages"]
    assert [block["type"] for block in asked["content"]] == ["text", "image"]
    assert called["content"] == [{"type": "tool_use", "id": "call_1", "name": "bash", "input": {"cmd": "ls"}}]
    assert result["content"][0]["content"] == [{"type": "text", "text": "a.txt"}]
    assert body["max_tokens"] == 32000


def test_opencode_in_front_of_responses() -> None:
    body = crossed(opencode(), "chat", "responses").body
    assert body["instructions"] == "Be brief."
    assert body["input"][0]["content"][1] == {"type": "input_image", "image_url": IMAGE_URL, "detail": "auto"}
    assert body["input"][1]["arguments"] == '{"cmd": "ls"}'
    assert body["tools"][0]["strict"] is False


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_crossing_is_the_same_each_time_and_leaves_the_request_alone(theirs: str, ours: str) -> None:
    body = BODIES[theirs]()
    assert crossed(body, theirs, ours) == crossed(BODIES[theirs](), theirs, ours)
    assert body == BODIES[theirs]()


@pytest.mark.parametrize(("theirs", "ours"), PAIRS)
def test_request_that_crosses_back_and_over_again_stays_what_it_was(theirs: str, ours: str) -> None:
    once = crossed(BODIES[theirs](), theirs, ours).body
    back = crossed(once, ours, theirs).body
    again = crossed(back, theirs, ours).body
    assert crossed(crossed(again, ours, theirs).body, theirs, ours).body == again
    history = "input" if ours == "responses" else "messages"
    assert [each.get("role") for each in again[history]] == [each.get("role") for each in once[history]]
    names = [[each.get("function", each)["name"] for each in body["tools"]] for body in (once, again)]
    assert names[0] == names[1]


def test_proofs_of_every_upstream_go_back_to_it_alone() -> None:
    details = [{"type": "reasoning.encrypted", "data": "opaque", "index": 0}]
    sealed = seal(
        [
            ("signature", "c2ln"),
            ("redacted_thinking", "cmVk"),
            ("encrypted_content", {"id": "rs_1", "encrypted_content": "ZW5j"}),
            ("reasoning_details", details),
            ("extra_content", {"google": 1}),
        ]
    )
    thought: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    call = {"type": "function_call", "name": "exec", "arguments": "{}", "call_id": "call_1"}
    from_codex = responses(user(), thought, call)
    said = crossed(from_codex, "responses", "chat").body["messages"][1]
    assert (said["reasoning_details"], said["extra_content"]) == (details, {"google": 1})
    blocks = crossed(from_codex, "responses", "messages").body["messages"][1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "redacted_thinking", "tool_use"]
    details_of_chat = [
        {"type": "reasoning.encrypted", "data": sealed, "index": 0},
        {"type": "reasoning.text", "text": "x"},
    ]
    from_chat = chat(user(), assistant("Yes.", reasoning_details=details_of_chat), user())
    assert crossed(from_chat, "chat", "responses").body["input"][1]["encrypted_content"] == "ZW5j"
    for theirs, body in (("responses", from_codex), ("chat", from_chat)):
        for asked, ours in PAIRS:
            if asked == theirs:
                assert b"wt1." not in dumps(crossed(body, theirs, ours).body)


def test_sealed_thoughts_of_a_request_are_found_for_an_upstream_of_the_same_dialect() -> None:
    sealed = seal([("signature", "c2ln")])
    item: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": sealed}
    assert sealed_items(responses(user(), item, {**item, "encrypted_content": "of OpenAI"})) == [1]
    blocks = [{"type": "thinking", "thinking": "", "signature": sealed}, {"type": "redacted_thinking", "data": sealed}]
    mine = {"type": "thinking", "thinking": "", "signature": "c2ln"}
    unsealed = DIALECTS["messages"].unsealed(dumps(messages(user(), assistant([mine, *blocks]), user())))
    assert parse(unsealed) == messages(user(), assistant([mine]), user())


def test_previous_turns_come_before_those_of_the_request() -> None:
    first = responses("What?", instructions="Not repeated.")
    first["input"] = "What?"
    answer = {
        "output": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "This."}]}]
    }
    previous = earlier(first, answer)
    body = responses(user("And?"), instructions="Be brief.", previous_response_id="resp_1")
    said = crossed(body, "responses", "chat", Options(previous=previous)).body["messages"]
    assert [each["content"] for each in said] == ["Be brief.", "What?", "This.", "And?"]


def test_items_that_a_request_names_take_the_place_of_their_names() -> None:
    names: list[dict[str, Any]] = [{"type": "item_reference", "id": name} for name in ("msg_01ab-c_0", "rs_0a1b", "")]
    body = responses(user(), *names, {"type": "item_reference"})
    assert RESPONSES.referenced(body) == {"msg_01ab-c_0": "resp_01ab-c"}
    item = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Yes."}]}
    assert RESPONSES.with_items(body, {"msg_01ab-c_0": item})["input"] == [
        user(),
        item,
        *names[1:],
        {"type": "item_reference"},
    ]
    assert RESPONSES.with_items({"input": "x"}, {}) == {"input": "x"}


def test_response_of_ours_is_known_by_its_id() -> None:
    assert (RESPONSES.stream_of("resp_01ab-c"), RESPONSES.stream_of("resp_0a_b"), RESPONSES.stream_of("")) == (
        "01ab-c",
        "",
        "",
    )
    assert (
        RESPONSES.continues({RESPONSES.continued: "resp_1"}),
        RESPONSES.continues({RESPONSES.continued: 1}),
        RESPONSES.continues({}),
    ) == ("resp_1", "", "")
    assert [RESPONSES.is_kept(body) for body in ({}, {"store": True}, {"store": False})] == [True, True, False]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ("not JSON", {UNPARSED: {"raw": "not JSON", "len": 8}}),
        ("[1]", {UNPARSED: {"raw": "[1]", "len": 3}}),
        ("", {}),
    ],
)
def test_arguments_that_are_no_object_are_wrapped(given: str, written: dict[str, Any]) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "bash", "arguments": given}}
    body = chat(user(), assistant(None, tool_calls=[call]), {"role": "tool", "tool_call_id": "call_1", "content": "x"})
    assert crossed(body, "chat", "messages").body["messages"][1]["content"][0]["input"] == written


def test_ids_that_a_client_uses_again_are_made_unique() -> None:
    call = {"type": "function_call", "name": "exec", "arguments": "{}", "call_id": "call_0"}
    output = {"type": "function_call_output", "call_id": "call_0", "output": "x"}
    said = crossed(responses(user(), call, output, user(), call, output), "responses", "messages").body["messages"]
    ids = [said[at]["content"][0].get("id") or said[at]["content"][0]["tool_use_id"] for at in (1, 2, 3, 4)]
    assert ids[0] == ids[1] == "call_0"
    assert ids[2] == ids[3] != "call_0"
    both = crossed(responses(user(), call, call, output, {**output, "output": "y"}), "responses", "messages").body
    calls, results = (message["content"] for message in both["messages"][1:])
    assert [block["id"] for block in calls] == [block["tool_use_id"] for block in results]
    assert [block["content"][0]["text"] for block in results] == ["x", "y"]


def test_result_of_no_call_is_shown_as_text() -> None:
    output = {"type": "function_call_output", "call_id": "call_9", "output": "Late."}
    found = crossed(responses(user(), output), "responses", "chat")
    assert found.body["messages"][-1] == {"role": "user", "content": "[Result of tool call call_9]\n\nLate."}
    assert "orphan_results" in found.lost


def test_text_of_the_user_between_call_and_result_follows_the_result() -> None:
    call = {"type": "function_call", "name": "exec", "arguments": "{}", "call_id": "call_1"}
    output = {"type": "function_call_output", "call_id": "call_1", "output": "x"}
    said = crossed(responses(user(), call, user("Wait."), assistant("Yes."), output), "responses", "chat").body[
        "messages"
    ]
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "user", "assistant"]


def test_dialect_that_refuses_a_request_names_the_member() -> None:
    with pytest.raises(RequestError) as caught:
        crossed(chat(user(), n=2), "chat", "messages")
    assert (caught.value.param, caught.value.code) == ("n", "invalid_parameter")
    assert str(caught.value).startswith("n: ")
    with pytest.raises(RequestError) as caught:
        crossed(responses(user(), frobnicate=1), "responses", "chat")
    assert (caught.value.param, caught.value.code) == ("frobnicate", "unknown_parameter")
