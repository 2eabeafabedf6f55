"""Generated chat streams (synthetic): all that a stream may hold, in orders that no provider has thought of yet."""

import json
from typing import Any

from hypothesis import strategies as st

from tests.support.chat import DONE, call, finish, frame, sse, text

__all__ = ["agent_streams", "streams", "tool_streams"]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
_NAMES = st.sampled_from(["write_file", "read", "_internal", "get_weather"])
_JSON: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_TEXT, inner, max_size=3),
    max_leaves=5,
)
_ARGUMENTS = st.dictionaries(_TEXT, _JSON, max_size=3).map(json.dumps) | st.sampled_from(
    ["", "{}", "{", '{"a":', "null"]
)


@st.composite
def _tool_call(draw: st.DrawFn, number: int, *, custom: bool = True) -> list[bytes]:
    """One call in pieces; its arguments may be no JSON at all."""
    arguments, name = draw(_ARGUMENTS), draw(_NAMES)
    cuts = sorted(draw(st.lists(st.integers(0, len(arguments)), max_size=3)))
    pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
    if custom and draw(st.sampled_from([False, False, False, True])):
        named = {"name": name, "input": pieces[0]}
        first = call(index=number, id=f"call_{number}", type="custom", custom=named)
        return [first, *(call(index=number, custom={"input": piece}) for piece in pieces[1:])]
    first = call(index=number, id=f"call_{number}", type="function", name=name, arguments=pieces[0])
    return [first, *(call(index=number, arguments=piece) for piece in pieces[1:])]


_WHOLE = {"index": 5, "id": "w", "type": "function", "function": {"name": "whole", "arguments": "{}"}}


def _progress(status: str, call_id: str = "ran", tool: str = "terminal", **more: Any) -> bytes:
    """A frame of hermes-agent about a tool that it runs."""
    said = json.dumps({"tool": tool, **more, "toolCallId": call_id, "status": status})
    return b"event: hermes.tool.progress\ndata: %b\n\n" % said.encode()


_ACCOUNT = {"completed": False, "partial": True, "error": "truncated", "error_code": "output_truncated"}
_AGENT = [
    _progress("running", emoji="💻", label="ls"),
    _progress("completed"),
    _progress("failed"),
    _progress("running", "call_0", n=123456789012345678901),
    _progress("completed", "call_0"),
    _progress("running", "inner", "_thinking"),
    _progress("completed", "inner", "_thinking"),
    _progress("waiting"),
    text("\n\n⚠ Connection dropped mid tool-call; reconnecting…\n\n"),
    text("It is so."),
    text("It is so."),
    frame({}, "length", error={"message": "truncated", "type": "agent_error"}, hermes=_ACCOUNT, usage={"n": 1}),
    frame({}, "error", error={"message": "broke", "type": "agent_error"}, hermes=_ACCOUNT, usage={"n": 1}),
    frame({}, "error", hermes=_ACCOUNT),
]
_NOISE = st.sampled_from(
    [
        *_AGENT,
        b": keepalive\n\n",
        b"data: \n\n",
        b"data: [DATA]\n\n",
        b"event: ping\n\n",
        b"retry: 10\n\n",
        b'event: hermes.tool.progress\ndata: {"tool":"x","status":"running"}\n\n',
        sse({"choices": [], "prompt_filter_results": []}),
        sse({"id": "chatcmpl-1", "choices": [], "usage": {"total_tokens": 3}}),
        sse({"error": {"message": "overloaded", "code": 529}}),
        sse({"id": "other", "created": 9.5, "choices": [{"delta": {"role": "assistant", "content": 5}}]}),
        b"data: {\ndata: }\n\n",
        b"\xff\xfe\n\n",
        b'data: {"choices":[{"index":0,"delta":{"content":"\xff"},"finish_reason":null}]}\n\n',
        frame({"content": "cited"}, citations=["a"]),
        frame({"role": "assistant", "content": "cited"}, citations=["a"]),
        frame({"content": "x", "annotations": [{"url": "u"}]}),
        frame({"function_call": {"name": "old", "arguments": '{"a":'}}),
        frame({"function_call": {"arguments": "1}"}}),
        call(index=0, id="seed", type="function", name="seeded", arguments="{}"),
        call(index=0, arguments='{"late":1}'),
        call(index=0, id="two", type="function", name="twice", arguments='{"a":1}{"b":2}'),
        call(index=7, id="later"),
        frame({"content": "b", "role": "assistant"}, None, 1),
        frame({}, "stop", 1),
        sse({"choices": [{"index": 0, "delta": {"content": "p"}}, {"index": 0, "delta": {"tool_calls": [_WHOLE]}}]}),
        sse(
            {
                "object": "chat.completion",
                "choices": [{"index": 0, "message": {"content": "whole"}, "finish_reason": "stop"}],
            }
        ),
        b'error: {"message":"field"}\n\n',
        b'{"error":{"message":"bare"}}\n\n',
    ]
)
_ENDS = st.sampled_from(
    [
        [],
        [DONE],
        [finish("stop")],
        [finish("stop"), DONE],
        [finish("tool_calls"), DONE],
        [finish("tool_calls"), sse({"choices": [], "usage": {"total_tokens": 9}}), DONE],
        [finish("length"), DONE],
        [finish("content_filter")],
        [finish("error")],
        [finish("stop"), finish("stop"), DONE, DONE],
        [DONE, text("late")],
        [b"data: [DONE]"],
    ]
)


@st.composite
def streams(
    draw: st.DrawFn,
    calls: st.SearchStrategy[int] = st.integers(0, 3),  # noqa: B008
    noise: int = 4,
    *,
    custom: bool = True,
) -> bytes:
    """Text, thoughts, calls and noise in any order, then any end."""
    parts: list[list[bytes]] = [[frame({"role": "assistant", "content": ""})]] if draw(st.booleans()) else []
    body: list[list[bytes]] = [[text(piece)] for piece in draw(st.lists(_TEXT, max_size=4))]
    body += [[frame({"reasoning": piece})] for piece in draw(st.lists(_TEXT, max_size=2))]
    body += [draw(_tool_call(number, custom=custom)) for number in range(draw(calls))]
    body += [[piece] for piece in draw(st.lists(_NOISE, max_size=noise))]
    parts += draw(st.permutations(body))
    return b"".join(piece for part in [*parts, draw(_ENDS)] for piece in part)


@st.composite
def agent_streams(draw: st.DrawFn) -> bytes:
    """What hermes-agent may send: text, calls perhaps, and its own frames about tools in any order, then any end."""
    body: list[list[bytes]] = [[text(piece)] for piece in draw(st.lists(_TEXT, max_size=3))]
    body += [draw(_tool_call(number)) for number in range(draw(st.integers(0, 1)))]
    body += [[piece] for piece in draw(st.lists(st.sampled_from(_AGENT), min_size=1, max_size=8))]
    parts = [[frame({"role": "assistant"})], *draw(st.permutations(body)), draw(_ENDS)]
    return b"".join(piece for part in parts for piece in part)


def tool_streams() -> st.SearchStrategy[bytes]:
    """At least one call, no noise."""
    return streams(calls=st.integers(1, 3), noise=0)
