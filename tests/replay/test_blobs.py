"""Blobs: the same tape with short lines to review, and an error for a missing blob."""

import hashlib
import json
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.replay.made import live, stream
from tests.replay.test_body_codec import KEY, answered, asked
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.main import app
from wiretape.replay.check import check, check_files
from wiretape.replay.seal import EXACT, Rules, seal
from wiretape.replay.sealed import files as beside
from wiretape.replay.sealed.files import apart, folder_of, load, parse, read, strays, together, write_blobs

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


@settings(max_examples=12)
@given(st.one_of(st.integers(1, 100), st.integers(1, 300_000)))
def test_any_line_may_become_a_blob(limit: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beside, "LINE_BYTES_MAX", limit)
        short, blobs = apart(EXACTLY)
    assert parse(together(short, blobs.__getitem__), verify=False).streams == STREAMS


def blobs_of(blobs: dict[str, bytes]) -> Callable[[str], bytes]:
    return blobs.__getitem__


def write(folder: Path, *streams: list[Record], rules: Rules = EXACT) -> Path:
    tape = folder / "a.tape"
    short, blobs = apart(seal(streams or STREAMS, rules))
    write_blobs(tape, blobs)
    tape.write_bytes(short)
    return tape


def test_missing_changed_and_stray_blobs_are_reported(tmp_path: Path) -> None:
    tape = write(tmp_path)
    assert load(tape).streams == STREAMS
    assert [each.code for each in check_files([tape]) if each.wrong] == []
    with pytest.raises(TapeError, match="line 4: its content is in a blob"):
        parse(tape.read_bytes())
    link = tmp_path / "link"
    link.symlink_to(tape)
    assert load(link).streams == STREAMS

    stray = folder_of(tape) / ("0" * 64)
    stray.write_bytes(b"")
    (folder_of(tape) / "notes").write_bytes(b"")
    assert [(each.code, each.file) for each in check_files([tape])] == [("stray", stray)]
    assert list(strays(tape, tape.read_bytes())) == [stray]

    name = next(file for file in folder_of(tape).iterdir() if file.stat().st_size == len(BINARY))
    name.write_bytes(BINARY[1:])
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


@pytest.mark.parametrize("kind", [b"data", b"raw", b"b64"])
def test_any_bytes_in_a_blob_are_survived(kind: bytes) -> None:
    for blob in (b"", b"x", b"\xff", b'{"k":1}\n', b"[" * 5_000):
        name = hashlib.sha256(blob).hexdigest().encode()
        data = seal([stream()]) + b'{"blob":"%b","as":"%b","k":"answer"}\n' % (name, kind)
        with pytest.raises(TapeError):
            parse(together(data, blobs_of({name.decode(): blob})))


def test_seal_writes_and_removes_blobs(tmp_path: Path) -> None:
    run, live_tape, out = CliRunner(), tmp_path / "live.tape", tmp_path / "out.tape"
    live_tape.write_bytes(live(STREAMS[0]))
    sealing = ["seal", str(live_tape), "-o", str(out)]
    assert run.invoke(app, [*sealing, "--blobs"]).exit_code == 0
    assert len(list(folder_of(out).iterdir())) == 2
    assert run.invoke(app, ["check", str(out)]).exit_code == 0
    assert run.invoke(app, ["diff", str(live_tape), str(out), "--level", "bytes"]).exit_code == 0
    assert run.invoke(app, ["refold", str(out)]).exit_code == 0
    first = out.read_bytes()
    assert run.invoke(app, ["seal", str(out), "-o", str(out), "--blobs"]).exit_code == 0
    assert out.read_bytes() == first
    assert (
        run.invoke(
            app, ["cut", str(out), "--after", "byte:5", "--ending", "reset", "-o", str(tmp_path / "cut.tape")]
        ).exit_code
        == 0
    )
    assert run.invoke(app, sealing).exit_code == 0
    assert not folder_of(out).exists(), "what nothing names is gone with the tape that named it"
    assert read(out) == out.read_bytes()
    assert run.invoke(app, ["seal", str(live_tape), "-o", "-", "--blobs"]).exit_code != 0
