"""Responses streams written by hand (synthetic), and the form of the table of quirks: what came, what goes out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.conformance.order import CHECKERS
from tests.support.chat import Run, run, tape
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.model import Finish, ReasoningDelta, RefusalDelta, TextDelta
from wiretape.events.emit import emit
from wiretape.events.tape.record import Record
from wiretape.events.wire.sse import parse_block

Value = dict[str, Any]

USAGE: Value = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
HEAD: Value = {"id": "resp_1", "object": "response", "created_at": 7, "model": "m"}


def sse(value: Mapping[str, Any]) -> bytes:
    """Return the canonical frame of a payload."""
    return b"event: %b\ndata: %b\n\n" % (value["type"].encode(), dumps(value))


def response(status: str, output: Sequence[Value] = (), /, **members: Any) -> Value:
    """Return a response object."""
    usage = None if status == "in_progress" else USAGE
    return {**HEAD, "status": status, "output": [*output], "usage": usage} | members


CREATED: Value = {"type": "response.created", "response": response("in_progress")}
IN_PROGRESS: Value = {"type": "response.in_progress", "response": response("in_progress")}
OPENING = (CREATED, IN_PROGRESS)


def text_part(text: str = "") -> Value:
    """Return a part of a message."""
    return {"type": "output_text", "text": text, "annotations": []}


def message_item(text: str | None = "hello", item_id: str = "msg_1", status: str = "completed") -> Value:
    """Return a message; without a text, as it is added."""
    head = {"id": item_id, "type": "message", "status": status if text is not None else "in_progress"}
    return {**head, "role": "assistant", "content": [] if text is None else [text_part(text)]}


def call_item(arguments: str = '{"x":1}', number: int = 1, status: str = "completed", **members: Any) -> Value:
    """Return a call of a function."""
    head = {"id": f"fc_{number}", "type": "function_call", "status": status}
    return {**head, "call_id": f"call_{number}", "name": "f", "arguments": arguments, **members}


def added(item: Any, index: int = 0) -> Value:
    """Return the frame that begins an item."""
    return {"type": "response.output_item.added", "output_index": index, "item": item}


def done(item: Any, index: int = 0) -> Value:
    """Return the frame that ends an item."""
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def at(item_id: str = "msg_1", index: int = 0, **members: Any) -> Value:
    """Return where a frame of an item is."""
    return {"item_id": item_id, "output_index": index, **members}


def part_added(part: Value | None = None, place: Value | None = None) -> Value:
    """Return the frame that begins a part of a message."""
    place = place or at(content_index=0)
    return {"type": "response.content_part.added", **place, "part": text_part() if part is None else part}


def part_done(part: Value, place: Value | None = None) -> Value:
    """Return the frame that ends a part of a message."""
    return {"type": "response.content_part.done", **(place or at(content_index=0)), "part": part}


def delta(text: str, place: Value | None = None, kind: str = "output_text") -> Value:
    """Return a piece of text."""
    return {"type": f"response.{kind}.delta", **(place or at(content_index=0)), "delta": text}


def text_done(text: str, place: Value | None = None, kind: str = "output_text", member: str = "text") -> Value:
    """Return the frame with a whole text."""
    return {"type": f"response.{kind}.done", **(place or at(content_index=0)), member: text}


def message(*pieces: str, index: int = 0, item_id: str = "msg_1") -> list[Value]:
    """Return the frames of a message in pieces."""
    whole, place = "".join(pieces), at(item_id, index, content_index=0)
    frames = [added(message_item(None, item_id), index), part_added(place=place)]
    frames += [delta(piece, place) for piece in pieces]
    frames += [text_done(whole, place), part_done(text_part(whole), place)]
    return [*frames, done(message_item(whole, item_id), index)]


def call(*pieces: str, index: int = 0, number: int = 1, **members: Any) -> list[Value]:
    """Return the frames of a call in pieces."""
    whole, place = "".join(pieces), at(f"fc_{number}", index)
    frames = [added(call_item("", number, "in_progress", **members), index)]
    frames += [delta(piece, place, "function_call_arguments") for piece in pieces]
    frames.append(text_done(whole, place, "function_call_arguments", "arguments"))
    return [*frames, done(call_item(whole, number, **members), index)]


def completed(*output: Value, **members: Any) -> Value:
    """Return the frame that ends a whole answer."""
    return {"type": "response.completed", "response": response("completed", output, **members)}


def incomplete(*output: Value, reason: str = "max_output_tokens") -> Value:
    """Return the frame that ends an answer that a limit has cut."""
    details = {"incomplete_details": {"reason": reason}}
    return {"type": "response.incomplete", "response": response("incomplete", output, **details)}


def failed(code: str, text: str) -> Value:
    """Return the frame of a failure."""
    error = {"code": code, "message": text}
    return {"type": "response.failed", "response": response("failed", usage=None, error=error)}


def numbered(*values: Value) -> list[Value]:
    """Return the payloads with their numbers."""
    return [{**value, "sequence_number": number} for number, value in enumerate(values)]


def stream(*values: Value) -> list[bytes]:
    """Return the frames of numbered payloads."""
    return [sse(value) for value in numbered(*values)]


def played(frames: bytes | list[bytes], **settings: Any) -> Run:
    """Return what comes of a stream, in which law L8 holds."""
    return run(tape(frames, dialect="responses", **settings))


def values(result: Run) -> list[Value]:
    """Return the payloads that were sent."""
    return [parse(parse_block(frame).payload or b"") for frame in result.sent if not frame.startswith(b":")]


def kinds(result: Run) -> list[str]:
    """Return the types that were sent, without their common prefix."""
    return [value["type"].removeprefix("response.") for value in values(result)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One case. `came` is numbered, unless a value is given as bytes. `sent` are payloads without their numbers.

    Text means any frame of this type (without `response.`). Without `sent`, every frame passes as the very bytes.
    """

    #: `Q110 and a sentence`.
    id: str
    came: Sequence[Value | bytes]
    sent: Sequence[Value | str] | None = None
    #: Without the numbers.
    repairs: tuple[str, ...] = ()
    text: str = ""
    thought: str = ""
    #: Id, name, arguments, state at the end.
    calls: tuple[tuple[str, str, str, str], ...] = ()
    finish: str = ""
    ending: str = "completed"
    flags: tuple[str, ...] = ()
    cause: str = "eof"
    body: bool = False
    settings: Value = field(default_factory=dict[str, Any])

    def tape(self, reads: int | None = None) -> list[Record]:
        """Return the records; lifecycle frames are off unless the case is about them."""
        frames = [
            value if isinstance(value, bytes) else sse({**value, "sequence_number": number})
            for number, value in enumerate(self.came)
        ]
        settings: dict[str, Any] = {"tool_events": False, **self.settings}
        return tape(frames, dialect="responses", cause=self.cause, reads=reads, body=self.body, **settings)


def unnumbered(value: Value) -> Value:
    """Return a payload without its number."""
    return {key: member for key, member in value.items() if key != "sequence_number"}


def check(row: Row) -> None:
    """Check everything that a case says, the order of what is sent, and law L1 on top."""
    result = run(row.tape())
    if row.sent is None:
        assert result.sent == [record.raw for record in result.records if record.kind == "frame"]
    else:
        sent = [*zip(values(result), row.sent, strict=True)]
        assert [
            kind if isinstance(due, str) else unnumbered(value)
            for (value, due), kind in zip(sent, kinds(result), strict=True)
        ] == [*row.sent]
    assert [value["sequence_number"] for value in values(result)] == [*range(len(result.sent))]
    assert {*result.repairs} - {"renumbered"} == {*row.repairs}
    said = "".join(event.text for kind in (TextDelta, RefusalDelta) for event in result.of(kind))
    thought = "".join(event.text for event in result.of(ReasoningDelta))
    calls = tuple((call.id, call.name, call.arguments, call.state.value) for call in result.wire.calls())
    assert (said, thought, calls) == (row.text, row.thought, row.calls)
    usual = ("tool_calls" if row.calls else "stop") if row.ending == "completed" else ""
    assert [event.reason for event in result.of(Finish)] == [word for word in [row.finish or usual] if word]
    assert (result.ended.ending, result.ended.flags) == (row.ending, row.flags)
    assert CHECKERS["responses"](result.out) == []
    assert emit(row.tape(reads=1)) == result.out
    assert emit(row.tape(reads=7)) == result.out
