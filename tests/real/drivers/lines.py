"""The form that every driver speaks, and the tool that every one of them offers.

In: {base_url, key, model, prompt, tool, usage, retries, mode, turns, timeout, record, stop}; `tool` may be a tool of
the asker's, `retries` null for what the client does by itself, `record` a file in which the tool writes down what it is
run with, `stop` a file that ends a program once it is there.
Out: {turns, ran, error}: what the client holds of each answer, with which arguments the tool was run, and what was
raised. What a client does not tell is null.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

__all__ = ["TOOL", "converse", "error", "retries", "run", "serve", "tool_of", "turn", "weather"]

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


def tool_of(asked: dict[str, Any]) -> dict[str, Any]:
    """The tool that is offered."""
    return TOOL if asked["tool"] is True else asked["tool"]


def run(asked: dict[str, Any], arguments: str) -> str | None:
    """What the tool answers, or None where these arguments cannot be read: then it does not run. No arguments are taken
    for none, as by most loops that people write."""
    try:
        given: Any = json.loads(arguments or "{}")
    except ValueError:
        return None
    if asked["record"]:
        with Path(asked["record"]).open("a", encoding="utf-8") as written:
            written.write(json.dumps(given) + "\n")
    return f"18 degrees in {given['city'] if hasattr(given, 'keys') and 'city' in given else given}"


def retries(asked: dict[str, Any], name: str = "max_retries") -> dict[str, Any]:
    """How often the client may ask again, as its option; nothing where that is left to it."""
    return {} if asked["retries"] is None else {name: asked["retries"]}


def weather(asked: dict[str, Any], ran: list[str]) -> Callable[..., str]:
    """The tool as a function, for frameworks that make a schema of one; none of its arguments is required."""

    def get_weather(city: str = "", days: int = 0) -> str:
        """The weather of one town"""
        ran.append(json.dumps({"city": city, "days": days}))
        return run(asked, ran[-1]) or ""

    return get_weather


def turn(text: str | None, calls: list[Any], finish: str | None, usage: list[int] | None) -> dict[str, Any]:
    """One answer as a client holds it; each call is [id, name, arguments as text]."""
    return {"text": text, "calls": calls, "finish": finish, "usage": usage}


def error(failure: BaseException) -> dict[str, Any]:
    """Return an exception of a client built on the openai SDK as a line."""
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


def converse(asked: dict[str, Any], once: Callable[[list[Any], list[Any]], object]) -> dict[str, Any]:
    """Ask and run tools until a turn calls none.

    `once` sends the messages of the first list and appends its turn to the second, also if it raises.
    """
    turns: list[dict[str, Any]] = []
    ran: list[str] = []
    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    try:
        once(messages, turns)
        while asked["tool"] and (called := turns[-1]["calls"]) and len(turns) < asked["turns"]:
            calls = [
                {"id": one, "type": "function", "function": {"name": name, "arguments": arguments}}
                for one, name, arguments in called
            ]
            messages.append({"role": "assistant", "content": turns[-1]["text"], "tool_calls": calls})
            for one, _, arguments in called:
                result = run(asked, arguments)
                if result is not None:
                    ran.append(arguments)
                messages.append({"role": "tool", "tool_call_id": one, "content": result or "arguments are not JSON"})
            once(messages, turns)
    except Exception as failure:  # noqa: BLE001 - the exception is the result
        return {"turns": turns, "ran": ran, "error": error(failure)}
    return {"turns": turns, "ran": ran, "error": None}


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answers line for line until there are no more. What else is printed goes to the log."""
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        out.write(json.dumps(answer(json.loads(line))) + "\n")
        out.flush()
