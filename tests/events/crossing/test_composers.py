"""What composers do beyond the scripted streams: tools of other kinds, proofs, whole answers, attempts, limits."""

import json
from typing import Any

import pytest

from tests.conformance.order import CHECKERS
from tests.support.answers import frames, read
from tests.support.chat import DONE, Run, begin, call, finish, frame, run, sse, tape, text, tool_calls
from tests.support.scripted_streams import named
from wiretape.events.core.json_text import Boundary, dumps
from wiretape.events.core.limits import COMPOSED_CHARS_MAX, SKIPPED_BYTES_MAX
from wiretape.events.crossing.custom import CustomInput
from wiretape.events.crossing.envelope import opened
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

ASKED = {"stream": True, "model": "m"}
COUNTED = {**ASKED, "stream_options": {"include_usage": True}}
ROLE = text("", role=True)
CALLS = finish("tool_calls")
ERROR = sse({"error": {"message": "the model crashed", "code": "boom"}})
TOOLS = {
    "apply_patch": {"name": "apply_patch", "namespace": "", "kind": "custom"},
    "agents__spawn": {"name": "spawn", "namespace": "agents", "kind": "function"},
    "tool_search": {"name": "tool_search", "namespace": "", "kind": "tool_search"},
    "agents": {"name": "agents", "namespace": "", "kind": "function"},
}


def cross(client: str, upstream: list[bytes], *, theirs: str = "chat", **more: Any) -> Run:
    crossing = {"tools": TOOLS, "echo": more.pop("echo", {})}
    asked = more.pop("asked", ASKED)
    return run(tape(upstream, request=asked, dialect=client, upstream_dialect=theirs, crossing=crossing, **more))


def items(result: Run) -> list[dict[str, Any]]:
    return [value["item"] for _, value in frames(result.out) if value["type"] == "response.output_item.done"]


def deltas(result: Run, kind: str) -> list[str]:
    return [value["delta"] for _, value in frames(result.out) if value["type"] == f"response.{kind}.delta"]


# -- custom tools -----------------------------------------------------------------------------------------------------


def test_custom_call_is_decoded_as_it_comes() -> None:
    pieces = ['{"inp', 'ut": "a\\', "nb", "\\ud83d", "\\ude00\\u0", '041"', "}"]
    upstream = [ROLE, begin("call_1", "apply_patch"), *(call(index=0, arguments=piece) for piece in pieces)]
    result = cross("responses", [*upstream, CALLS, DONE])
    assert deltas(result, "custom_tool_call_input") == ["a", "\nb", "\U0001f600", "A"]
    (item,) = items(result)
    assert (item["type"], item["name"], item["input"]) == ("custom_tool_call", "apply_patch", "a\nb\U0001f600A")
    assert read("responses", result.out).ending == "tool_calls"


@pytest.mark.parametrize(
    ("arguments", "given"),
    [
        ('{"patch":"a"}', '{"patch":"a"}'),
        (" " * 70 + '{"input":"a"}', "a"),
        ('{"why":"b","input":"a"}', "a"),
        ('["a"]', '["a"]'),
        ("", ""),
        ('{"input":""}', ""),
        ('{"input":"a","why":"b"}', "a"),
    ],
)
def test_custom_call_with_other_arguments_keeps_what_was_said(arguments: str, given: str) -> None:
    (item,) = items(cross("responses", [ROLE, begin("call_1", "apply_patch", arguments), CALLS, DONE]))
    assert item["input"] == given


def test_custom_input_after_another_member_comes_at_the_end() -> None:
    pieces = ['{"why":', f'"{"b" * 80}",', '"input":"a"}']
    upstream = [ROLE, begin("call_1", "apply_patch"), *(call(index=0, arguments=piece) for piece in pieces)]
    assert deltas(cross("responses", [*upstream, CALLS, DONE]), "custom_tool_call_input") == ["a"]


@pytest.mark.parametrize("arguments", ['{"input":"a"', '{"input":"a\\', "a patch", '{"patch":', '{"in'])
def test_custom_call_with_arguments_that_are_not_json_is_malformed(arguments: str) -> None:
    result = cross("responses", [ROLE, begin("call_1", "apply_patch", arguments), CALLS, DONE])
    answer = read("responses", result.out)
    assert (answer.calls, answer.error["code"]) == ([], "malformed_call")


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_custom_input_is_the_same_in_any_pieces(size: int) -> None:
    value = 'a"\\/\b\n\té\U0001f600 \x7f'
    given = json.dumps({"input": value})
    decoder, boundary = CustomInput(), Boundary()
    boundary.feed(given)
    pieces = [decoder.feed(given[at : at + size]) for at in range(0, len(given), size)]
    assert "".join(pieces) + (decoder.rest(whole=boundary.complete) or "") == value


def test_chat_clients_get_custom_calls_too() -> None:
    result = cross("chat", named("plain call").frames("messages"), theirs="messages")
    assert read("chat", result.out).calls == [("call_a", "list_files", '{"path":"a"}')]
    frames_ = [one.replace(b"list_files", b"apply_patch") for one in named("plain call").frames("messages")]
    frames_ = [one.replace(b'\\"path\\"', b'\\"input\\"') for one in frames_]
    result = cross("chat", frames_, theirs="messages")
    assert b'"custom":{"input":"a"}' in result.out


def test_free_text_becomes_the_one_string_of_an_input() -> None:
    custom = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "note", "input": 'a"'}}
    more = {"index": 0, "custom": {"input": "b"}}
    upstream = [ROLE, tool_calls(custom), tool_calls(more), CALLS, DONE]
    assert read("messages", cross("messages", upstream).out).calls == [("call_1", "note", '{"input":"a\\"b"}')]
    empty = {"index": 0, "id": "call_1", "type": "custom", "custom": {"name": "note", "input": ""}}
    upstream = [ROLE, tool_calls(empty), CALLS, DONE]
    assert read("messages", cross("messages", upstream).out).calls == [("call_1", "note", '{"input":""}')]


# -- names and kinds --------------------------------------------------------------------------------------------------


def test_namespace_comes_back() -> None:
    (item,) = items(cross("responses", [ROLE, begin("call_1", "agents__spawn", "{}"), CALLS, DONE]))
    assert (item["name"], item["namespace"]) == ("spawn", "agents")


def test_name_in_pieces_is_restored_when_it_is_whole() -> None:
    pieces = [begin("call_1", "agents"), call(index=0, name="__spawn"), call(index=0, arguments="{}")]
    (item,) = items(cross("responses", [ROLE, *pieces, CALLS, DONE]))
    assert (item["name"], item["namespace"]) == ("spawn", "agents")


def test_name_in_pieces_of_an_undeclared_tool() -> None:
    pieces = [begin("call_1", "one"), call(index=0, name="_more"), call(index=0, arguments="{}"), CALLS, DONE]
    records = tape([ROLE, *pieces], request=ASKED, dialect="messages", upstream_dialect="chat")
    assert read("messages", run(records).out).calls == [("call_1", "one_more", "{}")]


def test_tool_search_is_a_call_of_its_kind() -> None:
    (item,) = items(cross("responses", [ROLE, begin("call_1", "tool_search", '{"query":"a"}'), CALLS, DONE]))
    assert (item["type"], item["execution"], item["arguments"]) == ("tool_search_call", "client", {"query": "a"})
    assert "name" not in item


@pytest.mark.parametrize(
    ("arguments", "calls"), [("null", [("call_1", "f", "{}")]), ("[1]", []), ("nul", []), (" ", []), ("nulls", [])]
)
def test_input_of_messages_is_an_object(arguments: str, calls: list[Any]) -> None:
    result = cross("messages", [ROLE, begin("call_1", "f", arguments), CALLS, DONE])
    assert read("messages", result.out).calls == calls


def test_leading_space_of_arguments_stays() -> None:
    upstream = [ROLE, begin("call_1", "f", " "), call(index=0, arguments='{"a":1}'), CALLS, DONE]
    assert read("messages", cross("messages", upstream).out).calls == [("call_1", "f", ' {"a":1}')]


# -- proofs -----------------------------------------------------------------------------------------------------------


def _details(data: str) -> bytes:
    entries = [{"type": "reasoning.text", "text": "a"}, {"type": "reasoning.encrypted", "data": data, "index": 0}]
    return frame({"reasoning_details": entries})


def test_details_of_a_thought_are_in_its_envelope() -> None:
    upstream = [ROLE, frame({"reasoning_content": "hm"}), _details("b3BhcXVl"), text("a"), finish(), DONE]
    for client in ("messages", "responses"):
        (sealed,) = read(client, cross(client, upstream).out).sealed
        ((kind, value),) = opened("", sealed).proofs
        assert kind == "reasoning_details"
        assert [entry["data"] for entry in value] == ["b3BhcXVl"]


def test_proof_after_everything_gets_a_thought_of_its_own() -> None:
    upstream = [ROLE, text("a"), frame({"extra_content": {"google": {"thought_signature": "c2ln"}}}), finish(), DONE]
    for client in ("messages", "responses"):
        (sealed,) = read(client, cross(client, upstream).out).sealed
        assert opened("", sealed).proofs == (("extra_content", {"google": {"thought_signature": "c2ln"}}),)


def test_late_proof_of_a_call_follows_it() -> None:
    late = tool_calls({"index": 0, "extra_content": {"a": 1}, "function": {"arguments": "}"}})
    upstream = [ROLE, begin("call_1", "f", "{"), late, CALLS, DONE]
    for client in ("messages", "responses"):
        answer = read(client, cross(client, upstream).out)
        assert dict(opened("", answer.sealed[0]).calls) == {"call_1": (("extra_content", {"a": 1}),)}
        assert answer.calls == [("call_1", "f", "{}")]


def test_proof_that_is_too_long_is_lost_by_name() -> None:
    for client, theirs in (("messages", "chat"), ("responses", "chat")):
        result = cross(client, [ROLE, _details("x" * 70_000), text("a"), finish(), DONE], theirs=theirs)
        assert read(client, result.out).sealed == []
        assert "lost_proof" in result.repairs
    long = named("reasoning, text, call").frames("messages")
    result = cross("chat", [one.replace(b"c2lnbmF0dXJl", b"x" * 70_000) for one in long], theirs="messages")
    assert "lost_proof" in result.repairs


def test_signatures_reach_chat_clients_as_details() -> None:
    answer = read("chat", cross("chat", named("reasoning, text, call").frames("messages"), theirs="messages").out)
    assert opened("", answer.sealed[0]).proofs == (("signature", "c2lnbmF0dXJl"),)


# -- order ------------------------------------------------------------------------------------------------------------


def test_text_waits_for_the_call_that_is_open() -> None:
    upstream = [ROLE, begin("call_1", "f", '{"a"'), text("x"), text("y"), call(index=0, arguments=":1}"), CALLS, DONE]
    for client in ("chat", "messages", "responses"):
        theirs = "chat" if client != "chat" else ""
        if theirs:
            assert read(client, cross(client, upstream).out).order == ["call_1", "text"]


def test_text_while_a_call_is_cut_is_lost_by_name() -> None:
    upstream = [ROLE, begin("call_1", "f", '{"a"'), text("x"), finish("length"), DONE]
    result = cross("messages", upstream)
    assert (read("messages", result.out).text, "lost_order" in result.repairs) == ("", True)


@pytest.mark.parametrize("end", [[], [finish("length"), DONE], [DONE], [ERROR]], ids=["eof", "length", "done", "error"])
@pytest.mark.parametrize("client", ["messages", "responses"])
def test_call_that_was_cut_before_it_was_shown_is_dropped_by_name(client: str, end: list[bytes]) -> None:
    upstream = [ROLE, begin("call_1", "f", '{"a"'), begin("call_2", "g", "{}", 1), begin("call_3", "h", "", 2)]
    result = cross(client, [*upstream, *end])
    answer = read(client, result.out)
    assert [card for card in answer.cards if card[1] == "dropped"] == [(f"call_{n}", "dropped") for n in (1, 2, 3)]
    assert answer.ending == ("length" if end[:1] == [finish("length")] else "error")


@pytest.mark.parametrize("reason", ["stop", "tool_calls"])
@pytest.mark.parametrize("client", ["messages", "responses"])
@pytest.mark.parametrize("end", [[DONE], []], ids=["done", "eof"])
def test_call_without_arguments_after_the_finish_is_a_cut(client: str, reason: str, end: list[bytes]) -> None:
    result = cross(client, [ROLE, text("a"), finish(reason), begin("call_1", "f"), *end])
    answer = read(client, result.out)
    assert (answer.ending, answer.calls, answer.cards) == ("error", [], [("call_1", "dropped")])
    assert result.ended.ending == "truncated"


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_call_that_waits_is_handed_over_once(client: str) -> None:
    upstream = [ROLE, begin("call_1", "f"), begin("call_2", "g", '{"b"', 1)]
    upstream += [call(index=0, arguments='{"a":1}'), call(index=1, arguments=":2}"), CALLS, DONE]
    answer = read(client, cross(client, upstream).out)
    assert answer.calls == [("call_2", "g", '{"b":2}'), ("call_1", "f", '{"a":1}')]


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_text_after_the_finish_of_held_calls_is_sent(client: str) -> None:
    upstream = [ROLE, begin("call_1", "f", "{}"), CALLS, text("late"), DONE]
    answer = read(client, cross(client, upstream, tools="held").out)
    assert (answer.text, answer.calls, answer.ending) == ("late", [("call_1", "f", "{}")], "tool_calls")


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_text_after_the_finish_of_a_held_malformed_call_is_withheld(client: str) -> None:
    upstream = [ROLE, begin("call_1", "f", "{"), CALLS, text("late"), DONE]
    result = cross(client, upstream, tools="held")
    answer = read(client, result.out)
    assert (answer.text, answer.calls, answer.ending) == ("", [], "error")
    assert result.ended.flags[-1:] == ("malformed_call",)


@pytest.mark.parametrize("client", ["messages", "responses"])
def test_error_before_a_call_is_shown_names_it_after_the_text(client: str) -> None:
    result = cross(client, [ROLE, text("a"), begin("call_1", "f"), ERROR], on_partial="both")
    assert (read(client, result.out).ending, CHECKERS[client](result.out)) == ("error", [])


def test_more_than_two_calls_in_turns() -> None:
    upstream = [ROLE, *(begin(f"call_{n}", "f", '{"a"', n) for n in range(3))]
    upstream += [call(index=n, arguments=":1}") for n in (2, 1, 0)]
    for client in ("messages", "responses"):
        answer = read(client, cross(client, [*upstream, CALLS, DONE]).out)
        assert answer.calls == [(f"call_{n}", "f", '{"a":1}') for n in range(3)]


def test_call_that_is_complete_while_free_text_is_open() -> None:
    note = {"index": 1, "id": "call_2", "type": "custom", "custom": {"name": "note", "input": "abc"}}
    upstream = [ROLE, begin("call_1", "f"), tool_calls(note), call(index=0, arguments="{}"), CALLS, DONE]
    calls = [("call_2", "note", '{"input":"abc"}'), ("call_1", "f", "{}")]
    assert read("messages", cross("messages", upstream).out).calls == calls


def test_terminator_without_its_blank_line() -> None:
    for client in ("messages", "responses"):
        assert read(client, cross(client, [ROLE, text("a"), finish(), b"data: [DONE]"]).out).ending == "stop"


def test_arguments_after_a_call_that_ended_are_an_error() -> None:
    upstream = [ROLE, begin("call_1", "f", "{}"), text("x"), call(index=0, arguments='{"b":1}'), CALLS, DONE]
    for client in ("messages", "responses"):
        assert read(client, cross(client, upstream).out).ending == "error"


def test_what_waits_has_a_bound() -> None:
    big = text("x" * (1 << 20))
    upstream = [ROLE, begin("call_1", "f", '{"a"'), *[big] * (COMPOSED_CHARS_MAX // (1 << 20) + 1), DONE]
    assert cross("messages", upstream).ended.ending == "limit"


def test_text_of_responses_has_a_bound() -> None:
    upstream = [ROLE, *[text("x" * (1 << 20))] * (COMPOSED_CHARS_MAX // (1 << 20) + 1), finish(), DONE]
    records = tape(upstream, request=ASKED, dialect="responses", upstream_dialect="chat")
    emitter = Emitter()
    for record in records:
        emitter.feed(record)
    assert emitter.wire.overflow


@pytest.mark.parametrize("frame_bytes", [SKIPPED_BYTES_MAX // 3, SKIPPED_BYTES_MAX, 1 << 20])
def test_bound_of_a_text_does_not_depend_on_the_reads(frame_bytes: int) -> None:
    """Frames that repeat a shape are not read; a frame in two reads always is."""
    upstream = [ROLE, *[text("x" * frame_bytes)] * (COMPOSED_CHARS_MAX // frame_bytes + 2), finish(), DONE]
    sent: list[bytes] = []
    for split in (False, True):
        recorder, emitter = Recorder(skim=True), Emitter()
        opened = tape([], request=ASKED, dialect="responses", upstream_dialect="chat")[:-1]
        records = [recorder.record(one.kind, 0, one.keys, one.raw) for one in opened]
        for t, came in enumerate(upstream, 1):
            for part in (came[:40], came[40:]) if split else (came,):
                records += recorder.read(t, part) if part else []
        sent.append(b"".join(each for record in records for each in emitter.feed(record)))
        assert emitter.wire.overflow
    assert sent[0] == sent[1]


def test_call_of_which_a_part_could_not_be_read_never_runs() -> None:
    torn = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,\n\n'
    upstream = [ROLE, begin("call_1", "f", '{"a"'), torn, call(index=0, arguments=":1}"), CALLS, DONE]
    for client in ("messages", "responses"):
        answer = read(client, cross(client, upstream).out)
        assert (answer.calls, answer.ending) == ([], "error")


def test_call_that_is_damaged_after_it_was_handed_over_is_an_error() -> None:
    torn = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,\n\n'
    upstream = [ROLE, begin("call_1", "f", "{}"), text("x"), torn, CALLS, DONE]
    for client in ("messages", "responses"):
        assert read(client, cross(client, upstream).out).ending == "error"


def test_call_without_a_name_is_an_error() -> None:
    for client in ("messages", "responses"):
        answer = read(client, cross(client, [ROLE, call(index=0, arguments="{}"), CALLS, DONE]).out)
        assert (answer.calls, answer.ending) == ([], "error")


def test_damage_before_any_call_is_an_error() -> None:
    torn = b'event: content_block_start\ndata: {"type":"content_block_start","content_block":{"type":"tool_use"\n\n'
    start, *rest = named("text").frames("messages")
    answer = read("chat", cross("chat", [start, torn, *rest], theirs="messages").out)
    assert answer.ending == "error"


# -- choices, sounds and hosted tools ---------------------------------------------------------------------------------


def test_first_choice_crosses_under_any_number() -> None:
    upstream = [text("a", role=True, index=1), text("b", role=True), finish(index=1), finish(), DONE]
    result = cross("responses", upstream)
    assert (read("responses", result.out).text, result.ended.ending) == ("a", "completed")
    assert result.repairs.count("lost_choice") == 1


def test_sound_is_lost_by_name() -> None:
    result = cross("messages", [ROLE, frame({"audio": {"data": "AA=="}}), finish(), DONE])
    assert "lost_audio" in result.repairs


# -- the end ----------------------------------------------------------------------------------------------------------


def test_terminal_response_echoes_the_request_and_counts() -> None:
    usage = sse({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 4, "total_tokens": 7}})
    echo = {"temperature": 0.5, "instructions": "be brief", "unknown": 1}
    result = cross("responses", [ROLE, text("a"), finish(), usage, DONE], echo=echo)
    response = frames(result.out)[-1][1]["response"]
    assert (response["temperature"], response["instructions"], "unknown" in response) == (0.5, "be brief", False)
    assert response["usage"]["total_tokens"] == 7
    assert response["completed_at"] is not None


def test_answer_without_its_terminator_is_whole() -> None:
    for client in ("messages", "responses"):
        result = cross(client, [ROLE, text("a"), finish()])
        assert read(client, result.out).ending == "stop"
        assert (result.ended.ending, result.ended.flags[:1]) == ("completed", ("no_done",))


def test_text_after_the_finish_is_text() -> None:
    for client in ("messages", "responses"):
        for ending in ([], [DONE]):
            answer = read(client, cross(client, [ROLE, text("a"), finish(), text("b"), *ending]).out)
            assert (answer.text, answer.ending) == ("ab", "stop")


def test_failure_names_no_item_that_was_held() -> None:
    upstream = [ROLE, begin("call_1", "f", "{}"), text("a"), sse({"error": {"message": "boom"}})]
    assert read("responses", cross("responses", upstream, tools="held").out).calls == []


def test_held_text_does_not_follow_into_a_lost_call() -> None:
    upstream = [ROLE, begin("call_1", "f", "{"), text("a"), CALLS, DONE]
    for client in ("messages", "responses"):
        assert read(client, cross(client, upstream, tools="held").out).error["code"] == "malformed_call"


def test_error_before_anything_opens_the_answer_first() -> None:
    result = cross("responses", [sse({"error": {"message": "", "code": 503}})])
    answer = read("responses", result.out)
    assert answer.error == {"code": "503", "message": "The upstream failed and did not say why."}
    result = cross("messages", [sse({"error": {"message": "boom", "code": "rate_limit_exceeded"}})])
    assert read("messages", result.out).error["type"] == "rate_limit_error"
    failed = named("in-band error").frames("messages")
    assert read("chat", cross("chat", failed, theirs="messages").out).error["message"] == "the model crashed"


def test_finish_of_tool_calls_without_a_call_is_a_stop() -> None:
    for client in ("messages", "responses"):
        assert read(client, cross(client, [ROLE, text("a"), CALLS, DONE]).out).ending == "stop"


def test_refusal_after_text_is_a_part_of_the_same_message() -> None:
    upstream = [ROLE, text("a"), frame({"refusal": "no"}), text("b"), finish(), DONE]
    (item,) = items(cross("responses", upstream))
    assert [part["type"] for part in item["content"]] == ["output_text", "refusal", "output_text"]


def test_limit_leaves_the_message_incomplete() -> None:
    (item,) = items(cross("responses", [ROLE, text("a"), finish("length"), DONE]))
    assert item["status"] == "incomplete"


def test_chat_client_that_did_not_ask_gets_no_usage() -> None:
    result = cross("chat", named("text").frames("responses"), theirs="responses")
    assert b'"usage"' not in result.out


def test_thoughts_have_the_name_that_the_route_wants() -> None:
    result = cross("chat", named("reasoning, text, call").frames("messages"), theirs="messages", reasoning="reasoning")
    assert b'"delta":{"reasoning":"Let me "}' in result.out


# -- attempts and answers that are not streams ------------------------------------------------------------------------


def test_second_attempt_does_not_open_again() -> None:
    records = tape([ROLE, text("a"), finish(), DONE], request=ASKED, dialect="responses", upstream_dialect="chat")
    first, frames_ = records[:3], [record for record in records[3:] if record.kind in ("frame", "end")]
    emitter, sent = Emitter(), list[bytes]()
    between = [Record(3, 0, "commit", {"status": 200}), Record(4, 0, "keepalive"), first[2]._replace(n=5)]
    for record in [*first, *between, *frames_]:
        sent += emitter.feed(record)
    answer = read("responses", b"".join(sent))
    assert (answer.text, answer.ending) == ("a", "stop")


@pytest.mark.parametrize("client", ["chat", "responses", "messages"])
@pytest.mark.parametrize("theirs", ["chat", "responses", "messages"])
@pytest.mark.parametrize("name", ["reasoning, text, call", "text", "two calls", "content_filter"])
def test_whole_answer_says_what_the_stream_says(client: str, theirs: str, name: str) -> None:
    if client == theirs:
        return
    stream = named(name)
    body = dumps(DIALECTS[theirs].whole(value for _, value in frames(b"".join(stream.frames(theirs)))))
    whole = tape([body], request={"model": "m"}, dialect=client, upstream_dialect=theirs, body=True)
    emitter = Emitter()
    (answer,) = (json.loads(frame) for record in whole for frame in emitter.feed(record))
    streamed = tape(stream.frames(theirs), request=COUNTED, dialect=client, upstream_dialect=theirs, tool_events=False)
    due = DIALECTS[client].whole(value for _, value in frames(run(streamed).out))
    for each in (answer, due):
        each.pop("completed_at", None)
    assert answer == due


def test_members_that_are_null_are_not_in_a_whole_answer() -> None:
    chunks = [{"choices": [{"index": 0, "delta": {"content": None, "x": None}, "finish_reason": None}]}]
    (choice,) = DIALECTS["chat"].whole(chunks)["choices"]
    assert choice["message"] == {"role": "assistant", "content": None, "refusal": None}


def test_cut_whole_answer_says_nothing() -> None:
    whole = tape(
        [b'{"id":"c","choices":[{'], request={"model": "m"}, dialect="messages", upstream_dialect="chat", body=True
    )
    emitter = Emitter()
    assert not any(frame for record in whole for frame in emitter.feed(record))
    assert emitter.wire.ended is not None
    assert emitter.wire.ended.ending == "truncated"
