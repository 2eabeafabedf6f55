"""Start a hermes-agent with the scripted model, and a Wiretape that relays it with a `hermes` route."""

import json
import secrets
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import trio

from wiretape.replay.playback.server import listening

from ..places import PYTHONS, RUN, WIRETAPE, environment
from ..processes import free_port, server
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
    """All listen until the block ends."""
    shutil.rmtree(_FOLDER, ignore_errors=True)
    home = _FOLDER / "home"
    home.mkdir(parents=True)
    key, agent, proxy = secrets.token_urlsafe(24), free_port(), free_port()
    async with listening(Model()) as (model, _):
        (home / "config.yaml").write_text(_configuration(model), encoding="utf-8")
        env = environment(
            HERMES_HOME=str(home),
            HOME=str(home),
            API_SERVER_ENABLED="1",
            API_SERVER_KEY=key,
            API_SERVER_HOST="127.0.0.1",
            API_SERVER_PORT=str(agent),
        )
        async with server("hermes-gateway", [HERMES, "gateway", "run"], agent, env):
            url = f"http://127.0.0.1:{agent}/v1"
            settings = _FOLDER / "wiretape.toml"
            settings.write_text(f'upstream = "{url}"\nhermes = true\n', encoding="utf-8")
            command: list[str | Path] = [WIRETAPE, "serve", "--config", settings, "--port", str(proxy)]
            command += ["--data", _FOLDER / "tapes"]
            async with server("hermes-wiretape", command, proxy, environment()):
                through = f"http://127.0.0.1:{proxy}/v1"
                yield Stage(url, through, key, _FOLDER / "tapes", await _doctor(url, key))


def _configuration(model: str) -> str:
    """JSON is YAML."""
    chosen = {"default": "scripted", "provider": "custom", "base_url": model, "api_key": "x", "context_length": 128_000}
    return json.dumps(
        {
            "model": chosen,
            "terminal": {"backend": "local", "cwd": str(_FOLDER), "timeout": 30},
            "security": {"tirith_enabled": False},  # it would be downloaded
        }
    )


async def _doctor(url: str, key: str) -> str:
    command = [str(WIRETAPE), "doctor", "--upstream", url, "--upstream-key-env", "AGENT_KEY"]
    env = environment(AGENT_KEY=key)
    done = await trio.run_process(command, env=env, capture_stdout=True, capture_stderr=True, check=False)
    said = done.stdout.decode()
    return "is a hermes-agent" if "is a hermes-agent: with `hermes = true` at the top" in said else said[-500:]
