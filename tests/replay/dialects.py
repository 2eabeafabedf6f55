"""One answer in each of three dialects: a text with characters of several bytes, two tool calls, an end"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import dumps


def chat(delta: Mapping[str, Any], finish: str | None = None, **more: Any) -> bytes:
    """One chunk."""
    choice = {"index": 0, "delta": dict(delta), "finish_reason": finish}
    value = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}
    return b"data: %b\n\n" % dumps(value)


def event(kind: str, **more: Any) -> bytes:
    """One event of Responses or Messages."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps({"type": kind, **more}))


def _call(index: int, arguments: str, name: str | None = None) -> bytes:
    first = {"id": f"call_{index}", "type": "function"} if name else {}
    function = ({"name": name} if name else {}) | {"arguments": arguments}
    return chat({"tool_calls": [{"index": index, **first, "function": function}]})


def _item(index: int, name: str) -> dict[str, Any]:
    return {"type": "function_call", "id": f"fc_{index}", "call_id": f"call_{index}", "name": name, "arguments": ""}


def _responses(kind: str, **more: Any) -> bytes:
    return event(f"response.{kind}", **more)


def _block(index: int, block: Mapping[str, Any]) -> bytes:
    return event("content_block_start", index=index, content_block=dict(block))


def _delta(index: int, kind: str, name: str, text: str) -> bytes:
    return event("content_block_delta", index=index, delta={"type": kind, name: text})


#: Frames 1 to 10 of each: a beginning, two of text, then the calls of read_file and write_file in two pieces each (with
#: their names before them), and the finish, the usage and the end as the dialect has them.
ANSWERS: Final[Mapping[str, Sequence[bytes]]] = {
    "chat": (
        chat({"role": "assistant", "content": ""}),
        chat({"content": "Grüße "}),
        chat({"content": "aus Zürich"}),
        _call(0, "", "read_file"),
        _call(0, '{"path":'),
        _call(0, '"notes"}'),
        _call(1, "", "write_file"),
        _call(1, '{"pa'),
        _call(1, 'th":"b"}'),
        chat({}, "tool_calls"),
        chat({}, choices=[], usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        b"data: [DONE]\n\n",
    ),
    "responses": (
        _responses("created", response={"id": "resp_1", "status": "in_progress"}),
        _responses("output_text.delta", output_index=0, delta="Grüße "),
        _responses("output_text.delta", output_index=0, delta="aus Zürich"),
        _responses("output_item.added", output_index=1, item=_item(1, "read_file")),
        _responses("function_call_arguments.delta", output_index=1, delta='{"path":'),
        _responses("function_call_arguments.delta", output_index=1, delta='"notes"}'),
        _responses("output_item.added", output_index=2, item=_item(2, "write_file")),
        _responses("function_call_arguments.delta", output_index=2, delta='{"pa'),
        _responses("function_call_arguments.delta", output_index=2, delta='th":"b"}'),
        _responses("completed", response={"id": "resp_1", "status": "completed", "usage": {"total_tokens": 3}}),
    ),
    "messages": (
        event("message_start", message={"id": "msg_1", "role": "assistant", "content": []}),
        _delta(0, "text_delta", "text", "Grüße "),
        _delta(0, "text_delta", "text", "aus Zürich"),
        _block(1, {"type": "tool_use", "id": "toolu_1", "name": "read_file", "input": {}}),
        _delta(1, "input_json_delta", "partial_json", '{"path":'),
        _delta(1, "input_json_delta", "partial_json", '"notes"}'),
        _block(2, {"type": "tool_use", "id": "toolu_2", "name": "write_file", "input": {}}),
        _delta(2, "input_json_delta", "partial_json", '{"pa'),
        _delta(2, "input_json_delta", "partial_json", 'th":"b"}'),
        event("message_delta", delta={"stop_reason": "tool_use"}, usage={"output_tokens": 2}),
        event("message_stop"),
    ),
}
PATHS: Final[Mapping[str, str]] = {
    "chat": "/v1/chat/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
