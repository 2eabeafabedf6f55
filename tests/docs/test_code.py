"""The Python, JavaScript and shell examples of the documents run as they are printed."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from tests.docs import agent
from tests.docs.blocks import blocks_of, pages_with, text_of
from tests.docs.world import TUTORIAL, choose
from tests.house.tree import ROOT
from wiretape.replay.pytest_plugin import plan, plugin
from wiretape.replay.pytest_plugin.thread import Thread

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

TAPE = ROOT / "tests/stories/tapes/weather.tape"
#: Examples that are tests of the user. The others are definitions, which only have to run.
TESTS = ("README.md", "docs/guides/pytest.md", "docs/guides/failures.md")
PRELUDE = """
import httpx, os, pytest
from agent import WEATHER, ask_weather, run_agent

def make_thread(base_url):
    return base_url

def delete_thread(base_url):
    assert "scarf" in ask_weather(base_url)

"""
#: A test for the fixture `thread`, which its page shows without one.
LAST = """
def test_thread(thread):
    assert "scarf" in ask_weather(thread)
"""
RECORDING = """
import pytest
from agent import ask_weather, run_agent

def test_agent(tape):
    assert run_agent(tape.url) == ["get_weather"]

def test_weather(tape):
    ask_weather(tape.url)

def test_thread(tape):
    ask_weather(tape.url), ask_weather(tape.url)
"""
#: The recording that each example replays.
TAPES = {
    "test_it/test_agent": "test_agent",
    "test_it/test_weather": "test_weather",
    "test_it/test_thread": "test_thread",
    "test_it/test_cut_call_never_runs": "test_agent",
    "test_it/test_agent_retries": "test_agent",
    "test_it/test_no_call_runs_with_partial_arguments": "test_agent",
    "slow": "test_weather",
    "weather": "test_agent",
}


def run(folder: Path, *command: str) -> str:
    """Run a command with `wiretape` on the path; return stdout, and fail on any stderr."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


def example(language: str) -> str:
    (block,) = blocks_of("docs/guides/other-languages.md", language)
    return block.text


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tapes").mkdir()
    shutil.copyfile(TAPE, tmp_path / "tapes/weather.tape")
    return tmp_path


@pytest.fixture
def upstream() -> Iterator[str]:
    thread = Thread()
    url = f"{thread.serve('up', choose)}/v1"
    agent.ask_weather(url)  # httpx imports httpcore late; before `pytester`, which forgets later imports
    yield url
    thread.close()


@pytest.mark.parametrize("page", TESTS)
def test_examples_are_tests_that_pass(page: str, upstream: str, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(agent=Path(agent.__file__).read_text(encoding="utf-8"), test_record=RECORDING)
    pytester.syspathinsert()
    options = ["-p", "no:cacheprovider", "-o", "trio_mode=true", "-W", "error"]
    recorded = pytester.runpytest_inprocess(*options, "--tape=rewrite", f"--tape-upstream={upstream}")
    recorded.assert_outcomes(passed=3)
    (pytester.path / "test_record.py").unlink()
    folder = pytester.path / "tapes"
    (folder / "test_it").mkdir()
    for name, recording in TAPES.items():
        shutil.copyfile(folder / f"test_record/{recording}.tape", folder / f"{name}.tape")
    module = PRELUDE
    for block in blocks_of(page, "python"):
        if block.file:
            pytester.makepyfile(**{Path(block.file).stem: block.text})
        else:
            module += f"\n\n{block.text}"
    pytester.makepyfile(test_it=module + LAST * ("def thread(" in module))
    expected = len(re.findall(r"^(?:async )?def test_", module, re.MULTILINE))
    replayed = pytester.runpytest_inprocess(*options, "--tape=replay", "--tape-env")
    outcomes = replayed.parseoutcomes()
    assert outcomes.keys() == {"passed"}
    assert outcomes["passed"] >= expected > 0


@pytest.mark.parametrize("page", [page for page in pages_with("python") if page not in (*TESTS, *TUTORIAL)])
def test_other_examples_are_definitions_that_run(page: str) -> None:
    for block in blocks_of(page, "python"):
        exec(compile(block.text, f"{page}:{block.line}", "exec"), {})  # noqa: S102 - our own documentation


@pytest.mark.skipif(shutil.which("node") is None, reason="UNTESTED: no node found")
def test_node_example(folder: Path) -> None:
    (folder / "weather.test.mjs").write_text(example("js"), encoding="utf-8")
    run(folder, "node", "--test", "weather.test.mjs")


def test_curl_example(folder: Path) -> None:
    (folder / "ask.sh").write_text(example("sh"), encoding="utf-8")
    said = run(folder, "sh", "ask.sh")
    assert "scarf" in said
    assert said.endswith("data: [DONE]\n\n")


def test_every_option_and_every_word_of_the_marker_is_documented() -> None:
    document = text_of("docs/reference/pytest.md")
    signature = plugin._MARKER.partition(":")[0]  # pyright: ignore[reportPrivateUsage] - compared with the document
    assert f"@pytest.mark.{signature}" in document
    assert set(re.findall(r"(\w+)=", signature)) == plan._WORDS  # pyright: ignore[reportPrivateUsage] - see above
    for name in plugin._SETTINGS:  # pyright: ignore[reportPrivateUsage] - see above
        assert f"`--{name.replace('_', '-')}" in document
        assert f"`{name}`" in document
    for mode in get_args(plan.Mode):
        assert f"| `{mode}` |" in document
