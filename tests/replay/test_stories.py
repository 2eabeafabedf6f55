"""The users' stories, run as their users would: a project of its own, somewhere else, in a process of its own."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.tree import ROOT

pytestmark = pytest.mark.slow

STORIES = ROOT / "tests/stories"
#: Clients that live in environments of their own: `make stories` runs them too.
ELSEWHERE = ("langchain_python.py", "openai_node.mjs", "anthropic_python.py")
OF_NODE = ("fetch_node.mjs", "openai_node.mjs")


def run(folder: Path, *command: str | Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON"))}
    # A request that leaves loopback fails at this proxy address.
    proxies = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1"}
    return subprocess.run(
        list(command),
        cwd=folder,
        env={**outside, **proxies, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A copy that knows nothing of this repository."""
    return shutil.copytree(STORIES, tmp_path / "stories", ignore=shutil.ignore_patterns("__pycache__"))


def test_stories_pass_outside_the_repository(project: Path) -> None:
    done = run(
        project, sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider",
        CI="1", STORIES_CACHE=str(project / "none"), STORIES_NODE_MODULES=str(project / "none"),
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    untested = set(re.findall(r"UNTESTED: (\S+) needs", done.stdout))
    assert untested <= {*ELSEWHERE, *([] if shutil.which("node") else OF_NODE)}, done.stdout
    assert re.search(r"^2\d passed", done.stdout, re.MULTILINE), done.stdout


def test_recording_again_changes_only_clocks_and_requests(project: Path) -> None:
    """Their provider has other ids each time, and their agent asks on another day."""
    before = {tape.name: tape.read_bytes() for tape in project.glob("tapes/*.tape")}
    done = run(project, sys.executable, "record.py", "-k", "not anthropic")
    assert done.returncode == 0, done.stdout + done.stderr
    for name, old in before.items():
        assert bodies(old) == bodies((project / "tapes" / name).read_bytes()), name


def bodies(sealed: bytes) -> list[bytes]:
    """Return the lines of responses, endings and summaries."""
    kinds = (b'{"k":"frame"', b'{"k":"end"', b'{"k":"fold"', b'{"k":"head"')
    return [line for line in sealed.split(b"\n") if line.startswith(kinds)]
