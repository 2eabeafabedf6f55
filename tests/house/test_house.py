"""Rules for the repository: top level, locks, decisions, and no machine-specific paths."""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.house.tree import ROOT, present, tracked

# fmt: off
TOP_LEVEL = frozenset({
    "events", "proxy", "replay", "tests", "fixtures", "docs", "deploy", ".ci",
    "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "LICENSE",
    "mkdocs.yml", "pyproject.toml", "setup.cfg", "MANIFEST.in", "Makefile", "requirements.txt", "requirements-dev.txt",
    ".gitignore", ".gitattributes", ".pre-commit-hooks.yaml",
})
# fmt: on
LOCKS = ("requirements.txt", "requirements-dev.txt", "tests/real/requirements/lowest.txt")

FILE_BYTES_MAX = 1024 * 1024
"""Git keeps every version of a file forever."""

# Assembled from parts so that this file does not match itself.
REGISTRY = re.compile(r"\b(pypi|pythonhosted|npmjs)" + r"\.(org|com)\b")
MACHINE_PATH = re.compile(r"(?<![\w.:/}])/(root|home|work|Users)/\w")

DECISION = re.compile(r"\d{4}-\d{2}-\d{2}-[a-z0-9-]+\.md")
DECISION_PARTS = ("Context", "Choice", "Price", "When to revisit")


def texts() -> Iterator[tuple[str, str]]:
    for place in tracked():
        content = (ROOT / place).read_bytes()
        if b"\0" not in content:
            yield place, content.decode("utf-8", errors="replace")


def test_top_level_has_only_known_entries() -> None:
    assert {place.partition("/")[0] for place in tracked()} <= TOP_LEVEL


def test_no_file_names_a_registry_or_a_path_of_this_machine() -> None:
    found = [
        f"{place}:{number}"
        for place, text in texts()
        for number, line in enumerate(text.splitlines(), 1)
        if REGISTRY.search(line) or MACHINE_PATH.search(line)
    ]
    assert found == []


def test_no_file_is_large_or_a_symlink() -> None:
    """A clone without symlink support turns them into text files and builds an empty wheel."""
    assert [place for place in tracked() if (ROOT / place).is_symlink()] == []
    assert [place for place in tracked() if (ROOT / place).stat().st_size > FILE_BYTES_MAX] == []


def requirements(lock: str) -> list[str]:
    """Return each requirement of a lock with its hashes on one line."""
    lines = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def pins(lines: list[str]) -> set[tuple[str, str]]:
    return {(found[1], found[2]) for line in lines if (found := re.match(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", line))}


@pytest.mark.parametrize("lock", LOCKS)
def test_locks_pin_and_hash_everything_and_name_no_index(lock: str) -> None:
    assert [
        line for line in requirements(lock) if not re.match(r"[\w.-]+==\S+ .*--hash=sha256:[0-9a-f]{64}", line)
    ] == []
    assert "://" not in (ROOT / lock).read_text(encoding="utf-8")


def test_locks_agree_with_pyproject_and_each_other() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    runtime, development, lowest = (pins(requirements(lock)) for lock in LOCKS)
    for lock in (runtime, lowest):
        for needed in map(Requirement, project["dependencies"]):
            assert any(name == needed.name and version in needed.specifier for name, version in lock), "`make lock`"
    assert runtime <= development, "`make lock`"
    assert pins(project["optional-dependencies"]["dev"]) <= development, "`make lock`"


@pytest.mark.parametrize("place", ["CONTRIBUTING.md", ".ci/run"])
def test_documented_make_targets_exist(place: str) -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    written = re.findall(r"(?:`|^\s*)make ([a-z-]+)", (ROOT / place).read_text(encoding="utf-8"), re.MULTILINE)
    assert written
    assert set(written) <= targets


@pytest.mark.parametrize("place", [place for place in present() if place.startswith("docs/decisions/2")])
def test_decisions_have_their_four_parts(place: str) -> None:
    assert DECISION.fullmatch(place.removeprefix("docs/decisions/"))
    headings = re.findall(r"^## (.+)$", (ROOT / place).read_text(encoding="utf-8"), re.MULTILINE)
    assert tuple(headings) == DECISION_PARTS


#: What makes the interpreter of these tests look like one that cannot make an environment, and the reason given.
INTERPRETERS = {
    "too old": ("sys.version_info = (3, 10, 13, 'final', 0)", "is Python 3.10."),
    "too new": ("sys.version_info = (3, 14, 0, 'final', 0)", "is Python 3.14."),
    "without ensurepip": ("sys.modules['ensurepip'] = None", "does not run or has no venv "),
    "broken": ("sys.exit(127)", "does not run or has no venv "),
}


def test_make_and_the_package_agree_on_the_supported_versions() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "(3, 11) <= v <= (3, 13)" in (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.mark.parametrize("target", ["demo", "install", "test"])
@pytest.mark.parametrize("kind", INTERPRETERS)
def test_make_refuses_an_unsuitable_interpreter_in_one_line(tmp_path: Path, kind: str, target: str) -> None:
    pretends, reason = INTERPRETERS[kind]
    for name in ("Makefile", *LOCKS[:2]):
        shutil.copy(ROOT / name, tmp_path)
    interpreter = tmp_path / "python3.x"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} -c "import sys; {pretends}; exec(sys.argv[2])" "$@"\n')
    interpreter.chmod(0o755)
    environ = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", target, f"PYTHON={interpreter}"]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert "Wiretape needs Python 3.11, 3.12 or 3.13 with venv, and " in done.stderr
    assert f"{interpreter} {reason}" in done.stderr
    assert f"make {target} PYTHON=python3.12" in done.stderr
