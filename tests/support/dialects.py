"""Requests and answers written by hand, the same in three dialects: a text, then a call of `write_file`

async with house(speaking("chat")) as home:
    answered = await home.ask(ASKS["messages"], path=PATHS["messages"])
    assert said("messages", answered.body) == SAID
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import trio

from tests.proxy.scripted import chunk, request_of
from tests.support import house
from wiretape.events.core.json_text import as_list, as_object, dumps
from wiretape.events.wire.sse import Decoder

NAMES: Final = ("chat", "responses", "messages")
PATHS: Final = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
_SCHEMA: Final = {"type": "object", "properties": {"path": {"type": "string"}}}
_TOOL: Final = {"name": "write_file", "description": "Write.", "parameters": _SCHEMA}
#: The same question.
ASKS: Final[Mapping[str, dict[str, Any]]] = {
    "chat": {**house.ASKED, "tools": [{"type": "function", "function": _TOOL}]},
    "responses": {"model": "m", "stream": True, "input": "hi", "tools": [{"type": "function", **_TOOL}]},
    "messages": {
        "model": "m",
        "stream": True,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "write_file", "description": "Write.", "input_schema": _SCHEMA}],
    },
}
ARGUMENTS: Final = '{"path":"a"}'


def event(value: dict[str, Any]) -> bytes:
    """One frame with its event line."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), dumps(value))


def message_start() -> bytes:
    """The beginning of a Messages stream."""
    message: dict[str, Any] = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": []}
    counts = {"input_tokens": 3, "output_tokens": 1}
    ended = {"stop_reason": None, "stop_sequence": None, "usage": counts}
    return event({"type": "message_start", "message": {**message, **ended}})


def block_start(index: int, **block: Any) -> bytes:
    """The beginning of a block."""
    return event({"type": "content_block_start", "index": index, "content_block": block})


def block_delta(index: int, **delta: Any) -> bytes:
    """A piece of a block."""
    return event({"type": "content_block_delta", "index": index, "delta": delta})


def block_stop(index: int) -> bytes:
    """The end of a block."""
    return event({"type": "content_block_stop", "index": index})


def message_end(reason: str = "tool_use") -> list[bytes]:
    """The end of a message."""
    delta = {"stop_reason": reason, "stop_sequence": None}
    return [
        event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}}),
        event({"type": "message_stop"}),
    ]


_MESSAGE: Final[dict[str, Any]] = {"id": "msg_1", "type": "message", "status": "completed", "role": "assistant"}
_CALL: Final[dict[str, Any]] = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "write_file"}
_RESPONSE: Final[dict[str, Any]] = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "error": None}
_TEXT_PART: Final[dict[str, Any]] = {"type": "output_text", "text": "hello", "annotations": []}
OUTPUT: Final[tuple[dict[str, Any], ...]] = (
    {**_MESSAGE, "content": [_TEXT_PART]},
    {**_CALL, "status": "completed", "arguments": ARGUMENTS},
)
USAGE: Final = {
    "input_tokens": 3,
    "input_tokens_details": {"cached_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 8,
}


def response(status: str, **members: Any) -> dict[str, Any]:
    """A response object."""
    return {**_RESPONSE, "status": status, "incomplete_details": None, "output": [], "usage": None, **members}


def response_event(number: int, kind: str, **members: Any) -> bytes:
    """One event of a Responses stream."""
    return event({"type": f"response.{kind}", "sequence_number": number, **members})


def _responses() -> list[bytes]:
    at, of = {"output_index": 0, "content_index": 0}, {"item_id": "msg_1"}
    empty = {**_TEXT_PART, "text": ""}
    began: dict[str, Any] = {**_MESSAGE, "status": "in_progress", "content": []}
    call = {**_CALL, "status": "in_progress", "arguments": ""}
    made = {"item_id": "fc_1", "output_index": 1}
    return [
        response_event(0, "created", response=response("in_progress")),
        response_event(1, "in_progress", response=response("in_progress")),
        response_event(2, "output_item.added", output_index=0, item=began),
        response_event(3, "content_part.added", **at, **of, part=empty),
        response_event(4, "output_text.delta", **at, **of, delta="hel", logprobs=[]),
        response_event(5, "output_text.delta", **at, **of, delta="lo", logprobs=[]),
        response_event(6, "output_text.done", **at, **of, text="hello", logprobs=[]),
        response_event(7, "content_part.done", **at, **of, part=_TEXT_PART),
        response_event(8, "output_item.done", output_index=0, item=OUTPUT[0]),
        response_event(9, "output_item.added", output_index=1, item=call),
        response_event(10, "function_call_arguments.delta", **made, delta='{"path":'),
        response_event(11, "function_call_arguments.delta", **made, delta='"a"}'),
        response_event(12, "function_call_arguments.done", **made, name="write_file", arguments=ARGUMENTS),
        response_event(13, "output_item.done", output_index=1, item=OUTPUT[1]),
        response_event(14, "completed", response=response("completed", output=list(OUTPUT), usage=USAGE)),
    ]


#: The same answer as frames, one of the frames inside the call last before HALF.
FRAMES: Final[Mapping[str, list[bytes]]] = {
    "chat": [
        *(house.role(), house.text("hel"), house.text("lo")),
        house.frame(
            {
                "tool_calls": [
                    {
                        "index": 0,
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "write_file", "arguments": '{"path":'},
                    }
                ]
            }
        ),
        house.call('"a"}'),
        *(house.finish("tool_calls"), house.usage(), house.DONE),
    ],
    "responses": _responses(),
    "messages": [
        *(message_start(), block_start(0, type="text", text="")),
        *(block_delta(0, type="text_delta", text="hel"), block_delta(0, type="text_delta", text="lo"), block_stop(0)),
        block_start(1, type="tool_use", id="call_1", name="write_file", input={}),
        block_delta(1, type="input_json_delta", partial_json='{"path":'),
        block_delta(1, type="input_json_delta", partial_json='"a"}'),
        *(block_stop(1), *message_end()),
    ],
}
#: How many of its frames come before the end of the call's arguments.
HALF: Final = {"chat": 4, "responses": 11, "messages": 7}
#: How many come before any content.
OPENING: Final = {"chat": 1, "responses": 4, "messages": 2}
#: The same answer whole.
WHOLE: Final[Mapping[str, dict[str, Any]]] = {
    "chat": {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "finish_reason": "tool_calls",
                "message": {
                    "role": "assistant",
                    "content": "hello",
                    "tool_calls": [
                        {
                            "id": "call_1",
                            "type": "function",
                            "function": {"name": "write_file", "arguments": ARGUMENTS},
                        }
                    ],
                },
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 5, "total_tokens": 8},
    },
    "responses": response("completed", output=list(OUTPUT), usage=USAGE),
    "messages": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "stop_sequence": None,
        "content": [
            {"type": "text", "text": "hello"},
            {"type": "tool_use", "id": "call_1", "name": "write_file", "input": {"path": "a"}},
        ],
        "stop_reason": "tool_use",
        "usage": {"input_tokens": 3, "output_tokens": 5},
    },
}


class Said(NamedTuple):
    """What a client understood: text, calls with their arguments, and how it ended."""

    text: str
    calls: tuple[tuple[str, str, Any], ...]
    end: str


SAID: Final = Said("hello", (("call_1", "write_file", {"path": "a"}),), "calls")


def values_of(body: bytes) -> list[Any]:
    """The payloads of a stream, `[DONE]` as text."""
    payloads = [frame.payload for frame in Decoder().feed(body) if frame.payload is not None]
    return [payload.decode() if payload == b"[DONE]" else json.loads(payload) for payload in payloads]


def said(dialect: str, body: bytes) -> Said:
    """What a client of a dialect reads from a stream or a whole answer."""
    if body.startswith(b"{"):
        return _whole(dialect, json.loads(body))
    values = [value for value in map(as_object, values_of(body)) if value]
    return {"chat": _chat, "responses": _response, "messages": _message}[dialect](values)


def _whole(dialect: str, value: dict[str, Any]) -> Said:
    if dialect == "responses":
        return _output(value)
    if dialect == "messages":
        parts = value["content"]
        calls = tuple((part["id"], part["name"], part["input"]) for part in parts if part["type"] == "tool_use")
        text = "".join(part["text"] for part in parts if part["type"] == "text")
        return Said(text, calls, "calls" if value["stop_reason"] == "tool_use" else value["stop_reason"])
    choice = value["choices"][0]
    given = [(call["id"], call["function"]) for call in choice["message"].get("tool_calls") or ()]
    calls = tuple((key, function["name"], json.loads(function["arguments"])) for key, function in given)
    return Said(choice["message"]["content"] or "", calls, _end(choice["finish_reason"]))


def _end(reason: str) -> str:
    return "calls" if reason == "tool_calls" else reason


def _chat(values: list[dict[str, Any]]) -> Said:
    text, end, calls = "", "cut", dict[int, list[str]]()
    for choice in (choice for value in values for choice in as_list(value.get("choices"))):
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls") or ():
            entry = calls.setdefault(call["index"], [call.get("id", ""), call["function"].get("name", ""), ""])
            entry[2] += call["function"].get("arguments", "")
        end = _end(choice["finish_reason"]) if choice.get("finish_reason") else end
    end = "error" if any("error" in value for value in values) else end
    return Said(text, tuple((key, name, _json(arguments)) for key, name, arguments in calls.values()), end)


def _response(values: list[dict[str, Any]]) -> Said:
    last = values[-1]
    if last["type"] == "response.completed":
        return _output(last["response"])
    text = "".join(value["delta"] for value in values if value["type"] == "response.output_text.delta")
    done = [value["item"] for value in values if value["type"] == "response.output_item.done"]
    return Said(text, _calls(done), "error" if last["type"] == "response.failed" else last["type"])


def _output(value: dict[str, Any]) -> Said:
    output: list[dict[str, Any]] = value["output"]
    text = "".join(part["text"] for item in output if item["type"] == "message" for part in item["content"])
    calls = _calls(output)
    return Said(text, calls, "calls" if calls and value["status"] == "completed" else value["status"])


def _calls(items: Iterable[dict[str, Any]]) -> tuple[tuple[str, str, Any], ...]:
    calls = (item for item in items if item["type"] == "function_call")
    return tuple((item["call_id"], item["name"], _json(item["arguments"])) for item in calls)


def _message(values: list[dict[str, Any]]) -> Said:
    text, end, stopped, blocks = "", "cut", set[int](), dict[int, list[str]]()
    for value in values:
        match value:
            case {"type": "content_block_start", "index": index, "content_block": {"id": str(key), "name": str(name)}}:
                blocks[index] = [key, name, ""]
            case {"type": "content_block_delta", "delta": {"type": "text_delta", "text": piece}}:
                text += piece
            case {"type": "content_block_delta", "index": index, "delta": {"partial_json": piece}}:
                blocks[index][2] += piece
            case {"type": "content_block_stop", "index": index}:
                stopped.add(index)
            case {"type": "message_delta", "delta": {"stop_reason": str(reason)}}:
                end = "calls" if reason == "tool_use" else reason
            case {"type": "error"}:
                end = "error"
            case _:
                pass
    calls = ((key, name, _json(text)) for index, (key, name, text) in blocks.items() if index in stopped)
    return Said(text, tuple(calls), end)


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


class Speaking:
    """An upstream that has the paths of these dialects only, and answers each request in its dialect."""

    def __init__(self, *dialects: str, refuses_usage: bool = False) -> None:
        self.requests: list[tuple[bytes, bytes, dict[str, Any]]] = []
        self._dialects = dialects
        self._refuses_usage = refuses_usage

    @property
    def paths(self) -> list[str]:
        """The paths that were asked, in order."""
        return [head.split(b" ")[1].decode() for head, _, _ in self.requests]

    async def __call__(self, stream: trio.abc.Stream) -> None:
        """Play one connection."""
        while asked := await request_of(stream):
            head, _, body = asked.partition(b"\r\n\r\n")
            value = as_object(json.loads(body)) if body else {}
            self.requests.append((head, body, value))
            await stream.send_all(self._answer(self.paths[-1].partition("?")[0], value))

    def _answer(self, path: str, asked: dict[str, Any]) -> bytes:
        dialect = next((name for name in self._dialects if path.endswith(PATHS[name].removeprefix("/v1"))), "")
        if not dialect:
            return whole(404, b'{"detail":"Not Found"}')
        if self._refuses_usage and "stream_options" in asked:
            return whole(400, b'{"error":{"message":"Unrecognized request argument: stream_options"}}')
        if asked.get("stream"):
            return house.HEAD + b"".join(map(chunk, FRAMES[dialect])) + b"0\r\n\r\n"
        return whole(200, dumps(WHOLE[dialect]))


def whole(status: int, body: bytes, *headers: str) -> bytes:
    """An answer with its length."""
    lines = [f"HTTP/1.1 {status} X", "Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def speaking(*dialects: str, **how: Any) -> Speaking:
    """An upstream with the paths of these dialects."""
    return Speaking(*dialects, **how)
