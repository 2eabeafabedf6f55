"""Frames of scripted providers, made from events; and our own reader for `hermes.tool.progress`."""

import json
from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from wiretape.events.chat.chunk import envelope, payloads
from wiretape.events.core.model import Event, Finish, Terminator, TextDelta, ToolArgumentsDelta, ToolCallStarted, Usage
from wiretape.events.wire.sse import encode

USAGE: Final = Usage(n=0, counts={"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30})
DONE: Final = Terminator(n=0)


def frames(model: str, events: Iterable[Event]) -> list[bytes]:
    """Return the frames of these events."""
    return [encode(payload) for payload in payloads(events, envelope("chatcmpl-1", model, 1_700_000_000))]


def text(words: str, size: int) -> list[Event]:
    """Return a text in pieces of this many characters."""
    return [TextDelta(n=0, choice=0, text=words[at : at + size]) for at in range(0, len(words), size)]


def call(index: int, id_: str, name: str, arguments: str, size: int) -> list[Event]:
    """Return a call with its arguments in pieces of this many characters."""
    pieces = [arguments[at : at + size] for at in range(0, len(arguments), size)]
    deltas = [ToolArgumentsDelta(n=0, choice=0, call=index, text=piece) for piece in pieces]
    return [ToolCallStarted(n=0, choice=0, call=index, id=id_, name=name), *deltas]


def finish(reason: str) -> Event:
    """Return a finish reason."""
    return Finish(n=0, choice=0, reason=reason)


def completion(model: str, words: str) -> dict[str, Any]:
    """Return an answer without a stream."""
    choice = {"index": 0, "message": {"role": "assistant", "content": words}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": model}
    return {**head, "choices": [choice], "usage": USAGE.counts}


class Progress(NamedTuple):
    """One lifecycle frame of one call."""

    id: str
    status: str
    tool: str


def progress(stream: bytes) -> list[Progress]:
    """Return the lifecycle frames of a stream, read without an SDK; fail if one has an unknown form."""
    seen: list[Progress] = []
    for block in stream.replace(b"\r\n", b"\n").split(b"\n\n"):
        fields = [line.partition(b":")[::2] for line in block.split(b"\n") if line]
        if (b"event", b"hermes.tool.progress") in [(name, value.strip()) for name, value in fields]:
            said: dict[str, Any] = json.loads(b"".join(value for name, value in fields if name == b"data"))
            assert said["choices"] == [{"index": 0, "delta": {}, "finish_reason": None}], said
            seen.append(Progress(said["toolCallId"], said["status"], said["tool"]))
    return seen
