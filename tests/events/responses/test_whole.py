"""Whole answers: a response becomes frames, frames become a response, and bodies are read like streams."""

from typing import Any

import pytest

from tests.conformance.order import CHECKERS
from tests.support.chat import run, tape
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.model import Usage
from wiretape.events.dialects import DIALECTS
from wiretape.events.emit import Emitter
from wiretape.events.responses.whole import frames_of, whole

from .made import (
    OPENING,
    USAGE,
    Value,
    call_item,
    completed,
    kinds,
    message,
    message_item,
    played,
    response,
    stream,
    values,
)

THOUGHT: Value = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "e",
}
REFUSAL: Value = {**message_item(""), "id": "msg_2", "content": [{"type": "refusal", "refusal": "no"}]}
ANSWER = response("completed", [THOUGHT, message_item("hi"), REFUSAL, call_item('{"x":1}')])
CUT = response("incomplete", [message_item("hi", status="incomplete")], incomplete_details={"reason": "content_filter"})


def body(value: Any, **settings: Any) -> Any:
    """Return what comes of a whole answer where a stream was due."""
    return run(tape([value if isinstance(value, bytes) else dumps(value)], dialect="responses", body=True, **settings))


@pytest.mark.parametrize("answer", [ANSWER, CUT, response("completed")], ids=["completed", "incomplete", "empty"])
def test_frames_of_a_response_mean_the_response(answer: Value) -> None:
    frames = frames_of(answer)
    assert whole(frames) == answer
    sent = played(stream(*frames), tool_events=False)
    assert sent.repairs == []
    assert CHECKERS["responses"](sent.out) == []


def test_whole_answer_becomes_a_stream() -> None:
    result = body(ANSWER)
    assert CHECKERS["responses"](result.out) == []
    assert {*result.repairs} == {"synthesised", "lifecycle"}
    assert (result.ended.ending, result.ended.flags) == ("completed", ("synthesised",))
    assert [call.state.value for call in result.wire.calls()] == ["running"]
    assert [event.counts for event in result.of(Usage)] == [USAGE]
    assert values(result)[-1]["response"] == ANSWER


def test_items_without_ids_of_a_whole_answer_are_sent_once() -> None:
    """hermes-agent gives its items none; each was sent again at the end."""
    bare = {key: member for key, member in message_item("hi").items() if key != "id"}
    result = body(response("completed", [bare]))
    assert kinds(result).count("output_text.delta") == 1
    assert values(result)[-1]["response"]["output"] == [{**bare, "id": "msg_s1_0"}]


def test_whole_answer_that_was_cut_by_a_filter() -> None:
    result = body(CUT)
    assert (result.ended.ending, result.wire.choice(0).finish) == ("completed", "content_filter")


def test_malformed_call_of_a_whole_answer_ends_it() -> None:
    result = body(response("completed", [call_item("{"), message_item("hi")]))
    assert kinds(result)[-1] == "failed"
    assert result.ended.flags == ("synthesised", "malformed_call")


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ({"error": {"message": "no", "type": "t", "code": None}}, "t", "no"),
        ({"error": "no"}, "server_error", "no"),
        (response("failed", error={"code": "c", "message": "no"}), "c", "no"),
        (response("cancelled"), "cancelled", "the answer is cancelled"),
    ],
)
def test_body_of_an_error_is_a_failure(answer: Value, code: str, text: str) -> None:
    result = body(answer)
    assert result.ended.ending == "upstream_error"
    assert kinds(result) == ["created", "failed"]
    error = values(result)[-1]["response"]["error"]
    assert (error["code"], error["message"]) == (code, text)


@pytest.mark.parametrize(
    "junk", [b"null", b"[]", b"{}", b'"x"', b'{"output":5}', b'{"output":[],"status":"queued"}', b"<html>"]
)
def test_body_that_is_no_answer_is_no_stream(junk: bytes) -> None:
    assert body(junk).ended.ending == "protocol"


def test_body_that_was_cut_is_a_cut() -> None:
    assert body(dumps(ANSWER)[:-9]).ended.ending == "truncated"


def test_body_of_too_many_values_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiretape.events.core.limits.JSON_VALUES_MAX", 5)
    assert body(b'{"output":[1,2,3,4,5,6').ended.ending == "limit"


def test_body_is_left_alone_where_the_client_wants_no_stream_of_ours() -> None:
    assert body(ANSWER, synthesise=False).ended.ending == "protocol"
    emitter = Emitter()
    records = tape([dumps(ANSWER)], dialect="responses", body=True, request={"model": "m"})
    assert [frame for record in records for frame in emitter.feed(record)] == [dumps(ANSWER)]
    assert (emitter.ending("eof"), emitter.wire.choice(0).finish) == (("completed", ()), "tool_calls")


@pytest.mark.parametrize("before", [b"", b"\xef\xbb\xbf"])
def test_unframed_answer_is_read_as_a_body(before: bytes) -> None:
    assert played(before + dumps(ANSWER)).ended.ending == "completed"
    assert played(before + dumps({"error": {"message": "no"}}) + b"\n\n").ended.ending == "upstream_error"


@pytest.mark.parametrize("last", [b"data: 5", b"data: ", b'data: {"type":"response.created"}', b"event: x", b": hi"])
def test_other_bytes_at_the_end_mean_nothing(last: bytes) -> None:
    result = played([*stream(*OPENING, *message("hi")), last])
    assert (result.ended.ending, kinds(result)[-1]) == ("truncated", "failed")


def test_error_at_the_end_counts_without_its_blank_line() -> None:
    for last in (b'data: {"type":"error","message":"no"}', b'event: error\ndata: {"message":"no"}'):
        result = played([*stream(*OPENING, *message("hi")), last])
        assert result.ended.ending == "upstream_error"


def test_usage_of_a_response_in_the_counts_of_every_dialect() -> None:
    usage = {
        "input_tokens": 9,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": 14,
    }
    responses = DIALECTS["responses"]
    assert tuple(responses.counts(usage)) == (9, 5, 4, 2, 3)
    assert tuple(responses.counts({"input_tokens": -1, "output_tokens": "5"})) == (None,) * 5


@pytest.mark.parametrize(
    ("given", "status", "kind"),
    [
        ({}, 502, "server_error"),
        ({}, 400, "invalid_request_error"),
        ({"kind": "k", "code": "c", "param": "p"}, 400, "k"),
    ],
)
def test_body_of_an_http_error(given: dict[str, str], status: int, kind: str) -> None:
    due = {"message": "no", "type": kind, "param": given.get("param"), "code": given.get("code")}
    assert DIALECTS["responses"].error_body(status, "no", **given) == {"error": due}


def test_frames_that_end_without_output_mean_what_was_done() -> None:
    assert whole([*frames_of(ANSWER)[:-1], completed()])["output"] == ANSWER["output"]
    assert parse(dumps(whole([b"junk", completed()]))) == response("completed")
