"""The bytes of two streams: what they say in JSON first, then how it is written; ids and the like are benign"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from typing import Any, Final

from wiretape.events.core.json_text import ABSENT, as_list, parse
from wiretape.events.tape.record import NO_KEYS, Record

from .difference import Difference, first_difference, of_change, unequal
from .json_diff import Change, changes

__all__ = [
    "VOLATILE",
    "attempts_of",
    "compare_body",
    "compare_bytes",
    "compare_request",
    "ending_of",
    "is_volatile",
    "last_attempt",
    "status_of",
]

#: Members whose values are new in every recording of the same content.
VOLATILE: Final = frozenset(
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
#: Headers of an answer that a client acts upon.
_ACTED_UPON: Final = frozenset({"content-type", "retry-after", "retry-after-ms", "x-should-retry"})
_RECEIVED: Final = frozenset({"frame", "rest", "body"})


def compare_bytes(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Request, status, headers, body, ending, attempts."""
    yield from compare_request(a, b, breaking=True)
    yield from _compare_head(a, b)
    yield from compare_body(a, b)
    yield from unequal("ending", ending_of(a), ending_of(b), breaking=True)
    yield from unequal("attempts", attempts_of(a), attempts_of(b), breaking=True)


def last_attempt(records: Sequence[Record]) -> Sequence[Record]:
    """The records of the attempt that counts."""
    begun = max((at for at, record in enumerate(records) if record.kind == "attempt"), default=0)
    return records[begun:]


def attempts_of(records: Sequence[Record]) -> int:
    """How often the upstream was asked."""
    return sum(record.kind == "attempt" for record in records)


def status_of(records: Sequence[Record]) -> Any:
    """Of the attempt that counts."""
    return _head(records).get("status")


def ending_of(records: Sequence[Record]) -> Any:
    """As the tape says it."""
    return next((record.keys.get("ending") for record in reversed(records) if record.kind == "end"), None)


def _head(records: Sequence[Record]) -> Mapping[str, Any]:
    return next((record.keys for record in last_attempt(records) if record.kind == "head"), NO_KEYS)


def _compare_head(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Status, and the headers that a tape keeps."""
    yield from unequal("status", status_of(a), status_of(b), breaking=True)
    mine, other = (_headers(each) for each in (a, b))
    for change in changes(mine, other):
        yield of_change(change, breaking=change.path.strip("[]'") in _ACTED_UPON, prefix="headers")


def _headers(records: Sequence[Record]) -> dict[str, Any]:
    rows = (as_list(row) for row in as_list(_head(records).get("headers")))
    return {str(row[0]): row[1] for row in rows if len(row) == 2}


def compare_request(a: Sequence[Record], b: Sequence[Record], *, breaking: bool) -> Iterator[Difference]:
    """What was asked."""
    mine, other = (next((one for one in each if one.kind == "request"), None) for each in (a, b))
    if mine is None or other is None:
        if mine is not other:
            yield Difference("request", mine and "there", other and "there", breaking)
        return
    for name in ("method", "path"):
        asked = mine.keys.get(name), other.keys.get(name)
        yield from unequal(f"request.{name}", *asked, breaking=breaking, records=(mine.n, other.n))
    yield from _compare_raw(mine, other, "request", breaking=breaking, volatile=False)


def is_volatile(change: Change) -> bool:
    """Only another id, time or padding."""
    return change.how == "value" and change.path.rpartition(".")[2] in VOLATILE


def compare_body(a: Sequence[Record], b: Sequence[Record]) -> Iterator[Difference]:
    """Frame by frame, the comments of the upstream apart: they stand where its clock puts them."""
    mine, other = (_parts(last_attempt(each)) for each in (a, b))
    for at, (one, two) in enumerate(zip_longest(mine, other)):
        if one is None or two is None:
            missing = one or two
            assert missing is not None, "one of the two is longer"
            name = f"{missing.kind}s"
            yield Difference(name, len(mine), len(other), True, None, one.n if one else None, two.n if two else None)
            break
        yield from _compare_raw(one, two, f"{one.kind} {at}", breaking=True, volatile=True)
    comments = [[record.raw for record in last_attempt(each) if _is_comment(record)] for each in (a, b)]
    if comments[0] != comments[1]:
        yield Difference("comments", len(comments[0]), len(comments[1]), breaking=False)


def _is_comment(record: Record) -> bool:
    return record.kind == "frame" and record.payload is None and record.frame().payload is None


def _parts(records: Sequence[Record]) -> list[Record]:
    """Frames; of a body, however it was cut into reads, one."""
    parts: list[Record] = []
    for record in records:
        if record.kind not in _RECEIVED or _is_comment(record):
            continue
        if record.kind == "body" and parts and parts[-1].kind == "body":
            parts[-1] = parts[-1]._replace(raw=(parts[-1].raw or b"") + (record.raw or b""), payload=None, value=ABSENT)
        else:
            parts.append(record)
    return parts


def _compare_raw(one: Record, two: Record, name: str, *, breaking: bool, volatile: bool) -> Iterator[Difference]:
    if one.raw == two.raw:
        return
    mine, other = _value(one), _value(two)
    if mine is ABSENT or other is ABSENT or one.kind != two.kind:
        a, b = one.raw or b"", two.raw or b""
        same = one.kind == two.kind == "frame" and one.frame().payload == two.frame().payload
        yield Difference(name, a, b, breaking and not same, first_difference(a, b), one.n, two.n)
        return
    found = False
    for change in changes(mine, other):
        found = True
        benign = volatile and is_volatile(change)
        yield of_change(change, breaking=breaking and not benign, prefix=name, record_a=one.n, record_b=two.n)
    if not found:  # spaces, order, escapes, line ends
        a, b = one.raw or b"", two.raw or b""
        yield Difference(f"{name}, written another way", a, b, False, first_difference(a, b), one.n, two.n)


def _value(record: Record) -> Any:
    if record.payload is not None:
        return record.read().value
    if record.kind == "frame":
        payload = record.frame().payload
        return ABSENT if payload is None else parse(payload)
    return parse(record.raw) if record.raw else ABSENT
