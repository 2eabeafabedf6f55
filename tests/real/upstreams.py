"""The real upstreams: how each is started, and what each can be asked."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import httpx

from .places import CACHE, NODE_MODULES, PYTHONS, RUN, environment
from .processes import free_port, server
from .scenarios import KEY

__all__ = ["UPSTREAMS", "Running", "Upstream"]

_TEXT: Final = "Rain and sun: 18 € in Paris, café open till nine 😀, say the people of a small town."
_CITY: Final = {"city": "Paris"}
#: opencode has tools of its own; this one does nothing that anybody would notice.
_COMMAND: Final = {"command": "echo 18 degrees", "description": "Prints the weather"}

#: So that what was written before the cut has left.
_SLOW_MS: Final = 20

#: More than the proxy waits for (its cap is 10 s), and more than the SDKs do (theirs is two minutes).
_LONG_S: Final = 600


class Running:
    """One that listens: its base URL, and how it forgets what was asked before."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"

    def forget(self) -> None:
        """So that the first request of a scenario is the first again."""


class _Aimock(Running):
    """Counts how often each of its answers was given, and forgets that only together with the answers."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self._control = f"http://127.0.0.1:{port}/__aimock"

    def forget(self) -> None:
        httpx.post(f"{self._control}/reset", timeout=10).raise_for_status()
        httpx.post(f"{self._control}/fixtures", json=_fixtures(), timeout=10).raise_for_status()


@dataclass(frozen=True, slots=True, kw_only=True)
class Upstream:
    """One kind of server."""

    name: str
    start: Callable[[], AbstractAsyncContextManager[Running]]
    scenarios: tuple[str, ...]
    #: It calls a tool only when the request names it, which not every client can do.
    forced: bool = False


@asynccontextmanager
async def _aimock() -> AsyncGenerator[Running]:
    fixtures = RUN / "aimock.json"
    fixtures.write_text(json.dumps(_fixtures()))
    port = free_port()
    command: list[str | Path] = [
        "node",
        NODE_MODULES / "@copilotkit/aimock/dist/cli.js",
        "-p",
        str(port),
        "-f",
        fixtures,
        "--strict",
    ]
    async with server("aimock", command, port, environment()):
        yield _Aimock(port)


def _fixtures() -> dict[str, Any]:
    return {"fixtures": list(_answers())}


def _answers() -> Any:
    text = {"content": _TEXT}
    usage = {"prompt_tokens": 9, "completion_tokens": 21, "total_tokens": 30}
    yield {"match": {"model": "text"}, "response": text}
    yield {"match": {"model": "usage"}, "response": text | {"usage": usage}}
    yield {"match": {"model": "refused"}, "response": _error("no such model", "model_not_found", 404)}
    limit = _error("slow down", "rate_limit_exceeded", 429)
    yield {"match": {"model": "limited"}, "response": limit | {"retryAfter": _LONG_S}}
    yield {"match": {"model": "recovers", "sequenceIndex": 0}, "response": limit | {"retryAfter": 1}}
    yield {"match": {"model": "recovers"}, "response": text}
    yield {"match": {"model": "cut"}, "response": text, "truncateAfterChunks": 4, "latency": _SLOW_MS}
    for suffix, name, arguments in (("", "get_weather", _CITY), ("-bash", "bash", _COMMAND)):
        call = {"toolCalls": [{"name": name, "arguments": arguments}]}
        yield {"match": {"model": "tool" + suffix, "hasToolResult": True}, "response": text}
        yield {"match": {"model": "tool" + suffix}, "response": call}
        cut = {"response": call, "chunkSize": 3, "truncateAfterChunks": 4, "latency": _SLOW_MS}
        yield {"match": {"model": "cut-tool" + suffix}, **cut}


def _error(message: str, code: str, status: int) -> dict[str, Any]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}, "status": status}


@asynccontextmanager
async def _litellm() -> AsyncGenerator[Running]:
    """Its mock responses are text only, so aimock, as its upstream, sends the calls."""
    async with _aimock() as behind:
        config = RUN / "litellm.yaml"
        told = {"model_list": list(_models(behind.url)), "router_settings": {"num_retries": 0}}
        config.write_text(json.dumps(told, ensure_ascii=False), encoding="utf-8")  # YAML knows no pairs of surrogates
        port = free_port()
        command: list[str | Path] = [PYTHONS["litellm"].with_name("litellm"), "--config", config, "--host", "127.0.0.1"]
        env = environment(LITELLM_MASTER_KEY=KEY, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False")
        async with server("litellm", [*command, "--port", str(port)], port, env):
            yield Running(port)


def _models(behind: str) -> Any:
    for model in ("text", "usage"):
        yield {"model_name": model, "litellm_params": {"model": "openai/fake", "mock_response": _TEXT, "api_key": "x"}}
    limited = {"model": "openai/fake", "mock_response": "litellm.RateLimitError", "api_key": "x"}
    yield {"model_name": "limited", "litellm_params": limited}
    for model in ("tool", "tool-bash", "cut-tool", "cut-tool-bash", "cut"):
        there = {"model": f"openai/{model}", "api_base": behind, "api_key": "x", "max_retries": 0}
        yield {"model_name": model, "litellm_params": there}


@asynccontextmanager
async def _llama() -> AsyncGenerator[Running]:
    port = free_port()
    command: list[str | Path] = [
        PYTHONS["llama"],
        "-m",
        "llama_cpp.server",
        "--model",
        CACHE / "tiny.gguf",
        "--host",
        "127.0.0.1",
    ]
    options = ["--port", str(port), "--n_ctx", "2048", "--n_threads", "1", "--n_threads_batch", "1", "--api_key", KEY]
    async with server("llama", [*command, *options], port, environment()):
        yield Running(port)


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
        name="llama-cpp-python", start=_llama, scenarios=("text", "tool", "usage", "refused", "empty"), forced=True
    ),
)
