"""The real clients: how each is driven, and what each cannot do."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from .places import CACHE, NODE, NODE_MODULES, OPENCODE, PYTHONS, ROOT

__all__ = ["CLIENTS", "Client", "missing", "named", "versions"]

_PYTHON: Final = (PYTHONS["clients"], "-m")


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One program that people use, by the driver that asks with it."""

    name: str
    package: str
    command: tuple[str | Path, ...]
    mode: str = ""
    #: Cannot name the tool that must be called.
    unforced: bool = False
    #: Asks again by itself, and never stops.
    stubborn: bool = False
    #: Its tools are its own: the models that call one of them carry this suffix.
    suffix: str = ""


_OPENAI_PYTHON: Final = (*_PYTHON, "tests.real.drivers.openai_python")
_OPENAI_NODE: Final = ("node", NODE / "openai.mjs")
_OWN: Final = (sys.executable, "-m")

CLIENTS: Final = (
    Client(name="openai Python, loop", package="openai", command=_OPENAI_PYTHON, mode="loop"),
    Client(name="openai Python, helper", package="openai", command=_OPENAI_PYTHON, mode="helper"),
    Client(name="openai Node, loop", package="openai (npm)", command=_OPENAI_NODE, mode="loop"),
    Client(name="openai Node, helper", package="openai (npm)", command=_OPENAI_NODE, mode="helper"),
    Client(
        name="LangChain Python", package="langchain-openai", command=(*_PYTHON, "tests.real.drivers.langchain_python")
    ),
    Client(name="LangChain JavaScript", package="@langchain/openai (npm)", command=("node", NODE / "langchain.mjs")),
    Client(name="Vercel ai", package="ai (npm)", command=("node", NODE / "vercel.mjs")),
    Client(name="llm", package="llm", command=(*_OWN, "tests.real.drivers.llm_cli"), unforced=True),
    Client(
        name="opencode",
        package="opencode-linux-x64 (npm)",
        command=(*_OWN, "tests.real.drivers.opencode_cli"),
        unforced=True,
        stubborn=True,
        suffix="-bash",
    ),
)


def versions() -> dict[str, str]:
    """Of every package that a client or an upstream is, as the locks have it."""
    found: dict[str, str] = {}
    for lock in sorted((Path(__file__).parent / "requirements").glob("*.txt")):
        for line in lock.read_text(encoding="utf-8").splitlines():
            name, separator, rest = line.partition("==")
            if separator and not line.startswith((" ", "#")):
                found.setdefault(name.partition("[")[0], rest.split()[0])
    package: dict[str, Any] = json.loads((NODE / "package.json").read_text(encoding="utf-8"))
    wanted: dict[str, str] = package["dependencies"] | package["optionalDependencies"]
    return found | {f"{name} (npm)": version for name, version in wanted.items()}


def named(name: str, wanted: Sequence[str]) -> bool:
    """Return whether a name contains one of these words; without words, all do."""
    return not wanted or any(each.lower() in name.lower() for each in wanted)


def missing(*, ci: bool) -> list[str]:
    """What was not installed here; part `ci` needs less."""
    needed = [PYTHONS["clients"], NODE_MODULES]
    if not ci:
        needed += [*PYTHONS.values(), CACHE / "tiny.gguf", OPENCODE]
    return [str(each.relative_to(ROOT)) for each in needed if not each.exists()]
