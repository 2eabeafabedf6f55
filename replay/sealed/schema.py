"""What the members of a sealed tape's lines may be: the JSON Schema of docs/, written by hand, for who checks a tape

What is missing is no trouble, but for the few without which nobody can read a line, nor is a member that nobody knows.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import as_list, as_object, is_list, is_object

__all__ = ["HEADER", "LINES", "NORMALISED", "REQUIRED", "wrong_members"]

#: What normalising renames or resets, as the header names it.
NORMALISED: Final = ("ids", "created", "fingerprint", "obfuscation", "request_ids", "rate_limits", "results", "ports")


@dataclass(frozen=True, slots=True)
class _Sort:
    """What may stand there, and in words."""

    said: str
    holds: Callable[[Any], bool]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and value >= 0


def _is_list(value: Any) -> bool:
    return is_list(value)


def _is_object(value: Any) -> bool:
    return is_object(value)


def _list_of(said: str, holds: Callable[[Any], bool]) -> _Sort:
    return _Sort(f"no list of {said}", lambda value: _is_list(value) and all(map(holds, as_list(value))))


def _one_of(*words: Any) -> _Sort:
    return _Sort(
        f"none of {', '.join(map(str, words))}",
        lambda value: any(value == word and type(value) is type(word) for word in words),
    )


def _like(said: str, pattern: str) -> _Sort:
    expression = re.compile(pattern)
    return _Sort(f"no {said}", lambda value: isinstance(value, str) and expression.search(value) is not None)


def _or_none(sort: _Sort) -> _Sort:
    return _Sort(sort.said, lambda value: value is None or sort.holds(value))


def _with(*names: str) -> Callable[[Any], bool]:
    return lambda value: _is_object(value) and all(name in as_object(value) for name in names)


def _is_pair(value: Any) -> bool:
    return _is_list(value) and len(as_list(value)) == 2 and all(map(_is_text, as_list(value)))


_TEXT: Final = _Sort("no text", _is_text)
_COUNT: Final = _Sort("no whole number from 0", _is_count)
_NUMBER: Final = _Sort("no whole number", lambda value: type(value) is int)
_STATUS: Final = _Sort("no number from 100 to 999", lambda value: type(value) is int and 100 <= value <= 999)
_FLAG: Final = _Sort("neither true nor false", lambda value: type(value) is bool)
_OBJECT: Final = _Sort("no object", _is_object)
_LIST: Final = _Sort("no list", _is_list)
_TEXTS: Final = _list_of("texts", _is_text)
_PAIRS: Final = _list_of("names with their values", _is_pair)
_SHA256: Final = _like("SHA-256 in hex digits", r"^[0-9a-f]{64}$")
_CODED: Final[Mapping[str, _Sort]] = MappingProxyType(
    {
        "decoded": _TEXT,
        "unreadable": _one_of("coding", "damaged", "size"),
        "bytes": _COUNT,
        "sha256": _SHA256,
    }
)
_ENDINGS: Final = (
    "completed", "truncated", "reset", "stalled", "upstream_error", "refused", "protocol", "limit", "client_gone",
    "shutdown", "crashed", "internal",
)  # fmt: skip

#: Of the first line.
HEADER: Final[Mapping[str, _Sort]] = MappingProxyType(
    {
        "exact": _FLAG,
        "recorded": _or_none(_like("day", r"^\d{4}-\d\d-\d\d$")),
        "streams": _COUNT,
        "dialects": _TEXTS,
        "normalised": _list_of("what is normalised", _one_of(*NORMALISED).holds),
        "redacted": _OBJECT,
        "max_age_days": _Sort("no whole number from 1", lambda value: type(value) is int and value >= 1),
    }
)
_REDACTED: Final[Mapping[str, _Sort]] = MappingProxyType(
    {
        "rules": _list_of("rules", _one_of("detector", "headers", "names", "shapes").holds),
        "paths": _TEXTS,
        "prompts": _one_of("sha256"),
    }
)
#: By kind, of the lines of a stream.
LINES: Final[Mapping[str, Mapping[str, _Sort]]] = MappingProxyType(
    {
        "open": MappingProxyType(
            {
                "format": _COUNT,
                "stream": _TEXT,
                "dialect": _TEXT,
                "profile": _TEXT,
                "created": _COUNT,
                "created_us": _COUNT,
                "settings": _OBJECT,
                "software": _TEXT,
                "route": _TEXT,
            }
        ),
        "request": MappingProxyType(
            {
                "method": _TEXT,
                "path": _TEXT,
                "headers": _PAIRS,
                "key": _TEXT,
                "facts": _OBJECT,
                "messages": _COUNT,
                "streamed": _FLAG,
                **_CODED,
            }
        ),
        "attempt": MappingProxyType({"number": _COUNT, "upstream": _TEXT, "unstreamed": _FLAG}),
        "failed": MappingProxyType(
            {
                "attempt": _COUNT,
                "ending": _TEXT,
                "message": _TEXT,
                "status": _or_none(_NUMBER),
                "next": _TEXT,
                "after_ms": _COUNT,
                "framed": _FLAG,
                "broke": _TEXT,
            }
        ),
        "head": MappingProxyType(
            {
                "status": _STATUS,
                "headers": _PAIRS,
                "framing": _TEXT,
                "length": _COUNT,
                "repeated": _FLAG,
                **_CODED,
            }
        ),
        "results": MappingProxyType({"results": _LIST, "after": _COUNT, "more": _COUNT, "request": _TEXT}),
        "history": MappingProxyType({"marks": _LIST, "edits": _LIST}),
        "end": MappingProxyType(
            {
                "cause": _TEXT,
                "answer": _TEXT,
                "ending": _one_of(*_ENDINGS),
                "flags": _TEXTS,
                "bytes": _COUNT,
                "frames": _COUNT,
                "sha256": _SHA256,
                "framed": _FLAG,
                "broke": _TEXT,
            }
        ),
        "fold": MappingProxyType(
            {
                "ending": _or_none(_TEXT),
                "flags": _TEXTS,
                "answers": _list_of("answers", _with("choice", "finish")),
                "calls": _list_of("calls", _with("choice", "id", "name", "state")),
                "usage": _or_none(_OBJECT),
                "warnings": _list_of("warnings", _with("code", "tools")),
                "status": _or_none(_NUMBER),
                "bytes": _COUNT,
                "sha256": _SHA256,
            }
        ),
        "commit": MappingProxyType({"status": _STATUS}),
        "gone": MappingProxyType({"at": _COUNT}),
        "upload": MappingProxyType({"bytes": _COUNT, "sha256": _SHA256, "part": _FLAG}),
    }
)
#: Without these nobody can make anything of it.
REQUIRED: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"head": ("status",), "end": ("cause",), "fold": ("ending", "flags")}
)


def wrong_members(kind: str, said: Mapping[str, Any]) -> Iterator[str]:
    """Which members are not as they should be, and what they are not; `header` is the first line."""
    sorts = HEADER if kind == "header" else LINES.get(kind, {})
    for name in REQUIRED.get(kind, ()):
        if name not in said:
            yield f"{name} is missing"
    for name, sort in sorts.items():
        if name in said and not sort.holds(said[name]):
            yield f"{name} is {sort.said}"
    if kind == "header":
        redacted: dict[str, Any] = as_object(said.get("redacted"))
        for name, sort in _REDACTED.items():
            if name in redacted and not sort.holds(redacted[name]):
                yield f"redacted.{name} is {sort.said}"
