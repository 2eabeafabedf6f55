"""Blobs of earlier versions: they are read as one tape, and a missing or changed one is an error."""

import base64
import hashlib
import json
import re
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from tests.replay.made import stream
from tests.replay.test_body_codec import KEY, answered, asked
from tests.replay.test_sealed_format import wrong_lines
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.main import app
from wiretape.replay.check import check, check_files
from wiretape.replay.seal import EXACT, Rules, seal
from wiretape.replay.sealed.files import folder_of, load, parse, together

pytestmark = pytest.mark.slow

LONG: Final = 110_000
BINARY: Final = bytes(range(256)) * (LONG // 256)
PICTURE: Final = json.dumps(
    {"messages": [{"role": "user", "content": "x" * LONG}, {"role": "user", "content": "?"}]}
).encode()


def recording() -> list[list[Record]]:
    """A picture in a message, an upload of bytes, an answer of bytes, and one of text on one line."""
    return [
        answered(asked(PICTURE), BINARY, "audio/mpeg", read_bytes=30_000),
        answered(asked(BINARY[1:], "audio/mpeg", uploaded=True), b"y" * LONG, "text/plain", read_bytes=LONG),
        answered(asked(b'{"a":1}'), b'["%b"]' % (b"z" * LONG), read_bytes=LONG),
        stream(),
    ]


STREAMS: Final = recording()
EXACTLY: Final = seal(STREAMS, EXACT)


def apart(data: bytes) -> tuple[bytes, dict[str, bytes]]:
    """Move the content of long lines to blobs, as earlier versions did."""
    blobs: dict[str, bytes] = {}
    lines = data.split(b"\n")
    for at, line in enumerate(lines):
        held = re.search(rb',"(data|raw|b64)":(.*)\}$', line)
        if len(line) > 10_000 and held is not None:
            blob = held[2] if held[1] == b"data" else json.loads(held[2]).encode()
            blob = base64.b64decode(blob) if held[1] == b"b64" else blob
            name = hashlib.sha256(blob).hexdigest()
            blobs[name] = blob
            lines[at] = b'{"blob":"%b","as":"%b",%b}' % (name.encode(), held[1], line[1 : held.start()])
    return b"\n".join(lines), blobs


def test_blobs_come_back() -> None:
    short, blobs = apart(EXACTLY)
    assert len(blobs) > 2
    assert wrong_lines(short) == []
    again = together(short, blobs.__getitem__)
    assert again == EXACTLY
    assert parse(again).streams == STREAMS


def write(folder: Path, *streams: list[Record], rules: Rules = EXACT) -> Path:
    tape = folder / "a.tape"
    short, blobs = apart(seal(streams or STREAMS, rules))
    folder_of(tape).mkdir(exist_ok=True)
    for name, blob in blobs.items():
        (folder_of(tape) / name).write_bytes(blob)
    tape.write_bytes(short)
    return tape


def test_missing_and_changed_blobs_are_reported(tmp_path: Path) -> None:
    tape = write(tmp_path)
    assert load(tape).streams == STREAMS
    assert [each.code for each in check_files([tape]) if each.wrong] == []
    with pytest.raises(TapeError, match="line 4: its content is in a blob"):
        parse(tape.read_bytes())
    link = tmp_path / "link"
    link.symlink_to(tape)
    assert load(link).streams == STREAMS

    name = min(folder_of(tape).iterdir())
    name.write_bytes(b"other")
    with pytest.raises(TapeError, match=r"a\.tape: line \d+: its blob [0-9a-f]+ was changed"):
        load(tape)
    name.unlink()
    with pytest.raises(TapeError, match="cannot read its blob"):
        load(tape)
    [found] = [each for each in check_files([tape]) if each.wrong]
    assert (found.code, tape.read_bytes().split(b"\n")[found.line - 1][:9]) == ("unreadable", b'{"blob":"')


def test_secret_in_a_blob_is_found(tmp_path: Path) -> None:
    picture = PICTURE.replace(b"xxxx", b" %b " % KEY.encode(), 1)
    tape = write(tmp_path, answered(asked(picture), b"{}"), rules=Rules(exact=True, secrets_allowed=True))
    assert KEY.encode() not in tape.read_bytes()
    [found] = [each for each in check_files([tape]) if each.code == "secret"]
    assert tape.read_bytes().split(b"\n")[found.line - 1].startswith(b'{"blob":')


@pytest.mark.parametrize(
    "line",
    [
        b'{"blob":"x","as":"b64","k":"answer"}',
        b'{"blob":"../../../etc/passwd","as":"b64","k":"answer"}',
        b'{"blob":"%b","as":"novel","k":"answer"}' % (b"0" * 64),
        b'{"blob":"%b","k":"answer"}' % (b"0" * 64),
        b'{"blob":',
    ],
)
def test_invalid_blob_lines_are_refused(tmp_path: Path, line: bytes) -> None:
    data = write(tmp_path, STREAMS[0]).read_bytes().split(b"\n")
    data[3] = line
    with pytest.raises(TapeError, match=r"line 4: (?:unknown form of a blob|cannot read its blob)"):
        together(b"\n".join(data), lambda _: b"")
    [found] = check(tmp_path / "a.tape", b"\n".join(data), date(2026, 11, 18))[:1]
    assert (found.line, found.code) == (4, "unreadable")


def test_commands_read_tapes_with_blobs(tmp_path: Path) -> None:
    run, tape, out = CliRunner(), write(tmp_path), tmp_path / "out.tape"
    assert run.invoke(app, ["check", str(tape)]).exit_code == 0
    assert run.invoke(app, ["refold", str(tape)]).exit_code == 0
    assert run.invoke(app, ["seal", str(tape), "-o", str(out), "--exact"]).exit_code == 0
    assert out.read_bytes() == EXACTLY
    assert run.invoke(app, ["diff", str(tape), str(out), "--level", "bytes"]).exit_code == 0
