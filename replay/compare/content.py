"""Compare the content of two streams: what was said and called, and how they ended."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.core.model import (
    AttemptStarted,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from wiretape.events.emit import events, summarise
from wiretape.events.tape.record import Record

from ..matching.json_diff import changes, first_difference
from ..playback.player import attempts_of
from .bytes import compare_body, compare_request, ending_of, head_of
from .difference import Difference, of_change, unequal

__all__ = ["compare_content"]

#: The record that brought each piece of a text, and the length of the text so far.
_Pieces = list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class _Fact:
    """One thing that a stream said; the kind decides how two values are compared."""

    value: Any
    breaking: bool = True
    kind: Literal["value", "text", "json"] = "value"
    pieces: Sequence[tuple[int, int]] = ()

    def record(self, at: int) -> int | None:
        """Return the record that brought the character at this index, or else the last one."""
        return next((n for n, end in self.pieces if at < end), self.pieces[-1][0] if self.pieces else None)

    def parsed(self) -> Any:
        """Return the JSON value; ABSENT if the text is not JSON."""
        return parse(self.value.encode("utf-8", "surrogatepass")) if isinstance(self.value, str) else self.value


def compare_content(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Compare what chat streams mean; of other exchanges, compare the JSON of the bodies.

    The request is benign: it explains a difference, and only the response is compared.
    """
    yield from compare_request(a, b, breaking=False)
    yield from unequal("status", head_of(a).get("status"), head_of(b).get("status"), breaking=True)
    if _is_chat(a) and _is_chat(b):
        mine, other = _facts(a), _facts(b)
        for group in [*mine, *(group for group in other if group not in mine)]:
            yield from _compare_group(group, mine.get(group), other.get(group))
    else:
        yield from compare_body(a, b)
        yield from unequal("ending", ending_of(a), ending_of(b), breaking=True)
    yield from unequal("attempts", len(attempts_of(a)), len(attempts_of(b)), breaking=False)


def _is_chat(records: Sequence[Record]) -> bool:
    return bool(records) and records[0].keys.get("dialect") == "chat"


def _facts(records: Sequence[Record]) -> dict[str, dict[str, _Fact]]:
    """Return the facts of a chat stream by answer, by call, and of the whole."""
    summary = summarise(records)
    message, ended = summary.message, summary.wire.ended
    pieces: dict[tuple[object, ...], _Pieces] = {}
    for event in events(records, repairs=False):
        match event:
            case AttemptStarted():
                pieces.clear()
            case TextDelta() | ReasoningDelta() | RefusalDelta():
                _add(pieces.setdefault((type(event), event.choice), []), event.n, event.text)
            case ToolCallStarted() | ToolArgumentsDelta():
                text = event.text if isinstance(event, ToolArgumentsDelta) else ""
                _add(pieces.setdefault((event.choice, event.call), []), event.n, text)
            case _:
                pass
    facts: dict[str, dict[str, _Fact]] = {}
    for choice, said in sorted(message.choices.items()):
        answer = f"answer {choice}"
        facts[answer] = {
            f"text of {answer}": _text(message.text(choice), pieces.get((TextDelta, choice))),
            f"reasoning of {answer}": _text(message.reasoning(choice), pieces.get((ReasoningDelta, choice))),
            f"refusal of {answer}": _text(message.refusal(choice), pieces.get((RefusalDelta, choice))),
            f"finish of {answer}": _Fact(said.finish or None),
        }
    for number, call in enumerate(summary.wire.all_calls()):
        brought = pieces.get((call.choice, call.number), [])
        values = {
            "name": call.name,
            "answer": call.choice,
            "id": call.id,
            "state": f"{call.state.value} ({call.reason})" if call.reason else call.state.value,
            "tool": "custom" if call.custom else "function",
        }
        group = {name: _Fact(value, name != "id", pieces=brought) for name, value in values.items()}
        if call.custom:  # free text, of which every character counts
            group["input"] = _text(call.arguments, brought)
        else:
            group["arguments"] = _Fact(call.arguments, kind="json", pieces=brought)
        facts[f"call {number}"] = {f"call {number}: {name}": fact for name, fact in group.items()}
    flags = list(ended.flags) if ended is not None else []
    facts["stream"] = {
        "ending": _Fact(ended.ending if ended is not None else None),
        "warnings": _Fact([code for code, _ in summary.warnings if code not in flags]),
        "flags": _Fact(flags, breaking=False),
        "model": _Fact(message.model, breaking=False),
        "id": _Fact(message.id, breaking=False),
        "usage": _Fact(summary.wire.usage or {}, breaking=False, kind="json"),
    }
    return facts


def _text(value: str, pieces: _Pieces | None) -> _Fact:
    return _Fact(value, kind="text", pieces=pieces or ())


def _add(pieces: _Pieces, n: int, text: str) -> None:
    pieces.append((n, (pieces[-1][1] if pieces else 0) + len(text)))


def _compare_group(group: str, mine: dict[str, _Fact] | None, other: dict[str, _Fact] | None) -> Iterator[Difference]:
    if mine is None or other is None:
        first = next(iter((mine or other or {}).values()))
        sides = [(None, None) if each is None else (first.value, first.record(0)) for each in (mine, other)]
        yield Difference(group, sides[0][0], sides[1][0], True, None, sides[0][1], sides[1][1])
        return
    for path in mine:
        if path in other and mine[path].value != other[path].value:
            yield from _compare_fact(path, mine[path], other[path])


def _compare_fact(path: str, a: _Fact, b: _Fact) -> Iterator[Difference]:
    both_texts = isinstance(a.value, str) and isinstance(b.value, str) and a.kind != "value"
    at = first_difference(a.value, b.value) if both_texts else None
    records = a.record(at or 0), b.record(at or 0)
    mine, other = (a.parsed(), b.parsed()) if a.kind == "json" else (ABSENT, ABSENT)
    if mine is ABSENT or other is ABSENT:
        yield Difference(path, a.value, b.value, a.breaking, at, *records)
        return
    found = list(changes(mine, other))
    for change in found:
        yield of_change(change, breaking=a.breaking, prefix=path, record_a=records[0], record_b=records[1])
    if not found:  # the tool gets the same value
        yield Difference(f"{path}, written another way", a.value, b.value, False, at, *records)
