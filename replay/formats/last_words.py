"""Whether a stream of some protocol has said its last word, where nobody knows how its connection ended

Each protocol is told by what its payloads say; one that is none of these has no last word that could be missing.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from wiretape.events.json_text import ABSENT, as_list, as_object, parse

__all__ = ["lacks_last_word", "lines_lack_it"]

_Payload = dict[str, Any]


class _Protocol(NamedTuple):
    """How a payload of it is known, and one that ends it."""

    speaks: Callable[[_Payload], bool]
    ends: Callable[[_Payload], bool]


def lacks_last_word(payloads: Iterable[bytes]) -> bool:
    """Of an event stream: a protocol with a last word spoke, and this word did not come."""
    missing = False
    for payload in payloads:
        if payload.strip() == b"[DONE]":
            return False
        value = as_object(parse(payload))
        if any(protocol.ends(value) for protocol in _PROTOCOLS):
            return False
        missing = missing or any(protocol.speaks(value) for protocol in _PROTOCOLS)
    return missing


def lines_lack_it(body: bytes) -> bool:
    """The same of lines of JSON, of which the last may be torn."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    return bool(lines) and (parse(lines[-1]) is ABSENT or lacks_last_word(lines))


def _type(value: _Payload) -> str:
    said = value.get("type")
    return said if isinstance(said, str) else ""


def _object(value: _Payload) -> str:
    said = value.get("object")
    return said if isinstance(said, str) else ""


def _has_finish(value: _Payload, members: str, name: str) -> bool:
    return any(as_object(each).get(name) for each in as_list(value.get(members)))


_MESSAGES: Final = frozenset(
    {"message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"}
)
_RESPONSES_END: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)

_PROTOCOLS: Final = (
    # Anthropic Messages; an `error` ends it as well, and Responses
    _Protocol(lambda value: _type(value) in _MESSAGES, lambda value: _type(value) in ("message_stop", "error")),
    # OpenAI Responses
    _Protocol(lambda value: _type(value).startswith("response."), lambda value: _type(value) in _RESPONSES_END),
    # completions and chat under another path: `[DONE]`, and as of chat a finish is enough
    _Protocol(
        lambda value: _object(value) in ("text_completion", "chat.completion.chunk"),
        lambda value: _has_finish(value, "choices", "finish_reason"),
    ),
    # Assistants: `[DONE]` alone
    _Protocol(lambda value: _object(value).startswith("thread."), lambda _: False),
    # Gemini
    _Protocol(
        lambda value: "candidates" in value,
        lambda value: (
            _has_finish(value, "candidates", "finishReason")
            or bool(as_object(value.get("promptFeedback")).get("blockReason"))
        ),
    ),
    # Ollama, in lines; an error alone is how most others end, too
    _Protocol(
        lambda value: value.get("done") is False and ("message" in value or "response" in value),
        lambda value: value.get("done") is True or value.keys() == {"error"},
    ),
    # Cohere
    _Protocol(
        lambda value: _type(value) in ("message-start", "content-start", "content-delta", "content-end"),
        lambda value: _type(value) == "message-end",
    ),
)
