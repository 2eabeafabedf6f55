"""The strings of an answer that came in pieces, joined again: over frames, lines, elements, and as our folds have them

A streamed secret is a piece of it in each frame, under one path and index; other dialects stream lines of JSON, or one
array whose elements come one by one.
"""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from types import MappingProxyType
from typing import Final, NamedTuple

from wiretape.events.core.model import (
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
)
from wiretape.events.emission.emit import events
from wiretape.events.tape.record import Record

from ..sealed.edits import Text
from ..sealed.scalars import Path, Scalar, Sort, scalars
from .strings import Joined, Piece, piece_at, pieces_of, plain

__all__ = ["channels", "folded", "last_said"]

#: Numbers that say which of several streams inside a stream a piece belongs to.
_INDEXES: Final = frozenset({"choice", "contentBlockIndex", "content_index", "index", "output_index", "summary_index"})
#: What a frame says anew each time; of a function the name may come in pieces.
_WHOLE: Final = frozenset(
    {"call_id", "created_at", "event", "finish_reason", "id", "item_id", "model", "name", "native_finish_reason",
     "object", "obfuscation", "p", "provider", "response_id", "role", "service_tier", "status", "stop_reason",
     "system_fingerprint", "tool_call_id", "type"}
)  # fmt: skip
#: Frames that begin and go on with the same text are of one kind ...
_STEP_OF_KIND: Final = re.compile(rb"[-_.](?:added|begin|delta|start)(?=\"$)")
#: ... and where the first piece of it stands in the one, and the others in the other.
_CONTINUED: Final[Mapping[tuple[bytes, Path], tuple[bytes, Path]]] = MappingProxyType(
    {
        (b'"content_block"', ("content_block", "text")): (b'"content_block"', ("delta", "text")),
        (b'"content_block"', ("content_block", "thinking")): (b'"content_block"', ("delta", "thinking")),
        (b'"content_block"', ("content_block", "input")): (b'"content_block"', ("delta", "partial_json")),
        (b'"response.content_part"', ("part", "text")): (b'"response.output_text"', ("delta",)),
        (b'"response.content_part"', ("part", "refusal")): (b'"response.refusal"', ("delta",)),
        (b'"response.reasoning_summary_part"', ("part", "text")): (b'"response.reasoning_summary_text"', ("delta",)),
        (b'"response.output_item"', ("item", "arguments")): (b'"response.function_call_arguments"', ("delta",)),
        (b'"response.output_item"', ("item", "input")): (b'"response.custom_tool_call_input"', ("delta",)),
    }
)
#: Of an answer's end that was cut, so many strings may belong to any stream inside it: their index was still to come.
_TORN_MAX: Final = 16
#: So many strings that each begin with the one before say all of it again each time.
_AGAIN_MIN: Final = 3
#: A private key; others are shorter.
_SECRET_CHARS: Final = 20_000
#: Texts of one frame that are put together from several of its strings; each is a look at all of them.
_SCANS_MAX: Final = 200
_LINE: Final = re.compile(rb"[^\r\n]+")
_BINARY_HEAD: Final = 12
#: What stands before the JSON of a line: framing of event streams, or the kind of a part as the AI SDK writes it.
_LABEL: Final = re.compile(rb"[ \t]*(?:(data:|[0-9a-z]{1,2}:)[ \t]*)?(?=[{\[\"])")
_DATA: Final = re.compile(rb"(?:^|[\r\n])(data|event): ?([^\r\n]*)")


class _Element(NamedTuple):
    """A part of an answer that stands for itself: a frame, a line of JSON, an element of an array that came so."""

    number: int
    json: bytes
    scalars: Sequence[Scalar]
    #: Where in the text each scalar begins.
    places: Sequence[int]
    label: bytes = b""


class _Key(NamedTuple):
    """Which stream inside a stream."""

    kind: bytes
    root: bytes
    #: Names, and indexes as bytes.
    steps: tuple[str | bytes, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step if isinstance(step, str) else "" for step in self.steps)


def channels(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """Of each attempt the strings that came in several pieces, in order of their first one."""
    begun = [at for at, record in enumerate(records) if record.kind == "attempt"]
    answers = (pair for pair in enumerate(texts) if pair[1].kind in ("frame", "rest", "body"))
    for _, some in groupby(answers, key=lambda pair: bisect_right(begun, pair[1].of[0])):
        yield from _of_attempt(some)


def _of_attempt(texts: Iterator[tuple[int, Text]]) -> Iterator[Joined]:
    found: dict[_Key, list[Piece]] = {}
    torn: list[tuple[_Key, Piece]] = []
    for number, text in texts:
        for key, piece in _pieces(text, number):
            found.setdefault(key, []).append(piece)
            if text.kind == "rest":
                torn.append((key, piece))
    alone: dict[tuple[object, ...], list[Piece]] = {}
    for key, pieces in found.items():
        if len(pieces) > 1:
            if not _is_all_so_far(pieces):
                yield Joined.of(pieces)
        else:  # an index that is another one in each frame counts them
            alone.setdefault((key.kind, key.steps), []).extend(pieces)
    yield from (Joined.of(pieces) for pieces in alone.values() if len(pieces) > 1)
    yield from _with_torn(found, torn[-_TORN_MAX:])


def _is_all_so_far(pieces: Sequence[Piece]) -> bool:
    """Whether each says again what the one before said, and more, as some upstreams stream: no parts of one text.

    Seen: joined, a key went on with the first word of the frame behind it, so it was two keys, and the word was gone.
    """
    return (
        len(pieces) >= _AGAIN_MIN
        and len(pieces[-1].said) > len(pieces[0].said)
        and all(following.said.startswith(piece.said) for piece, following in pairwise(pieces))
    )


def last_said(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """How each of the strings of the last attempt ends, whether it came in pieces or whole."""
    begun = max((at for at, record in enumerate(records) if record.kind == "attempt"), default=0)
    found: dict[_Key, list[Piece]] = {}
    last: list[Piece] = []
    for number, text in enumerate(texts):
        if text.kind in ("frame", "rest", "body") and text.of[0] > begun:
            for key, piece in _pieces(text, number):
                found.setdefault(key, []).append(piece)
            if not text.spans:  # what was torn out of its JSON, or is none
                last = list(pieces_of(text, number))[-1:]
    for pieces in (*found.values(), *([last] if last else [])):
        yield Joined.of(pieces[-1:] if _is_all_so_far(pieces) else _last(pieces))


def _with_torn(found: Mapping[_Key, list[Piece]], torn: Sequence[tuple[_Key, Piece]]) -> Iterator[Joined]:
    """The end of what was cut, behind all that it may be the end of."""
    for key, pieces in found.items() if torn else ():
        for own, piece in torn:
            if own != key and own.names == key.names:
                yield Joined.of([*_last(pieces), piece])


def _last(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """As many as the longest secret may have."""
    chars = 0
    for number in range(len(pieces) - 1, -1, -1):
        chars += len(pieces[number].said)
        if chars > _SECRET_CHARS:
            return pieces[number:]
    return pieces


def _pieces(text: Text, number: int) -> Iterator[tuple[_Key, Piece]]:
    for element in _elements(text, number):
        yield from _keyed(element)
    if text.kind != "body" and (not text.spans or text.value is None or isinstance(text.value, int | float)):
        yield from _plain(text, number)  # numbers are words too, where words are streamed


def _plain(text: Text, number: int) -> Iterator[tuple[_Key, Piece]]:
    """Texts that are streamed as they are."""
    event = b""
    for match in _DATA.finditer(text.raw):
        if match[1] == b"event":
            event = match[2]
        elif match[2]:
            yield _Key(b"plain", event, ()), plain(match[2], match.start(2), number)


# -- what stands for itself -------------------------------------------------------------------------------------------


def _elements(text: Text, number: int) -> Iterator[_Element]:
    if text.kind != "body":
        if json := text.json:
            found = list(scalars(json))
            yield _Element(number, json, found, [text.place(scalar.start) for scalar in found])
    elif text.raw[:64].lstrip()[:1] == b"[":  # an array, whole or not
        for _, some in groupby(scalars(text.raw), key=lambda scalar: scalar.path[:1]):
            found = [scalar._replace(path=scalar.path[1:]) for scalar in some]
            yield _Element(number, text.raw, found, [scalar.start for scalar in found])
    elif b":event-type" in text.raw[:200]:
        for start, end in _binary(text.raw):
            found = list(scalars(json := text.raw[start:end]))
            yield _Element(number, json, found, [start + scalar.start for scalar in found])
    elif not text.json:
        for line in _LINE.finditer(text.raw):
            if (label := _LABEL.match(line[0])) is not None:
                json, at = line[0][label.end() :], line.start() + label.end()
                found = list(scalars(json))
                yield _Element(number, json, found, [at + scalar.start for scalar in found], label[1] or b"")


def _binary(raw: bytes) -> Iterator[tuple[int, int]]:
    """Payloads of AWS's event streams: two lengths, a checksum, headers, the payload, a checksum."""
    at = 0
    while at + _BINARY_HEAD < len(raw):
        size, headers = (int.from_bytes(raw[at + skip : at + skip + 4], "big") for skip in (0, 4))
        if size < _BINARY_HEAD + headers:
            return
        yield at + _BINARY_HEAD + headers, min(at + size - 4, len(raw))
        at += size


def _keyed(element: _Element) -> Iterator[tuple[_Key, Piece]]:
    indexes: dict[Path, dict[str, bytes]] = {}
    kind = b""
    kept: list[Piece] = []
    for scalar, place in zip(element.scalars, element.places, strict=True):
        path = scalar.path
        name = path[-1] if path else ""
        if scalar.sort is Sort.OTHER and name in _INDEXES:
            indexes.setdefault(path[:-1], {})[str(name)] = element.json[scalar.start : scalar.end]
        elif scalar.sort is Sort.OTHER or scalar.sort is Sort.NAME:
            pass
        elif path == ("type",):
            kind = _STEP_OF_KIND.sub(b"", element.json[scalar.start : scalar.end])
        elif name not in _WHOLE or path[-2:] == ("function", "name"):
            piece = piece_at(element.json, scalar, place, element.number)
            if piece.said:
                kept.append(piece)
    numbered = {path: b",".join(said for _, said in sorted(some.items())) for path, some in indexes.items()}
    depths = {len(path) for path in numbered}
    for piece in kept:
        own, path = _CONTINUED.get((kind, piece.path), (kind, piece.path))
        yield _Key(element.label + own, numbered.get((), b""), _steps(path, numbered, depths)), piece


def _steps(path: Path, numbered: Mapping[Path, bytes], depths: set[int]) -> tuple[str | bytes, ...]:
    # What says no index has that of its place: many say it in the first piece only.
    steps = tuple(
        step
        if isinstance(step, str)
        else (numbered.get(path[: depth + 1]) if depth + 1 in depths else None) or b"%d" % step
        for depth, step in enumerate(path)
    )
    match path:
        case (*_, "content", int(), "text"):  # a part of a text that is a string in other frames
            return steps[:-2]
        case _:
            return steps


# -- as our folds have it ---------------------------------------------------------------------------------------------


def folded(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """The texts and calls that a chat stream comes to, by the pieces that they were read from.

    Where one cannot be told, another text begins: joined over the gap, what stands behind it would be taken for more of
    what stands before (seen: the brace that closes arguments for the end of a password).
    """
    if not records or records[0].keys.get("dialect") != "chat":
        return
    frames = {records[text.of[0]].n: number for number, text in enumerate(texts) if text.kind == "frame" and text.spans}
    frames |= {records[at].n: number for number, text in enumerate(texts) if text.kind == "body" for at in text.of}
    found: dict[object, list[list[Piece]]] = {}
    left: dict[int, _Left] = {}
    for event in events(records, repairs=False):
        match event:
            case TextDelta(text=said) | ReasoningDelta(text=said) | RefusalDelta(text=said):
                key: object = (type(event), event.choice)
            case ToolArgumentsDelta(text=said):
                key = (type(event), event.choice, event.call)
            case ToolCallStarted(name=said) | ToolNameDelta(name=said):
                key = (ToolNameDelta, event.choice, event.call)
            case _:
                continue
        number = frames.get(event.n)
        if number is None or not said:
            continue
        if number not in left:
            left[number] = _Left(pieces_of(texts[number], number, names=False))
        runs = found.setdefault(key, [[]])
        if spelled := left[number].spelling(said):
            runs[-1] += spelled
        else:
            runs.append([])
    for pieces in (run for runs in found.values() for run in runs):
        if len(pieces) > 1 and not _is_all_so_far(pieces):
            yield Joined.of(pieces)


class _Left:
    """The pieces of a frame, each taken once."""

    def __init__(self, pieces: Iterator[Piece]) -> None:
        self._pieces = [piece for piece in pieces if piece.said and not piece.name]
        self._by_text: dict[str, deque[Piece]] = {}
        for piece in self._pieces:
            self._by_text.setdefault(piece.said, deque()).append(piece)
        self._scans = _SCANS_MAX

    def spelling(self, said: str) -> list[Piece]:
        """Those that make up what it said."""
        if same := self._by_text.get(said):
            return [same.popleft()]
        taken: list[Piece] = []
        at = 0
        self._scans -= 1
        for piece in self._pieces if self._scans >= 0 else ():
            if said.startswith(piece.said, at):
                taken.append(piece)
                at += len(piece.said)
        return taken if at == len(said) else []
