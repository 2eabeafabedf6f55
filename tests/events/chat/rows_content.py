"""Rows 73 to 109 of the dialect catalogue, all cases synthetic: reasoning, shape of content, errors, SSE framing."""

from typing import Any

from tests.events.chat.rows import Row, after, dropped, error
from tests.support.chat import DONE, HEAD, begin, call_entry, chunk, finish, frame, sse, text

HI = text("hi", role=True)
FAILED = {"message": "overloaded", "type": "server_error", "code": 503, "failed_generation": "x"}
LATE = ("late_data",)
CUT = error("⚠ Connection dropped: the answer is incomplete.", "stream_truncated", "truncated")
NO_STREAM = error("⚠ Stream ended early: the answer is incomplete.", "stream_truncated", "protocol")

ANSWERED_CALL = chunk(
    {
        "index": 0,
        "finish_reason": None,
        "delta": {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "index": 0,
                    "id": "a",
                    "type": "function",
                    "function": {"name": "f", "arguments": '{"x":1}'},
                    "extra_content": {"google": 1},
                }
            ],
        },
    }
)
ANSWERED_BOTH = chunk(
    {
        "index": 0,
        "finish_reason": None,
        "delta": {"role": "assistant", "content": "hi", "tool_calls": [call_entry("a", "f", '{"x":1}')]},
    }
)


def parts(*given: Any, **members: Any) -> bytes:
    """Content as a list of parts."""
    return frame({"content": list(given), **members})


def thinking(*thoughts: Any) -> dict[str, Any]:
    """A thinking part as Mistral writes it."""
    return {"type": "thinking", "thinking": [{"type": "text", "text": thought} for thought in thoughts]}


def unframed(value: bytes) -> bytes:
    """A block that is no SSE at all."""
    return value + b"\n\n"


REASONING = [
    Row(
        id="Q73 delta.reasoning: under the name reasoning_content on the wire",
        came=[
            frame({"role": "assistant", "reasoning": "hm"}),
            frame({"reasoning": "!", "reasoning_content": None}),
            frame({"reasoning": "?", "reasoning_content": "?"}),
            text("hi"),
            finish(),
            DONE,
        ],
        sent=[
            frame({"reasoning_content": "hm", "role": "assistant"}),
            frame({"reasoning_content": "!"}),
            frame({"reasoning_content": "?"}),
            3,
            4,
            5,
        ],
        text="hi",
        thought="hm!?",
        ledger=[
            ("reasoning_name", 0, "delta.reasoning"),
            ("reasoning_name", 0, "delta.reasoning_content"),
            ("reasoning_name", 1, "delta.reasoning_content"),
            ("reasoning_name", 1, "delta.reasoning"),
            ("reasoning_twice", 2, "delta.reasoning"),
        ],
    ),
    Row(
        id="Q73 delta.reasoning with the setting as_is: the very bytes pass",
        came=[frame({"role": "assistant", "reasoning": "hm"}), text("hi"), finish(), DONE],
        settings={"reasoning": "as_is"},
        text="hi",
        thought="hm",
    ),
    Row(
        id="Q73 Copilot's delta.reasoning_text: under the name reasoning_content on the wire",
        came=[
            frame({"role": "assistant", "content": "", "reasoning_text": "hm"}),
            frame({"reasoning_text": "!", "reasoning_opaque": "x"}),
            text("hi"),
            finish(),
            DONE,
        ],
        sent=[
            frame({"reasoning_content": "hm", "role": "assistant", "content": ""}),
            frame({"reasoning_content": "!", "reasoning_opaque": "x"}),
            2,
            3,
            4,
        ],
        text="hi",
        thought="hm!",
        ledger=[
            ("reasoning_name", 0, "delta.reasoning_text"),
            ("reasoning_name", 0, "delta.reasoning_content"),
            ("reasoning_name", 1, "delta.reasoning_text"),
            ("reasoning_name", 1, "delta.reasoning_content"),
        ],
    ),
    Row(
        id="Q73 reasoning under two other names: once where they agree, both where they differ",
        came=[
            frame({"role": "assistant", "reasoning": "hm", "reasoning_text": "hm"}),
            frame({"reasoning": "a", "reasoning_text": "b"}),
            finish(),
            DONE,
        ],
        sent=[
            frame({"reasoning_content": "hm", "role": "assistant"}),
            frame({"reasoning_content": "a", "reasoning_text": "b"}),
            2,
            3,
        ],
        thought="hmab",
        ledger=[
            ("reasoning_name", 0, "delta.reasoning"),
            ("reasoning_twice", 0, "delta.reasoning_text"),
            ("reasoning_name", 0, "delta.reasoning_content"),
            ("reasoning_name", 1, "delta.reasoning"),
            ("reasoning_name", 1, "delta.reasoning_content"),
        ],
    ),
    Row(
        id="Q74 delta.reasoning_content: the very bytes pass",
        came=[frame({"role": "assistant", "reasoning_content": "hm"}), text("hi"), finish(), DONE],
        text="hi",
        thought="hm",
    ),
    Row(
        id="Q74 delta.reasoning_content with the setting reasoning: renamed",
        came=[frame({"role": "assistant", "reasoning_content": "hm"}), text("hi"), finish(), DONE],
        sent=[frame({"reasoning": "hm", "role": "assistant"}), 1, 2, 3],
        settings={"reasoning": "reasoning"},
        text="hi",
        thought="hm",
        ledger=[("reasoning_name", 0, "delta.reasoning_content"), ("reasoning_name", 0, "delta.reasoning")],
    ),
    Row(
        id="Q75 reasoning_details without index: numbered by type, so that SDKs merge them; the signature stays",
        came=[
            frame({"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "h"}]}),
            frame({"reasoning_details": [{"type": "reasoning.text", "text": "m"}]}),
            frame({"reasoning_details": [{"type": "reasoning.text", "text": "", "signature": "s"}]}),
            frame(
                {"reasoning_details": [{"type": "reasoning.encrypted", "data": "e"}, {"type": "reasoning.encrypted"}]}
            ),
            text("hi"),
            finish(),
            DONE,
        ],
        sent=[
            frame({"role": "assistant", "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "h"}]}),
            frame({"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "m"}]}),
            frame({"reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "", "signature": "s"}]}),
            frame(
                {
                    "reasoning_details": [
                        {"index": 1, "type": "reasoning.encrypted", "data": "e"},
                        {"index": 2, "type": "reasoning.encrypted"},
                    ]
                }
            ),
            4,
            5,
            6,
        ],
        text="hi",
        ledger=[
            ("entry_index", 0, "delta.reasoning_details.0.index"),
            ("entry_index", 1, "delta.reasoning_details.0.index"),
            ("entry_index", 2, "delta.reasoning_details.0.index"),
            ("entry_index", 3, "delta.reasoning_details.1.index"),
            ("entry_index", 3, "delta.reasoning_details.0.index"),
        ],
    ),
    Row(
        id="Q75 reasoning_details with index: the very bytes pass",
        came=[
            frame({"role": "assistant", "reasoning_details": [{"index": 0, "type": "reasoning.text", "text": "h"}]}),
            frame({"reasoning_details": [{"index": 0, "type": "reasoning.text", "signature": "s"}, "junk"]}),
            finish(),
            DONE,
        ],
    ),
    Row(
        id="Q76 reasoning_details before the call that they annotate: kept as they are, with the id that joins them",
        came=[
            frame(
                {
                    "role": "assistant",
                    "reasoning_details": [{"index": 0, "id": "a", "type": "reasoning.encrypted", "data": "e"}],
                }
            ),
            begin("a", "f", '{"x":1}'),
            finish("tool_calls"),
            DONE,
        ],
        calls=[("a", "f", '{"x":1}', "running")],
    ),
    Row(
        id="Q77 the same thought in content and in reasoning_content, with the setting think: the structured one wins",
        came=[
            frame({"role": "assistant", "reasoning_content": "hm", "content": "<think>h"}),
            text("m</think>hi"),
            finish(),
            DONE,
        ],
        sent=[frame({"role": "assistant", "reasoning_content": "hm", "content": ""}), text("hi"), 2, 3],
        settings={"think": True},
        text="hi",
        thought="hm",
        ledger=[("think", 0, "delta.content"), ("think", 1, "delta.content")],
    ),
    Row(
        id="Q77 the same thought twice and no setting: left alone (`Markup` names it)",
        came=[
            frame({"role": "assistant", "reasoning_content": "hm", "content": "<think>hm</think>hi"}),
            finish(),
            DONE,
        ],
        text="<think>hm</think>hi",
        thought="hm",
    ),
    Row(
        id="Q78 <think> in content without the setting: left alone (`Markup` names it)",
        came=[text("<think>hm</think>", role=True), text("hi"), finish(), DONE],
        text="<think>hm</think>hi",
    ),
    Row(
        id="Q78 <think> in content with the setting think: split, over any borders; behind it, tags are text",
        came=[text("\n<th", role=True), text("ink>h"), text("m</thi"), text("nk>hi"), text(" <think>"), finish(), DONE],
        sent=[
            text("", role=True),
            frame({"reasoning_content": "h", "content": ""}),
            frame({"reasoning_content": "m", "content": ""}),
            text("hi"),
            4,
            5,
            6,
        ],
        settings={"think": True},
        text="hi <think>",
        thought="hm",
        ledger=[
            ("think", 0, "delta.content"),
            ("think", 1, "delta.content"),
            ("think", 1, "delta.reasoning_content"),
            ("think", 2, "delta.content"),
            ("think", 2, "delta.reasoning_content"),
            ("think", 3, "delta.content"),
        ],
    ),
    Row(
        id="Q78 half a tag at the end is text after all",
        came=[text("<thi", role=True), finish(), DONE],
        sent=[text("", role=True), text("<thi"), 1, 2],
        settings={"think": True},
        text="<thi",
        ledger=[("think", 0, "delta.content"), ("think", 1, "")],
    ),
    Row(
        id="Q78 half a tag on the chunk of the finish, with the name reasoning",
        came=[text("<think>h", role=True), frame({"content": "m</th", "reasoning_content": None}, "stop"), DONE],
        sent=[
            frame({"reasoning": "h", "role": "assistant", "content": ""}),
            frame({"reasoning": "m</th", "content": ""}, "stop"),
            2,
        ],
        settings={"think": True, "reasoning": "reasoning"},
        thought="hm</th",
        ledger=[
            ("think", 0, "delta.content"),
            ("think", 0, "delta.reasoning"),
            ("think", 1, "delta.content"),
            ("think", 1, "delta.reasoning_content"),
            ("think", 1, "delta.reasoning"),
        ],
    ),
    Row(
        id="Q78 half a tag at a [DONE] without a finish",
        came=[text("hi", role=True, index=0), text("<", role=True, index=1), DONE],
        sent=[0, text("", role=True, index=1), text("<", index=1), finish("stop", 0), finish("stop", 1), 2],
        settings={"think": True},
        text="hi<",
        finish=("stop", "stop"),
        flags=("no_finish",),
        ledger=[
            ("think", 1, "delta.content"),
            ("think", 2, ""),
            ("finish_supplied", 2, ""),
            ("finish_supplied", 2, ""),
        ],
    ),
    Row(
        id="Q79 content as a list of thinking and text parts: thoughts are reasoning, texts the content",
        came=[
            parts(thinking("h", "m"), role="assistant"),
            parts({"type": "text", "text": "h"}, "i", {"type": "image_url"}),
            frame({"content": {"type": "text", "text": "!"}}),
            text("?"),
            finish(),
            DONE,
        ],
        sent=[frame({"reasoning_content": "hm", "role": "assistant"}), text("hi"), text("!"), 3, 4, 5],
        text="hi!?",
        thought="hm",
        ledger=[
            ("content_list", 0, "delta.content"),
            ("content_list", 0, "delta.reasoning_content"),
            ("content_list", 1, "delta.content"),
            ("content_list", 2, "delta.content"),
        ],
    ),
    Row(
        id="Q80 empty content between thoughts would end the thinking: left out there, kept behind it",
        came=[
            parts(thinking("h"), role="assistant"),
            text(""),
            parts(),
            parts(thinking("m")),
            text("hi"),
            text(""),
            finish(),
            DONE,
        ],
        sent=[
            frame({"reasoning_content": "h", "role": "assistant"}),
            frame({}),
            frame({}),
            frame({"reasoning_content": "m"}),
            4,
            5,
            6,
            7,
        ],
        text="hi",
        thought="hm",
        ledger=[
            ("content_list", 0, "delta.content"),
            ("content_list", 0, "delta.reasoning_content"),
            ("content_empty", 1, "delta.content"),
            ("content_list", 2, "delta.content"),
            ("content_list", 3, "delta.content"),
            ("content_list", 3, "delta.reasoning_content"),
        ],
    ),
    Row(
        id="Q81 Kimi's call markup in content: left alone (`Markup` names it)",
        came=[text("<|tool_calls_section_begin|>", role=True), finish(), DONE],
        text="<|tool_calls_section_begin|>",
    ),
    Row(
        id="Q82 DeepSeek's call markup in content and arguments: left alone (`Markup` names it)",
        came=[
            text("<\uff5cDSML\uff5cx", role=True),
            begin("a", "f", '{"x":"<\uff5cDSML\uff5c"}'),
            finish("tool_calls"),
            DONE,
        ],
        text="<\uff5cDSML\uff5cx",
        calls=[("a", "f", '{"x":"<\uff5cDSML\uff5c"}', "running")],
    ),
    Row(
        id="Q83 Qwen's call markup in content: left alone (`Markup` names it)",
        came=[text("<tool_call>", role=True), finish(), DONE],
        text="<tool_call>",
    ),
    Row(
        id="Q84 delta.refusal passes",
        came=[frame({"role": "assistant", "refusal": "no"}), frame({"refusal": "!"}), finish(), DONE],
        text="no!",
    ),
    Row(
        id="Q85 logprobs pass",
        came=[
            chunk(
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "hi"},
                    "logprobs": {"content": [{"token": "hi", "logprob": -0.5}]},
                    "finish_reason": None,
                }
            ),
            finish(),
            DONE,
        ],
        text="hi",
    ),
    Row(
        id="Q85 logprobs that are a number are null: two SDKs fail on them",
        came=[
            chunk({"index": 0, "delta": {"role": "assistant", "content": "h"}, "logprobs": -0.5}),
            chunk({"index": 0, "delta": {"content": "i"}, "logprobs": 0, "finish_reason": None}),
            finish(),
            DONE,
        ],
        sent=[
            chunk(
                {
                    "finish_reason": None,
                    "index": 0,
                    "delta": {"role": "assistant", "content": "h"},
                    "logprobs": None,
                }
            ),
            chunk({"index": 0, "delta": {"content": "i"}, "logprobs": None, "finish_reason": None}),
            2,
            3,
        ],
        text="hi",
        ledger=[
            ("logprobs_not_object", 0, "choice.logprobs"),
            ("finish_missing", 0, "choice.finish_reason"),
            ("logprobs_not_object", 1, "choice.logprobs"),
        ],
    ),
    Row(
        id="Q86 annotations without index are numbered, each a new one; nothing of them is lost",
        came=[
            frame({"role": "assistant", "content": "hi", "annotations": [{"type": "url_citation"}, 5]}),
            frame({"content": "!", "annotations": [{"type": "url_citation"}]}),
            frame({"content": "!", "annotations": [{"type": "url_citation"}]}),
            finish(),
            DONE,
        ],
        sent=[
            frame({"role": "assistant", "content": "hi", "annotations": [{"index": 0, "type": "url_citation"}, 5]}),
            frame({"content": "!", "annotations": [{"index": 1, "type": "url_citation"}]}),
            frame({"content": "!", "annotations": [{"index": 2, "type": "url_citation"}]}),
            3,
            4,
        ],
        text="hi!!",
        ledger=[
            ("entry_index", 0, "delta.annotations.0.index"),
            ("entry_index", 1, "delta.annotations.0.index"),
            ("entry_index", 2, "delta.annotations.0.index"),
        ],
    ),
    Row(
        id="Q87 citations and search_results on each chunk: once, and again where they change",
        came=[
            text("h", role=True),
            frame({"content": "i"}, None, citations=["a"], search_results=[]),
            frame({"content": "!"}, None, citations=["a"], search_results=[]),
            frame({}, "stop", citations=["a", "b"]),
            DONE,
        ],
        sent=[0, 1, text("!"), 3, 4],
        text="hi!",
        ledger=[("sent_once", 2, "citations"), ("sent_once", 2, "search_results")],
    ),
    Row(
        id="Q88 audio passes",
        came=[
            frame({"role": "assistant", "audio": {"id": "x", "data": "QQ=="}}),
            frame({"content": "hi", "audio_content": ""}),
            finish(),
            DONE,
        ],
        text="hi",
    ),
    Row(
        id="Q88 an answer of nothing but audio and [DONE] is whole: it lacks only its finish",
        came=[
            frame({"role": "assistant", "audio": {"id": "x", "transcript": "hi"}}),
            frame({"audio": {"data": "QQ=="}}),
            DONE,
        ],
        sent=[0, 1, finish(), 2],
        flags=("no_finish",),
        ledger=[("finish_supplied", 2, "")],
    ),
]

ERRORS = [
    Row(
        id="Q89 an error beside choices, with finish error: what was said, then the error alone, no [DONE]",
        came=[HI, frame({"content": "!"}, "error", error=FAILED), DONE],
        sent=[0, text("!"), sse({"error": FAILED})],
        text="hi!",
        finish=("",),
        ending="upstream_error",
        ledger=[
            ("error_apart", 1, "error"),
            ("error_apart", 1, "choice.finish_reason"),
            ("error_apart", 1, ""),
            ("done_withheld", 2, ""),
        ],
    ),
    Row(
        id="Q89 an error beside empty choices in the middle of a call",
        came=[HI, begin("a", "f", '{"x":'), sse({**HEAD, "choices": [], "error": FAILED})],
        sent=[0, 1, dropped("a", "f", '{"x":', "upstream_error"), sse({"error": FAILED})],
        text="hi",
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("",),
        ending="upstream_error",
        settings={"tool_events": True},
        ledger=[("lifecycle", 2, ""), ("error_shape", 2, "")],
    ),
    Row(
        id="Q89 an error in words: an object, because SDKs want one",
        came=[HI, sse({"error": "overloaded"})],
        sent=[0, sse({"error": {"message": "overloaded", "type": "upstream_error", "code": None}})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_shape", 1, "")],
    ),
    Row(
        id="Q90 event: error with an error object: plain data, failed_generation stays",
        came=[HI, b"event: error\n" + sse({"error": FAILED})],
        sent=[0, sse({"error": FAILED})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("framing", 1, "")],
    ),
    Row(
        id="Q90 event: error with the bare object",
        came=[HI, b"event: error\n" + sse(FAILED)],
        sent=[0, sse({"error": FAILED})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_shape", 1, "")],
    ),
    Row(
        id="Q90 event: error in words that are not JSON",
        came=[HI, b"event: error\ndata: Internal error\n\n"],
        sent=[0, sse({"error": {"message": "Internal error", "type": "upstream_error", "code": None}})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_shape", 1, "")],
    ),
    Row(
        id="Q91 an error, although [DONE] follows: the very bytes pass, the [DONE] does not",
        came=[HI, sse({"error": FAILED}), DONE],
        sent=[0, 1],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("done_withheld", 2, "")],
    ),
    Row(
        id="Q91 [DONE] and nothing before it: a failure, told as a cut",
        came=[DONE],
        sent=[CUT],
        finish=(),
        ending="truncated",
        ledger=[("done_unfinished", 0, ""), ("error_frame", 0, "")],
    ),
    Row(
        id="Q92 the field error: of an older llama.cpp: an error that SDKs would ignore",
        came=[HI, b'error: {"message":"overloaded","code":500}\n\n'],
        sent=[0, sse({"error": {"message": "overloaded", "code": 500}})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_field", 1, "")],
    ),
    Row(
        id="Q93 raw JSON in an event stream: an error object is an error",
        came=[unframed(b'{"error":{"message":"no model","code":404}}')],
        sent=[sse({"error": {"message": "no model", "code": 404}})],
        finish=(),
        ending="upstream_error",
        ledger=[("unframed", 0, ""), ("unframed", 0, "")],
    ),
    Row(
        id="Q93 raw JSON in an event stream, without its blank line",
        came=[b'{"error":{"message":"no model"}}'],
        sent=[sse({"error": {"message": "no model"}})],
        finish=(),
        ending="upstream_error",
        ledger=[("unframed", 0, "")],
    ),
    Row(
        id="Q93 anything else in an event stream is protocol",
        came=[unframed(b"<html>"), b"</html>"],
        sent=[NO_STREAM],
        finish=(),
        ending="protocol",
        flags=("not_a_stream",),
        ledger=[("unframed", 0, ""), ("error_frame", 2, "")],
    ),
    Row(
        id="Q94 two errors: the first ends the stream, the second stays on the tape",
        came=[HI, sse({"error": FAILED}), sse({"error": {"message": "again"}})],
        sent=[0, 1],
        text="hi",
        finish=("",),
        ending="upstream_error",
        flags=LATE,
        ledger=[("late_data", 2, "")],
    ),
    Row(
        id="Q95 overloaded_error as another dialect writes it, then EOF: an error, nothing is added after it",
        came=[HI, b"event: error\n" + sse({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}})],
        sent=[0, sse({"error": {"type": "overloaded_error", "message": "busy"}})],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_shape", 1, "")],
    ),
    Row(
        id="Q96 content of a whole answer that is not text becomes text",
        came=[
            b'{"id":"chatcmpl-1","created":7,"model":"m","choices":[{"message":{"content":12},"finish_reason":"stop"}]}'
        ],
        sent=[
            chunk({"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": "12"}}),
            finish(),
            DONE,
        ],
        body=True,
        text="12",
        flags=("synthesised",),
        ledger=[("synthesised", 0, ""), ("synthesised", 0, ""), ("done_supplied", 1, "")],
    ),
    Row(
        id="Q96 a JSON answer where a stream was due becomes one, marked as synthesised",
        came=[
            b'{"id":"chatcmpl-1","object":"chat.completion","created":7,"model":"m","choices":[{"index":0,"message":',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","type":"function","function":{"name":"f",',
            b'"arguments":"{\\"x\\":1}"},"extra_content":{"google":1}}]},"finish_reason":"tool_calls"}]}',
        ],
        sent=[ANSWERED_CALL, finish("tool_calls"), DONE],
        body=True,
        calls=[("a", "f", '{"x":1}', "running")],
        flags=("synthesised",),
        ledger=[("synthesised", 2, ""), ("synthesised", 2, ""), ("done_supplied", 3, "")],
    ),
    Row(
        id="Q96 an answer that is an error object",
        came=[b'{"error":{"message":"no model"}}'],
        sent=[sse({"error": {"message": "no model"}})],
        body=True,
        finish=(),
        ending="upstream_error",
        ledger=[("unframed", 0, "")],
    ),
    Row(
        id="Q96 an answer that is neither stream nor completion is protocol",
        came=[b"<html></html>"],
        sent=[NO_STREAM],
        body=True,
        finish=(),
        ending="protocol",
        flags=("not_a_stream",),
        ledger=[("error_frame", 1, "")],
    ),
    Row(
        id="Q96 an answer in two choices though one was asked for: one (Q27)",
        came=[
            (
                b'{"id":"chatcmpl-1","created":7,"model":"m","choices":[{"index":0,"message":{"content":"hi"},"finish_reason":'
                b'"stop"},{"index":1,"message":{"tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":'
                b'"{\\"x\\":1}"}}]},"finish_reason":"tool_calls"}]}'
            )
        ],
        sent=[ANSWERED_BOTH, finish("tool_calls"), DONE],
        body=True,
        text="hi",
        calls=[("a", "f", '{"x":1}', "running")],
        flags=("synthesised",),
        ledger=[("synthesised", 0, ""), ("synthesised", 0, ""), ("done_supplied", 1, "")],
    ),
]

FRAMING = [
    Row(
        id="Q97 comments in front of, between and inside frames: on the tape, not to the client",
        came=[b": OPENROUTER PROCESSING\n\n", HI, b": ping\n" + finish(), DONE],
        sent=[1, finish(), 3],
        text="hi",
        ledger=[("comment", 0, ""), ("framing", 2, "")],
    ),
    Row(
        id="Q98 data: : keepalive: withheld, no SDK survives it",
        came=[HI, b"data: : keepalive\n\n", finish(), DONE],
        sent=[0, 2, 3],
        text="hi",
        ledger=[("empty_data", 1, "")],
    ),
    Row(
        id="Q98 data that is not JSON: withheld and told",
        came=[HI, b"data: hello\n\n", b"data: 5\n\n", finish(), DONE],
        sent=[0, 3, 4],
        text="hi",
        flags=("not_json", "foreign"),
        ledger=[("not_json", 1, ""), ("foreign", 2, "")],
    ),
    Row(
        id="Q99 empty data, and a bare event: withheld",
        came=[HI, b"data:\n\n", b"data: \n\n", b"event: keepalive\n\n", finish(), DONE],
        sent=[0, 4, 5],
        text="hi",
        ledger=[("empty_data", 1, ""), ("empty_data", 2, ""), ("comment", 3, "")],
    ),
    Row(
        id="Q100 id: on chunks, retry: blocks, event names: never to a chat client",
        came=[b"retry: 3000\n\n", b"id: 1\n" + HI, b"event: message\nid: 2\n" + finish(), b"id: 3\n\n", DONE],
        sent=[HI, finish(), 4],
        text="hi",
        ledger=[("comment", 0, ""), ("framing", 1, ""), ("framing", 2, ""), ("comment", 3, "")],
    ),
    Row(
        id="Q100 an upstream's own hermes frame is foreign data",
        came=[HI, b"event: hermes.tool.progress\n" + frame({}, None, tool="f", status="running"), finish(), DONE],
        sent=[0, 2, 3],
        text="hi",
        flags=("foreign",),
        ledger=[("foreign", 1, "")],
    ),
    Row(
        id="Q101 CRLF and CR: the canonical form goes out",
        came=[after(HI, (b"\n\n", b"\r\n\r\n")), after(finish(), (b"\n\n", b"\r\r")), DONE],
        sent=[HI, finish(), 2],
        text="hi",
        ledger=[("framing", 0, ""), ("framing", 1, "")],
    ),
    Row(
        id="Q102 data: without its space",
        came=[after(HI, (b"data: ", b"data:")), finish(), b"data:[DONE]\n\n"],
        sent=[HI, 1, DONE],
        text="hi",
        ledger=[("framing", 0, ""), ("framing", 2, "")],
    ),
    Row(
        id="Q103 a BOM is skipped once, at the very start",
        came=[b"\xef\xbb\xbf" + HI, finish(), DONE],
        sent=[HI, 1, 2],
        text="hi",
        ledger=[("framing", 0, "")],
    ),
    Row(
        id="Q105 a character that is cut by a read is whole",
        came=[text("ü😀", role=True), finish(), DONE],
        text="ü😀",
    ),
    Row(
        id="Q105 bytes that are not UTF-8 become the replacement character, the halves of a split pair stay",
        came=[
            after(HI, (b"hi", b"\xff")),
            after(text("x"), (b'"x"', b'"\\ud83d"')),
            after(text("x"), (b'"x"', b'"\\ude00"')),
            finish(),
            DONE,
        ],
        sent=[text("\ufffd", role=True), 1, 2, 3, 4],
        text="\ufffd😀",
        ledger=[("invalid_utf8", 0, "")],
    ),
    Row(
        id="Q106 a last frame without its blank line is no event: truncated",
        came=[HI, finish().rstrip(b"\n")],
        sent=[0, CUT],
        text="hi",
        finish=("",),
        ending="truncated",
        ledger=[("error_frame", 2, "")],
    ),
    Row(
        id="Q106 a last [DONE] without its blank line counts",
        came=[HI, finish(), b"data: [DONE]"],
        sent=[0, 1, DONE],
        text="hi",
        ledger=[("framing", 2, "")],
    ),
    Row(
        id="Q107 a line that starts with a space is a field that nobody knows",
        came=[b" " + HI, HI, finish(), DONE],
        sent=[1, 2, 3],
        text="hi",
        flags=("not_a_stream",),
        ledger=[("unframed", 0, "")],
    ),
    Row(
        id="Q108 JSON over several data lines is joined",
        came=[after(HI, (b',"created"', b'\n: why\ndata: ,"created"')), finish(), DONE],
        sent=[after(HI, (b',"created"', b' ,"created"')), 1, 2],
        text="hi",
        ledger=[("framing", 0, "")],
    ),
    Row(
        id="Q109 U+2028, U+2029 and U+0085 inside JSON end no line",
        came=[text("\u2028\u2029\u0085", role=True), finish(), DONE],
        text="\u2028\u2029\u0085",
    ),
]

ROWS = [*REASONING, *ERRORS, *FRAMING]
