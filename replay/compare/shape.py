"""Compare the shape of two streams: JSON paths and types, order of kinds, status and ending, but no values."""

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
    Terminator,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolProgress,
    UpstreamError,
    Usage,
)
from wiretape.events.emit import events
from wiretape.events.tape.record import Record

from ..matching.json_diff import joined_path, kind_of
from ..playback.player import attempts_of
from ..redaction.body_codec import opened
from .bytes import head_of
from .difference import Difference, unequal

__all__ = ["compare_shapes"]

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


@dataclass(slots=True, kw_only=True)
class _Shape:
    """The shape of one stream's last attempt."""

    status: Any
    ending: str | None = None
    #: Kinds of events or payloads, in the order in which each came first.
    order: list[str] = field(default_factory=list[str])
    #: The types found at each path, each with the first record that has it.
    paths: dict[str, dict[str, int]] = field(default_factory=dict[str, dict[str, int]])

    def note(self, kind: str) -> None:
        """Add a kind."""
        if kind not in self.order:
            self.order.append(kind)

    def add(self, value: Any, path: str, n: int) -> None:
        """Add every path of a value."""
        waiting: list[tuple[Any, str]] = [(value, path)]
        while waiting:
            value, path = waiting.pop()
            self.paths.setdefault(path or "(whole)", {}).setdefault(kind_of(value), n)
            if is_object(value):
                waiting += reversed([(part, joined_path(path, key)) for key, part in value.items()])
            elif is_list(value):
                waiting += reversed([(part, f"{path}[]") for part in value])


def compare_shapes(a: Sequence[Sequence[Record]], b: Sequence[Sequence[Record]]) -> Iterator[Difference]:
    """Yield what differs, stream by stream: new paths are benign, other differences would break a reader."""
    for number, (mine, other) in enumerate(zip(opened(a), opened(b), strict=False), 1):
        for difference in _compare(_shape_of(mine), _shape_of(other)):
            yield difference._replace(stream=number)
    if len(a) != len(b):
        yield Difference("streams", len(a), len(b), breaking=True, stream=min(len(a), len(b)) + 1)


def _shape_of(records: Sequence[Record]) -> _Shape:
    shape = _Shape(status=head_of(records).get("status"))
    # The status already says that it is an error. Its event depends on when the proxy passed the response on.
    refused = isinstance(shape.status, int) and shape.status >= 400
    for event in events(records, repairs=False):
        if isinstance(event, AttemptStarted):
            shape.order.clear()
        elif isinstance(event, Ended):
            shape.ending = event.ending
        elif type(event) in _KINDS and not (refused and isinstance(event, UpstreamError)):
            shape.note(_KINDS[type(event)])
    chat = bool(records) and records[0].keys.get("dialect") == "chat"
    attempt = attempts_of(records)[-1]
    for record in attempt:
        if record.kind == "frame":
            _add_frame(shape, record, chat=chat)
        elif record.kind == "rest":
            shape.note("rest")
    body = [record for record in attempt if record.kind == "body"]
    value = parse(b"".join(record.raw or b"" for record in body)) if body else ABSENT
    if value is not ABSENT:
        shape.add(value, "body", body[0].n)
    return shape


def _add_frame(shape: _Shape, record: Record, *, chat: bool) -> None:
    frame = record.frame()
    if frame.payload is None:
        return  # the upstream's clock decides where comments fall
    value = record.read().value if record.payload is not None else parse(frame.payload)
    if value is ABSENT:
        return  # `[DONE]` has its own event
    kind = as_object(value).get("type")
    name = kind if isinstance(kind, str) else frame.event.decode("utf-8", "replace")
    if not chat:
        shape.note(name or "data")
    shape.add(value, "" if chat else name, record.n)


def _compare(a: _Shape, b: _Shape) -> Iterator[Difference]:
    yield from unequal("status", a.status, b.status, breaking=True)
    for path in [*a.paths, *(path for path in b.paths if path not in a.paths)]:
        types, other = a.paths.get(path, {}), b.paths.get(path, {})
        parent = path.rpartition(".")[0]
        # Report only the top of a missing or new branch.
        if parent and not types and parent not in a.paths:
            continue
        if parent and not other and parent in a.paths and parent not in b.paths:
            continue
        if types.keys() != other.keys():
            breaking = bool(types) and (not other or bool(other.keys() - types.keys()))
            mine, found = (" or ".join(sorted(each)) or None for each in (types, other))
            # The first record with a new type, or else the first one.
            new = {name: n for name, n in other.items() if name not in types} or other
            records = min(types.values(), default=None), min(new.values(), default=None)
            yield Difference(path, mine, found, breaking, None, *records)
    if a.order != b.order:
        rest = iter(b.order)
        inserted = all(kind in rest for kind in a.order)
        yield Difference("order of kinds", a.order, b.order, breaking=not inserted)
    yield from unequal("ending", a.ending, b.ending, breaking=True)
