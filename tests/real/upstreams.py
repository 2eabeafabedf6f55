"""The real upstreams of the clients' questions: how each is started, and what it can be asked."""

from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple

import httpx

from .servers import LONG_S, TEXT, aimock, failure, litellm, llama

__all__ = ["UPSTREAMS", "Running", "Upstream"]

_CITY: Final = {"city": "Paris"}
#: opencode has tools of its own; this command has no effect that anyone would notice.
_COMMAND: Final = {"command": "echo 18 degrees", "description": "Prints the weather"}

#: So that the bytes before a cut have left.
_SLOW_MS: Final = 20


class Running(NamedTuple):
    """A server that listens: its base URL, and how to make it forget earlier requests."""

    url: str
    forget: Callable[[], object] = lambda: None


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
    async with aimock("aimock", list(_answers())) as up:
        yield Running(up.url, partial(_forget, f"http://127.0.0.1:{up.port}/__aimock"))


def _forget(control: str) -> None:
    """Reset the counters of aimock, which forgets them only together with its answers."""
    httpx.post(f"{control}/reset", timeout=10).raise_for_status()
    httpx.post(f"{control}/fixtures", json={"fixtures": list(_answers())}, timeout=10).raise_for_status()


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
async def _litellm() -> AsyncGenerator[Running]:
    mocked = {"text": TEXT, "usage": TEXT, "limited": "litellm.RateLimitError"}
    relayed = {model: model for model in ("tool", "tool-bash", "cut-tool", "cut-tool-bash", "cut")}
    async with _aimock() as behind, litellm("litellm", mocked, relayed, behind.url) as up:
        yield Running(up.url)


@asynccontextmanager
async def _llama() -> AsyncGenerator[Running]:
    async with llama("llama") as up:
        yield Running(up.url)


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
