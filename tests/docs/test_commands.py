"""Every command of the documents runs, in the order of its page, and prints what the page shows."""

import os
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.docs.blocks import BY_CI, PAGES, blocks_of, pages_with, text_of
from tests.docs.world import (
    TUTORIAL,
    World,
    check,
    commands_of,
    environment,
    made,
    ran,
    script_of,
    world,
)

pytestmark = pytest.mark.slow

#: A last command after those of a page, for the output that the page describes in a block of its own.
LAST = {
    "docs/reference/replay.md": """python -c 'import sys, httpx, agent
rain = [{"role": "user", "content": "rain"}]
httpx.post(f"{sys.argv[1]}/chat/completions", json={**agent.WEATHER, "tools": agent.TOOLS, "messages": rain})
' "$(head -n 1 "$OUT/0")" """,
    "docs/reference/sealed-tapes.md": """cat tapes/weather.tape >"$OUT/last" """,
}


#: The pages whose commands run: README.md; with `make test-docs` all but the tutorial, which `make newcomer` follows.
RUN = [page for page in pages_with("console") if page not in TUTORIAL] if os.environ.get("DOCUMENTS") else ["README.md"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with world(tmp_path_factory.mktemp("world")) as running:
        yield running


@pytest.mark.parametrize("page", RUN)
def test_commands_of_a_page_work_as_printed(page: str, running: World, tmp_path: Path) -> None:
    made(tmp_path, page, running.weather)
    commands = commands_of(page)
    environ = environment(tmp_path, running.data) | {"LAST": LAST.get(page, "")}
    script = script_of(commands, partial(running.filled, folder=tmp_path), running)
    check(ran(script, tmp_path, environ), commands, page)


def test_slow_commands_run_in_ci() -> None:
    commands = [
        command.partition("#")[0].strip()
        for page in PAGES
        for block in blocks_of(page, "console")
        if block.note == BY_CI
        for command, _ in block.commands()
    ]
    assert commands
    lines = text_of(".ci/run")
    for command in commands:
        assert re.search(rf"^(timeout \d+ )?{command}\b", lines, re.MULTILINE), command
