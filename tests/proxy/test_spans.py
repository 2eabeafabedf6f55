"""Tapes to spans, as literals; and spans to the two encodings of OTLP."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.support import chat
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.settings import Facts
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.security.trace import Trace
from wiretape.proxy.telemetry.otlp import CLIENT, INTERNAL, SERVER, encoded, joined, rejected
from wiretape.proxy.telemetry.spans import SpanFold

S = 1_000_000
CREATED_US = 1_700_000_000 * S
TEXT = chat.text("hello")
CALL = chat.call(role=True, index=0, id="call_1", type="function", name="look", arguments='{"a":1}')
CUT_CALL = chat.call(role=True, index=0, id="call_1", type="function", name="look", arguments='{"a"')
USAGE = {
    "prompt_tokens": 9,
    "completion_tokens": 5,
    "prompt_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 2},
    "completion_tokens_details": {"reasoning_tokens": 3},
}
WITH_USAGE = chat.sse({**chat.HEAD, "choices": [], "usage": USAGE})
ASKED = {"model": "gpt-4o", "stream": True, "messages": [{"role": "user", "content": "hi"}]}


def tape(
    *steps: float | bytes | tuple[str, Any],
    dialect: str = "chat",
    results: Sequence[Mapping[str, Any]] = (),
    **opened: Any,
) -> list[Record]:
    """Return a tape of attempts: a number is a pause in seconds, bytes are a read, a tuple is a record."""
    recorder, emitter, t = Recorder(), Emitter(), 0
    opening = {"format": 1, "stream": "s1", "dialect": dialect, "profile": "strict", "created": 1_700_000_000}
    records = [recorder.record("open", 0, {**opening, "created_us": CREATED_US, "route": "r", **opened})]
    facts = Facts(model="gpt-4o", stream=True).to_keys()
    request = {"method": "POST", "path": "/v1/chat/completions?x=1", "headers": [["user-agent", "me"]]}
    records.append(recorder.record("request", 0, request | ({"facts": facts} if dialect else {}), dumps(ASKED)))
    if results:
        records.append(recorder.record("results", 0, {"results": results}))
    attempts = 0
    for step in steps:
        if isinstance(step, bytes):
            records += recorder.read(t, step)
        elif isinstance(step, tuple):
            kind, keys = step
            if kind == "attempt":
                attempts += 1
                records += recorder.attempt(t, {"number": attempts, "upstream": "api.openai.com/v1", **keys})
            elif kind == "end":
                records += recorder.rest(t)
                for record in records:
                    emitter.feed(record)
                ending, flags = emitter.ending(keys) if dialect else (keys, ())
                records.append(recorder.end(t, {"cause": keys, "ending": ending, "flags": list(flags)}))
            else:
                records.append(recorder.record(kind, t, keys))
        else:
            t += int(step * S)
    return records


def fold(records: Sequence[Record], traces: Mapping[str, Trace] | None = None, **how: Any) -> list[dict[str, Any]]:
    folded = SpanFold("s1", **how)
    for record in records:
        folded.take(record)
    return folded.spans(traces or {})


def attributes(span: Mapping[str, Any]) -> dict[str, Any]:
    def plain(value: Mapping[str, Any]) -> Any:
        ((kind, held),) = value.items()
        return [plain(each) for each in held["values"]] if kind == "arrayValue" else held

    return {each["key"]: plain(each["value"]) for each in span.get("attributes", ())}


def brief(spans: Sequence[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return of each span: its name, its parent's name, its kind, start and end in seconds, what failed, its events."""
    names = {span["spanId"]: span["name"] for span in spans}
    rows: list[tuple[Any, ...]] = []
    for span in spans:
        start, end = (int(span[f"{name}TimeUnixNano"]) / 1e9 - 1_700_000_000 for name in ("start", "end"))
        events = [
            (round(int(event["timeUnixNano"]) / 1e9 - 1_700_000_000, 3), event["name"].removeprefix("wiretape."))
            for event in span.get("events", ())
        ]
        parent = names.get(span.get("parentSpanId", ""), span.get("parentSpanId", ""))
        error = span.get("status", {}).get("message", "")
        rows.append((span["name"], parent, span["kind"], round(start, 3), round(end, 3), error, events))
    return rows


POST, OPERATION = "POST /v1/chat/completions", "chat gpt-4o"
ASK: tuple[str, dict[str, Any]] = ("attempt", {})
HEAD = ("head", {"status": 200})


def test_retried_stream() -> None:
    failed = ("failed", {"attempt": 1, "ending": "upstream_error", "message": "no", "status": 429, "next": "again"})
    steps = (0.5, ASK, 1, ("head", {"status": 429}), failed, 2, ASK, 1, HEAD, TEXT, 7, chat.finish(), chat.DONE)
    assert brief(fold(tape(*steps, ("end", "eof")))) == [
        (POST, "", SERVER, 0, 11.5, "", []),
        (OPERATION, POST, CLIENT, 0.5, 11.5, "", []),
        ("POST", OPERATION, CLIENT, 0.5, 1.5, "429", []),
        ("POST", OPERATION, CLIENT, 3.5, 11.5, "", [(4.5, "first_content"), (4.5, "silence")]),
    ]


def test_cut_in_a_tool_call_after_the_client_left() -> None:
    gone = ("gone", {"at": 3})
    spans = fold(tape(ASK, HEAD, 1, CUT_CALL, 1, gone, 5.5, ("end", "reset")))
    announced, dropped = (1, "tool_call"), (7.5, "tool_call")
    assert brief(spans) == [
        (POST, "", SERVER, 0, 2, "reset", [(2, "gone")]),
        (OPERATION, POST, CLIENT, 0, 7.5, "reset", [announced, dropped]),
        ("POST", OPERATION, CLIENT, 0, 7.5, "reset", [(1, "first_content"), (1, "silence"), (7.5, "cut")]),
    ]
    assert attributes(spans[1]["events"][1]) == {
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.name": "look",
        "wiretape.tool.state": "dropped",
        "wiretape.tool.reason": "reset",
    }
    assert attributes(spans[1])["gen_ai.response.finish_reasons"] == ["error"]


def test_attributes_in_both_vocabularies() -> None:
    records = tape(ASK, HEAD, 0.5, TEXT, chat.finish(), WITH_USAGE, chat.DONE, ("end", "eof"), session="c1")
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.conversation.id": "c1",
        "gen_ai.request.model": "gpt-4o",
        "gen_ai.request.stream": True,
        "gen_ai.response.id": "chatcmpl-1",
        "gen_ai.response.model": "m",
        "gen_ai.response.finish_reasons": ["stop"],
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.usage.input_tokens": "9",
        "gen_ai.usage.output_tokens": "5",
        "gen_ai.usage.cache_read.input_tokens": "4",
        "gen_ai.usage.cache_creation.input_tokens": "2",
        "gen_ai.usage.reasoning.output_tokens": "3",
        "server.address": "api.openai.com",
        "server.port": "443",
        "wiretape.stream.id": "s1",
        "wiretape.route": "r",
        "wiretape.dialect": "chat",
        "wiretape.ending": "completed",
        "wiretape.cause": "eof",
        "wiretape.attempts": "1",
        "wiretape.repairs": "2",
        "wiretape.dropped_tools": "0",
        "wiretape.longest_silence": 0.5,
    }
    old, new = (attributes(fold(records, vocabulary=version)[1]) for version in ("1.41", "latest"))
    assert old == expected
    written = "gen_ai.usage.cache_creation.input_tokens"
    assert new == {name: value for name, value in expected.items() if name != written} | {
        "gen_ai.usage.cache_write.input_tokens": "2"
    }


@pytest.mark.parametrize(("version", "finish"), [("1.41", {"finish_reason": "tool_calls"}), ("latest", {})])
def test_content_only_if_wanted(version: str, finish: dict[str, str]) -> None:
    records = tape(ASK, HEAD, TEXT, CALL, chat.finish("tool_calls"), chat.DONE, ("end", "eof"))
    assert not [name for name in attributes(fold(records)[1]) if name.endswith(".messages")]
    said = attributes(fold(records, vocabulary=version, content=True)[1])
    parts = [
        {"type": "text", "content": "hello"},
        {"type": "tool_call", "id": "call_1", "name": "look", "arguments": {"a": 1}},
    ]
    asked = [{"role": "user", "parts": [{"type": "text", "content": "hi"}]}]
    assert parse(said["gen_ai.input.messages"].encode()) == asked
    assert parse(said["gen_ai.output.messages"].encode()) == [{"role": "assistant", "parts": parts, **finish}]


def test_result_of_a_call_makes_a_span_in_the_trace_of_the_stream_that_made_it() -> None:
    result = {"id": "call_1", "name": "look", "output": "seen", "stream": "s0", "duration_ms": 1_500, "failed": True}
    unlinked = {"id": "call_2", "name": "look"}
    records = tape(ASK, HEAD, TEXT, chat.finish(), chat.DONE, ("end", "eof"), results=[result, unlinked])
    maker, own = Trace.on_tape("s0", {"id": "0" * 31 + "1"}), Trace.on_tape("s1", None)
    *_, tool = fold(records, {"s0": maker}, content=True)
    assert brief([tool]) == [("execute_tool look", maker.span("operation"), INTERNAL, -1.5, 0, "tool_error", [])]
    assert tool["traceId"] == maker.id
    assert tool["links"] == [
        {"traceId": maker.id, "spanId": maker.span("operation")},
        {"traceId": own.id, "spanId": own.span("operation")},
    ]
    assert attributes(tool)["gen_ai.tool.call.result"] == "seen"
    assert "gen_ai.tool.call.result" not in attributes(fold(records, {"s0": maker})[-1])


def test_exchange_without_a_dialect() -> None:
    spans = fold(tape(ASK, ("head", {"status": 404}), ("commit", {"status": 404}), ("end", "status"), dialect=""))
    assert [span["name"] for span in spans] == ["POST /v1/chat", "POST"]
    assert attributes(spans[1])["error.type"] == "404"


def test_unsampled_trace_has_no_spans() -> None:
    keys = {"id": "1" * 32, "span": "2" * 16, "parent": "3" * 16, "sampled": False}
    records = tape(ASK, HEAD, TEXT, chat.finish(), chat.DONE, ("end", "eof"), trace=keys)
    assert fold(records) == []


def test_every_prefix_of_a_tape_has_spans() -> None:
    records = tape(ASK, HEAD, 1, CUT_CALL, ("gone", {"at": 3}), ("end", "reset"), results=[{"id": "x", "stream": 5}])
    for length in range(len(records) + 1):
        assert fold(records[:length])[0]["kind"] == SERVER


def test_protobuf() -> None:
    span = {
        "traceId": "01" * 16,
        "spanId": "02" * 8,
        "name": "n",
        "kind": 2,
        "startTimeUnixNano": "1",
        "attributes": [{"key": "k", "value": {"arrayValue": {"values": [{"intValue": "-1"}, {"doubleValue": 0.5}]}}}],
    }
    inner = (
        b"\x0a\x10" + b"\x01" * 16 + b"\x12\x08" + b"\x02" * 8 + b"\x2a\x01n\x30\x02\x39\x01\0\0\0\0\0\0\0"
        b"\x4a\x1f\x0a\x01k\x12\x1a\x2a\x18\x0a\x0b\x18" + b"\xff" * 9 + b"\x01\x0a\x09\x21\0\0\0\0\0\0\xe0\x3f"
    )
    part = encoded([span], {"a": "b"}, is_json=False)
    assert part.endswith(b"\x12%c" % len(inner) + inner)
    assert joined([part, part], is_json=False) == part + part
    assert parse(joined([encoded([span], {}, is_json=True)] * 2, is_json=True)) == {
        "resourceSpans": [parse(encoded([span], {}, is_json=True))] * 2
    }


@pytest.mark.parametrize(
    ("answer", "is_json", "expected"),
    [
        (b"", False, (0, "")),
        (b"\x0a\x08\x08\xac\x02\x12\x03bad", False, (300, "bad")),
        (b"\x0a\x05\x12\x03bad", False, (0, "bad")),
        (b"\x0a\x02\x08\x07", False, (7, "")),
        (b"<html>", False, (0, "")),
        (b"{}", True, (0, "")),
        (b'{"partialSuccess":{"rejectedSpans":"2","errorMessage":"bad"}}', True, (2, "bad")),
        (b"<html>", True, (0, "")),
        # Neither is a number of spans, and Python neither reads nor writes 5,000 digits.
        (b'{"partialSuccess":{"rejectedSpans":"%b"}}' % (b"9" * 5_000), True, (10**19 - 1, "")),
        (b"\x0a\x7f\x08" + b"\xff" * 60_000 + b"\x01", False, (0, "")),
    ],
)
def test_partial_success(answer: bytes, is_json: bool, expected: tuple[int, str]) -> None:
    assert rejected(answer, is_json=is_json) == expected
