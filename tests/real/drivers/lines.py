"""The form that every driver speaks, and the tool that every one of them offers.

In: {base_url, key, model, prompt, tool, usage, retries, mode}. Out: {turns, ran, error}: what the client holds of each
answer, with which arguments the tool was run, and what was raised. What a client does not tell is null.
"""

import json
import sys
from collections.abc import Callable
from typing import Any, Final

__all__ = ["TOOL", "error", "result_of", "serve", "turn"]

TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of one town",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Paris"]}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}


def result_of(arguments: str) -> str | None:
    """What the tool answers, or None where these arguments cannot be read: then it does not run."""
    try:
        given: Any = json.loads(arguments)
    except ValueError:
        return None
    return f"18 degrees in {given['city'] if hasattr(given, 'keys') and 'city' in given else given}"


def turn(text: str | None, calls: list[Any], finish: str | None, usage: list[int] | None) -> dict[str, Any]:
    """One answer as a client holds it; each call is [id, name, arguments as text]."""
    return {"text": text, "calls": calls, "finish": finish, "usage": usage}


def error(failure: BaseException) -> dict[str, Any]:
    """What was raised, in what clients built on the openai SDK tell of it."""
    response = getattr(failure, "response", None)
    body: Any = getattr(failure, "body", None)
    told: dict[str, Any] = body if hasattr(body, "get") else {"message": str(failure)}
    return {
        "class": type(failure).__name__,
        "status": getattr(failure, "status_code", None),
        "code": told.get("code"),
        "message": told.get("message"),
        "retry_after": response.headers.get("retry-after") if response is not None else None,
    }


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers line for line until there are no more."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()
