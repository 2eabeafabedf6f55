"""Compare the bytes of two streams and the times at which they came."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_list, parse
from wiretape.events.tape.record import NO_KEYS, Record
from wiretape.events.tape.tape import reads

from ..matching.json_diff import changes, first_difference
from ..normalize.normalize import normalise
from ..playback.player import attempts_of
from .difference import Difference, of_change, unequal

__all__ = ["compare_body", "compare_bytes", "compare_request", "ending_of", "head_of"]

#: Members whose values are new in every recording of the same content.
_VOLATILE: Final = frozenset(
    {
        "call_id",
        "completed_at",
        "created",
        "created_at",
        "id",
        "item_id",
        "message_id",
        "obfuscation",
        "request_id",
        "response_id",
        "system_fingerprint",
    }
)
#: Response headers that change what a client does.
_ACTED_UPON: Final = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
_RECEIVED: Final = frozenset({"frame", "rest", "body"})
#: A replay at the original speed may be off by this much per read.
_TOLERANCE_US: Final = 5_000


def compare_bytes(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Compare requests, heads, bodies, endings, read boundaries and times.

    Values of volatile members and other ways to write the same JSON are benign, and so are times.
    """
    yield from compare_request(a, b, breaking=True)
    yield from unequal("status", head_of(a).get("status"), head_of(b).get("status"), breaking=True)
    for change in changes(_headers(a), _headers(b)):
        yield of_change(change, breaking=change.path.strip("[]'") in _ACTED_UPON, prefix="headers")
    yield from compare_body(a, b)
    yield from unequal("ending", ending_of(a), ending_of(b), breaking=True)
    yield from unequal("attempts", len(attempts_of(a)), len(attempts_of(b)), breaking=True)
    yield from _compare_reads(a, b)


def ending_of(records: Sequence[Record]) -> Any:
    """Return the ending that the tape records."""
    return next((record.keys.get("ending") for record in reversed(records) if record.kind == "end"), None)


def head_of(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the response head of the last attempt; empty if none came."""
    return next((record.keys for record in attempts_of(records)[-1] if record.kind == "head"), NO_KEYS)


def _headers(records: Sequence[Record]) -> dict[str, Any]:
    rows = map(as_list, as_list(head_of(records).get("headers")))
    return {str(row[0]): row[1] for row in rows if len(row) == 2}


def compare_request(a: Sequence[Record], b: Sequence[Record], *, breaking: bool) -> Iterator[Difference]:
    """Compare method, path and body of the requests."""
    mine, other = (next((one for one in each if one.kind == "request"), None) for each in (a, b))
    if mine is None or other is None:
        yield from unequal("request", mine and "present", other and "present", breaking=breaking)
        return
    for name in ("method", "path"):
        values = mine.keys.get(name), other.keys.get(name)
        yield from unequal(f"request.{name}", *values, breaking=breaking, record_a=mine.n, record_b=other.n)
    yield from _compare_raw(mine, other, "request", breaking=breaking, volatile=())


def compare_body(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Compare the bodies frame by frame, without comments: the upstream's clock decides where those fall."""
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


def _parts(records: Sequence[Record]) -> list[Record]:
    """Return the frames of the last attempt; the reads of a body become one part."""
    parts: list[Record] = []
    for record in attempts_of(records)[-1]:
        if record.kind not in _RECEIVED or _is_comment(record):
            continue
        if record.kind == "body" and parts and parts[-1].kind == "body":
            parts[-1] = parts[-1]._replace(raw=(parts[-1].raw or b"") + (record.raw or b""), payload=None, value=ABSENT)
        else:
            parts.append(record)
    return parts


def _compare_raw(
    one: Record, two: Record, name: str, *, breaking: bool, volatile: Sequence[str] | frozenset[str]
) -> Iterator[Difference]:
    if one.raw == two.raw:
        return
    a, b, at = one.raw or b"", two.raw or b"", first_difference(one.raw or b"", two.raw or b"")
    mine, other = _value(one), _value(two)
    if mine is ABSENT or other is ABSENT or one.kind != two.kind:
        same = one.kind == two.kind == "frame" and one.frame().payload == two.frame().payload
        yield Difference(name, a, b, breaking and not same, at, one.n, two.n)
        return
    found = False
    for change in changes(mine, other):
        found = True
        benign = change.how == "value" and change.path.rpartition(".")[2] in volatile
        yield of_change(change, breaking=breaking and not benign, prefix=name, record_a=one.n, record_b=two.n)
    if not found:  # white space, member order, escapes, line ends
        yield Difference(f"{name}, written another way", a, b, False, at, one.n, two.n)


def _value(record: Record) -> Any:
    if record.payload is not None:
        return record.read().value
    data = record.frame().payload if record.kind == "frame" else record.raw
    return parse(data) if data else ABSENT


def _compare_reads(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Compare read boundaries, which a parser may depend on, and then times since the request."""
    mine, other = (list(reads(attempts_of(each)[-1])) for each in (a, b))
    if _sizes(mine) != _sizes(other):  # sealing shortens the ids of a live tape
        mine, other = (list(reads(attempts_of(normalise([each])[0])[-1])) for each in (a, b))
    if _sizes(mine) != _sizes(other):
        pairs = zip(_sizes(mine), _sizes(other), strict=False)
        for at, (size_a, size_b) in enumerate(pairs):
            if size_a != size_b:
                yield Difference(f"size of read {at}", size_a, size_b, breaking=True)
                return
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
