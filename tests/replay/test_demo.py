"""The demo ends as it says, and what the client saw is what the tape says of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from wiretape.replay.cli.demo import SCENES, played


@pytest.mark.slow
async def test_both_sides_of_every_scene(tmp_path: Path) -> None:
    text, tools, cut = await played(tmp_path)
    assert all(one.as_due for one in (text, tools, cut))

    assert (text.saw.message.text().split()[0], text.saw.finish, text.saw.wire.terminated) == ("A", "stop", True)
    assert text.tape["usage"]["completion_tokens"] == len(text.saw.message.text().split())

    assert [name for _, name, _ in tools.saw.tools] == ["read_file", "list_files"]
    assert [call["state"] for call in tools.tape["tools"]] == ["running", "running"]
    assert (tools.saw.finish, tools.saw.error) == ("tool_calls", "")

    assert (cut.saw.finish, cut.saw.wire.terminated) == ("", False)
    assert "write_file was cut short" in cut.saw.error
    (call,) = cut.tape["tools"]
    assert (call["name"], call["state"], call["reason"]) == ("write_file", "dropped", "truncated")
    assert call["arguments_chars"] == len(cut.saw.tools[0][2])


@pytest.mark.slow
def test_the_verb_shows_it_and_where_to_go_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "wiretape.proxy.cli.main"]
    done = subprocess.run(
        [*command, "demo", "--data", tmp_path / "text"], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    for scene in SCENES:
        assert scene.title in done.stdout
    assert f"ls --data {tmp_path / 'text'}" in done.stdout
    for said in (line.split() for line in done.stdout.splitlines() if " show " in line):
        shown = subprocess.run(
            [*command, *said[said.index("show") :]], capture_output=True, text=True, check=False, timeout=60
        )
        assert (shown.returncode, shown.stderr) == (0, "")

    done = subprocess.run(
        [*command, "demo", "--json", "--data", tmp_path / "json"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = json.loads(done.stdout)
    assert [one["tape"]["ending"] for one in found] == [scene.ending for scene in SCENES]
