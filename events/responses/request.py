"""What a Responses request contains: its facts, and new tool results. Nothing here raises on a body of any shape."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from ..core.json_text import as_list, as_object, as_text, dumps
from ..core.limits import PREVIEW_BYTES_MAX
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
_NAMES: Final = frozenset(name for _, name in CLIENT_CALLS.values() if name)


def facts(body: Any) -> Facts:
    """Return what emission must know of a request."""
    request: dict[str, Any] = as_object(body)
    tools: list[Any] = [*as_list(request.get("tools"))]
    for item in map(as_object, as_list(request.get("input"))):
        if item.get("type") == "additional_tools":
            tools += as_list(item.get("tools"))
    stream, model = request.get("stream") is True, as_text(request.get("model"))
    return Facts(stream=stream, usage=True, model=model, choices=1, tools=frozenset(_names(tools)))


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
    items = [as_object(item) for item in as_list(as_object(body).get("input"))]
    after = len(items)
    while after and not _is_answer(items[after - 1]):
        after -= 1
    answers = [item for item in items[after:] if as_text(item.get("type")) in _RESULTS]
    if not answers:
        return None
    at = after
    while at and _is_answer(items[at - 1]):
        at -= 1
    calls = {str(item.get("call_id") or item.get("id") or ""): item for item in reversed(items[at:after])}
    return Results.of((_result(item, calls) for item in answers), at)


def _is_answer(item: dict[str, Any]) -> bool:
    kind: Any = item.get("type")
    if isinstance(kind, str) and kind != "message":
        return kind in _ANSWERS or kind.endswith("_call") or kind == "mcp_approval_request"
    return item.get("role") == "assistant"


def _result(item: dict[str, Any], calls: dict[str, dict[str, Any]]) -> Result:
    call_id, call = "", dict[str, Any]()
    given = item.get(_RESULTS[item["type"]])
    if isinstance(given, str):
        call_id, call = given, calls.get(given, {})
    member, name = CLIENT_CALLS.get(str(call.get("type")), ("arguments", ""))
    asked: Any = call.get(member)
    arguments = asked if isinstance(asked, str) else "" if asked is None else dumps(asked).decode()
    output: Any = item.get("output", item.get("tools", item.get("approve")))
    failed = item.get("is_error") is True or item.get("approve") is False
    name, text = str(call.get("name") or name), preview(_text(output))
    return Result(call_id, name, text, failed, orphan=call_id not in calls, arguments=arguments)


def _text(output: Any) -> str:
    """Return the text of an output: text, a list of parts, or another value as JSON."""
    if isinstance(output, str):
        return output[:PREVIEW_BYTES_MAX]
    texts = [as_object(part).get("text") for part in as_list(output)]
    pieces = [text[:PREVIEW_BYTES_MAX] for text in texts if isinstance(text, str)]
    return "".join(pieces) if pieces or output is None else dumps(output).decode()
