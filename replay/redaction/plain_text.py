"""The plain text of a recording: bodies decoded, and each string joined with the others it was streamed with

Bytes that are plain text are taken as such, even against their headers. A body that was cut is decoded as far as it
goes. A body in any other coding, such as brotli or UTF-16, may hold anything and is not kept.

A streamed secret is a piece in each frame, under one path and index. Other dialects stream lines of JSON, or an array
whose elements arrive one by one.
"""

import codecs
import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, groupby, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, Edit, as_list
from wiretape.events.dialects import PLACES
from wiretape.events.tape.record import Record
from wiretape.proxy.upstream.connection import CODINGS, Inflater, LimitError, WireError

from ..sealed.clock import carrying
from ..sealed.texts import Path, Scalar, Text, edited, scalars, unquoted

__all__ = [
    "Joined",
    "Piece",
    "Unreadable",
    "headers_on",
    "headers_to_send",
    "joined_texts",
    "opened",
    "pieces_of",
    "plain_body",
    "unreadable",
]

#: Layers that a browser decodes (undici, curl: CVE-2022-32206).
_LAYERS_MAX: Final = 5
#: Decoded bytes of one body (the proxy's own limit for a plain one) and of all bodies of a file: a bomb expands a
#: thousandfold, and a file may hold a hundred.
_BODY_BYTES_MAX: Final = 128 * 1024 * 1024
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: The answer that replaces an unreadable one.
_INSTEAD: Final = "[unreadable: {unreadable}, {bytes} bytes, sha256 {sha256}]"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {"coding": "has an unknown coding", "damaged": "cannot be decoded as declared", "size": "is too large once decoded"}
)

_Headers = Iterable[tuple[str, str]]


class Unreadable(NamedTuple):
    """A body that cannot be searched for secrets."""

    stream: int
    #: Number of the record with its headers.
    n: int
    #: `request` or `answer`.
    whose: str
    why: str

    def __str__(self) -> str:
        return f"the body of its {self.whose} {_WHY[self.why]}"


class _Body(NamedTuple):
    """A body of a stream: the record with its headers, the records that hold it, and its decoded pieces."""

    at: int
    of: Sequence[int]
    pieces: Sequence[bytes]
    #: The codings that were undone: `gzip`, or `gzip, deflate`.
    undone: str = ""
    #: Why it cannot be decoded: `coding`, `damaged` or `size`.
    unreadable: str = ""


def plain_body(headers: _Headers, body: bytes) -> bytes:
    """Return a request's body decoded as its recording has it, or unchanged if that is impossible."""
    plain = _decoded(_Body(0, (), [body]), [*headers], _BODY_BYTES_MAX)
    return b"".join(plain.pieces) if plain.undone and not plain.unreadable else body


def headers_on(keys: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the headers of a request or a head, in order."""
    rows = (as_list(row) for row in as_list(keys.get("headers")))
    return [(row[0], row[1]) for row in rows if len(row) == 2 and isinstance(row[0], str) and isinstance(row[1], str)]


def headers_to_send(keys: Mapping[str, Any]) -> list[tuple[bytes, bytes]]:
    """Return the headers of a request or a head, without an encoding that was decoded."""
    decoded = "decoded" in keys or "unreadable" in keys
    return [
        (name.encode("latin-1", "replace"), value.encode("latin-1", "replace"))
        for name, value in headers_on(keys)
        if name != "content-encoding" or not decoded
    ]


def opened(streams: Sequence[Sequence[Record]], *, numbered: bool = True) -> list[list[Record]]:
    """Return the streams with decoded bodies; an unreadable one is replaced by its size and hash.

    Records without bytes left are dropped; the others get new numbers, unless not `numbered`.
    """
    done: list[list[Record]] = []
    for records, bodies in zip(streams, _bodies(streams), strict=True):
        coded = [body for body in bodies if body.undone or body.unreadable]
        done.append(_opened(records, coded, numbered=numbered) if coded else list(records))
    return done


def unreadable(streams: Sequence[Sequence[Record]]) -> list[Unreadable]:
    """Return the bodies that cannot be decoded."""
    return [
        Unreadable(stream, head.n, "request" if head.kind == "request" else "answer", body.unreadable)
        for stream, (records, bodies) in enumerate(zip(streams, _bodies(streams), strict=True))
        for body in bodies
        if body.unreadable and (head := records[body.at])
    ]


# -- decoding ---------------------------------------------------------------------------------------------------------


def _bodies(streams: Sequence[Sequence[Record]]) -> Iterator[list[_Body]]:
    left = _FILE_BYTES_MAX
    for records in streams:
        found: list[_Body] = []
        for at, of in _places(records):
            found.append(_read(records, at, of, min(left, _BODY_BYTES_MAX)))
            left -= sum(map(len, found[-1].pieces)) if found[-1].undone else 0
        yield found


def _places(records: Sequence[Record]) -> list[tuple[int, list[int]]]:
    """Return each body's record with headers and the records that hold it; uploads belong to the first request."""
    found: list[tuple[int, list[int]]] = []
    of: dict[str, list[int]] = {}
    uploads = [at for at, record in enumerate(records) if record.kind == "upload" and record.raw]
    for at, record in enumerate(records):
        if record.kind in ("request", "head"):
            mine = [at] if record.raw else []
            if record.kind == "request":
                mine, uploads = [*mine, *uploads], []
            if record.kind not in of:
                found.append((at, mine))
            of.setdefault(record.kind, mine)
        elif record.kind == "attempt":
            of.pop("head", None)
        elif record.kind == "body" and record.raw and "head" in of:
            of["head"].append(at)
    return found


def _read(records: Sequence[Record], at: int, of: Sequence[int], bytes_max: int) -> _Body:
    body = _Body(at, of, [records[each].raw or b"" for each in of])
    keys = records[at].keys
    headers = headers_on(keys)
    if of and "decoded" in keys:  # the recorder decoded it; for an unknown coding, only readable text proves that
        if not CODINGS.issuperset(_codings(headers)) and not _is_text(body.pieces):
            return body._replace(unreadable="coding")
        headers = [(name, value) for name, value in headers if name != "content-encoding"]
    return _decoded(body, headers, bytes_max) if of else body


def _decoded(body: _Body, headers: Sequence[tuple[str, str]], bytes_max: int) -> _Body:
    kind = next((value.lower() for name, value in headers if name.lower() == "content-type"), "")
    codings = _codings(headers)
    pieces, undone = body.pieces, list[str]()
    while codings and not _is_text(pieces):
        coding = codings.pop()
        if len(undone) == _LAYERS_MAX or coding not in CODINGS:
            return body._replace(pieces=pieces, unreadable="coding")
        try:
            inflater = Inflater(coding, bytes_max)
            pieces = [b"".join(inflater.feed(piece)) for piece in pieces]
        except (LimitError, WireError) as error:
            why = "size" if isinstance(error, LimitError) else "damaged"
            return body._replace(pieces=pieces, unreadable=why)
        undone.append(coding)
    is_wide = b"".join(pieces[:4]).startswith(_WIDE_MARKS) or re.search("charset=.?utf-?(16|32)", kind) is not None
    if (is_wide or "json" in kind) and not _is_text(pieces):  # in UTF-16, or compressed without a header
        return body._replace(pieces=pieces, unreadable="coding")
    return body._replace(pieces=pieces, undone=", ".join(undone))


def _codings(headers: _Headers) -> list[str]:
    values = (value.lower() for name, value in headers if name.lower() == "content-encoding")
    words = (word.strip() for value in values for word in value.split(","))
    return [word for word in words if word not in ("", "identity")]


def _is_text(pieces: Sequence[bytes]) -> bool:
    """Return whether a search sees all of the text; a character may be cut at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return not any(_CONTROL.search(piece) or (decoder.decode(piece) and False) for piece in pieces)
    except UnicodeDecodeError:
        return False


def _opened(records: Sequence[Record], some: Sequence[_Body], *, numbered: bool) -> list[Record]:
    new = list(records)
    changes: list[tuple[Text, Sequence[Edit]]] = []
    gone: set[int] = set()
    for at, of, decoded, undone, why in some:
        pieces = decoded
        before = new[at].keys.get("decoded")
        keys: dict[str, Any] = {"decoded": f"{before}, {undone}" if isinstance(before, str) else undone}
        if why:
            whole = b"".join(records[each].raw or b"" for each in of)
            keys = {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "unreadable": why}
            instead = "" if new[at].kind == "request" else _INSTEAD.format(**keys)
            pieces = [*[b""] * (len(of) - 1), instead.encode()]
        new[at] = new[at]._replace(keys={**new[at].keys, **keys})
        if at in of:  # a request that was not relayed while it came
            body, pieces = pieces[0], pieces[1:]
            new[at] = carrying(new[at], body) if body else new[at]._replace(raw=None, payload=None, value=ABSENT)
        if runs := [each for each in of if each != at]:
            whole = b"".join(records[each].raw or b"" for each in runs)
            ends = accumulate((len(records[each].raw or b"") for each in runs), initial=0)
            new_pieces = [Edit(*span, piece) for span, piece in zip(pairwise(ends), pieces, strict=True)]
            changes.append((Text(records[runs[0]].kind, tuple(runs), whole), new_pieces))
            gone |= {each for each, piece in zip(runs, pieces, strict=True) if not piece}
    done = edited(new, changes)
    if numbered or not gone:
        return done
    left = (record.n for at, record in enumerate(records) if at not in gone)
    return [record._replace(n=n) for record, n in zip(done, left, strict=True)]


# -- strings ----------------------------------------------------------------------------------------------------------

_DIALECTS: Final = [places.words for places in PLACES.values()]
#: Numbers that identify which of several streams inside a stream a piece belongs to.
_INDEXES: Final = frozenset({"choice", "contentBlockIndex", "index"}).union(*(words.indexes for words in _DIALECTS))
#: Members that repeat in each frame and are not streamed. The name of a function may be.
_REPEATED: Final = frozenset(
    {"event", "id", "model", "name", "object", "obfuscation", "p", "provider", "role", "service_tier", "status",
     "system_fingerprint", "type"}
).union(*(words.repeated for words in _DIALECTS))  # fmt: skip
#: Members with more than one name.
_ALIASES: Final = {alias: "reasoning" for words in _DIALECTS for alias in words.reasoning}
#: Frames that begin a text and frames that continue it have the same kind ...
_STEP_OF_KIND: Final = re.compile(rb"[-_.](?:added|begin|delta|start)(?=\"$)")
#: ... or hold its first piece in another member than the others.
_CONTINUED: Final[Mapping[tuple[bytes, Path], tuple[bytes, Path]]] = MappingProxyType(
    {begun: goes_on for words in _DIALECTS for begun, goes_on in words.continued.items()}
)
#: Strings of a torn end that may continue any text of their path: their index was still to come.
_TORN_MAX: Final = 16
#: As many strings that each begin with the one before repeat the whole text each time.
_CUMULATIVE_MIN: Final = 3
#: A private key; other secrets are shorter.
_SECRET_CHARS: Final = 20_000
_LINE: Final = re.compile(rb"[^\r\n]+")
#: Before the JSON of a line: the field of an event stream, or the part's kind as the AI SDK writes it.
_LABEL: Final = re.compile(rb"[ \t]*(?:(data:|[0-9a-z]{1,2}:)[ \t]*)?(?=[{\[\"])")
_DATA: Final = re.compile(rb"(?:^|[\r\n])(data|event): ?([^\r\n]*)")


class Piece(NamedTuple):
    """A string, or a part of one, in the text of this number; `places` has one entry more than `said`."""

    text: int
    path: Path
    said: str
    places: Sequence[int]
    #: Whether it is a member's name.
    name: bool = False


class Joined(NamedTuple):
    """Pieces one after the other, and where each begins in their text."""

    pieces: Sequence[Piece]
    said: str
    starts: Sequence[int]

    @staticmethod
    def of(pieces: Sequence[Piece]) -> "Joined":
        starts = accumulate((len(piece.said) for piece in pieces), initial=0)
        return Joined(pieces, "".join(piece.said for piece in pieces), [*starts][:-1])

    def parts(self, start: int, end: int) -> Iterator[tuple[Piece, int, int]]:
        """Yield the pieces of a part of the text, with its start and end in the bytes of each."""
        for number in range(max(0, bisect_right(self.starts, start) - 1), len(self.pieces)):
            begin, piece = self.starts[number], self.pieces[number]
            if begin >= end:
                return
            first, last = max(0, start - begin), min(len(piece.said), end - begin)
            if first < last:
                yield piece, piece.places[first], piece.places[last]


def pieces_of(text: Text, number: int) -> Iterator[Piece]:
    """Yield the strings of a text's JSON and what frames it; without JSON its lines, or the whole text."""
    for scalar in text.scalars:
        if scalar.sort != "other":
            yield _piece(text.json, scalar, text.place(scalar.start), number)
    at = 0
    for start, end in [*text.spans, (len(text.raw), 0)] if text.spans else ():  # event names and comments
        if at < start:
            yield _plain(text.raw[at:start], at, number)
        at = end
    if not text.spans and text.kind in ("frame", "rest"):
        for line in _LINE.finditer(text.raw):
            yield _plain(line[0], line.start(), number)
    elif not text.spans:
        yield _plain(text.raw, 0, number)


def _piece(json: bytes, scalar: Scalar, place: int, number: int) -> Piece:
    inside = json[scalar.start + 1 : scalar.end - (scalar.sort != "torn")].decode("utf-8", "surrogateescape")
    return Piece(number, scalar.path, *unquoted(inside, place + 1, in_bytes=True), scalar.sort == "name")


def _plain(raw: bytes, at: int, number: int) -> Piece:
    return Piece(number, (), raw.decode("latin-1"), range(at, at + len(raw) + 1))


# -- streamed strings -------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """The stream inside a stream to which a piece belongs: kind of frame, root index, names and indexes."""

    kind: bytes
    root: bytes = b""
    steps: tuple[str | bytes, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(step if isinstance(step, str) else "" for step in self.steps)


def joined_texts(records: Sequence[Record], texts: Sequence[Text]) -> Iterator[Joined]:
    """Yield the strings of answers that came in several pieces, joined; attempts apart."""
    begun = [at for at, record in enumerate(records) if record.kind == "attempt"]
    answers = [pair for pair in enumerate(texts) if pair[1].kind in ("frame", "rest", "body")]
    for _, some in groupby(answers, key=lambda pair: bisect_right(begun, pair[1].of[0])):
        yield from _of_attempt([*some])


def _of_attempt(texts: Sequence[tuple[int, Text]]) -> Iterator[Joined]:
    by_key: dict[_Key, list[Piece]] = {}
    torn: list[tuple[_Key, Piece]] = []
    for number, text in texts:
        found = [pair for element in _elements(text) for pair in _keyed(*element, number)]
        if text.kind != "body" and (not text.spans or isinstance(text.value, int | float | None)):
            found += _words(text, number)  # numbers are words too, where words are streamed
        for key, piece in found:
            by_key.setdefault(key, []).append(piece)
        if text.kind == "rest":
            torn += found
    alone: dict[tuple[object, ...], list[Piece]] = {}
    for key, pieces in by_key.items():
        if len(pieces) == 1:  # an index that differs in each frame counts the frames
            alone.setdefault((key.kind, key.steps), []).extend(pieces)
        elif not _is_cumulative(pieces):
            yield Joined.of(pieces)
    yield from (Joined.of(pieces) for pieces in alone.values() if len(pieces) > 1)
    for key, pieces in by_key.items() if torn else ():
        for own, piece in torn[-_TORN_MAX:]:
            if own != key and own.names == key.names:
                yield Joined.of([*_last(pieces), piece])


def _is_cumulative(pieces: Sequence[Piece]) -> bool:
    """Return whether each piece repeats the one before and adds to it, as some upstreams stream.

    Seen: joined, a key was continued by the first word of the next frame, and that word was redacted with it.
    """
    return (
        len(pieces) >= _CUMULATIVE_MIN
        and len(pieces[-1].said) > len(pieces[0].said)
        and all(following.said.startswith(piece.said) for piece, following in pairwise(pieces))
    )


def _last(pieces: Sequence[Piece]) -> Sequence[Piece]:
    """Return as many of the last pieces as the longest secret may have."""
    sizes = accumulate(len(piece.said) for piece in reversed(pieces))
    count = next((count for count, chars in enumerate(sizes, 1) if chars > _SECRET_CHARS), len(pieces))
    return pieces[-count:]


def _words(text: Text, number: int) -> Iterator[tuple[_Key, Piece]]:
    """Yield the data of a frame that streams plain words."""
    event = b""
    for match in _DATA.finditer(text.raw):
        if match[1] == b"event":
            event = match[2]
        elif match[2]:
            yield _Key(b"plain", event), _plain(match[2], match.start(2), number)


def _elements(text: Text) -> Iterator[tuple[bytes, bytes, Sequence[Scalar], Callable[[int], int]]]:
    """Yield the parts of an answer that are complete by themselves: a frame, a line of JSON, an element of an array.

    Each is its label, its JSON, its scalars, and a function from places in the JSON to places in the text.
    """
    if text.kind != "body":
        yield b"", text.json, text.scalars, text.place
    elif text.raw[:64].lstrip()[:1] == b"[":  # an array, complete or not
        for _, some in groupby(scalars(text.raw), key=lambda scalar: scalar.path[:1]):
            yield b"", text.raw, [scalar._replace(path=scalar.path[1:]) for scalar in some], int
    elif not text.json:
        for line in _LINE.finditer(text.raw):
            if (label := _LABEL.match(line[0])) is not None:
                json = line[0][label.end() :]
                yield label[1] or b"", json, scalars(json), (line.start() + label.end()).__add__


def _keyed(
    label: bytes, json: bytes, found: Sequence[Scalar], place: Callable[[int], int], number: int
) -> Iterator[tuple[_Key, Piece]]:
    indexes: dict[Path, dict[str, bytes]] = {}
    kind = b""
    kept: list[Piece] = []
    for scalar in found:
        path = scalar.path
        name = path[-1] if path else ""
        if scalar.sort == "other":
            if name in _INDEXES:
                indexes.setdefault(path[:-1], {})[str(name)] = json[scalar.start : scalar.end]
        elif scalar.sort != "name" and path == ("type",):
            kind = _STEP_OF_KIND.sub(b"", json[scalar.start : scalar.end])
        elif scalar.sort != "name" and (name not in _REPEATED or path[-2:] == ("function", "name")):
            piece = _piece(json, scalar, place(scalar.start), number)
            if piece.said:
                kept.append(piece)
    numbered = {path: b",".join(said for _, said in sorted(some.items())) for path, some in indexes.items()}
    for piece in kept:
        own, path = _CONTINUED.get((kind, piece.path), (kind, piece.path))
        yield _Key(label + own, numbered.get((), b""), _steps(path, numbered)), piece


def _steps(path: Path, numbered: Mapping[Path, bytes]) -> tuple[str | bytes, ...]:
    """Return the names of a path, and for each element its index, or its position if it has no index."""
    steps = tuple(
        _ALIASES.get(step, step) if isinstance(step, str) else numbered.get(path[: depth + 1]) or b"%d" % step
        for depth, step in enumerate(path)
    )
    match path:
        case (*_, "content", int(), "text"):  # a part of a text that is a string in other frames
            return steps[:-2]
        case _:
            return steps
