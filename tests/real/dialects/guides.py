"""Runs the commands of docs/guides/clients with the real programs: `python -m tests.real.dialects.guides`.

The default suite runs what needs only Wiretape; the blocks that need a program say so, and are run here.
"""

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, NamedTuple

import trio

from tests.docs.blocks import NOT_RUN, PAGES, blocks_of
from wiretape.replay.playback.script import Request, Script, Step, json_answer
from wiretape.replay.playback.server import listening

from ..clients import KEY
from ..processes import NODE_MODULES, OPENCODE, PYTHONS, ROOT, RUN, environment, wiretape
from ..report import say
from .agents import CLAUDE, CODEX, NODE_NEW
from .turns import Call, Part, Text, chat, chat_whole

_EXAMPLES: Final = ROOT / "docs/examples/clients"
_ANSWER: Final = "18 degrees, and no rain before nine."
_TIMEOUT_S: Final = 120

#: The programs that blocks need, with the command's name and what must be installed.
_PROGRAMS: Final[dict[str, tuple[str, Path]]] = {
    "codex": ("codex", CODEX),
    "claude": ("claude", CLAUDE),
    "opencode": ("opencode", OPENCODE),
    "openai-agents": ("python", PYTHONS["agents"]),
    "ai": ("node", NODE_NEW),
}


class Command(NamedTuple):
    """One command of a page."""

    page: str
    needs: str
    words: str


def commands() -> Iterator[Command]:
    """Yield the commands that need a program."""
    for page in PAGES:
        if page.startswith("docs/guides/clients/"):
            for block in blocks_of(page, "console"):
                needs = block.note.removeprefix(f"{NOT_RUN}needs ")
                if needs in _PROGRAMS:
                    yield from (Command(page, needs, words) for words, _ in block.commands())


def _provider(request: Request) -> Script:
    """Call the example's tool once, then answer; it speaks only chat completions."""
    if not request.target.endswith(b"/chat/completions"):
        return json_answer(b'{"detail":"Not Found"}', 404)
    body: dict[str, Any] = json.loads(request.body)
    names = [tool["function"]["name"] for tool in body.get("tools", [])]
    parts: list[Part] = [Text(_ANSWER)]
    if "get_weather" in names and body["messages"][-1]["role"] != "tool":
        parts = [Call("call_1", "get_weather", '{"city":"Paris"}')]
    if not body.get("stream"):
        return json_answer(json.dumps(chat_whole(body["model"], parts)).encode())
    return Script(steps=[Step(0, frame.data) for frame in chat(body["model"], parts)])


def _made(folder: Path, url: str) -> dict[str, str]:
    """Fill the folder in which a page's commands run; return their environment."""
    for name, program in _PROGRAMS.values():
        shim = folder / "bin" / name
        shim.parent.mkdir(exist_ok=True)
        shim.write_text(f'#!/bin/sh\nexec {program} "$@"\n', encoding="utf-8")
        shim.chmod(0o755)
    for there in (folder / "docs/examples/clients", folder, folder / ".codex"):
        there.mkdir(parents=True, exist_ok=True)
        for example in _EXAMPLES.iterdir():
            text = example.read_text(encoding="utf-8").replace("http://127.0.0.1:8787", url)
            (there / example.name).write_text(text, encoding="utf-8")
    (folder / "node_modules").symlink_to(NODE_MODULES.parents[1] / "node22/node_modules")
    return environment(
        PATH=f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        HOME=str(folder),
        API_KEY=KEY,
        OPENCODE_DISABLE_MODELS_FETCH="1",
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
    )


async def _works(command: Command, url: str) -> bool:
    """Run one command as a person would; return whether it shows the answer."""
    with TemporaryDirectory() as folder:
        env = _made(Path(folder), url)
        words = command.words.replace("http://127.0.0.1:8787", url)
        done = await trio.run_process(
            ["timeout", "-k", "1", str(_TIMEOUT_S), "sh", "-c", words],
            stdin=b"", capture_stdout=True, capture_stderr=True, check=False, cwd=folder, env=env,
        )  # fmt: skip
    out, err = (each.decode(errors="replace") for each in (done.stdout, done.stderr))
    good = done.returncode == 0 and _ANSWER in out
    say(f"{command.page} | {command.words[:60]} | {'works' if good else done.returncode}")
    if not good:
        say(out[-500:] + err[-1500:])
    return good


async def _run(asked: Sequence[Command]) -> int:
    async with (
        listening(_provider) as (upstream, _),
        wiretape("guides-wiretape", RUN / "guides-tapes", "--upstream", upstream) as url,
    ):
        return sum([not await _works(command, url) for command in asked])


def main() -> int:
    """Run all commands, or those of some programs; return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.dialects.guides", description=__doc__)
    parser.add_argument("needs", nargs="*", help=f"of {', '.join(_PROGRAMS)}")
    names: list[str] = parser.parse_args().needs
    asked = [each for each in commands() if not names or each.needs in names]
    lack = sorted({str(_PROGRAMS[each.needs][1]) for each in asked if not _PROGRAMS[each.needs][1].exists()})
    if lack or not asked:
        sys.exit(f"not installed: {', '.join(lack)}")
    shutil.rmtree(RUN / "guides-tapes", ignore_errors=True)
    RUN.mkdir(parents=True, exist_ok=True)
    wrong = trio.run(_run, asked)
    say(f"guides: {len(asked)} commands, {wrong} do not work")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
