"""What `check` says of a file, by line; and the hook that runs it before a commit."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner, Result

from tests.replay.canaries import CANARIES
from tests.support.make_fixtures import TAPES
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader, Recorder
from wiretape.proxy.cli.common import FailedError
from wiretape.proxy.cli.main import app
from wiretape.replay.check import check, check_files
from wiretape.replay.seal import EXACT, Rules, seal
from wiretape.replay.sealed.files import load
from wiretape.replay.sealed.files import parse as load_bytes

pytestmark = pytest.mark.slow

ROOT: Final = Path(__file__).parents[2]
FILE: Final = Path("a.tape")
TODAY: Final = date(2027, 1, 20)
GOOD: Final = seal([Reader().feed(TAPES["text"])])
KEY: Final = CANARIES["openai"]


def found(data: bytes, **how: int) -> list[str]:
    return [f"{each.line} {each.code}{'' if each.wrong else ' note'}" for each in check(FILE, data, TODAY, **how)]


def ended(ending: str) -> bytes:
    """A stream that ended so; with no word, one that still ran."""
    recorder = Recorder()
    records: list[Record] = [
        recorder.record("open", 0, {"format": 1, "dialect": "", "created": 1_800_000_000}),
        recorder.record("request", 0, {"method": "GET", "path": "/x"}),
    ]
    if ending:
        records.append(recorder.end(1, {"cause": ending, "ending": ending, "flags": []}))
    return seal([records])


def with_secret() -> bytes:
    """In the second of three messages."""
    messages = ",".join(f'{{"role":"user","content":"{text}"}}' for text in ("a", f"b {KEY}", "c"))
    recorder = Recorder()
    body = f'{{"tools":[{{}}],"messages":[{messages}]}}'.encode()
    records = [
        recorder.record("open", 0, {"format": 1, "dialect": "", "created": 1_800_000_000}),
        recorder.record("request", 0, {"method": "POST", "path": "/x"}, body),
        recorder.end(1, {"cause": "length", "ending": "completed", "flags": []}),
    ]
    return seal([records], Rules(exact=True, secrets_allowed=True))


_FOUND: Final[dict[str, tuple[Callable[[], bytes], list[str]]]] = {
    "good": (lambda: GOOD, []),
    "live": (lambda: TAPES["text"], ["0 unsealed"]),
    "nothing": (lambda: b"", ["0 unreadable"]),
    "text": (lambda: b"hello\n", ["0 unreadable"]),
    "newer": (lambda: GOOD.replace(b'"format":1', b'"format":2', 1), ["0 version"]),
    "torn": (lambda: GOOD[:-1], ["14 unreadable"]),
    "as Windows checks it out": (lambda: GOOD.replace(b"\n", b"\r\n"), ["1 crlf note"]),
    "a merge conflict": (lambda: GOOD.replace(b'{"k":"head"', b'<<<<<<< HEAD\n{"k":"head"'), ["7 unreadable"]),
    "a merge conflict in the header": (lambda: b"<<<<<<< HEAD\n" + GOOD, ["1 unreadable"]),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + GOOD, ["1 unreadable"]),
    "more streams than there are": (lambda: GOOD.replace(b'"streams":1', b'"streams":3'), ["1 streams"]),
    "a header alone": (lambda: GOOD.partition(b"\n")[0] + b"\n", ["1 streams", "1 unplayable"]),
    "without clock": (lambda: GOOD.replace(b'{"k":"clock"', b'{"k":"cl"'), ["2 unreadable"]),
    "edited": (lambda: GOOD.replace("Grüße".encode(), b"Gruesse", 1), ["13 sums", "14 fold"]),
    "client gone": (lambda: ended("client_gone"), ["5 ending note"]),
    "still running": (lambda: ended(""), ["4 unfinished note"]),
    "a secret": (with_secret, ["4 secret"]),
}


@pytest.mark.parametrize("name", sorted(_FOUND))
def test_findings(name: str) -> None:
    data, due = _FOUND[name]
    assert found(data()) == due


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (b'"recorded":', b'"redacted":{"paths":["%b"]},"recorded":', 1),
        (b'"k":"clock",', b'"k":"clock","x":"%b",', 3),
        (b'"stream":"', b'"stream":"%b', 2),
        (b'"k":"fold",', b'"k":"fold","x":"%b",', len(GOOD.splitlines())),
    ],
)
def test_secret_in_header_clock_or_fold(old: bytes, new: bytes, line: int) -> None:
    data = GOOD.replace(old, new % KEY.encode(), 1)
    assert data != GOOD
    assert f"{line} secret" in found(data)


def test_size_and_age() -> None:
    assert found(GOOD, bytes_max=len(GOOD)) == []
    assert found(GOOD, bytes_max=len(GOOD) - 1) == ["0 size"]
    # Recorded on 2027-01-15, five days ago.
    assert found(GOOD, age_days_max=5) == []
    assert found(GOOD, age_days_max=4) == ["1 age"]
    aging = seal([Reader().feed(TAPES["text"])], Rules(max_age_days=4))
    assert found(aging) == found(aging, age_days_max=9) == ["1 age"]
    undated = [Record(0, 0, "open", {"format": 1}), Record(1, 0, "request", {"method": "GET", "path": "/x"})]
    assert found(seal([undated]), age_days_max=9) == ["1 age", "4 unfinished note"]


def test_exit_codes(tmp_path: Path) -> None:
    (tmp_path / "good.tape").write_bytes(GOOD)
    (tmp_path / "gone.tape").write_bytes(ended("client_gone"))
    done = CliRunner().invoke(app, ["check", str(tmp_path)])
    assert (done.exit_code, done.stdout.count("\n")) == (0, 1)
    (tmp_path / "live.tape").write_bytes(TAPES["text"])
    done = CliRunner().invoke(app, ["check", str(tmp_path), "--json"])
    assert done.exit_code == 1
    assert [row["code"] for row in json.loads(done.stdout)] == ["ending", "unsealed"]


def test_pre_commit_hook(tmp_path: Path) -> None:
    """Its entry is split into words and given the files that are to be committed."""
    said = dict(
        line.strip(" -").split(": ", 1)
        for line in (ROOT / ".pre-commit-hooks.yaml").read_text().splitlines()
        if ": " in line and not line.startswith("#")
    )
    assert said["id"] == "wiretape-check"
    (tmp_path / "good.tape").write_bytes(GOOD)
    (tmp_path / "bad.tape").write_bytes(with_secret())
    command = said["entry"].split()
    binary = Path(sys.executable).parent / command[0]

    def run(*names: str) -> tuple[int, str]:
        done = subprocess.run([binary, *command[1:], *names], cwd=tmp_path, capture_output=True, text=True, check=False)
        return done.returncode, done.stdout

    assert [bool(re.search(said["files"], name)) for name in ("a.tape", "a.py")] == [
        True, False,
    ]  # fmt: skip
    assert run("good.tape") == (0, "")
    code, told = run("good.tape", "bad.tape")
    assert code == 1
    assert told.startswith("bad.tape:4: secret: ")


# -- seal -------------------------------------------------------------------------------------------------------------


def test_seal_orders_live_and_sealed_files_by_time(tmp_path: Path) -> None:
    later = TAPES["text"]
    one, two, out = tmp_path / "one.tape", tmp_path / "two.tape", tmp_path / "out.tape"
    early = Reader().feed(TAPES["cut"])
    early[0] = early[0]._replace(keys={**early[0].keys, "created": 1_700_000_000})
    one.write_bytes(later)
    two.write_bytes(seal([early], EXACT))
    done = CliRunner().invoke(app, ["seal", str(one), str(two), "-o", str(out), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {"out": str(out), "bytes": out.stat().st_size, "streams": 2, "exact": False}
    assert out.read_bytes().index(b"half an ans") < out.read_bytes().index("Grüße".encode())
    before = out.read_bytes()
    done = CliRunner().invoke(app, ["seal", str(out), "-o", str(out)])
    assert out.read_bytes() == before, "sealed again it is the same"
    assert [file.name for file in sorted(tmp_path.iterdir())] == ["one.tape", "out.tape", "two.tape"]


def test_seal_refuses_an_exact_tape_with_secrets(tmp_path: Path) -> None:
    tape, out = tmp_path / "a.tape", tmp_path / "out.tape"
    tape.write_bytes(with_secret())
    done = CliRunner().invoke(app, ["seal", str(tape), "-o", str(out), "--exact"])
    assert done.exit_code != 0
    assert not out.exists()
    assert KEY not in str(done.exception)
    assert "stream 1 record 1 messages[1].content" in str(done.exception)
    done = CliRunner().invoke(app, ["seal", str(tape), "-o", str(out), "--exact", "--allow-secrets"])
    assert out.read_bytes() == tape.read_bytes()
    done = CliRunner().invoke(app, ["seal", str(out), "-o", str(out), "--redact-prompts"])
    assert done.exit_code == 0
    assert KEY.encode() not in out.read_bytes()
    assert b'"prompts":"sha256"' in out.read_bytes()
    again = CliRunner().invoke(app, ["seal", str(out), "-o", str(tmp_path / "x.tape"), "--exact"])
    assert again.exit_code == 0
    assert b'"exact":false' in (tmp_path / "x.tape").read_bytes(), "what was done is not forgotten"


def sealed_to(out: Path, *tapes: Path, more: Sequence[str] = ()) -> Result:
    return CliRunner().invoke(app, ["seal", *map(str, tapes), "-o", str(out), *more])


def test_crlf_is_undone_and_other_damage_reported(tmp_path: Path) -> None:
    tape = tmp_path / "a.tape"
    tape.write_bytes(GOOD.replace(b"\n", b"\r\n"))
    assert load(tape) == load_bytes(GOOD)
    for data, why in ((b"\xef\xbb\xbf" + GOOD, "byte order mark"), (b"<<<<<<< a\n" + GOOD, "merge conflict")):
        tape.write_bytes(data)
        with pytest.raises(TapeError, match=why):
            load(tape)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no such files here")
def test_check_does_not_wait_for_a_pipe(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.tape")
    assert [each.code for each in check_files([tmp_path])] == ["empty"]
    assert [each.message for each in check_files([tmp_path / "a.tape"])] == ["not a regular file"]


@pytest.mark.parametrize(
    ("names", "out", "more", "why"),
    [
        (["a.tape", "a.tape"], "x.tape", [], "a.tape is named twice"),
        (["a.tape", "link.tape"], "x.tape", [], "the same tape as"),
        (["a.tape"], ".", [], ": is a folder"),
        (["a.tape"], "no/x.tape", [], "its folder does not exist"),
        (["a.tape"], "x.tape", ["--allow-secrets"], "needs --exact"),
    ],
)
def test_seal_refuses_wrong_arguments(tmp_path: Path, names: list[str], out: str, more: list[str], why: str) -> None:
    (tmp_path / "a.tape").write_bytes(GOOD)
    (tmp_path / "link.tape").symlink_to(tmp_path / "a.tape")
    done = sealed_to(tmp_path / out, *[tmp_path / name for name in names], more=more)
    assert why in str(done.exception)


def test_seal_of_a_stream_by_the_beginning_of_its_id(tmp_path: Path) -> None:
    live, out = tmp_path / "live", tmp_path / "out.tape"
    live.mkdir()
    (live / f"{'a' * 26}.tape").write_bytes(b"".join(TAPES["text"].splitlines(keepends=True)[:-1]) + b'{"c":"torn')
    done = CliRunner().invoke(app, ["seal", "aaa", "-o", str(out), "--data", str(tmp_path)])
    assert done.exit_code == 0, done.exception
    assert found(out.read_bytes()) == ["12 unfinished note"]
    (live / f"aab{'a' * 23}.tape").write_bytes(TAPES["text"])
    done = CliRunner().invoke(app, ["seal", "aa", "-o", str(out), "--data", str(tmp_path)])
    assert isinstance(done.exception, FailedError)
    assert (done.exception.code, "Ambiguous id 'aa' matches 2 streams" in str(done.exception)) == (2, True)


@pytest.mark.parametrize(("data", "why"), [("", "No stream in "), ("nowhere", "No data folder")])
def test_seal_of_a_missing_file_or_stream(tmp_path: Path, data: str, why: str) -> None:
    """Seen: it mentioned the data folder alone, with another exit code than for a name with `.tape`."""
    more = ["-o", str(tmp_path / "out.tape"), "--data", str(tmp_path / data)]
    done = CliRunner().invoke(app, ["seal", "missing", *more])
    assert isinstance(done.exception, FailedError)
    assert done.exception.code == 3
    assert str(done.exception).startswith(f"missing: No such file or directory. {why}")
    bad = tmp_path / "bad.toml"
    bad.write_text("nonsense = 1")
    done = CliRunner().invoke(app, ["seal", "missing", *more[:2], "--config", str(bad)])
    assert isinstance(done.exception, FailedError)
    assert done.exception.code == 2
