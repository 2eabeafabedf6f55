"""Find every place where two JSON values differ, and show a value on one line without its secrets."""

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core.json_text import is_list, is_object

from ..redaction.shapes import find

__all__ = ["Change", "changes", "first_difference", "hidden", "joined_path", "kind_of", "plain", "shortened"]

_KINDS: Final[Mapping[type, str]] = MappingProxyType(
    {type(None): "null", bool: "boolean", int: "number", float: "number", str: "string", list: "array"}
)
_ABSENT_TEXT: Final = "(absent)"
_SHOWN_CHARS: Final = 70
#: Context shown before the character where two texts part.
_BEFORE_CHARS: Final = 20


class Change(NamedTuple):
    """One difference. A `new` value has no `a`, a `missing` one no `b`."""

    path: str
    a: Any
    b: Any
    how: Literal["value", "type", "missing", "new"]

    @property
    def at(self) -> int | None:
        """The character where two longer texts part."""
        texts = isinstance(self.a, str) and isinstance(self.b, str)
        return first_difference(self.a, self.b) if texts and len(self.a) + len(self.b) > 2 * _BEFORE_CHARS else None


def changes(a: Any, b: Any, path: str = "") -> Iterator[Change]:
    """Yield the differences, members of one side first; lists are compared by position and nesting is unbounded."""
    waiting: list[tuple[Any, Any, str]] = [(a, b, path)]
    while waiting:
        a, b, path = waiting.pop()
        if is_object(a) and is_object(b):
            waiting += reversed([(a[key], b[key], joined_path(path, key)) for key in a if key in b])
            yield from (Change(joined_path(path, key), a[key], None, "missing") for key in a if key not in b)
            yield from (Change(joined_path(path, key), None, b[key], "new") for key in b if key not in a)
        elif is_list(a) and is_list(b):
            common = min(len(a), len(b))
            waiting += reversed([(a[at], b[at], f"{path}[{at}]") for at in range(common)])
            yield from (Change(f"{path}[{at}]", a[at], None, "missing") for at in range(common, len(a)))
            yield from (Change(f"{path}[{at}]", None, b[at], "new") for at in range(common, len(b)))
        elif kind_of(a) != kind_of(b):
            yield Change(path, a, b, "type")
        elif a != b:
            yield Change(path, a, b, "value")


def joined_path(path: str, key: str) -> str:
    simple = key.replace("_", "").replace("-", "").isalnum()
    step = key if simple else f"[{key!r}]"
    return f"{path}.{step}" if path and simple else path + step


def kind_of(value: object) -> str:
    """Return JSON's name for the type of a value."""
    return _KINDS.get(type(value), "object")


def first_difference(a: str | bytes, b: str | bytes) -> int:
    """Return the index at which two texts part."""
    return next((at for at, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def shortened(value: Any, at: int | None = None) -> str:
    """Show a value on one line, with the part around `at`; None is an absent value."""
    if value is None:
        return _ABSENT_TEXT
    if isinstance(value, bytes) and at is None:
        value = plain(value)
    if isinstance(value, str) and (clean := hidden(value)) != value:
        value, at = clean, None
    if isinstance(value, str | bytes) and at is not None:
        start = max(0, at - _BEFORE_CHARS)
        part = _quoted(value[start : start + _SHOWN_CHARS])
        return f"{'…' if start else ''}{part}{'…' if len(value) > start + _SHOWN_CHARS else ''}"
    shown = hidden(_quoted(value))
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"


def hidden(text: str) -> str:
    """Replace everything that looks like a secret."""
    for hit in reversed(find(text)):
        text = f"{text[: hit.start]}[redacted-{hit.vendor}]{text[hit.end :]}"
    return text


def plain(value: Any) -> Any:
    """Decode bytes for display and leave any other value as it is."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def _quoted(value: Any) -> str:
    return json.dumps(plain(value), ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()
