"""The scripted model of hermes-agent; the user's words choose its response."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from wiretape.replay.playback.script import Fault, Request, Script, Step, json_answer

__all__ = ["SCENARIOS", "Model", "Scenario"]

_BEFORE: Final = "Let me look. "
_AFTER: Final = "It is 18 degrees, say the people of a small café 😀."
#: Its own words, between two streams of its model.
_AGAIN: Final = "\n\n⚠ Connection dropped mid tool-call; reconnecting…\n\n"
_COMMAND: Final = json.dumps({"command": "echo 18 degrees"})
_BROKE: Final = "the model broke"

#: So that what was written has been read before the cut.
_GAP_S: Final = 0.02
_SAID: Final = re.compile(r"\[(\w+) (\d+)\]")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One way in which an answer of the agent goes."""

    name: str
    says: str
    #: What a client must end up with.
    text: str
    #: The upstream's finish reason; if it is empty, the client must see an error with these words.
    finish: str = "stop"
    error: str = ""
    #: What else the tape must contain.
    flags: frozenset[str] = frozenset()
    #: What a reader of lifecycle frames must see.
    shown: tuple[str, ...] = ()


SCENARIOS: Final = (
    Scenario(name="text", says="an answer in text", text=_AFTER),
    Scenario(
        name="tool",
        says="a text, a tool that the agent runs, and the answer to that",
        text=f"{_BEFORE}\n\n{_AFTER}",
        shown=("running", "completed"),
    ),
    Scenario(
        name="again",
        says="the same, and the first stream of its model breaks inside the call: it asks again",
        text=f"{_BEFORE}{_AGAIN}{_BEFORE}\n\n{_AFTER}",
        flags=frozenset({"text_repeated"}),
        shown=("running", "completed"),
    ),
    Scenario(
        name="length",
        says="its model ends by length, also when asked to go on",
        text=_BEFORE * 4,
        finish="length",
        flags=frozenset({"text_repeated", "output_truncated"}),
    ),
    Scenario(
        name="breaks",
        says="a text, a tool, and then its model refuses",
        text=_BEFORE,
        finish="",
        error=_BROKE,
        shown=("running", "completed"),
    ),
    Scenario(name="refuses", says="its model refuses at once", text="", finish="", error=_BROKE),
)


class Model:
    """Answers every request of the agent; how often it was asked for one prompt decides about `again`."""

    def __init__(self) -> None:
        self._asked: Counter[str] = Counter()

    def __call__(self, request: Request) -> Script:
        """Return a stream, or a title if the agent asks for one."""
        if not request.target.endswith(b"/chat/completions"):
            return json_answer(b'{"object":"list","data":[{"id":"scripted","object":"model"}]}')
        body: dict[str, Any] = json.loads(request.body)
        found = _SAID.search(json.dumps([one for one in body["messages"] if one["role"] == "user"]))
        if found is None or not body.get("tools") or not body.get("stream"):
            message = {"role": "assistant", "content": "A title"}
            choice = {"index": 0, "message": message, "finish_reason": "stop"}
            return json_answer(json.dumps(_envelope() | {"object": "chat.completion", "choices": [choice]}).encode())
        self._asked[found[0]] += 1
        results = any(one["role"] == "tool" for one in body["messages"])
        return _answer(found[1], first=self._asked[found[0]] == 1, results=results)


def _answer(scenario: str, *, first: bool, results: bool) -> Script:
    if scenario == "refuses" or (scenario == "breaks" and results):
        return json_answer(json.dumps({"error": {"message": _BROKE, "type": "invalid_request_error"}}).encode(), 400)
    if scenario == "text" or results:
        return _stream([*_text(_AFTER), _finish("stop")])
    if scenario == "length":
        return _stream([*_text(_BEFORE), _finish("length")])
    if scenario == "again" and first:
        return _stream([*_text(_BEFORE), *list(_call())[:-1]], Fault.CUT)
    return _stream([*_text(_BEFORE), *_call(), _finish("tool_calls")])


def _text(text: str) -> Iterator[dict[str, Any]]:
    for at in range(0, len(text), 9):
        yield {"delta": {"content": text[at : at + 9]}}


def _call() -> Iterator[dict[str, Any]]:
    """Its id is the same in every turn, as some providers have it."""
    function = {"name": "terminal", "arguments": ""}
    yield {"delta": {"tool_calls": [{"index": 0, "id": "call_0", "type": "function", "function": function}]}}
    for at in range(0, len(_COMMAND), 12):
        yield {"delta": {"tool_calls": [{"index": 0, "function": {"arguments": _COMMAND[at : at + 12]}}]}}


def _finish(reason: str) -> dict[str, Any]:
    return {"delta": {}, "finish_reason": reason}


def _envelope() -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": "scripted"}


def _stream(said: Sequence[Mapping[str, Any]], fault: Fault | None = None) -> Script:
    role: Mapping[str, Any] = {"delta": {"role": "assistant", "content": ""}}
    choices = [[{"index": 0, "finish_reason": None, **each}] for each in (role, *said)]
    frames = [b"data: %b\n\n" % json.dumps(_envelope() | {"choices": choice}).encode() for choice in choices]
    usage = {"prompt_tokens": 9, "completion_tokens": 5, "total_tokens": 14}
    ends = [b"data: %b\n\n" % json.dumps(_envelope() | {"choices": [], "usage": usage}).encode(), b"data: [DONE]\n\n"]
    steps = [Step(_GAP_S, frame) for frame in (*frames, *([] if fault else ends))]
    return Script(steps=[*steps, Step(_GAP_S, fault)] if fault else steps)
