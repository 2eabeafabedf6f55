"""Unused tapes, from what each worker of a run collected."""

from pathlib import Path

import pytest

from wiretape.replay.pytest_plugin.unused import Claims


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("test_a.py", "test_b.py", "tapes/test_a/x.tape", "tapes/test_b/y.tape", "tapes/loose.tape"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


def claims(folder: Path, **modules: list[str]) -> Claims:
    made = Claims()
    tests = [(folder / f"{name}.py", [folder / "tapes" / file for file in files]) for name, files in modules.items()]
    made.collect(tests, whole=True)
    return made


def unused(folder: Path, made: Claims) -> list[str]:
    return [str(file.relative_to(folder / "tapes")) for file in made.unused()]


def test_module_that_was_not_collected_may_have_tapes(folder: Path) -> None:
    assert unused(folder, claims(folder, test_a=["test_a/x.tape"])) == []
    assert unused(folder, claims(folder, test_a=[])) == ["test_a/x.tape"]


def test_files_outside_a_folder_may_belong_to_any_module(folder: Path) -> None:
    assert unused(folder, claims(folder, test_a=["test_a/x.tape"], test_b=["test_b/y.tape"])) == ["loose.tape"]


def test_removed_module_has_no_tapes(folder: Path) -> None:
    (folder / "test_b.py").unlink()
    assert unused(folder, claims(folder, test_a=["test_a/x.tape", "loose.tape"])) == ["test_b/y.tape"]


def test_claims_of_workers_add_up(folder: Path) -> None:
    whole = Claims()
    whole.add(claims(folder, test_a=["test_a/x.tape"]).to_json())
    whole.add(claims(folder, test_b=["test_b/y.tape", "loose.tape"]).to_json())
    assert unused(folder, whole) == []


def test_single_tests_report_nothing(folder: Path) -> None:
    made = claims(folder, test_a=[])
    made.collect([], whole=False)
    assert made.unused() == []
