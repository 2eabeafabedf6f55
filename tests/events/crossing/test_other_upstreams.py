"""Streams that only Responses or only Messages upstreams send, as clients of the other dialects get them."""

from typing import Any, Final

import pytest

from tests.support.answers import Answer, read
from tests.support.chat import Run, run, sse, tape
from tests.support.scripted_streams import named
from wiretape.events.crossing.envelope import opened

ASKED: Final = {"stream": True, "model": "m", "stream_options": {"include_usage": True}}


def event(kind: str, **members: Any) -> bytes:
    return b"event: %b\n%b" % (kind.encode(), sse({"type": kind, **members}))


def cross(client: str, theirs: str, upstream: list[bytes], **more: Any) -> tuple[Answer, Run]:
    result = run(tape(upstream, request=ASKED, dialect=client, upstream_dialect=theirs, **more))
    return read(client, result.out), result


# -- Messages ---------------------------------------------------------------------------------------------------------

START: Final = named("text").frames("messages")[0]
OTHERS: Final = {"messages": ("chat", "responses"), "responses": ("chat", "messages")}


def block(index: int, begun: dict[str, Any], *deltas: dict[str, Any]) -> list[bytes]:
    return [
        event("content_block_start", index=index, content_block=begun),
        *(event("content_block_delta", index=index, delta=delta) for delta in deltas),
        event("content_block_stop", index=index),
    ]


def said(index: int, text: str) -> list[bytes]:
    return block(index, {"type": "text", "text": ""}, {"type": "text_delta", "text": text})


def tool(index: int, call_id: str, *pieces: str, given: Any = None) -> list[bytes]:
    begun: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": "f", "input": given or {}}
    return block(index, begun, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def ends(reason: str | None, **usage: int) -> list[bytes]:
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [event("message_delta", delta=delta, usage={"output_tokens": 7, **usage}), event("message_stop")]


@pytest.mark.parametrize("client", OTHERS["messages"])
@pytest.mark.parametrize(
    ("reason", "ending"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("pause_turn", "stop"),
        ("something new", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "content_filter"),
    ],
)
def test_stop_reasons_of_messages(client: str, reason: str, ending: str) -> None:
    answer, _ = cross(client, "messages", [START, *said(0, "a"), *ends(reason)])
    assert (answer.text, answer.ending) == ("a", ending)


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_whole_call_before_a_limit(client: str) -> None:
    """Responses clients have it; chat clients run no call of an answer that a limit cut."""
    answer, _ = cross(client, "messages", [START, *tool(0, "toolu_1", "{}"), *ends("max_tokens")])
    assert answer.ending == "length"
    assert [one[0] for one in answer.calls] == (["toolu_1"] if client == "responses" else [])


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_input_in_the_start_of_a_block(client: str) -> None:
    answer, _ = cross(client, "messages", [START, *tool(0, "toolu_1", given={"a": 1}), *ends("tool_use")])
    assert answer.calls == [("toolu_1", "f", '{"a":1}')]


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_redacted_thought_and_signature_travel_in_envelopes(client: str) -> None:
    redacted = block(0, {"type": "redacted_thinking", "data": "c2VjcmV0"})
    thought = block(
        1,
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": "hm"},
        {"type": "signature_delta", "signature": "c2ln"},
    )
    answer, _ = cross(client, "messages", [START, *redacted, *thought, *said(2, "a"), *ends("end_turn")])
    proofs = [proof for sealed in answer.sealed for proof in opened("", sealed).proofs]
    assert sorted(kind for kind, _ in proofs) == ["redacted_thinking", "signature"]
    assert (answer.reasoning, answer.text) == ("hm", "a")


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_tool_of_the_server_is_no_call(client: str) -> None:
    search: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    found: dict[str, Any] = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    hosted = [*block(0, search, {"type": "input_json_delta", "partial_json": "{}"}), *block(1, found)]
    answer, result = cross(client, "messages", [START, *hosted, *said(2, "a"), *ends("end_turn")])
    assert (answer.calls, answer.text, answer.ending) == ([], "a", "stop")
    assert "lost_hosted_tool" in result.repairs


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_message_without_its_stop_is_cut(client: str) -> None:
    answer, result = cross(client, "messages", [START, *said(0, "a"), ends("end_turn")[0]])
    assert (answer.ending, result.ended.ending) == ("error", "truncated")


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_cut_after_the_end_of_a_call(client: str) -> None:
    answer, _ = cross(client, "messages", [START, *tool(0, "toolu_1", "{}")])
    assert answer.ending == "error"
    assert [one[0] for one in answer.calls] == (["toolu_1"] if client == "responses" else [])


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_overloaded_server(client: str) -> None:
    failed = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    answer, _ = cross(client, "messages", [START, *said(0, "a"), failed])
    assert (answer.ending, answer.error["message"]) == ("error", "Overloaded")


@pytest.mark.parametrize("client", OTHERS["messages"])
def test_pings_and_empty_messages(client: str) -> None:
    answer, result = cross(client, "messages", [START, event("ping"), *ends("end_turn")])
    assert (answer.text, answer.ending, result.ended.ending) == ("", "stop", "completed")


# -- Responses --------------------------------------------------------------------------------------------------------

CREATED: Final = named("text").frames("responses")[:2]


def item(place: int, value: dict[str, Any], *between: bytes) -> list[bytes]:
    added = {**value, "status": "in_progress"}
    return [
        event("response.output_item.added", output_index=place, item=added),
        *between,
        event("response.output_item.done", output_index=place, item={**value, "status": "completed"}),
    ]


def last(status: str, output: list[dict[str, Any]], **members: Any) -> bytes:
    known = {"id": "resp_scripted", "object": "response", "created_at": 7, "status": status, "model": "fake"}
    response = {**known, "output": output, "error": None, "incomplete_details": None, "usage": None, **members}
    return event(f"response.{status}", response=response)


def function(arguments: str = "{}") -> dict[str, Any]:
    return {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": arguments}


MESSAGE: Final[dict[str, Any]] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "hi", "annotations": []}],
}


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_arguments_only_in_the_item_that_is_done(client: str) -> None:
    call = function('{"a":1}')
    answer, _ = cross(client, "responses", [*CREATED, *item(0, call), last("completed", [call])])
    assert (answer.calls, answer.ending) == ([("call_1", "f", '{"a":1}')], "tool_calls")


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_output_only_in_the_last_frame(client: str) -> None:
    answer, _ = cross(client, "responses", [*CREATED, last("completed", [{**MESSAGE, "status": "completed"}])])
    assert (answer.text, answer.ending) == ("hi", "stop")


@pytest.mark.parametrize("client", OTHERS["responses"])
@pytest.mark.parametrize(("reason", "ending"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
def test_incomplete_responses(client: str, reason: str, ending: str) -> None:
    end = last("incomplete", [MESSAGE], incomplete_details={"reason": reason})
    answer, _ = cross(client, "responses", [*CREATED, *item(0, MESSAGE), end])
    assert (answer.text, answer.ending) == ("hi", ending)


@pytest.mark.parametrize("client", OTHERS["responses"])
@pytest.mark.parametrize("kind", ["failed", "cancelled"])
def test_failed_responses(client: str, kind: str) -> None:
    error = {"code": "server_error", "message": "boom"}
    answer, _ = cross(client, "responses", [*CREATED, *item(0, MESSAGE), last(kind, [], error=error)])
    assert (answer.text, answer.ending) == ("hi", "error")
    assert answer.error["message"]


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_top_level_error(client: str) -> None:
    answer, _ = cross(client, "responses", [*CREATED, event("error", code="boom", message="no more", param=None)])
    assert (answer.ending, answer.error["message"]) == ("error", "no more")


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_hosted_search_is_no_call(client: str) -> None:
    search = {"id": "ws_1", "type": "web_search_call", "action": {"type": "search", "query": "a"}}
    upstream = [*CREATED, *item(0, search), *item(1, MESSAGE), last("completed", [search, MESSAGE])]
    answer, result = cross(client, "responses", upstream)
    assert (answer.calls, answer.text, answer.ending) == ([], "hi", "stop")
    assert "lost_hosted_tool" in result.repairs


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_encrypted_thought_travels_in_an_envelope(client: str) -> None:
    thought: dict[str, Any] = {"id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "c2VjcmV0"}
    upstream = [*CREATED, *item(0, thought), *item(1, MESSAGE), last("completed", [thought, MESSAGE])]
    answer, _ = cross(client, "responses", upstream)
    ((kind, _),) = opened("", answer.sealed[0]).proofs
    assert (kind, answer.text) == ("encrypted_content", "hi")


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_thought_as_reasoning_text(client: str) -> None:
    thought = {"id": "rs_1", "type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    upstream = [*CREATED, *item(0, thought), *item(1, MESSAGE), last("completed", [thought, MESSAGE])]
    assert cross(client, "responses", upstream)[0].reasoning == "hm"


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_custom_call_of_responses(client: str) -> None:
    custom = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "note", "input": 'a "b"'}
    answer, _ = cross(client, "responses", [*CREATED, *item(0, custom), last("completed", [custom])])
    due = 'a "b"' if client == "chat" else '{"input":"a \\"b\\""}'
    assert answer.calls == [("call_1", "note", due)]


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_cut_after_the_call_was_done(client: str) -> None:
    answer, _ = cross(client, "responses", [*CREATED, *item(0, function())])
    assert answer.ending == "error"
    assert [one[0] for one in answer.calls] == (["call_1"] if client == "messages" else [])


@pytest.mark.parametrize("client", OTHERS["responses"])
def test_done_terminator_ends_nothing(client: str) -> None:
    answer, result = cross(client, "responses", [*CREATED, *item(0, MESSAGE), b"data: [DONE]\n\n"])
    assert (answer.ending, result.ended.ending) == ("error", "truncated")
