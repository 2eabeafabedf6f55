"""What a stream comes to, as one small object: the expected result that stands on every sealed tape"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object, dumps, is_list, is_object
from wiretape.events.core.model import Ended, Repaired
from wiretape.events.emission.emit import events
from wiretape.events.folds.message import Message
from wiretape.events.folds.tools import Tools
from wiretape.events.folds.usage import UsageFold
from wiretape.events.folds.warnings import Warnings
from wiretape.events.tape.record import NO_KEYS, Record

from ..redaction.shapes import find

__all__ = ["expected"]

#: Of a text; its hash stands for the rest.
_SHOWN_CHARS: Final = 200


def expected(records: Sequence[Record]) -> dict[str, Any]:
    """Of a chat stream what was said, called, counted and warned of; of any other exchange its bytes.

    Nothing in it looks like a secret, as the beginning of a text may where the whole does not: base64 that is cut
    elsewhere reads otherwise.
    """
    if not records or records[0].keys.get("dialect") != "chat":
        return _harmless(_exchanged(records))
    fold = _harmless(_said(records, _SHOWN_CHARS))
    return fold if not _is_found(fold) else _harmless(_said(records, 0))  # by what two texts of it say together


def _said(records: Sequence[Record], shown: int) -> dict[str, Any]:
    message, tools, usage, warnings = Message(), Tools(), UsageFold(), Warnings()
    ended: Ended | None = None
    for event in events(records, repairs=False):
        if isinstance(event, Repaired):
            continue
        for fold in (message, tools, usage, warnings):
            fold.apply(event)
        ended = event if isinstance(event, Ended) else ended
    return {
        "ending": ended.ending if ended is not None else None,
        "flags": list(ended.flags) if ended is not None else [],
        "answers": list(_answers(message, shown)),
        "calls": list(_calls(tools, shown)),
        "usage": usage.counts,
        "warnings": [
            {"code": code, "tools": [name for _, name in islice(calls, 1_000)]} for code, calls in warnings.found
        ],
    }


def _harmless(fold: dict[str, Any]) -> dict[str, Any]:
    return as_object(_cut(fold)) if _is_found(fold) else fold


def _is_found(fold: dict[str, Any]) -> bool:
    return bool(find(dumps(fold).decode("utf-8", "replace")))


def _cut(value: Any) -> Any:
    """Each text up to where something is found."""
    if isinstance(value, str):
        while hits := find(value):
            value = value[: hits[0].start]
        return value
    if is_list(value):
        return [_cut(each) for each in as_list(value)]
    if is_object(value):
        return {name: _cut(each) for name, each in as_object(value).items()}
    return value


def _exchanged(records: Sequence[Record]) -> dict[str, Any]:
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


def _answers(message: Message, shown: int) -> Iterator[dict[str, Any]]:
    for index, said in sorted(message.choices.items()):
        yield {
            "choice": index,
            "finish": said.finish or None,
            **_text("text", message.text(index), shown),
            "reasoning_chars": len(message.reasoning(index)),
            **_text("refusal", message.refusal(index), shown),
        }


def _text(name: str, text: str, shown: int) -> dict[str, Any]:
    if not text:
        return {}
    said: dict[str, Any] = {name: _cut(text[:shown])}
    if len(text) > len(said[name]):
        said[f"{name}_sha256"] = hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()
    return {**said, f"{name}_chars": len(text)}


def _calls(tools: Tools, shown: int) -> Iterator[dict[str, Any]]:
    for call in tools.wire.all_calls():
        yield {
            "choice": call.choice,
            "id": call.id,
            "name": call.name,
            "state": call.state.value,
            **({"reason": call.reason} if call.reason else {}),
            **({"custom": True} if call.custom else {}),
            **_text("arguments", call.arguments, shown),
        }
