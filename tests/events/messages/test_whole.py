"""Whole messages: a stream made from one, one made from a stream, and answers that are no stream."""

from typing import Any

import pytest

from tests.events.messages.streams import CALLED, END, HI, MESSAGE, START, begin, event, finish, stop, stream
from tests.support.chat import run, tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.model import Proof
from wiretape.events.emit import emit, summarise
from wiretape.events.messages.whole import frames_of, whole
from wiretape.events.wire.sse import Decoder

BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "abc"},
    {"type": "text", "text": "hi", "citations": [{"cited_text": "x"}, {"cited_text": "y"}]},
    {"type": "text", "text": ""},
    {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"q": "x"}},
    {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
    {"type": "compaction", "content": "short"},
    {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"x": 1}},
    {"type": "tool_use", "id": "toolu_2", "name": "g", "input": {}},
]
ENDS = {"stop_reason": "tool_use", "stop_sequence": None, "stop_details": None, "container": {"id": "c"}}
ANSWER: dict[str, Any] = {**MESSAGE, "content": BLOCKS, **ENDS, "usage": {"input_tokens": 3, "output_tokens": 7}}


def test_a_message_becomes_a_stream_that_makes_the_same_message() -> None:
    frames = [event(value) for value in frames_of(ANSWER)]
    result = run(stream(frames, tool_events=False))
    assert result.sent == frames
    assert result.ended.ending == "completed"
    assert whole(_values(result.out)) == ANSWER
    proofs = [(proof.kind, proof.value) for proof in result.of(Proof)]
    assert proofs == [("signature", "sig"), ("redacted_thinking", "abc")]


def _values(sent: bytes) -> list[Any]:
    decoder = Decoder()
    return [parse(frame.payload or b"") for frame in [*decoder.feed(sent), *decoder.close()]]


@needs_corpus
def test_captured_messages_become_streams_and_come_back() -> None:
    for _, captured in sampled("anthropic", one_in=4):
        message = whole(_values(captured.body))
        assert message["stop_reason"]
        assert whole(frames_of(message)) == {**message, "usage": message["usage"]}


def test_deltas_of_every_kind_add_up() -> None:
    frames: list[Any] = [
        {"type": "message_start", "message": dict(MESSAGE)},
        {"type": "ping"},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "compaction"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "short"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "fallback", "to": {"model": "n"}}},
        {"type": "content_block_stop", "index": 1},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn", "container": None},
            "usage": {"output_tokens": 7, "input_tokens": None},
            "context_management": {"applied_edits": []},
        },
        {"type": "message_stop"},
    ]
    assert whole(frames) == {
        **MESSAGE,
        "model": "n",
        "content": [{"type": "compaction", "content": "short"}, {"type": "fallback", "to": {"model": "n"}}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 3, "output_tokens": 7},
        "context_management": {"applied_edits": []},
    }


@pytest.mark.parametrize("pieces", [[], ["{"]], ids=["no stop", "half an input"])
def test_a_call_that_was_cut_is_not_in_the_message(pieces: list[str]) -> None:
    frames: list[dict[str, Any]] = [*frames_of({**MESSAGE, "content": [BLOCKS[-1]], "stop_reason": "max_tokens"})]
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "{"}}
    frames[2:3] = [delta, frames[2]] if pieces else []
    assert whole(frames)["content"] == []


def test_input_that_came_as_text_stays_what_it_says() -> None:
    block = {"type": "tool_use", "id": "a", "name": "f", "input": '{"x":1}'}
    message = whole(frames_of({**MESSAGE, "content": [block], "stop_reason": "tool_use"}))
    assert message["content"][0]["input"] == {"x": 1}


# -- answers that are no stream ---------------------------------------------------------------------------------------


def test_a_whole_message_where_a_stream_was_due_becomes_one() -> None:
    result = run(stream([dumps(ANSWER)], body=True, tool_events=False))
    assert result.sent == [event(value) for value in frames_of(ANSWER)]
    assert (result.ended.ending, result.ended.flags) == ("completed", ("synthesised",))


def test_a_whole_message_without_counts_and_reason() -> None:
    message = {"type": "message", "content": [{"type": "text", "text": "hi"}, "junk"]}
    result = run(stream([b"\xef\xbb\xbf" + dumps(message)], body=True))
    assert result.ended.ending == "completed"
    assert set(result.ended.flags) == {"synthesised", "usage_unknown", "no_finish", "foreign"}


def test_it_is_refused_where_that_is_set() -> None:
    result = run(stream([dumps(ANSWER)], body=True, synthesise=False))
    assert result.ended.ending == "protocol"


def test_a_whole_message_that_was_asked_for_passes_as_it_came() -> None:
    body = dumps(ANSWER)
    records = stream([body[:40], body[40:]], body=True, request={"model": "m"})
    assert emit(records) == body
    summary = summarise(records)
    assert summary.ending == "completed"
    assert [call.state.value for call in summary.wire.calls()] == ["running", "running"]
    assert summary.wire.usage == ANSWER["usage"]


def test_a_whole_message_that_was_cut_is_no_message() -> None:
    assert summarise(stream([dumps(ANSWER)[:-20]], body=True, request={"model": "m"})).ending == "truncated"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        pytest.param(
            {"type": "error", "error": {"type": "not_found_error", "message": "no"}}, "not_found_error", id="its own"
        ),
        pytest.param({"error": {"message": "no", "code": 7}}, "api_error", id="OpenAI's"),
    ],
)
@pytest.mark.parametrize("asked", [True, False])
def test_an_error_where_an_answer_was_due(body: dict[str, Any], code: str, asked: bool) -> None:
    records = stream([dumps(body)], body=True, request={"stream": asked, "model": "m"})
    summary = summarise(records)
    assert summary.ending == "upstream_error"
    assert summary.wire.error is not None
    assert (summary.wire.error.code, summary.wire.error.message) == (code, "no")
    assert emit(records).startswith(b"event: error\n" if asked else dumps(body))


@pytest.mark.parametrize("junk", [b"null", b"[]", b"{}", b'"x"', b'{"type":"message"}', b"\xff", b"<html>"])
def test_an_answer_that_says_nothing_is_no_stream(junk: bytes) -> None:
    assert run(stream([junk], body=True)).ended.ending == "protocol"


@pytest.mark.parametrize(
    "frame",
    [
        b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"x"}}]}\n\n',
        b'event: response.created\ndata: {"type":"response.created","response":{}}\n\n',
        b"data: 5\n\n",
    ],
)
def test_a_stream_of_another_protocol_is_named(frame: bytes) -> None:
    result = run(stream([frame, frame]))
    assert result.ended.ending == ("protocol" if b"5" not in frame else "truncated")


def test_an_unframed_error_ends_the_stream() -> None:
    failed = b'{"type":"error","error":{"type":"api_error","message":"m"}}'
    for came in ([START, failed], [START, failed + b"\n\n", END]):
        result = run(stream(came))
        assert result.ended.ending == "upstream_error"
        assert result.sent == [START, b"event: error\ndata: " + failed + b"\n\n"]


def test_an_unframed_message_after_the_start_is_no_stream() -> None:
    result = run(stream([START, *HI, dumps(ANSWER) + b"\n\n", finish(), END]))
    assert result.ended.ending == "completed"
    assert "not_a_stream" in result.ended.flags


def test_unframed_bytes_inside_a_call_keep_it_from_running() -> None:
    call = [begin("tool_use", id="a", name="f"), b"{}\n\n", stop()]
    result = run(stream([START, *call, CALLED, END]))
    assert "malformed_call" in result.ended.flags


def test_a_crossed_answer_is_a_whole_message() -> None:
    chat = {
        "id": "x",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    }
    records = tape([dumps(chat)], body=True, dialect="messages", upstream_dialect="chat", request={"model": "m"})
    message = parse(emit(records))
    assert message["content"] == [{"type": "text", "text": "hi"}]
    assert message["stop_reason"] == "end_turn"
