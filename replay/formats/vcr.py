"""Cassettes of VCR.py and cassetter, in YAML or JSON.

YAML is read from the events of PyYAML's C parser, with the scalars of YAML 1.2 and bounds on size. Not from its nodes:
composing them overflows the C stack at 50,000 levels.
"""

import base64
import binascii
import re
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, parse

from .exchange import Contents, Imported, decoded, microseconds, reads_of, split_url, status_of

#: PyYAML is an extra of the installation.
HAS_YAML = find_spec("yaml") is not None
if TYPE_CHECKING or HAS_YAML:
    import yaml

__all__ = ["HAS_YAML", "from_vcr", "read_yaml"]

_OTHER_PROTOCOLS: Final = ("grpc_interactions", "ws_interactions")
_BODY_TYPES: Final = frozenset({"json", "text", "binary", "none"})
_NESTING_MAX: Final = 64
#: Values in one file. Each use of an alias counts all values of its anchor, so that small files stay small.
_NODES_MAX: Final = 2_000_000

_TAG: Final = "tag:yaml.org,2002:"
_TEXT_TAGS: Final = frozenset({"!", "str", "python/str", "python/unicode"})
_SCALAR_TAGS: Final = frozenset({"", "int", "float", "bool", "null", "timestamp", *_TEXT_TAGS})
_COLLECTION_TAGS: Final = frozenset({"map", "seq", "python/tuple"})
_WORDS: Final = MappingProxyType(
    {
        **dict.fromkeys(("", "~", "null", "Null", "NULL")),
        **dict.fromkeys(("true", "True", "TRUE"), True),
        **dict.fromkeys(("false", "False", "FALSE"), False),
    }
)
#: Narrower than YAML 1.2: PyYAML writes the texts `1e5` and `089` without quotes, so they are read as text.
_INTEGER: Final = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,300})")
_FLOAT: Final = re.compile(r"[-+]?[0-9]{1,300}\.[0-9]{0,300}(?:[eE][-+][0-9]{1,3})?")


def from_vcr(data: bytes) -> Contents:
    """Read one stream for each interaction."""
    cassette = parse(data) if data.lstrip()[:1] in (b"{", b"[") else ABSENT
    if cassette is ABSENT:
        cassette = read_yaml(data)
    rows = cassette if is_list(cassette) else as_list(as_object(cassette).get("interactions"))
    if not rows:
        raise TapeError("no interactions")
    losses: Counter[str] = Counter()
    if others := sum(len(as_list(as_object(cassette).get(name))) for name in _OTHER_PROTOCOLS):
        losses["other_protocols"] += others
    return Contents(_exchanges(rows, losses), losses)


def _exchanges(rows: list[Any], losses: Counter[str]) -> Iterator[Imported]:
    for row in rows:
        request, response = (as_object(as_object(row).get(name)) for name in ("request", "response"))
        if not request or not response:
            losses["unanswered"] += 1
            continue
        host, target = split_url(_text(request.get("uri")))
        created = microseconds(_text(as_object(row).get("recorded_at")))
        if created is None:
            losses["time"] += 1
        headers = _headers(response.get("headers"))
        status: Any = response.get("status", response.get("status_code"))
        one = Imported(
            method=_text(request.get("method")) or "GET",
            target=target,
            request_headers=_headers(request.get("headers")),
            request_body=_body(request, losses) or None,
            status=status_of(as_object(status).get("code") if is_object(status) else status),
            headers=headers,
            reads=reads_of(_body(response, losses), headers),
            created_us=created,
            upstream=host,
        )
        yield decoded(one, losses)


def _body(message: dict[str, Any], losses: Counter[str]) -> bytes:
    """Return a body from any of the shapes that the versions of these libraries have written."""
    body: Any = message.get("body", message.get("content"))
    if is_object(body) and "string" in body:
        body = body["string"]
    elif is_object(body) and body.get("type") in _BODY_TYPES and body.keys() <= {"type", "content"}:
        return _typed_body(body, losses)
    if body is None and message.get("parsed_body") is not None:
        body = message["parsed_body"]
    if isinstance(body, str | bytes):
        return _bytes(body)
    return b"" if body is None else _json(body, losses)


def _typed_body(body: dict[str, Any], losses: Counter[str]) -> bytes:
    """Return a body that cassetter wrote."""
    content = body.get("content")
    if body["type"] == "none" or content is None:
        return b""
    if body["type"] == "json":
        return _json(content, losses)
    if body["type"] == "text":
        return _bytes(_text(content))
    try:
        return binascii.unhexlify(_text(content))
    except (binascii.Error, ValueError):
        raise TapeError("a binary body is not written in hex digits") from None


def _bytes(body: str | bytes) -> bytes:
    return body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")


def _json(value: Any, losses: Counter[str]) -> bytes:
    losses["json"] += 1
    try:
        return dumps(value)
    except (TypeError, ValueError, RecursionError):
        raise TapeError("a body cannot be written as JSON") from None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return "" if value is None or is_object(value) or is_list(value) else str(value)


def _headers(value: Any) -> list[tuple[str, str]]:
    """Return headers: names with lists of values, or the lines of old cassettes."""
    if is_object(value):
        return [(name, _text(each)) for name, many in value.items() for each in (many if is_list(many) else [many])]
    lines = (_text(line).partition(":") for line in as_list(value))
    return [(name.strip(), text.strip()) for name, colon, text in lines if colon]


# -- YAML -------------------------------------------------------------------------------------------------------------


def read_yaml(data: bytes) -> Any:
    """Return the value of the one document; raise `TapeError` if the text is anything else."""
    if not HAS_YAML:
        raise TapeError("reading YAML needs PyYAML: pip install 'wiretape[vcr]'")
    try:
        return _Reader(yaml.parse(data.decode("utf-8-sig").encode(), Loader=yaml.CSafeLoader)).document()
    except UnicodeDecodeError as error:
        raise TapeError(f"byte {error.start}: not UTF-8") from None
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark is not None else ""
        raise TapeError(f"{line}{error.problem}") from None
    except yaml.YAMLError as error:
        raise TapeError(" ".join(str(error).split())) from None


class _Reader:
    """A fold over parser events that makes dicts, lists, texts, bytes and numbers, and never other objects."""

    def __init__(self, events: "Iterator[yaml.Event]") -> None:
        self._events = events
        self._nodes = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> Any:
        """Return the value between the start and the end of the document, or None if there is no document."""
        next(self._events)
        if isinstance(next(self._events), yaml.StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)
        if not isinstance(event := next(self._events), yaml.StreamEndEvent):
            raise _refused(event, "more than one document")
        return value

    def _value(self, event: "yaml.Event", depth: int) -> Any:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        before = self._nodes
        self._count(event, 1)
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        else:
            assert isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent), (
                "a value begins with one of four events"
            )
            if depth >= _NESTING_MAX:
                raise _refused(event, "nested too deeply")
            if event.tag is not None and event.tag.removeprefix(_TAG) not in _COLLECTION_TAGS:
                raise _refused(event, f"unknown tag {event.tag}")
            value = self._mapping(depth) if isinstance(event, yaml.MappingStartEvent) else self._sequence(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._nodes - before
        return value

    def _alias(self, event: yaml.AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise _refused(event, f"no anchor before the alias *{event.anchor}")
        value, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        return value

    def _count(self, event: "yaml.Event", nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _NODES_MAX:
            raise _refused(event, f"more than {_NODES_MAX} values")

    def _mapping(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent):
                raise _refused(event, "a key that is not a scalar")
            members[event.value] = self._value(next(self._events), depth + 1)
        return members

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items


def _scalar(event: "yaml.ScalarEvent") -> Any:
    """Return a text, or the value of a plain word or of a tag."""
    tag = (event.tag or "").removeprefix(_TAG)
    if tag == "binary":
        try:
            return base64.b64decode("".join(event.value.split()), validate=True)
        except (binascii.Error, ValueError):
            raise _refused(event, "!!binary is not base64") from None
    if tag not in _SCALAR_TAGS:
        raise _refused(event, f"unknown tag {event.tag}")
    if tag in _TEXT_TAGS or (not tag and not event.implicit[0]):
        return event.value
    if event.value in _WORDS:
        return _WORDS[event.value]
    if _INTEGER.fullmatch(event.value):
        return int(event.value)
    return float(event.value) if _FLOAT.fullmatch(event.value) else event.value


def _refused(event: "yaml.Event", why: str) -> TapeError:
    assert event.start_mark is not None, "the parser marks every event"
    return TapeError(f"line {event.start_mark.line + 1}: {why}")
