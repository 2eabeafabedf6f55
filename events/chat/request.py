"""What emission must know of a chat completions request, found in its body."""

from typing import Any

from ..json_text import as_list, as_object, is_object
from ..settings import Facts

__all__ = ["facts"]


def facts(body: Any) -> Facts:
    """The facts of a request, whatever its shape."""
    request: dict[str, Any] = as_object(body)
    options: Any = request.get("stream_options")
    model, choices = request.get("model"), request.get("n", 1)
    tools: Any = request.get("tools")
    return Facts(
        stream=request.get("stream") is True,
        usage=is_object(options) and options.get("include_usage") is True,
        model=model if isinstance(model, str) else "",
        choices=choices if type(choices) is int else None,
        tools=frozenset(name for tool in (as_list(tools)) if (name := _tool_name(tool))),
    )


def _tool_name(tool: Any) -> str:
    function: Any = tool.get("function") if is_object(tool) else None
    name: Any = function.get("name") if is_object(function) else None
    return name if isinstance(name, str) else ""
