"""Every command of the documents runs, in the order of its page, and prints what the page shows."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.blocks import BY_CI, PAGES, blocks_of, like, pages_with, shows, text_of, values_of
from tests.docs.world import World, environment, made, script_of, world

pytestmark = pytest.mark.slow

#: A last command after those of a page, for the output that the page describes in a block of its own.
LAST = {
    "docs/replay.md": """python -c 'import sys, httpx, agent
rain = [{"role": "user", "content": "rain"}]
httpx.post(f"{sys.argv[1]}/chat/completions", json={**agent.WEATHER, "tools": agent.TOOLS, "messages": rain})
' "$(head -n 1 "$OUT/0")" """,
    "docs/sealed-tapes.md": """cat tapes/weather.tape >"$OUT/last" """,
}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.mark.parametrize("page", pages_with("console"))
def test_commands_of_a_page_work_as_printed(page: str, running: World, tmp_path: Path) -> None:
    made(tmp_path, page, running.weather)
    (tmp_path / "out").mkdir()
    script, commands = script_of(page, running, tmp_path)
    environ = {**environment(tmp_path, running.data), "OUT": str(tmp_path / "out"), "LAST": LAST.get(page, "")}
    subprocess.run(["bash", "-c", script], cwd=tmp_path, env=environ, check=True, timeout=120, capture_output=True)
    for number, (block, command, output) in enumerate(commands):
        printed = (tmp_path / f"out/{number}").read_text(encoding="utf-8")
        code = int((tmp_path / f"out/{number}.code").read_text())
        assert code == block.exit_code, f"{page}:{block.line}: {command}\n{printed}"
        assert shows(printed, output), f"{page}:{block.line}: {command}\n{printed}"
    everything = "\n".join(file.read_text(encoding="utf-8") for file in sorted((tmp_path / "out").glob("*[0-9rt]")))
    for block in blocks_of(page, "text"):
        assert shows(everything, block.text), f"{page}:{block.line}: {everything}"
    values = [value for line in everything.splitlines() if line.startswith("{") for value in values_of(line)]
    for block in blocks_of(page, "json"):
        for value in values_of(block.text):
            assert any(like(value, each) for each in values), f"{page}:{block.line}: {value}"


def test_slow_commands_run_in_ci_and_so_does_the_demo() -> None:
    commands = [
        command.partition("#")[0].strip()
        for page in PAGES
        for block in blocks_of(page, "console")
        if block.note == BY_CI
        for command, _ in block.commands()
    ]
    assert commands
    lines = text_of(".ci/run")
    for command in [*commands, "make demo"]:
        assert re.search(rf"^(timeout \d+ )?{command}\b", lines, re.MULTILINE), command
