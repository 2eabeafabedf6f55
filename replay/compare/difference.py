"""One difference between two recordings, for a person and for a program."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ..matching.json_diff import Change, plain, shortened

__all__ = ["Difference", "of_change", "unequal"]


class Difference(NamedTuple):
    """A fact that two recordings disagree on. A side that lacks it has None."""

    path: str
    a: Any
    b: Any
    breaking: bool
    #: The character, or the byte, at which two texts part.
    at: int | None = None
    record_a: int | None = None
    record_b: int | None = None
    #: From 1.
    stream: int = 1

    def line(self, line_a: int | None = None, line_b: int | None = None) -> str:
        """Describe it for a person, with the line numbers of the two files where they are known."""
        sides = [
            "none" if record is None else f"record {record}" if line is None else f"line {line}"
            for record, line in ((self.record_a, line_a), (self.record_b, line_b))
        ]
        where = "" if sides == ["none", "none"] else f", {' and '.join(dict.fromkeys(sides))}"
        at = f" at {self.at}" if self.at is not None else ""
        word = "breaking" if self.breaking else "benign"
        a, b = (shortened(value, self.at) for value in (self.a, self.b))
        return f"{word}: stream {self.stream}{where}: {self.path}{at}: {a} -> {b}"

    def to_json(self) -> dict[str, Any]:
        """Describe it for a program, with whole values."""
        return {name: plain(value) for name, value in self._asdict().items() if value is not None or name in ("a", "b")}


def unequal(path: str, a: Any, b: Any, *, breaking: bool, **where: Any) -> Iterator[Difference]:
    """Yield a difference if the values differ; `where` is the rest of its fields."""
    if a != b:
        yield Difference(path, a, b, breaking, **where)


def of_change(
    change: Change, *, breaking: bool, prefix: str = "", record_a: int | None = None, record_b: int | None = None
) -> Difference:
    """Return a change inside JSON as a difference; a null is shown as such, since None means absent."""
    dot = "." if prefix and change.path and not change.path.startswith("[") else ""
    a = None if change.how == "new" else "null" if change.a is None else change.a
    b = None if change.how == "missing" else "null" if change.b is None else change.b
    return Difference(f"{prefix}{dot}{change.path}", a, b, breaking, change.at, record_a, record_b)
