"""Decode bodies that came compressed or in UTF-16, or say why that is impossible

Known are gzip, deflate, UTF-16 and UTF-32. Bytes that are plain text are taken as such, even against their headers. A
body that was cut is decoded as far as it goes.
"""

import codecs
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_list
from wiretape.events.tape.record import Record

from ..sealed.edits import Change, Text, edited
from ..sealed.joined_bodies import carrying

__all__ = ["Unreadable", "headers_of", "opened", "plain_body", "unreadable"]

#: As many layers as a browser decodes (undici, curl: CVE-2022-32206).
_LAYERS_MAX: Final = 5
#: Decoded bytes of one body, as many as the proxy accepts of a plain one, and of all bodies of a file: a bomb grows a
#: thousandfold, and a file may hold a hundred.
_BODY_BYTES_MAX: Final = 128 * 1024 * 1024
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
#: Members of one gzip body: each event of an answer may be one. A million empty ones are 20 MB and take a second.
_MEMBERS_MAX: Final = 100_000
#: Bytes given to zlib at a time: at the end of each member it copies the rest.
_SLICE_BYTES: Final = 16 * 1024
#: Windows of zlib; some servers send deflate without its header (RFC 9110 8.4.1.2).
_GZIP, _ZLIB, _BARE = 31, 15, -15
_COMPRESSIONS: Final[Mapping[str, int]] = MappingProxyType({"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB})
_CHARSETS: Final = frozenset({"utf-16", "utf-16be", "utf-16le", "utf-32", "utf-32be", "utf-32le"})
#: The mark of UTF-32 begins with that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET: Final = re.compile(r"""(;\s*charset\s*=\s*)("?)([\w.:-]+)\2""", re.IGNORECASE)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: The answer that replaces an unreadable one.
_INSTEAD: Final = "[unreadable: {unreadable}, {bytes} bytes, sha256 {sha256}]"
_WHY: Final[Mapping[str, str]] = MappingProxyType(
    {"coding": "has an unknown coding", "damaged": "is not coded as it says", "size": "is too large once decoded"}
)

_Headers = Iterable[tuple[str, str]]


class _Plain(NamedTuple):
    """The decoded pieces of a body, as many as came, or why it cannot be decoded."""

    pieces: Sequence[bytes]
    #: The codings that were undone: `gzip`, or `gzip, utf-16`.
    undone: str = ""
    #: `coding`, `damaged` or `size`.
    unreadable: str = ""


class Unreadable(NamedTuple):
    """A body that may hold anything."""

    stream: int
    #: Number of the record with its headers.
    n: int
    #: `request` or `answer`.
    whose: str
    why: str

    def __str__(self) -> str:
        return f"the body of its {self.whose} {_WHY[self.why]}"


class _UnreadableError(Exception):
    """Carries the reason."""


# -- one body ---------------------------------------------------------------------------------------------------------


def plain_body(headers: _Headers, body: bytes) -> bytes:
    """Return a request's body decoded as its recording has it, or unchanged if that is impossible."""
    plain = _decoded([*headers], [body], _BODY_BYTES_MAX)
    return b"".join(plain.pieces) if plain.undone and not plain.unreadable else body


def headers_of(headers: _Headers, decoded: str) -> Iterator[tuple[str, str]]:
    """Yield the headers that are true of a body after these codings were undone."""
    charset = any(word in _CHARSETS for word in _words(decoded))
    for name, value in headers:
        if name == "content-type" and charset:
            yield name, _CHARSET.sub(r"\1\2utf-8\2", value)
        elif name != "content-encoding" or not decoded:
            yield name, value


def _decoded(headers: Sequence[tuple[str, str]], pieces: Sequence[bytes], bytes_max: int) -> _Plain:
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    codings = [word for name, value in headers if name.lower() == "content-encoding" for word in _words(value)]
    undone: list[str] = []
    # With a coding in the headers, stop at text; without one, look for the marks of a coding.
    while (codings and not _is_text(pieces)) or (not codings and _unstated(kind, pieces)):
        coding = codings.pop() if codings else _unstated(kind, pieces)
        if len(undone) == _LAYERS_MAX or coding not in (*_CHARSETS, *_COMPRESSIONS):
            return _Plain(pieces, "", "coding")
        try:
            pieces = _recoded(coding, pieces) if coding in _CHARSETS else _inflated(coding, pieces, bytes_max)
        except _UnreadableError as error:
            return _Plain(pieces, "", str(error))
        undone.append(coding)
    return _Plain(pieces, ", ".join(undone))


def _words(value: str) -> list[str]:
    return [word for each in value.split(",") if (word := each.strip().lower()) not in ("", "identity")]


def _is_text(pieces: Sequence[bytes]) -> bool:
    """Return whether a search sees all of the text; a character may be cut at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return not any(_CONTROL.search(piece) or (decoder.decode(piece) and False) for piece in pieces)
    except UnicodeDecodeError:
        return False


def _unstated(kind: str, pieces: Sequence[bytes]) -> str:
    """Return the coding that the content type or the first bytes show, where no header names one."""
    begins = _begin(pieces)
    declared, kind = _CHARSET.search(kind), kind.lower()
    is_json = "json" in kind
    if is_json and begins.startswith(b"\x1f\x8b\x08"):
        return "gzip"
    if is_json and begins[:1] == b"x" and _is_zlib(begins):
        return "deflate"
    if declared and (charset := _spelled(declared[3])) in _CHARSETS:
        return "" if _is_text(pieces) else charset
    marked = next((name for mark, name in _MARKS if begins.startswith(mark)), "")
    if marked and not kind:  # which may be anything
        return marked if _is_text(_recoded(marked, pieces)) else ""
    if marked and (is_json or kind.startswith("text/")):
        return marked
    if not is_json or b"\0" not in begins:
        return ""
    found = _spelled(json.detect_encoding(begins[:4]))
    text = begins[:4].decode(found, "replace")
    return found if text[:1] in '{["-0123456789tfn \t\r\n' and text.isascii() else ""


def _begin(pieces: Sequence[bytes]) -> bytes:
    return b"".join(islice(filter(None, (piece[:4] for piece in pieces)), 4))


def _is_zlib(first: bytes) -> bool:
    return len(first) > 1 and first[0] & 0x0F == 8 and int.from_bytes(first[:2], "big") % 31 == 0


def _spelled(charset: str) -> str:
    return charset.lower().replace("_", "-").replace("-le", "le").replace("-be", "be")


def _inflated(coding: str, pieces: Sequence[bytes], bytes_max: int) -> list[bytes]:
    window = _COMPRESSIONS[coding]
    first = b"".join(pieces)[:2]
    if window == _ZLIB and len(first) == 2 and not _is_zlib(first):
        window = _BARE
    inflate = zlib.decompressobj(window)
    plain: list[bytes] = []
    left, members = bytes_max, 1
    for piece in pieces:
        parts: list[bytes] = []
        slices = (piece[at : at + _SLICE_BYTES] for at in range(0, len(piece), _SLICE_BYTES))
        waiting = b""
        while waiting := waiting or next(slices, b""):
            if inflate.eof:  # gzip may have several members (RFC 1952 2.2)
                if window != _GZIP:
                    raise _UnreadableError("damaged")
                inflate = zlib.decompressobj(window)
                members += 1
            try:
                parts.append(inflate.decompress(waiting, left + 1))
            except zlib.error:
                raise _UnreadableError("damaged") from None
            left -= len(parts[-1])
            if left < 0 or members > _MEMBERS_MAX:
                raise _UnreadableError("size")
            waiting = inflate.unused_data if inflate.eof else inflate.unconsumed_tail
        plain.append(b"".join(parts))
    return plain


def _recoded(charset: str, pieces: Sequence[bytes]) -> list[bytes]:
    begins = _begin(pieces)
    if charset in ("utf-16", "utf-32") and not any(begins.startswith(mark) for mark, _ in _MARKS):
        charset += "be" if begins.startswith(b"\0") else "le"
    decoder = codecs.getincrementaldecoder(charset)("replace")
    last = len(pieces) - 1
    return [decoder.decode(piece, at == last).encode("utf-8", "replace") for at, piece in enumerate(pieces)]


# -- recordings -------------------------------------------------------------------------------------------------------


class _Body(NamedTuple):
    """A body of a stream: the record with its headers, the records that hold it, and how it decodes."""

    at: int
    of: Sequence[int]
    plain: _Plain

    @property
    def is_coded(self) -> bool:
        return bool(self.plain.undone or self.plain.unreadable)


def opened(streams: Sequence[Sequence[Record]], *, numbered: bool = True) -> list[list[Record]]:
    """Return the streams with decoded bodies; an unreadable one is replaced by its size and hash.

    Records without bytes left are dropped; the others get new numbers, unless not `numbered`.
    """
    done: list[list[Record]] = []
    for records, bodies in zip(streams, _bodies(streams), strict=True):
        coded = [body for body in bodies if body.is_coded]
        done.append(_opened(records, coded, numbered=numbered) if coded else list(records))
    return done


def unreadable(streams: Sequence[Sequence[Record]]) -> list[Unreadable]:
    """Return the bodies that cannot be decoded."""
    return [
        Unreadable(
            stream,
            records[body.at].n,
            "request" if records[body.at].kind == "request" else "answer",
            body.plain.unreadable,
        )
        for stream, (records, some) in enumerate(zip(streams, _bodies(streams), strict=True))
        for body in some
        if body.plain.unreadable
    ]


def _bodies(streams: Sequence[Sequence[Record]]) -> Iterator[list[_Body]]:
    left = _FILE_BYTES_MAX
    for records in streams:
        found: list[_Body] = []
        for at, of in _places(records):
            plain = _read(records, at, of, min(left, _BODY_BYTES_MAX))
            found.append(_Body(at, of, plain))
            left -= sum(map(len, plain.pieces)) if plain.undone else 0
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


def _read(records: Sequence[Record], at: int, of: Sequence[int], bytes_max: int) -> _Plain:
    pieces = [records[each].raw or b"" for each in of]
    if not of:
        return _Plain(pieces)
    keys = records[at].keys
    rows = (as_list(row) for row in as_list(keys.get("headers")))
    headers = [(str(row[0]), str(row[1])) for row in rows if len(row) == 2]
    if "decoded" in keys:  # the recorder undid it; of an unknown coding only text proves that
        codings = [word for name, value in headers if name.lower() == "content-encoding" for word in _words(value)]
        if not all(word in _COMPRESSIONS for word in codings) and not _is_text(pieces):
            return _Plain(pieces, "", "coding")
        headers = [*headers_of(headers, str(keys["decoded"]))]
    return _decoded(headers, pieces, bytes_max)


def _opened(records: Sequence[Record], some: Sequence[_Body], *, numbered: bool) -> list[Record]:
    new = list(records)
    changes: list[tuple[Text, Sequence[Change]]] = []
    gone: set[int] = set()
    for at, of, plain in some:
        before = new[at].keys.get("decoded")
        keys: dict[str, Any] = {"decoded": f"{before}, {plain.undone}" if isinstance(before, str) else plain.undone}
        pieces = plain.pieces
        if plain.unreadable:
            whole = b"".join(records[each].raw or b"" for each in of)
            keys = {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "unreadable": plain.unreadable}
            instead = "" if new[at].kind == "request" else _INSTEAD.format(**keys)
            pieces = [*[b""] * (len(of) - 1), instead.encode()]
        new[at] = new[at]._replace(keys={**new[at].keys, **keys})
        if at in of:  # a request that was not relayed while it came
            body, pieces = pieces[0], pieces[1:]
            new[at] = carrying(new[at], body) if body else new[at]._replace(raw=None, payload=None, value=ABSENT)
        if runs := [each for each in of if each != at]:
            raw = b"".join(records[each].raw or b"" for each in runs)
            changes.append((Text(records[runs[0]].kind, tuple(runs), raw), _changes(records, runs, pieces)))
            gone |= {each for each, piece in zip(runs, pieces, strict=True) if not piece}
    done = edited(new, changes)
    if numbered or not gone:
        return done
    left = (record.n for at, record in enumerate(records) if at not in gone)
    return [record._replace(n=n) for record, n in zip(done, left, strict=True)]


def _changes(records: Sequence[Record], of: Sequence[int], pieces: Sequence[bytes]) -> list[Change]:
    changes: list[Change] = []
    for at, piece in zip(of, pieces, strict=True):
        start = changes[-1].end if changes else 0
        changes.append(Change(start, start + len(records[at].raw or b""), piece))
    return changes
