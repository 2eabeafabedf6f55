"""What a Messages request contains: its facts, the tool results that it brings, and its size. Nothing here raises."""

from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import Path, apply, as_list, as_object, as_text, dumps, is_list, is_object, locate, parse
from ..core.limits import PREVIEW_BYTES_MAX
from ..core.results import Result, Results
from ..core.settings import Facts
from ..crossing.envelope import is_envelope
from ..emission.words import preview

__all__ = ["estimated_tokens", "facts", "results_in", "unsealed"]

#: English and code have about four bytes to a token in all current tokenizers.
_BYTES_A_TOKEN: Final = 4
#: An image of the size that clients scale to (1,568 pixels), and a PDF of a few pages.
_MEDIA_TOKENS: Final[Mapping[str, int]] = {"image": 1_600, "document": 6_000}
#: What a model reads of a request.
_READ: Final = ("system", "tools", "messages")


def facts(body: Any) -> Facts:
    """Return what emission must know of a request; usage is part of every answer, which is one."""
    request: dict[str, Any] = as_object(body)
    tools = frozenset(as_text(as_object(tool).get("name")) for tool in as_list(request.get("tools")))
    model, stream = as_text(request.get("model")), request.get("stream") is True
    return Facts(stream=stream, usage=True, model=model, choices=1, tools=tools - {""})


def results_in(body: Any) -> Results | None:
    """Return the tool results after the last assistant message, or None if there are none.

    Claude Code puts messages of the role `system` between and after them (dialects-next.md 3.2).
    """
    messages: list[Any] = as_list(as_object(body).get("messages"))
    given: list[dict[str, Any]] = []
    at = len(messages) - 1
    while at >= 0 and (message := as_object(messages[at])).get("role") != "assistant":
        if message.get("role") == "user":
            blocks = reversed(as_list(message.get("content")))
            given += (block for block in map(as_object, blocks) if block.get("type") == "tool_result")
        at -= 1
    if not given:
        return None
    answer = reversed(as_list(as_object(messages[at]).get("content") if at >= 0 else None))  # of two ids the first
    asked = [call for call in map(as_object, answer) if call.get("type") == "tool_use"]
    calls = {as_text(call["id"]): call for call in asked if isinstance(call.get("id"), str)}
    return Results.of((_result(block, calls) for block in reversed(given)), max(0, at))


def _result(block: dict[str, Any], calls: dict[str, dict[str, Any]]) -> Result:
    call_id, content = as_text(block.get("tool_use_id")), block.get("content")
    call = calls.get(call_id, {})
    text = ""
    for part in map(as_object, [{"text": content}] if isinstance(content, str) else as_list(content)):
        piece = part.get("tool_name") if part.get("type") == "tool_reference" else part.get("text")
        if isinstance(piece, str) and len(text) < PREVIEW_BYTES_MAX:
            text += piece[:PREVIEW_BYTES_MAX]
    arguments = dumps(call["input"]).decode() if "input" in call else ""
    failed, name = block.get("is_error") is True, as_text(call.get("name"))
    return Result(call_id, name, preview(text), failed, orphan=call_id not in calls, arguments=arguments)


def unsealed(body: bytes) -> bytes:
    """Return the body without the thoughts that hold an envelope of ours, which no upstream may get."""
    sealed: dict[Path, bytes | None] = {
        ("messages", at, "content", place): None
        for at, message in enumerate(as_list(as_object(parse(body)).get("messages")))
        for place, block in enumerate(map(as_object, as_list(as_object(message).get("content"))))
        if is_envelope(block.get("signature")) or is_envelope(block.get("data"))
    }
    return apply(body, locate(body, sealed))


def estimated_tokens(body: dict[str, Any]) -> int:
    """Return how many tokens the system prompt, the tools and the messages take, about."""
    size, tokens = 0, 0
    waiting: list[Any] = [body[name] for name in _READ if name in body]
    while waiting:
        value = waiting.pop()
        if is_object(value):
            kind: Any = value.get("type")
            media = _MEDIA_TOKENS.get(kind, 0) if isinstance(kind, str) and "source" in value else 0
            tokens += media
            size += sum(len(name) + 1 for name in value)
            waiting += (part for name, part in value.items() if not (media and name == "source"))
        elif is_list(value):
            waiting += value
        else:
            size += len(value.encode("utf-8", "replace") if isinstance(value, str) else dumps(value)) + 1
    return tokens + -(-size // _BYTES_A_TOKEN)
