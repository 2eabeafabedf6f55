"""What a Responses request contains: its facts, and new tool results. Nothing here raises on a body of any shape."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..core.json_text import as_list, as_object, dumps
from ..core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from ..core.results import Result, Results
from ..core.settings import Facts
from ..emission.words import preview
from .frames import CLIENT_CALLS

__all__ = ["facts", "results_in"]

#: Items that answer a call, and the member that says which one.
_RESULTS: Final[Mapping[str, str]] = {
    **{f"{kind}_output": "call_id" for kind in CLIENT_CALLS if kind != "tool_search_call"},
    "tool_search_output": "call_id",
    "mcp_approval_response": "approval_request_id",
}
#: Items of an answer that are no calls.
_ANSWERS: Final = frozenset({"reasoning", "compaction"})
#: Tools that have no name of their own.
_NAMES: Final[Mapping[str, str]] = {
    "local_shell": "local_shell",
    "shell": "shell",
    "apply_patch": "apply_patch",
    "tool_search": "tool_search",
}


def facts(body: Any) -> Facts:
    """Return what emission must know of a request."""
    request: dict[str, Any] = as_object(body)
    tools: list[Any] = [*as_list(request.get("tools"))]
    for item in as_list(request.get("input")):
        if as_object(item).get("type") == "additional_tools":
            tools += as_list(item.get("tools"))
    model = request.get("model")
    return Facts(
        stream=request.get("stream") is True,
        usage=True,
        model=model if isinstance(model, str) else "",
        choices=1,
        tools=frozenset(_names(tools)),
    )


def _names(tools: list[Any]) -> Iterator[str]:
    for tool in map(as_object, tools):
        kind, name = tool.get("type"), tool.get("name")
        if kind == "namespace":
            yield from _names([inner for inner in as_list(tool.get("tools")) if as_object(inner).get("type") != kind])
        elif isinstance(name, str) and name:
            yield name
        elif isinstance(kind, str) and kind in _NAMES:
            yield kind


def results_in(body: Any) -> Results | None:
    """Return the tool results after the last item of an answer, or None if there are none.

    A client may send a result right after its call, so the items of the last answer may stand between results.
    """
    items: list[Any] = as_list(as_object(body).get("input"))
    answers: list[dict[str, Any]] = []
    at = len(items) - 1
    while at >= 0 and not _is_answer(item := as_object(items[at])):
        kind: Any = item.get("type")
        if isinstance(kind, str) and kind in _RESULTS:
            answers.append(item)
        at -= 1
    if not answers:
        return None
    calls: dict[str, dict[str, Any]] = {}
    while at >= 0 and _is_answer(item := as_object(items[at])):
        calls[str(item.get("call_id") or item.get("id") or "")] = item
        at -= 1
    found: dict[str, Result] = {}
    more = 0
    for item in reversed(answers):
        result = _result(item, calls)
        if result.id not in found and len(found) == RESULTS_MAX:
            more += 1
        else:
            found.setdefault(result.id, result)
    return Results(list(found.values()), at + 1, more)


def _is_answer(item: dict[str, Any]) -> bool:
    kind: Any = item.get("type")
    if isinstance(kind, str) and kind != "message":
        return kind in _ANSWERS or kind.endswith("_call") or kind == "mcp_approval_request"
    return item.get("role") == "assistant"


def _result(item: dict[str, Any], calls: dict[str, dict[str, Any]]) -> Result:
    kind: str = item["type"]
    given = item.get(_RESULTS[kind])
    call_id = given if isinstance(given, str) else ""
    call = calls.get(call_id, {})
    member, name = CLIENT_CALLS.get(str(call.get("type")), ("arguments", ""))
    asked: Any = call.get(member)
    said = call.get("name") or name
    arguments = asked if isinstance(asked, str) else "" if asked is None else dumps(asked).decode()
    output: Any = item.get("output", item.get("tools") if kind == "tool_search_output" else item.get("approve"))
    failed = item.get("is_error") is True or item.get("approve") is False
    text = preview(_text(output))
    return Result(call_id, str(said), text, failed, orphan=call_id not in calls, arguments=arguments)


def _text(output: Any) -> str:
    """Return the text of an output: text, a list of parts, or another value as JSON."""
    if isinstance(output, str):
        return output[:PREVIEW_BYTES_MAX]
    pieces: list[str] = []
    for part in as_list(output):
        piece: Any = as_object(part).get("text")
        if isinstance(piece, str):
            pieces.append(piece[:PREVIEW_BYTES_MAX])
    return "".join(pieces) if pieces or output is None else dumps(output).decode()
