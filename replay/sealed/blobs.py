"""Blobs: the content of a sealed tape's long lines in files of their own, named by its hash, out of a review's way

`weather.tape` has `weather.tape.blobs/<sha256>`; its line is `{"blob":"<sha256>","as":"b64","k":"answer"}`. Without its
file such a line is refused.
"""

import base64
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from pathlib import Path
from typing import Final

from wiretape.events.core.errors import TapeError
from wiretape.events.core.json_text import ABSENT, as_object, dumps, parse

__all__ = [
    "BLOB",
    "LINE_BYTES_MAX",
    "apart",
    "folder_of",
    "read",
    "remove_strays",
    "strays",
    "together",
    "with_lf",
    "write_blobs",
]

#: GitHub hides longer lines, and no diff tool shows them well.
LINE_BYTES_MAX: Final = 100_000
#: How the line of a blob begins; no other line does.
BLOB: Final = b'{"blob":'
_LINE: Final = re.compile(rb'\{"blob":"([0-9a-f]{64})","as":"(data|raw|b64)",("k":.*)\}', re.DOTALL)
#: Lines without bytes of a recording.
_NO_RECORDS: Final = (b'{"k":"clock"', b'{"k":"fold"')
_NAME: Final = re.compile(r"[0-9a-f]{64}")
#: Kinds whose bytes are cut into lines for a reviewer, and joined again however they were cut.
_JOINED: Final = (b'{"k":"answer",', b'{"k":"uploaded",')


# -- the lines --------------------------------------------------------------------------------------------------------


def apart(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Return the tape with its long lines shortened, and their blobs by hash."""
    blobs: dict[str, bytes] = {}
    lines: list[bytes] = []
    for begins, run in groupby(data.split(b"\n"), key=lambda line: next(filter(line.startswith, _JOINED), b"")):
        some = list(run)
        binary = any(line.startswith(b'"b64":', len(begins)) for line in some)
        if begins and binary and sum(map(len, some)) > LINE_BYTES_MAX:
            some = [begins + b'"b64":"%b"}' % base64.b64encode(b"".join(map(_bytes_of, some)))]
        lines += [_short(line, blobs) for line in some]
    return b"\n".join(lines), blobs


def _bytes_of(line: bytes) -> bytes:
    said = as_object(parse(line))
    return said["raw"].encode() if "raw" in said else base64.b64decode(said.get("b64", ""))


def _short(line: bytes, blobs: dict[str, bytes]) -> bytes:
    if len(line) <= LINE_BYTES_MAX or not line.startswith(b'{"k":') or line.startswith(_NO_RECORDS):
        return line
    kind, at = "data", line.find(b',"data":')
    if at < 0:
        said = as_object(parse(line))
        kind = next((name for name in ("raw", "b64") if isinstance(said.get(name), str)), "")
        at = line.rfind(b',"%b":' % kind.encode())
    if not kind or at < 0:
        return line
    held = line[at + len(kind) + len(',"":') : -1]
    blob = held if kind == "data" else parse(held).encode() if kind == "raw" else base64.b64decode(held[1:-1])
    name = hashlib.sha256(blob).hexdigest()
    blobs[name] = blob
    return b'{"blob":"%b","as":"%b",%b}' % (name.encode(), kind.encode(), line[1:at])


def together(data: bytes, blob: Callable[[str], bytes]) -> bytes:
    """Return the tape with the content of its blobs and with LF at the end of its lines. Raises TapeError."""
    data = with_lf(data)
    if b"\n" + BLOB not in data:
        return data
    return b"\n".join(_whole(line, number, blob) for number, line in enumerate(data.split(b"\n"), 1))


def with_lf(data: bytes) -> bytes:
    """Undo the CRLF of a checkout: a line ends with a brace, so a CR after it is not ours."""
    if data.startswith(b'{"wiretape":"sealed",') and b"\r" in data[: data.find(b"\n") + 1][-2:]:
        return data.replace(b"}\r\n", b"}\n")
    return data


def _whole(line: bytes, number: int, blob: Callable[[str], bytes]) -> bytes:
    if not line.startswith(BLOB):
        return line
    found = _LINE.fullmatch(line)
    if found is None:
        raise TapeError(f"line {number}: unknown form of a blob")
    try:
        raw = blob(found[1].decode())
    except OSError as error:
        raise TapeError(f"line {number}: cannot read its blob {found[1].decode()} ({error.strerror})") from error
    if hashlib.sha256(raw).hexdigest().encode() != found[1]:
        raise TapeError(f"line {number}: its blob {found[1].decode()} was changed")
    return b'{%b,"%b":%b}' % (found[3], found[2], _held(found[2], raw, number))


def _held(kind: bytes, raw: bytes, number: int) -> bytes:
    if kind == b"b64":
        return b'"%b"' % base64.b64encode(raw)
    if kind == b"data" and b"\n" not in raw and parse(raw) is not ABSENT:
        return raw
    try:
        return dumps(raw.decode()) if kind == b"raw" else b""
    except UnicodeDecodeError:
        raise TapeError(f"line {number}: its blob is not text") from None


# -- the files --------------------------------------------------------------------------------------------------------


def folder_of(tape: Path) -> Path:
    """Return the folder of a tape's blobs; for a link, next to the file it names."""
    tape = tape.resolve()
    return tape.with_name(tape.name + ".blobs")


def read(tape: Path) -> bytes:
    """Return the bytes of a tape of any form. Raises OSError, and TapeError for a missing blob."""
    folder = folder_of(tape)
    return together(tape.read_bytes(), lambda name: (folder / name).read_bytes())


def write_blobs(tape: Path, blobs: Mapping[str, bytes]) -> None:
    """Write blobs before their tape; files that the old tape needs stay."""
    folder = folder_of(tape)
    for name, blob in sorted(blobs.items()):
        folder.mkdir(exist_ok=True)
        unfinished = folder / f".{name}.new"
        unfinished.write_bytes(blob)
        unfinished.replace(folder / name)


def remove_strays(tape: Path, data: bytes) -> None:
    """Delete the blobs of an older tape of this name, and the folder if it is empty."""
    for file in strays(tape, data):
        file.unlink()
    with suppress(OSError):  # missing, or not empty
        folder_of(tape).rmdir()


def strays(tape: Path, data: bytes) -> Iterator[Path]:
    """Yield blobs that no line of the tape names."""
    folder = folder_of(tape)
    lines = (as_object(parse(line)) for line in data.split(b"\n") if line.startswith(BLOB))
    named = {line.get("blob") for line in lines if isinstance(line.get("blob"), str)}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _NAME.fullmatch(file.name) and file.name not in named:
            yield file
