"""What the scripted provider says: a text, a call, and one of the ways in which a stream ends inside that call.

Which of them is said in the name of the model, because that is the one thing that every client lets one choose.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import trio

from wiretape.replay.playback.script import Fault, Request, Script, Step, json_answer

__all__ = ["CUTS", "ENDINGS", "TURNS", "Model", "Provider", "arguments_of"]

#: The text before the call, and after its result.
_BEFORE: Final = "Rain or sun? 😀 "
_AFTER: Final = "It is 18 degrees, say the people of a small café."

ENDINGS: Final[Mapping[str, str]] = {
    "clean": "an orderly end of the body, without a finish and without `[DONE]`",
    "done": "`[DONE]` without a finish",
    "reset": "a reset of the connection",
    "stall": "nothing more, on an open connection",
    "error": "an error frame",
    "server_error": "an error frame that calls itself a server error, after which clients are wont to ask again",
    "length": "the finish `length`, as a provider says it that has reached its limit",
}

CUTS: Final[Mapping[str, str]] = {
    "bare": "no text before the call, and not one byte of arguments",
    "half": "in the middle of a value",
    "member": "after a whole member: only a brace seems to lack",
}

#: What is said whole, for the lifecycle.
TURNS: Final[Mapping[str, str]] = {"one": "one call", "two": "two parallel calls of one tool"}

#: The tools that clients have, and with what they are called. The second member never arrives in a stream that is cut.
_CALLS: Final[Mapping[str, Mapping[str, Any]]] = {
    "get_weather": {"city": "Paris", "days": 3},
    "bash": {"command": "./record Paris 3", "description": "Prints the weather"},
    "terminal": {"command": "./record Paris 3", "timeout": 60},
}

#: So that what was written has been read before a reset or an end takes it away.
_GAP_S: Final = 0.01
_LAST_GAP_S: Final = 0.06


@dataclass(frozen=True, slots=True)
class Model:
    """One script: how it ends, where it is cut, which tool it calls, how often at once; and a number of its own."""

    ending: str
    cut: str
    tool: str
    number: int

    @property
    def name(self) -> str:
        """For the client."""
        return f"{self.ending}-{self.cut}-{self.tool}-{self.number}"

    @classmethod
    def named(cls, name: str) -> "Model | None":
        """What a name says, or None for another model."""
        parts = name.rpartition("/")[2].split("-")
        return cls(parts[0], parts[1], parts[2], int(parts[3])) if len(parts) == 4 else None


class Provider:
    """Responds by the model's name, always the same, and counts the requests."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self._first: defaultdict[str, trio.Event] = defaultdict(trio.Event)

    def first(self, name: str) -> trio.Event:
        """Set by the first request for this model."""
        return self._first[name]

    def __call__(self, request: Request) -> Script:
        """A stream, or for who wants none the same call whole."""
        if not request.target.endswith(b"/chat/completions"):
            return json_answer(b'{"object":"list","data":[]}', 200 if request.target.endswith(b"/models") else 404)
        body: dict[str, Any] = json.loads(request.body)
        model = Model.named(body["model"])
        if model is None or not body.get("tools"):
            return _stream(body, _frames(body, [*_text("A title"), _finish("stop")]))  # requested for the title
        self.asked[model.name] += 1
        self._first[model.name].set()
        if body["messages"][-1]["role"] == "tool":
            return _stream(body, _frames(body, [*_text(_AFTER), _finish("stop")]))
        return _stream(body, list(_turn(body, model)), _FAULTS.get(model.ending))


_ERRORS: Final = {
    "error": {"message": "The model has stopped in the middle of its answer", "type": "api_error"},
    "server_error": {"message": "The server had an error while processing your request", "type": "server_error"},
}
_FAULTS: Final = {"reset": Fault.RESET, "stall": Fault.STALL}


def _turn(body: Mapping[str, Any], model: Model) -> Iterator[bytes]:
    """The turn with the call."""
    said = [] if model.cut == "bare" else list(_text(_BEFORE))
    for index in range(2 if model.cut == "two" else 1):
        said += _call(index, model.tool, _arguments(model.tool, index, model.cut))
    if model.ending == "whole":
        yield from _frames(body, [*said, _finish("tool_calls")])
        return
    if model.ending == "length":
        yield from _frames(body, [*said, _finish("length")])
        return
    yield from _payloads(body, said)
    if model.ending == "done":
        yield b"data: [DONE]\n\n"
    elif model.ending in _ERRORS:
        yield _data({"error": _ERRORS[model.ending] | {"param": None, "code": None}})


def arguments_of(tool: str, index: int) -> dict[str, Any]:
    """Return the arguments of one of the parallel calls; some clients merge equal ones."""
    said = json.dumps(_CALLS[tool])
    whole: dict[str, Any] = json.loads(said.replace("Paris", "Lyon") if index else said)
    return whole


def _arguments(tool: str, index: int, cut: str) -> str:
    arguments = arguments_of(tool, index)
    whole, first = json.dumps(arguments), json.dumps(next(iter(arguments.values())))
    ends = {"bare": 0, "half": whole.index(first) + len(first) - 3, "member": whole.index(first) + len(first)}
    return whole[: ends.get(cut, len(whole))]


def _text(text: str) -> Iterator[dict[str, Any]]:
    middle = len(text) // 2
    for piece in (text[:middle], text[middle:]):
        yield {"delta": {"content": piece}}


def _call(index: int, tool: str, arguments: str) -> Iterator[dict[str, Any]]:
    function = {"name": tool, "arguments": ""}
    yield {
        "delta": {"tool_calls": [{"index": index, "id": f"call_of_{index}", "type": "function", "function": function}]}
    }
    for at in range(0, len(arguments), 11):
        yield {"delta": {"tool_calls": [{"index": index, "function": {"arguments": arguments[at : at + 11]}}]}}


def _finish(reason: str) -> dict[str, Any]:
    return {"delta": {}, "finish_reason": reason}


def _frames(body: Mapping[str, Any], said: Sequence[dict[str, Any]]) -> list[bytes]:
    """With the proper end."""
    frames = list(_payloads(body, said))
    options: dict[str, Any] = body.get("stream_options") or {}
    if options.get("include_usage"):
        usage = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}
        frames.append(_data(_envelope(body) | {"choices": [], "usage": usage}))
    return [*frames, b"data: [DONE]\n\n"]


def _payloads(body: Mapping[str, Any], said: Sequence[dict[str, Any]]) -> Iterator[bytes]:
    role: dict[str, Any] = {"delta": {"role": "assistant", "content": ""}}
    for each in (role, *said):
        choice: dict[str, Any] = {"index": 0, "finish_reason": None}
        yield _data(_envelope(body) | {"choices": [choice | each]})


def _envelope(body: Mapping[str, Any]) -> dict[str, Any]:
    return {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": body["model"]}


def _data(payload: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def _stream(body: Mapping[str, Any], frames: Sequence[bytes], fault: Fault | None = None) -> Script:
    if not body.get("stream"):
        return json_answer(_whole(body, frames))
    steps = [Step(_GAP_S, frame) for frame in frames]
    if fault is not None:
        steps.append(Step(_LAST_GAP_S, fault))
    return Script(steps=steps)


def _whole(body: Mapping[str, Any], frames: Sequence[bytes]) -> bytes:
    """The same text for who wants no stream; nothing is called there, because a call that came whole proves nothing."""
    chunks = [json.loads(frame[6:]) for frame in frames if frame.startswith(b'data: {"id"')]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}
    whole = _envelope(body) | {"object": "chat.completion", "choices": [choice], "usage": usage}
    return json.dumps(whole, ensure_ascii=False).encode()
