"""What other translators of requests got wrong: one test for each row of the fault catalogue, named by its number."""

from typing import Any

import pytest

from tests.events.crossing.asking import OPTIONS, PAIRS, assistant, chat, crossed, messages, responses, user
from wiretape.events.core.errors import RequestError
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.crossing.envelope import seal
from wiretape.events.crossing.names import way_back
from wiretape.events.crossing.request import Options
from wiretape.events.crossing.turns import FAILED_MARK

PNG = {"type": "base64", "media_type": "image/png", "data": "aGk="}
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}


def tool_use(call_id: str = "toolu_1", name: str = "Read", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def tool_result(content: Any, call_id: str = "toolu_1", **members: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **members}


def tool(name: str = "Read", **members: Any) -> dict[str, Any]:
    return {"name": name, "description": "Reads.", "input_schema": SCHEMA, **members}


def function(name: str = "read", **members: Any) -> dict[str, Any]:
    return {"type": "function", "name": name, "description": "Reads.", "parameters": SCHEMA, "strict": False, **members}


def function_call(call_id: str = "call_1", name: str = "read", **members: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": '{"path":"a"}', **members}


def output(said: Any = "A line.", call_id: str = "call_1") -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": said}


def sent_messages(body: dict[str, Any], theirs: str, ours: str, options: Options = OPTIONS) -> list[Any]:
    found: list[Any] = crossed(body, theirs, ours, options).body["messages"]
    return found


# -- Messages to chat -------------------------------------------------------------------------------------------------


def test_fault_01_system_message_in_the_middle_keeps_role_and_place() -> None:
    body = messages(user("a"), {"role": "system", "content": "b"}, user("c"), system="first")
    said = sent_messages(body, "messages", "chat")
    assert [(each["role"], each["content"]) for each in said] == [
        ("system", "first"),
        ("user", "a"),
        ("system", "b"),
        ("user", "c"),
    ]


def test_fault_02_upstream_that_takes_system_only_first_gets_later_ones_as_tagged_user_text() -> None:
    body = messages(user("a"), {"role": "system", "content": "b"}, user("c"), system="first")
    found = crossed(body, "messages", "chat", Options(system_first=True))
    assert [each["role"] for each in found.body["messages"]] == ["system", "user", "user", "user"]
    assert found.body["messages"][2]["content"] == "<system>\nb\n</system>"
    assert "system_moved" in found.lost


def test_fault_03_image_of_a_result_follows_as_a_user_message() -> None:
    body = messages(user(), assistant([tool_use()]), user([tool_result([{"type": "image", "source": PNG}])]))
    *_, result, shown = sent_messages(body, "messages", "chat")
    assert result["role"] == "tool"
    assert result["content"]
    assert shown["role"] == "user"
    assert "toolu_1" in shown["content"][0]["text"]
    assert shown["content"][1]["image_url"]["url"] == "data:image/png;base64,aGk="


def test_fault_04_images_of_several_results_follow_after_the_last_one() -> None:
    image = [{"type": "image", "source": PNG}]
    results = user([tool_result(image), tool_result(image, "toolu_2"), {"type": "text", "text": "Look."}])
    body = messages(user(), assistant([tool_use(), tool_use("toolu_2")]), results)
    said = sent_messages(body, "messages", "chat")
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool", "user", "user"]
    assert [part["type"] for part in said[4]["content"]] == ["text", "image_url", "text", "image_url"]


def test_fault_05_content_of_a_result_is_a_string() -> None:
    texts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = messages(user(), assistant([tool_use()]), user([tool_result(texts)]))
    assert sent_messages(body, "messages", "chat")[-1]["content"] == "a\n\nb"


def test_fault_06_reference_to_a_tool_is_text() -> None:
    reference = [{"type": "tool_reference", "tool_name": "Grep"}]
    body = messages(user(), assistant([tool_use(name="ToolSearch")]), user([tool_result(reference)]), tools=[tool()])
    assert sent_messages(body, "messages", "chat")[-1]["content"] == "Tool loaded: Grep"


def test_fault_07_deferred_tool_is_sent_once_it_was_found() -> None:
    tools = [tool("ToolSearch"), tool("Grep", defer_loading=True), tool("Glob", defer_loading=True)]
    first = crossed(messages(user(), tools=tools), "messages", "chat")
    assert [each["function"]["name"] for each in first.body["tools"]] == ["ToolSearch"]
    assert "deferred_tools" in first.lost
    found = user([tool_result([{"type": "tool_reference", "tool_name": "Grep"}])])
    later = crossed(messages(user(), assistant([tool_use(name="ToolSearch")]), found, tools=tools), "messages", "chat")
    assert [each["function"]["name"] for each in later.body["tools"]] == ["ToolSearch", "Grep"]
    everything = [{"type": "tool_search_tool_regex_20251119", "name": "tool_search_tool_regex"}, *tools]
    all_of_them = crossed(messages(user(), tools=everything), "messages", "chat")  # no upstream searches for them here
    assert len(all_of_them.body["tools"]) == 3


def test_fault_08_tool_of_the_server_is_left_out_and_named() -> None:
    hosted = {"type": "web_search_20250305", "name": "web_search"}
    found = crossed(messages(user(), tools=[hosted, tool()]), "messages", "chat")
    assert [each["function"]["name"] for each in found.body["tools"]] == ["Read"]
    assert found.lost == ("hosted_tools",)
    only = crossed(messages(user(), tools=[hosted]), "messages", "chat")
    assert "tools" not in only.body
    with pytest.raises(RequestError, match="web_search"):
        crossed(
            messages(user(), tools=[hosted, tool()], tool_choice={"type": "tool", "name": "web_search"}),
            "messages",
            "chat",
        )


def test_fault_09_thinking_never_stays_in_chat_content() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    body = messages(user(), assistant([thought, tool_use(path="a")]), user([tool_result("A line.")]))
    found = crossed(body, "messages", "chat")
    call = found.body["messages"][1]
    assert (call["content"], call["reasoning_content"]) == (None, "Hm.")
    assert "reasoning_content" not in crossed(body, "messages", "chat", Options(vendor=True)).body["messages"][1]


def test_fault_10_empty_text_next_to_calls_makes_no_block() -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    body = chat(user(), assistant("", tool_calls=[call]), {"role": "tool", "tool_call_id": "call_1", "content": ""})
    blocks = sent_messages(body, "chat", "messages")[1]["content"]
    assert [block["type"] for block in blocks] == ["tool_use"]
    blank = crossed(chat(user("\n"), assistant(""), user("")), "chat", "messages")
    assert [each["content"] for each in blank.body["messages"]] == ["(empty)", "(empty)"]
    assert "empty_text" in blank.lost


def test_fault_14_structured_output_is_translated_in_every_direction() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}
    named = {"name": "response", "schema": schema, "strict": True}
    bodies: dict[str, dict[str, Any]] = {
        "chat": chat(user(), response_format={"type": "json_schema", "json_schema": named}),
        "responses": responses(user(), text={"format": {"type": "json_schema", **named}}),
        "messages": messages(user(), output_config={"format": {"type": "json_schema", "schema": schema}}),
    }
    for theirs, ours in PAIRS:
        member = {"chat": "response_format", "responses": "text", "messages": "output_config"}[ours]
        assert crossed(bodies[theirs], theirs, ours).body[member] == bodies[ours][member]
    loose = crossed(chat(user(), response_format={"type": "json_object"}), "chat", "messages")
    assert "json_object" in loose.lost
    assert "output_config" not in loose.body


def test_fault_15_choice_of_none_has_no_parallel_flag() -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]
    body = chat(user(), tools=tools, tool_choice="none", parallel_tool_calls=False)
    assert crossed(body, "chat", "messages").body["tool_choice"] == {"type": "none"}
    assert "parallel_tool_calls" not in crossed(body, "chat", "responses").body


def test_fault_16_parallel_flag_alone_forces_no_tool() -> None:
    tools = [{"type": "function", "function": {"name": "read", "parameters": SCHEMA}}]
    body = chat(user(), tools=tools, parallel_tool_calls=False)
    choice = {"type": "auto", "disable_parallel_tool_use": True}
    assert crossed(body, "chat", "messages").body["tool_choice"] == choice
    assert "tool_choice" not in crossed({**body, "parallel_tool_calls": True}, "chat", "messages").body


@pytest.mark.parametrize("mode", ["auto", "none", "required"])
def test_fault_17_each_mode_of_choice_stays_what_it_is(mode: str) -> None:
    asked: dict[str, Any] = {"type": {"required": "any"}.get(mode, mode)}
    body = messages(user(), tools=[tool()], tool_choice=asked)
    for ours in ("chat", "responses"):
        assert crossed(body, "messages", ours).body["tool_choice"] == mode
    back = chat(user(), tools=[{"type": "function", "function": {"name": "Read"}}], tool_choice=mode)
    assert crossed(back, "chat", "messages").body["tool_choice"] == asked


def test_fault_18_flag_against_parallel_calls_crosses() -> None:
    choice = {"type": "any", "disable_parallel_tool_use": True}
    found = crossed(messages(user(), tools=[tool()], tool_choice=choice), "messages", "chat").body
    assert (found["tool_choice"], found["parallel_tool_calls"]) == ("required", False)


def test_fault_19_no_fifth_cache_hint() -> None:
    marked = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    found = crossed(chat({"role": "system", "content": [marked] * 3}, user([marked] * 3)), "chat", "messages")
    assert str(found.body).count("cache_control") == 4
    assert "cache_control" in found.lost
    assert "cache_control" in crossed(messages(user([marked])), "messages", "chat").lost
    kept = crossed(messages(user([marked])), "messages", "chat", Options(cache_control=True))
    assert kept.body["messages"][0]["content"] == [marked]


@pytest.mark.parametrize(
    ("ours", "shape"),
    [
        ("chat", {"type": "function", "function": {"name": "Read", "description": "Reads.", "parameters": SCHEMA}}),
        ("responses", {**function("Read")}),
    ],
)
def test_fault_20_shape_of_a_tool_is_the_dialects_own(ours: str, shape: dict[str, Any]) -> None:
    found = crossed(messages(user(), tools=[tool()]), "messages", ours)
    assert found.body["tools"] == [shape]
    assert found.crossing["tools"] == {"Read": {"name": "Read", "namespace": "", "kind": "function"}}


# -- Responses to chat or Messages ------------------------------------------------------------------------------------


def test_fault_61_long_call_id_is_mapped_alike_in_call_and_result() -> None:
    given = "call_" + "x" * 100
    for ours in ("chat", "messages"):
        body = responses(user(), function_call(given), output(call_id=given))
        first, again = (crossed(body, "responses", ours).body["messages"] for _ in range(2))
        assert first == again
        ids = {call["id"] for call in first[1].get("tool_calls", ())} or {first[1]["content"][0]["id"]}
        result = first[2].get("tool_call_id") or first[2]["content"][0]["tool_use_id"]
        assert ids == {result}
        assert len(result) <= 64


def test_fault_62_calls_that_follow_each_other_share_one_message() -> None:
    body = responses(user(), function_call(), function_call("call_2"), output(), output(call_id="call_2"))
    said = sent_messages(body, "responses", "chat")
    assert [each["role"] for each in said] == ["user", "assistant", "tool", "tool"]
    assert len(said[1]["tool_calls"]) == 2


def test_fault_63_text_between_call_and_output_joins_the_message_of_the_call() -> None:
    body = responses(user(), function_call(), assistant("Reading."), output())
    said = sent_messages(body, "responses", "chat")
    assert [each["role"] for each in said] == ["user", "assistant", "tool"]
    assert said[1]["content"] == "Reading."
    blocks = sent_messages(body, "responses", "messages")[1]["content"]
    assert [block["type"] for block in blocks] == ["text", "tool_use"]


def test_fault_64_reasoning_item_makes_no_message_of_its_own() -> None:
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    said = sent_messages(responses(user(), thought, assistant("Done."), user()), "responses", "chat")
    assert [each["role"] for each in said] == ["user", "assistant", "user"]


def test_fault_65_reasoning_of_a_tool_turn_goes_back_to_a_chat_upstream() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look first."}]}
    said = sent_messages(responses(user(), thought, function_call(), output()), "responses", "chat")
    assert said[1]["reasoning_content"] == "Look first."


def test_fault_66_reasoning_that_cannot_be_sent_is_named() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look first."}]}
    for ours in ("chat", "messages"):
        assert (
            "reasoning_history"
            in crossed(responses(user(), thought, assistant("Done."), user()), "responses", ours).lost
        )


def test_fault_67_encrypted_content_goes_to_no_other_dialect() -> None:
    thought: dict[str, Any] = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [],
        "encrypted_content": "opaque-of-openai",
    }
    for ours in ("chat", "messages"):
        found = crossed(responses(user(), thought, function_call(), output()), "responses", ours)
        assert b"opaque-of-openai" not in dumps(found.body)
        assert "reasoning_history" in found.lost


def test_fault_68_reasoning_without_proof_is_not_sent_to_responses() -> None:
    thought = {"type": "thinking", "thinking": "Hm.", "signature": ""}
    found = crossed(
        messages(user(), assistant([thought, {"type": "text", "text": "Yes."}]), user()), "messages", "responses"
    )
    assert [item.get("type") for item in found.body["input"]] == ["message"] * 3
    assert found.body["store"] is False
    assert "reasoning_history" in found.lost
    kept = assistant(
        "Yes.",
        reasoning_details=[{"data": seal([("encrypted_content", {"id": "rs_1", "encrypted_content": "opaque"})])}],
    )
    item = crossed(chat(user(), kept, user()), "chat", "responses").body["input"][1]
    assert item == {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "opaque"}


def test_fault_69_custom_tool_takes_one_string() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    custom = {"type": "custom", "name": "apply_patch", "description": "Patches.", "format": grammar}
    for ours in ("chat", "messages"):
        found = crossed(responses(user(), tools=[custom]), "responses", ours).body["tools"][0]
        written = found.get("function", found)
        schema = written.get("parameters") or written["input_schema"]
        assert (schema["type"], schema["required"]) == ("object", ["input"])
        assert 'start: "a"' in written["description"]


def test_fault_70_custom_call_has_a_way_back() -> None:
    custom = {"type": "custom", "name": "apply_patch", "description": "Patches."}
    call = {"type": "custom_tool_call", "call_id": "call_1", "name": "apply_patch", "input": "*** Begin\n"}
    result = {"type": "custom_tool_call_output", "call_id": "call_1", "output": "Done."}
    found = crossed(responses(user(), call, result, tools=[custom]), "responses", "chat")
    assert found.crossing["tools"]["apply_patch"]["kind"] == "custom"
    arguments = found.body["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert parse(arguments.encode()) == {"input": "*** Begin\n"}


def test_fault_71_grammar_survives_in_a_namespace() -> None:
    grammar = {"type": "grammar", "syntax": "lark", "definition": 'start: "a"'}
    custom = {"type": "custom", "name": "exec", "description": "Runs.", "format": grammar}
    space = {"type": "namespace", "name": "functions", "description": "All.", "tools": [custom]}
    found = crossed(responses(user(), tools=[space]), "responses", "chat")
    assert found.body["tools"][0]["function"]["name"] == "functions__exec"
    assert "lark grammar" in found.body["tools"][0]["function"]["description"]


def test_fault_72_tools_of_a_namespace_are_flattened() -> None:
    space = {
        "type": "namespace",
        "name": "agents",
        "description": "All.",
        "tools": [function("spawn"), function("wait")],
    }
    call = function_call(name="spawn", namespace="agents")
    found = crossed(responses(user(), call, output(), tools=[space]), "responses", "messages")
    assert [each["name"] for each in found.body["tools"]] == ["agents__spawn", "agents__wait"]
    assert found.body["messages"][1]["content"][0]["name"] == "agents__spawn"
    long = {**space, "name": "n" * 70}
    names = [each["name"] for each in crossed(responses(user(), tools=[long]), "responses", "messages").body["tools"]]
    assert all(len(name) <= 64 for name in names)
    assert len(set(names)) == 2


def test_fault_73_flat_name_has_its_way_back() -> None:
    space = {"type": "namespace", "name": "a__b", "description": "All.", "tools": [function("c__d")]}
    found = crossed(responses(user(), tools=[space]), "responses", "chat")
    back = way_back(found.crossing, found.body["tools"][0]["function"]["name"])
    assert (back.name, back.namespace, back.kind) == ("c__d", "a__b", "function")


def test_fault_74_names_that_collide_are_refused_by_both_names() -> None:
    space = {"type": "namespace", "name": "agents", "description": "All.", "tools": [function("spawn")]}
    with pytest.raises(RequestError, match=r"'agents\.spawn' and 'agents__spawn'") as caught:
        crossed(responses(user(), tools=[space, function("agents__spawn")]), "responses", "chat")
    assert caught.value.param == "tools"


def test_fault_75_additional_tools_join_the_tools() -> None:
    more = {"type": "additional_tools", "role": "developer", "tools": [function("late"), function("read")]}
    found = crossed(responses(more, user(), tools=[function("read")]), "responses", "chat")
    assert sorted(each["function"]["name"] for each in found.body["tools"]) == ["late", "read"]
    assert [each["role"] for each in found.body["messages"]] == ["user"]


def test_fault_76_tool_search_of_the_client_is_a_tool_and_its_finds_join_the_tools() -> None:
    search = {"type": "tool_search", "execution": "client", "description": "Finds.", "parameters": SCHEMA}
    asked = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {"q": "x"}}
    answer = {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [function("late")]}
    found = crossed(responses(user(), asked, answer, tools=[search]), "responses", "chat")
    assert sorted(each["function"]["name"] for each in found.body["tools"]) == ["late", "tool_search"]
    assert found.crossing["tools"]["tool_search"]["kind"] == "tool_search"
    assert found.body["messages"][-1]["content"] == "Tools loaded: late"


def test_fault_77_items_without_counterpart_are_left_out_and_named() -> None:
    search = {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    }
    found = crossed(responses(user(), search, assistant("Found."), user()), "responses", "messages")
    assert [each["role"] for each in found.body["messages"]] == ["user", "assistant", "user"]
    assert "hosted_calls" in found.lost


def test_fault_78_images_in_outputs_cross() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "high"}
    body = responses(user(), function_call(), output([{"type": "input_text", "text": "Look:"}, image]))
    *_, result, shown = sent_messages(body, "responses", "chat")
    assert result["content"] == "Look:"
    assert shown["content"][1]["image_url"] == {"url": "data:image/png;base64,aGk=", "detail": "high"}
    block = sent_messages(body, "responses", "messages")[-1]["content"][0]
    assert block["content"][1] == {"type": "image", "source": PNG}


def test_fault_79_format_of_the_text_is_read() -> None:
    form = {
        "type": "json_schema",
        "name": "n",
        "schema": {"type": "object"},
        "strict": True,
        "description": "A number.",
    }
    found = crossed(responses(user(), text={"format": form, "verbosity": "low"}), "responses", "chat").body
    schema = {"name": "n", "schema": {"type": "object"}, "strict": True, "description": "A number."}
    assert found["response_format"] == {"type": "json_schema", "json_schema": schema}
    assert found["verbosity"] == "low"


def test_fault_80_previous_response_is_never_forwarded() -> None:
    body = responses(user("And now?"), previous_response_id="resp_1")
    with pytest.raises(RequestError) as caught:
        crossed(body, "responses", "chat")
    assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
def test_stream_of_another_type_is_refused_by_name(client: str) -> None:
    body = {"chat": chat, "responses": responses, "messages": messages}[client](user(), stream="yes")
    with pytest.raises(RequestError, match="stream: must be true or false") as caught:
        crossed(body, client, "messages" if client == "chat" else "chat")
    assert caught.value.param == "stream"


@pytest.mark.parametrize(
    ("members", "refusal"),
    [
        ({"previous_response_id": 5}, "previous_response_id: must be a string."),
        ({"input": 5}, "input: must be a string or an array."),
        ({"tool_choice": "perhaps"}, "tool_choice: 'perhaps' does not cross to an upstream of another dialect."),
        ({"store": "no"}, "store: must be true or false."),
        ({"metadata": 5}, "metadata: must be an object."),
        ({"truncation": 5}, "truncation: must be a string."),
        (
            {"input": [user() | {"content": [{"type": "input_image", "image_url": 5}]}]},
            "input[0].content[0].image_url: must be a string.",
        ),
    ],
)
def test_members_of_responses_are_refused_by_name(members: dict[str, Any], refusal: str) -> None:
    with pytest.raises(RequestError) as caught:
        crossed({**responses(user()), **members}, "responses", "chat")
    assert str(caught.value) == refusal


# -- what must come back as it was ------------------------------------------------------------------------------------


def test_fault_85_signature_comes_back_word_for_word() -> None:
    signature = "Eq" + "+/=" * 3000
    thought = {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm."}],
        "encrypted_content": seal([("signature", signature)]),
    }
    block = sent_messages(responses(user(), thought, function_call(), output()), "responses", "messages")[1]["content"][
        0
    ]
    assert block == {"type": "thinking", "thinking": "Hm.", "signature": signature}


def test_fault_86_unsigned_thinking_is_dropped_before_a_messages_upstream() -> None:
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
    body = responses(user(), thought, function_call(), output())
    blocks = sent_messages(body, "responses", "messages")[1]["content"]
    assert [block["type"] for block in blocks] == ["tool_use"]
    ours = {**thought, "encrypted_content": seal([("extra_content", 1)])}
    assert b"wt1." not in dumps(
        crossed(responses(user(), ours, assistant("Yes."), user()), "responses", "messages").body
    )


def test_fault_87_thinking_is_off_where_calls_came_without_it() -> None:
    body = responses(user(), function_call(), output(), reasoning={"effort": "high"}, tools=[function()])
    found = crossed(body, "responses", "messages")
    assert "thinking" not in found.body
    assert found.body["output_config"] == {"effort": "high"}
    assert "thinking" in found.lost
    fresh = crossed(responses(user(), reasoning={"effort": "high"}), "responses", "messages")
    assert fresh.body["thinking"] == {"type": "adaptive"}
    forced = responses(user(), reasoning={"effort": "high"}, tools=[function()], tool_choice="required")
    assert "thinking" not in crossed(forced, "responses", "messages").body


def test_fault_88_thought_signature_of_a_call_goes_back_to_its_upstream() -> None:
    google = {"google": {"thought_signature": "c2ln"}}
    sealed = seal([], {"toolu_1": [("extra_content", google)]})
    thought = {"type": "thinking", "thinking": "", "signature": sealed}
    body = messages(user(), assistant([thought, tool_use(path="a")]), user([tool_result("A line.")]))
    call = sent_messages(body, "messages", "chat")[1]["tool_calls"][0]
    assert call["extra_content"] == google
    assert b"wt1." not in dumps(crossed(body, "messages", "chat").body)


def test_failed_result_is_marked_in_text_and_read_back() -> None:
    body = messages(user(), assistant([tool_use()]), user([tool_result("No such file.", is_error=True)]))
    found = crossed(body, "messages", "chat")
    assert found.body["messages"][-1]["content"] == FAILED_MARK + "No such file."
    assert "is_error" in found.lost
    back = crossed(found.body, "chat", "messages").body["messages"][-1]["content"][0]
    assert back["is_error"] is True
    assert back["content"] == [{"type": "text", "text": "No such file."}]
