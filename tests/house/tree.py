"""The repository as the tests of this folder see it: its rooms, their modules, the files that git knows."""

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ROOMS", "ROOT", "Module", "modules", "present", "tracked"]

ROOT = Path(__file__).parents[2]

ROOMS = ("events", "proxy", "replay")
"""From upstream to downstream: a room imports only those before it."""


@dataclass(frozen=True, slots=True)
class Module:
    """One Python file of a room."""

    path: Path

    @property
    def place(self) -> str:
        """As docs/layout.md writes it, and as pytest names the case: events/wire/sse.py"""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def room(self) -> str:
        return self.place.partition("/")[0]

    @property
    def name(self) -> str:
        """wiretape.events.wire.sse; a package is named by its folder."""
        return ".".join(("wiretape", *self.path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def syntax(self) -> ast.Module:
        return ast.parse(self.source, self.place)


@functools.cache
def modules() -> tuple[Module, ...]:
    """Every Python file of the rooms, committed or not."""
    return tuple(Module(path) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))


@functools.cache
def tracked() -> tuple[str, ...]:
    """The files that git holds."""
    return _listed()


@functools.cache
def present() -> tuple[str, ...]:
    """The files that git holds, and those that it would take: what is new and not ignored."""
    return _listed("--cached", "--others", "--exclude-standard")


def _listed(*options: str) -> tuple[str, ...]:
    command = ["git", "ls-files", "-z", *options]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(place for place in listing.split("\0") if (ROOT / place).is_file())
