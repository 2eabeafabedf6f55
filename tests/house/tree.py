"""The repository for the tests of this folder: top-level packages, their modules, the files git knows."""

import ast
import functools
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

PACKAGE = "proxy/wiretape/"
"""The folder that is installed as the package `wiretape` itself."""

ROOMS = ("events", "proxy", "replay")
"""A top-level package imports only itself and those before it."""


@dataclass(frozen=True, slots=True)
class Module:
    """A Python file of the product."""

    path: Path

    @property
    def place(self) -> str:
        """Return its path in the repository, as in events/wire/sse.py."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def room(self) -> str:
        return self.place.partition("/")[0]

    @property
    def name(self) -> str:
        """Return its import name; a package has the name of its folder."""
        return installed(self.place).removesuffix(".py").replace("/", ".").removesuffix(".__init__")

    @property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @property
    def syntax(self) -> ast.Module:
        return ast.parse(self.source, self.place)


def installed(place: str) -> str:
    """Return where the wheel has a file of the product."""
    return f"wiretape/{place.removeprefix(PACKAGE)}"


@functools.cache
def modules() -> tuple[Module, ...]:
    """Return every Python file of the product, committed or not."""
    return tuple(Module(path) for room in ROOMS for path in sorted((ROOT / room).rglob("*.py")))


@functools.cache
def tracked() -> tuple[str, ...]:
    """Return the files in git."""
    return _listed()


@functools.cache
def present() -> tuple[str, ...]:
    """Return the files in git and the new ones it does not ignore."""
    return _listed("--cached", "--others", "--exclude-standard")


def _listed(*options: str) -> tuple[str, ...]:
    command = ["git", "ls-files", "-z", *options]
    listing = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return tuple(place for place in listing.split("\0") if (ROOT / place).is_file())
