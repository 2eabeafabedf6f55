"""The `fold` line: the result of a stream, small enough to review, compared whenever a tape is loaded"""

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object
from wiretape.events.emit import summarise
from wiretape.events.tape.record import NO_KEYS, Record

__all__ = ["SUMMARY_VERSION", "Hide", "expected"]

#: Grows when the same stream would get another fold line. Lines of version 1 do not have the member.
SUMMARY_VERSION: Final = 2

#: Characters of a text that the line shows; a hash covers the rest.
_SHOWN_CHARS: Final = 200

#: Shortens a text that may be shown.
Hide = Callable[[str], str]


def expected(records: Sequence[Record], *, like: Mapping[str, Any] = NO_KEYS, hide: Hide = str) -> dict[str, Any]:
    """Return texts, calls, usage and warnings of a chat stream, or the size and hash of any other exchange.

    A text is shown as far as the fold line `like` shows it, if that one agrees with it, else as far as `hide` allows.
    """
    version = {"version": SUMMARY_VERSION} if not like or "version" in like else {}
    if not records or records[0].keys.get("dialect") != "chat":
        return version | _exchange(records)
    summary = summarise(records)
    ended, message = summary.wire.ended, summary.message
    answers = [
        {
            "choice": index,
            "finish": choice.finish or None,
            **_text("text", message.text(index), row, hide),
            "reasoning_chars": len(message.reasoning(index)),
            **_text("refusal", message.refusal(index), row, hide),
        }
        for (index, choice), row in zip(sorted(message.choices.items()), _rows(like, "answers"), strict=False)
    ]
    calls = [
        {
            "choice": call.choice,
            "id": call.id,
            "name": call.name,
            "state": call.state.value,
            **({"reason": call.reason} if call.reason else {}),
            **({"custom": True} if call.custom else {}),
            **_text("arguments", call.arguments, row, hide),
        }
        for call, row in zip(summary.wire.all_calls(), _rows(like, "calls"), strict=False)
    ]
    return {
        **version,
        "ending": None if ended is None else ended.ending,
        "flags": [] if ended is None else list(ended.flags),
        "answers": answers,
        "calls": calls,
        "usage": summary.wire.usage,
        "warnings": [{"code": code, "tools": [name for _, name in found]} for code, found in summary.warnings],
    }


def _rows(like: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    yield from map(as_object, as_list(like.get(name)))
    while True:
        yield NO_KEYS


def _text(name: str, text: str, like: Mapping[str, Any], hide: Hide) -> dict[str, Any]:
    if not text:
        return {}
    shown = like.get(name)
    if not isinstance(shown, str) or not text.startswith(shown) or len(shown) > _SHOWN_CHARS:
        shown = hide(text[:_SHOWN_CHARS])
    rest = {f"{name}_sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()} if shown != text else {}
    return {name: shown, **rest, f"{name}_chars": len(text)}


def _exchange(records: Sequence[Record]) -> dict[str, Any]:
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
