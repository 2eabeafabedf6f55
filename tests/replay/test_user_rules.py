"""Paths and detectors of the user's own."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.made import asked, deck_of, live, stream
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.main import app
from wiretape.replay.check import check_files
from wiretape.replay.matching.match import Taken
from wiretape.replay.playback.script import Request, event_stream
from wiretape.replay.redaction.redact import redact
from wiretape.replay.redaction.user_rules import Redaction, is_path
from wiretape.replay.sealed.files import parse


@pytest.mark.parametrize(
    ("path", "taken"),
    [
        ("user", ["Ada"]),
        ("$.user", ["Ada"]),
        ("*.token", ["t"]),
        ("$['messages'][0]", ["x"]),
        ('messages.[*].["content"]', ["x"]),
        ("a", ["t", "7"]),
        ("user.b", []),
    ],
)
def test_members_of_a_path_are_redacted(path: str, taken: list[str]) -> None:
    body = b'{"user":"Ada","a":{"token":"t","n":"7"},"messages":[{"content":"x"}]}'
    assert is_path(path)
    [[done]] = redact([[Record(0, 0, "request", {}, body)]], Redaction(paths=(path,)))
    for number, value in enumerate(taken, 1):
        body = body.replace(f'"{value}"'.encode(), f'"[redacted-path-{number}]"'.encode())
    assert done.raw == body


@pytest.mark.parametrize(
    "path", ["", "$", "$.", ".", "messages[", "messages[]", "messages]", "a..b", "a.", "messages[*", "a[*]b", "[[0]]"]
)
def test_invalid_path_is_a_wrong_option(path: str, tmp_path: Path) -> None:
    """Seen: the empty one replaced every value, and `messages[` was taken for a name."""
    assert not is_path(path)
    tape, out = tmp_path / "a.tape", tmp_path / "out.tape"
    tape.write_bytes(live(stream()))
    done = CliRunner().invoke(app, ["seal", str(tape), "-o", str(out), f"--redact-path={path}"])
    assert "is not a path" in str(done.exception)
    assert getattr(done.exception, "code", None) == 2
    assert not out.exists()


def test_detector_redacts_the_texts_it_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text("import re\n\ndef badges(text):\n    return re.findall(r'B-\\d{4}', text)\n")
    tape, out = tmp_path / "a.tape", tmp_path / "out.tape"
    pieces = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in ("badge B-", "47", "11, ok")]
    tape.write_bytes(live(stream(event_stream([b"data: %b\n\n" % dumps(piece) for piece in pieces]), "I am B-0815")))
    done = CliRunner().invoke(app, ["seal", str(tape), "-o", str(out), "--detector", "mine:badges"])
    assert done.exit_code == 0, done.output
    sealed = out.read_bytes()
    assert b"B-0815" not in sealed
    assert b'"content":"badge [redacted-secret-2]"' in sealed
    assert b'"rules":["detector","headers","names","shapes"]' in sealed
    assert [each for each in check_files([out]) if each.wrong] == []
    header, streams = parse(sealed)
    request = Request(b"POST", b"/v1/chat/completions", [(b"content-type", b"application/json")], asked("I am B-0001"))
    assert isinstance(deck_of(streams, header=header).take(request), Taken), "any badge is answered"


@pytest.mark.parametrize("name", ["nothing", "no_such_module:f", "json:nothing", "json:__name__"])
def test_detector_that_cannot_be_loaded_is_a_wrong_option(name: str, tmp_path: Path) -> None:
    (tmp_path / "a.tape").write_bytes(live(stream()))
    args = ["seal", str(tmp_path / "a.tape"), "-o", str(tmp_path / "b.tape"), "--detector", name]
    done = CliRunner().invoke(app, args)
    assert getattr(done.exception, "code", None) == 2
    assert name in str(done.exception)
