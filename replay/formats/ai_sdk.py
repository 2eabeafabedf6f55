"""The `.chunks.txt` of Vercel's AI SDK: one JSON payload a line, without the framing of the stream"""

from typing import Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, is_object, parse
from wiretape.events.wire.sse import encode

from .imported import Imported, Outcome, guessed_target, outcome
from .losses import Loss

__all__ = ["from_chunks"]

_NEVER_THERE = ("boundaries", "ending", "framing", "request", "status", "time", "times")


#: What is asked for stands under one of these.
_ASKED: Final = frozenset({"contents", "input", "messages", "prompt"})


def from_chunks(data: bytes) -> Outcome:
    """One stream; nothing is added to it, so none ends with `[DONE]`."""
    payloads: list[bytes] = []
    for number, line in enumerate(data.splitlines(), 1):
        payload = line.strip()
        if not payload:
            continue
        value = parse(payload)
        if value is ABSENT or not is_object(value):
            raise TapeError(f"line {number}: not a JSON object")
        if _is_request(value):
            raise TapeError(f"line {number}: what a client asks, not a piece of an answer")
        payloads.append(payload)
    frames = [encode(payload) for payload in payloads]
    if all(payload == b"{}" for payload in payloads):
        raise TapeError("no payload in it says anything")
    one = Imported(target=guessed_target(b"".join(frames[:3])), reads=[(0, frame) for frame in frames])
    return outcome("chunks", data, [one] if frames else [], map(Loss, _NEVER_THERE))


def _is_request(value: dict[str, Any]) -> bool:
    """An answer says what it is; a request names what it asks and, but for Gemini, a model."""
    return value.keys().isdisjoint({"type", "object", "id"}) and (
        "contents" in value or ("model" in value and not value.keys().isdisjoint(_ASKED))
    )
