"""The plugin as its users run it: projects of a few lines, in runs of pytest of their own."""

from pathlib import Path

import pytest

from tests.support.tapes import conversation, text, write

pytest_plugins = ["pytester"]

#: What a user's client is, in three lines.
CLIENT = """
import httpx, json, pytest

def ask(url, question="hi", **more):
    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": question}], **more}
    return httpx.post(url + "/chat/completions", json=body)
"""
TWO_LINES = (
    CLIENT
    + """
@pytest.mark.tape
def test_weather(tape):
    assert "sunny" in ask(base_url := tape.url).text
"""
)


@pytest.fixture(autouse=True)
def in_ci(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nothing is recorded, wherever our own suite runs."""
    monkeypatch.setenv("CI", "1")


def run(pytester: pytest.Pytester, *options: str) -> pytest.RunResult:
    return pytester.runpytest_inprocess("-p", "no:cacheprovider", "-W", "error", *options)


def project(pytester: pytest.Pytester, source: str, **tapes: bytes) -> Path:
    """One module, and its tapes by the name of their test."""
    module = pytester.makepyfile(test_it=source)
    for name, sealed in tapes.items():
        write(module.parent / "tapes" / "test_it" / f"{name}.tape", sealed)
    return module.parent


def test_a_test_of_two_lines(pytester: pytest.Pytester) -> None:
    project(pytester, TWO_LINES, test_weather=conversation(text("hi", "sunny", " day")))
    run(pytester).assert_outcomes(passed=1)
