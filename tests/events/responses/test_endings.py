"""How a Responses stream ends: whole, cut, failed, malformed; live and held; and what is added to it on the way."""

import json
from typing import Any

import pytest

from tests.conformance.order import CHECKERS
from tests.support.chat import Run, run, tape
from wiretape.events.core.json_text import parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import HandedOver, ToolProgress
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import parse_block

from .made import (
    CREATED,
    HEAD,
    OPENING,
    Value,
    added,
    at,
    call,
    call_item,
    completed,
    delta,
    done,
    failed,
    incomplete,
    kinds,
    message,
    message_item,
    numbered,
    played,
    sse,
    stream,
    text_done,
    values,
)

CALL = call('{"x"', ":1}")
MODES: list[dict[str, Any]] = [{}, {"tools": "held"}, {"on_partial": "both"}, {"on_partial": "warn"}]


def last(result: Run) -> Value:
    """Return the last payload."""
    return values(result)[-1]


def cards(result: Run) -> list[tuple[str, str]]:
    """Return tool call id and status of each lifecycle frame."""
    return [(value["toolCallId"], value["status"]) for value in values(result) if "toolCallId" in value]


def states(result: Run) -> list[str]:
    """Return the state of each call."""
    return [call.state.value for call in result.wire.calls()]


# -- cuts -------------------------------------------------------------------------------------------------------------


def test_cut_is_a_failure_with_what_was_done() -> None:
    result = played(stream(*OPENING, *message("hi"), *CALL[:2]))
    ended = last(result)
    assert result.ended.ending == "truncated"
    assert ended["type"] == "response.failed"
    assert ended["response"]["id"] == HEAD["id"]
    assert ended["response"]["status"] == "failed"
    assert ended["response"]["usage"] is None
    assert ended["response"]["output"] == [message_item("hi")]
    error = ended["response"]["error"]
    assert error["code"] == "stream_truncated"
    assert error["message"] == "⚠ Connection dropped mid tool-call: f was cut short. Not completed; no result seen."
    assert error["dropped_tools"] == [{"id": "call_1", "name": "f"}]
    assert cards(result) == [("call_1", "dropped")]


def test_fault_82_end_of_the_bytes_before_the_last_frame_is_a_cut() -> None:
    whole = stream(*OPENING, *message("hi"), *call("{}", index=1), completed(message_item("hi"), call_item("{}")))
    for cut in range(len(whole)):
        for settings in MODES:
            result = played(whole[:cut], **settings)
            assert result.ended.ending == "truncated"
            kind = "incomplete" if settings.get("on_partial") == "warn" else "failed"
            assert kinds(result)[-1] == kind
            assert [fault for fault in CHECKERS["responses"](result.out) if "one open item" not in fault] == []


def test_fault_81_empty_output_of_the_last_frame_is_what_was_sent() -> None:
    result = played(stream(*OPENING, *message("hi"), completed()))
    assert last(result)["response"]["output"] == [message_item("hi")]


@pytest.mark.parametrize(("reason", "word"), [("max_output_tokens", "length"), ("content_filter", "content_filter")])
def test_fault_83_incomplete_is_not_a_stop(reason: str, word: str) -> None:
    result = played(stream(*OPENING, *message("hi"), incomplete(message_item("hi"), reason=reason)))
    assert result.wire.choice(0).finish == word


def test_cut_before_anything_came_has_a_first_frame() -> None:
    result = played(b"")
    assert kinds(result) == ["created", "failed"]
    assert [value["response"]["id"] for value in values(result)] == ["resp_s1"] * 2


def test_reset_and_stall_are_named() -> None:
    for cause, words in (("stalled", "Stream stalled"), ("reset", "Connection dropped")):
        result = played(stream(*OPENING, *message("hi")), cause=cause)
        assert last(result)["response"]["error"]["message"] == f"⚠ {words}: the answer is incomplete."


def test_call_that_was_handed_over_is_not_dropped() -> None:
    result = played(stream(*OPENING, *CALL))
    assert cards(result) == [("call_1", "running")]
    assert states(result) == ["running"]
    assert result.ended.ending == "truncated"
    assert last(result)["response"]["output"] == [call_item()]


def test_call_whose_end_is_held_is_dropped() -> None:
    result = played(stream(*OPENING, *CALL), tools="held")
    assert cards(result) == [("call_1", "dropped")]
    assert kinds(result)[2:] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "keepalive",
        "failed",
    ]
    assert last(result)["response"]["output"] == []


def test_running_is_reported_once_before_the_end_of_the_item() -> None:
    result = played(stream(*OPENING, *CALL, completed(call_item())))
    assert kinds(result)[-3:] == ["keepalive", "output_item.done", "completed"]
    assert cards(result) == [("call_1", "running")]
    assert len(result.of(HandedOver)) == 1


# -- held -------------------------------------------------------------------------------------------------------------


def test_held_calls_and_all_after_them_go_out_in_order_at_the_end() -> None:
    output = [call_item(), message_item("hi"), call_item("{}", 2)]
    frames = [*OPENING, *CALL, *message("hi", index=1), *call("{}", index=2, number=2), completed(*output)]
    live, held = played(stream(*frames), tool_events=False), played(stream(*frames), tool_events=False, tools="held")
    assert live.out == held.out == b"".join(stream(*frames))
    assert [len(sent) for sent in held.frames][-3:] == [0, 12, 0]
    warned = played(stream(*frames), tool_events=False, on_partial="warn")
    assert warned.out == live.out


def test_held_calls_that_a_limit_cut_are_not_sent() -> None:
    half = call('{"y', index=1, number=2)[:-2]
    frames = [*OPENING, *CALL, *half, incomplete(call_item(), call_item('{"y', 2, "incomplete"))]
    result = played(stream(*frames), tools="held")
    assert cards(result) == [("call_1", "running"), ("call_2", "dropped")]
    assert kinds(result)[-4:] == ["keepalive", "output_item.done", "keepalive", "incomplete"]
    assert [item["call_id"] for item in last(result)["response"]["output"]] == ["call_1"]
    assert result.ended.ending == "completed"


def test_open_message_is_ended_before_a_warning() -> None:
    note = {"type": "response.output_text.annotation.added", **at(content_index=0), "annotation": {"a": 1}}
    tool = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    words = message("hi", "ho")
    frames = [*words[:3], note, *words[3:], added(tool, 1), done(tool, 1), *message("go", index=2, item_id="msg_2")[:3]]
    result = played(stream(*OPENING, *frames), on_partial="warn")
    parts = [item.get("content") for item in last(result)["response"]["output"]]
    assert [part and part[0]["text"] for part in parts] == ["hiho", None, "go"]
    assert CHECKERS["responses"](result.out) == []
    text = played(stream(*OPENING, *words[:5]), on_partial="warn")
    assert CHECKERS["responses"](text.out) == []
    closed = played(stream(*OPENING, *words[:6], note), on_partial="both")
    assert kinds(closed)[-1] == "failed"


# -- malformed and cut calls ------------------------------------------------------------------------------------------


def malformed() -> list[Value]:
    """Return a stream with a call whose arguments are not JSON."""
    return [*OPENING, *call('{"x"'), completed(call_item('{"x"'))]


def test_malformed_call_is_never_ended() -> None:
    result = played(stream(*malformed()))
    assert cards(result) == [("call_1", "dropped")]
    assert kinds(result)[-2:] == ["keepalive", "failed"]
    assert "output_item.done" not in kinds(result)
    assert last(result)["response"]["error"]["code"] == "malformed_call"
    assert last(result)["response"]["output"] == []
    assert result.ended.flags[-1] == "malformed_call"


def test_malformed_call_is_warned_about_in_an_item_of_its_own() -> None:
    result = played(stream(*OPENING, *message("hi"), *call('{"x"', index=1), completed()), on_partial="warn")
    warned = next(
        value["item"]
        for value in values(result)
        if value["type"].endswith("item.done") and "warning" in value["item"]["id"]
    )
    text = "⚠ Malformed tool call: the arguments of f are not valid JSON. Not completed; no result seen."
    assert warned["content"][0]["text"] == text
    assert last(result)["type"] == "response.incomplete"
    assert last(result)["response"]["output"] == [message_item("hi"), warned]
    assert "function_call" not in result.out.decode()
    assert last(result)["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_no_item_begins_inside_of_a_lost_call() -> None:
    result = played(stream(*OPENING, *message("hi"), *call('{"x"', index=1), completed()), on_partial="both")
    assert last(result)["type"] == "response.failed"
    assert "Malformed tool call" in last(result)["response"]["error"]["message"]
    assert last(result)["response"]["output"] == [message_item("hi")]


def test_warning_ends_the_open_message_first() -> None:
    frames = [*OPENING, *CALL, *message("hi", "ho", index=1)[:3]]
    result = played(stream(*OPENING, *message("hi", "ho")[:3]), on_partial="warn")
    response = last(result)["response"]
    assert response["output"] == [message_item("hi", status="incomplete")]
    assert response["usage"]["total_tokens"] == 0  # opencode asks again without end where it is null
    both = played(stream(*frames), on_partial="both")
    assert "warning" not in both.out.decode()  # the call was handed over


@pytest.mark.parametrize("arguments", ["", "{}", '{"x":1}', '{"x"', "[1,"])
def test_call_that_a_limit_cut_is_never_ended(arguments: str) -> None:
    """codex runs every call that ends, and answers its model with an error where the arguments are not JSON."""
    cut = call_item(arguments, 1, "incomplete")
    result = played(stream(*OPENING, *call(*filter(None, [arguments]))[:-1], done(cut), incomplete(cut)))
    assert "cut_call_stop" in result.repairs
    assert "output_item.done" not in kinds(result)
    assert cards(result) == [("call_1", "dropped")]
    assert (result.ended.ending, result.ended.flags) == ("completed", ())


def test_end_of_a_half_call_before_a_limit_is_a_cut() -> None:
    result = played(stream(*OPENING, *call('{"x"'), incomplete(call_item('{"x"'))))
    assert states(result) == ["dropped"]
    assert result.ended.ending == "completed"
    custom = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}
    cut = {**custom, "input": "abc", "status": "incomplete"}
    frames = [added(custom), delta("abc", at("ctc_1"), "custom_tool_call_input"), done(cut), incomplete(cut)]
    assert "cut_call_stop" in played(stream(*OPENING, *frames)).repairs


def test_half_call_at_a_limit_stays_open_without_a_warning_in_it() -> None:
    cut = call_item('{"x"', 1, "incomplete")
    result = played(stream(*OPENING, *call('{"x"')[:-1], done(cut), incomplete(cut)), on_partial="both")
    output = last(result)["response"]["output"]
    assert [item["id"] for item in output] == ["fc_1"]
    assert last(result)["type"] == "response.incomplete"


def test_call_without_arguments_gets_empty_ones_unless_it_was_cut() -> None:
    result = played(stream(*OPENING, *call(), completed(call_item(""))), tool_events=False)
    due = numbered(*OPENING, *call("{}"), completed(call_item("{}")))
    assert values(result) == due
    assert states(result) == ["running"]
    assert CHECKERS["responses"](result.out) == []


def test_length_with_a_whole_call_is_no_fault() -> None:
    result = played(stream(*OPENING, *CALL, incomplete(call_item())))
    assert states(result) == ["running"]
    assert (result.ended.ending, result.wire.choice(0).finish) == ("completed", "length")


# -- failures ---------------------------------------------------------------------------------------------------------


def attempts(*streams: list[bytes]) -> list[Record]:
    """Return the records of several attempts."""
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "responses", "created": 7, "profile": "strict"}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"model": "m"}})]
    for number, frames in enumerate(streams, 1):
        records += recorder.attempt(number, {"number": number})
        for frame in frames:
            records += recorder.read(number, frame)
    return [*records, recorder.end(9, {"cause": "eof"})]


@pytest.mark.parametrize(
    "end",
    [
        [],
        [sse(failed("c", "no"))],
        [sse({"type": "error", "message": "no"})],
        [b'data: {"error":"no"}\n\n'],
        [b"data: nonsense\n\n"],
        [sse(added(message_item(None)))],
        [b"event: error\ndata: no\n\n"],
    ],
    ids=str,
)
def test_failure_before_any_content_leaves_room_for_another_attempt(end: list[bytes]) -> None:
    """A protocol error of a Responses stream before anything was delivered falls back to another attempt."""
    whole = stream(*OPENING, *message("hi"), completed(message_item("hi")))
    records = attempts([*stream(*OPENING), *end], whole)
    emitter = Emitter()
    frames: list[bytes] = []
    for record in records:
        if record.kind == "attempt":
            assert not emitter.delivered
        frames += emitter.feed(record)
    assert frames == whole
    assert run(records).ended.ending == "completed"


def test_failure_becomes_the_body_of_an_http_error() -> None:
    emitter = Emitter()
    frames = stream(*OPENING, {"type": "error", "code": "slow_down", "message": "wait", "param": None})
    for record in tape(frames, dialect="responses")[:-1]:
        emitter.feed(record)
    error = {"message": "wait", "type": "server_error", "param": None, "code": "slow_down"}
    assert parse(emitter.failure) == {"error": error}


@pytest.mark.parametrize(
    ("status", "kind"), [("incomplete", "incomplete"), ("failed", "failed"), ("cancelled", "failed")]
)
def test_completed_means_what_its_status_says(status: str, kind: str) -> None:
    result = played(stream(*OPENING, *message("hi"), completed(message_item("hi"), status=status)))
    assert kinds(result)[-1] == kind
    assert last(result)["response"]["status"] == kind


def test_failed_call_is_dropped_and_the_failure_passes() -> None:
    frames = stream(*OPENING, *CALL[:2], failed("c", "no"))
    result = played(frames)
    assert cards(result) == [("call_1", "dropped")]
    assert last(result)["response"]["error"] == {"code": "c", "message": "no"}


def test_nothing_passes_after_the_end() -> None:
    whole = stream(*OPENING, *message("hi"), completed(message_item("hi")))
    result = played([*whole, sse(delta("late")), sse(failed("c", "no"))])
    assert result.sent == whole
    assert result.repairs == ["late_data", "late_data"]
    assert result.ended.flags == ("late_data",)


# -- what is added on the way -----------------------------------------------------------------------------------------


def kept_alive(frames: list[bytes], after: int, **settings: Any) -> list[bytes]:
    """Return what is sent with a keepalive after so many frames."""
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "responses", "created": 7, "profile": "strict"}
    records = [
        recorder.record("open", 0, {**opening, "settings": settings}),
        recorder.record("commit", 0, {"status": 200}),
    ]
    for number, frame in enumerate([*frames, b""]):
        if number == after:
            records.append(recorder.record("keepalive", 1, {}))
        records += recorder.read(2, frame) if frame else []
    emitter = Emitter()
    return [frame for record in [*records, recorder.end(9, {"cause": "eof"})] for frame in emitter.feed(record)]


def test_keepalive_is_a_comment_before_the_first_frame_and_an_event_after_it() -> None:
    whole = stream(*OPENING, *message("hi"), completed(message_item("hi")))
    assert kept_alive(whole, 0) == [b": keepalive\n\n", *whole]
    sent = kept_alive(whole, 4)
    assert sent[4] == sse({"type": "keepalive", "sequence_number": 4})
    assert [parse(frame.partition(b"data: ")[2])["sequence_number"] for frame in sent] == [*range(len(whole) + 1)]
    assert CHECKERS["responses"](b"".join(sent)) == []


def test_keepalive_sends_the_first_frames_that_waited() -> None:
    whole = stream(*OPENING, *message("hi"), completed(message_item("hi")))
    sent = kept_alive(whole, 2)
    assert sent[:3] == [*whole[:2], sse({"type": "keepalive", "sequence_number": 2})]


def test_result_of_the_last_turn_comes_after_the_first_frame() -> None:
    records = tape(stream(*OPENING, *message("hi"), completed(message_item("hi"))), dialect="responses")
    results = [{"id": "call_0", "name": "g", "output": "out", "failed": False, "duration_ms": 5}]
    first = records[:2]
    reported = Record(2, 0, "results", {"results": results})
    moved = [record._replace(n=record.n + 1) for record in records[2:]]
    result = run([*first, reported, *moved])
    assert kinds(result)[:3] == ["created", "keepalive", "in_progress"]
    assert values(result)[1]["toolCallId"] == "call_0"


def test_numbers_are_written_in_the_style_of_the_frame() -> None:
    spaced = b'event: %b\ndata: {"type": "%b", "sequence_number": 9, "output_index": 7, "item": %b}\n\n'
    item = json.dumps(call_item("", status="in_progress")).encode()
    name = b"response.output_item.added"
    result = played([*stream(*OPENING), spaced % (name, name, item)])
    assert result.sent[2] == spaced.replace(b"9", b"2").replace(b"7", b"0") % (name, name, item)


@pytest.mark.parametrize("number", [b'"9"', b"9.5", b"null", b'9, "a": {"sequence_number": 9}'])
def test_other_numbers_are_edited(number: bytes) -> None:
    name = b"response.in_progress"
    frame = b'event: %b\ndata: {"type": "%b", "response": {"id": "resp_1", "output": []}, "sequence_number": %b}\n\n'
    result = played([sse({**CREATED, "sequence_number": 0}), frame % (name, name, number)])
    assert values(result)[1]["sequence_number"] == 1
    assert result.sent[1].startswith(b"event: response.in_progress\n")


# -- tools of the upstream --------------------------------------------------------------------------------------------


def progress(result: Run) -> list[tuple[str, str, str]]:
    """Return id, name and status of each progress of a tool that the upstream runs."""
    return [(event.id, event.name, event.status) for event in result.of(ToolProgress)]


def test_hosted_tools_are_never_calls_of_the_client() -> None:
    items: list[Value] = [
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "mcp_1", "name": "look", "arguments": "{}", "status": "failed", "error": "no"},
        {"type": "tool_search_call", "id": "ts_1", "execution": "server", "status": "completed"},
        {"type": "shell_call", "id": "sh_1", "call_id": "c", "environment": {"type": "container_reference"}},
    ]
    frames = [frame for index, item in enumerate(items) for frame in (added(item, index), done(item, index))]
    result = played(stream(*OPENING, *frames, completed(*items)))
    assert result.ended.ending == "completed"
    assert [*result.wire.calls()] == []
    assert progress(result)[:4] == [
        ("ws_1", "web_search", "running"),
        ("ws_1", "web_search", "completed"),
        ("mcp_1", "look", "running"),
        ("mcp_1", "look", "failed"),
    ]
    assert [call.state for call in result.wire.all_calls()] == [
        State.COMPLETED,
        State.FAILED,
        State.COMPLETED,
        State.COMPLETED,
    ]


@pytest.mark.parametrize(
    ("item", "name", "asked"),
    [
        ({"type": "local_shell_call", "action": {"type": "exec"}}, "local_shell", '{"type":"exec"}'),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, "shell", '{"commands":["ls"]}'),
        ({"type": "apply_patch_call", "operation": {"path": "a"}}, "apply_patch", '{"path":"a"}'),
        ({"type": "computer_call", "action": {"type": "click"}}, "computer", '{"type":"click"}'),
        ({"type": "tool_search_call", "execution": "client", "arguments": {"q": 1}}, "tool_search", '{"q":1}'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_other_calls_of_the_client(item: Value, name: str, asked: str) -> None:
    whole = {**item, "id": "i_1", "call_id": "c_1", "status": "completed"}
    frames = stream(*OPENING, added({**whole, "status": "in_progress"}), done(whole), completed(whole))
    result = played(frames)
    found = [(call.id, call.name, call.arguments, call.state.value) for call in result.wire.calls()]
    assert found == [("c_1", name, asked, "running")]
    assert cards(result) == [("c_1", "running")]
    assert result.wire.choice(0).finish == "tool_calls"


def hermes() -> list[Value]:
    """Return a stream as hermes-agent writes it: its message stays open across its calls."""
    ran = call_item('{"c":"ls"}')
    answer = {"id": "fco_1", "type": "function_call_output", "call_id": "call_1", "output": "ok", "status": "completed"}
    words = message("Look", "ing", "ready", item_id="msg_h")
    return [
        CREATED,
        words[0],
        words[2],
        added(ran, 1),
        done(ran, 1),
        added(answer, 2),
        done(answer, 2),
        *words[4:6],
        done(message_item("Lookingready", "msg_h")),
        completed(*map(without_id, (ran, answer, message_item("Lookingready", "msg_h")))),
    ]


def without_id(item: Value) -> Value:
    """Return an item as hermes-agent repeats it at the end."""
    return {name: member for name, member in item.items() if name not in ("id", "status")}


def test_message_that_stays_open_across_calls_is_split() -> None:
    """dialects-next 8: the message is closed before the call, and a new one is opened after it."""
    result = played(stream(*hermes()), hermes=True)
    assert CHECKERS["responses"](result.out) == []
    items = [value["item"] for value in values(result) if value["type"] == "response.output_item.done"]
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]
    assert [item["content"][0]["text"] for item in items if item["type"] == "message"] == ["Look", "ready"]
    assert last(result)["response"]["output"] == items
    assert [*result.wire.calls()] == []
    assert progress(result) == [("call_1", "f", "running"), ("call_1", "f", "completed"), ("call_1", "f", "completed")]


# -- items that overlap -----------------------------------------------------------------------------------------------


def test_interleaved_calls_follow_one_another() -> None:
    one, two = call('{"x"', ":1}"), call("{", "}", index=1, number=2)
    output = [call_item(), call_item("{}", 2)]
    mixed = [one[0], two[0], two[1], one[1], two[2], one[2], one[3], two[3], two[4], one[4]]
    result = played(stream(*OPENING, *mixed, completed(*output)), tool_events=False)
    assert result.out == b"".join(stream(*OPENING, *one, *two, completed(*output)))
    assert states(result) == ["running", "running"]


def test_item_that_begins_inside_a_message_waits_for_its_end() -> None:
    words, then = message("hi"), call("{}", index=1)
    frames = [*words[:3], then[0], *words[3:], *then[1:], completed(message_item("hi"), call_item("{}"))]
    result = played(stream(*OPENING, *frames), tool_events=False)
    assert result.out == b"".join(stream(*OPENING, *words, *then, completed(message_item("hi"), call_item("{}"))))
    assert {*result.repairs} == {"renumbered"}


def test_frames_that_wait_for_the_end_of_a_cut_call_are_lost() -> None:
    one, two = call('{"x"', ":1}"), call("{}", index=1, number=2)
    frames = [one[0], *two, *message("hi", index=2), text_done("x", at("fc_9", 3)), added({"type": "function_call"}, 4)]
    result = played(stream(*OPENING, *frames))
    assert cards(result) == [("call_1", "dropped"), ("call_2", "dropped")]
    assert result.repairs.count("waiting_lost") == len(frames) - 1
    assert last(result)["response"]["error"]["dropped_tools"] == [
        {"id": "call_1", "name": "f"},
        {"id": "call_2", "name": "f"},
    ]


def test_call_with_the_id_of_another_call_gets_one_of_its_own() -> None:
    frames = [*call("{}"), *call("{}", index=1, number=2, call_id="call_1"), completed()]
    result = played(stream(*OPENING, *frames))
    assert [call.id for call in result.wire.calls()] == ["call_1", "call_s1_1"]
    assert CHECKERS["responses"](result.out) == []


# -- after a crossed attempt ------------------------------------------------------------------------------------------


def test_attempt_after_a_crossed_one_that_was_opened_goes_on_with_its_frames() -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "responses", "created": 7, "profile": "strict"}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"model": "m"}})]
    records += recorder.attempt(1, {"number": 1, "dialect": "chat", "crossing": {}})
    records += [recorder.record("commit", 1, {"status": 200}), recorder.record("keepalive", 2, {})]
    records += recorder.attempt(3, {"number": 2, "dialect": "responses"})
    for frame in stream(*OPENING, *message("hi"), completed(message_item("hi"))):
        records += recorder.read(4, frame)
    emitter = Emitter()
    sent = [frame for record in [*records, recorder.end(9, {"cause": "eof"})] for frame in emitter.feed(record)]
    assert CHECKERS["responses"](b"".join(sent)) == []
    payloads = [parse(parse_block(frame).payload or b"") for frame in sent]
    assert {value["response"]["id"] for value in payloads if "response" in value} == {"resp_s1"}
    assert [value["type"] for value in payloads].count("response.created") == 1
    assert emitter.wire.id == "resp_s1"
