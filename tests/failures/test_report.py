"""docs/internals/failures.md names the tests of each case, and no case of an upstream is without one."""

import re

import pytest

from tests.failures.report import DOCUMENT, collected, document, named

PAGE = DOCUMENT.read_text(encoding="utf-8")


@pytest.mark.slow  # it collects them in a process of its own
def test_document_names_the_tests_that_exist() -> None:
    tests, written = collected(), named(PAGE)
    assert set(tests) <= set(written), "a mark names a case that is not on the list"
    assert {case: names for case, names in written.items() if names} == tests, "run `make failures`"


def test_every_case_of_an_upstream_is_shown_or_explained_and_none_failed() -> None:
    assert re.findall(r"^\| U.*(?:none yet| failed| skipped).*", PAGE, re.MULTILINE) == []
    assert [case for case, names in named(PAGE).items() if case.startswith("U") and not names] == ["U62"]


def test_table_reads_back_what_was_written() -> None:
    made = document(PAGE, {"U01": {"test_a.py::test_b": ["passed", "failed"]}})
    assert named(made)["U01"] == {"test_a.py::test_b"}
    assert "| 1 failed, 1 passed |" in made
    assert (named(made)["U02"], made.count("| none yet | - |")) == (
        set(),
        len([*filter(None, named(PAGE).values())]) - 1,
    )
    assert "tested with the runs" in made, "a reason written by hand stays"
