"""Compare recordings, files and folders at one of two levels: content, or bytes and times.

Content is what a stream of a known dialect said and called, and how it ended; of other exchanges, the JSON of the body.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice, zip_longest
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from wiretape.events.core import model
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.dialects import spoken
from wiretape.events.emit import events, summarise
from wiretape.events.tape.record import RECEIVED, Record
from wiretape.events.tape.tape import reads

from ..matching.json_diff import Change, changes, first_difference, plain, shortened
from ..normalize.normalize import normalise
from ..playback.script import attempts_of, head_of
from ..redaction.plain_text import headers_on, opened
from ..sealed.files import lines_of, load, read

__all__ = [
    "LEVELS",
    "Compared",
    "Difference",
    "Level",
    "Stream",
    "Streams",
    "compare",
    "compare_paths",
    "each_pair",
    "ending_of",
    "of_change",
    "tapes_in",
    "unequal",
    "value_of",
    "verdict",
]

Level = Literal["content", "bytes"]
Stream = Sequence[Record]
Streams = Sequence[Stream]
_Lines = Sequence[Mapping[int, int]]

#: By name; the last three are accepted for one release.
LEVELS: Final[Mapping[str, Level]] = MappingProxyType(
    {"content": "content", "bytes": "bytes", "fold": "content", "shape": "content", "clock": "bytes"}
)
#: Differences kept of one pair of tapes; a longer list helps no one.
_DIFFERENCES_MAX: Final = 10_000
#: Members whose values are new in every recording of the same content.
_VOLATILE: Final = re.compile(
    r"(?:(?:call|item|message|request|response)_)?id|created|(?:created|completed)_at|obfuscation|system_fingerprint"
)
#: Response headers that change what a client does.
_ACTED_UPON: Final = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
#: A replay at the original speed may be off by this much per read.
_TOLERANCE_US: Final = 5_000


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


def of_change(change: Change, whole: Difference) -> Difference:
    """Return a change inside a JSON value as a difference; a null is shown as such, since None means absent."""
    dot = "." if whole.path and change.path and not change.path.startswith("[") else ""
    a = None if change.how == "new" else "null" if change.a is None else change.a
    b = None if change.how == "missing" else "null" if change.b is None else change.b
    return whole._replace(path=f"{whole.path}{dot}{change.path}", a=a, b=b, at=change.at)


def _inside(whole: Difference, a: Any, b: Any, volatile: re.Pattern[str] | None = None) -> Iterator[Difference]:
    """Yield the changes between two JSON values instead of the difference of their texts."""
    if a is ABSENT or b is ABSENT:
        yield whole
        return
    found = list(changes(a, b))
    for change in found:
        benign = volatile is not None and change.how == "value" and volatile.fullmatch(change.path.rpartition(".")[2])
        yield of_change(change, whole)._replace(breaking=whole.breaking and not benign)
    if not found:  # white space, member order, escapes, line ends
        yield whole._replace(path=f"{whole.path}, written another way", breaking=False)


def each_pair(a: Streams, b: Streams, how: Callable[[Stream, Stream], Iterator[Difference]]) -> Iterator[Difference]:
    """Compare streams by their position, and bodies as they were before compression."""
    for number, (mine, other) in enumerate(zip(opened(a), opened(b), strict=False), 1):
        for difference in how(mine, other):
            yield difference._replace(stream=number)
    if len(a) != len(b):
        yield Difference("streams", len(a), len(b), breaking=True, stream=min(len(a), len(b)) + 1)


def compare(a: Streams, b: Streams, level: Level = "content") -> Iterator[Difference]:
    """Yield every difference.

    In content, the request is benign: it explains a difference, and only the response is compared. In bytes, values of
    volatile members, other ways to write the same JSON and times are benign.
    """
    return each_pair(a, b, lambda mine, other: _compare_streams(mine, other, in_bytes=level == "bytes"))


def _compare_streams(a: Stream, b: Stream, *, in_bytes: bool) -> Iterator[Difference]:
    yield from _compare_requests(a, b, breaking=in_bytes)
    yield from unequal("status", head_of(a).get("status"), head_of(b).get("status"), breaking=True)
    if in_bytes:
        for change in changes(dict(headers_on(head_of(a))), dict(headers_on(head_of(b)))):
            breaking = change.path.strip("[]'") in _ACTED_UPON
            yield of_change(change, Difference("headers", None, None, breaking))
    if not in_bytes and _is_read(a) and _is_read(b):
        mine, other = _facts(a), _facts(b)
        for group in [*mine, *(group for group in other if group not in mine)]:
            yield from _compare_group(group, mine.get(group), other.get(group))
    else:
        yield from _compare_bodies(a, b)
        yield from unequal("ending", ending_of(a), ending_of(b), breaking=True)
    yield from unequal("attempts", len(attempts_of(a)), len(attempts_of(b)), breaking=in_bytes)
    if in_bytes:
        yield from _compare_reads(a, b)


def ending_of(records: Stream) -> Any:
    """Return the ending that the tape records."""
    return next((record.keys.get("ending") for record in reversed(records) if record.kind == "end"), None)


def _is_read(records: Stream) -> bool:
    return bool(records) and bool(spoken(records[0].keys.get("dialect")))


# -- requests and bodies ----------------------------------------------------------------------------------------------


def _compare_requests(a: Stream, b: Stream, *, breaking: bool) -> Iterator[Difference]:
    """Compare the requests, and what the clients of runs sent."""
    for kind, names in (("request", ("method", "path")), ("run", ("what", "why"))):
        mine, other = (next((one for one in each if one.kind == kind), None) for each in (a, b))
        if mine is None or other is None:
            yield from unequal(kind, mine and "present", other and "present", breaking=breaking)
            continue
        for name in names:
            values = mine.keys.get(name), other.keys.get(name)
            yield from unequal(f"{kind}.{name}", *values, breaking=breaking, record_a=mine.n, record_b=other.n)
        yield from _compare_raw(mine, other, kind, breaking=breaking)


def _compare_bodies(a: Stream, b: Stream) -> Iterator[Difference]:
    """Compare frame by frame, without comments: the upstream's clock decides where those fall."""
    mine, other = (_parts(each) for each in (a, b))
    for at, (one, two) in enumerate(zip_longest(mine, other)):
        if one is None or two is None:
            kind = (one or two or mine[-1]).kind
            records = one.n if one else None, two.n if two else None
            yield Difference(f"{kind}s", len(mine), len(other), True, None, *records)
            break
        yield from _compare_raw(one, two, f"{one.kind} {at}", breaking=True, volatile=_VOLATILE)
    comments = [[record.raw for record in attempts_of(each)[-1] if _is_comment(record)] for each in (a, b)]
    if comments[0] != comments[1]:
        yield Difference("comments", len(comments[0]), len(comments[1]), breaking=False)


def _is_comment(record: Record) -> bool:
    return record.kind == "frame" and record.payload is None and record.frame().payload is None


def _parts(records: Stream) -> list[Record]:
    """Return the frames of the last attempt; the reads of a body become one part."""
    received = [each for each in attempts_of(records)[-1] if each.kind in RECEIVED and not _is_comment(each)]
    parts: list[Record] = []
    for kind, group in groupby(received, key=lambda record: record.kind):
        same = list(group)
        if kind == "body":
            same = [same[0]._replace(raw=b"".join(each.raw or b"" for each in same), payload=None, value=ABSENT)]
        parts += same
    return parts


def _compare_raw(
    one: Record, two: Record, name: str, *, breaking: bool, volatile: re.Pattern[str] | None = None
) -> Iterator[Difference]:
    if one.raw == two.raw:
        return
    a, b = one.raw or b"", two.raw or b""
    mine, other = (value_of(one), value_of(two)) if one.kind == two.kind else (ABSENT, ABSENT)
    if (mine is ABSENT or other is ABSENT) and one.kind == two.kind == "frame":
        breaking = breaking and one.frame().payload != two.frame().payload
    whole = Difference(name, a, b, breaking, first_difference(a, b), one.n, two.n)
    yield from _inside(whole, mine, other, volatile)


def value_of(record: Record) -> Any:
    """Return the JSON of a record's bytes, or ABSENT."""
    if record.payload is not None:
        return record.read().value
    data = record.frame().payload if record.kind == "frame" else record.raw
    return parse(data) if data else ABSENT


# -- reads ------------------------------------------------------------------------------------------------------------


def _compare_reads(a: Stream, b: Stream) -> Iterator[Difference]:
    """Compare read boundaries, which a parser may depend on, and then times since the request."""
    mine, other = (list(reads(attempts_of(each)[-1])) for each in (a, b))
    if _sizes(mine) != _sizes(other):  # sealing shortens the ids of a live tape
        mine, other = (list(reads(attempts_of(normalise([each])[0])[-1])) for each in (a, b))
    for at, (size_a, size_b) in enumerate(zip(_sizes(mine), _sizes(other), strict=False)):
        if size_a != size_b:
            yield Difference(f"size of read {at}", size_a, size_b, breaking=True)
            return
    if len(mine) != len(other):
        yield Difference("reads", len(mine), len(other), breaking=True)
        return
    began_a, began_b = (attempt[0].t if attempt else 0 for attempt in (attempts_of(a)[-1], attempts_of(b)[-1]))
    times = [(f"read {at}", x, y) for at, ((x, _), (y, _)) in enumerate(zip(mine, other, strict=True))]
    if a and b:
        times.append(("the end", a[-1].t, b[-1].t))
    for what, x, y in times:
        if abs((x - began_a) - (y - began_b)) > _TOLERANCE_US:
            yield Difference(f"microseconds to {what}", x - began_a, y - began_b, breaking=False)


def _sizes(received: Sequence[tuple[int, bytes]]) -> list[int]:
    return [len(data) for _, data in received]


# -- the content of a stream ------------------------------------------------------------------------------------------

#: The record that brought each piece of a text, and the length of the text so far.
_Pieces = list[tuple[int, int]]
#: The texts of an answer, in its order, and the events that bring them.
_TEXTS: Final = {"text": model.TextDelta, "reasoning": model.ReasoningDelta, "refusal": model.RefusalDelta}


@dataclass(frozen=True, slots=True)
class _Fact:
    """One part of a stream's content; the kind decides how two values are compared."""

    value: Any
    breaking: bool = True
    kind: Literal["value", "text", "json"] = "value"
    pieces: Sequence[tuple[int, int]] = ()

    def record(self, at: int) -> int | None:
        """Return the record that brought the character at this index, or else the last one."""
        return next((n for n, end in self.pieces if at < end), self.pieces[-1][0] if self.pieces else None)

    def parsed(self) -> Any:
        """Return the JSON value; ABSENT if this is not JSON."""
        if self.kind != "json":
            return ABSENT
        return parse(self.value.encode("utf-8", "surrogatepass")) if isinstance(self.value, str) else self.value


def _facts(records: Stream) -> dict[str, dict[str, _Fact]]:
    """Return the facts of a stream by answer, by call, and of the whole."""
    summary = summarise(records)
    ended = summary.wire.ended
    pieces = _pieces_of(records)
    facts: dict[str, dict[str, _Fact]] = {}
    for choice, *texts, finish in summary.answers:
        answer = f"answer {choice}"
        facts[answer] = {
            f"{name} of {answer}": _Fact(text, kind="text", pieces=pieces.get((kind, choice), ()))
            for (name, kind), text in zip(_TEXTS.items(), texts, strict=True)
        }
        facts[answer][f"finish of {answer}"] = _Fact(finish or None)
    for number, call in enumerate(summary.wire.all_calls()):
        brought = pieces.get((call.choice, call.number), ())
        values = {
            "name": call.name,
            "answer": call.choice,
            "id": call.id,
            "state": f"{call.state.value} ({call.reason})" if call.reason else call.state.value,
            "tool": "custom" if call.custom else "function",
        }
        facts[f"call {number}"] = {
            **{
                f"call {number}: {name}": _Fact(value, name != "id", "value", brought) for name, value in values.items()
            },
            # Of an input, which is free text, every character counts.
            f"call {number}: {'input' if call.custom else 'arguments'}": _Fact(
                call.arguments, kind="text" if call.custom else "json", pieces=brought
            ),
        }
    flags = list(ended.flags) if ended is not None else []
    facts["stream"] = {
        "ending": _Fact(ended.ending if ended is not None else None),
        "warnings": _Fact([code for code, _ in summary.warnings if code not in flags]),
        "flags": _Fact(flags, breaking=False),
        "model": _Fact(summary.wire.model, breaking=False),
        "id": _Fact(summary.wire.id, breaking=False),
        "usage": _Fact(summary.wire.usage or {}, breaking=False, kind="json"),
    }
    return facts


def _pieces_of(records: Stream) -> dict[tuple[object, ...], _Pieces]:
    """Return the pieces of each text by its kind and choice, and those of each call."""
    pieces: dict[tuple[object, ...], _Pieces] = {}
    for event in events(records, repairs=False):
        match event:
            case model.AttemptStarted():
                pieces.clear()
                continue
            case model.TextDelta() | model.ReasoningDelta() | model.RefusalDelta():
                found, text = pieces.setdefault((type(event), event.choice), []), event.text
            case model.ToolCallStarted() | model.ToolArgumentsDelta():
                found = pieces.setdefault((event.choice, event.call), [])
                text = event.text if isinstance(event, model.ToolArgumentsDelta) else ""
            case _:
                continue
        found.append((event.n, (found[-1][1] if found else 0) + len(text)))
    return pieces


def _compare_group(group: str, mine: dict[str, _Fact] | None, other: dict[str, _Fact] | None) -> Iterator[Difference]:
    if mine is None or other is None:
        first = next(iter((mine or other or {}).values()))
        sides = [(None, None) if each is None else (first.value, first.record(0)) for each in (mine, other)]
        yield Difference(group, sides[0][0], sides[1][0], True, None, sides[0][1], sides[1][1])
        return
    for path, a in mine.items():
        b = other.get(path, a)
        if a.value != b.value:
            texts = isinstance(a.value, str) and isinstance(b.value, str) and a.kind != "value"
            at = first_difference(a.value, b.value) if texts else None
            whole = Difference(path, a.value, b.value, a.breaking, at, a.record(at or 0), b.record(at or 0))
            yield from _inside(whole, a.parsed(), b.parsed())


# -- files and folders -------------------------------------------------------------------------------------------------


def verdict(differences: Sequence[Difference]) -> int:
    """Return 0 for the same, 1 for nothing but benign differences, 2 for a breaking one."""
    return 2 if any(difference.breaking for difference in differences) else int(bool(differences))


class Compared(NamedTuple):
    """The differences of two tapes, and the line of each record in both files."""

    name: str
    differences: Sequence[Difference]
    lines_a: _Lines = ()
    lines_b: _Lines = ()

    @property
    def verdict(self) -> int:
        return verdict(self.differences)

    @property
    def first(self) -> Sequence[Difference]:
        """The first breaking difference, or else the first one."""
        breaking = [difference for difference in self.differences if difference.breaking]
        return (breaking or self.differences)[:1]

    def line(self, difference: Difference) -> str:
        """Describe a difference with the line numbers of both files."""
        at = difference.stream - 1
        lines = [
            places[at].get(record) if record is not None and at < len(places) else None
            for places, record in ((self.lines_a, difference.record_a), (self.lines_b, difference.record_b))
        ]
        return difference.line(*lines)


def compare_paths(a: Path, b: Path, level: Level) -> list[Compared]:
    """Compare two files, or two folders tape by tape: a tape missing in B is breaking, a new one benign."""
    if not a.is_dir() and not b.is_dir():
        return [_compare_files(b.name, a, b, level)]
    if not (a.is_dir() and b.is_dir()):
        raise TapeError(f"cannot compare {a} with {b}: give two tapes or two folders")
    mine, other = ({str(path.relative_to(folder)): path for path in tapes_in(folder)} for folder in (a, b))
    if not mine and not other:
        raise TapeError(f"neither {a} nor {b} contains a .tape file")
    found: list[Compared] = []
    for name in sorted({*mine, *other}):
        if name in mine and name in other:
            found.append(_compare_files(name, mine[name], other[name], level))
        else:
            a_has, b_has = ("present" if name in side else None for side in (mine, other))
            found.append(Compared(name, [Difference("tape", a_has, b_has, breaking=name in mine)]))
    return found


def tapes_in(folder: Path) -> list[Path]:
    """Return every tape below a folder, sorted."""
    return sorted(path for path in folder.rglob("*.tape") if path.is_file())


def _compare_files(name: str, a: Path, b: Path, level: Level) -> Compared:
    mine, other = (load(path, verify=False).streams for path in (a, b))  # the streams themselves are compared
    found = compare(mine, other, level)
    differences = list(islice(found, _DIFFERENCES_MAX))
    if verdict(differences) < 2:  # the rest of a long list can still change the verdict
        differences += islice((difference for difference in found if difference.breaking), 1)
    return Compared(name, differences, lines_of(read(a), mine), lines_of(read(b), other))
