"""What two streams are made of, apart from values: JSON paths with their types, the order of kinds, status, ending"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_object, is_list, is_object, parse
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ForeignFrame,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    Terminator,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolProgress,
    UpstreamError,
    Usage,
)
from wiretape.events.emission.emit import events
from wiretape.events.tape.record import Record

from .bytes import compare_request, last_attempt, status_of
from .difference import Difference, unequal
from .json_diff import joined_path, kind_of

__all__ = ["Shape", "compare_shape", "shape_differences", "shape_of"]

#: What an event of a chat stream is, in the order in which these come first.
_KINDS: Final[Mapping[type[Event], str]] = MappingProxyType(
    {
        ReasoningDelta: "reasoning",
        TextDelta: "text",
        RefusalDelta: "refusal",
        ToolCallStarted: "call",
        ToolArgumentsDelta: "arguments",
        ToolProgress: "progress",
        Finish: "finish",
        Usage: "usage",
        UpstreamError: "error",
        Terminator: "terminator",
        ForeignFrame: "foreign",
    }
)

#: RFC 9110, 15.5: statuses of errors.
_REFUSED_FROM: Final = 400


@dataclass(slots=True, kw_only=True)
class Shape:
    """Of one stream."""

    status: Any
    ending: str | None
    #: Kinds of what is said, in the order in which each came first.
    order: list[str] = field(default_factory=list[str])
    #: Of each path the types that stand there, each with the first record.
    paths: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])


def shape_of(records: Sequence[Record]) -> Shape:
    """Of the attempt that counts."""
    seen = [event for event in events(records) if not isinstance(event, Repaired)]
    ended = [event.ending for event in seen if isinstance(event, Ended)]
    shape = Shape(status=status_of(records), ending=ended[-1] if ended else None)
    chat = bool(records) and records[0].keys.get("dialect") == "chat"
    for event in seen:
        if isinstance(event, AttemptStarted):
            shape.order.clear()
        elif type(event) in _KINDS and not (isinstance(event, UpstreamError) and _is_refusal(shape.status)):
            _note(shape, _KINDS[type(event)])
    body: list[Record] = []
    for record in last_attempt(records):
        if record.kind == "frame":
            _take_frame(shape, record, chat=chat)
        elif record.kind == "body":
            body.append(record)
        elif record.kind == "rest":
            _note(shape, "rest")
    value = parse(b"".join(record.raw or b"" for record in body)) if body else ABSENT
    if value is not ABSENT:
        _take(shape, value, "body", body[0].n)
    return shape


def _is_refusal(status: Any) -> bool:
    """The status says it, and the event of it nothing more: it is there or not by when the proxy decided to pass the
    answer on, at once in `transparent`, behind its last attempt in `strict`.
    """
    return isinstance(status, int) and status >= _REFUSED_FROM


def _take_frame(shape: Shape, record: Record, *, chat: bool) -> None:
    frame = record.frame()
    if frame.payload is None:
        return  # a comment: it stands where the clock puts it
    value = record.read().value if record.payload is not None else parse(frame.payload)
    if value is ABSENT:
        return  # `[DONE]` is a terminator, and has been noted as one
    kind = as_object(value).get("type")
    name = kind if isinstance(kind, str) else frame.event.decode("utf-8", "replace")
    if not chat:
        _note(shape, name or "data")
    _take(shape, value, "" if chat else name, record.n)


def _note(shape: Shape, kind: str) -> None:
    if kind not in shape.order:
        shape.order.append(kind)


def _take(shape: Shape, value: Any, path: str, n: int) -> None:
    waiting: list[tuple[Any, str]] = [(value, path)]
    while waiting:
        value, path = waiting.pop()
        shape.paths.setdefault(path or "(whole)", {}).setdefault(kind_of(value), n)
        if is_object(value):
            waiting += reversed([(part, joined_path(path, key)) for key, part in value.items()])
        elif is_list(value):
            waiting += reversed([(part, f"{path}[]") for part in value])


def compare_shape(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """New paths are benign; missing ones, other types, another order, status or ending are breaking."""
    yield from compare_request(a, b, breaking=False)
    yield from shape_differences(shape_of(a), shape_of(b))


def shape_differences(a: Shape, b: Shape) -> Iterator[Difference]:
    """The same of shapes."""
    yield from unequal("status", a.status, b.status, breaking=True)
    for path, types in a.paths.items():
        other = b.paths.get(path)
        if other is None:
            parent = path.rpartition(".")[0]
            if not parent or parent in b.paths or parent not in a.paths:  # of what is missing whole, the top
                yield Difference(path, _types(types), None, True, None, min(types.values()), None)
        elif other.keys() - types.keys():
            new = min(other[name] for name in other.keys() - types.keys())
            yield Difference(path, _types(types), _types(other), True, None, min(types.values()), new)
        elif types.keys() - other.keys():
            yield Difference(path, _types(types), _types(other), False, None, min(types.values()), min(other.values()))
    for path, types in b.paths.items():
        parent = path.rpartition(".")[0]
        if path not in a.paths and (not parent or parent in a.paths):
            yield Difference(path, None, _types(types), False, None, None, min(types.values()))
    if a.order != b.order:
        rest = iter(b.order)
        inserted = all(kind in rest for kind in a.order)
        yield Difference("order of kinds", a.order, b.order, breaking=not inserted)
    yield from unequal("ending", a.ending, b.ending, breaking=True)


def _types(types: dict[str, int]) -> str:
    return " or ".join(sorted(types))
