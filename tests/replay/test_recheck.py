"""Recheck old tapes: what is found, what is sealed again and what is left alone."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.test_compare import CALL, TEXT, recorded
from wiretape.events.tape.record import Record, encode
from wiretape.proxy.cli.main import app
from wiretape.replay.compare.recheck import recheck
from wiretape.replay.seal import seal

LIVE = b"".join(map(encode, recorded(TEXT)))
SEALED = seal([recorded(TEXT), recorded(CALL)])
#: A summary written by older code, with another ending.
OLD = SEALED.replace(b'"ending":"completed","flags":[],"answers"', b'"ending":"truncated","flags":[],"answers"', 1)


def with_flags(records: list[Record], *flags: str) -> list[Record]:
    return [*records[:-1], records[-1]._replace(keys={**records[-1].keys, "flags": list(flags)})]


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (LIVE, []),
        (SEALED, []),
        (OLD, [(1, "ending", "truncated", "completed")]),
        (SEALED.replace(b'"text":"Hello"', b'"text":"Help"'), [(1, "answers[0].text", "Help", "Hello")]),
        (SEALED.replace(b'"warnings":[]', b'"old":1', 2), None),
        (b"".join(map(encode, recorded(TEXT, ending="truncated"))), [(1, "ending", "truncated", "completed")]),
        # Flags of the proxy are not compared.
        (b"".join(map(encode, with_flags(recorded(TEXT), "untaped"))), []),
        (b"".join(map(encode, recorded(TEXT)[:-1])), []),
        (b"".join(map(encode, recorded([b"{}"], dialect="", body=True, ending="reset"))), []),
    ],
)
def test_recorded_and_recomputed_results_are_compared(
    data: bytes, found: list[tuple[int, str, str, str]] | None
) -> None:
    _, differences = recheck(data)
    if found is None:  # missing and new members alike
        assert {(each.path, each.a is None) for each in differences} == {("old", False), ("warnings", True)}
        return
    assert [(each.stream, each.path, each.a, each.b) for each in differences] == found


def test_changed_sealed_tapes_are_written_and_live_ones_stay(tmp_path: Path) -> None:
    old, good, live, junk = (tmp_path / f"{name}.tape" for name in ("a", "b", "c", "d"))
    running = b"".join(map(encode, recorded(TEXT, ending="truncated")))
    for path, data in ((old, OLD), (good, SEALED), (live, running), (junk, b"junk\n")):
        path.write_bytes(data)
    done = CliRunner().invoke(app, ["recheck", str(tmp_path), "--write"])
    assert done.exit_code == 1
    *lines, summary = done.stdout.splitlines()
    assert lines[0] == f'{old}: stream 1: ending: "truncated" -> "completed", sealed again'
    assert lines[1] == f'{live}: stream 1: ending: "truncated" -> "completed"'
    assert lines[2].startswith(f"{junk}: byte 0")
    assert summary.startswith("4 tapes, 5 streams, 2 changed, 1 unreadable; 0.0 MB in ")
    assert summary.endswith(" MB/s)")
    assert (old.read_bytes(), good.read_bytes(), live.read_bytes()) == (SEALED, SEALED, running)
    live.unlink()
    junk.unlink()
    assert CliRunner().invoke(app, ["recheck", str(tmp_path)]).exit_code == 0


def test_json_output(tmp_path: Path) -> None:
    (tmp_path / "a.tape").write_bytes(OLD)
    said = json.loads(CliRunner().invoke(app, ["recheck", str(tmp_path), "--json"]).stdout)
    (one,) = said["files"]
    assert (one["sealed"], one["written"], one["differences"][0]["path"]) == (True, False, "ending")


def test_an_empty_folder_is_an_error_also_under_the_old_name_of_the_verb(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["refold", str(tmp_path)])
    assert "no .tape file found" in str(done.exception)


def test_a_data_folder_is_compared_with_its_catalogue(tmp_path: Path) -> None:
    tape = tmp_path / "2026-11-18" / "s1.tape"
    tape.parent.mkdir()
    tape.write_bytes(LIVE)
    run = CliRunner()
    assert run.invoke(app, ["reindex", "--data", str(tmp_path)]).exit_code == 0
    assert run.invoke(app, ["recheck", str(tmp_path)]).exit_code == 0
    with closing(sqlite3.connect(tmp_path / "catalogue.db")) as base, base:
        base.execute("UPDATE streams SET input_tokens = 7")
    done = run.invoke(app, ["recheck", str(tmp_path)])
    assert done.stdout.startswith(f"{tape}: stream 1: catalogue.input_tokens: 7 -> ")
    assert done.exit_code == 1
