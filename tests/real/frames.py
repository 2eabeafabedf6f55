"""What scripted providers send, from events: texts and calls in pieces, as the frames of a model."""

from collections.abc import Iterable
from typing import Final

from wiretape.events.chat.chunk import Envelope, payloads
from wiretape.events.core.model import Event, Finish, Terminator, TextDelta, ToolArgumentsDelta, ToolCallStarted, Usage
from wiretape.events.wire.sse import encode

USAGE: Final = Usage(n=0, counts={"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30})
DONE: Final = Terminator(n=0)


def frames(model: str, events: Iterable[Event]) -> list[bytes]:
    """Return the frames of these events."""
    return [encode(payload) for payload in payloads(events, Envelope("chatcmpl-1", model, 1_700_000_000))]


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
