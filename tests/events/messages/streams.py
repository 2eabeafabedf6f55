"""Messages frames written by hand (synthetic), and the form of the table of quirks."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.events.chat import rows
from tests.support.chat import tape
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record

USAGE = {"input_tokens": 3, "output_tokens": 1}
MESSAGE: dict[str, Any] = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": list[Any](),
    "stop_reason": None,
    "stop_sequence": None,
    "usage": USAGE,
}
COUNTS = {"input_tokens": 3, "output_tokens": 7}


def event(value: dict[str, Any], name: str = "") -> bytes:
    """The canonical frame of a payload."""
    return b"event: %b\ndata: %b\n\n" % ((name or value["type"]).encode(), dumps(value))


def bare(frame: bytes) -> bytes:
    """The same frame without its `event:` line."""
    return frame.partition(b"\n")[2]


def start(**members: Any) -> bytes:
    return event({"type": "message_start", "message": {**MESSAGE, **members}})


def begin(kind: str, index: Any = 0, **members: Any) -> bytes:
    """The start of a block."""
    empty: dict[str, dict[str, Any]] = {
        "text": {"text": ""},
        "thinking": {"thinking": "", "signature": ""},
        "tool_use": {"input": {}},
    }
    block = {"type": kind, **empty.get(kind, {}), **members}
    return event({"type": "content_block_start", "index": index, "content_block": block})


def tool(call_id: Any = "toolu_1", name: Any = "f", index: Any = 0, **members: Any) -> bytes:
    block: dict[str, Any] = {"type": "tool_use", "id": call_id, "name": name, "input": {}, **members}
    return event({"type": "content_block_start", "index": index, "content_block": block})


def delta(kind: str, index: Any = 0, **members: Any) -> bytes:
    return event({"type": "content_block_delta", "index": index, "delta": {"type": kind, **members}})


def text(words: Any, index: Any = 0) -> bytes:
    return delta("text_delta", index, text=words)


def thought(words: str, index: Any = 0) -> bytes:
    return delta("thinking_delta", index, thinking=words)


def sign(signature: str, index: Any = 0) -> bytes:
    return delta("signature_delta", index, signature=signature)


def args(words: Any, index: Any = 0) -> bytes:
    return delta("input_json_delta", index, partial_json=words)


def stop(index: Any = 0) -> bytes:
    return event({"type": "content_block_stop", "index": index})


def finish(reason: Any = "end_turn", usage: Any = None, **members: Any) -> bytes:
    counts = {"output_tokens": 7} if usage is None else usage
    ends = {"stop_reason": reason, "stop_sequence": None, **members}
    return event({"type": "message_delta", "delta": ends, "usage": counts})


def error(message: str, code: str, *calls: tuple[str, str]) -> bytes:
    """The event that ends a stream which must not be taken for whole."""
    dropped = [{"id": call_id, "name": name} for call_id, name in calls]
    details = {"type": "api_error", "message": message, "code": code, "dropped_tools": dropped}
    return event({"type": "error", "error": details})


def card(call_id: str, status: str, name: str = "f", **members: Any) -> bytes:
    """A lifecycle frame."""
    said = {"type": "ping", "tool": name, "toolCallId": call_id, "status": status, **members}
    return event(said, "hermes.tool.progress")


START = start()
PING = event({"type": "ping"})
END = event({"type": "message_stop"})
HI = [begin("text"), text("hi"), stop()]
CALL = [tool(), args('{"x":'), args("1}"), stop()]
CALLED = finish("tool_use")
#: What the call of `CALL` is in the end.
F = ("toolu_1", "f", '{"x":1}', "running")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(rows.Row):
    """One case of this dialect; in the ledger, `block.` is short for `content_block.`."""

    def tape(self, reads: int | None = None) -> list[Record]:
        settings: dict[str, Any] = {"tool_events": False, **self.settings}
        return tape(
            self.came,
            request=self.request,
            cause=self.cause,
            reads=reads,
            body=self.body,
            dialect="messages",
            **settings,
        )


def stream(frames: Iterable[bytes], **settings: Any) -> list[Record]:
    """The records of a stream."""
    return tape(list(frames), dialect="messages", **settings)
