"""The `fold` line of every sealed tape: the result of a stream, small enough to review, compared at every load."""

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object, dumps, is_list, is_object
from wiretape.events.emission.summarise import summarise
from wiretape.events.folds.summary import StreamSummary
from wiretape.events.tape.record import NO_KEYS, Record

from ..redaction.shapes import find

__all__ = ["expected"]

#: Characters of a text that the fold line shows; its hash covers the rest.
_SHOWN_CHARS: Final = 200


def expected(records: Sequence[Record]) -> dict[str, Any]:
    """Return texts, calls, usage and warnings of a chat stream, or the size and hash of any other exchange.

    Nothing in the result looks like a secret. The beginning of a text may do so where the whole does not: base64 that
    is cut elsewhere reads differently.
    """
    if not records or records[0].keys.get("dialect") != "chat":
        return _harmless(_exchange_json(records))
    summary = summarise(records)
    fold = _harmless(_summary_json(summary, _SHOWN_CHARS))
    if _is_found(fold):  # in two texts together
        fold = _harmless(_summary_json(summary, 0))
    return fold


def _summary_json(summary: StreamSummary, shown: int) -> dict[str, Any]:
    ended = summary.wire.ended
    return {
        "ending": None if ended is None else ended.ending,
        "flags": [] if ended is None else list(ended.flags),
        "answers": list(_answers(summary, shown)),
        "calls": list(_calls(summary, shown)),
        "usage": summary.wire.usage,
        "warnings": [{"code": code, "tools": [name for _, name in calls]} for code, calls in summary.warnings],
    }


def _harmless(fold: dict[str, Any]) -> dict[str, Any]:
    return as_object(_cut(fold)) if _is_found(fold) else fold


def _is_found(fold: dict[str, Any]) -> bool:
    return bool(find(dumps(fold).decode("utf-8", "replace")))


def _cut(value: Any) -> Any:
    """Cut every text where something like a secret begins."""
    if isinstance(value, str):
        while hits := find(value):
            value = value[: hits[0].start]
        return value
    if is_list(value):
        return [_cut(each) for each in as_list(value)]
    if is_object(value):
        return {name: _cut(each) for name, each in as_object(value).items()}
    return value


def _exchange_json(records: Sequence[Record]) -> dict[str, Any]:
    end = next((record.keys for record in reversed(records) if record.kind == "end"), NO_KEYS)
    begun = max((at for at, record in enumerate(records) if record.kind == "attempt"), default=0)
    last = records[begun:]
    body = b"".join(record.raw or b"" for record in last if record.kind in ("frame", "rest", "body"))
    status = next((record.keys.get("status") for record in last if record.kind == "head"), None)
    return {
        "ending": end.get("ending"),
        "flags": end.get("flags", []),
        "status": status if type(status) is int else None,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }


def _answers(summary: StreamSummary, shown: int) -> Iterator[dict[str, Any]]:
    message = summary.message
    for index, choice in sorted(message.choices.items()):
        yield {
            "choice": index,
            "finish": choice.finish or None,
            **_text("text", message.text(index), shown),
            "reasoning_chars": len(message.reasoning(index)),
            **_text("refusal", message.refusal(index), shown),
        }


def _calls(summary: StreamSummary, shown: int) -> Iterator[dict[str, Any]]:
    for call in summary.wire.all_calls():
        yield {
            "choice": call.choice,
            "id": call.id,
            "name": call.name,
            "state": call.state.value,
            **({"reason": call.reason} if call.reason else {}),
            **({"custom": True} if call.custom else {}),
            **_text("arguments", call.arguments, shown),
        }


def _text(name: str, text: str, shown: int) -> dict[str, Any]:
    if not text:
        return {}
    said: dict[str, Any] = {name: _cut(text[:shown])}
    if len(text) > len(said[name]):
        said[f"{name}_sha256"] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return {**said, f"{name}_chars": len(text)}
