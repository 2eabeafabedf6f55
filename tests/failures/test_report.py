"""docs/internals/failures.md names the tests that there are, and every case that is claimed has one."""

import pytest

from tests.failures.report import CASES, DOCUMENT, WITHOUT, collected, document, named

AGAIN = "run `make failures`"


@pytest.mark.slow  # it collects them in a process of its own
def test_the_document_names_the_tests_that_there_are() -> None:
    tests = collected()
    assert set(tests) <= set(CASES), "a mark names a case that is not on the list"
    written = named(DOCUMENT.read_text(encoding="utf-8"))
    assert set(written) == set(CASES), AGAIN
    assert {case: names for case, names in written.items() if names} == tests, AGAIN


def test_every_case_of_an_upstream_is_shown() -> None:
    written = named(DOCUMENT.read_text(encoding="utf-8"))
    missing = {case for case, names in written.items() if case.startswith("U") and not names}
    assert missing <= set(WITHOUT)


def test_no_case_of_an_upstream_failed_when_the_document_was_written() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    assert not [line for line in lines if line.startswith("| U") and (" failed" in line or " skipped" in line)]


def test_the_table_reads_back_what_was_written() -> None:
    made = document({"U01": {"test_a.py::test_b": ["passed", "failed"]}})
    assert named(made)["U01"] == {"test_a.py::test_b"}
    assert named(made)["U02"] == set()
    assert "| 1 failed, 1 passed |" in made, "what failed is seen"
