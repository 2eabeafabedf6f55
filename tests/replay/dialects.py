"""One answer in each of three dialects: a text with characters of several bytes, two tool calls, an end"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from tests.support.chat import DONE, HEAD, begin, call, finish, sse, text
from wiretape.events.core.json_text import dumps
from wiretape.events.dialects import PLACES


def event(kind: str, **more: Any) -> bytes:
    """One event of Responses or Messages."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), dumps({"type": kind, **more}))


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
        text("", role=True),
        text("Grüße "),
        text("aus Zürich"),
        begin("call_0", "read_file"),
        call(index=0, arguments='{"path":'),
        call(index=0, arguments='"notes"}'),
        begin("call_1", "write_file", index=1),
        call(index=1, arguments='{"pa'),
        call(index=1, arguments='th":"b"}'),
        finish("tool_calls"),
        sse({**HEAD, "choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}}),
        DONE,
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
PATHS: Final[Mapping[str, str]] = {name: f"/v1{places.words.path}" for name, places in PLACES.items()}
