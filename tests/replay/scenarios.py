"""Seven scenarios for Wiretape and its peers: what an upstream sends, when, and how it ends."""

from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import as_object, dumps, parse
from wiretape.replay.playback.script import EVENT_STREAM, Fault, Request, Script, Step, json_answer

__all__ = ["BODY", "COOKIE", "KEY", "PASTED", "SCENARIOS", "Scenario", "body_of", "chosen"]

#: Secrets that must not be in a recording: the caller's key, the upstream's cookie, a pasted key.
KEY: Final = "sk-canary-of-the-caller-4f1c9a7e2b6d8035"
COOKIE: Final = "session-canary-7d1e0b93c5a24f68"
PASTED: Final = "sk-proj-canaryPastedIntoAPrompt0123456789abcdefABCDEF"

_HEADERS: Final = (*EVENT_STREAM, (b"Set-Cookie", b"sid=" + COOKIE.encode()))


class Scenario(NamedTuple):
    """`ending` is the ending on the tape, `heard` the ending at a client on a socket."""

    says: str
    script: Script
    ending: str
    heard: str
    tools: tuple[Mapping[str, Any], ...] = ()


def _frame(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    choice = {"index": 0, "delta": dict(delta), "logprobs": None, "finish_reason": finish}
    head = {"id": "chatcmpl-9f3a", "object": "chat.completion.chunk", "created": 1_794_000_000, "model": "scripted-1"}
    return b"data: %b\n\n" % dumps({**head, "system_fingerprint": "fp_1d2c", "choices": [choice], **more})


def _text(content: str, **more: Any) -> bytes:
    return _frame({"content": content}, **more)


def _call(index: int, arguments: str, name: str = "", **more: Any) -> bytes:
    first = {"id": f"call_{index}", "type": "function"} if name else {}
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return _frame({"tool_calls": [{"index": index, **first, "function": function, **more}]})


_ROLE: Final = _frame({"role": "assistant", "content": "", "refusal": None})
_DONE: Final = b"data: [DONE]\n\n"
_USAGE: Final = _frame({}, usage={"prompt_tokens": 9, "completion_tokens": 7, "total_tokens": 16}).replace(
    b'"choices":[{"index":0,"delta":{},"logprobs":null,"finish_reason":null}]', b'"choices":[]'
)


def _stream(*said: tuple[float, bytes | Fault]) -> Script:
    """Return an event stream; each step has its delay in milliseconds."""
    return Script(headers=_HEADERS, steps=[Step(ms / 1_000, what) for ms, what in said])


def _split(frame: bytes, character: str) -> tuple[bytes, bytes]:
    """Cut a frame inside this character."""
    at = frame.index(character.encode()) + 1
    return frame[:at], frame[at:]


def _text_script() -> Script:
    first, rest = _split(_text("Grüße aus 東"), "東")
    return _stream(
        (5, _ROLE),
        (405, _text("Hello, ", obfuscation="x7Kq", vendor={"unknown": [1, 2.50]})),
        (30, first),
        (20, rest),
        (60, b": still processing\n\n"),
        (110, _text("two ") + _text("frames ")),
        (45, _text("in one read 🐍")),
        (80, _frame({}, "stop")),
        (15, _USAGE + _DONE),
    )


def _tool_script() -> Script:
    return _stream(
        (5, _ROLE),
        (90, _frame({"reasoning_content": "Two towns, "})),
        (40, _frame({"reasoning_content": "two calls."})),
        (70, _call(0, "", "get_weather", extra_content={"google": {"thought_signature": "c2ln"}})),
        (25, _call(0, '{"city":"Pa')),
        (25, _call(0, 'ris"}')),
        (35, _call(1, "", "get_weather")),
        (25, _call(1, '{"city":"東京"}')),
        (30, _frame({}, "tool_calls")),
        (10, _DONE),
    )


def _cut_script(*end: tuple[float, Fault]) -> Script:
    return _stream(
        (5, _ROLE),
        (60, _text("I write it down. ")),
        (50, _call(0, "", "write_file")),
        (30, _call(0, '{"path":"notes.md","content":"# Things')),
        (40, _call(0, " to remember\\n- the ups")),
        *end,
    )


_ERROR: Final = b'data: {"error":{"message":"the engine is overloaded","type":"server_error","code":"overloaded"}}\n\n'
_TOOL: Final = {
    "type": "function",
    "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
_SLOW_DOWN: Final = b'{"error":{"message":"slow down","type":"rate_limit_error","code":"rate_limit"}}'
_LIMITED: Final = Script(
    status=429,
    headers=(
        (b"Content-Type", b"application/json"),
        (b"Retry-After", b"7"),
        (b"Set-Cookie", b"sid=" + COOKIE.encode()),
        (b"Content-Length", b"%d" % len(_SLOW_DOWN)),
    ),
    steps=[Step(0.02, _SLOW_DOWN)],
)

SCENARIOS: Final[Mapping[str, Scenario]] = MappingProxyType({
    "text": Scenario(
        "text; reads that end inside a character, or hold two frames", _text_script(), "completed",
        "ended"),
    "tool": Scenario("two calls, reasoning, `extra_content`", _tool_script(), "completed", "ended", (_TOOL,)),
    "cut": Scenario("a reset inside a call's arguments", _cut_script((80, Fault.RESET)), "reset", "reset", (_TOOL,)),
    "eof": Scenario("a proper end inside a call's arguments", _cut_script(), "truncated", "ended", (_TOOL,)),
    "errframe": Scenario(
        "status 200, then an error frame", _stream((5, _ROLE), (60, _text("Let me ")), (40, _ERROR)), "upstream_error",
        "ended",
    ),
    "stall": Scenario(
        "four seconds of silence in the middle",
        _stream((5, _ROLE), (40, _text("wait ")), (4_000, _text("for it")), (30, _frame({}, "stop") + _DONE)),
        "completed",
        "ended",
    ),
    "rate": Scenario("429 with `Retry-After: 7`", _LIMITED, "upstream_error", "ended"),
})  # fmt: skip


def body_of(name: str, *, pasted: bool = False) -> bytes:
    """Return the request of a scenario, with words and a model of its own."""
    prompt = f"The scenario called {name}." + (f" My key is {PASTED}, keep it secret." if pasted else "")
    body = {"model": f"scripted-{name}", "stream": True, "messages": [{"role": "user", "content": prompt}]}
    tools = SCENARIOS[name].tools
    return dumps({**body, "tools": list(tools)} if tools else body)


BODY: Final = MappingProxyType({name: body_of(name) for name in SCENARIOS})


def chosen(request: Request) -> Script:
    """Return the script of the scenario that a request names."""
    asked: dict[str, Any] = as_object(parse(request.body)) if request.body else {}
    name = str(asked.get("model")).removeprefix("scripted-")
    return SCENARIOS[name].script if name in SCENARIOS else json_answer(b'{"object":"list","data":[]}')


def _checked() -> None:
    """Check that no two pieces come so close that a socket would join them."""
    for scenario in SCENARIOS.values():
        for _, after in pairwise(scenario.script.steps):
            assert after.delay_s >= 0.01


_checked()
