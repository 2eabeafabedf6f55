"""The whole answer that the chunks of a stream make together: what a client gets that did not ask for a stream."""

from collections.abc import Iterable
from typing import Any, Final

from ..core.json_text import as_list, is_list, is_object, joined_surrogates
from .chunk import CALLS, CHOICES

__all__ = ["whole"]

#: Members of a delta that are words, not text in pieces.
_WORDS: Final = frozenset({"id", "type", "role", "format"})


def whole(values: Iterable[Any]) -> dict[str, Any]:
    """Return the completion of canonical chunks."""
    answer: dict[str, Any] = {}
    choices: dict[int, dict[str, Any]] = {}
    for value in values:
        if not is_object(value) or CHOICES not in value or "toolCallId" in value:
            continue  # the terminator, or a lifecycle frame
        answer |= {key: member for key, member in value.items() if key not in (CHOICES, "usage")}
        if value.get("usage"):
            answer["usage"] = value["usage"]
        for part in value[CHOICES]:
            index: int = part["index"]
            choice = choices.setdefault(index, {"index": index, "message": {}, "logprobs": None, "finish_reason": None})
            _merge(choice["message"], part["delta"])
            choice["finish_reason"] = choice["finish_reason"] or part["finish_reason"]
    answer["object"] = "chat.completion"
    answer[CHOICES] = [_finished(choices[index]) for index in sorted(choices)]
    return answer


def _merge(into: dict[str, Any], delta: dict[str, Any]) -> None:
    """Add a delta: texts go on, entries of lists by their index, anything else replaces what was there."""
    for key, part in delta.items():
        known = into.get(key)
        if isinstance(known, str) and isinstance(part, str) and key not in _WORDS:
            into[key] = known + part
        elif is_object(known) and is_object(part):
            _merge(known, part)
        elif is_list(part) and all(is_object(entry) and "index" in entry for entry in part):
            entries: dict[Any, Any] = {entry["index"]: entry for entry in as_list(known)}
            for entry in part:
                _merge(entries.setdefault(entry["index"], {}), entry)
            into[key] = list(entries.values())
        elif part is not None:
            into[key] = _copied(part)


def _copied(part: Any) -> Any:
    return {key: _copied(member) for key, member in part.items()} if is_object(part) else part


def _finished(choice: dict[str, Any]) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None, **choice["message"]}
    for key, text in message.items():
        message[key] = (joined_surrogates(text) or None) if isinstance(text, str) else text
    for call in as_list(message.get(CALLS)):
        del call["index"]
    return {**choice, "message": message}
