"""Read a recording from a file of either form, and write a file whole or not at all.

Earlier versions could move long lines of a sealed tape to files of their own: `weather.tape.blobs/<sha256>`, with
`{"blob":"<sha256>","as":"b64","k":"answer"}` in their place. Such tapes are read; without its file a line is refused.
"""

import base64
import hashlib
import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from secrets import token_hex
from stat import S_IMODE, S_ISREG
from typing import Any, Final, NamedTuple

from wiretape.events.core import json_text
from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader

from .playable import unplayable
from .sealed import BLOB, MARK, decode, spoilt

__all__ = [
    "Age",
    "Recording",
    "age_of",
    "contents",
    "folder_of",
    "lines_of",
    "load",
    "parse",
    "read",
    "together",
    "with_lf",
    "write_whole",
]

#: Of a tape with its blobs: more than the longest stream, as base64.
_BYTES_MAX: Final = 512 * 1024 * 1024
_BLOB_LINE: Final = re.compile(rb'\{"blob":"([0-9a-f]{64})","as":"(data|raw|b64)",("k":.*)\}', re.DOTALL)


class Recording(NamedTuple):
    """A live tape's stream, or a sealed tape's conversation. A live tape has an empty header."""

    header: Mapping[str, Any]
    streams: Sequence[Sequence[Record]]


class Age(NamedTuple):
    """The age of a recording and its limit; None where the header does not say."""

    days: int | None
    limit_days: int | None

    @property
    def due(self) -> bool:
        """Whether the recording is older than its limit; one without a limit is always due."""
        return self.days is None or self.limit_days is None or self.days > self.limit_days


def age_of(header: Mapping[str, Any], today: date) -> Age:
    """Read `recorded` and `max_age_days` of a header."""
    recorded, limit = header.get("recorded"), header.get("max_age_days")
    try:
        days = (today - date.fromisoformat(recorded)).days if isinstance(recorded, str) else None
    except ValueError:
        days = None
    return Age(days, limit if type(limit) is int else None)


def load(path: Path, *, verify: bool = True) -> Recording:
    """Read a file with its blobs. Raises TapeError, which names the file and the place."""
    try:
        return parse(read(path), verify=verify)
    except TapeError as error:
        raise TapeError(f"{path}: {error}") from error


def read(tape: Path) -> bytes:
    """Return the bytes of a tape of any form. Raises OSError, and TapeError for a missing blob."""
    return together(contents(tape), lambda name: contents(folder_of(tape) / name))


def contents(path: Path) -> bytes:
    """Return the bytes of a regular file: a pipe may never answer, a device never end. Raises OSError and TapeError."""
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not S_ISREG(os.fstat(file.fileno()).st_mode):
            raise TapeError("not a regular file")
        data = file.read(_BYTES_MAX + 1)
    if len(data) > _BYTES_MAX:
        raise TapeError(f"longer than {_BYTES_MAX} bytes")
    return data


def parse(data: bytes, *, verify: bool = True) -> Recording:
    """Read the bytes of a file. A live tape may still grow: it is read up to its last complete record.

    A sealed tape has as many streams as its header states: one cut short after a stream looks complete otherwise.
    """
    if data.startswith(MARK):
        header, streams, lines = decode(data, verify=verify)
        stated, found = header.get("streams"), len(streams)
        if type(stated) is int and stated != found:
            raise TapeError(
                f"line 1: the header states {stated} streams, and the file has {found}: was it cut short? Record it "
                f'again, or, if streams were taken out or added by hand, write "streams":{found} there'
            )
    else:
        if reason := spoilt(data):
            raise TapeError(reason)
        reader = Reader()
        records = reader.feed(data)
        for at, reason in reader.damage:
            raise TapeError(f"byte {at}: {reason}")
        if not records:
            raise TapeError("no recording: neither a live tape nor a sealed one")
        header, streams, lines = {}, [records], [[*range(1, len(records) + 1)]]
    for line, reason in unplayable(streams, lines):
        raise TapeError(f"line {line}: {reason}")
    return Recording(header, streams)


def lines_of(data: bytes, streams: Sequence[Sequence[Record]]) -> list[Mapping[int, int]]:
    """Return the line of each record of each stream, from 1, by the record's number."""
    if not data.startswith(MARK):
        return [{record.n: record.n + 1 for record in records} for records in streams]
    return [dict(enumerate(places)) for places in decode(data, verify=False).lines]


def write_whole(out: Path, data: bytes) -> None:
    """Replace a file, following links and keeping permissions; write pipes and devices directly."""
    target = Path(os.path.realpath(out))
    if target.exists() and not target.is_file():
        target.write_bytes(data)
        return
    unfinished = target.with_name(f".{token_hex(8)}.new")
    try:
        unfinished.touch(0o600 if target.exists() else 0o666)
        unfinished.write_bytes(data)
        if target.exists():
            unfinished.chmod(S_IMODE(target.stat().st_mode))
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


# -- blobs ------------------------------------------------------------------------------------------------------------


def together(data: bytes, blob: Callable[[str], bytes]) -> bytes:
    """Return the tape with the content of its blobs and with LF at the end of its lines. Raises TapeError."""
    data = with_lf(data)
    if b"\n" + BLOB not in data:
        return data
    lines, left = data.split(b"\n"), _BYTES_MAX
    for at, line in enumerate(lines):
        lines[at] = _whole(line, at + 1, blob)
        if (left := left - len(lines[at])) < 0:  # many lines may name one blob
            raise TapeError(f"line {at + 1}: with its blobs the tape is longer than {_BYTES_MAX} bytes")
    return b"\n".join(lines)


def with_lf(data: bytes) -> bytes:
    """Undo the CRLF of a checkout: a line ends with a brace, so a CR after it is not ours."""
    if data.startswith(MARK) and b"\r" in data[: data.find(b"\n") + 1][-2:]:
        return data.replace(b"}\r\n", b"}\n")
    return data


def _whole(line: bytes, number: int, blob: Callable[[str], bytes]) -> bytes:
    if not line.startswith(BLOB):
        return line
    found = _BLOB_LINE.fullmatch(line)
    if found is None:
        raise TapeError(f"line {number}: unknown form of a blob")
    try:
        raw = blob(found[1].decode())
    except OSError as error:
        raise TapeError(f"line {number}: cannot read its blob {found[1].decode()} ({error.strerror})") from error
    except TapeError as error:
        raise TapeError(f"line {number}: its blob {found[1].decode()} is {error}") from error
    if hashlib.sha256(raw).hexdigest().encode() != found[1]:
        raise TapeError(f"line {number}: its blob {found[1].decode()} was changed")
    return b'{%b,"%b":%b}' % (found[3], found[2], _held(found[2], raw, number))


def _held(kind: bytes, raw: bytes, number: int) -> bytes:
    if kind == b"b64":
        return b'"%b"' % base64.b64encode(raw)
    if kind == b"data" and b"\n" not in raw and json_text.parse(raw) is not ABSENT:
        return raw
    try:
        return dumps(raw.decode()) if kind == b"raw" else b""
    except UnicodeDecodeError:
        raise TapeError(f"line {number}: its blob is not text") from None


def folder_of(tape: Path) -> Path:
    """Return the folder of a tape's blobs; for a link, next to the file it names."""
    tape = Path(os.path.realpath(tape))  # Path.resolve raises RuntimeError for a link to itself
    return tape.with_name(tape.name + ".blobs")
