"""Follow README.md and the tutorial to the letter, as a new user: `python -m tests.docs.newcomer` (or `make newcomer`).

Each is run in an empty home with the real uv, uvx and pipx and the wheel of this tree, found through UV_FIND_LINKS
until it is published. Prints when each command was done, and fails if a command does not print what its page shows.
"""

import os
import shutil
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.docs.world import SCRIPTS, TUTORIAL, check, choose, commands_of, filled, free_ports, made, ran, script_of
from tests.house.tree import ROOT, present
from wiretape.replay.pytest_plugin.thread import Thread

#: What the reader of the README runs where it says "Run your program".
PROGRAM: Final = """curl -s "$OPENAI_BASE_URL/chat/completions" -H 'Content-Type: application/json' \\
    -H "Authorization: Bearer $OPENAI_API_KEY" -d '{"model":"gpt-4o","stream":true,"messages":[]}'"""
#: Seconds in which a reader of the README has seen the demo, and one of the tutorial has a passing test.
LIMITS_S: Final = {"README.md": 180, "the tutorial": 600}


def built(folder: Path) -> Path:
    """Build the wheel from a copy, because a build leaves files in the tree; return its folder."""
    for place in present():
        (folder / "tree" / place).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / place, folder / "tree" / place)
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder / "wheel"), "."]
    subprocess.run(command, cwd=folder / "tree", check=True, stdout=subprocess.DEVNULL)
    return folder / "wheel"


def machine(folder: Path, wheel: Path, port: int) -> dict[str, str]:
    """Return the environment of a machine that has uv, pipx, a shell and nothing of Wiretape."""
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/wiretape").unlink(missing_ok=True)
    # Not UV_PYTHON: `uv pip install` would install into that interpreter.
    python = Path(sys.executable).resolve()
    for name, target in {"uv": SCRIPTS / "uv", "uvx": SCRIPTS / "uvx", "python3": python}.items():
        (folder / "bin" / name).unlink(missing_ok=True)
        (folder / "bin" / name).symlink_to(target)
    (folder / "bin/pipx").write_text('#!/bin/sh\nexec uvx -q pipx "$@"\n')
    own = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "LANG"))}
    return {
        **own,
        "PATH": os.pathsep.join([str(folder / "bin"), str(folder / ".local/bin"), "/usr/bin", "/bin"]),
        "HOME": str(folder),
        "UV_CACHE_DIR": f"{folder}-cache",
        "UV_FIND_LINKS": f"{wheel} {own.get('UV_FIND_LINKS', '')}".strip(),
        "PIP_FIND_LINKS": f"{wheel} {own.get('PIP_FIND_LINKS', '')}".strip(),
        "PIPX_DEFAULT_PYTHON": str(python),
        "WIRETAPE_PORT": str(port),
        "OPENAI_API_KEY": "sk-of-a-new-user",
        "COLUMNS": "200",
        "BROWSER": "true",
    }


def followed(name: str, pages: tuple[str, ...], upstream: str, wheel: Path, folder: Path) -> None:
    """Run the commands of some pages in order, and print a stopwatch."""
    if pages == ("README.md",):
        made(folder, pages[0])
    provider, proxy = free_ports(2)
    commands = commands_of(*pages)
    if pages == ("README.md",):
        after = next(number for number, (_, command, _) in enumerate(commands, 1) if command.startswith("export "))
        commands.insert(after, (commands[after - 1][0], PROGRAM, ""))
    script = script_of(commands, partial(filled, upstream=upstream, provider=provider, proxy=proxy))
    start = time.time()
    out = ran(script, folder, {**machine(folder, wheel, proxy), "LAST": ""})
    print(f"\n{name}")
    for number, (block, command, _) in enumerate(commands):
        seconds = (out / f"{number}.code").stat().st_mtime - start
        print(f"{seconds:7.1f} s  {block.page}:{block.line}  {command.splitlines()[0]}")
    check(out, commands, *pages)
    assert time.time() - start < LIMITS_S[name], name


def main() -> None:
    thread = Thread()
    with TemporaryDirectory(prefix="newcomer-") as name:
        folder = Path(name)
        try:
            wheel, upstream = built(folder), f"{thread.serve('up', choose)}/v1"
            for each, pages in {"README.md": ("README.md",), "the tutorial": TUTORIAL}.items():
                home = folder / pages[0].replace("/", "-")
                home.mkdir()
                followed(each, pages, upstream, wheel, home)
        finally:
            thread.close()


if __name__ == "__main__":
    main()
