"""One difference between two recordings, and how a person reads it"""

import json
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple, get_args

from ..redaction.shapes import find
from .json_diff import ABSENT_TEXT, Change

__all__ = ["LEVEL_NAMES", "Difference", "Level", "first_difference", "hidden", "of_change", "shortened", "unequal"]

Level = Literal["fold", "shape", "bytes", "clock"]
LEVEL_NAMES: Final[tuple[str, ...]] = get_args(Level)

#: Of a value that is shown.
_SHOWN_CHARS: Final = 70
#: Of what stands before the place where two texts part.
_BEFORE_CHARS: Final = 20


class Difference(NamedTuple):
    """What one has and the other has not. `a` or `b` is None where nothing is there."""

    #: What is different: a fact of the fold, a JSON path, a read.
    path: str
    a: Any
    b: Any
    breaking: bool
    #: Of a text the character, of bytes the byte where they part.
    at: int | None = None
    #: The records that it stands in.
    record_a: int | None = None
    record_b: int | None = None
    #: From 1.
    stream: int = 1

    def line(self, line_a: int | None = None, line_b: int | None = None) -> str:
        """For a person; with the lines of the two files, where they are known."""
        where = _where(self.record_a, self.record_b, line_a, line_b)
        at = f" at {self.at}" if self.at is not None else ""
        a, b = (shortened(value, self.at) for value in (self.a, self.b))
        word = "breaking" if self.breaking else "benign"
        return f"{word}: stream {self.stream}{where}: {self.path}{at}: {a} -> {b}"

    def to_json(self) -> dict[str, Any]:
        """The same for a program; values whole."""
        said = self._asdict()
        return {name: _plain(value) for name, value in said.items() if value is not None or name in ("a", "b")}


def _where(record_a: int | None, record_b: int | None, line_a: int | None, line_b: int | None) -> str:
    sides = [
        "none" if record is None else f"record {record}" if line is None else f"line {line}"
        for record, line in ((record_a, line_a), (record_b, line_b))
    ]
    if sides[0] == sides[1]:
        return "" if sides[0] == "none" else f", {sides[0]}"
    return f", {sides[0]} and {sides[1]}"


def unequal(
    path: str,
    a: Any,
    b: Any,
    *,
    breaking: bool,
    at: int | None = None,
    records: tuple[int | None, int | None] = (None, None),
) -> Iterator[Difference]:
    """A difference, where there is one."""
    if a != b:
        yield Difference(path, a, b, breaking, at, *records)


def shortened(value: Any, at: int | None = None) -> str:
    """On one line, with what stands at `at` in it."""
    if value is None:
        return ABSENT_TEXT
    if isinstance(value, bytes):
        value = value.decode("utf-8", "backslashreplace") if at is None else value
    if isinstance(value, str) and (clean := hidden(value)) != value:  # whatever differs in it is nobody's to read
        value, at = clean, None
    if isinstance(value, str | bytes) and at is not None:
        start = max(0, at - _BEFORE_CHARS)
        part = value[start : start + _SHOWN_CHARS]
        text = part.decode("utf-8", "backslashreplace") if isinstance(part, bytes) else part
        return f"{'…' if start else ''}{_quoted(text)}{'…' if len(value) > start + _SHOWN_CHARS else ''}"
    shown = hidden(_quoted(value))
    return shown if len(shown) <= _SHOWN_CHARS else shown[: _SHOWN_CHARS - 1] + "…"


def hidden(text: str) -> str:
    """Without what looks like a secret."""
    for hit in reversed(find(text)):
        text = f"{text[: hit.start]}[redacted-{hit.vendor}]{text[hit.end :]}"
    return text


def _quoted(value: Any) -> str:
    return json.dumps(_plain(value), ensure_ascii=False, default=str).encode("utf-8", "backslashreplace").decode()


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def first_difference(a: str | bytes, b: str | bytes) -> int:
    """The place where two that differ part."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # of long texts, compared in halves
        middle = (low + high + 1) // 2
        if a[:middle] == b[:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def of_change(
    change: Change, *, breaking: bool, prefix: str = "", record_a: int | None = None, record_b: int | None = None
) -> Difference:
    """A difference inside JSON."""
    path = prefix + (("." if prefix and not change.path.startswith("[") else "") + change.path if change.path else "")
    a = None if change.how == "new" else "null" if change.a is None else change.a
    b = None if change.how == "missing" else "null" if change.b is None else change.b
    at = None
    if isinstance(change.a, str) and isinstance(change.b, str) and len(change.a) + len(change.b) > 2 * _BEFORE_CHARS:
        at = first_difference(change.a, change.b)
    return Difference(path, a, b, breaking, at, record_a, record_b)
