"""What the values in PostgreSQL contain: packs of running streams, blocks of ended ones, and rows as JSON."""

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, Final, NamedTuple, TypeVar

import zstandard

from wiretape.events.core.json_text import dumps, parse

from ..catalogue_row import AnswerRow, CallRow, StreamRow

__all__ = [
    "BLOCK_BYTES",
    "NUMBERED",
    "Block",
    "blocks",
    "pack",
    "part",
    "row_from",
    "row_text",
    "same",
    "unblock",
    "unpack",
    "word",
]

#: Lines of one block before compression: what a reader decodes at once.
BLOCK_BYTES: Final = 1024 * 1024
#: 0.13 us a record and 16 bytes; level 3 takes half as long again, and no less room.
_LEVEL: Final = 1
#: The beginning of a line with the number of its record.
NUMBERED: Final = re.compile(rb'\{"c":"[0-9a-f]{8}","n":([0-9]{1,9}),')
_NAMES: Final = {kind: [field.name for field in fields(kind)] for kind in (StreamRow, CallRow, AnswerRow)}
_WORD_CHARS_MAX: Final = 500
_Row = TypeVar("_Row", StreamRow, CallRow, AnswerRow)


class Block(NamedTuple):
    """A part of an ended tape: its records from `n` up to and without `upto`, compressed."""

    n: int
    upto: int
    body: bytes


def part(stream: bytes, lines: bytes) -> tuple[bytes, bytes]:
    """Return a part of a pack in two pieces: whole lines of one stream."""
    return b"%b %d\n" % (stream, len(lines)), lines


def pack(plain: bytes) -> bytes:
    """Return the body of a pack of these parts."""
    return zstandard.compress(plain, _LEVEL)


def unpack(body: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield each stream of a pack with its lines."""
    plain, at = zstandard.decompress(body), 0
    while at < len(plain):
        start = plain.index(b"\n", at) + 1
        stream, size = plain[at:start].split()
        at = start + int(size)
        yield stream.decode(), plain[start:at]


def blocks(read: Callable[[int, int], bytes]) -> Iterator[Block]:
    """Yield the blocks of a whole tape; `read` returns at most so many bytes, from an offset on.

    A tape that is longer has the same blocks, except the last one.
    """
    at, n, size = 0, 0, BLOCK_BYTES
    while data := read(size, at):
        end = data.rfind(b"\n") + 1
        if not end and len(data) < size:  # a torn line, which recovery cuts off
            return
        if not end:
            size *= 2
            continue
        lines, size = data[:end], BLOCK_BYTES
        numbered = NUMBERED.match(lines, lines.rfind(b"\n", 0, end - 1) + 1)
        # More than its lines if batches were refused; a damaged line has no number.
        upto = max(n + lines.count(b"\n"), int(numbered[1]) + 1 if numbered else 0)
        yield Block(n, upto, zstandard.compress(lines, _LEVEL))
        at, n = at + end, upto


def unblock(body: bytes) -> bytes:
    """Return the lines of a block."""
    return zstandard.decompress(body)


def row_text(row: StreamRow | CallRow | AnswerRow) -> str:
    """Return a row as JSON."""
    return dumps(row).decode()


def row_from(kind: type[_Row], text: str) -> _Row:
    """Return the row that `row_text` wrote, also if that release had other columns."""
    found: dict[str, Any] = parse(text.encode())
    known = {name: found[name] for name in _NAMES[kind] if name in found}
    if kind is StreamRow:
        known |= {"flags": tuple(known["flags"]), "tools": tuple((name, state) for name, state in known["tools"])}
        known["spark"] = known["spark"] and tuple(known["spark"])
    return kind(**known)


def word(text: str) -> str:
    """Return the text as a column stores it: PostgreSQL has no NUL, and an entry of an index has 2,700 bytes."""
    return text[:_WORD_CHARS_MAX].replace("\0", "\ufffd").encode("utf-8", "replace").decode()


def same(name: str, arguments: str) -> str:
    """Return a hash that calls and results with the same name and arguments have in common."""
    return hashlib.sha256(f"{name}\0{arguments}".encode("utf-8", "replace")).hexdigest()[:16]
