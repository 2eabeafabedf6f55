"""Encode and decode a sealed tape: the same records, written so that a person can review them and git can compare them

    {"wiretape":"sealed","format":1,...}            the header; a file holds one conversation
    {"k":"open",...}                                one stream after the other, each in this order:
    {"k":"clock","lines":[...],"reads":[...],...}   everything that changes from one recording to the next
    {"k":"request",...,"data":{...,"messages":[]}}  the body without its long lists ...
    {"k":"message","data":{...}}                    ... and one line for each of their elements
    {"k":"frame","data":{...}}                      what came, verbatim, as on a live tape
    {"k":"answer","data":{...}}                     an answer that is no stream; text has a line for each of its lines
    {"k":"end",...}
    {"k":"fold",...}                                the result of the stream

A line is the live tape's line without `c`, `n`, `t` and `cuts`: those are in `clock`, and so are the records whose
place depends on time alone (`commit`, `keepalive`, `gone`). A kind that this form uses itself gets a `=` in front.
Nothing is lost: `decode` returns the records that `encode` was given.
"""

import codecs
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_object, dumps, is_object, parse
from wiretape.events.tape.record import Record
from wiretape.events.tape.record import decode as decode_line
from wiretape.events.tape.record import encode as encode_line
from wiretape.events.tape.upcast import upcast

from .blobs import BLOB
from .clock import Clock, clocked, timed
from .expected import Hide, expected
from .joined_bodies import ANSWER, UPLOADED, pieces
from .split_body import LISTS, TEXT, joined, split

__all__ = ["FORMAT", "MARK", "STEPS", "Sealed", "decode", "differs", "encode", "made_lines", "spoilt"]

#: The format that this version writes. The records have the format that `open` states.
FORMAT: Final = 1
#: How a sealed tape begins.
MARK: Final = b'{"wiretape":"sealed",'
#: Steps from format n to n + 1, each over the lines of a file. Tapes of every format stay in fixtures/.
STEPS: Final[Mapping[int, Callable[[list[bytes]], list[bytes]]]] = MappingProxyType({})

_CONFLICT: Final = b"<<<<<<< "
_FOLD: Final = b'{"k":"fold"'
#: Kinds that are lines of this form and no records.
_OURS: Final = frozenset({"clock", "fold", ANSWER, UPLOADED, TEXT, *LISTS.values()})
_NUMBERED: Final = b'"n":0,"t":0,'
_BODY_AT: Final = 16


class Sealed(NamedTuple):
    """A sealed tape: its header, the records of each stream, and the line of each record, from 1."""

    header: Mapping[str, Any]
    streams: list[list[Record]]
    lines: list[list[int]]


def encode(header: Mapping[str, Any], streams: Iterable[Sequence[Record]], *, hide: Hide = str) -> bytes:
    """Return the file. Raise `TapeError` for records that would not be read back as they are.

    `hide` shortens the texts that the fold lines show.
    """
    lines = [dumps({"wiretape": "sealed", "format": FORMAT, **header}), b""]
    for number, records in enumerate(streams, 1):
        mine = list(_lines(records))
        if not mine:
            raise TapeError(f"stream {number} cannot be sealed: it has no records")
        try:
            same = [_comparable(record) for record in _records(mine)[0]] == [_comparable(record) for record in records]
        except RecursionError:
            raise TapeError(f"stream {number} cannot be sealed: the keys of a record are nested too deep") from None
        if not same:
            raise TapeError(f"stream {number} cannot be sealed: its records contradict each other (is it damaged?)")
        lines[-1:] = [*mine, dumps({"k": "fold", **expected(records, hide=hide)}), b""]
    return b"\n".join(lines)


def _comparable(record: Record) -> Record:
    """Drop the parsed payload, which is compared by its bytes: it may nest deeper than Python compares."""
    return record._replace(value=ABSENT, shape=None)


def decode(
    data: bytes, *, verify: bool = True, steps: Mapping[int, Callable[[list[bytes]], list[bytes]]] = STEPS
) -> Sealed:
    """Return the records again; with `verify`, compare every `fold` line with its records."""
    if reason := spoilt(data):
        raise TapeError(reason)
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise TapeError(f"line {len(lines) + 1}: its end is missing")
    header = _header(lines[0], max(FORMAT, *steps) if steps else FORMAT)
    for step in sorted(steps):
        if step >= header["format"]:
            lines = steps[step](lines)
    if number := next((at for at, line in enumerate(lines, 1) if line.startswith(BLOB)), 0):
        raise TapeError(f"line {number}: its content is in a blob, and only the bytes of the tape were given")
    sealed = Sealed(header, [], [])
    for first, mine, fold in _streams(lines):
        try:
            records, places = _records(mine)
        except TapeError as error:
            raise TapeError(f"stream {len(sealed.streams) + 1}, from line {first}: {error}") from error
        if verify and (name := differs(fold, records)) is not None:
            raise TapeError(
                f"line {first + len(mine)}: the fold line disagrees with the tape in {name!r} "
                "(was it edited? `wiretape seal` writes it again)"
            )
        sealed.streams.append(records)
        sealed.lines.append([first + place for place in places])
    return sealed


def spoilt(data: bytes) -> str:
    """Return what git or an editor did to the file, if anything; no line of a tape begins so."""
    if data.startswith(codecs.BOM_UTF8):
        return "line 1: the file begins with a byte order mark: save it without one"
    at = 0 if data.startswith(_CONFLICT) else data.find(b"\n" + _CONFLICT) + 1
    if at or data.startswith(_CONFLICT):
        number = data.count(b"\n", 0, at) + 1
        return f"line {number}: an unresolved merge conflict: take one side, or record it again"
    return ""


def differs(fold: bytes, records: Sequence[Record]) -> str | None:
    """Return the first member in which a fold line disagrees with its records, if any."""
    written: dict[str, Any] = as_object(parse(fold))
    found = {"k": "fold", **expected(records, like=written)}
    return next(
        (key for key in {**found, **written} if not _equal(written.get(key, ABSENT), found.get(key, ABSENT))), None
    )


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except RecursionError:  # an upstream's usage nests as deep as it likes
        return dumps(a) == dumps(b)


def made_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are no records, with their numbers: header, clocks and folds."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if number == 1 or line.startswith((b'{"k":"clock"', _FOLD)):
            yield number, line


def _header(line: bytes, newest: int) -> dict[str, Any]:
    header: dict[str, Any] = as_object(parse(line))
    version = header.get("format")
    if not line.startswith(MARK) or type(version) is not int or version < 1:
        raise TapeError("line 1: not the header of a sealed tape")
    if version > newest:
        raise TapeError(f"sealed in format {version}; {newest} is the newest that this version reads")
    return header


def _streams(lines: list[bytes]) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Yield of each stream the number of its first line, its lines, and its fold."""
    start = 1
    for at in range(1, len(lines)):
        if lines[at].startswith(_FOLD):
            yield start + 1, lines[start:at], lines[at]
            start = at + 1
    if start != len(lines):
        raise TapeError(f"line {start + 1}: a stream without its fold line")


# -- records to lines -------------------------------------------------------------------------------------------------


def _lines(records: Sequence[Record]) -> Iterator[bytes]:
    clock, kept = clocked([_escaped(record) for record in records])
    written = (line for record in kept for line in _written(record))
    for number, each in enumerate(written):
        line = encode_line(each._replace(n=0, t=0))
        yield b"{%b" % line[_BODY_AT + len(_NUMBERED) : -1]
        if not number:
            yield dumps({"k": "clock", **clock.to_keys()})


def _written(record: Record) -> Iterator[Record]:
    """Yield the lines of one record."""
    if record.kind in (ANSWER, UPLOADED):
        parts = pieces(record.raw or b"")
        for part in parts:
            # A part of a text stays text, even if it happens to be JSON.
            payload = part if len(parts) == 1 and b"\n" not in part and parse(part) is not ABSENT else None
            yield Record(0, 0, record.kind, record.keys, part, payload)
    elif record.kind == "request":
        line, elements = split(record)
        yield line
        yield from elements
    else:
        yield record


def _escaped(record: Record) -> Record:
    ours = record.kind in _OURS or record.kind.startswith("=")
    return record._replace(kind="=" + record.kind) if ours else record


# -- lines to records -------------------------------------------------------------------------------------------------


def _records(lines: Sequence[bytes]) -> tuple[list[Record], list[int]]:
    """Return the records of a stream, and the place of the line of each."""
    keys = parse(lines[1]) if len(lines) > 1 else ABSENT
    if not is_object(keys) or keys.get("k") != "clock":
        raise TapeError("no clock line after the first one")
    parsed = [_record(line, at) for at, line in enumerate(lines) if at != 1]
    kept: list[Record] = []
    at = 0
    while at < len(parsed):
        record, count = _joined(parsed, at)
        kept.append(record._replace(n=at + (at > 0)))  # the place of its line
        at += count
    records = [
        record._replace(kind=record.kind[1:]) if record.kind.startswith("=") else record
        for record in timed(kept, Clock.of(keys))
    ]
    version = records[0].keys.get("format")
    places = [record.n for record in records]
    records = [record._replace(n=number) for number, record in enumerate(records)]
    return ([upcast(record, version) for record in records] if type(version) is int else records), places


def _joined(parsed: Sequence[Record], at: int) -> tuple[Record, int]:
    """Return the record that begins at this line, and how many lines it takes."""
    record = parsed[at]
    if record.kind == "request" and "split" in record.keys:
        record, count = joined(record, parsed[at + 1 :])
        return record, count + 1
    if record.kind in (ANSWER, UPLOADED):
        end = at + 1
        while end < len(parsed) and parsed[end].kind == record.kind:
            end += 1
        raw = b"".join(each.raw or b"" for each in parsed[at:end])
        return Record(0, 0, record.kind, record.keys, raw), end - at
    if record.kind in _OURS:
        raise TapeError(f"unexpected line of kind {record.kind}")
    return record, 1


def _record(line: bytes, at: int) -> Record:
    body = _NUMBERED + line[1:]
    record = decode_line(b'{"c":"%08x",%b' % (zlib.crc32(body), body))
    if isinstance(record, str):
        raise TapeError(f"its line {at + 1}: {record}")
    return record
