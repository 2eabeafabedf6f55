"""The demo ends as planned, and client and tape agree."""

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from wiretape.proxy.cli.main import app
from wiretape.replay.cli.demo import SCENES, played

pytestmark = pytest.mark.slow


async def test_client_and_tape_agree_on_every_scene(tmp_path: Path) -> None:
    text, tools, cut = await played(tmp_path)
    assert [one.tape["ending"] for one in (text, tools, cut)] == [scene.ending for scene in SCENES]

    words = text.client.answer().text.split()
    assert (words[0], text.client.wire.choices[0].finish, text.client.wire.terminated) == ("A", "stop", True)
    assert text.tape["usage"]["completion_tokens"] == len(words)

    assert [call.name for call in tools.client.wire.calls()] == ["read_file", "list_files"]
    assert [call["state"] for call in tools.tape["tools"]] == ["running", "running"]
    assert (tools.client.wire.choices[0].finish, tools.client.wire.error) == ("tool_calls", None)

    assert (cut.client.wire.choices[0].finish, cut.client.wire.terminated) == ("", False)
    assert "write_file was cut short" in str(cut.client.wire.error)
    (call,) = cut.tape["tools"]
    assert (call["name"], call["state"], call["reason"]) == ("write_file", "dropped", "truncated")
    assert call["arguments_chars"] == len(next(cut.client.wire.calls()).arguments)


def test_demo_prints_scenes_and_commands_that_work(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wiretape", "demo", "--data", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(scene.title in done.stdout for scene in SCENES)
    shown = [line.split() for line in done.stdout.splitlines() if " ls " in line or " show " in line]
    assert len(shown) == 3
    for words in shown:
        assert CliRunner().invoke(app, words[1:]).exit_code == 0
