"""Asks every translator for every scripted stream: `python -m tests.real.translators`, or `make test-real`."""

import argparse
import json
import shutil
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import trio

from tests.support.markdown import table
from wiretape.replay.playback.script import Request, Script, json_answer
from wiretape.replay.playback.server import listening

from ..clients import KEY, version_table
from ..processes import CACHE, RUN, environment, free_port, server, wiretape
from ..report import say
from .reading import faults
from .streams import STREAMS, Stream

PLACE: Final = Path(__file__).parents[3] / "docs/internals/translators.md"
_BIN: Final = CACHE / "translators/bin"
_FOLDER: Final = RUN / "translators"
_DIALECTS: Final = ("messages", "responses")
_ANSWER_S: Final = 30.0

_TEXT: Final = """\
# Translators

Written by `make test-real`. One scripted chat completions upstream over loopback sends {count} streams; the same
questions go through Wiretape, the LiteLLM proxy (`use_chat_completions_api`) and the gateway of llm-rosetta to
`/v1/messages` and `/v1/responses`. The bytes that come are read strictly: the content, the usage and the ending that
the stream said, and the order of the events by the rules of the SDKs that read most strictly
([order.py](../../tests/conformance/order.py)). A stream that is cut must end as a failure, and half a call must never
be closed.

{results}
{totals}

## Versions

{versions}"""


class Result(NamedTuple):
    """What one translator made of one stream in one dialect."""

    translator: str
    dialect: str
    stream: Stream
    faults: Sequence[str]


def _provider(request: Request) -> Script:
    """Answer by the model's name."""
    if not request.target.endswith(b"/chat/completions"):
        return json_answer(b'{"detail":"Not Found"}', 404)
    model: str = json.loads(request.body)["model"]
    return next(stream for stream in STREAMS if stream.name == model).script(model)


@asynccontextmanager
async def _litellm(upstream: str) -> AsyncGenerator[str]:
    models = [
        {
            "model_name": stream.name,
            "litellm_params": {
                "model": f"openai/{stream.name}",
                "api_base": upstream,
                "api_key": KEY,
                "max_retries": 0,
                "use_chat_completions_api": True,
            },
        }
        for stream in STREAMS
    ]
    config, port = _FOLDER / "litellm.json", free_port()
    config.write_text(json.dumps({"model_list": models, "router_settings": {"num_retries": 0}}), encoding="utf-8")
    command: list[str | Path] = [_BIN / "litellm", "--config", config, "--host", "127.0.0.1", "--port", str(port)]
    env = environment(LITELLM_MASTER_KEY=KEY, LITELLM_LOCAL_MODEL_COST_MAP="True", LITELLM_TELEMETRY="False")
    async with server("translators-litellm", command, port, env):
        yield f"http://127.0.0.1:{port}/v1"


@asynccontextmanager
async def _rosetta(upstream: str) -> AsyncGenerator[str]:
    config, port = _FOLDER / "rosetta.jsonc", free_port()
    provider = {"type": "openai_chat", "base_url": upstream, "api_key": KEY}
    said = {
        "providers": {"scripted": provider},
        "models": {stream.name: "scripted" for stream in STREAMS},
        "server": {"host": "127.0.0.1", "port": port, "open_on_no_keys": True},
    }
    config.write_text(json.dumps(said), encoding="utf-8")
    command: list[str | Path] = [
        _BIN / "llm-rosetta-gateway",
        "--config",
        config,
        "--data-dir",
        _FOLDER / "rosetta",
        "--no-banner",
    ]
    async with server("translators-rosetta", command, port, environment()):
        yield f"http://127.0.0.1:{port}/v1"


@asynccontextmanager
async def _wiretape(upstream: str) -> AsyncGenerator[str]:
    async with wiretape("translators-wiretape", _FOLDER / "tapes", "--upstream", upstream) as url:
        yield f"{url}/v1"


_TRANSLATORS: Final = {"Wiretape": _wiretape, "LiteLLM": _litellm, "llm-rosetta": _rosetta}

_TOOL: Final[dict[str, Any]] = {"type": "object", "properties": {"city": {"type": "string"}}}
_SAYS: Final = "How is the weather?"
_BODIES: Final[Mapping[str, dict[str, Any]]] = {
    "messages": {
        "max_tokens": 500,
        "messages": [{"role": "user", "content": _SAYS}],
        "tools": [{"name": "get_weather", "description": "The weather", "input_schema": _TOOL}],
    },
    "responses": {
        "input": _SAYS,
        "tools": [{"type": "function", "name": "get_weather", "description": "The weather", "parameters": _TOOL}],
    },
}


async def _ask(client: httpx.AsyncClient, url: str, dialect: str, stream: Stream) -> tuple[int, bytes]:
    """Return the status, and the bytes of the body until it ends or breaks."""
    body = {"model": stream.name, "stream": True, **_BODIES[dialect]}
    headers = {"Authorization": f"Bearer {KEY}", "x-api-key": KEY, "anthropic-version": "2023-06-01"}
    status, got = 0, bytearray()
    try:
        async with client.stream("POST", f"{url}/{dialect}", json=body, headers=headers) as response:
            status = response.status_code
            async for piece in response.aiter_bytes():
                got += piece
    except httpx.HTTPError as error:
        say(f"  {type(error).__name__} after {len(got)} bytes")
    return status, bytes(got)


async def _run(names: Sequence[str]) -> list[Result]:
    results: list[Result] = []
    async with AsyncExitStack() as stack:
        upstream, _ = await stack.enter_async_context(listening(_provider))
        client = await stack.enter_async_context(httpx.AsyncClient(timeout=_ANSWER_S))
        for name in names:
            url = await stack.enter_async_context(_TRANSLATORS[name](upstream))
            for dialect in _DIALECTS:
                for stream in STREAMS:
                    status, body = await _ask(client, url, dialect, stream)
                    (_FOLDER / f"{name}-{dialect}-{stream.name}.sse").write_bytes(body)
                    wrong = list(faults(dialect, stream, body)) if status == 200 else [f"HTTP {status}"]
                    result = Result(name, dialect, stream, wrong)
                    say(f"{name} | {dialect} | {stream.name} | {'; '.join(result.faults) or 'good'}")
                    results.append(result)
    return results


def _is_order(fault: str) -> bool:
    return fault.startswith("order")


def document(results: Sequence[Result]) -> str:
    """Return the whole document."""
    found = {(each.translator, each.dialect, each.stream.name): each for each in results}
    columns = [(name, dialect) for name in _TRANSLATORS for dialect in _DIALECTS]
    heads = ["upstream stream", *(f"{name}, {dialect.capitalize()}" for name, dialect in columns)]
    rows = [
        [stream.says, *("; ".join(found[(*column, stream.name)].faults) or "good" for column in columns)]
        for stream in STREAMS
    ]
    good = [
        [
            f"{name}, {dialect.capitalize()}",
            str(sum(not found[name, dialect, stream.name].faults for stream in STREAMS)),
            str(sum(all(map(_is_order, found[name, dialect, stream.name].faults)) for stream in STREAMS)),
        ]
        for name, dialect in columns
    ]
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return _TEXT.format(
        count=len(STREAMS),
        results=table(heads, escaped),
        totals=table([f"of {len(STREAMS)}", "good", "good but for the order"], good),
        versions=version_table(["litellm", "llm-rosetta"], "translators"),
    )  # fmt: skip


def main() -> int:
    """Run all or some translators; return the exit status. Only a whole run writes the document."""
    parser = argparse.ArgumentParser(prog="python -m tests.real.translators", description=__doc__)
    parser.add_argument("names", nargs="*", default=list(_TRANSLATORS), help="which translators")
    names: list[str] = parser.parse_args().names
    if not (_BIN / "litellm").exists():
        sys.exit("not installed: .cache/real/translators; `make real-translators` installs it")
    shutil.rmtree(_FOLDER, ignore_errors=True)
    (_FOLDER / "rosetta").mkdir(parents=True)
    results = trio.run(_run, names)
    if names == list(_TRANSLATORS):
        PLACE.write_text(document(results), encoding="utf-8")
    wrong = [each for each in results if each.translator == "Wiretape" and each.faults]
    say(f"{len(results)} streams, {len(wrong)} of Wiretape's are wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
