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
import hashlib
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, repeat
from typing import Any, Final, NamedTuple

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_list, as_object, dumps, is_list, is_object, members, parse
from wiretape.events.core.limits import TIMES_VALUES_MAX
from wiretape.events.dialects import PLACES, spoken
from wiretape.events.emit import summarise
from wiretape.events.tape.record import NO_KEYS, RECEIVED, Record
from wiretape.events.tape.record import decode as decode_line
from wiretape.events.tape.record import encode as encode_line

from .clock import ANSWER, UPLOADED, Clock, clocked, timed

__all__ = [
    "BLOB",
    "FORMAT",
    "MARK",
    "Sealed",
    "asked_keys",
    "decode",
    "differs",
    "encode",
    "expected",
    "fold_lines",
    "made_lines",
    "spoilt",
]

#: The format that this version writes. The records have the format that `open` states.
FORMAT: Final = 1
#: Grows when the same stream would get another fold line. Lines of version 1 do not have the member.
_SUMMARY_VERSION: Final = 2
#: How a sealed tape begins.
MARK: Final = b'{"wiretape":"sealed",'
#: How the line of a blob begins; no other line does.
BLOB: Final = b'{"blob":'
#: Lists of a request, and the kind of the lines of their elements.
_LISTS: Final = {"tools": "tool"} | {
    name: kind for places in PLACES.values() for name, kind in places.words.conversation.items()
}

_CONFLICT: Final = b"<<<<<<< "
_FOLD: Final = b'{"k":"fold"'
#: The kind of the lines of a request body that is not JSON on one line.
_TEXT: Final = "text"
#: Kinds of lines that are not records.
_OURS: Final = frozenset({"clock", "fold", ANSWER, UPLOADED, _TEXT, *_LISTS.values()})
_NUMBERED: Final = b'"n":0,"t":0,'
_BODY_AT: Final = 16
#: Bytes of a line of text that a review still shows.
_PIECE_BYTES: Final = 16 * 1024
#: Bytes of a line of JSON: enough for most responses that are not streamed, and for a page of embeddings.
_DATA_BYTES: Final = 256 * 1024
#: Between the elements of a list.
_SEPARATORS: Final = (b",", b", ")
#: Characters of a text that the fold line shows; a hash covers the rest.
_SHOWN_CHARS: Final = 200

#: Shortens a text that may be shown.
_Hide = Callable[[str], str]


class Sealed(NamedTuple):
    """A sealed tape: its header, the records of each stream, and the line of each record, from 1."""

    header: Mapping[str, Any]
    streams: list[list[Record]]
    lines: list[list[int]]


def encode(header: Mapping[str, Any], streams: Iterable[Sequence[Record]], *, hide: _Hide = str) -> bytes:
    """Return the file. Raise `TapeError` for records that would not be read back as they are.

    `hide` shortens the texts that the fold lines show.
    """
    form = {"wiretape": "sealed", "format": FORMAT}  # a header that was read may be of an older format
    lines = [dumps({**form, **header, **form}), b""]
    for number, records in enumerate(streams, 1):
        mine = list(_lines(records))
        if not mine:
            raise TapeError(f"stream {number} cannot be sealed: it has no records")
        try:
            same = _comparable(_records(mine)[0]) == _comparable(records)
        except RecursionError:
            raise TapeError(f"stream {number} cannot be sealed: the keys of a record are nested too deep") from None
        if not same:
            raise TapeError(f"stream {number} cannot be sealed: its records contradict each other (is it damaged?)")
        lines[-1:] = [*mine, dumps({"k": "fold", **expected(records, hide=hide)}), b""]
    return b"\n".join(lines)


def _comparable(records: Sequence[Record]) -> list[Record]:
    """Drop the parsed payloads, which are compared by their bytes: they may nest deeper than Python compares."""
    return [record._replace(value=ABSENT, shape=None, texts=()) for record in records]


def decode(data: bytes, *, verify: bool = True) -> Sealed:
    """Return the original records; with `verify`, compare every `fold` line with its records."""
    if reason := spoilt(data):
        raise TapeError(reason)
    lines = data.split(b"\n")
    if lines.pop() or not lines:
        raise TapeError(f"line {len(lines) + 1}: its end is missing")
    sealed = Sealed(_header(lines[0]), [], [])
    if number := next((at for at, line in enumerate(lines, 1) if line.startswith(BLOB)), 0):
        raise TapeError(f"line {number}: its content is in a blob, and only the bytes of the tape were given")
    start = 1
    for at in (at for at, line in enumerate(lines) if at and line.startswith(_FOLD)):
        try:
            records, places = _records(lines[start:at])
        except TapeError as error:
            raise TapeError(f"stream {len(sealed.streams) + 1}, from line {start + 1}: {error}") from error
        if verify and (name := differs(lines[at], records)) is not None:
            raise TapeError(
                f"line {at + 1}: the fold line disagrees with the tape in {name!r} "
                "(was it edited? `wiretape seal` writes it again)"
            )
        sealed.streams.append(records)
        sealed.lines.append([start + 1 + place for place in places])
        start = at + 1
    if start != len(lines):
        raise TapeError(f"line {start + 1}: a stream without its fold line")
    return sealed


def spoilt(data: bytes) -> str:
    """Return what git or an editor did to the file, if anything."""
    if data.startswith(codecs.BOM_UTF8):
        return "line 1: the file begins with a byte order mark: save it without one"
    at = 0 if data.startswith(_CONFLICT) else data.find(b"\n" + _CONFLICT) + 1
    if at or data.startswith(_CONFLICT):
        number = data.count(b"\n", 0, at) + 1
        return f"line {number}: an unresolved merge conflict: take one side, or record it again"
    return ""


def made_lines(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield header, clock and fold lines with their numbers: all lines that are not records."""
    for number, line in enumerate(data.split(b"\n"), 1):
        if number == 1 or line.startswith((b'{"k":"clock"', _FOLD)):
            yield number, line


def fold_lines(data: bytes) -> list[tuple[int, bytes]]:
    """Return the fold line of each stream with its number."""
    return [(number, line) for number, line in made_lines(data) if line.startswith(_FOLD)]


def _header(line: bytes) -> dict[str, Any]:
    header: dict[str, Any] = as_object(parse(line))
    version = header.get("format")
    if not line.startswith(MARK) or type(version) is not int or version < 1:
        raise TapeError("line 1: not the header of a sealed tape")
    if version > FORMAT:
        raise TapeError(f"sealed in format {version}; {FORMAT} is the newest that this version reads")
    return header


# -- the fold line ----------------------------------------------------------------------------------------------------


def expected(records: Sequence[Record], *, like: Mapping[str, Any] = NO_KEYS, hide: _Hide = str) -> dict[str, Any]:
    """Return texts, calls, usage and warnings of a stream, or the size and hash of an exchange without a dialect.

    A text is shown as far as the fold line `like` shows it, if that one agrees with it, else as far as `hide` allows.
    """
    version = {"version": _SUMMARY_VERSION} if not like or "version" in like else {}
    if not records or not spoken(records[0].keys.get("dialect")):
        return version | _exchange(records)
    summary = summarise(records)
    ended = summary.wire.ended
    if ended and summary.opening.get("emitter") in (1, 2) and summary.wire.choices and not summary.facts.get("stream"):
        # Those emitters gave every whole answer the flag of a stream that was made from one.
        ended = summary.wire.ended = replace(ended, flags=("synthesised", *ended.flags))
    answers = [
        {
            "choice": answer.choice,
            "finish": answer.finish or None,
            **_shown("text", answer.text, row, hide),
            "reasoning_chars": len(answer.reasoning),
            **_shown("refusal", answer.refusal, row, hide),
        }
        for answer, row in zip(summary.answers, _rows(like, "answers"), strict=False)
    ]
    calls = [
        {
            "choice": call.choice,
            "id": call.id,
            "name": call.name,
            "state": call.state.value,
            **({"reason": call.reason} if call.reason else {}),
            **({"custom": True} if call.custom else {}),
            **_shown("arguments", call.arguments, row, hide),
        }
        for call, row in zip(summary.wire.all_calls(), _rows(like, "calls"), strict=False)
    ]
    return {
        **version,
        "ending": None if ended is None else ended.ending,
        "flags": [] if ended is None else list(ended.flags),
        "answers": answers,
        "calls": calls,
        "usage": summary.wire.usage,
        "warnings": [{"code": code, "tools": [name for _, name in found]} for code, found in summary.warnings],
    }


def _rows(like: Mapping[str, Any], name: str) -> Iterator[Mapping[str, Any]]:
    return chain(map(as_object, as_list(like.get(name))), repeat(NO_KEYS))


def _shown(name: str, text: str, like: Mapping[str, Any], hide: _Hide) -> dict[str, Any]:
    if not text:
        return {}
    shown = like.get(name)
    if not isinstance(shown, str) or not text.startswith(shown) or len(shown) > _SHOWN_CHARS:
        shown = hide(text[:_SHOWN_CHARS])
    rest = {f"{name}_sha256": hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()} if shown != text else {}
    return {name: shown, **rest, f"{name}_chars": len(text)}


def _exchange(records: Sequence[Record]) -> dict[str, Any]:
    end = next((record.keys for record in reversed(records) if record.kind == "end"), NO_KEYS)
    begun = max((at for at, record in enumerate(records) if record.kind == "attempt"), default=0)
    body = b"".join(record.raw or b"" for record in records[begun:] if record.kind in RECEIVED)
    status = next((record.keys.get("status") for record in records[begun:] if record.kind == "head"), None)
    return {
        "ending": end.get("ending"),
        "flags": end.get("flags", []),
        "status": status if type(status) is int else None,
        "bytes": len(body),
        "sha256": hashlib.sha256(body).hexdigest(),
    }


def differs(fold: bytes, records: Sequence[Record]) -> str | None:
    """Return the first member in which a fold line disagrees with its records, if any."""
    written: dict[str, Any] = as_object(parse(fold))
    found = {"k": "fold", **expected(records, like=written)}
    names = (name for name in {**found, **written} if not _equal(written.get(name, ABSENT), found.get(name, ABSENT)))
    return next(names, None)


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except RecursionError:  # an upstream's usage nests as deep as it likes
        return dumps(a) == dumps(b)


# -- records to lines -------------------------------------------------------------------------------------------------


def _lines(records: Sequence[Record]) -> Iterator[bytes]:
    kinds = (f"={each.kind}" if each.kind in _OURS or each.kind.startswith("=") else each.kind for each in records)
    clock, kept = clocked([record._replace(kind=kind) for record, kind in zip(records, kinds, strict=True)])
    written = (line for record in kept for line in _written(record))
    for number, each in enumerate(written):
        line = encode_line(each._replace(n=0, t=0))
        yield b"{%b" % line[_BODY_AT + len(_NUMBERED) : -1]
        if not number:
            yield dumps({"k": "clock", **clock.to_keys()})


def _written(record: Record) -> Iterator[Record]:
    """Yield the lines of one record."""
    if record.kind in (ANSWER, UPLOADED):
        parts = _pieces(record.raw or b"")
        for part in parts:
            # A part of a text stays text, even if it happens to be JSON.
            payload = part if len(parts) == 1 and b"\n" not in part and parse(part) is not ABSENT else None
            yield Record(0, 0, record.kind, record.keys, part, payload)
    elif record.kind != "request":
        yield record
    elif "split" in record.keys:  # a key of another recorder
        yield record._replace(keys={**record.keys, "split": {"own": record.keys["split"]}})
    elif record.payload is None and len(parts := _pieces(record.raw or b"")) > 1:
        yield record._replace(raw=None, keys={**record.keys, "split": len(parts)})
        yield from (Record(0, 0, _TEXT, raw=part) for part in parts)
    elif record.payload is not None and is_object(record.value):
        yield from _split(record, record.payload)
    else:
        yield record


def _pieces(raw: bytes) -> list[bytes]:
    """Split a body into lines of the file: one for JSON on one line, else one for each line of the text."""
    if len(raw) <= _DATA_BYTES and b"\n" not in raw and parse(raw) is not ABSENT:
        return [raw]
    found: list[bytes] = []
    at = 0
    while at < len(raw):
        end = raw.find(b"\n", at, at + _PIECE_BYTES) + 1 or min(len(raw), at + _PIECE_BYTES)
        while end < len(raw) and end > at + 4 and raw[end] & 0xC0 == 0x80:  # not inside a character
            end -= 1
        found.append(raw[at:end])
        at = end
    return found


def _split(record: Record, body: bytes) -> Iterator[Record]:
    """Yield the request with empty lists, and a line for each of their elements: editing a message changes one line.

    `split` states each list, how many elements it has, and what separates them. JSON that is laid out in another way
    stays in one piece.
    """
    present = members(body, body.index(b"{"))
    names = [member.key for member in present]
    rows: list[list[Any]] = []
    lines: list[Record] = []
    kept: list[bytes] = []
    position = 0
    for member in present:
        kind = _LISTS.get(str(member.key))
        if kind is None or body[member.value : member.value + 1] != b"[" or names.count(member.key) > 1:
            continue
        texts = [body[element.value : element.end] for element in members(body, member.value)]
        inside = body[member.value + 1 : member.end - 1]
        separator = next((each for each in _SEPARATORS if each.join(texts) == inside), None)
        if separator is not None and texts:
            rows.append([member.key, len(texts), separator.decode()])
            lines += [Record(0, 0, kind, raw=text, payload=text) for text in texts]
            kept.append(body[position : member.value + 1])
            position = member.end - 1
    if rows:
        record = _with_body(record, b"".join([*kept, body[position:]]), {**record.keys, "split": rows})
    return iter([record, *lines])


def _with_body(record: Record, body: bytes, keys: dict[str, Any]) -> Record:
    value = parse(body)
    if value is ABSENT:
        raise TapeError("a request whose lists hold something that is not JSON")
    return record._replace(keys=keys, raw=body, payload=body, value=value)


# -- lines to records -------------------------------------------------------------------------------------------------


def _records(lines: Sequence[bytes]) -> tuple[list[Record], list[int]]:
    """Return the records of a stream, and the place of the line of each."""
    keys = parse(lines[1], TIMES_VALUES_MAX) if len(lines) > 1 else ABSENT
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
    places = [record.n for record in records]
    records = [record._replace(n=number) for number, record in enumerate(records)]
    return records, places


def _record(line: bytes, at: int) -> Record:
    body = _NUMBERED + line[1:]
    record = decode_line(b'{"c":"%08x",%b' % (zlib.crc32(body), body))
    if isinstance(record, str):
        raise TapeError(f"its line {at + 1}: {record}")
    return record


def _joined(parsed: Sequence[Record], at: int) -> tuple[Record, int]:
    """Return the record that begins at this line, and how many lines it takes."""
    record = parsed[at]
    if record.kind == "request" and "split" in record.keys:
        record, count = _unsplit(record, parsed[at + 1 :])
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


def _unsplit(record: Record, lines: Sequence[Record]) -> tuple[Record, int]:
    """Return the original request, and how many lines its elements take."""
    said: Any = record.keys["split"]
    keys = {name: value for name, value in record.keys.items() if name != "split"}
    if is_object(said):
        return record._replace(keys={**record.keys, "split": said.get("own")}), 0
    if type(said) is int:
        raw = b"".join(_bytes_of(lines, 0, said, _TEXT))
        return record._replace(keys=keys, raw=raw, payload=None, value=ABSENT), said
    body = record.payload
    if body is None or not is_object(record.value):
        raise TapeError("a split request that is not JSON")
    rows = _split_rows(said)
    kept: list[bytes] = []
    position = at = 0
    for member in members(body, body.index(b"{")):
        if member.key not in rows or body[member.value : member.end] != b"[]":
            continue
        count, separator = rows.pop(member.key)
        texts = _bytes_of(lines, at, count, _LISTS.get(member.key, ""))
        kept += [body[position : member.value + 1], separator.join(texts)]
        position, at = member.end - 1, at + count
    if rows:
        raise TapeError(f"the request has no empty list of {', '.join(rows)}")
    return _with_body(record, b"".join([*kept, body[position:]]), keys), at


def _split_rows(said: Any) -> dict[str, tuple[int, bytes]]:
    rows: dict[str, tuple[int, bytes]] = {}
    for row in said if is_list(said) else [None]:
        match row:
            case [str(name), int(count), "," | ", " as separator] if count > 0:
                rows[name] = count, separator.encode()
            case _:
                raise TapeError("a request that is split in an unknown way")
    return rows


def _bytes_of(lines: Sequence[Record], at: int, count: int, kind: str) -> list[bytes]:
    texts = [line.raw or b"" for line in lines[at : at + count] if line.kind == kind]
    if len(texts) != count:
        raise TapeError(f"the request has {len(texts)} of {count} lines of kind {kind}")
    return texts


def asked_keys(records: Sequence[Record]) -> Mapping[str, Any]:
    """Return the keys of a stream's request, with the hash of an upload of which only that was kept."""
    keys = next((record.keys for record in records if record.kind == "request"), NO_KEYS)
    hashed = (record.keys for record in records if record.kind == "upload" and record.raw is None)
    upload = next((each for each in hashed if "sha256" in each and not each.get("part")), None)
    return keys if upload is None else {**keys, "sha256": upload["sha256"]}
