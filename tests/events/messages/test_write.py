"""What we add to a Messages stream: lifecycle frames, warnings, endings, keepalives; and calls that are held."""

import json
from typing import Any

import pytest

from tests.events.messages.reader import Client
from tests.events.messages.streams import (
    CALL,
    CALLED,
    END,
    HI,
    PING,
    START,
    args,
    begin,
    card,
    error,
    event,
    finish,
    start,
    stop,
    stream,
    text,
    tool,
)
from tests.support.chat import Run, run
from wiretape.events.core.lifecycle import State
from wiretape.events.emit import Emitter
from wiretape.events.folds.wire import tokens
from wiretape.events.messages.dialect import Messages
from wiretape.events.tape.tape import Recorder

HALF = CALL[:2]
RUNNING = card("toolu_1", "running", input='{"x":1}')
CUT = "⚠ Connection dropped mid tool-call: f was cut short. Not completed; no result seen."
DROPPED = card("toolu_1", "dropped", input='{"x":', reason="truncated")
LIMIT = "⚠ Output limit reached mid tool-call: f was cut short. Not completed; no result seen."
AGAIN = [tool("toolu_2", "g", 1), args("{}", 1), stop(1)]


def note(words: str, index: int) -> list[bytes]:
    """A visible warning."""
    return [begin("text", index), text(words, index), stop(index)]


def test_a_call_is_reported_before_its_stop_and_handed_over_with_it() -> None:
    result = run(stream([START, *CALL, *AGAIN, CALLED, END]))
    second = card("toolu_2", "running", "g", input="{}")
    assert result.sent == [START, *CALL[:3], RUNNING, CALL[3], *AGAIN[:2], second, AGAIN[2], CALLED, END]
    assert [call.state for call in result.wire.calls()] == [State.RUNNING, State.RUNNING]
    assert result.ended.ending == "completed"


def test_a_held_call_waits_for_the_end_with_everything_after_it() -> None:
    frames = [START, *HI, tool(index=1), *(piece.replace(b'"index":0', b'"index":1') for piece in CALL[1:])]
    more = [begin("text", 2), text("!", 2), PING, stop(2)]
    emitter = Emitter()
    records = stream([*frames, *more, CALLED, END], tools="held", tool_events=False)
    sent = [emitter.feed(record) for record in records]
    assert [frame for part in sent[:9] for frame in part] == frames[:-1]
    assert [frame for part in sent[9:-2] for frame in part] == [PING]
    assert b"".join(frame for part in sent[-2:] for frame in part) == b"".join(
        [frames[-1], *more[:2], more[3], CALLED, END]
    )


def test_held_calls_are_reported_before_their_last_frame() -> None:
    result = run(stream([START, *CALL, CALLED, END], tools="held"))
    assert result.sent == [START, *CALL[:3], RUNNING, CALL[3], CALLED, END]
    shown = run(stream([START, *CALL, CALLED, END], on_partial="warn"))
    assert shown.sent == result.sent


def test_a_held_call_of_a_cut_stream_was_not_handed_over() -> None:
    result = run(stream([START, *CALL, *AGAIN, CALLED], tools="held", tool_events=False))
    lost = ("toolu_1", "f"), ("toolu_2", "g")
    message = "⚠ Connection dropped mid tool-call: f, g were cut short. Not completed; no result seen."
    assert result.sent == [START, *CALL[:3], error(message, "stream_truncated", *lost)]
    assert [call.state for call in result.wire.calls()] == [State.DROPPED, State.DROPPED]


def test_a_malformed_call_takes_a_held_one_with_it() -> None:
    bad = [tool("toolu_2", "g", 1), args("}", 1), stop(1)]
    result = run(stream([START, *CALL, *bad, CALLED, END], tools="held", tool_events=False))
    assert result.sent[:4] == [START, *CALL[:3]]
    assert b'"malformed_call"' in result.sent[4]
    assert len(result.sent) == 5
    assert [call.state for call in result.wire.calls()] == [State.DROPPED, State.MALFORMED]


def test_a_held_call_before_one_that_the_limit_cut_is_handed_over() -> None:
    half = [tool("toolu_2", "g", 1), args("{", 1), stop(1)]
    result = run(
        stream([START, *CALL, *half, finish("max_tokens"), END], tools="held", on_partial="both", tool_events=False)
    )
    words = "⚠ Output limit reached mid tool-call: g was cut short. Not completed; no result seen."
    assert result.sent == [START, *CALL, *note(words, 1), finish("max_tokens"), END]


def test_a_call_that_the_limit_cut_is_not_held() -> None:
    result = run(
        stream([START, *HALF, stop(), finish("max_tokens"), END], tools="held", on_partial="both", tool_events=False)
    )
    assert result.sent == [START, *HALF, stop(), *note(LIMIT, 1), finish("max_tokens"), END]


@pytest.mark.parametrize("on_partial", ["error", "both"])
def test_a_cut_inside_a_call_leaves_its_block_open(on_partial: str) -> None:
    result = run(stream([START, *HALF], on_partial=on_partial))
    assert result.sent == [START, *HALF, DROPPED, error(CUT, "stream_truncated", ("toolu_1", "f"))]


def test_warn_never_shows_a_cut_call() -> None:
    result = run(stream([START, *HI, tool(index=1), args("{", 1)], on_partial="warn", tool_events=False))
    ends = finish("max_tokens", {"output_tokens": 1})
    assert result.sent == [START, *HI, *note(CUT, 1), ends, END]
    assert result.repairs == ["held_call_lost"] * 2 + ["warning_text"] * 3 + ["warn_finish", "warn_done"]
    assert Client(result.out).runs == []


def test_warn_stops_a_block_that_is_open_and_shows_whole_calls() -> None:
    assert run(stream([START, *HI[:2]], on_partial="warn")).sent == [
        START,
        *HI[:2],
        stop(),
        finish("max_tokens", {"output_tokens": 1}),
        END,
    ]
    whole = run(stream([START, *CALL, CALLED, END], on_partial="warn", tool_events=False))
    assert whole.sent == [START, *CALL, CALLED, END]


def test_warn_before_anything_came_is_a_whole_message() -> None:
    ours = start(id="msg_s1", usage={"input_tokens": 0, "output_tokens": 0})
    assert run(stream([PING], on_partial="warn")).sent == [PING, ours, finish("max_tokens", {"output_tokens": 0}), END]


def test_an_end_without_its_terminator_is_not_sent() -> None:
    result = run(stream([START, *HI, finish()]))
    assert result.sent[:-1] == [START, *HI]
    assert b"stream_truncated" in result.sent[-1]
    assert result.repairs == ["malformed_claim", "error_frame"]


def test_an_error_after_the_end_withholds_it() -> None:
    failed = event({"type": "error", "error": {"type": "api_error", "message": "m"}})
    result = run(stream([START, *HI, finish(), failed, END]))
    assert result.sent == [START, *HI, failed]
    assert result.ended.ending == "upstream_error"


def test_a_limit_inside_a_call_has_a_warning_where_the_call_has_its_stop() -> None:
    stopped = run(stream([START, *HALF, stop(), finish("max_tokens"), END], on_partial="both", tool_events=False))
    assert stopped.sent == [START, *HALF, stop(), *note(LIMIT, 1), finish("max_tokens"), END]
    bare = run(stream([START, tool(), stop(), finish("max_tokens"), END], on_partial="both", tool_events=False))
    assert bare.sent == [START, tool(), finish("max_tokens"), END]


@pytest.mark.parametrize("streaming", [True, False])
def test_a_keepalive_is_a_ping_even_before_the_message(streaming: bool) -> None:
    recorder, emitter = Recorder(), Emitter()
    opening = {"format": 1, "stream": "s1", "dialect": "messages", "created": 7}
    emitter.feed(recorder.record("open", 0, opening))
    if streaming:
        emitter.feed(recorder.record("commit", 0, {"status": 200}))
    sent = emitter.feed(recorder.record("keepalive", 1))
    assert sent == ([b'event: ping\ndata: {"type":"ping"}\n\n'] if streaming else [])


def test_an_error_before_any_content_is_the_body_of_an_http_error() -> None:
    failed = {"type": "error", "error": {"type": "overloaded_error", "message": "o"}}
    emitter = Emitter()
    for record in stream([START, event(failed)])[:-1]:
        assert emitter.feed(record) == []
    assert json.loads(emitter.failure) == failed


def test_a_second_attempt_replaces_the_first() -> None:
    recorder = Recorder()
    records = [
        recorder.record(
            "open", 0, {"format": 1, "stream": "s1", "dialect": "messages", "created": 7, "profile": "strict"}
        ),
        recorder.record("request", 0, {"facts": {"stream": True}}),
        *recorder.attempt(0, {"number": 1}),
        *recorder.read(1, START),
        *recorder.attempt(2, {"number": 2}),
        *recorder.read(3, b"".join([start(id="msg_2"), *HI, finish(), END])),
    ]
    result = run([*records, *recorder.rest(4), recorder.end(4, {"cause": "eof"})])
    assert result.sent == [start(id="msg_2"), *HI, finish(), END]
    assert "attempt_discarded" in result.repairs


def hosted(content: Any = None, **members: Any) -> Run:
    """A stream with one tool that the upstream runs."""
    block = begin("web_fetch_tool_result", 1, **{"tool_use_id": "srv", "content": content, **members})
    calls = [
        begin("server_tool_use", id="srv", name="web_fetch", input={}),
        args('{"url":"x"}'),
        stop(),
        block,
        stop(1),
    ]
    return run(stream([START, *calls, finish(), END]))


@pytest.mark.parametrize(
    ("members", "state"),
    [
        pytest.param({"content": {"type": "web_fetch_result"}}, State.COMPLETED, id="a result"),
        pytest.param({"content": {"type": "web_fetch_tool_result_error"}}, State.FAILED, id="an error result"),
        pytest.param({"is_error": True}, State.FAILED, id="a result that is an error"),
        pytest.param({"tool_use_id": None}, State.DROPPED, id="a result of nothing"),
    ],
)
def test_a_tool_that_the_upstream_runs_is_no_call_of_the_client(members: dict[str, Any], state: State) -> None:
    result = hosted(**members)
    assert [(call.id, call.name, call.state) for call in result.wire.ran.values()] == [("srv", "web_fetch", state)]
    assert list(result.wire.calls()) == []
    assert result.ended.ending == "completed"


def test_nameless_tools_of_the_upstream_are_not_reported() -> None:
    result = run(
        stream(
            [
                START,
                begin("mcp_tool_use", id="m", input={}),
                stop(),
                begin("server_tool_use", 1),
                stop(1),
                finish(),
                END,
            ]
        )
    )
    assert [(call.id, call.name) for call in result.wire.ran.values()] == [("m", "")]


def test_cached_tokens_count_as_input() -> None:
    counts = {"input_tokens": 3, "output_tokens": 7, "cache_read_input_tokens": 100, "cache_creation_input_tokens": 20}
    assert tokens(counts) == {"input_tokens": 123, "output_tokens": 7, "total_tokens": 130}
    assert Messages().counts({**counts, "output_tokens_details": {"thinking_tokens": 2}}) == (123, 7, 100, 20, 2)
    assert Messages().counts({"output_tokens": True}) == (None, None, None, None, None)
