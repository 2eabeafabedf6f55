"""What came whole where chunks were due, an answer or an error, in the forms that clients take."""

from typing import Any, NamedTuple

from ..core.json_text import as_object, dumps, is_list, is_object
from .write import CHUNK

__all__ = [
    "Failure",
    "choices_of",
    "chunks_of",
    "delivers",
    "error_of",
    "failure_of",
    "has_delta",
    "has_message",
    "news_of",
]


class Failure(NamedTuple):
    """The upstream's own error, in the one form that clients raise on."""

    #: An object with nothing but the error.
    value: dict[str, Any]
    message: str
    code: str
    #: Token counts that came with it.
    usage: dict[str, Any] | None = None


def error_of(value: dict[str, Any], event: bytes, *, usable: bool) -> Failure | None:
    """Return the error in a frame, in any of its places; `usable` means that the frame has choices."""
    status: Any = value.get("base_resp")
    if is_object(status) and status.get("status_code", 0) not in (0, "0", "", None):  # Q65
        message = str(status.get("status_msg") or "the upstream failed")
        return failure_of({"error": {"message": message, "type": "upstream_error", "code": status["status_code"]}})
    if value.get("error"):
        return failure_of(value)
    if event == b"error" and not usable:  # Q90 without the wrapping object
        return failure_of({"error": value})
    return None


def failure_of(value: dict[str, Any]) -> Failure:
    """Return the error object alone and whole: its extra members have their users (`failed_generation`)."""
    given: Any = value["error"]
    if not is_object(given):
        message = given if isinstance(given, str) else dumps(given).decode()
        given = {"message": message, "type": "upstream_error", "code": None}
    code = given.get("code") or given.get("type") or ""
    usage = value.get("usage")
    counts = usage if is_object(usage) and usage else None
    return Failure({"error": given}, str(given.get("message") or ""), str(code), counts)


def news_of(answer: dict[str, Any], unfinished: list[int]) -> list[dict[str, Any]]:
    """Q60: a stream that repeats its message as one last object; news are its usage, a finish not yet given, and what
    it says of calls, of which the stream may have said nothing.
    """
    finishes: list[dict[str, Any]] = [
        {"index": choice["index"], "delta": {}, **_calls_of(choice), "finish_reason": choice["finish_reason"]}
        for choice in choices_of(answer)
        if is_object(choice) and choice.get("index") in unfinished and choice.get("finish_reason")
    ]
    return [*([{"choices": finishes}] if finishes else []), *_usage_of(answer)]


def _calls_of(choice: dict[str, Any]) -> dict[str, Any]:
    calls: Any = as_object(choice.get("message")).get("tool_calls")
    return {"message": {"tool_calls": calls}} if is_list(calls) and calls else {}


def chunks_of(answer: dict[str, Any], *, one: bool) -> list[dict[str, Any]]:
    """Return a stream made from a whole answer: each message is one delta, as it is."""
    messages = list(filter(has_message, choices_of(answer)))
    given = _one_answer(messages) if one else messages
    finishes: list[dict[str, Any]] = [
        {"index": choice.get("index"), "delta": {}, "finish_reason": choice.get("finish_reason")} for choice in given
    ]
    deltas: list[dict[str, Any]] = [
        {**{key: part for key, part in choice.items() if key != "message"}, "delta": choice["message"]}
        | {"finish_reason": None}
        for choice in given
    ]
    rest = {key: part for key, part in answer.items() if key != "usage"}
    return [{**rest, "object": CHUNK, "choices": deltas}, {"choices": finishes}, *_usage_of(answer)]


def _usage_of(answer: dict[str, Any]) -> list[dict[str, Any]]:
    usage = answer.get("usage")
    return [{"choices": [], "usage": usage}] if is_object(usage) and usage else []


def _one_answer(choices: list[Any]) -> list[Any]:
    """Q27: one answer was asked for, and its text and its calls come as two choices."""
    first, *others = choices
    beside = [choice for choice in others if choice["message"].get("tool_calls")]
    if not beside or first["message"].get("tool_calls"):
        return choices
    lists = [choice["message"]["tool_calls"] for choice in beside]
    calls = [call for calls in lists if is_list(calls) for call in calls]
    return [{**beside[0], "index": 0, "message": {**first["message"], "tool_calls": calls}}]


def choices_of(value: dict[str, Any]) -> list[Any]:
    """Return the choices, where they are a list."""
    choices: Any = value.get("choices")
    return choices if is_list(choices) else []


def has_message(choice: Any) -> bool:
    """Return whether this is a choice of a whole answer."""
    return is_object(choice) and is_object(choice.get("message"))


def has_delta(choice: Any) -> bool:
    """Return whether this is a choice of a chunk."""
    return is_object(choice) and is_object(choice.get("delta"))


def delivers(choice: Any) -> bool:
    """Return whether a choice of a chunk says anything beyond its role."""
    return has_delta(choice) and any(part for key, part in choice["delta"].items() if key != "role")
