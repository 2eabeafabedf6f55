"""Real servers: aimock, the LiteLLM proxy, llama-cpp-python and hermes-agent, and what clients ask of them."""

import json
import secrets
import shutil
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import trio

from wiretape.replay.playback.script import Request, Script
from wiretape.replay.playback.server import listening

from .clients import KEY
from .processes import CACHE, NODE_MODULES, PYTHONS, RUN, environment, free_port, server

TEXT: Final = "Rain and sun: 18 € in Paris, café open till nine 😀, say the people of a small town."

#: A Retry-After longer than the proxy waits (10 s), and longer than the SDKs do (two minutes).
LONG_S: Final = 600


class Up(NamedTuple):
    """A server that listens."""

    port: int
    key: str
    process: trio.Process | None = None
    #: Make it forget earlier requests.
    forget: Callable[[], object] = lambda: None

    @property
    def url(self) -> str:
        """Return its base URL."""
        return f"http://127.0.0.1:{self.port}/v1"


def failure(message: str, code: str, status: int) -> dict[str, Any]:
    """Return an HTTP error as aimock takes it."""
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}, "status": status}


@asynccontextmanager
async def aimock(name: str, answers: list[dict[str, Any]]) -> AsyncGenerator[Up]:
    """Run aimock with these answers; `name` is that of its log."""
    fixtures, port = RUN / f"{name}.json", free_port()
    fixtures.write_text(json.dumps({"fixtures": answers}))
    command: list[str | Path] = [
        "node",
        NODE_MODULES / "@copilotkit/aimock/dist/cli.js",
        "-p",
        str(port),
        "-f",
        fixtures,
        "--strict",
    ]

    def forget() -> None:
        """Reset its counters, which it forgets only together with its answers."""
        control = f"http://127.0.0.1:{port}/__aimock"
        httpx.post(f"{control}/reset", timeout=10).raise_for_status()
        httpx.post(f"{control}/fixtures", json={"fixtures": answers}, timeout=10).raise_for_status()

    async with server(name, command, port, environment()) as process:
        yield Up(port, "x", process, forget)


@asynccontextmanager
async def litellm(name: str, mocked: dict[str, str], relayed: dict[str, str], base_url: str) -> AsyncGenerator[Up]:
    """Run the LiteLLM proxy. Its mock responses are text only, so its upstream sends everything else.

    `mocked` maps names of models to responses, `relayed` to models of the upstream at `base_url`.
    """
    models: list[dict[str, Any]] = [
        {"model_name": model, "litellm_params": {"model": "openai/fake", "mock_response": said, "api_key": "x"}}
        for model, said in mocked.items()
    ]
    for model, there in relayed.items():
        params = {"model": f"openai/{there}", "api_base": base_url, "api_key": "x", "max_retries": 0}
        models.append({"model_name": model, "litellm_params": params})
    config, port = RUN / f"{name}.yaml", free_port()
    said = {"model_list": models, "router_settings": {"num_retries": 0}}
    config.write_text(json.dumps(said, ensure_ascii=False), encoding="utf-8")  # YAML knows no pairs of surrogates
    command: list[str | Path] = [
        PYTHONS["litellm"].with_name("litellm"),
        "--config",
        config,
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
    ]
    env = environment(LITELLM_MASTER_KEY=KEY, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False")
    async with server(name, command, port, env) as process:
        yield Up(port, KEY, process)


@asynccontextmanager
async def llama(name: str, context: int = 2048) -> AsyncGenerator[Up]:
    """Run llama-cpp-python with our tiny model and so many tokens of context."""
    port = free_port()
    options = {
        "model": CACHE / "tiny.gguf",
        "model_alias": "tiny",  # otherwise its path on this machine
        "host": "127.0.0.1",
        "port": port,
        "n_ctx": context,
        "n_threads": 1,
        "n_threads_batch": 1,
        "api_key": KEY,
    }
    command: list[str | Path] = [PYTHONS["llama"], "-m", "llama_cpp.server"]
    command += [Path(word) for option, value in options.items() for word in (f"--{option}", str(value))]
    async with server(name, command, port, environment()) as process:
        yield Up(port, KEY, process)


@asynccontextmanager
async def hermes(name: str, model: Callable[[Request], Script]) -> AsyncGenerator[Up]:
    """Run hermes-agent on a scripted model, in an empty home below RUN / name."""
    folder = RUN / name
    shutil.rmtree(folder, ignore_errors=True)
    home = folder / "home"
    home.mkdir(parents=True)
    key, port = secrets.token_urlsafe(24), free_port()
    async with listening(model) as (url, _):
        (home / "config.yaml").write_text(hermes_configuration("scripted", url, "x", folder), encoding="utf-8")
        env = environment(
            HERMES_HOME=str(home), HOME=str(home), API_SERVER_ENABLED="1", API_SERVER_KEY=key,
            API_SERVER_HOST="127.0.0.1", API_SERVER_PORT=str(port),
        )  # fmt: skip
        command: list[str | Path] = [PYTHONS["hermes"].with_name("hermes"), "gateway", "run"]
        async with server(f"{name}-gateway", command, port, env) as process:
            yield Up(port, key, process)


def hermes_configuration(model: str, base_url: str, key: str, folder: Path) -> str:
    """Return a config.yaml, in JSON."""
    chosen = {"default": model, "provider": "custom", "base_url": base_url, "api_key": key, "context_length": 128_000}
    return json.dumps(
        {
            "model": chosen,
            "terminal": {"backend": "local", "cwd": str(folder), "timeout": 30},
            "approvals": {"mode": "manual"},  # otherwise its model decides
            "security": {"tirith_enabled": False},  # it would be downloaded
        }
    )


_CITY: Final = {"city": "Paris"}
#: opencode has tools of its own; this command has no effect that anyone would notice.
_COMMAND: Final = {"command": "echo 18 degrees", "description": "Prints the weather"}

#: So that the bytes before a cut have left.
_SLOW_MS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One kind of server."""

    name: str
    start: Callable[[], AbstractAsyncContextManager[Up]]
    scenarios: tuple[str, ...]
    #: It calls a tool only when the request names it, which not every client can do.
    forced: bool = False


def _aimock() -> AbstractAsyncContextManager[Up]:
    return aimock("aimock", list(_answers()))


def _answers() -> Iterator[dict[str, Any]]:
    text = {"content": TEXT}
    usage = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}
    yield {"match": {"model": "text"}, "response": text}
    yield {"match": {"model": "usage"}, "response": text | {"usage": usage}}
    yield {"match": {"model": "refused"}, "response": failure("no such model", "model_not_found", 404)}
    limit = failure("slow down", "rate_limit_exceeded", 429)
    yield {"match": {"model": "limited"}, "response": limit | {"retryAfter": LONG_S}}
    yield {"match": {"model": "recovers", "sequenceIndex": 0}, "response": limit | {"retryAfter": 1}}
    yield {"match": {"model": "recovers"}, "response": text}
    yield {"match": {"model": "cut"}, "response": text, "truncateAfterChunks": 4, "latency": _SLOW_MS}
    for suffix, name, arguments in (("", "get_weather", _CITY), ("-bash", "bash", _COMMAND)):
        call = {"toolCalls": [{"name": name, "arguments": arguments}]}
        yield {"match": {"model": "tool" + suffix, "hasToolResult": True}, "response": text}
        yield {"match": {"model": "tool" + suffix}, "response": call}
        cut = {"response": call, "chunkSize": 3, "truncateAfterChunks": 4, "latency": _SLOW_MS}
        yield {"match": {"model": "cut-tool" + suffix}, **cut}


@asynccontextmanager
async def _litellm() -> AsyncGenerator[Up]:
    mocked = {"text": TEXT, "usage": TEXT, "limited": "litellm.RateLimitError"}
    relayed = {model: model for model in ("tool", "tool-bash", "cut-tool", "cut-tool-bash", "cut")}
    async with _aimock() as behind, litellm("litellm", mocked, relayed, behind.url) as up:
        yield up


UPSTREAMS: Final = (
    Upstream(
        name="aimock",
        start=_aimock,
        scenarios=("text", "tool", "usage", "refused", "limited", "recovers", "cut", "cut-tool"),
    ),
    Upstream(
        name="LiteLLM", start=_litellm, scenarios=("text", "tool", "usage", "refused", "limited", "cut", "cut-tool")
    ),
    Upstream(
        name="llama-cpp-python",
        start=partial(llama, "llama"),
        scenarios=("text", "tool", "usage", "refused", "empty"),
        forced=True,
    ),
)
