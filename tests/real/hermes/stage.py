"""Start a hermes-agent with the scripted model, and a Wiretape that relays it with a `hermes` route."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from ..places import PYTHONS, RUN, WIRETAPE, environment
from ..processes import free_port, server
from ..servers import hermes
from .model import Model

__all__ = ["HERMES", "Stage", "stage"]

HERMES: Final = PYTHONS["hermes"].with_name("hermes")
_FOLDER: Final = RUN / "hermes"


@dataclass(frozen=True, slots=True)
class Stage:
    """What the clients play on."""

    #: The agent's own base URL, and Wiretape's.
    direct: str
    through: str
    key: str
    tapes: Path
    #: What `wiretape doctor` says of the agent while it is not declared.
    doctor: str


@asynccontextmanager
async def stage() -> AsyncGenerator[Stage]:
    """Run agent and Wiretape until the block ends."""
    async with hermes("hermes", Model()) as agent:
        settings, port = _FOLDER / "wiretape.toml", free_port()
        settings.write_text(f'upstream = "{agent.url}"\nhermes = true\n', encoding="utf-8")
        command: list[str | Path] = [WIRETAPE, "serve", "--config", settings, "--port", str(port)]
        command += ["--data", _FOLDER / "tapes"]
        async with server("hermes-wiretape", command, port, environment()):
            doctor = await _doctor(agent.url, agent.key)
            yield Stage(agent.url, f"http://127.0.0.1:{port}/v1", agent.key, _FOLDER / "tapes", doctor)


async def _doctor(url: str, key: str) -> str:
    command = [str(WIRETAPE), "doctor", "--upstream", url, "--upstream-key-env", "AGENT_KEY"]
    env = environment(AGENT_KEY=key)
    done = await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)
    said = done.stdout.decode()
    return "is a hermes-agent" if "is a hermes-agent: with `hermes = true` at the top" in said else said[-500:]
