"""Spans in OTLP: a tree as its JSON has it, which is also written as protobuf. Equal spans give equal bytes."""

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from struct import pack
from typing import Any, Final

import wiretape
from wiretape.events.core.json_text import as_object, as_text, dumps, is_list, parse

from ..limits import OTEL_EVENTS_MAX

__all__ = ["CLIENT", "INTERNAL", "SERVER", "Event", "encoded", "joined", "rejected", "span"]

#: Kinds of spans.
INTERNAL, SERVER, CLIENT = 1, 2, 3
#: The time in microseconds since 1970, the name and the attributes.
Event = tuple[int, str, Mapping[str, Any]]


def span(
    ids: tuple[str, str, str],
    name: str,
    kind: int,
    times_us: tuple[int, int],
    attributes: Mapping[str, Any],
    events: Iterable[Event] = (),
    links: Iterable[tuple[str, str]] = (),
) -> dict[str, Any]:
    """Return a span. `ids` are those of its trace, itself and its parent; it failed if it has an `error.type`."""
    (trace, own, parent), (start_us, end_us), error = ids, times_us, attributes.get("error.type")
    happened = [
        {"timeUnixNano": f"{at_us}000", "name": word, "attributes": _attributes(more)}
        for at_us, word, more in sorted(events, key=itemgetter(0))
    ]
    made = {"traceId": trace, "spanId": own, "parentSpanId": parent, "name": _clean(name), "kind": kind}
    made |= {"startTimeUnixNano": f"{start_us}000", "endTimeUnixNano": f"{max(start_us, end_us)}000"}
    made |= {"attributes": _attributes(attributes), "events": happened[:OTEL_EVENTS_MAX]}
    made |= {"droppedEventsCount": len(happened[OTEL_EVENTS_MAX:])}
    made["links"] = [{"traceId": other, "spanId": there} for other, there in links]
    made |= {"status": {"message": error, "code": 2}} if error else {}
    return {member: value for member, value in made.items() if value}


def _attributes(attributes: Mapping[str, Any]) -> list[dict[str, Any]]:
    known = {name: value for name, value in attributes.items() if name and value is not None and value not in ("", [])}
    return [{"key": name, "value": _value(value)} for name, value in known.items()]


def _value(value: Any) -> dict[str, Any]:
    if is_list(value):
        return {"arrayValue": {"values": list(map(_value, value))}}
    if isinstance(value, bool | float):
        return {"boolValue" if isinstance(value, bool) else "doubleValue": value}
    return {"intValue": str(value)} if isinstance(value, int) else {"stringValue": _clean(value)}


def _clean(value: Any) -> str:
    """Return a text without half surrogate pairs, which neither encoding takes."""
    return str(value).encode("utf-8", "replace").decode()


def encoded(spans: Sequence[Mapping[str, Any]], resource: Mapping[str, str], *, is_json: bool) -> bytes:
    """Return the spans of one stream as a part of a request."""
    scope = {"name": "wiretape", "version": wiretape.__version__}
    tree = {"resource": {"attributes": _attributes(resource)}, "scopeSpans": [{"scope": scope, "spans": spans}]}
    return dumps(tree) if is_json else _protobuf({"resourceSpans": [tree]}, "request")


def joined(parts: Iterable[bytes], *, is_json: bool) -> bytes:
    """Return the request that consists of these parts."""
    return b'{"resourceSpans":[%b]}' % b",".join(parts) if is_json else b"".join(parts)


#: Each message: its members in JSON, their numbers, and what they hold if not the message of their name.
_TABLE: Final = {
    "request": "resourceSpans:1:",
    "resourceSpans": "resource:1: scopeSpans:2:",
    "resource": "attributes:1:",
    "scopeSpans": "scope:1: spans:2:",
    "scope": "name:1:text version:2:text",
    "spans": "traceId:1:id spanId:2:id parentSpanId:4:id name:5:text kind:6:int startTimeUnixNano:7:time "
    "endTimeUnixNano:8:time attributes:9: events:11: droppedEventsCount:12:int links:13: status:15:",
    "events": "timeUnixNano:1:time name:2:text attributes:3:",
    "links": "traceId:1:id spanId:2:id",
    "status": "message:2:text code:3:int",
    "attributes": "key:1:text value:2:",
    "value": "stringValue:1:text boolValue:2:int intValue:3:int doubleValue:4:double arrayValue:5:",
    "arrayValue": "values:1:value",
}
_MEMBERS: Final = {
    (message, name): (int(number), kind or name)
    for message, members in _TABLE.items()
    for name, number, kind in (member.split(":") for member in members.split())
}
_VARINT: Final = rb"[\x80-\xff]{0,9}[\x00-\x7f]"
_PARTIAL: Final = re.compile(rb"\x0a%b(?:\x08(%b))?(?:\x12%b(.*))?" % (_VARINT, _VARINT, _VARINT), re.DOTALL)


def _protobuf(message: Mapping[str, Any], kind: str) -> bytes:
    out: list[bytes] = []
    for name, value in message.items():
        number, holds = _MEMBERS[kind, name]
        for each in value if is_list(value) else [value]:
            if holds == "int":
                out += (_varint(number << 3), _varint(int(each)))
            elif holds in ("time", "double"):
                out += (_varint(number << 3 | 1), pack("<d", each) if holds == "double" else pack("<Q", int(each)))
            else:
                texts = {"text": str.encode, "id": bytes.fromhex}
                data = texts[holds](each) if holds in texts else _protobuf(each, holds)
                out += (_varint(number << 3 | 2), _varint(len(data)), data)
    return b"".join(out)


def _varint(value: int) -> bytes:
    value, out = value % 2**64, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def rejected(answer: bytes, *, is_json: bool) -> tuple[int, str]:
    """Return how many spans a collector that answered 200 did not take, and why."""
    if is_json:
        partial = as_object(as_object(parse(answer)).get("partialSuccess"))
        count = str(partial.get("rejectedSpans", 0))[:19]  # Python does not read thousands of digits
        return int(count) if count.isdecimal() else 0, as_text(partial.get("errorMessage"))
    found = _PARTIAL.match(answer)
    digits, why = found.groups(b"") if found else (b"", b"")
    return sum((digit & 0x7F) << 7 * at for at, digit in enumerate(digits)), why.decode("utf-8", "replace")
