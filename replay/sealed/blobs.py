"""Long lines of a sealed tape in files of their own beside it, by the hash of what they hold, out of a review's way

`weather.tape` has `weather.tape.blobs/<sha256>`; the line there is `{"blob":"<sha256>","as":"b64","k":"answer"}`. No
other line begins so, and without its file such a line is refused.
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

#: GitHub folds what is longer away, and no diff tool shows it well.
LINE_BYTES_MAX: Final = 100_000
#: How the line of one begins.
BLOB: Final = b'{"blob":'
_LINE: Final = re.compile(rb'\{"blob":"([0-9a-f]{64})","as":"(data|raw|b64)",("k":.*)\}', re.DOTALL)
#: Lines that carry no bytes of a recording.
_NO_RECORDS: Final = (b'{"k":"clock"', b'{"k":"fold"')
_NAME: Final = re.compile(r"[0-9a-f]{64}")
#: Bytes that are cut into lines for a reviewer, and joined again whatever they were cut into.
_JOINED: Final = (b'{"k":"answer",', b'{"k":"uploaded",')


# -- the lines --------------------------------------------------------------------------------------------------------


def apart(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """The tape with its long lines short, and what they held, by hash. All else stays, and so does what is short."""
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
    """The tape with all that it holds, its lines ended as they were written. Raises TapeError."""
    data = with_lf(data)
    if b"\n" + BLOB not in data:
        return data
    return b"\n".join(_whole(line, number, blob) for number, line in enumerate(data.split(b"\n"), 1))


def with_lf(data: bytes) -> bytes:
    """A sealed tape that a checkout wrote with CRLF: a line ends with a brace, so a CR behind it is not ours."""
    if data.startswith(b'{"wiretape":"sealed",') and b"\r" in data[: data.find(b"\n") + 1][-2:]:
        return data.replace(b"}\r\n", b"}\n")
    return data


def _whole(line: bytes, number: int, blob: Callable[[str], bytes]) -> bytes:
    if not line.startswith(BLOB):
        return line
    found = _LINE.fullmatch(line)
    if found is None:
        raise TapeError(f"line {number}: what it held beside the file is named in a way unknown here")
    try:
        raw = blob(found[1].decode())
    except OSError as error:
        raise TapeError(f"line {number}: what it held is not beside the file ({error.strerror})") from error
    if hashlib.sha256(raw).hexdigest().encode() != found[1]:
        raise TapeError(f"line {number}: what it held beside the file is something else now")
    return b'{%b,"%b":%b}' % (found[3], found[2], _held(found[2], raw, number))


def _held(kind: bytes, raw: bytes, number: int) -> bytes:
    if kind == b"b64":
        return b'"%b"' % base64.b64encode(raw)
    if kind == b"data" and b"\n" not in raw and parse(raw) is not ABSENT:
        return raw
    try:
        return dumps(raw.decode()) if kind == b"raw" else b""
    except UnicodeDecodeError:
        raise TapeError(f"line {number}: what it held beside the file is no text") from None


# -- the files --------------------------------------------------------------------------------------------------------


def folder_of(tape: Path) -> Path:
    """Where they lie; beside the file itself, where its name is a link."""
    tape = tape.resolve()
    return tape.with_name(tape.name + ".blobs")


def read(tape: Path) -> bytes:
    """A tape of any form, whole. Raises OSError, and TapeError for what is missing beside it."""
    folder = folder_of(tape)
    return together(tape.read_bytes(), lambda name: (folder / name).read_bytes())


def write_blobs(tape: Path, blobs: Mapping[str, bytes]) -> None:
    """Before the tape itself is written; nothing that the old one needs is touched."""
    folder = folder_of(tape)
    for name, blob in sorted(blobs.items()):
        folder.mkdir(exist_ok=True)
        unfinished = folder / f".{name}.new"
        unfinished.write_bytes(blob)
        unfinished.replace(folder / name)


def remove_strays(tape: Path, data: bytes) -> None:
    """What an older tape of this name had there; and the folder, if nothing is left in it."""
    for file in strays(tape, data):
        file.unlink()
    with suppress(OSError):  # it is not there, or somebody else's files are in it
        folder_of(tape).rmdir()


def strays(tape: Path, data: bytes) -> Iterator[Path]:
    """Files of the folder that no line of this tape names."""
    folder = folder_of(tape)
    lines = (as_object(parse(line)) for line in data.split(b"\n") if line.startswith(BLOB))
    named = {line.get("blob") for line in lines if isinstance(line.get("blob"), str)}
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if _NAME.fullmatch(file.name) and file.name not in named:
            yield file
