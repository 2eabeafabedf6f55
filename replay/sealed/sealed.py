"""The sealed form of a tape: the same records, written so that a person can review them and git can compare them

    {"wiretape":"sealed","format":1,...}            the header: one a file, which holds one conversation
    {"k":"open",...}                                one stream after the other, each in this order:
    {"k":"clock","lines":[...],"reads":[...],...}   all that changes from one recording to the next
    {"k":"request",...,"data":{...,"messages":[]}}  the body, its long lists taken out ...
    {"k":"message","data":{...}}                    ... and written one line an element
    {"k":"frame","data":{...}}                      what came, verbatim, as on a live tape
    {"k":"answer","data":{...}}                     an answer that is no stream, whole; text has a line for each of its
    {"k":"end",...}
    {"k":"fold",...}                                what it comes to

A line of a record is the live tape's line without `c`, `n`, `t` and `cuts`: those, and the records that stand where
they stand by the clock alone (`commit`, `keepalive`, `gone`), are in `clock`. A kind of a live tape that is a word of
this form has a `=` before it. Nothing is lost: `decode` gives back the very records that `encode` was given.
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

from ..matching.json_diff import hidden
from .blobs import BLOB
from .clock import Clock, clocked, timed
from .expected import expected
from .joined_bodies import ANSWER, UPLOADED, pieces
from .split_body import LISTS, TEXT, joined, split

__all__ = ["FORMAT", "MARK", "STEPS", "Sealed", "beside", "decode", "differs", "encode", "spoilt"]

#: The form that this version writes. What the records themselves say has the format of `open`.
FORMAT: Final = 1
#: How git begins what it could not merge.
_CONFLICT: Final = b"<<<<<<< "
#: Lines of a stream that are no records.
_BESIDE: Final = (b'{"k":"clock"', b'{"k":"fold"')
#: How a sealed tape begins.
MARK: Final = b'{"wiretape":"sealed",'

#: From format n to n + 1: the lines of a whole file. A file of every format stays in fixtures/ for ever.
STEPS: Final[Mapping[int, Callable[[list[bytes]], list[bytes]]]] = MappingProxyType({})

#: Kinds that are lines of this form and no records.
_OURS: Final = frozenset({"clock", "fold", ANSWER, UPLOADED, TEXT, *LISTS.values()})
_NUMBERED: Final = b'"n":0,"t":0,'
_BODY_AT: Final = 16


class Sealed(NamedTuple):
    """One sealed tape: what its header says, and the records of each of its streams."""

    header: Mapping[str, Any]
    streams: list[list[Record]]
    #: Of each record the number of its line in the file, from 1.
    lines: list[list[int]]


def encode(header: Mapping[str, Any], streams: Iterable[Sequence[Record]]) -> bytes:
    """The file. Reads its own lines back, and refuses records that it could not give back as they are."""
    lines = [dumps({"wiretape": "sealed", "format": FORMAT, **header}), b""]
    for number, records in enumerate(streams, 1):
        mine = list(_lines(records))
        if not mine:
            raise TapeError(f"stream {number} cannot be sealed: it has no records")
        if not _are_same(_records(mine)[0], records, number):
            raise TapeError(f"stream {number} cannot be sealed: its records contradict each other (is it damaged?)")
        lines[-1:] = [*mine, dumps({"k": "fold", **expected(records)}), b""]
    return b"\n".join(lines)


def _are_same(found: Sequence[Record], records: Sequence[Record], number: int) -> bool:
    """Of `data` the bytes are compared, whose value nests as deep as it likes."""
    try:
        return [_said(record) for record in found] == [_said(record) for record in records]
    except RecursionError:
        raise TapeError(f"stream {number} cannot be sealed: what a record says of itself is nested too deep") from None


def _said(record: Record) -> Record:
    return record._replace(value=ABSENT, shape=None)


def decode(
    data: bytes, *, verify: bool = True, steps: Mapping[int, Callable[[list[bytes]], list[bytes]]] = STEPS
) -> Sealed:
    """The records again; with `verify`, every `fold` line is compared with what the records come to."""
    if reason := spoilt(data):
        raise TapeError(reason)
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise TapeError(f"line {len(lines) + 1}: its end is missing")
    header = _header(lines[0], max(FORMAT, *steps, 0) if steps else FORMAT)
    for step in sorted(steps):
        if step >= header["format"]:
            lines = steps[step](lines)
    if away := next((at for at, line in enumerate(lines, 1) if line.startswith(BLOB)), 0):
        raise TapeError(f"line {away}: what it held lies beside the file, of which only the bytes are here")
    streams: list[list[Record]] = []
    numbers: list[list[int]] = []
    for first, mine, fold in _streams(lines):
        try:
            records, places = _records(mine)
        except TapeError as error:
            raise TapeError(f"stream {len(streams) + 1}, from line {first}: {error}") from error
        if verify:
            _compare(fold, records, first + len(mine))
        streams.append(records)
        numbers.append([first + place for place in places])
    return Sealed(header, streams, numbers)


def spoilt(data: bytes) -> str:
    """What git or an editor did to the file, if anything; no line of any tape begins so."""
    if data.startswith(codecs.BOM_UTF8):
        return "line 1: a byte order mark stands before it: save the file without one"
    at = 0 if data.startswith(_CONFLICT) else data.find(b"\n" + _CONFLICT) + 1
    if at or data.startswith(_CONFLICT):
        number = data.count(b"\n", 0, at) + 1
        return f"line {number}: a merge conflict that nobody has resolved: take one side whole, or record it anew"
    return ""


def _header(line: bytes, newest: int) -> dict[str, Any]:
    header: dict[str, Any] = as_object(parse(line))
    version = header.get("format")
    if not line.startswith(MARK) or type(version) is not int or version < 1:
        raise TapeError("line 1: not the header of a sealed tape")
    if version > newest:
        raise TapeError(f"sealed in format {version}; {newest} is the newest that this version reads")
    return header


def _streams(lines: list[bytes]) -> Iterator[tuple[int, list[bytes], bytes]]:
    """Of each stream the number of its first line, its lines, and its fold."""
    start = 1
    for at in range(1, len(lines)):
        if lines[at].startswith(b'{"k":"fold"'):
            yield start + 1, lines[start:at], lines[at]
            start = at + 1
    if start != len(lines):
        raise TapeError(f"line {start + 1}: a stream without its fold line")


def _compare(line: bytes, records: Sequence[Record], number: int) -> None:
    said: dict[str, Any] = as_object(parse(line))
    found = {"k": "fold", **expected(records)}
    name = differs(said, found)
    if name is None:
        return
    raise TapeError(
        f"line {number}: the fold line says {hidden(name)} {hidden(dumps(said.get(name)).decode())[:200]}, the tape "
        f"comes to {hidden(dumps(found.get(name)).decode())[:200]} (edited? `wiretape seal` writes it anew)"
    )


def beside(data: bytes) -> Iterator[tuple[int, bytes]]:
    """The lines that are no record, with their numbers: the header, the clocks and the folds."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if number == 1 or line.startswith(_BESIDE):
            yield number, line


def differs(said: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """What the two say otherwise, if anything."""
    return next(
        (key for key in {**found, **said} if not _is_alike(said.get(key, ABSENT), found.get(key, ABSENT))), None
    )


def _is_alike(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except RecursionError:  # what an upstream counts is ours to write down, however deep it is nested
        return dumps(a) == dumps(b)


# -- records to lines -------------------------------------------------------------------------------------------------


def _lines(records: Sequence[Record]) -> Iterator[bytes]:
    clock, kept = clocked([_escaped(record) for record in records])
    written_clock = False
    for record in kept:
        for line in _written(record):
            yield _line(line)
            if not written_clock:
                yield dumps({"k": "clock", **clock.to_keys()})
                written_clock = True


def _written(record: Record) -> Iterator[Record]:
    """The lines of one record."""
    if record.kind in (ANSWER, UPLOADED):
        parts = pieces(record.raw or b"")
        for part in parts:
            # A part of a text stays text, though it may happen to be JSON.
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


def _line(record: Record) -> bytes:
    """The live tape's line, without what is in `clock`."""
    line = encode_line(record._replace(n=0, t=0))
    return b"{%b" % line[_BODY_AT + len(_NUMBERED) : -1]


# -- lines to records -------------------------------------------------------------------------------------------------


def _records(lines: Sequence[bytes]) -> tuple[list[Record], list[int]]:
    """The records, and the place of the line of each."""
    if len(lines) < 2:
        raise TapeError("a stream without its clock line")
    clock = _clock(lines[1])
    said = [_record(line, at) for at, line in enumerate(lines) if at != 1]
    kept: list[Record] = []
    places: list[int] = []
    at = 0
    while at < len(said):
        record, count = _together(said, at)
        kept.append(record._replace(n=at + (at > 0)))
        at += count
    records = [_plain(record) for record in timed(kept, clock)]
    version = records[0].keys.get("format")
    places = [record.n for record in records]
    records = [record._replace(n=number) for number, record in enumerate(records)]
    return ([upcast(record, version) for record in records] if type(version) is int else records), places


def _clock(line: bytes) -> Clock:
    keys = parse(line)
    if not is_object(keys) or keys.get("k") != "clock":
        raise TapeError("no clock line behind the first one")
    return Clock.of(keys)


def _together(said: Sequence[Record], at: int) -> tuple[Record, int]:
    """The record that begins here, and how many lines it takes."""
    record = said[at]
    if record.kind == "request" and "split" in record.keys:
        record, count = joined(record, said[at + 1 :])
        return record, count + 1
    if record.kind in (ANSWER, UPLOADED):
        behind = at + 1
        while behind < len(said) and said[behind].kind == record.kind:
            behind += 1
        return Record(
            0, 0, record.kind, record.keys, b"".join(each.raw or b"" for each in said[at:behind])
        ), behind - at
    if record.kind in _OURS:
        raise TapeError(f"a line of kind {record.kind} where none is due")
    return record, 1


def _plain(record: Record) -> Record:
    return record._replace(kind=record.kind[1:]) if record.kind.startswith("=") else record


def _record(line: bytes, at: int) -> Record:
    body = _NUMBERED + line[1:]
    record = decode_line(b'{"c":"%08x",%b' % (zlib.crc32(body), body))
    if isinstance(record, str):
        raise TapeError(f"its line {at + 1}: {record}")
    return record
