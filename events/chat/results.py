"""Tool results in a chat completions request: the messages after its last assistant message.

Of the history before that nothing is looked at: a request that repeats every earlier result brings only the new ones,
ids that a provider reuses each turn meet no other turn, and a retried request brings what the first one brought.
Nothing here raises: a history may have any shape.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..core.json_text import as_list, as_object
from ..core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from .request import said_in

__all__ = ["LEGACY_ID", "Found", "Result", "preview", "results_in"]

#: A legacy `function_call` has no id; `read` gives the one of the first choice this, and clients send no other back.
LEGACY_ID = "function_call_0"


class Result(NamedTuple):
    """One result. An orphan answers no call of that message, and has no name and no arguments."""

    id: str
    name: str
    #: A preview, as long as a lifecycle frame may show.
    output: str
    #: The chat protocol has no word for this; some clients send `is_error` all the same.
    failed: bool = False
    orphan: bool = False
    #: Of the call, as the history repeats them.
    arguments: str = ""


class Found(NamedTuple):
    """The results of one request, in the order of its messages, each id once."""

    results: list[Result]
    #: How many messages stand before the assistant message that they answer.
    after: int
    #: Results beyond those that are kept.
    more: int


def results_in(body: Any) -> Found | None:
    """Return what the request brings, or None where it brings none; the costs are those of its last few messages."""
    messages: list[Any] = as_list(as_object(body).get("messages"))
    answers: list[dict[str, Any]] = []
    at = len(messages) - 1
    while at >= 0:
        message: dict[str, Any] = as_object(messages[at])
        role = message.get("role")
        if role == "assistant":
            break
        if role in ("tool", "function"):
            answers.append(message)
        at -= 1
    if not answers:
        return None
    calls = _calls(as_object(messages[at]) if at >= 0 else {})
    found: dict[str, Result] = {}
    more = 0
    for message in reversed(answers):
        result = _result(message, calls)
        if result.id not in found and len(found) == RESULTS_MAX:
            more += 1
        else:
            found.setdefault(result.id, result)
    return Found(list(found.values()), max(0, at), more)


def _calls(message: dict[str, Any]) -> dict[str, tuple[str, str]]:
    """Name and arguments of each call by its id; of two with one id the first."""
    calls: dict[str, tuple[str, str]] = {}
    for entry in as_list(message.get("tool_calls")):
        call: dict[str, Any] = as_object(entry)
        call_id = call.get("id")
        inner: dict[str, Any] = said_in(call)[0] or {}
        if isinstance(call_id, str) and call_id:
            calls.setdefault(call_id, _said(inner))
    legacy: dict[str, Any] = as_object(message.get("function_call"))
    if legacy:
        calls.setdefault(LEGACY_ID, _said(legacy))
    return calls


def _said(function: dict[str, Any]) -> tuple[str, str]:
    name, arguments = function.get("name"), function.get("arguments", function.get("input"))
    return name if isinstance(name, str) else "", arguments if isinstance(arguments, str) else ""


def _result(message: dict[str, Any], calls: dict[str, tuple[str, str]]) -> Result:
    given: Any = message.get("tool_call_id")
    call_id = given if isinstance(given, str) else ""
    if message.get("role") == "function":  # which names the function instead
        legacy = calls.get(LEGACY_ID)
        call_id = LEGACY_ID if legacy is not None and legacy[0] == message.get("name") else ""
    name, arguments = calls.get(call_id, ("", ""))
    output, failed = preview("".join(_texts(message))), _failed(message)
    return Result(call_id, name, output, failed, orphan=call_id not in calls, arguments=arguments)


def _texts(message: dict[str, Any]) -> Iterator[str]:
    """Yield the text of a result, no more than a preview can need."""
    content: Any = message.get("content")
    left = PREVIEW_BYTES_MAX
    for part in [content] if isinstance(content, str) else as_list(content):
        text = part if isinstance(part, str) else as_object(part).get("text")
        if isinstance(text, str) and left > 0:
            yield text[:left]
            left -= len(text)


def _failed(message: dict[str, Any]) -> bool:
    parts: list[Any] = [message, *as_list(message.get("content"))]
    return any(as_object(part).get("is_error") is True for part in parts)


def preview(text: str) -> str:
    """Return as much of a text as a lifecycle frame may show."""
    encoded = text[:PREVIEW_BYTES_MAX].encode("utf-8", "replace")
    if len(text) <= PREVIEW_BYTES_MAX and len(encoded) <= PREVIEW_BYTES_MAX:
        return text
    return encoded[:PREVIEW_BYTES_MAX].decode("utf-8", "ignore")
