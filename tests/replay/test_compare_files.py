"""Compare files and folders with `wiretape diff`, and old tapes with `wiretape recheck`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.replay.made import live
from tests.replay.test_compare import CALL, TEXT, recorded
from tests.support.chat import text
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.main import app, main
from wiretape.replay.compare import compare as compare_module
from wiretape.replay.compare.compare import compare_paths
from wiretape.replay.compare.recheck import recheck
from wiretape.replay.seal import EXACT, seal

SAME = recorded(TEXT)
OTHER = recorded([TEXT[0], text("p"), *TEXT[2:]])
BENIGN = recorded([each.replace(b"chatcmpl-1", b"chatcmpl-2") for each in TEXT])


def written(path: Path, records: list[Record]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(live(records))
    return path


def sealed(path: Path, *streams: list[Record]) -> Path:
    path.write_bytes(seal(streams, EXACT))
    return path


@pytest.mark.parametrize(
    ("records", "code", "said"),
    [
        (SAME, 0, "the same\n"),
        (BENIGN, 1, 'benign: stream 1: id: "chatcmpl-1" -> "chatcmpl-2"\n'),
        (OTHER, 2, 'breaking: stream 1, line 6: text of answer 0 at 3: "Hello" -> "Help"\n'),
    ],
)
def test_diff_prints_the_first_difference(tmp_path: Path, records: list[Record], code: int, said: str) -> None:
    a, b = written(tmp_path / "a.tape", SAME), written(tmp_path / "b.tape", records)
    done = CliRunner().invoke(app, ["diff", str(a), str(b)])
    assert (done.exit_code, done.stdout) == (code, said)


@pytest.mark.parametrize(
    ("old", "level"), [("fold", "content"), ("shape", "content"), ("bytes", "bytes"), ("clock", "bytes")]
)
def test_old_level_names_are_accepted(tmp_path: Path, old: str, level: str) -> None:
    a, b = written(tmp_path / "a.tape", recorded(CALL)), sealed(tmp_path / "b.tape", recorded(CALL))
    done = CliRunner().invoke(app, ["diff", str(a), str(b), "--level", old, "--json"])
    assert (done.exit_code, json.loads(done.stdout)["level"]) == (0, level)


def test_folders_are_compared_by_name(tmp_path: Path) -> None:
    for name, a, b in [("same", SAME, SAME), ("deep/other", SAME, OTHER), ("gone", SAME, None), ("new", None, SAME)]:
        for folder, records in (("a", a), ("b", b)):
            if records is not None:
                written(tmp_path / folder / f"{name}.tape", records)
    done = CliRunner().invoke(app, ["diff", str(tmp_path / "a"), str(tmp_path / "b")])
    assert done.stdout.splitlines() == [
        'deep/other.tape: breaking: stream 1, line 6: text of answer 0 at 3: "Hello" -> "Help"',
        'gone.tape: breaking: stream 1: tape: "present" -> (absent)',
        'new.tape: benign: stream 1: tape: (absent) -> "present"',
    ]
    assert done.exit_code == 2


@pytest.mark.parametrize("bound", [1, 2, 3])
def test_a_long_list_is_cut_and_keeps_its_verdict(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: int) -> None:
    """Every id differs, which is benign, and so does the last text, which is breaking."""
    monkeypatch.setattr(compare_module, "_DIFFERENCES_MAX", bound)
    other = [each.replace(b"chatcmpl-1", b"chatcmpl-2") for each in (TEXT[0], text("p"), *TEXT[2:])]
    a, b = written(tmp_path / "a.tape", SAME), written(tmp_path / "b.tape", recorded(other))
    (pair,) = compare_paths(a, b, "bytes")
    assert pair.verdict == 2
    assert len(pair.differences) <= bound + 1


def test_json_has_the_first_or_all_differences(tmp_path: Path) -> None:
    a, b = written(tmp_path / "a.tape", SAME), written(tmp_path / "b.tape", recorded(CALL))
    first, whole = (
        json.loads(CliRunner().invoke(app, ["diff", str(a), str(b), "--json", *more]).stdout)
        for more in ([], ["--all"])
    )
    assert first["verdict"] == whole["verdict"] == 2
    assert len(first["tapes"][0]["differences"]) == 1
    assert len(whole["tapes"][0]["differences"]) == first["tapes"][0]["count"] > 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["a", "b.tape"], "give two tapes or two folders"),
        (["a", "a"], "neither"),
        (["b.tape", "junk"], "junk: no recording"),
    ],
)
def test_paths_that_cannot_be_compared(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "a").mkdir()
    written(tmp_path / "b.tape", SAME)
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(TapeError, match=said):
        compare_paths(tmp_path / arguments[0], tmp_path / arguments[1], "content")


def test_an_unknown_level_is_bad_usage(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["diff", str(tmp_path), str(tmp_path), "--level", "deep"])
    assert (ended.value.code, capsys.readouterr().err) == (2, "wiretape: --level must be one of content, bytes\n")


# -- recheck ----------------------------------------------------------------------------------------------------------

LIVE = live(recorded(TEXT))
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
        (live(recorded(TEXT, ending="truncated")), [(1, "ending", "truncated", "completed")]),
        # Flags of the proxy are not compared.
        (live(with_flags(recorded(TEXT), "untaped")), []),
        (live(recorded(TEXT)[:-1]), []),
        (live(recorded([b"{}"], dialect="", body=True, ending="reset")), []),
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


def test_recheck_reports_changed_and_unreadable_tapes(tmp_path: Path) -> None:
    old, good, running, junk = (tmp_path / f"{name}.tape" for name in ("a", "b", "c", "d"))
    unfinished = live(recorded(TEXT, ending="truncated"))
    for path, data in ((old, OLD), (good, SEALED), (running, unfinished), (junk, b"junk\n")):
        path.write_bytes(data)
    done = CliRunner().invoke(app, ["recheck", str(tmp_path)])
    assert done.exit_code == 1
    *lines, summary = done.stdout.splitlines()
    assert lines[0] == f'{old}: stream 1: ending: "truncated" -> "completed"'
    assert lines[1] == f'{running}: stream 1: ending: "truncated" -> "completed"'
    assert lines[2].startswith(f"{junk}: byte 0")
    assert summary == "4 tapes, 5 streams, 2 changed, 1 unreadable"
    assert CliRunner().invoke(app, ["seal", str(old), "-o", str(old)]).exit_code == 0
    running.unlink()
    junk.unlink()
    assert CliRunner().invoke(app, ["recheck", str(tmp_path)]).exit_code == 0


def test_json_output(tmp_path: Path) -> None:
    (tmp_path / "a.tape").write_bytes(OLD)
    said = json.loads(CliRunner().invoke(app, ["recheck", str(tmp_path), "--json"]).stdout)
    (one,) = said["files"]
    assert (one["streams"], one["differences"][0]["path"]) == (2, "ending")


def test_an_empty_folder_is_an_error_also_under_the_old_name_of_the_verb(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["refold", str(tmp_path)])
    assert "no .tape file found" in str(done.exception)
