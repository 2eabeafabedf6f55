"""Whether a stream of some protocol has said its last word, where nobody knows how its connection ended

Each protocol is told by what its payloads say; one that is none of these has no last word that could be missing.
"""

from collections.abc import Iterable
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_list, as_object, parse

__all__ = ["lacks_last_word", "lines_lack_it"]

_RESPONSES_END: Final = frozenset(
    {"response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done"}
)


def lacks_last_word(payloads: Iterable[bytes]) -> bool:
    """Of an event stream: a protocol with a last word spoke, and this word did not come."""
    missing = False
    for payload in payloads:
        if payload.strip() == b"[DONE]":
            return False
        value = as_object(parse(payload))
        if _ends(value):
            return False
        missing = missing or _speaks(value)
    return missing


def lines_lack_it(body: bytes) -> bool:
    """The same of lines of JSON, of which the last may be torn."""
    lines = [line for line in body.split(b"\n") if line.strip()]
    return bool(lines) and (parse(lines[-1]) is ABSENT or lacks_last_word(lines))


def _speaks(value: dict[str, Any]) -> bool:
    """Whether it is of a protocol that has a last word."""
    kind, what = _said(value, "type"), _said(value, "object")
    return (
        kind.startswith(("message_", "content_block_", "response."))  # Anthropic Messages, OpenAI Responses
        or what in ("text_completion", "chat.completion.chunk")  # completions, and chat under another path
        or what.startswith("thread.")  # Assistants: `[DONE]` alone ends them
        or "candidates" in value  # Gemini
        or (value.get("done") is False and ("message" in value or "response" in value))  # Ollama, in lines
        or kind in ("message-start", "content-start", "content-delta", "content-end")  # Cohere
    )


def _ends(value: dict[str, Any]) -> bool:
    """Whether it is the last word of any; as in a chat stream of ours, a finish is enough."""
    return (
        _said(value, "type") in ("message_stop", "message-end", "error")
        or _said(value, "type") in _RESPONSES_END
        or any(_has_finish(member) for member in value.values())
        or bool(as_object(value.get("promptFeedback")).get("blockReason"))
        or value.get("done") is True
        or value.keys() == {"error"}
    )


def _said(value: dict[str, Any], name: str) -> str:
    said = value.get(name)
    return said if isinstance(said, str) else ""


def _has_finish(member: Any) -> bool:
    return any(as_object(each).get(name) for each in as_list(member) for name in ("finish_reason", "finishReason"))
