"""The real clients, how each is driven, and the scenarios, each named like its model, which every client can choose."""

import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.support.markdown import table

from .processes import CACHE, NODE, NODE_MODULES, OPENCODE, PYTHONS, ROOT

KEY: Final = "key-of-this-run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One question to one model."""

    name: str
    says: str
    prompt: str = "How is the weather?"
    tool: bool = False
    usage: bool = False
    #: Whether it stays like this, however often one asks.
    stays: bool = False
    #: How often the client itself may ask again.
    retries: int = 0
    key: str = KEY

    def question(self, base_url: str, model: str, mode: str) -> dict[str, Any]:
        """Return the driver's instructions."""
        asked = {"tool": self.tool, "usage": self.usage, "retries": self.retries, "mode": mode, "turns": 2}
        return question(base_url, self.key, model, self.prompt, **asked)


def question(base_url: str, key: str, model: str, prompt: str, **more: Any) -> dict[str, Any]:
    """Return instructions for a driver (drivers/lines.py); by default it retries as the client does by itself."""
    asked: dict[str, Any] = {"base_url": base_url, "key": key, "model": model, "prompt": prompt}
    asked |= {"tool": False, "usage": False, "retries": None, "mode": "", "turns": 8, "timeout": 30}
    return asked | {"record": "", "stop": ""} | more


SCENARIOS: Final = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="text", says="an answer in text"),
        Scenario(name="tool", says="a call, its result, and the answer to that", tool=True),
        Scenario(name="usage", says="an answer in text, and the token counts asked for", usage=True),
        Scenario(name="refused", says="an HTTP error: 404, 400 or 401", key="wrong"),
        Scenario(name="limited", says="HTTP 429 with a Retry-After longer than anybody waits", stays=True),
        Scenario(
            name="recovers", says="HTTP 429 once, Retry-After 1 s, then an answer; the client may ask twice", retries=1
        ),
        Scenario(name="cut", says="the bytes end in the middle of a text"),
        Scenario(name="cut-tool", says="the bytes end in the middle of a call", tool=True),
        Scenario(name="empty", says="status 200, and not one byte of an answer", prompt="overlong", stays=True),
    )
}


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


#: The folders of npm packages, and what distinguishes a package of each in a table.
_NPM: Final = {"node": "npm", "node22": "npm, Node 22", "programs": "npm"}


def versions(only: str = "*") -> dict[str, str]:
    """Return the locked version of every client and upstream by package, of one Python lock or of all."""
    found: dict[str, str] = {}
    here = Path(__file__).parent
    for lock in sorted((here / "requirements").glob(f"{only}.txt")):
        for line in lock.read_text(encoding="utf-8").splitlines():
            name, separator, rest = line.partition("==")
            if separator and not line.startswith((" ", "#")):
                found.setdefault(name.partition("[")[0], rest.split()[0])
    for folder, said in _NPM.items():
        package: dict[str, Any] = json.loads((here / folder / "package.json").read_text(encoding="utf-8"))
        wanted: dict[str, str] = package.get("dependencies", {}) | package.get("optionalDependencies", {})
        found |= {f"{name} ({said})": version for name, version in wanted.items()}
    return found


def version_table(packages: Iterable[str], only: str = "*") -> str:
    """Return a table of the locked versions of these packages."""
    known = versions(only)
    return table(["package", "version"], [(name, known[name]) for name in dict.fromkeys(packages)])


def missing(*, ci: bool) -> list[str]:
    """Return what is not installed; part `ci` needs less."""
    needed = [PYTHONS["clients"], NODE_MODULES]
    if not ci:
        needed += [*PYTHONS.values(), CACHE / "tiny.gguf", OPENCODE]
    return [str(each.relative_to(ROOT)) for each in needed if not each.exists()]
