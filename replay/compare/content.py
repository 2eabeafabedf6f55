"""What two streams come to: what was said, called, finished and how it ended; what only names or counts it is benign"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Event,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from wiretape.events.emission.emit import events
from wiretape.events.folds.message import Message
from wiretape.events.folds.tools import Tools
from wiretape.events.folds.usage import UsageFold
from wiretape.events.folds.warnings import Warnings
from wiretape.events.folds.wire import Call
from wiretape.events.tape.record import Record

from .bytes import attempts_of, compare_body, compare_request, ending_of, status_of
from .difference import Difference, first_difference, of_change, unequal
from .json_diff import changes

__all__ = ["compare_fold"]

#: Of one answer, what the message fold calls them.
_TEXTS: Final = ("text", "reasoning", "refusal")


@dataclass(slots=True, kw_only=True)
class _Folded:
    message: Message = field(default_factory=Message)
    tools: Tools = field(default_factory=Tools)
    usage: UsageFold = field(default_factory=UsageFold)
    warnings: Warnings = field(default_factory=Warnings)
    ended: Ended | None = None
    #: Which record brought which characters: (kind, choice or call) to (record, end) in order.
    places: dict[tuple[Any, ...], list[tuple[int, int]]] = field(
        default_factory=dict[tuple[Any, ...], list[tuple[int, int]]]
    )

    def apply(self, event: Event) -> None:
        for fold in (self.message, self.tools, self.usage, self.warnings):
            fold.apply(event)
        match event:
            case AttemptStarted():
                self.places.clear()
            case TextDelta():
                self._place(("text", event.choice), event.n, event.text)
            case ReasoningDelta():
                self._place(("reasoning", event.choice), event.n, event.text)
            case RefusalDelta():
                self._place(("refusal", event.choice), event.n, event.text)
            case ToolCallStarted():
                self._place(("arguments", event.choice, event.call), event.n, "")
            case ToolArgumentsDelta():
                self._place(("arguments", event.choice, event.call), event.n, event.text)
            case Ended():
                self.ended = event
            case _:
                pass

    def _place(self, what: tuple[Any, ...], n: int, text: str) -> None:
        rows = self.places.setdefault(what, [])
        rows.append((n, (rows[-1][1] if rows else 0) + len(text)))

    @property
    def ending(self) -> str | None:
        return self.ended.ending if self.ended is not None else None

    @property
    def flags(self) -> list[str]:
        return list(self.ended.flags) if self.ended is not None else []

    @property
    def codes(self) -> list[str]:
        """Warnings, but for those that only repeat a flag."""
        return [code for code, _ in self.warnings.found if code not in self.flags]

    def call_record(self, call: Call | None, at: int = 0) -> int | None:
        """The record that brought this character of its arguments."""
        return None if call is None else self.record(("arguments", call.choice, call.number), at)

    def record(self, what: tuple[Any, ...], at: int) -> int | None:
        """The record that brought this character, or the last one."""
        rows = self.places.get(what, [])
        return next((n for n, end in rows if at < end), rows[-1][0] if rows else None)


def _folded(records: Sequence[Record]) -> _Folded:
    folded = _Folded()
    for event in events(records):
        if not isinstance(event, Repaired):
            folded.apply(event)
    return folded


def compare_fold(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Of exchanges that are no dialect's, their bytes but for the framing."""
    yield from compare_request(a, b, breaking=False)
    yield from unequal("status", status_of(a), status_of(b), breaking=True)
    if _is_chat(a) and _is_chat(b):
        yield from _compare_chat(_folded(a), _folded(b))
    else:
        yield from compare_body(a, b)
        yield from unequal("ending", ending_of(a), ending_of(b), breaking=True)
    yield from unequal("attempts", attempts_of(a), attempts_of(b), breaking=False)


def _is_chat(records: Sequence[Record]) -> bool:
    return bool(records) and records[0].keys.get("dialect") == "chat"


def _compare_chat(a: _Folded, b: _Folded) -> Iterator[Difference]:
    for choice in sorted({*a.message.choices, *b.message.choices}):
        yield from _compare_choice(a, b, choice)
    yield from _compare_calls(a, b)
    yield from unequal("ending", a.ending, b.ending, breaking=True)
    yield from unequal("warnings", a.codes, b.codes, breaking=True)
    yield from unequal("flags", a.flags, b.flags, breaking=False)
    yield from unequal("model", a.message.model, b.message.model, breaking=False)
    yield from unequal("id", a.message.id, b.message.id, breaking=False)
    for change in changes(a.usage.counts or {}, b.usage.counts or {}):
        yield of_change(change, breaking=False, prefix="usage")


def _compare_choice(a: _Folded, b: _Folded, choice: int) -> Iterator[Difference]:
    if (choice in a.message.choices) != (choice in b.message.choices):
        mine, other = ("said" if choice in each.message.choices else None for each in (a, b))
        yield Difference(f"answer {choice}", mine, other, breaking=True)
        return
    for name in _TEXTS:
        mine, other = (getattr(each.message, name)(choice) for each in (a, b))
        at = first_difference(mine, other)
        what = (name, choice)
        records = a.record(what, at), b.record(what, at)
        yield from unequal(f"{name} of answer {choice}", mine, other, breaking=True, at=at, records=records)
    mine, other = (each.message.choices[choice].finish or None for each in (a, b))
    yield from unequal(f"finish of answer {choice}", mine, other, breaking=True)


def _compare_calls(a: _Folded, b: _Folded) -> Iterator[Difference]:
    for at, (x, y) in enumerate(zip_longest(a.tools.wire.all_calls(), b.tools.wire.all_calls())):
        name, records = f"call {at}", (a.call_record(x), b.call_record(y))
        if x is None or y is None:
            yield Difference(name, x and x.name, y and y.name, True, None, *records)
            continue
        yield from unequal(f"{name}: name", x.name, y.name, breaking=True, records=records)
        yield from unequal(f"{name}: answer", x.choice, y.choice, breaking=True, records=records)
        yield from unequal(f"{name}: id", x.id, y.id, breaking=False, records=records)
        yield from unequal(f"{name}: state", _state(x), _state(y), breaking=True, records=records)
        yield from unequal(f"{name}: tool", _tool(x), _tool(y), breaking=True, records=records)
        at_character = first_difference(x.arguments, y.arguments)
        records = a.call_record(x, at_character), b.call_record(y, at_character)
        if x.custom or y.custom:  # free text, of which every character counts
            what = f"{name}: input"
            yield from unequal(what, x.arguments, y.arguments, breaking=True, at=at_character, records=records)
        else:
            yield from _compare_arguments(x.arguments, y.arguments, f"{name}: arguments", records)


def _tool(call: Call) -> str:
    return "custom" if call.custom else "function"


def _state(call: Call) -> str:
    return f"{call.state.value} ({call.reason})" if call.reason else call.state.value


def _compare_arguments(a: str, b: str, name: str, records: tuple[int | None, int | None]) -> Iterator[Difference]:
    """As values where both are JSON: other spaces are nothing to who calls the tool."""
    if a == b:
        return
    at = first_difference(a, b)
    mine, other = (parse(text.encode("utf-8", "surrogatepass")) for text in (a, b))
    if mine is ABSENT or other is ABSENT:
        yield Difference(name, a, b, True, at, *records)
        return
    found = list(changes(mine, other))
    for change in found:
        yield of_change(change, breaking=True, prefix=name, record_a=records[0], record_b=records[1])
    if not found:
        yield Difference(f"{name}, written another way", a, b, False, at, *records)
