"""Decode bodies that came compressed, or report why that is impossible

Bytes that are plain text are taken as such, even against their headers. A body that was cut is decoded as far as it
goes. A body in any other coding, such as brotli or UTF-16, may hold anything and is not kept.
"""

import codecs
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice, pairwise
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_list
from wiretape.events.tape.record import Record
from wiretape.proxy.upstream.decompression import CODINGS, Inflater
from wiretape.proxy.upstream.errors import LimitError, WireError

from ..sealed.clock import carrying
from ..sealed.texts import Change, Text, edited

__all__ = ["Unreadable", "headers_of", "opened", "plain_body", "unreadable"]

#: Layers that a browser decodes (undici, curl: CVE-2022-32206).
_LAYERS_MAX: Final = 5
#: Decoded bytes of one body (the proxy's own limit for a plain one) and of all bodies of a file: a bomb expands a
#: thousandfold, and a file may hold a hundred.
_BODY_BYTES_MAX: Final = 128 * 1024 * 1024
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
#: Text in UTF-16 or UTF-32, which the search cannot read, by its header or its first bytes.
_WIDE_CHARSET: Final = re.compile(r"charset\s*=\s*\"?utf[-_]?(?:16|32)", re.IGNORECASE)
_WIDE_MARKS: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: The answer that replaces an unreadable one.
_INSTEAD: Final = "[unreadable: {unreadable}, {bytes} bytes, sha256 {sha256}]"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {"coding": "has an unknown coding", "damaged": "is not coded as it says", "size": "is too large once decoded"}
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


def headers_of(headers: _Headers, decoded: str) -> Iterator[tuple[str, str]]:
    """Yield the headers that are true of a body after these codings were undone."""
    return ((name, value) for name, value in headers if name != "content-encoding" or not decoded)


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
    rows = (as_list(row) for row in as_list(keys.get("headers")))
    headers = [(str(row[0]), str(row[1])) for row in rows if len(row) == 2]
    if of and "decoded" in keys:  # the recorder decoded it; for an unknown coding, only readable text proves that
        if not CODINGS.issuperset(_codings(headers)) and not _is_text(body.pieces):
            return body._replace(unreadable="coding")
        headers = [*headers_of(headers, str(keys["decoded"]))]
    return _decoded(body, headers, bytes_max) if of else body


def _decoded(body: _Body, headers: Sequence[tuple[str, str]], bytes_max: int) -> _Body:
    kind = next((value.lower() for name, value in headers if name.lower() == "content-type"), "")
    codings = _codings(headers)
    pieces, undone = body.pieces, list[str]()
    # With a coding in the headers, stop at text; without one, look for the first bytes of a coding.
    while (codings and not _is_text(pieces)) or (not codings and _unstated(kind, pieces)):
        coding = codings.pop() if codings else _unstated(kind, pieces)
        if len(undone) == _LAYERS_MAX or coding not in CODINGS:
            return body._replace(pieces=pieces, unreadable="coding")
        try:
            inflater = Inflater(coding, bytes_max)
            pieces = [b"".join(inflater.feed(piece)) for piece in pieces]
        except (LimitError, WireError) as error:
            why = "size" if isinstance(error, LimitError) else "damaged"
            return body._replace(pieces=pieces, unreadable=why)
        undone.append(coding)
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


def _unstated(kind: str, pieces: Sequence[bytes]) -> str:
    """Return the coding that the content type or the first bytes show, where no header names one."""
    begins = b"".join(islice((piece[:4] for piece in pieces if piece), 4))
    if "json" in kind and begins.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if "json" in kind and begins[:1] == b"x" and int.from_bytes(begins[:2], "big") % 31 == 0:
        return "deflate"
    has_zeros = b"\0" in begins and ("json" in kind or begins.startswith(_WIDE_MARKS))
    is_wide = has_zeros or _WIDE_CHARSET.search(kind) is not None
    return "utf-16" if is_wide and not _is_text(pieces) else ""


def _opened(records: Sequence[Record], some: Sequence[_Body], *, numbered: bool) -> list[Record]:
    new = list(records)
    changes: list[tuple[Text, Sequence[Change]]] = []
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
            new_pieces = [Change(*span, piece) for span, piece in zip(pairwise(ends), pieces, strict=True)]
            changes.append((Text(records[runs[0]].kind, tuple(runs), whole), new_pieces))
            gone |= {each for each, piece in zip(runs, pieces, strict=True) if not piece}
    done = edited(new, changes)
    if numbered or not gone:
        return done
    left = (record.n for at, record in enumerate(records) if at not in gone)
    return [record._replace(n=n) for record, n in zip(done, left, strict=True)]
