"""What other translators get wrong in streams (dialects-next.md 7, rows 21 to 60 and 88): one test each."""

import json
from typing import Any

from tests.support.answers import Answer, frames, read
from tests.support.chat import DONE, Run, begin, call, finish, frame, run, sse, tape, text
from tests.support.scripted_streams import named
from wiretape.events.crossing.envelope import opened
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record

ASKED = {"stream": True, "model": "m"}
ROLE = text("", role=True)
CALLS = finish("tool_calls")
THOUGHT = frame({"reasoning_content": "hm"})
USAGE = {"prompt_tokens": 30, "completion_tokens": 4, "total_tokens": 34}


def usage(counts: dict[str, Any]) -> bytes:
    return sse(
        {"id": "c", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": [], "usage": counts}
    )


def cross(client: str, upstream: list[bytes], **more: Any) -> Run:
    return run(tape(upstream, request=ASKED, dialect=client, upstream_dialect=more.pop("theirs", "chat"), **more))


def messages(*upstream: bytes, **more: Any) -> Answer:
    return read("messages", cross("messages", [ROLE, *upstream], **more).out)


def responses(*upstream: bytes, **more: Any) -> Answer:
    return read("responses", cross("responses", [ROLE, *upstream], **more).out)


def payloads(client: str, *upstream: bytes, **more: Any) -> list[dict[str, Any]]:
    return [value for _, value in frames(cross(client, [ROLE, *upstream], **more).out)]


def types(client: str, *upstream: bytes, **more: Any) -> list[str]:
    return [value["type"] for value in payloads(client, *upstream, **more)]


# -- chat to Messages -------------------------------------------------------------------------------------------------


def test_fault_21_blocks_never_overlap() -> None:
    """`read` fails if they do."""
    answer = messages(*named("interleaved calls").frames("chat")[1:])
    assert [call[0] for call in answer.calls] == ["call_a", "call_b"]


def test_fault_22_thought_has_its_own_block_and_the_message_starts_once() -> None:
    found = types("messages", text("a"), THOUGHT, text("b"), finish(), DONE)
    assert found.count("message_start") == 1
    assert found.count("content_block_start") == 3


def test_fault_23_second_thought_opens_another_block() -> None:
    answer = messages(THOUGHT, text("a"), THOUGHT, finish(), DONE)
    assert answer.order == ["reasoning", "text", "reasoning"]


def test_fault_24_thinking_delta_has_its_member_and_a_signature_at_the_end() -> None:
    deltas = [
        one["delta"] for one in payloads("messages", THOUGHT, finish(), DONE) if "index" in one and "delta" in one
    ]
    assert deltas == [{"type": "thinking_delta", "thinking": "hm"}, {"type": "signature_delta", "signature": ""}]


def test_fault_25_thought_begins_with_a_block() -> None:
    found = types("messages", THOUGHT, finish(), DONE)
    assert found.index("content_block_start") < found.index("content_block_delta")


def test_fault_26_every_call_is_converted_and_ends() -> None:
    upstream = [begin("call_1", "f", "", 0), begin("call_2", "g", '{"a":1}', 1), begin("call_3", "h", "{}", 2)]
    answer = messages(*upstream, CALLS, DONE)
    assert sorted(answer.calls) == [("call_1", "f", "{}"), ("call_2", "g", '{"a":1}'), ("call_3", "h", "{}")]


def test_fault_27_answer_with_a_call_stops_for_it() -> None:
    assert messages(begin("call_1", "f", "{}"), CALLS, DONE).ending == "tool_calls"


def test_fault_28_finish_stop_or_empty_with_a_call_stops_for_it() -> None:
    for reason in ("stop", ""):
        assert messages(begin("call_1", "f", "{}"), finish(reason), DONE).ending == "tool_calls", reason


def test_fault_29_no_empty_text_block_comes_first() -> None:
    blocks = [one["content_block"] for one in payloads("messages", begin("call_1", "f", "{}"), CALLS, DONE)[1:2]]
    assert [block["type"] for block in blocks] == ["tool_use"]


def test_fault_30_arguments_only_at_the_end_are_input() -> None:
    item = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "f", "arguments": '{"a":1}'}
    response = {
        "id": "resp_1",
        "object": "response",
        "created_at": 7,
        "model": "m",
        "status": "completed",
        "output": [item],
    }
    upstream = [
        _event("response.created", response={**response, "status": "in_progress", "output": []}),
        _event("response.output_item.done", output_index=0, item={**item, "status": "completed"}),
        _event("response.completed", response=response),
    ]
    assert read("messages", cross("messages", upstream, theirs="responses").out).calls == [("call_1", "f", '{"a":1}')]


def _event(kind: str, **members: Any) -> bytes:
    return b"event: %b\n%b" % (kind.encode(), sse({"type": kind, **members}))


def test_fault_31_no_argument_byte_is_dropped() -> None:
    pieces = [call(index=0, arguments=piece) for piece in ('{"', "a", '":', "1", "}")]
    assert messages(begin("call_1", "f"), *pieces, CALLS, DONE).calls == [("call_1", "f", '{"a":1}')]


def test_fault_32_thought_of_a_signature_alone_does_not_swallow_the_call() -> None:
    details = [{"type": "reasoning.encrypted", "data": "b3BhcXVl", "index": 0}]
    answer = messages(frame({"reasoning_details": details}), begin("call_1", "f", "{}"), CALLS, DONE)
    assert answer.calls == [("call_1", "f", "{}")]
    assert len(answer.sealed) == 1


def test_fault_33_cut_is_an_error() -> None:
    assert messages(text("a"), begin("call_1", "f", '{"a"')).ending == "error"


def test_fault_34_our_own_timeout_keeps_the_calls_that_were_handed_over() -> None:
    calls = [begin("call_1", "f", "{}", 0), begin("call_2", "g", '{"a', 1)]
    answer = messages(*calls, cause="stalled")
    assert (answer.calls, answer.ending) == ([("call_1", "f", "{}")], "error")
    assert [one["id"] for one in answer.error["dropped_tools"]] == ["call_2"]


def test_fault_35_usage_is_in_both_places() -> None:
    found = payloads("messages", text("a"), finish(), usage(USAGE), DONE)
    assert found[0]["message"]["usage"]["input_tokens"] == 0
    assert found[-2]["usage"] == {
        "input_tokens": 30,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": 4,
    }


def test_fault_36_cached_tokens_count_once() -> None:
    answer = messages(text("a"), finish(), usage({**USAGE, "prompt_tokens_details": {"cached_tokens": 20}}), DONE)
    assert answer.usage is not None
    assert (answer.usage["input_tokens"], answer.usage["cache_read_input_tokens"]) == (10, 20)


def test_fault_37_cached_tokens_of_messages_are_inside_the_input_of_others() -> None:
    start = (
        named("text")
        .frames("messages")[0]
        .replace(b'"input_tokens":11', b'"input_tokens":1,"cache_read_input_tokens":9,"cache_creation_input_tokens":1')
    )
    result = cross("responses", [start, *named("text").frames("messages")[1:]], theirs="messages")
    counts = read("responses", result.out).usage
    assert counts is not None
    assert (counts["input_tokens"], counts["total_tokens"]) == (11, 18)
    assert counts["input_tokens_details"] == {"cached_tokens": 9, "cache_write_tokens": 1}


def test_fault_38_search_that_the_server_runs_is_no_call_of_the_client() -> None:
    upstream = named("text").frames("messages")
    search: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    block = [
        _event("content_block_start", index=0, content_block=search),
        _event("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": '{"query":"a"}'}),
        _event("content_block_stop", index=0),
    ]
    rest = [one.replace(b'"index":0', b'"index":1') for one in upstream[1:]]
    result = cross("chat", [upstream[0], *block, *rest], theirs="messages")
    answer = read("chat", result.out)
    assert (answer.text, answer.calls, answer.ending) == ("Hello there", [], "stop")
    assert "lost_hosted_tool" in result.repairs


def test_fault_39_ids_stay_short_and_thought_signatures_leave_them_alone() -> None:
    long = "call_" + "x" * 200
    for client in (messages, responses):
        (one,) = client(begin(long, "f", "{}"), CALLS, DONE).calls
        assert len(one[0]) <= 64
        assert client(begin(long, "f", "{}"), CALLS, DONE).calls == [one]  # the same every time


def test_fault_40_call_is_a_call_and_never_text() -> None:
    for client in (messages, responses):
        assert client(begin("call_1", "f", "{}"), CALLS, DONE).text == ""


def test_fault_41_thought_with_a_call_comes_before_it() -> None:
    answer = messages(THOUGHT, begin("call_1", "f", "{}"), CALLS, DONE)
    assert answer.order == ["reasoning", "call_1"]


def test_fault_42_thoughts_reach_messages_and_responses() -> None:
    assert messages(THOUGHT, finish(), DONE).reasoning == responses(THOUGHT, finish(), DONE).reasoning == "hm"


def test_fault_43_thoughts_under_any_name_cross() -> None:
    for name in ("reasoning_content", "reasoning", "reasoning_text"):
        assert messages(frame({name: "hm"}), finish(), DONE).reasoning == "hm", name


def test_fault_44_json_where_a_stream_was_due_becomes_a_stream() -> None:
    whole = {
        "id": "c",
        "object": "chat.completion",
        "created": 7,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    }
    for client in ("messages", "responses"):
        result = cross(client, [json.dumps(whole).encode()], body=True)
        answer = read(client, result.out)
        assert (answer.text, answer.ending) == ("hi", "stop")


def test_fault_45_text_survives_a_double_bridge() -> None:
    there = cross("messages", [ROLE, text("a"), text("b"), finish(), DONE])
    assert read("chat", cross("chat", [there.out], theirs="messages").out).text == "ab"


# -- chat to Responses ------------------------------------------------------------------------------------------------


def test_fault_46_content_parts_are_added() -> None:
    found = types("responses", text("a"), finish(), DONE)
    assert found.index("response.content_part.added") < found.index("response.output_text.delta")


def test_fault_47_thought_begins_with_its_item() -> None:
    found = types("responses", THOUGHT, finish(), DONE)
    assert found.index("response.output_item.added") < found.index("response.reasoning_summary_text.delta")


def test_fault_48_all_deltas_of_a_thought_are_of_one_item() -> None:
    found = payloads("responses", THOUGHT, THOUGHT, finish(), DONE)
    ids = {one["item_id"] for one in found if one["type"] == "response.reasoning_summary_text.delta"}
    assert len(ids) == 1
    assert "response.reasoning_summary_part.added" in [one["type"] for one in found]


def test_fault_49_content_index_counts_parts_of_the_item() -> None:
    found = payloads("responses", THOUGHT, text("a"), finish(), DONE)
    (delta,) = (one for one in found if one["type"] == "response.output_text.delta")
    assert (delta["output_index"], delta["content_index"]) == (1, 0)


def test_fault_50_every_call_is_closed() -> None:
    found = types("responses", begin("call_1", "f", "{}"), begin("call_2", "g", "{}", 1), CALLS, DONE)
    assert found.count("response.function_call_arguments.done") == 2
    assert found.count("response.output_item.done") == 2


def test_fault_51_name_and_id_of_the_first_delta_stay() -> None:
    answer = responses(
        begin("call_1", "f"), call(index=0, arguments='{"a"'), call(index=0, arguments=":1}"), CALLS, DONE
    )
    assert answer.calls == [("call_1", "f", '{"a":1}')]


def test_fault_52_call_without_id_gets_one() -> None:
    (one,) = responses(call(index=0, name="f", arguments="{}"), CALLS, DONE).calls
    assert one[0].startswith("call_")


def test_fault_53_cut_by_a_limit_or_a_filter_is_incomplete() -> None:
    assert responses(text("a"), finish("length"), DONE).ending == "length"
    assert responses(text("a"), finish("content_filter"), DONE).ending == "content_filter"


def test_fault_54_cut_is_no_completion() -> None:
    assert responses(text("a")).ending == "error"


def test_fault_55_cut_is_no_token_limit() -> None:
    found = types("responses", begin("call_1", "f", '{"a'))
    assert found[-1] == "response.failed"


def test_fault_56_error_is_a_failure_and_its_status_says_so() -> None:
    (*_, last) = payloads("responses", text("a"), sse({"error": {"message": "boom", "code": "overloaded"}}))
    assert (last["type"], last["response"]["status"]) == ("response.failed", "failed")
    assert last["response"]["error"] == {"code": "overloaded", "message": "boom"}


def test_fault_57_numbers_and_event_lines_and_no_done() -> None:
    result = cross("responses", [ROLE, text("a"), finish(), DONE])
    assert b"[DONE]" not in result.out
    for number, (event, value) in enumerate(frames(result.out)):
        assert (value["sequence_number"], value["type"]) == (number, event)


def test_fault_58_events_have_their_names() -> None:
    known = {
        f"response.{name}"
        for name in (
            *("created", "in_progress", "completed", "output_item.added", "output_item.done", "output_text.delta"),
            *("content_part.added", "content_part.done", "output_text.done", "reasoning_summary_part.added"),
            *("reasoning_summary_part.done", "reasoning_summary_text.delta", "reasoning_summary_text.done"),
            *("function_call_arguments.delta", "function_call_arguments.done"),
        )
    }
    upstream = [THOUGHT, text("a"), begin("call_1", "f", "{}"), CALLS, DONE]
    assert set(types("responses", *upstream, tool_events=False)) == known


def test_fault_59_keepalive_is_an_event_that_resets_codex() -> None:
    emitter = Emitter()
    for record in tape([], request=ASKED, dialect="responses", upstream_dialect="chat")[:3]:
        emitter.feed(record)
    emitter.feed(Record(3, 0, "commit", {"status": 200}))
    sent = b"".join(emitter.feed(Record(4, 0, "keepalive")))
    assert [event for event, _ in frames(sent)] == ["response.created", "response.in_progress", "keepalive"]


def test_fault_60_items_have_the_prefixes_of_their_kinds() -> None:
    """`read` fails on any other."""
    responses(THOUGHT, text("a"), begin("call_1", "f", "{}"), CALLS, DONE)


def test_fault_88_thought_signature_of_a_call_comes_back_with_it() -> None:
    signed = {"google": {"thought_signature": "c2ln"}}
    for client in (messages, responses):
        answer = client(begin("call_1", "f", "{}", extra_content=signed), CALLS, DONE)
        (sealed,) = answer.sealed
        assert dict(opened("", sealed).calls) == {"call_1": (("extra_content", signed),)}
        assert answer.calls == [("call_1", "f", "{}")]
