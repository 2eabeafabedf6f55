"""What holds for every run: the install is not stale, random tests can be repeated, a missing corpus is said aloud."""

import importlib.util
import os

import hypothesis
import pytest

from tests.house.tree import ROOT, modules
from tests.support.corpus import ABSENT, corpus_folder

# Deadlines measure the machine. The same commit gives the same answer, unless one asks for fresh examples with
# `--hypothesis-profile fresh`, which prints what repeats a failure; the full laws always do, and ten times as many.
hypothesis.settings.register_profile("fixed", deadline=None, derandomize=True)
hypothesis.settings.register_profile("fresh", deadline=None, print_blob=True)
hypothesis.settings.register_profile("full", deadline=None, print_blob=True, max_examples=1_000)
hypothesis.settings.load_profile("full" if os.environ.get("WIRETAPE_LAWS") == "full" else "fixed")


def pytest_configure() -> None:
    """A strict editable install knows only the files that existed when it was made."""
    for module in modules():
        try:
            found = importlib.util.find_spec(module.name)
        except ImportError:
            found = None
        if found is None or found.origin is None or not module.path.samefile(found.origin):
            raise pytest.UsageError(
                f"{module.name} is not {module.path.relative_to(ROOT)}: install again with `make install`"
            )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """In the summary, because `--quiet` leaves out the header."""
    if corpus_folder() is None:
        terminalreporter.write_sep("!", ABSENT, red=True, bold=True)
