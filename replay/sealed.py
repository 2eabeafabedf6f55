"""The sealed form of a tape: the same records, written so that a person can review them and git can compare them

    {"wiretape":"sealed","format":1,...}            the header: one a file, which holds one conversation
    {"k":"open",...}                                one stream after the other, each in this order:
    {"k":"clock","lines":[...],"reads":[...],...}   all that changes from one recording to the next
    {"k":"request",...,"data":{...,"messages":[]}}  the body, its long lists taken out ...
    {"k":"message","data":{...}}                    ... and written one line an element
    {"k":"frame","data":{...}}                      what came, verbatim, as on a live tape
    {"k":"end",...}
    {"k":"fold",...}                                what it comes to

A line of a record is the live tape's line without `c`, `n`, `t` and `cuts`: those, and the records that stand where
they stand by the clock alone (`commit`, `keepalive`, `gone`), are in `clock`. Nothing is lost: `decode` gives back the
very records that `encode` was given.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from wiretape.events.errors import TapeError
from wiretape.events.json_text import as_object, dumps, is_object, parse
from wiretape.events.record import Record
from wiretape.events.record import decode as decode_line
from wiretape.events.record import encode as encode_line
from wiretape.events.upcast import upcast

from .clock import Clock, clocked, timed
from .expected import expected
from .split_body import joined, split

__all__ = ["FORMAT", "MARK", "Sealed", "decode", "encode"]

#: The form that this version writes. What the records themselves say has the format of `open`.
FORMAT: Final = 1
#: How a sealed tape begins.
MARK: Final = b'{"wiretape":"sealed",'

_NUMBERED: Final = b'"n":0,"t":0,'
_BODY_AT: Final = 16


class Sealed(NamedTuple):
    """One sealed tape: what its header says, and the records of each of its streams."""

    header: Mapping[str, Any]
    streams: list[list[Record]]


def encode(header: Mapping[str, Any], streams: Iterable[Sequence[Record]]) -> bytes:
    """The file. Reads its own lines back, and refuses records that it could not give back as they are."""
    lines = [dumps({"wiretape": "sealed", "format": FORMAT, **header}), b""]
    for number, records in enumerate(streams, 1):
        mine = list(_lines(records))
        if _records(mine) != list(records):
            raise TapeError(f"stream {number} cannot be sealed: its records contradict each other (is it damaged?)")
        lines[-1:] = [*mine, dumps({"k": "fold", **expected(records)}), b""]
    return b"\n".join(lines)


def decode(data: bytes, *, verify: bool = True) -> Sealed:
    """The records again; with `verify`, every `fold` line is compared with what the records come to."""
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise TapeError(f"line {len(lines) + 1}: its end is missing")
    header = _header(lines[0])
    streams: list[list[Record]] = []
    for first, mine, fold in _streams(lines):
        try:
            records = _records(mine)
        except TapeError as error:
            raise TapeError(f"stream {len(streams) + 1}, from line {first}: {error}") from error
        if verify:
            _compare(fold, records, first + len(mine))
        streams.append(records)
    return Sealed(header, streams)


def _header(line: bytes) -> dict[str, Any]:
    header: dict[str, Any] = as_object(parse(line))
    if not line.startswith(MARK) or type(header.get("format")) is not int:
        raise TapeError("line 1: not the header of a sealed tape")
    if header["format"] > FORMAT:
        raise TapeError(f"sealed in format {header['format']}; {FORMAT} is the newest that this version reads")
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
    if said == found:
        return
    name = next(key for key in {**found, **said} if said.get(key) != found.get(key))
    raise TapeError(
        f"line {number}: the fold line says {name} {dumps(said.get(name)).decode()[:200]}, the tape comes to "
        f"{dumps(found.get(name)).decode()[:200]} (edited? `wiretape seal` writes it anew)"
    )


# -- records to lines -------------------------------------------------------------------------------------------------


def _lines(records: Sequence[Record]) -> Iterator[bytes]:
    clock, kept = clocked(records)
    written_clock = False
    for record in kept:
        if record.kind == "request":
            line, elements = split(record)
            yield _line(line)
            yield from elements
        else:
            yield _line(record)
        if not written_clock:
            yield dumps({"k": "clock", **clock.to_keys()})
            written_clock = True


def _line(record: Record) -> bytes:
    """The live tape's line, without what is in `clock`."""
    line = encode_line(record._replace(n=0, t=0))
    return b"{%b" % line[_BODY_AT + len(_NUMBERED) : -1]


# -- lines to records -------------------------------------------------------------------------------------------------


def _records(lines: Sequence[bytes]) -> list[Record]:
    kept: list[Record] = []
    clock = None
    at = 0
    while at < len(lines):
        if at == 1:
            clock = _clock(lines[at])
            at += 1
            continue
        record = _record(lines[at], at)
        at += 1
        if record.kind == "request" and "split" in record.keys:
            record, count = joined(record, lines[at:])
            at += count
        kept.append(record)
    if clock is None:
        raise TapeError("a stream without its clock line")
    records = timed(kept, clock)
    version = records[0].keys.get("format")
    return [upcast(record, version) for record in records] if type(version) is int else records


def _clock(line: bytes) -> Clock:
    keys = parse(line)
    if not is_object(keys) or keys.get("k") != "clock":
        raise TapeError("no clock line behind the first one")
    return Clock.of(keys)


def _record(line: bytes, at: int) -> Record:
    body = _NUMBERED + line[1:]
    record = decode_line(b'{"c":"%08x",%b' % (zlib.crc32(body), body))
    if isinstance(record, str):
        raise TapeError(f"its line {at + 1}: {record}")
    return record
