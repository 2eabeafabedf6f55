"""Today's folds over old tapes: what is found, what is written anew, and what is left alone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.test_compare import CALL, TEXT, recorded
from wiretape.events.tape.record import encode
from wiretape.proxy.cli.main import app
from wiretape.replay.compare.recheck import refold, refold_paths
from wiretape.replay.seal import seal

LIVE = b"".join(map(encode, recorded(TEXT)))
SEALED = seal([recorded(TEXT), recorded(CALL)])
#: A fold of another day: it said another ending, and knew no refusal of the call.
OLD = SEALED.replace(b'"ending":"completed","flags":[],"answers"', b'"ending":"truncated","flags":[],"answers"', 1)


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (LIVE, []),
        (SEALED, []),
        (OLD, [(1, "ending", "truncated", "completed")]),
        (SEALED.replace(b'"text":"Hello"', b'"text":"Help"'), [(1, "answers[0].text", "Help", "Hello")]),
        (SEALED.replace(b'"warnings":[]', b'"old":1', 2), None),
        (b"".join(map(encode, recorded(TEXT, ending="truncated"))), [(1, "ending", "truncated", "completed")]),
        # Flags that only the proxy knows are no fold's.
        (LIVE.replace(b'"flags":[]', b'"flags":[]'), []),
        (b"".join(map(encode, recorded(TEXT)[:-1])), []),
        (b"".join(map(encode, recorded([b"{}"], dialect="", body=True, ending="reset"))), []),
    ],
)
def test_what_a_tape_says_and_what_it_comes_to(data: bytes, found: list[tuple[int, str, str, str]] | None) -> None:
    _, differences = refold(data)
    if found is None:  # missing and new members alike
        assert {(each.path, each.a is None) for each in differences} == {("old", False), ("warnings", True)}
        return
    assert [(each.stream, each.path, each.a, each.b) for each in differences] == found


def test_those_that_changed_are_sealed_anew_and_live_ones_stay(tmp_path: Path) -> None:
    old, good, live, junk = (tmp_path / f"{name}.tape" for name in ("a", "b", "c", "d"))
    running = b"".join(map(encode, recorded(TEXT, ending="truncated")))
    for path, data in ((old, OLD), (good, SEALED), (live, running), (junk, b"junk\n")):
        path.write_bytes(data)
    done = CliRunner().invoke(app, ["refold", str(tmp_path), "--write"])
    assert done.exit_code == 1
    *lines, summary = done.stdout.splitlines()
    assert lines[0] == f'{old}: stream 1: ending: "truncated" -> "completed", sealed anew'
    assert lines[1] == f'{live}: stream 1: ending: "truncated" -> "completed"'
    assert lines[2].startswith(f"{junk}: byte 0")
    assert summary.startswith("4 tapes, 5 streams, 2 changed, 1 unreadable; 0.0 MB in ")
    assert summary.endswith(" MB/s)")
    assert (old.read_bytes(), good.read_bytes(), live.read_bytes()) == (SEALED, SEALED, running)
    live.unlink()
    junk.unlink()
    assert CliRunner().invoke(app, ["refold", str(tmp_path)]).exit_code == 0


def test_the_same_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.tape").write_bytes(OLD)
    said = json.loads(CliRunner().invoke(app, ["refold", str(tmp_path), "--json"]).stdout)
    (one,) = said["files"]
    assert (one["sealed"], one["written"], one["differences"][0]["path"]) == (True, False, "ending")


def test_the_speed_is_of_the_clock_that_is_given(tmp_path: Path) -> None:
    (tmp_path / "a.tape").write_bytes(LIVE * 1)
    ticks = iter([1.0, 3.0])
    assert refold_paths([tmp_path], clock=lambda: next(ticks)).seconds == 2.0


def test_nothing_to_refold_is_one_line(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["refold", str(tmp_path)])
    assert done.exit_code != 0


def test_a_data_folder_is_compared_with_its_catalogue_too(tmp_path: Path) -> None:
    tape = tmp_path / "2026-11-18" / "s1.tape"
    tape.parent.mkdir()
    tape.write_bytes(LIVE)
    run = CliRunner()
    assert run.invoke(app, ["reindex", "--data", str(tmp_path)]).exit_code == 0
    assert run.invoke(app, ["refold", str(tmp_path)]).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "catalogue.db")) as base, base:
        base.execute("UPDATE streams SET input_tokens = 7")
    done = run.invoke(app, ["refold", str(tmp_path)])
    assert done.stdout.startswith(f"{tape}: stream 1: catalogue.input_tokens: 7 -> ")
    assert done.exit_code == 1
