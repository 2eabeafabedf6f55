"""What cannot cross is refused by its name; everything else crosses or is listed as lost."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import pytest

from tests.events.crossing.asking import NAMES, OPTIONS, PAIRS, assistant, chat, crossed, messages, responses, user
from tests.events.crossing.test_requests import BODIES, IMAGE_URL, SCHEMA
from wiretape.events.core.errors import RequestError
from wiretape.events.core.json_text import is_list, is_object
from wiretape.events.crossing.cross import cross
from wiretape.events.crossing.envelope import seal
from wiretape.events.crossing.losses import CHANGED, LEFT_OUT, LOST, REFUSED
from wiretape.events.crossing.request import Options
from wiretape.events.dialects import DIALECTS

FUNCTION: dict[str, Any] = {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}
CHAT_FUNCTION: dict[str, Any] = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
URL = {"type": "url", "url": "https://x.test/a.png"}
SPACE: dict[str, Any] = {"type": "namespace", "name": "a", "description": "", "tools": []}
NAMED: dict[str, Any] = {"name": "n", "description": "A number.", "schema": {"type": "object"}}
DESCRIBED: dict[str, Any] = {"type": "json_schema", "json_schema": NAMED}


def nested(depth: int) -> list[dict[str, Any]]:
    """Return results inside each other."""
    content: list[dict[str, Any]] = [{"type": "text", "text": "x"}]
    for _ in range(depth):
        content = [{"type": "tool_result", "tool_use_id": "t", "content": content}]
    return content


def part(**members: Any) -> dict[str, Any]:
    return chat(user([members]))


def block(**members: Any) -> dict[str, Any]:
    return messages(user([members]))


#: The dialect, the request, and the place that the error names.
REFUSALS: list[tuple[str, Any, str]] = [
    ("chat", [], "body"),
    ("chat", {"model": "m"}, "messages"),
    ("chat", {"messages": []}, "model"),
    ("chat", {"model": "m", "messages": [1]}, "messages[0]"),
    ("chat", chat({"role": "function", "name": "f", "content": ""}), "messages[0].role"),
    ("chat", chat(user(1)), "messages[0].content"),
    ("chat", part(type="input_audio", input_audio={"data": "", "format": "wav"}), "messages[0].content[0].type"),
    ("chat", part(type="file", file={"file_id": "file-1"}), "messages[0].content[0].file.file_id"),
    ("chat", part(type="refusal", refusal="No."), "messages[0]"),
    ("chat", chat(assistant([{"type": "image_url", "image_url": {"url": IMAGE_URL}}])), "messages[0]"),
    ("chat", chat(assistant(None, function_call={"name": "f", "arguments": ""})), "messages[0].function_call"),
    ("chat", chat(assistant(None, audio={"id": "a"})), "messages[0].audio"),
    ("chat", chat(assistant(None, tool_calls=[{"id": 1}])), "messages[0].tool_calls[0].function"),
    (
        "chat",
        chat({"role": "tool", "tool_call_id": "c", "content": [{"type": "refusal", "refusal": ""}]}),
        "messages[0]",
    ),
    ("chat", chat(user(), tools=[{"type": "web"}]), "tools[0].type"),
    ("chat", chat(user(), tool_choice={"type": "web"}), "tool_choice.type"),
    ("chat", chat(user(), tool_choice={"type": "function", "function": {"name": "f"}}), "tool_choice"),
    ("chat", chat(user(), tool_choice="required"), "tool_choice"),
    ("chat", chat(user(), response_format={"type": "grammar"}), "response_format.type"),
    ("chat", chat(user(), n=2), "n"),
    ("chat", chat(user(), functions=[{"name": "f"}]), "functions"),
    ("chat", chat(user(), modalities=["text", "audio"]), "modalities"),
    ("chat", chat(user(), temperature="hot"), "temperature"),
    ("chat", chat(user(), max_tokens=1.5), "max_tokens"),
    ("chat", chat(user(), parallel_tool_calls="yes"), "parallel_tool_calls"),
    ("chat", chat(user(), stop=[1]), "stop"),
    ("chat", chat(user(), nothing=1), "nothing"),
    ("responses", responses(user(), background=True), "background"),
    ("responses", responses(user(), conversation="conv_1"), "conversation"),
    ("responses", responses(user(), prompt={"id": "pmpt_1"}), "prompt"),
    ("responses", responses(user(), previous_response_id="resp_1"), "previous_response_id"),
    ("responses", responses({"type": "item_reference", "id": "msg_1"}), "input[0].id"),
    ("responses", responses({"type": "compaction", "encrypted_content": "x"}), "input[0].type"),
    ("responses", responses({"type": [1], "role": "user"}), "input[0].type"),
    ("responses", responses({"role": "tool", "content": ""}), "input[0].role"),
    ("responses", responses(user([{"type": "input_audio"}])), "input[0].content[0].type"),
    ("responses", responses(user([{"type": "input_image", "file_id": "file-1"}])), "input[0].content[0].file_id"),
    ("responses", responses(user(), tools=[{"type": "telepathy"}]), "tools[0].type"),
    ("responses", responses(user(), tools=[FUNCTION], tool_choice={"type": "web_search"}), "tool_choice.type"),
    ("responses", responses(user(), text={"format": {"type": "grammar"}}), "text.format.type"),
    ("messages", messages({"role": "tool", "content": ""}), "messages[0].role"),
    ("responses", responses(user(), tools=[{**SPACE, "tools": [SPACE]}]), "tools[0].tools[0].type"),
    ("messages", messages(user(nested(400))), f"messages[0].content[0]{'.content[0]' * 4}"),
    ("messages", messages({"role": "assistant", "content": [{"type": "image", "source": URL}]}), "messages[0]"),
    ("messages", block(type="telepathy"), "messages[0].content[0].type"),
    ("messages", block(type="tool_use", id="t", name="n", input={}), "messages[0]"),
    ("messages", block(type="image", source={"type": "file", "file_id": "f"}), "messages[0].content[0].source.type"),
    ("messages", messages(user(), tools=[{"type": "telepathy", "name": "x"}]), "tools[0].type"),
    ("messages", messages(user(), tool_choice={"type": "some"}), "tool_choice.type"),
    ("messages", messages(user(), output_config={"format": {"type": "xml"}}), "output_config.format.type"),
]


@pytest.mark.parametrize(("theirs", "body", "place"), REFUSALS)
def test_request_that_cannot_cross_is_refused_by_place(theirs: str, body: Any, place: str) -> None:
    for asked, ours in PAIRS:
        if asked == theirs:
            with pytest.raises(RequestError) as caught:
                crossed(body, theirs, ours)
            assert caught.value.param == place


#: Members that each dialect reads although another one has no use for them.
READ: dict[str, set[str]] = {
    "chat": {"service_tier", "stream_options"},
    "responses": {"service_tier"},
    "messages": set(),
}


def body_of(dialect: str, **members: Any) -> dict[str, Any]:
    return {"chat": chat, "responses": responses, "messages": messages}[dialect](user(), **members)


@pytest.mark.parametrize("theirs", NAMES)
def test_member_that_is_left_out_is_listed_unless_it_says_nothing(theirs: str) -> None:
    for asked, ours in PAIRS:
        if asked != theirs:
            continue
        for member, (name, *harmless) in LEFT_OUT.items():
            if member in READ[theirs]:
                continue
            found = crossed(body_of(theirs, **{member: "something"}), theirs, ours)
            assert name in found.lost
            assert member not in found.body
            for value in (None, *harmless):
                assert name not in crossed(body_of(theirs, **{member: value}), theirs, ours).lost
        for member, (_, *allowed) in REFUSED.items():
            for value in allowed:
                assert member not in crossed(body_of(theirs, **{member: value}), theirs, ours).body


#: A member of a request that an upstream of another dialect does not get, and the name of its loss.
SETTINGS: list[tuple[str, str, dict[str, Any], str]] = [
    ("chat", "messages", {"metadata": {"k": "v"}}, "metadata"),
    ("chat", "messages", {"prompt_cache_key": "k"}, "prompt_cache_key"),
    ("chat", "messages", {"service_tier": "flex"}, "service_tier"),
    ("chat", "messages", {"store": True}, "store"),
    ("chat", "messages", {"verbosity": "low"}, "verbosity"),
    ("chat", "messages", {"temperature": 1.5}, "temperature"),
    ("chat", "messages", {"temperature": 0.5, "reasoning_effort": "low"}, "temperature"),
    ("chat", "messages", {"top_p": 0.5, "reasoning_effort": "low"}, "temperature"),
    ("chat", "messages", {"reasoning_effort": "minimal"}, "effort"),
    ("chat", "responses", {"stop": "x"}, "stop"),
    ("responses", "chat", {"store": True}, "store"),
    ("responses", "messages", {"reasoning": {"summary": "auto"}}, "reasoning_summary"),
    ("messages", "chat", {"stop_sequences": ["a", "b", "c", "d", "e"]}, "stop"),
    ("messages", "chat", {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}, "effort"),
    ("messages", "chat", {"service_tier": "standard_only"}, "service_tier"),
    ("chat", "messages", {"response_format": DESCRIBED}, "format_description"),
]


@pytest.mark.parametrize(("theirs", "ours", "members", "name"), SETTINGS)
def test_setting_without_counterpart_is_listed(theirs: str, ours: str, members: dict[str, Any], name: str) -> None:
    assert name in crossed(body_of(theirs, **members), theirs, ours).lost


#: Settings that cross: their members, and those of the upstream.
KEPT: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("chat", "messages", {"temperature": 1.5}, {"temperature": 1}),
    ("chat", "messages", {"temperature": 0.5, "top_p": 0.9}, {"temperature": 0.5, "top_p": 0.9}),
    ("chat", "messages", {"temperature": 1, "reasoning_effort": "high"}, {"temperature": 1}),
    ("chat", "messages", {"stop": "x"}, {"stop_sequences": ["x"]}),
    ("chat", "messages", {"safety_identifier": "u"}, {"metadata": {"user_id": "u"}}),
    ("chat", "messages", {"reasoning_effort": "none"}, {"thinking": {"type": "disabled"}}),
    ("chat", "responses", {"verbosity": "low"}, {"text": {"verbosity": "low"}}),
    ("chat", "responses", {"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
    ("chat", "responses", {"response_format": {"type": "text"}}, {"text": None}),
    ("chat", "responses", {"response_format": DESCRIBED}, {"text": {"format": {"type": "json_schema", **NAMED}}}),
    ("responses", "chat", {"text": {"format": {"type": "json_schema", **NAMED}}}, {"response_format": DESCRIBED}),
    ("chat", "responses", {"safety_identifier": "u"}, {"safety_identifier": "u"}),
    ("chat", "responses", {"store": True, "metadata": {"k": "v"}}, {"store": True, "metadata": {"k": "v"}}),
    ("responses", "chat", {"user": "u"}, {"user": "u"}),
    ("responses", "chat", {"text": {"format": {"type": "text"}}}, {}),
    ("responses", "chat", {"text": {"format": {"type": "json_object"}}}, {"response_format": {"type": "json_object"}}),
    ("messages", "chat", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"reasoning_effort": "low"}),
    ("messages", "chat", {"thinking": {"type": "enabled", "budget_tokens": 31999}}, {"reasoning_effort": "high"}),
    ("messages", "chat", {"thinking": {"type": "disabled"}}, {"reasoning_effort": "none"}),
    ("messages", "chat", {"stop_sequences": ["a"]}, {"stop": ["a"]}),
    ("messages", "chat", {"metadata": {"user_id": "u_account__session_ab-1"}}, {"prompt_cache_key": "ab-1"}),
    ("messages", "responses", {"metadata": {"user_id": "u"}}, {"user": "u"}),
    ("messages", "responses", {"temperature": 0.5, "top_p": 0.5}, {"temperature": 0.5, "top_p": 0.5}),
]


@pytest.mark.parametrize(("theirs", "ours", "members", "written"), KEPT)
def test_setting_crosses(theirs: str, ours: str, members: dict[str, Any], written: dict[str, Any]) -> None:
    body = crossed(body_of(theirs, **members), theirs, ours).body
    assert {key: body.get(key) for key in written} == written


def test_tool_choice_crosses_between_all_dialects() -> None:
    forced: dict[str, Any] = {
        "chat": {"type": "function", "function": {"name": "read"}},
        "responses": {"type": "function", "name": "read"},
        "messages": {"type": "tool", "name": "read"},
    }
    tools: dict[str, Any] = {
        "chat": [CHAT_FUNCTION],
        "responses": [FUNCTION],
        "messages": [{"name": "read", "input_schema": SCHEMA, "strict": True}],
    }
    for theirs, ours in PAIRS:
        body = body_of(theirs, tools=tools[theirs], tool_choice=forced[theirs])
        assert crossed(body, theirs, ours).body["tool_choice"] == forced[ours]
    custom: list[dict[str, Any]] = [{"type": "custom", "custom": {"name": "sh"}}]
    choice = {"type": "custom", "custom": {"name": "sh"}}
    body = crossed(chat(user(), tools=custom, tool_choice=choice), "chat", "responses").body
    assert body["tool_choice"] == {"type": "custom", "name": "sh"}
    assert "tool_choice" not in crossed(chat(user(), tool_choice="auto"), "chat", "responses").body


@pytest.mark.parametrize("mode", ["auto", "required"])
def test_allowed_tools_are_the_only_ones_that_are_sent(mode: str) -> None:
    more = {"type": "function", "function": {"name": "write"}}
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "read"}}]}
    asked = chat(user(), tools=[CHAT_FUNCTION, more], tool_choice={"type": "allowed_tools", "allowed_tools": allowed})
    body = crossed(asked, "chat", "responses").body
    assert [tool["name"] for tool in body["tools"]] == ["read"]
    assert body["tool_choice"] == mode
    choice = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "read"}]}
    found = crossed(
        responses(user(), tools=[FUNCTION, {**FUNCTION, "name": "x"}], tool_choice=choice), "responses", "chat"
    )
    assert [tool["function"]["name"] for tool in found.body["tools"]] == ["read"]
    assert found.body["tool_choice"] == mode


def test_custom_tools_of_chat_stay_custom_in_responses() -> None:
    form = {"type": "grammar", "grammar": {"syntax": "regex", "definition": "a+"}}
    tools = [{"type": "custom", "custom": {"name": "sh", "description": "Runs.", "format": form}}]
    tools += [{"type": "custom", "custom": {"name": "say"}}]
    call = {"id": "call_1", "type": "custom", "custom": {"name": "sh", "input": "aa"}}
    result = {"role": "tool", "tool_call_id": "call_1", "content": "Done."}
    body = crossed(chat(user(), assistant(None, tool_calls=[call]), result, tools=tools), "chat", "responses").body
    assert body["tools"][0]["format"] == {"type": "grammar", "syntax": "regex", "definition": "a+"}
    assert body["tools"][1]["format"] == {"type": "text"}
    assert body["input"][1] == {"type": "custom_tool_call", "call_id": "call_1", "name": "sh", "input": "aa"}
    assert body["input"][2]["type"] == "custom_tool_call_output"


def test_files_cross_as_data_and_as_urls() -> None:
    data = "data:application/pdf;base64,aGk="
    given = {"type": "input_file", "filename": "a.pdf", "file_data": data}
    asked = responses(user([given, {"type": "input_file", "file_url": "https://x.test/a.pdf"}]))
    said = crossed(asked, "responses", "chat")
    assert said.body["messages"][0]["content"] == [
        {"type": "file", "file": {"filename": "a.pdf", "file_data": data}},
        {"type": "text", "text": "[File: https://x.test/a.pdf]"},
    ]
    assert "file_url" in said.lost
    first, second = crossed(asked, "responses", "messages").body["messages"][0]["content"]
    assert first["source"] == {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    assert first["title"] == "a.pdf"
    assert second["source"] == {"type": "url", "url": "https://x.test/a.pdf"}
    back = crossed(messages(user([first, second])), "messages", "responses").body["input"][0]["content"]
    assert back[0] == given
    assert back[1]["file_url"] == "https://x.test/a.pdf"
    file = {"type": "file", "file": {"file_data": data}}
    assert crossed(chat(user([file])), "chat", "responses").body["input"][0]["content"][0]["filename"] == "file.pdf"


def test_images_cross_as_data_and_as_urls() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://x.test/a.png", "detail": "low"}}
    found = crossed(chat(user([image])), "chat", "messages")
    assert found.body["messages"][0]["content"][0]["source"] == {"type": "url", "url": "https://x.test/a.png"}
    assert "modality" in found.lost
    original = {"type": "input_image", "image_url": IMAGE_URL, "detail": "original"}
    part = crossed(responses(user([original])), "responses", "chat").body["messages"][0]["content"][0]
    assert part["image_url"] == {"url": IMAGE_URL, "detail": "high"}


def test_documents_of_text_and_search_results_are_text() -> None:
    text = {"type": "text", "text": "Inside."}
    source = {"type": "text", "media_type": "text/plain", "data": "All of it."}
    blocks = [
        {"type": "document", "source": source, "title": "A", "context": "c", "citations": {"enabled": True}},
        {"type": "document", "source": source},
        {"type": "document", "source": {"type": "content", "content": [text]}},
        {"type": "search_result", "title": "B", "source": "https://x.test", "content": [text]},
    ]
    found = crossed(messages(user(blocks)), "messages", "chat")
    texts = ["A\n\nAll of it.", "All of it.", "Inside.", "B (https://x.test)\n\nInside."]
    assert found.body["messages"][0]["content"] == "\n\n".join(texts)
    assert {"modality", "citations"} <= set(found.lost)


def test_text_with_citations_stays_one_text() -> None:
    cited = {"type": "text", "text": "is here", "citations": [{"type": "x"}]}
    found = crossed(messages(user(), assistant([{"type": "text", "text": "It "}, cited]), user()), "messages", "chat")
    assert found.body["messages"][1]["content"] == "It is here"
    assert "citations" in found.lost
    noted = assistant("Yes.", annotations=[{"type": "url_citation"}])
    assert "citations" in crossed(chat(user(), noted, user()), "chat", "messages").lost
    part = {"type": "output_text", "text": "Yes.", "annotations": [{"type": "url_citation"}]}
    assert "citations" in crossed(responses(user(), assistant([part]), user()), "responses", "messages").lost


def test_refusals_cross_as_text_or_as_refusals() -> None:
    refused = assistant([{"type": "refusal", "refusal": "No."}])
    assert crossed(responses(user(), refused, user()), "responses", "chat").body["messages"][1]["refusal"] == "No."
    blocks = crossed(responses(user(), refused, user()), "responses", "messages").body["messages"][1]["content"]
    assert blocks == [{"type": "text", "text": "No."}]
    both = assistant("Sorry.", refusal="No.")
    assert crossed(chat(user(), both, user()), "chat", "messages").body["messages"][1]["content"][1]["text"] == "No."
    said = crossed(chat(user(), assistant(None, refusal="No."), user()), "chat", "responses").body["input"][1]
    assert said == {"type": "message", "role": "assistant", "content": "No."}


def test_calls_of_tools_without_schema_are_left_out_and_named() -> None:
    items: list[dict[str, Any]] = [
        {"type": "local_shell_call", "id": "l", "call_id": "c1", "status": "completed", "action": {"type": "exec"}},
        {"type": "local_shell_call_output", "id": "c1", "call_id": "c1", "output": "a.txt"},
        {"type": "computer_call", "id": "k", "call_id": "c2", "action": {"type": "screenshot"}},
        {"type": "computer_call_output", "call_id": "c2", "output": {"type": "computer_screenshot"}},
    ]
    tools = [{"type": "local_shell"}, {"type": "computer_use_preview"}, FUNCTION]
    found = crossed(responses(user(), *items, tools=tools), "responses", "messages")
    assert [message["role"] for message in found.body["messages"]] == ["user"]
    assert set(found.lost) >= {"hosted_calls", "hosted_tools"}


def test_search_of_the_upstream_leaves_its_tools() -> None:
    late = {**FUNCTION, "name": "late", "defer_loading": True}
    call: dict[str, Any] = {"type": "tool_search_call", "execution": "server", "call_id": None, "arguments": {}}
    output = {
        "type": "tool_search_output",
        "execution": "server",
        "call_id": None,
        "tools": [{**FUNCTION, "name": "x"}],
    }
    found = crossed(responses(user(), call, output, tools=[{"type": "tool_search"}, late]), "responses", "chat")
    assert sorted(tool["function"]["name"] for tool in found.body["tools"]) == ["late", "x"]
    assert {"hosted_calls", "hosted_tools"} <= set(found.lost)
    none: dict[str, Any] = {"type": "tool_search_output", "execution": "client", "call_id": "c", "tools": []}
    asked: dict[str, Any] = {"type": "tool_search_call", "execution": "client", "call_id": "c", "arguments": {}}
    said = crossed(responses(user(), asked, none), "responses", "chat").body["messages"][-1]
    assert said["content"] == "Tools loaded: none"


def test_search_of_a_messages_upstream_leaves_what_it_found() -> None:
    found_block = {
        "type": "tool_search_tool_search_result",
        "tool_references": [{"type": "tool_reference", "tool_name": "late"}],
    }
    blocks: list[dict[str, Any]] = [
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "tool_search_tool_regex", "input": {}},
        {"type": "tool_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found_block},
        {"type": "text", "text": "There is one."},
    ]
    late: dict[str, Any] = {"name": "late", "input_schema": SCHEMA, "defer_loading": True, "input_examples": [{}]}
    found = crossed(messages(user(), assistant(blocks), user(), tools=[late]), "messages", "chat")
    assert found.body["tools"][0]["function"]["name"] == "late"
    assert {"hosted_calls", "tool_details"} <= set(found.lost)


def test_signature_of_another_kind_is_named_as_lost() -> None:
    said = assistant("Yes.", reasoning="Hm.", reasoning_signature="c2ln")
    assert "reasoning_history" in crossed(chat(user(), said, user()), "chat", "messages").lost


def test_redacted_thinking_goes_to_no_other_dialect() -> None:
    said = assistant([{"type": "redacted_thinking", "data": "c2VjcmV0"}, {"type": "text", "text": "Yes."}])
    found = crossed(messages(user(), said, user()), "messages", "responses")
    assert "c2VjcmV0" not in str(found.body)
    assert "reasoning_history" in found.lost


def test_thinking_comes_first_in_an_answer() -> None:
    thought: dict[str, Any] = {"type": "reasoning", "summary": [], "encrypted_content": seal([("signature", "c2ln")])}
    body = responses(
        user(), assistant("I look."), thought, assistant("Yes."), user(), reasoning={"effort": "low", "summary": "auto"}
    )
    found = crossed(body, "responses", "messages").body
    assert [block["type"] for block in found["messages"][1]["content"]] == ["thinking", "text", "text"]
    assert found["thinking"] == {"type": "adaptive", "display": "summarized"}


def test_tokens_are_limited_by_the_route() -> None:
    found = crossed(chat(user()), "chat", "messages", Options(max_tokens=4096, max_tokens_max=1000))
    assert found.body["max_tokens"] == 1000
    assert found.lost == ("max_tokens_clamped", "max_tokens_default")
    older = Options(max_tokens=4096, chat_max_tokens_member="max_tokens")
    assert crossed(responses(user()), "responses", "chat", older).body["max_tokens"] == 4096


def test_empty_texts_of_an_answer_are_left_out() -> None:
    empty = assistant([{"type": "text", "text": ""}])
    assert len(crossed(messages(user(), empty, user()), "messages", "responses").body["input"]) == 2
    hinted = [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]
    assert "cache_control" in crossed(messages(user(), system=hinted), "messages", "responses").lost


@pytest.mark.parametrize("ours", ["chat", "messages"])
def test_hostile_histories_cost_no_more_than_their_length(ours: str) -> None:
    """Turns, calls and results of equal ids: none may look at all others."""
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    orphan = {"type": "function_call_output", "call_id": "d", "output": ""}
    hostile: list[list[dict[str, Any]]] = [
        [assistant("x")] * 5_000,
        [call] * 5_000,
        [*([call, user()] * 2_500), *([orphan] * 2_500)],
        [call, *([assistant("x")] * 5_000)],
    ]
    for items in hostile:
        cross(responses(*items), theirs=DIALECTS["responses"], ours=DIALECTS[ours], options=OPTIONS)


# -- anything at all --------------------------------------------------------------------------------------------------

JUNK: list[Any] = [None, 1, -1.5, True, "x", "", [], {}, [1], ["x"], {"type": []}, {"type": "text"}, [{"type": "text"}]]


def places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the path of every value inside this one."""
    inner = value.items() if is_object(value) else enumerate(value) if is_list(value) else ()
    for key, member in inner:
        yield (*path, key)
        yield from places(member, (*path, key))


@pytest.mark.parametrize("theirs", NAMES)
def test_junk_in_any_place_crosses_or_is_refused(theirs: str) -> None:
    body = BODIES[theirs]()
    upstreams = [ours for asked, ours in PAIRS if asked == theirs]
    for path in places(body):
        changed = copy.deepcopy(body)
        parent: Any = changed
        for key in path[:-1]:
            parent = parent[key]
        for junk in JUNK:
            parent[path[-1]] = junk
            for ours in upstreams:
                with contextlib.suppress(RequestError):
                    found = cross(changed, theirs=DIALECTS[theirs], ours=DIALECTS[ours], options=OPTIONS)
                    assert set(found.lost) <= LOST.keys() | CHANGED.keys()
