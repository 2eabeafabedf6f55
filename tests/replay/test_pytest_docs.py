"""The examples of docs/pytest.md run as they are, with the tape of tests/stories."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from tests.house.tree import ROOT
from wiretape.replay.pytest_plugin import plan

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.slow

DOCUMENT = (ROOT / "docs/pytest.md").read_text(encoding="utf-8")
TAPE = ROOT / "tests/stories/tapes/weather.tape"
ASKING = """
import httpx, pytest

def ask_weather(base_url):
    messages = [{"role": "user", "content": "How is the weather in Oslo?"}]
    body = {"model": "scripted-1", "messages": messages, "stream": True}
    return httpx.post(base_url + "/chat/completions", json=body).text

"""


def example(language: str, number: int = 0) -> str:
    return str(re.findall(rf"```{language}\n(.*?)```", DOCUMENT, re.DOTALL)[number])


def run(folder: Path, *command: str) -> str:
    """Run a command with `wiretape` on the path; return stdout, and fail on any stderr."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "tapes").mkdir()
    shutil.copyfile(TAPE, tmp_path / "tapes/weather.tape")
    return tmp_path


def test_python_example(pytester: pytest.Pytester) -> None:
    module = pytester.makepyfile(test_it=ASKING + example("python"))
    (module.parent / "tapes/test_it").mkdir(parents=True)
    shutil.copyfile(TAPE, module.parent / "tapes/test_it/test_weather.tape")
    pytester.runpytest_inprocess("-p", "no:cacheprovider", "--tape=replay").assert_outcomes(passed=1)


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
    words = set(re.findall(r"(\w+)=", re.findall(r"@pytest\.mark\.tape\(\*files, (.*)\)", DOCUMENT)[0]))
    assert words == plan._WORDS  # pyright: ignore[reportPrivateUsage] - compared with the document
    for option in ("--tape=", "--tape-upstream", "--tape-speed", "--tape-max-age", "--tape-check-unused"):
        assert option in DOCUMENT
    for mode in get_args(plan.Mode):
        assert f"| `{mode}` |" in DOCUMENT
