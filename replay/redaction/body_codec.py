"""Bodies that came compressed or in UTF-16: what they say, or why nobody can tell; in recordings, and as they come

Known are gzip, deflate, UTF-16 and UTF-32. A body whose bytes are plain text says what it says, whatever its headers
claim. One that was cut says what came of it.
"""

import codecs
import hashlib
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, as_list
from wiretape.events.tape.record import Record

from ..sealed.edits import Change, Text, edited
from ..sealed.joined_bodies import carrying

__all__ = ["WHY", "Unreadable", "bodies", "closed", "headers_of", "opened", "plain_body", "unreadable"]

#: As many layers as a browser takes off (undici, curl: CVE-2022-32206).
_LAYERS_MAX: Final = 5
#: Of one body, decoded: what the proxy lets in of one that is not compressed.
_BODY_BYTES_MAX: Final = 128 * 1024 * 1024
#: Of all bodies of a file together: a bomb is a thousand times its size, and a file may have a hundred.
_FILE_BYTES_MAX: Final = 256 * 1024 * 1024
#: Of one body: each event of an answer may be one. A million of them, empty, are 20 MB and take a second.
_MEMBERS_MAX: Final = 100_000
#: What zlib is handed at a time: at the end of each member it copies all that is behind it.
_SLICE_BYTES: Final = 16 * 1024
#: zlib's windows: gzip alone, zlib's own, and none at all, as some have it (RFC 9110 8.4.1.2).
_GZIP, _ZLIB, _BARE = 31, 15, -15
_COMPRESSIONS: Final[Mapping[str, int]] = MappingProxyType({"gzip": _GZIP, "x-gzip": _GZIP, "deflate": _ZLIB})
_CHARSETS: Final = frozenset({"utf-16", "utf-16be", "utf-16le", "utf-32", "utf-32be", "utf-32le"})
_GZIP_MARK: Final = b"\x1f\x8b\x08"
#: The longer ones first: that of UTF-32 begins as that of UTF-16.
_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET: Final = re.compile(r"""(;\s*charset\s*=\s*)("?)([\w.:-]+)\2""", re.IGNORECASE)
_JSON_BEGINS: Final = frozenset('{["-0123456789tfn \t\r\n')
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
#: What a client is told whose recorded answer could not be read.
_INSTEAD: Final = "[unreadable: {unreadable}, {bytes} bytes, sha256 {sha256}]"

_Headers = Iterable[tuple[str, str]]


class _Plain(NamedTuple):
    """What the pieces of a body say: as many pieces, and what was undone; or why that cannot be told."""

    pieces: Sequence[bytes]
    #: As in `gzip`, or `gzip, utf-16`; empty where nothing had to be.
    undone: str = ""
    #: `coding`, `damaged` or `size`.
    unreadable: str = ""


class Unreadable(NamedTuple):
    """A body of which nobody can tell what it holds."""

    stream: int
    #: Number of the record that says how it is coded.
    n: int
    #: `request` or `answer`.
    whose: str
    why: str

    def __str__(self) -> str:
        return f"the body of its {self.whose} {WHY[self.why]}"


#: As a person reads it.
WHY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "coding": "has a coding that is not known here",
        "damaged": "is not coded as it says",
        "size": "is too large when it is decoded",
    }
)


class _UnreadableError(Exception):
    """Why."""


# -- one body ---------------------------------------------------------------------------------------------------------


def plain_body(headers: _Headers, body: bytes) -> bytes:
    """The body of a request as it comes, as its recording has it; one that cannot be read stays as it is."""
    plain = _plain([*headers], [body], _BODY_BYTES_MAX)
    return b"".join(plain.pieces) if plain.undone and not plain.unreadable else body


def headers_of(headers: _Headers, decoded: str) -> Iterator[tuple[str, str]]:
    """What is still true of them, now that so much was undone."""
    charset = any(word in _CHARSETS for word in _words(decoded))
    for name, value in headers:
        if name == "content-type" and charset:
            yield name, _CHARSET.sub(r"\1\2utf-8\2", value)
        elif name != "content-encoding" or not decoded:
            yield name, value


def _plain(headers: Sequence[tuple[str, str]], pieces: Sequence[bytes], bytes_max: int) -> _Plain:
    """Layer by layer, until it is text or nothing is left to undo."""
    kind = next((value for name, value in headers if name.lower() == "content-type"), "")
    codings = [word for name, value in headers if name.lower() == "content-encoding" for word in _words(value)]
    undone: list[str] = []
    while not _is_plain(kind, codings, pieces):
        if len(undone) == _LAYERS_MAX:
            return _Plain(pieces, "", "coding")
        coding = codings.pop() if codings else _unsaid(kind, _starts(pieces)) or _charset_of(kind, pieces)
        if coding in _CHARSETS:
            pieces = _recoded(coding, pieces)
        elif coding in _COMPRESSIONS:
            try:
                pieces = _inflated(coding, pieces, bytes_max)
            except _UnreadableError as error:
                return _Plain(pieces, "", str(error))
        else:
            return _Plain(pieces, "", "coding")
        undone.append(coding)
    return _Plain(pieces, ", ".join(undone))


def _is_plain(kind: str, codings: Sequence[str], pieces: Sequence[bytes]) -> bool:
    """Nothing is left to undo; what is text is not looked at where nothing says that it is coded."""
    if codings:
        return _is_text(pieces)
    return not _unsaid(kind, _starts(pieces)) and not _charset_of(kind, pieces)


def _unsaid(kind: str, begins: bytes) -> str:
    """Of JSON: how it is compressed, where nobody kept the header."""
    if "json" not in kind.lower():
        return ""
    if begins.startswith(_GZIP_MARK):
        return "gzip"
    return "deflate" if begins[:1] == b"x" and _is_zlib(begins[:2]) else ""


def _words(value: str) -> list[str]:
    words = (word.strip().lower() for word in value.split(","))
    return [word for word in words if word not in ("", "identity")]


def _starts(pieces: Sequence[bytes]) -> bytes:
    begins = b""
    for piece in pieces:
        begins += piece[:4]
        if len(begins) >= 4:
            break
    return begins


def _is_text(pieces: Sequence[bytes]) -> bool:
    """Whoever searches it finds what is in it. A character may be cut at the end."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        return not any(_CONTROL.search(piece) or (decoder.decode(piece) and False) for piece in pieces)
    except UnicodeDecodeError:
        return False


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


def _is_zlib(first: bytes) -> bool:
    return first[0] & 0x0F == 8 and int.from_bytes(first, "big") % 31 == 0


def _charset_of(kind: str, pieces: Sequence[bytes]) -> str:
    """What is declared, where the bytes are no text as they are; else what begins as such text does."""
    said, kind = _CHARSET.search(kind), kind.lower()
    declared = _spelled(said[3]) if said else ""
    if declared in _CHARSETS:
        return "" if _is_text(pieces) else declared
    begins = _starts(pieces)
    marked = next((name for mark, name in _MARKS if begins.startswith(mark)), "")
    if marked and not kind:  # which may be anything
        return marked if _is_text(_recoded(marked, pieces)) else ""
    if marked and ("json" in kind or kind.startswith("text/")):
        return marked
    if "json" not in kind or b"\0" not in begins:
        return ""
    found = _spelled(json.detect_encoding(begins))
    text = begins.decode(found, "replace")  # of which the first two characters are ASCII
    return found if text[:1] in _JSON_BEGINS and text.isascii() else ""


def _spelled(charset: str) -> str:
    return charset.lower().replace("_", "-").replace("-le", "le").replace("-be", "be")


def _recoded(charset: str, pieces: Sequence[bytes]) -> list[bytes]:
    begins = _starts(pieces)
    if charset in ("utf-16", "utf-32") and not any(begins.startswith(mark) for mark, _ in _MARKS):
        charset += "be" if begins.startswith(b"\0") else "le"
    decoder = codecs.getincrementaldecoder(charset)("replace")
    last = len(pieces) - 1
    return [decoder.decode(piece, at == last).encode("utf-8", "replace") for at, piece in enumerate(pieces)]


# -- recordings -------------------------------------------------------------------------------------------------------


class _Body(NamedTuple):
    """Of a request or an answer: the record that speaks of it, and those that hold it."""

    at: int
    of: Sequence[int]


class _Closed(NamedTuple):
    """One that is not plain."""

    #: Which of the bodies of its stream.
    number: int
    body: _Body
    plain: _Plain


def opened(
    streams: Sequence[Sequence[Record]],
    answers: Callable[[int, int], bool] | None = None,
    *,
    numbered: bool = True,
) -> list[list[Record]]:
    """The streams with plain bodies; what cannot be read is replaced by its size and hash.

    Of the answers that could be read those alone that `answers` wants: by stream, and the number of the body in it.
    Records of which nothing is left are gone; those behind them have new numbers, unless they are to be found again.
    """
    return [
        _opened(
            records,
            [
                one
                for one in some
                if records[one.body.at].kind == "request"
                or one.plain.unreadable
                or answers is None
                or answers(stream, one.number)
            ],
            numbered=numbered,
        )
        for stream, (records, some) in enumerate(zip(streams, _closed(streams), strict=True))
    ]


def closed(streams: Sequence[Sequence[Record]]) -> list[tuple[int, int, bytes]]:
    """Answers that are coded and can be read: the stream, the number of the body in it, and its bytes."""
    return [
        (stream, one.number, b"".join(records[at].raw or b"" for at in one.body.of))
        for stream, (records, some) in enumerate(zip(streams, _closed(streams), strict=True))
        for one in some
        if records[one.body.at].kind == "head" and not one.plain.unreadable
    ]


def unreadable(streams: Sequence[Sequence[Record]]) -> list[Unreadable]:
    """Those of which nobody can tell what they hold."""
    return [
        Unreadable(
            stream,
            records[one.body.at].n,
            "request" if records[one.body.at].kind == "request" else "answer",
            one.plain.unreadable,
        )
        for stream, (records, some) in enumerate(zip(streams, _closed(streams), strict=True))
        for one in some
        if one.plain.unreadable
    ]


def bodies(records: Sequence[Record]) -> list[bytes]:
    """Of each request and each answer, in order; an edit changes what they say, and not how many there are."""
    return [b"".join(records[at].raw or b"" for at in body.of) for body in _bodies(records)]


def _closed(streams: Sequence[Sequence[Record]]) -> list[list[_Closed]]:
    left = _FILE_BYTES_MAX
    found: list[list[_Closed]] = []
    for records in streams:
        found.append([])
        for number, body in enumerate(_bodies(records)):
            plain = _read(records, body, min(left, _BODY_BYTES_MAX))
            if plain.undone or plain.unreadable:
                found[-1].append(_Closed(number, body, plain))
                left -= sum(map(len, plain.pieces)) if plain.undone else 0
    return found


def _read(records: Sequence[Record], body: _Body, bytes_max: int) -> _Plain:
    keys = records[body.at].keys
    pieces = [records[at].raw or b"" for at in body.of]
    if not body.of:
        return _Plain(pieces)
    rows = (as_list(row) for row in as_list(keys.get("headers")))
    headers = [(str(row[0]), str(row[1])) for row in rows if len(row) == 2]
    if "decoded" not in keys:
        return _plain(headers, pieces, bytes_max)
    # By whoever recorded it, and where it is a coding that we do not know only text shows that it was.
    codings = [word for name, value in headers if name.lower() == "content-encoding" for word in _words(value)]
    if not all(word in _COMPRESSIONS for word in codings) and not _is_text(pieces):
        return _Plain(pieces, "", "coding")
    return _plain([*headers_of(headers, str(keys["decoded"]))], pieces, bytes_max)


def _bodies(records: Sequence[Record]) -> list[_Body]:
    """What is uploaded belongs to the first request, wherever it stands."""
    found: list[_Body] = []
    of: dict[str, list[int]] = {}
    uploads = [at for at, record in enumerate(records) if record.kind == "upload" and record.raw]
    for at, record in enumerate(records):
        if record.kind in ("request", "head"):
            mine = [at] if record.raw else []
            if record.kind == "request":
                mine, uploads = [*mine, *uploads], []
            if record.kind not in of:
                found.append(_Body(at, mine))
            of.setdefault(record.kind, mine)
        elif record.kind == "attempt":
            of.pop("head", None)
        elif record.kind == "body" and record.raw and "head" in of:
            of["head"].append(at)
    return found


def _opened(records: Sequence[Record], some: Sequence[_Closed], *, numbered: bool) -> list[Record]:
    new = list(records)
    changes: list[tuple[Text, Sequence[Change]]] = []
    gone: set[int] = set()
    for _, (at, of), plain in some:
        whole = b"".join(records[each].raw or b"" for each in of)
        before = new[at].keys.get("decoded")
        said: dict[str, Any] = {"decoded": f"{before}, {plain.undone}" if isinstance(before, str) else plain.undone}
        pieces = plain.pieces
        if plain.unreadable:
            said = {"bytes": len(whole), "sha256": hashlib.sha256(whole).hexdigest(), "unreadable": plain.unreadable}
            instead = "" if new[at].kind == "request" else _INSTEAD.format(**said)
            pieces = [*[b""] * (len(of) - 1), instead.encode()]
        new[at] = record = new[at]._replace(keys={**new[at].keys, **said})
        runs = [each for each in of if each != at]
        if runs != of:  # of a request that was not relayed while it came
            plainly = pieces[0]
            new[at] = carrying(record, plainly) if plainly else record._replace(raw=None, payload=None, value=ABSENT)
        if runs:
            pieces = pieces[len(of) - len(runs) :]
            raw = b"".join(records[each].raw or b"" for each in runs)
            changes.append((Text(records[runs[0]].kind, tuple(runs), raw), list(_changes(records, runs, pieces))))
            gone |= {each for each, piece in zip(runs, pieces, strict=True) if not piece}
    done = edited(new, changes)
    if numbered or not gone:
        return done
    left = (record.n for at, record in enumerate(records) if at not in gone)
    return [record._replace(n=n) for record, n in zip(done, left, strict=True)]


def _changes(records: Sequence[Record], of: Sequence[int], pieces: Sequence[bytes]) -> Iterator[Change]:
    start = 0
    for at, piece in zip(of, pieces, strict=True):
        end = start + len(records[at].raw or b"")
        yield Change(start, end, piece)
        start = end
