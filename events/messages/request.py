"""What a Messages request contains: its facts and the tool results that it brings. Nothing here raises."""

from typing import Any

from ..core.json_text import as_list, as_object, dumps
from ..core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from ..core.results import Result, Results
from ..core.settings import Facts
from ..emission.words import preview

__all__ = ["facts", "results_in"]


def facts(body: Any) -> Facts:
    """Return what emission must know of a request; usage is part of every answer, which is one."""
    request: dict[str, Any] = as_object(body)
    model = request.get("model")
    names = (as_object(tool).get("name") for tool in as_list(request.get("tools")))
    return Facts(
        stream=request.get("stream") is True,
        usage=True,
        model=model if isinstance(model, str) else "",
        choices=1,
        tools=frozenset(name for name in names if isinstance(name, str) and name),
    )


def results_in(body: Any) -> Results | None:
    """Return the tool results after the last assistant message, or None if there are none.

    Claude Code puts messages of the role `system` between and after them (dialects-next.md 3.2).
    """
    messages: list[Any] = as_list(as_object(body).get("messages"))
    given: list[dict[str, Any]] = []
    at = len(messages) - 1
    while at >= 0 and (message := as_object(messages[at])).get("role") != "assistant":
        blocks = map(as_object, as_list(message.get("content")) if message.get("role") == "user" else ())
        given = [*(block for block in blocks if block.get("type") == "tool_result"), *given]
        at -= 1
    if not given:
        return None
    calls = _calls(as_object(messages[at]) if at >= 0 else {})
    found: dict[str, Result] = {}
    more = 0
    for block in given:
        result = _result(block, calls)
        if result.id not in found and len(found) == RESULTS_MAX:
            more += 1
        else:
            found.setdefault(result.id, result)
    return Results(list(found.values()), max(0, at), more)


def _calls(message: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return each call by its id; of two with one id the first."""
    blocks = [as_object(block) for block in as_list(message.get("content"))]
    calls = [block for block in reversed(blocks) if block.get("type") == "tool_use"]
    return {block["id"]: block for block in calls if isinstance(block.get("id"), str)}


def _result(block: dict[str, Any], calls: dict[str, dict[str, Any]]) -> Result:
    given: Any = block.get("tool_use_id")
    call_id = given if isinstance(given, str) else ""
    call = calls.get(call_id, {})
    name: Any = call.get("name")
    content: Any = block.get("content")
    parts: list[Any] = [{"text": content}] if isinstance(content, str) else as_list(content)
    text = ""
    for part in map(as_object, parts):
        piece = part.get("tool_name") if part.get("type") == "tool_reference" else part.get("text")
        if isinstance(piece, str) and len(text) < PREVIEW_BYTES_MAX:
            text += piece[:PREVIEW_BYTES_MAX]
    return Result(
        call_id,
        name if isinstance(name, str) else "",
        preview(text),
        block.get("is_error") is True,
        orphan=call_id not in calls,
        arguments=dumps(call["input"]).decode() if "input" in call else "",
    )
