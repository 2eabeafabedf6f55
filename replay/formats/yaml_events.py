"""Read YAML from the events of PyYAML's C parser, with the scalars of YAML 1.2 and bounds on size.

Not from its nodes: composing them overflows the C stack at 50,000 levels.
"""

import base64
import binascii
import re
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from wiretape.events.core.errors import TapeError

__all__ = ["read_yaml"]

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


def read_yaml(data: bytes) -> Any:
    """Return the value of the one document; raise `TapeError` if the text is anything else."""
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

    def __init__(self, events: Iterator[Event]) -> None:
        self._events = events
        self._nodes = 0
        self._anchors: dict[str, tuple[Any, int]] = {}

    def document(self) -> Any:
        """Return the value between the start and the end of the document, or None if there is no document."""
        next(self._events)
        if isinstance(next(self._events), StreamEndEvent):
            return None
        value = self._value(next(self._events), 0)
        next(self._events)
        if not isinstance(event := next(self._events), StreamEndEvent):
            raise _refused(event, "more than one document")
        return value

    def _value(self, event: Event, depth: int) -> Any:
        if isinstance(event, AliasEvent):
            return self._alias(event)
        before = self._nodes
        self._count(event, 1)
        if isinstance(event, ScalarEvent):
            value = _scalar(event)
        else:
            assert isinstance(event, MappingStartEvent | SequenceStartEvent), "a value begins with one of four events"
            if depth >= _NESTING_MAX:
                raise _refused(event, "nested too deeply")
            if event.tag is not None and event.tag.removeprefix(_TAG) not in _COLLECTION_TAGS:
                raise _refused(event, f"unknown tag {event.tag}")
            value = self._mapping(depth) if isinstance(event, MappingStartEvent) else self._sequence(depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = value, self._nodes - before
        return value

    def _alias(self, event: AliasEvent) -> Any:
        if event.anchor not in self._anchors:
            raise _refused(event, f"no anchor before the alias *{event.anchor}")
        value, nodes = self._anchors[event.anchor]
        self._count(event, nodes)
        return value

    def _count(self, event: Event, nodes: int) -> None:
        self._nodes += nodes
        if self._nodes > _NODES_MAX:
            raise _refused(event, f"more than {_NODES_MAX} values")

    def _mapping(self, depth: int) -> dict[str, Any]:
        members: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise _refused(event, "a key that is not a scalar")
            members[event.value] = self._value(next(self._events), depth + 1)
        return members

    def _sequence(self, depth: int) -> list[Any]:
        items: list[Any] = []
        while not isinstance(event := next(self._events), SequenceEndEvent):
            items.append(self._value(event, depth + 1))
        return items


def _scalar(event: ScalarEvent) -> Any:
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


def _refused(event: Event, why: str) -> TapeError:
    assert event.start_mark is not None, "the parser marks every event"
    return TapeError(f"line {event.start_mark.line + 1}: {why}")
