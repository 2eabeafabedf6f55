"""What a chat completions request contains: its facts, and new tool results.

Nothing here raises on a body of any shape.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from ..core.json_text import Path, apply, as_list, as_object, is_object, locate, parse
from ..core.limits import PREVIEW_BYTES_MAX
from ..core.results import Result, Results
from ..core.settings import Facts
from ..crossing.envelope import is_envelope
from ..emission.words import preview
from .chunk import Entry, function_of

__all__ = ["LEGACY_ID", "asks_usage", "facts", "refuses_usage", "results_in", "unsealed", "with_usage"]

#: A legacy `function_call` has no id; the one of the first choice gets this, and clients send no other back.
LEGACY_ID = "function_call_0"
_USAGE: Final = re.compile(r"include_usage|stream_options", re.IGNORECASE)


def facts(body: Any) -> Facts:
    """Return what emission must know of a request."""
    request: dict[str, Any] = as_object(body)
    model, choices = request.get("model"), request.get("n")
    tools = map(as_object, [*as_list(request.get("tools")), *as_list(request.get("functions"))])
    names = [(function_of(tool)[0] or tool).get("name") for tool in tools]  # a legacy function has its name itself
    return Facts(
        stream=request.get("stream") is True,
        usage=as_object(request.get("stream_options")).get("include_usage") is True,
        model=model if isinstance(model, str) else "",
        choices=1 if choices is None else choices if type(choices) is int else None,
        tools=frozenset(name for name in names if isinstance(name, str) and name),
    )


# -- tool results -----------------------------------------------------------------------------------------------------


def results_in(body: Any) -> Results | None:
    """Return the tool results after the last assistant message, or None if there are none.

    The history before that message is not read: a request that repeats every earlier result brings only the new ones,
    ids that a provider reuses each turn meet no other turn, and a retry brings what the first request brought.
    """
    messages: list[Any] = as_list(as_object(body).get("messages"))
    answers: list[dict[str, Any]] = []
    at = len(messages) - 1
    while at >= 0 and (message := as_object(messages[at])).get("role") != "assistant":
        if message.get("role") in ("tool", "function"):
            answers.append(message)
        at -= 1
    if not answers:
        return None
    calls = _calls(as_object(messages[at]) if at >= 0 else {})
    return Results.of((_result(message, calls) for message in reversed(answers)), max(0, at))


def _calls(message: dict[str, Any]) -> dict[str, Entry]:
    """Return each call by its id; of two with one id the first."""
    given: list[Any] = [*as_list(message.get("tool_calls"))]
    if legacy := as_object(message.get("function_call")):
        given.append({"id": LEGACY_ID, "function": legacy})
    return {entry.id: entry for entry in (Entry((), as_object(one)) for one in reversed(given)) if entry.id}


def _result(message: dict[str, Any], calls: dict[str, Entry]) -> Result:
    given: Any = message.get("tool_call_id")
    call_id = given if isinstance(given, str) else ""
    if message.get("role") == "function":  # which names the function instead
        call_id = LEGACY_ID if LEGACY_ID in calls and calls[LEGACY_ID].name == message.get("name") else ""
    call = calls.get(call_id) or Entry((), {})
    content: Any = message.get("content")
    parts: list[Any] = [{"text": content}] if isinstance(content, str) else as_list(content)
    text = ""
    for part in parts:
        piece = part if isinstance(part, str) else as_object(part).get("text")
        if isinstance(piece, str) and len(text) < PREVIEW_BYTES_MAX:
            text += piece[:PREVIEW_BYTES_MAX]
    failed = any(as_object(part).get("is_error") is True for part in (message, *parts))
    return Result(call_id, call.name, preview(text), failed, orphan=call_id not in calls, arguments=call.text)


# -- edits ------------------------------------------------------------------------------------------------------------


def asks_usage(body: Mapping[str, Any]) -> bool | None:
    """Return whether `stream_options` is an object; None without that member."""
    return is_object(body["stream_options"]) if "stream_options" in body else None


def with_usage(body: bytes, stream_options: bool | None) -> bytes:
    """Return the body with a usage chunk asked for, given what `asks_usage` returned.

    Only a body with that member is scanned: 20 MB take 0.2 s.
    """
    if stream_options is None:
        start = body.index(b"{") + 1
        return b'%b"stream_options":{"include_usage":true},%b' % (body[:start], body[start:])
    if stream_options:
        return apply(body, locate(body, {("stream_options", "include_usage"): b"true"}))
    return apply(body, locate(body, {("stream_options",): b'{"include_usage":true}'}))


def refuses_usage(said: str) -> bool:
    """Return whether an upstream's error is about being asked for usage."""
    return _USAGE.search(said) is not None


def unsealed(body: bytes) -> bytes:
    """Return the body without the envelopes of ours in the reasoning of its history."""
    sealed: dict[Path, bytes | None] = {
        ("messages", at, "reasoning_details", place): None
        for at, message in enumerate(as_list(as_object(parse(body)).get("messages")))
        for place, detail in enumerate(as_list(as_object(message).get("reasoning_details")))
        if is_envelope(as_object(detail).get("data"))
    }
    return apply(body, locate(body, sealed))
