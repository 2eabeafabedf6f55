"""The protocol of every driver, and the tool that each of them offers.

In: {base_url, key, model, prompt, tool, usage, retries, mode, turns, timeout, record, stop}; `tool` may be another
tool, `retries` null for the client's default, `record` a file to which the tool appends its arguments, `stop` a file
that ends a program once it exists.
Out: {turns, ran, error}: the client's result of each answer, the arguments that the tool ran with, and the exception.
What a client does not report is null.
"""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

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
    """Return the tool to offer."""
    return TOOL if asked["tool"] is True else asked["tool"]


def run(asked: dict[str, Any], arguments: str) -> str | None:
    """Return the tool's result, or None if its arguments are not JSON and it does not run. Empty arguments are `{}`, as
    in most loops that people write.
    """
    try:
        given: Any = json.loads(arguments or "{}")
    except ValueError:
        return None
    if asked["record"]:
        with Path(asked["record"]).open("a", encoding="utf-8") as written:
            written.write(json.dumps(given) + "\n")
    return f"18 degrees in {given['city'] if hasattr(given, 'keys') and 'city' in given else given}"


def retries(asked: dict[str, Any], name: str = "max_retries") -> dict[str, Any]:
    """Return the client's option for retries, or nothing for its default."""
    return {} if asked["retries"] is None else {name: asked["retries"]}


def weather(asked: dict[str, Any], ran: list[str]) -> Callable[..., str]:
    """Return the tool as a function for frameworks that derive a schema; it requires no argument."""

    def get_weather(city: str = "", days: int = 0) -> str:
        """The weather of one town"""
        ran.append(json.dumps({"city": city, "days": days}))
        return run(asked, ran[-1]) or ""

    return get_weather


def turn(text: str | None, calls: list[Any], finish: str | None, usage: list[int] | None) -> dict[str, Any]:
    """Return an answer as a client holds it; each call is [id, name, arguments as text]."""
    return {"text": text, "calls": calls, "finish": finish, "usage": usage}


def add_to_call(calls: list[Any], index: int, *parts: str | None) -> None:
    """Append pieces of id, name and arguments, as every tutorial does, so that an id or a name sent twice shows."""
    while len(calls) <= index:
        calls.append(["", "", ""])
    calls[index] = [before + (part or "") for before, part in zip(calls[index], parts, strict=True)]


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


def converse(asked: dict[str, Any], turns: list[Any], ran: list[str], once: Callable[[list[Any]], object]) -> None:
    """Ask and run tools until a turn calls none. `once` sends the messages and adds its turn, also if it raises."""
    messages: list[Any] = [{"role": "user", "content": asked["prompt"]}]
    once(messages)
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
        once(messages)


def serve(answer: Callable[[dict[str, Any], list[Any], list[str]], dict[str, Any] | None]) -> None:
    """Answer each line. A driver adds its turns and runs to two lists, and raises or returns an error.

    Anything else that is printed goes to the log.
    """
    out, sys.stdout = sys.stdout, sys.stderr
    for line in sys.stdin:
        turns: list[Any] = []
        ran: list[str] = []
        try:
            failure = answer(json.loads(line), turns, ran)
        except Exception as raised:  # noqa: BLE001 - the exception is the result
            failure = error(raised)
        out.write(json.dumps({"turns": turns, "ran": ran, "error": failure}) + "\n")
        out.flush()
