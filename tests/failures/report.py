"""The test of each failure case and its result: `make failures` runs them and writes docs/internals/failures.md

A test says its cases with `@pytest.mark.case("U07")`, at the function or at one of its rows. As a plugin of pytest
(`-p tests.failures.report`) this file writes down how they came out; `collected` finds them without running them.
"""

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import pytest

_ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = _ROOT / "docs" / "internals" / "failures.md"
#: Where tests name cases, as `make failures` has them.
_ELSEWHERE: Final = ("cancel_sweep", "durability", "processes", "recovery")
_PLACES: Final = ("tests/failures", *[f"tests/proxy/test_{room}.py" for room in _ELSEWHERE])
_COLLECTED: Final = "-- cases --"
_CASE: Final = "wiretape-case"

_ROW: Final = re.compile(r"^\| ([A-Z]\d\d) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", re.MULTILINE)


class Outcomes:
    """What pytest says of every test that names a case."""

    def __init__(self) -> None:
        #: Case to test (`file::function`) to the outcomes of its rows.
        self.tests: dict[str, dict[str, list[str]]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Also where nothing is run."""
        for item in items:
            cases = sorted({str(case) for mark in item.iter_markers("case") for case in mark.args})
            name = f"{item.path.name}::{item.nodeid.partition('::')[2].partition('[')[0]}"
            item.user_properties += [(_CASE, f"{case} {name}") for case in cases]  # which a worker passes on
            for case in cases:
                self.tests.setdefault(case, {}).setdefault(name, [])

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """One word a row: of its call, or of what kept it from being called."""
        if report.when == "call" or report.outcome != "passed":
            for key, value in report.user_properties:
                if key == _CASE:
                    case, _, name = str(value).partition(" ")
                    self.tests.setdefault(case, {}).setdefault(name, []).append(report.outcome)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """The document, or for `--collect-only` the same tests on stdout."""
        if session.config.option.collectonly:
            lines = [f"{case} {name}" for case, tests in sorted(self.tests.items()) for name in sorted(tests)]
            sys.stdout.write("\n".join([_COLLECTED, *lines, ""]))
        elif not hasattr(session.config, "workerinput"):
            DOCUMENT.write_text(document(DOCUMENT.read_text(encoding="utf-8"), self.tests), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """As a plugin."""
    config.pluginmanager.register(Outcomes(), "wiretape-failures")


def document(page: str, tests: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Return the page with these tests and outcomes. Its cases, and why some have no test, are written by hand."""

    def row(found: re.Match[str]) -> str:
        case, what, before, _ = found.groups()
        rows = tests.get(case, {})
        names = ", ".join(f"`{name}`" for name in sorted(rows)) or ("none yet" if "`test_" in before else before)
        outcomes = Counter(outcome for each in rows.values() for outcome in each)
        said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())) or "-"
        return f"| {case} | {what} | {names} | {said} |"

    cases = {case for case, *_ in _ROW.findall(page)}
    shown = f"{len(cases & tests.keys())} of {len(cases)} cases have tests"
    return _ROW.sub(row, re.sub(r"\d+ of \d+ cases have tests", shown, page))


def collected() -> dict[str, set[str]]:
    """The tests of each case, as pytest finds them."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "--quiet", "--quiet", "-p", "tests.failures.report"]
    found = subprocess.run(
        [*command, "-p", "no:cacheprovider", *_PLACES], cwd=_ROOT, check=True, capture_output=True, text=True
    ).stdout
    tests: dict[str, set[str]] = {}
    for line in found.partition(_COLLECTED)[2].splitlines():
        case, _, name = line.partition(" ")
        if re.fullmatch(r"[A-Z]\d\d", case):  # other rows may have a note after the case
            tests.setdefault(case, set()).add(name)
    return tests


def named(page: str) -> dict[str, set[str]]:
    """Return the tests of each case, as the document names them."""
    return {case: set(re.findall(r"`([^`]+::[^`]+)`", tests)) for case, _, tests, _ in _ROW.findall(page)}
