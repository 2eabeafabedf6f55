"""Streams made by hand (synthetic), one for each way in which an SDK stumbles over what upstreams send."""

from typing import Final, NamedTuple

from tests.support.chat import DONE, call, chunk, finish, frame, sse, text


class Synthetic(NamedTuple):
    """`damage` is what the Python SDK makes of the frames without repairs, empty if they need no repair."""

    upstream: list[bytes]
    damage: str = ""


_USAGE: Final = {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8, "vendor": {"cost": "0.1"}}
_OPEN: Final = [
    call(role=True, index=0, id="call_a", type="function", name="get_weather", arguments=""),
    call(index=0, arguments='{"city":'),
]
_CLOSED: Final = [call(index=0, arguments='"Paris"}')]

STREAMS: Final = {
    "canonical text": Synthetic([text("Hel", role=True), text("lo ☀"), finish(), DONE]),
    "canonical call": Synthetic([*_OPEN, *_CLOSED, finish("tool_calls"), DONE]),
    "role on every chunk": Synthetic([text("a", role=True), text("b", role=True), finish(), DONE], "role"),
    "no role at all": Synthetic([text("a"), text("b"), finish(), DONE], "role"),
    "usage chunk without choices": Synthetic(
        [text("a", role=True), finish(), sse({"choices": [], "usage": _USAGE}), DONE], "the plain loop: IndexError"
    ),
    "usage on the finish chunk": Synthetic([text("a", role=True), frame({}, "stop", usage=_USAGE), DONE]),
    "filter results before the first choice": Synthetic(
        [sse({"choices": [], "prompt_filter_results": []}), text("a", role=True), finish(), DONE],
        "the plain loop: IndexError",
    ),
    "choice without delta": Synthetic(
        [text("a", role=True), sse({"choices": [{"index": 0, "finish_reason": "stop"}]}), DONE],
        "the plain loop: AttributeError",
    ),
    "id and name on every delta of a call": Synthetic(
        [
            call(role=True, index=0, id="call_a", type="function", name="get_weather", arguments='{"a":'),
            call(index=0, id="call_a", name="get_weather", arguments="1}"),
            finish("tool_calls"),
            DONE,
        ],
        "doubled",
    ),
    "call without index": Synthetic(
        [
            call(role=True, id="call_a", name="get_weather", arguments='{"a":'),
            call(arguments="1}"),
            finish("tool_calls"),
            DONE,
        ],
        "the helper: TypeError",
    ),
    "first call at index 1": Synthetic(
        [
            text("a", role=True),
            call(index=1, id="call_a", type="function", name="f", arguments="{}"),
            finish("tool_calls"),
            DONE,
        ],
        "the helper: IndexError",
    ),
    "call without type": Synthetic(
        [call(role=True, index=0, id="call_a", name="f", arguments="{}"), finish("tool_calls"), DONE], "types"
    ),
    "parallel calls, all at index 0": Synthetic(
        [
            call(role=True, index=0, id="call_a", type="function", name="f", arguments="{}"),
            call(index=0, id="call_b", type="function", name="g", arguments="{}"),
            finish("tool_calls"),
            DONE,
        ],
        "calls",
    ),
    "arguments null": Synthetic(
        [
            call(role=True, index=0, id="call_a", type="function", name="f", arguments=None),
            call(index=0, arguments="{}"),
            finish("tool_calls"),
            DONE,
        ]
    ),
    "no arguments at all": Synthetic(
        [call(role=True, index=0, id="call_a", type="function", name="f", arguments=""), finish("tool_calls"), DONE],
        "calls",
    ),
    "stop although a call was made": Synthetic([*_OPEN, *_CLOSED, finish(), DONE], "finish"),
    "finish never given": Synthetic([*_OPEN, *_CLOSED, DONE], "finish"),
    "finish given twice": Synthetic([text("a", role=True), finish(), finish("length"), DONE], "finish"),
    "thinking under another name": Synthetic(
        [frame({"role": "assistant", "reasoning": "hm"}), text("a"), finish(), DONE], "reasoning"
    ),
    "thinking as details without an index": Synthetic(
        [
            frame({"role": "assistant", "reasoning_details": [{"type": "reasoning.text", "text": "h"}]}),
            frame({"reasoning_details": [{"type": "reasoning.text", "text": "m"}], "content": "a"}),
            finish(),
            DONE,
        ],
        "the helper: RuntimeError",
    ),
    "content as a list of parts": Synthetic(
        [frame({"role": "assistant", "content": [{"type": "text", "text": "a"}]}), text("b"), finish(), DONE],
        "the helper",
    ),
    "refusal": Synthetic([frame({"role": "assistant", "refusal": "I "}), frame({"refusal": "won't"}), finish(), DONE]),
    "two choices, interleaved": Synthetic(
        [text("a", role=True), text("b", role=True, index=1), text("c"), finish(index=1), finish(), DONE]
    ),
    "function_call of old": Synthetic(
        [
            frame({"role": "assistant", "function_call": {"name": "f", "arguments": ""}}),
            frame({"function_call": {"arguments": "{}"}}),
            finish("function_call"),
            DONE,
        ]
    ),
    "an emoji split over two deltas": Synthetic(
        [
            text("a", role=True),
            sse(b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}'),
            sse(b'{"choices":[{"index":0,"delta":{"content":"\\ude00"}}]}'),
            finish(),
            DONE,
        ]
    ),
    "message beside the delta": Synthetic(  # only the SDK for Node takes it for the message
        [
            text("a", role=True),
            chunk({"index": 0, "delta": {"content": "b"}, "message": {"content": "b"}, "finish_reason": None}),
            chunk({"index": 0, "delta": {}, "message": {"content": None}, "finish_reason": "stop"}),
            DONE,
        ]
    ),
    "no terminator behind the finish": Synthetic([text("a", role=True), finish()]),
    "blocks without data": Synthetic(
        [
            b": hello\n\n",
            b"retry: 9\n\n",
            text("a", role=True),
            b"id: 7\n\n",
            b"event: ping\ndata:\n\n",
            finish(),
            DONE,
        ],
        "JSONDecodeError",
    ),
    "JSON without choices": Synthetic(
        [text("a", role=True), b'event: ping\ndata: {"type":"ping"}\n\n', finish(), DONE], "the plain loop: TypeError"
    ),
    "genuine length inside a call": Synthetic([*_OPEN, finish("length"), DONE]),
    "malformed call": Synthetic([*_OPEN, finish("tool_calls"), DONE], "malformed_call is due"),
    "cut inside a call": Synthetic([*_OPEN], "truncated is due"),
    "cut inside the text": Synthetic([text("a", role=True), text("b")], "truncated is due"),
    "error in the stream": Synthetic([text("a", role=True), sse({"error": {"message": "overloaded", "code": 529}})]),
    "error as a field that is none": Synthetic(
        [text("a", role=True), b'error: {"message":"overloaded","code":529}\n\n'], "upstream_error is due"
    ),
}
