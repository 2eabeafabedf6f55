"""Unused tapes: those of modules that were collected or removed, which no test names."""

from pathlib import Path

import pytest

from wiretape.replay.pytest_plugin.plan import unused

ALL = {"test_a": ["test_a/x.tape"], "test_b": ["test_b/y.tape", "loose.tape"]}


@pytest.mark.parametrize(
    ("collected", "expected"),
    [
        (ALL, []),
        ({**ALL, "test_a": []}, ["test_a/x.tape"]),
        ({**ALL, "test_b": ["test_b/y.tape"]}, ["loose.tape"]),
        # `loose.tape` and what is in test_b may belong to the module that was not collected.
        ({"test_a": ["test_a/x.tape"]}, []),
        ({"test_a": []}, ["test_a/x.tape"]),
    ],
)
def test_file_that_may_belong_to_another_module_is_not_reported(
    tmp_path: Path, collected: dict[str, list[str]], expected: list[str]
) -> None:
    assert found(tmp_path, collected) == expected


def test_removed_module_has_no_tapes(tmp_path: Path) -> None:
    assert found(tmp_path, {"test_a": ["test_a/x.tape", "loose.tape"]}, gone="test_b.py") == ["test_b/y.tape"]


def found(folder: Path, collected: dict[str, list[str]], gone: str = "") -> list[str]:
    for name in ("test_a.py", "test_b.py", "tapes/test_a/x.tape", "tapes/test_b/y.tape", "tapes/loose.tape"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()
    if gone:
        (folder / gone).unlink()
    tapes = folder / "tapes"
    tests = [(folder / f"{name}.py", [tapes / file for file in files]) for name, files in collected.items()]
    return [str(file.relative_to(tapes)) for file in unused(tests)]
