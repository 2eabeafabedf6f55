"""Rows 32 to 72 of the dialect catalogue, all cases synthetic: finish and termination, envelope, usage."""

from typing import Any

from tests.events.chat.rows import ASKED_FOR_USAGE, Row, after, dropped, error, usage
from tests.support.chat import DONE, HEAD, begin, call, chunk, finish, frame, sse, text

HI = text("hi", role=True)
CALLS = finish("tool_calls")
START = begin("a", "f", role=True)
HALF = call(index=0, arguments='{"x":')
WHOLE = begin("a", "f", '{"x":1}', role=True)
F = ("a", "f", '{"x":1}', "running")
LOST = "⚠ Connection dropped mid tool-call: f was cut short. Not completed; no result seen."
COUNTS = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
ZEROS = dict.fromkeys(COUNTS, 0)


def bare(delta: Any, **members: Any) -> bytes:
    """A chunk whose choice has no finish_reason of its own."""
    return chunk({"index": 0, "delta": delta, **members})


def cut(*calls: tuple[str, str], code: str = "truncated", message: str = LOST) -> bytes:
    """The error frame of a stream that was cut."""
    return error(message, "stream_truncated", code, *calls)


def whole(**members: Any) -> bytes:
    """A whole completion object."""
    message = {"role": "assistant", "content": "hi"}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return sse({**HEAD, "object": "chat.completion", "choices": choices, **members})


FINISH = [
    Row(
        id="Q32 finish stop although calls were made: tool_calls",
        came=[WHOLE, finish("stop"), DONE],
        sent=[0, CALLS, 2],
        calls=[F],
        ledger=[("finish_stop_with_calls", 1, "choice.finish_reason")],
    ),
    Row(
        id="Q33 an empty finish_reason on every chunk: null",
        came=[frame({"role": "assistant", "content": "h"}, ""), frame({"content": "i"}, ""), finish(), DONE],
        sent=[frame({"role": "assistant", "content": "h"}), text("i"), 2, 3],
        text="hi",
        ledger=[("finish_empty", 0, "choice.finish_reason"), ("finish_empty", 1, "choice.finish_reason")],
    ),
    Row(
        id='Q34 the text "null" for a finish_reason: null',
        came=[frame({"role": "assistant", "content": "hi"}, "null"), finish(), DONE],
        sent=[HI, 1, 2],
        text="hi",
        ledger=[("finish_empty", 0, "choice.finish_reason")],
    ),
    Row(
        id="Q35 no finish_reason on chunks that are not the last: null",
        came=[bare({"role": "assistant", "content": "h"}), bare({"content": "i"}), finish(), DONE],
        sent=[
            chunk({"finish_reason": None, "index": 0, "delta": {"role": "assistant", "content": "h"}}),
            chunk({"finish_reason": None, "index": 0, "delta": {"content": "i"}}),
            2,
            3,
        ],
        text="hi",
        ledger=[("finish_missing", 0, "choice.finish_reason"), ("finish_missing", 1, "choice.finish_reason")],
    ),
    Row(
        id="Q36 finishReason beside finish_reason: read as finish_reason, once",
        came=[
            HI,
            chunk({"index": 0, "delta": {}, "finishReason": "STOP", "finish_reason": None}),
            chunk({"index": 0, "delta": {}, "finishReason": "STOP", "finish_reason": None}),
            DONE,
        ],
        sent=[0, chunk({"index": 0, "delta": {}, "finishReason": "STOP", "finish_reason": "stop"}), 2, 3],
        text="hi",
        ledger=[("finish_word", 1, "choice.finish_reason")],
    ),
    Row(
        id="Q37 [DONE] after text and never a finish: completed, stop is supplied before it",
        came=[HI, DONE],
        sent=[0, finish("stop"), 1],
        text="hi",
        flags=("no_finish",),
        ledger=[("finish_supplied", 1, "")],
    ),
    Row(
        id="Q37 [DONE] after whole calls and never a finish: they are handed over, tool_calls is supplied",
        came=[WHOLE, DONE],
        sent=[0, CALLS, 1],
        calls=[F],
        flags=("no_finish",),
        ledger=[("finish_supplied", 1, "")],
    ),
    Row(
        id="Q37 [DONE] after usage and never a finish: the supplied finish comes before the usage",
        came=[HI, frame({"content": ""}, None, usage=COUNTS), DONE],
        sent=[0, finish(), 1, 2],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        flags=("no_finish",),
        ledger=[("finish_supplied", 2, "")],
    ),
    Row(
        id="Q37 [DONE] after usage with the last text and never a finish: the usage comes last",
        came=[frame({"role": "assistant", "content": "hi"}, None, usage=COUNTS), DONE],
        sent=[HI, finish(), usage(**COUNTS), 1],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        flags=("no_finish",),
        ledger=[("usage_apart", 0, "usage"), ("finish_supplied", 1, ""), ("usage_apart", 0, "")],
    ),
    Row(
        id="Q37 [DONE] in the middle of a call: truncated, nothing is supplied, not even [DONE]",
        came=[START, HALF, DONE],
        sent=[0, 1, dropped("a", "f", '{"x":', "truncated"), cut(("a", "f"))],
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("",),
        ending="truncated",
        settings={"tool_events": True},
        ledger=[("done_unfinished", 2, ""), ("lifecycle", 2, ""), ("error_frame", 2, "")],
    ),
    Row(
        id="Q37 [DONE] after a call without a byte of arguments: truncated, never {}",
        came=[START, DONE],
        sent=[0, cut(("a", "f"))],
        calls=[("a", "f", "", "dropped")],
        finish=("",),
        ending="truncated",
        ledger=[("done_unfinished", 1, ""), ("error_frame", 1, "")],
    ),
    Row(
        id="Q37 neither a finish nor [DONE]: truncated",
        came=[HI],
        sent=[0, cut(message="⚠ Connection dropped: the answer is incomplete.")],
        text="hi",
        finish=("",),
        ending="truncated",
        ledger=[("error_frame", 1, "")],
    ),
    Row(
        id="Q38 finish_reason again on the usage chunk: once",
        came=[HI, finish(), frame({"role": "assistant", "content": ""}, "stop", usage=COUNTS), DONE],
        sent=[0, 1, frame({"content": ""}, None, usage=COUNTS), 3],
        text="hi",
        usage=COUNTS,
        ledger=[("role_repeated", 2, "delta.role"), ("finish_repeated", 2, "choice.finish_reason")],
    ),
    Row(
        id="Q39 a finish and no [DONE]: completed, [DONE] is supplied",
        came=[HI, finish()],
        sent=[0, 1, DONE],
        text="hi",
        flags=("no_done",),
        ledger=[("done_supplied", 2, "")],
    ),
    Row(
        id="Q40 [DONE] under an event name, and again: once, in plain form",
        came=[HI, finish(), b"event: data\ndata: [DONE]\n\n", DONE],
        sent=[0, 1, DONE],
        text="hi",
        ledger=[("framing", 2, ""), ("done_withheld", 3, "")],
    ),
    Row(
        id="Q41 EOF in the middle of a call, on_partial error: dropped frame, error frame, no [DONE]",
        came=[START, HALF],
        sent=[0, 1, dropped("a", "f", '{"x":', "truncated"), cut(("a", "f"))],
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("",),
        ending="truncated",
        settings={"tool_events": True},
        ledger=[("lifecycle", 2, ""), ("error_frame", 2, "")],
    ),
    Row(
        id="Q41 EOF in the middle of a call, on_partial warn: the call is never shown; text, length, [DONE]",
        came=[HI, START, HALF],
        sent=[0, text("\n\n" + LOST), finish("length"), DONE],
        text="hi",
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("",),
        ending="truncated",
        settings={"on_partial": "warn"},
        ledger=[
            ("held_call_lost", 1, ""),
            ("held_call_lost", 2, ""),
            ("warning_text", 3, ""),
            ("warn_finish", 3, ""),
            ("warn_done", 3, ""),
        ],
    ),
    Row(
        id="Q41 EOF in the middle of a call, on_partial both: text, then the error frame",
        came=[START, HALF],
        sent=[0, 1, text(LOST), cut(("a", "f"))],
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("",),
        ending="truncated",
        settings={"on_partial": "both"},
        ledger=[("warning_text", 2, ""), ("error_frame", 2, "")],
    ),
    Row(
        id="Q42 a cut is told from length: by the error, or by the reason and the words",
        came=[HI, begin("a", "f", '{"x":'), finish("length"), DONE],
        sent=[
            0,
            dropped("a", "f", '{"x":', "length"),
            text("\n\n⚠ Output limit reached mid tool-call: f was cut short. Not completed; no result seen."),
            2,
            3,
        ],
        text="hi",
        calls=[("a", "f", '{"x":', "dropped")],
        finish=("length",),
        settings={"on_partial": "warn", "tool_events": True},
        ledger=[("held_call_lost", 1, ""), ("lifecycle", 2, ""), ("warning_text", 2, "")],
    ),
    Row(
        id="Q43 the last content on the chunk of the finish: the very bytes pass",
        came=[HI, frame({"content": "!"}, "stop"), DONE],
        text="hi!",
    ),
    Row(
        id="Q44 finish_reason error: an error frame, native_finish_reason stays",
        came=[HI, chunk({"index": 0, "delta": {}, "finish_reason": "error", "native_finish_reason": "OOM"}), DONE],
        sent=[
            0,
            chunk({"index": 0, "delta": {}, "finish_reason": None, "native_finish_reason": "OOM"}),
            sse(
                {
                    "error": {
                        "message": "the upstream ended the answer with finish_reason 'error'",
                        "type": "upstream_error",
                        "code": "finish_error",
                    }
                }
            ),
        ],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("finish_failure", 1, "choice.finish_reason"), ("finish_failure", 1, ""), ("done_withheld", 2, "")],
    ),
    Row(
        id="Q44 another dialect's word for a known finish is that finish",
        came=[HI, chunk({"index": 0, "delta": {}, "finish_reason": "end_turn", "native_finish_reason": "x"}), DONE],
        sent=[0, chunk({"index": 0, "delta": {}, "finish_reason": "stop", "native_finish_reason": "x"}), 2],
        text="hi",
        ledger=[("finish_word", 1, "choice.finish_reason")],
    ),
    Row(
        id="Q45 the connection stays open after the finish until we close it: as without [DONE]",
        came=[HI, finish()],
        sent=[0, 1, DONE],
        cause="closed",
        text="hi",
        flags=("no_done",),
        ledger=[("done_supplied", 2, "")],
    ),
]

ENVELOPE = [
    Row(
        id="Q46 a first chunk without choices, id, model and time: withheld, and nothing is taken from it",
        came=[
            sse({"choices": [], "created": 0, "id": "", "model": "", "object": "", "prompt_filter_results": [{}]}),
            HI,
            finish(),
            DONE,
        ],
        sent=[1, 2, 3],
        text="hi",
        ledger=[("choiceless", 0, "")],
    ),
    Row(
        id="Q47 a choice without delta, or with null: an empty one, the annotation stays",
        came=[
            chunk({"index": 0, "finish_reason": None, "content_filter_offsets": {"start_offset": 1}}),
            HI,
            chunk({"index": 0, "finish_reason": None, "delta": None}),
            finish(),
            DONE,
        ],
        sent=[
            chunk(
                {
                    "delta": {"role": "assistant"},
                    "index": 0,
                    "finish_reason": None,
                    "content_filter_offsets": {"start_offset": 1},
                }
            ),
            text("hi"),
            chunk({"index": 0, "finish_reason": None, "delta": {}}),
            3,
            4,
        ],
        text="hi",
        ledger=[
            ("delta_missing", 0, "choice.delta"),
            ("role_repeated", 1, "delta.role"),
            ("delta_missing", 2, "choice.delta"),
        ],
    ),
    Row(
        id="Q48 choices null beside usage: an empty list; without usage there is nothing to say",
        came=[HI, finish(), sse({**HEAD, "choices": None}), sse({**HEAD, "choices": None, "usage": COUNTS}), DONE],
        sent=[0, 1, usage(**COUNTS), 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("choiceless", 2, ""), ("choices_null", 3, "choices")],
    ),
    Row(
        id="Q49 role on every chunk: once",
        came=[text("h", role=True), text("i", role=True), text("!", role=True), finish(), DONE],
        sent=[0, text("i"), text("!"), 3, 4],
        text="hi!",
        ledger=[("role_repeated", 1, "delta.role"), ("role_repeated", 2, "delta.role")],
    ),
    Row(
        id="Q50 role never sent: on the first chunk",
        came=[text("h"), text("i"), finish(), DONE],
        sent=[text("h", role=True), 1, 2, 3],
        text="hi",
        ledger=[("role_missing", 0, "delta.role")],
    ),
    Row(
        id="Q51 null for role, tool_calls and function_call: left out",
        came=[
            frame({"role": None, "content": "h", "tool_calls": None}),
            frame({"role": None, "content": "i", "tool_calls": None, "function_call": None}),
            finish(),
            DONE,
        ],
        sent=[text("h", role=True), text("i"), 2, 3],
        text="hi",
        ledger=[
            ("role_missing", 0, "delta.role"),
            ("null_member", 0, "delta.tool_calls"),
            ("role_repeated", 1, "delta.role"),
            ("null_member", 1, "delta.tool_calls"),
            ("null_member", 1, "delta.function_call"),
        ],
    ),
    Row(
        id="Q52 object missing, or another: chat.completion.chunk",
        came=[
            after(HI, (b'"object":"chat.completion.chunk",', b"")),
            after(text("!"), (b"chat.completion.chunk", b"chat.completion.done")),
            finish(),
            DONE,
        ],
        sent=[
            after(
                HI,
                (
                    b'"id":"chatcmpl-1","object":"chat.completion.chunk"',
                    b'"object":"chat.completion.chunk","id":"chatcmpl-1"',
                ),
            ),
            text("!"),
            2,
            3,
        ],
        text="hi!",
        ledger=[("object", 0, "object"), ("object", 1, "object")],
    ),
    Row(
        id="Q53 the id of the chunk differs inside a stream: the first one, or one made of the stream's",
        came=[
            HI,
            after(text("!"), (b"chatcmpl-1", b"chatcmpl-2")),
            after(text("!"), (b'"id":"chatcmpl-1",', b"")),
            finish(),
            DONE,
        ],
        sent=[0, text("!"), text("!"), 3, 4],
        text="hi!!",
        ledger=[("id", 1, "id"), ("id", 2, "id")],
    ),
    Row(
        id="Q53 no id at all: one made of the stream's",
        came=[after(HI, (b'"chatcmpl-1"', b"null")), after(finish(), (b'"chatcmpl-1"', b'""')), DONE],
        sent=[after(HI, (b"chatcmpl-1", b"chatcmpl-s1")), after(finish(), (b"chatcmpl-1", b"chatcmpl-s1")), 2],
        text="hi",
        ledger=[("id", 0, "id"), ("id", 1, "id")],
    ),
    Row(
        id="Q54 created differs between chunks: one value, the first that is not zero",
        came=[
            after(HI, (b'"created":7', b'"created":0')),
            after(text("!"), (b'"created":7', b'"created":8')),
            text("!"),
            finish(),
            DONE,
        ],
        sent=[
            0,
            1,
            after(text("!"), (b'"created":7', b'"created":8')),
            after(finish(), (b'"created":7', b'"created":8')),
            4,
        ],
        text="hi!!",
        ledger=[("created", 2, "created"), ("created", 3, "created")],
    ),
    Row(
        id="Q55 model empty, then set: the first that is not empty, before it the one that was asked for",
        came=[after(HI, (b'"model":"m"', b'"model":""')), after(finish(), (b'"model":"m"', b'"model":"m-2"')), DONE],
        sent=[HI, finish(), 2],
        text="hi",
        ledger=[("model", 0, "model"), ("model", 1, "model")],
    ),
    Row(
        id="Q55 model empty, then set, and none was asked for",
        came=[
            after(HI, (b'"model":"m"', b'"model":null')),
            after(text("!"), (b'"model":"m"', b'"model":"m-2"')),
            finish(),
            DONE,
        ],
        sent=[after(HI, (b'"model":"m"', b'"model":""')), 1, after(finish(), (b'"model":"m"', b'"model":"m-2"')), 3],
        request={"stream": True},
        text="hi!",
        ledger=[("model", 0, "model"), ("model", 2, "model")],
    ),
    Row(
        id="Q56 content as a number: the text of that number; a native field stays",
        came=[
            after(frame({"role": "assistant", "content": 0}, response="1.50"), (b'"content":0', b'"content":1.50')),
            frame({"content": True}),
            finish(),
            DONE,
        ],
        sent=[frame({"role": "assistant", "content": "1.50"}, response="1.50"), text("true"), 2, 3],
        text="1.50true",
        ledger=[
            ("reserialised", 0, ""),
            ("content_not_text", 0, "delta.content"),
            ("content_not_text", 1, "delta.content"),
        ],
    ),
    Row(
        id="Q57 created as float or text: an integer",
        came=[
            after(HI, (b'"created":7', b'"created":7.0')),
            after(text("!"), (b'"created":7', b'"created":"7.5"')),
            after(finish(), (b'"created":7', b'"created":true')),
            DONE,
        ],
        sent=[HI, text("!"), finish(), 3],
        text="hi!",
        ledger=[("created", 0, "created"), ("created", 1, "created"), ("created", 2, "created")],
    ),
    Row(
        id="Q57 created is no number at all: zero until one comes",
        came=[after(HI, (b'"created":7', b'"created":"soon"')), finish(), DONE],
        sent=[after(HI, (b'"created":7', b'"created":0')), 1, 2],
        text="hi",
        ledger=[("created", 0, "created")],
    ),
    Row(
        id="Q58 several answers in turns: each has its own role, calls and finish",
        came=[
            text("h", role=True),
            text("j", role=True, index=1),
            text("i"),
            text("k", role=True, index=1),
            finish("stop", 1),
            finish("length", 0),
            DONE,
        ],
        sent=[0, 1, 2, text("k", index=1), 4, 5, 6],
        request={"stream": True, "model": "m", "n": 2},
        text="hjik",
        finish=("length", "stop"),
        ledger=[("role_repeated", 3, "delta.role")],
    ),
    Row(
        id="Q58 choices without an index, or with a useless one, are counted",
        came=[
            sse(
                {
                    **HEAD,
                    "choices": [
                        {"delta": {"role": "assistant", "content": "h"}, "finish_reason": None},
                        7,
                        {"index": -1, "delta": {"role": "assistant", "content": "i"}, "finish_reason": None},
                    ],
                }
            ),
            finish("stop", 0),
            finish("stop", 2),
            DONE,
        ],
        sent=[
            sse(
                {
                    **HEAD,
                    "choices": [
                        {"index": 0, "delta": {"role": "assistant", "content": "h"}, "finish_reason": None},
                        {"index": 2, "delta": {"role": "assistant", "content": "i"}, "finish_reason": None},
                    ],
                }
            ),
            1,
            2,
            3,
        ],
        text="hi",
        finish=("stop", "stop"),
        ledger=[
            ("choice_index", 0, "choices.2.index"),
            ("choice_index", 0, "choice.index"),
            ("choice_not_object", 0, "choices.1"),
        ],
    ),
    Row(
        id="Q59 message beside delta repeats everything: only delta is read",
        came=[
            chunk(
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "h"},
                    "message": {"content": "h"},
                    "finish_reason": None,
                }
            ),
            chunk({"index": 0, "delta": {"content": "i"}, "message": {"content": "hi"}, "finish_reason": "stop"}),
            DONE,
        ],
        sent=[frame({"role": "assistant", "content": "h"}), frame({"content": "i"}, "stop"), 2],
        text="hi",
        ledger=[("message_beside", 0, "choice.message"), ("message_beside", 1, "choice.message")],
    ),
    Row(
        id="Q59 the same beside one more piece of text, which goes the short way but for it",
        came=[
            HI,
            chunk({"index": 0, "delta": {"content": "a"}, "message": {"tool_calls": []}, "finish_reason": None}),
            chunk({"index": 0, "delta": {"content": "b"}, "message": {"tool_calls": []}, "finish_reason": None}),
            finish(),
            DONE,
        ],
        sent=[0, frame({"content": "a"}), frame({"content": "b"}), 3, 4],
        text="hiab",
        ledger=[("message_beside", 1, "choice.message"), ("message_beside", 2, "choice.message")],
    ),
    Row(
        id="Q75 a list where a role was due is dropped whole, and nothing inside of it is numbered",
        came=[HI, frame({"content": "b", "role": [{"a": 1}]}), finish(), DONE],
        sent=[0, frame({"content": "b"}), 2, 3],
        text="hib",
        ledger=[("role_repeated", 1, "delta.role")],
    ),
    Row(
        id="Q60 a whole object at the end repeats the message: its usage stays, the rest is withheld",
        came=[HI, finish(), whole(usage=COUNTS), DONE],
        sent=[0, 1, usage(**COUNTS), 3],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("whole_object", 2, ""), ("whole_object", 2, "")],
    ),
    Row(
        id="Q60 a whole object without usage says nothing new",
        came=[HI, finish(), whole(), DONE],
        sent=[0, 1, 3],
        text="hi",
        ledger=[("whole_object", 2, "")],
    ),
    Row(
        id="Q60 a whole object that alone has the finish: that counts",
        came=[HI, whole(), DONE],
        sent=[0, finish(), 2],
        text="hi",
        ledger=[("whole_object", 1, ""), ("whole_object", 1, "")],
    ),
    Row(
        id="Q60 a whole object and nothing before it becomes the stream",
        came=[whole(system_fingerprint="fp", usage=COUNTS), DONE],
        sent=[
            sse(
                {
                    **HEAD,
                    "choices": [{"index": 0, "finish_reason": None, "delta": {"role": "assistant", "content": "hi"}}],
                    "system_fingerprint": "fp",
                }
            ),
            finish(),
            1,
        ],
        text="hi",
        usage=COUNTS,
        ledger=[("whole_object", 0, ""), ("usage_not_asked", 0, ""), ("synthesised", 0, ""), ("synthesised", 0, "")],
    ),
    Row(
        id="Q61 cumulative content, on a route that says so: what is new of it",
        came=[
            text("6", role=True),
            text("66"),
            text("666"),
            text(""),
            text("66"),
            frame({"content": "667"}, "stop"),
            DONE,
        ],
        sent=[0, text("6"), text("6"), 3, 4, frame({"content": "7"}, "stop"), 6],
        settings={"cumulative": True},
        text="666667",
        ledger=[
            ("content_cumulative", 1, "delta.content"),
            ("content_cumulative", 2, "delta.content"),
            ("content_cumulative", 5, "delta.content"),
        ],
    ),
    Row(
        id="Q61 content that repeats by chance stays (against cumulative content: only configuration tells)",
        came=[text("6", role=True), text("6"), text("66"), finish(), DONE],
        text="6666",
    ),
    Row(
        id="Q62 padding stays in place: the very bytes pass",
        came=[
            frame({"role": "assistant", "content": "h"}, None, obfuscation="abc"),
            frame({"content": "i"}, None, p="abcdef"),
            finish(),
            DONE,
        ],
        text="hi",
    ),
    Row(
        id="Q63 vendor fields of the chunk stay, whatever they are",
        came=[
            frame({"role": "assistant", "content": "h"}, None, x_groq={"id": "x"}, provider="P", time_info=[1]),
            frame({"content": "i"}, None, timings={"n": 1}, generationId=None, provider_metadata={}, cost=0.1),
            frame({}, "stop", base_resp={"status_code": 0, "status_msg": ""}, input_sensitive=False, copilot_usage=5),
            DONE,
        ],
        text="hi",
    ),
    Row(
        id="Q64 vendor fields of the choice stay",
        came=[
            chunk(
                {
                    "index": 0,
                    "delta": {"role": "assistant", "content": "hi"},
                    "finish_reason": None,
                    "text": "hi",
                    "seed": 12345678901234567890,
                    "token_id": 5,
                    "stop_reason": None,
                    "matched_stop": 7,
                    "token_ids": [1],
                }
            ),
            finish(),
            DONE,
        ],
        text="hi",
    ),
    Row(
        id="Q65 base_resp with a status other than 0: an upstream error, behind what its chunk delivers",
        came=[
            frame({"role": "assistant", "content": "hi"}, "stop", base_resp={"status_code": 1002, "status_msg": "slow"})
        ],
        sent=[
            frame({"role": "assistant", "content": "hi"}, None, base_resp={"status_code": 1002, "status_msg": "slow"}),
            sse({"error": {"message": "slow", "type": "upstream_error", "code": 1002}}),
        ],
        text="hi",
        finish=("",),
        ending="upstream_error",
        ledger=[("error_apart", 0, "choice.finish_reason"), ("error_apart", 0, "")],
    ),
    Row(
        id="Q65 base_resp alone, with its status as text",
        came=[sse({**HEAD, "choices": None, "base_resp": {"status_code": "1004"}}), DONE],
        sent=[sse({"error": {"message": "the upstream failed", "type": "upstream_error", "code": "1004"}})],
        finish=(),
        ending="upstream_error",
        ledger=[("done_withheld", 1, ""), ("error_shape", 0, "")],
    ),
]

USAGE = [
    Row(
        id="Q66 a usage chunk of its own that was not asked for: withheld, the fold has it",
        came=[HI, finish(), usage(**COUNTS), DONE],
        sent=[0, 1, 3],
        text="hi",
        usage=COUNTS,
        ledger=[("usage_not_asked", 2, "")],
    ),
    Row(
        id="Q66 a usage chunk of its own that was asked for: the very bytes pass, once, the last one",
        came=[HI, finish(), usage(total_tokens=1), usage(**COUNTS), DONE],
        sent=[0, 1, 3, 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_repeated", 2, "")],
    ),
    Row(
        id="Q67 usage on the chunk of the finish stays, asked for or not",
        came=[HI, frame({}, "stop", usage=COUNTS), DONE],
        text="hi",
        usage=COUNTS,
    ),
    Row(
        id="Q68 usage on a further chunk with a choice stays there",
        came=[HI, finish(), frame({"role": "assistant", "content": ""}, None, usage=COUNTS), DONE],
        sent=[0, 1, frame({"content": ""}, None, usage=COUNTS), 3],
        text="hi",
        usage=COUNTS,
        ledger=[("role_repeated", 2, "delta.role")],
    ),
    Row(
        id="Q68 an empty chunk after the one with usage goes out before it",
        came=[HI, finish(), frame({}, None, usage=COUNTS), frame({}), DONE],
        sent=[0, 1, 3, 2, 4],
        text="hi",
        usage=COUNTS,
    ),
    Row(
        id="Q68 usage on the finish, again on a chunk with a choice, and again on its own: once",
        came=[HI, frame({}, "stop", usage=COUNTS), frame({}, None, usage=COUNTS), usage(**COUNTS), DONE],
        sent=[0, 1, 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_repeated", 2, ""), ("usage_repeated", 3, "")],
    ),
    Row(
        id="Q68 usage on the finish and again on a chunk with text: the text passes",
        came=[HI, frame({}, "stop", usage=COUNTS), frame({"content": "!"}, None, usage=COUNTS), DONE],
        sent=[0, 1, text("!"), 3],
        text="hi!",
        usage=COUNTS,
        flags=("late_delta",),
        ledger=[("late_delta", 2, ""), ("usage_repeated", 2, "usage")],
    ),
    Row(
        id="Q69 usage so far on every chunk: once, at the end; the fold takes the last and never a sum",
        came=[
            frame({"role": "assistant", "content": "h"}, None, usage={"total_tokens": 1}),
            frame({"content": "i"}, None, usage={"total_tokens": 2}),
            frame({}, "stop", usage={"total_tokens": 2}),
            frame({}, None, usage=COUNTS),
            DONE,
        ],
        sent=[text("h", role=True), text("i"), finish(), 3, 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_apart", frame, "usage") for frame in range(3)],
    ),
    Row(
        id="Q69 usage so far on every chunk but the finish: the last, after it, as it was asked for",
        came=[
            frame({"role": "assistant", "content": "h"}, None, usage={"total_tokens": 1}),
            frame({"content": "i"}, None, usage=COUNTS),
            finish(),
            DONE,
        ],
        sent=[text("h", role=True), text("i"), 2, usage(**COUNTS), 3],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_apart", 0, "usage"), ("usage_apart", 1, "usage"), ("usage_apart", 1, "")],
    ),
    Row(
        id="Q69 usage on a chunk before the finish, not asked for: with an empty delta, so that choices[0] is there",
        came=[frame({"role": "assistant", "content": "hi"}, None, usage=COUNTS), finish(), DONE],
        sent=[HI, 1, frame({}, None, usage=COUNTS), 2],
        text="hi",
        usage=COUNTS,
        ledger=[("usage_apart", 0, "usage"), ("usage_apart", 0, "")],
    ),
    Row(
        id="Q69 usage of its own in the middle and with the finish: the last",
        came=[HI, usage(total_tokens=1), frame({}, "stop", usage=COUNTS), DONE],
        sent=[0, finish(), usage(**COUNTS), 3],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_repeated", 1, ""), ("usage_apart", 2, "usage"), ("usage_apart", 2, "")],
    ),
    Row(
        id="Q69 usage with the finish of one answer of two: after the other's",
        came=[
            text("a", role=True),
            frame({}, "stop", usage={"total_tokens": 1}),
            text("b", role=True, index=1),
            finish("stop", 1),
            DONE,
        ],
        sent=[0, finish(), 2, 3, usage(total_tokens=1), 4],
        request={**ASKED_FOR_USAGE, "n": 2},
        text="ab",
        finish=("stop", "stop"),
        usage={"total_tokens": 1},
        ledger=[("usage_apart", 1, "usage"), ("usage_apart", 1, "")],
    ),
    Row(
        id="Q69 usage with the finish of each parallel call: once, at the end",
        came=[
            after(
                WHOLE, (b'"finish_reason":null', b'"finish_reason":"tool_calls"'), (b"}]}\n", b'}],"usage":{"n":1}}\n')
            ),
            after(
                begin("b", "g", "{}", 1),
                (b'"finish_reason":null', b'"finish_reason":"tool_calls"'),
                (b"}]}\n", b'}],"usage":{"n":2}}\n'),
            ),
            DONE,
        ],
        sent=[
            after(WHOLE, (b'"finish_reason":null', b'"finish_reason":"tool_calls"')),
            begin("b", "g", "{}", 1),
            usage(n=2),
            2,
        ],
        request=ASKED_FOR_USAGE,
        calls=[F, ("b", "g", "{}", "running")],
        usage={"n": 2},
        ledger=[
            ("usage_apart", 0, "usage"),
            ("finish_repeated", 1, "choice.finish_reason"),
            ("usage_apart", 1, "usage"),
            ("usage_apart", 1, ""),
        ],
    ),
    Row(
        id="Q70 usage of nothing but zeros says nothing, before the counts or after them",
        came=[HI, frame({}, "stop", usage=ZEROS), usage(**COUNTS), usage(**ZEROS), DONE],
        sent=[0, 1, 2, 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_repeated", 3, "")],
    ),
    Row(
        id="Q70 zeros after usage on the finish are not sent",
        came=[HI, frame({}, "stop", usage=COUNTS), frame({}, None, usage=ZEROS), usage(**ZEROS), DONE],
        sent=[0, 1, 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("usage_repeated", 2, ""), ("usage_repeated", 3, "")],
    ),
    Row(
        id="Q70 usage null on all chunks but the last stays as it came",
        came=[
            frame({"role": "assistant", "content": "hi"}, None, usage=None),
            frame({}, "stop", usage=COUNTS),
            frame({}, None, usage=None),
            DONE,
        ],
        text="hi",
        usage=COUNTS,
    ),
    Row(
        id="Q71 no usage where none came, though it was asked for",
        came=[HI, finish(), DONE],
        request=ASKED_FOR_USAGE,
        text="hi",
    ),
    Row(
        id="Q72 usage without a choices member is not lost; junk for usage is nothing",
        came=[HI, finish(), sse({**HEAD, "choices": [], "usage": [1]}), sse({**HEAD, "usage": COUNTS}), DONE],
        sent=[0, 1, sse({"choices": [], **HEAD, "usage": COUNTS}), 4],
        request=ASKED_FOR_USAGE,
        text="hi",
        usage=COUNTS,
        ledger=[("choiceless", 2, ""), ("choices_null", 3, "choices")],
    ),
]

ROWS = [*FINISH, *ENVELOPE, *USAGE]
