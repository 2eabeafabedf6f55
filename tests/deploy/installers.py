"""Install the wheel of dist/ with uv and pipx as a user would, with the newest dependencies, and uninstall it again."""

import os
import subprocess
import sys
from pathlib import Path

from tests.house.tree import ROOT
from wiretape import __version__


def said(*command: str | Path, **places: Path) -> str:
    environment = os.environ | {name: str(place) for name, place in places.items()}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def check(tools: Path, folder: Path) -> str:
    """Install, run and uninstall with each; return what was seen."""
    (wheel,) = (ROOT / "dist").glob("*.whl")
    uv = [sys.executable, "-m", "uv", "tool"]
    homes = {"UV_TOOL_DIR": folder / "uv", "UV_TOOL_BIN_DIR": folder / "uv/bin"}
    once = said(*uv, "run", "--quiet", "--find-links", wheel.parent, "wiretape", "--version", **homes)
    assert once == f"wiretape {__version__}\n"
    said(*uv, "install", "--quiet", wheel, **homes)
    assert "truncated" in said(folder / "uv/bin/wiretape", "demo", "--data", folder / "demo")
    said(*uv, "uninstall", "--quiet", "wiretape", **homes)

    homes = {f"PIPX_{name}": folder / "pipx" / name for name in ("HOME", "BIN_DIR", "MAN_DIR")}
    said(tools / "pipx", "install", "--quiet", wheel, **homes)
    assert said(homes["PIPX_BIN_DIR"] / "wiretape", "--version") == once
    assert (homes["PIPX_MAN_DIR"] / "man1/wiretape.1").is_file()
    said(tools / "pipx", "uninstall", "wiretape", **homes)

    names = (path.relative_to(folder) for path in folder.rglob("*wiretape*") if path.suffix != ".lock")  # pipx's own
    left = [name for name in names if name.parts[0] != "demo"]
    assert left == [], left
    return "uv tool run, uv tool install and pipx install it, the demo runs, the manual page is linked, nothing is left"
