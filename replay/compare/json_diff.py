"""Two JSON values beside each other: every place where they differ"""

from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from wiretape.events.core.json_text import is_list, is_object

__all__ = ["ABSENT_TEXT", "Change", "changes", "joined_path", "kind_of"]

#: How a value that is not there is written beside one that is.
ABSENT_TEXT = "(absent)"


class Change(NamedTuple):
    """One place. Of a `new` value `a` is None, of a `missing` one `b`."""

    path: str
    a: Any
    b: Any
    how: Literal["value", "type", "missing", "new"]


def changes(a: Any, b: Any, path: str = "") -> Iterator[Change]:
    """Of lists by position. What only one of them has comes first in each object, nesting is unbounded."""
    waiting: list[tuple[Any, Any, str]] = [(a, b, path)]
    while waiting:
        a, b, path = waiting.pop()
        if is_object(a) and is_object(b):
            waiting += reversed([(a[key], b[key], joined_path(path, key)) for key in a if key in b])
            yield from (
                Change(joined_path(path, key), value, None, "missing") for key, value in a.items() if key not in b
            )
            yield from (Change(joined_path(path, key), None, value, "new") for key, value in b.items() if key not in a)
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
    """One member further."""
    plain = key.replace("_", "").replace("-", "").isalnum()
    step = key if plain else f"[{key!r}]"
    return f"{path}.{step}" if path and plain else path + step


def kind_of(value: Any) -> str:
    """JSON's word for what it is."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if is_list(value) else "object"
