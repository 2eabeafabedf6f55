"""What emission must know of a chat completions request, found in its body."""

from typing import Any

from ..core.json_text import as_list, as_object, is_object
from ..core.settings import Facts

__all__ = ["facts", "said_in"]


def facts(body: Any) -> Facts:
    """Return the facts of a request of any shape."""
    request: dict[str, Any] = as_object(body)
    options: Any = request.get("stream_options")
    model, choices = request.get("model"), request.get("n")
    tools, functions = request.get("tools"), request.get("functions")
    return Facts(
        stream=request.get("stream") is True,
        usage=is_object(options) and options.get("include_usage") is True,
        model=model if isinstance(model, str) else "",
        choices=1 if choices is None else choices if type(choices) is int else None,
        tools=frozenset(name for tool in (*as_list(tools), *as_list(functions)) if (name := _tool_name(tool))),
    )


def _tool_name(tool: Any) -> str:
    """Return the name inside the member that the tool's type names or, of a legacy function, in the tool itself."""
    given: dict[str, Any] = as_object(tool)
    inner: Any = given.get("function") or given.get("custom")
    name = (inner if is_object(inner) else given).get("name")
    return name if isinstance(name, str) else ""


def said_in(entry: dict[str, Any]) -> tuple[dict[str, Any] | None, bool]:
    """Return the member of an entry of `tool_calls` with its name and arguments, and whether the tool is a custom one.

    Gateways may write both members, one of them empty; then the type tells, or which of them says something.
    """
    function, custom, is_custom = entry.get("function"), entry.get("custom"), entry.get("type") == "custom"
    says = is_object(function) and bool(function.get("name") or function.get("arguments"))
    if is_object(custom) and (is_custom or not says):
        return custom, True
    return (function, False) if is_object(function) else (None, is_custom)
