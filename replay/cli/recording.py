"""Run a command with its own proxy: how it learns the base URLs, signals, and the tapes that it leaves."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import trio

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.dialects import DIALECTS
from wiretape.events.tape.record import Record
from wiretape.proxy.cli.tapes import tapes_of
from wiretape.proxy.config.load import DEFAULT
from wiretape.proxy.config.model import Config, Route
from wiretape.proxy.relay.relay import Log
from wiretape.proxy.serve import running

from ..seal import in_order
from ..sealed.files import load

__all__ = ["CannotRunError", "base_urls", "recorded", "run", "to_record", "unproxied"]

#: A terminal sends these to its whole foreground group, the command included.
_TYPED: Final = (signal.SIGINT, signal.SIGQUIT)
_PASSED: Final = (*_TYPED, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: After the command has ended, one of these ends the wait for its streams.
_HURRY: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
#: Added to a signal's number, as shells do.
_SIGNALLED: Final = 128
#: With /v1. SDKs read the first one; LangChain, LiteLLM, llama-index and aider the second; Open WebUI the third.
_OPENAI_URLS: Final = ("OPENAI_BASE_URL", "OPENAI_API_BASE", "OPENAI_API_BASE_URL")
#: Without /v1, which SDKs and Claude Code append themselves. LiteLLM reads the second one before the first.
_ANTHROPIC_URLS: Final = ("ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE")
#: Hosts that do not serve Anthropic's clients and must not see their keys.
_OPENAI_ONLY: Final = frozenset({"api.openai.com"})
_DIRECT: Final = "127.0.0.1,localhost"


class CannotRunError(WiretapeError):
    """The command cannot be started."""


def to_record(config: Config, data: Path, origins: Mapping[str, str]) -> Config:
    """Return the configuration with the defaults of recording.

    The command gets the upstream's bytes, as a replay will give them, and streams that it leaves are recorded to their
    end, because SDKs hang up at `[DONE]`, sometimes before the last chunk.
    """

    def is_default(name: str, setting: str) -> bool:
        return origins.get(f"routes.{name}.{setting}" if name else setting, DEFAULT) == DEFAULT

    routes: dict[str, Route] = {}
    for name, route in config.routes.items():
        crosses = any(target.speaks in DIALECTS for target in route.targets)  # never, in that profile
        if is_default(name, "profile") and not crosses:
            route = replace(route, settings=replace(route.settings, profile="transparent"))  # noqa: PLW2901
        if is_default(name, "on_client_gone"):
            route = replace(route, on_client_gone="drain")  # noqa: PLW2901
        routes[name] = route
    durability = "process" if config.durability == "none" else config.durability
    return replace(config, data=data, durability=durability, routes=routes)


async def run(
    config: Config,
    command: Sequence[str],
    *,
    log: Log,
    environ: Mapping[str, str],
    on_ready: Callable[[str], None] = lambda _: None,
) -> tuple[int, Mapping[str, int]]:
    """Run a command, whose streams may outlive it for `drain_s`, or until a signal.

    Return its exit code as a shell does, and the number of requests that the proxy refused by status.
    """
    with trio.open_signal_receiver(*_PASSED) as signals:
        async with running(config, log=log) as server, trio.open_nursery() as nursery:
            on_ready(server.url)
            env = {**unproxied(environ), **base_urls(server.url, config.routes)}
            try:
                child = await trio.lowlevel.open_process(list(command), env=env)
            except OSError as error:
                raise CannotRunError(f"{command[0]} cannot be run: {error.strerror or error}") from error
            hurry = trio.CancelScope()
            nursery.start_soon(_pass_on, signals, child, hurry)
            status = await child.wait()
            with hurry:
                await server.assembly.registry.drain(trio.current_time() + config.drain_s)
            nursery.cancel_scope.cancel()
    return status if status >= 0 else _SIGNALLED - status, server.assembly.metrics.refusals


def recorded(folder: Path, before: frozenset[str] = frozenset()) -> tuple[list[Sequence[Record]], list[str]]:
    """Return the new streams in order of their start, and what is wrong with tapes that cannot be read."""
    streams: list[Sequence[Record]] = []
    damaged: list[str] = []
    for stream, path in sorted(tapes_of(folder).items()):
        if stream not in before:
            try:
                streams += load(path).streams
            except TapeError as error:
                damaged.append(str(error))
    return in_order(streams), damaged


async def _pass_on(signals: AsyncIterator[int], child: trio.Process, hurry: trio.CancelScope) -> None:
    async for number in signals:
        if child.returncode is not None:
            if number in _HURRY:
                hurry.cancel()
        elif number not in _TYPED or not _in_foreground():
            with suppress(ProcessLookupError):
                child.send_signal(signal.Signals(number))


def _in_foreground() -> bool:
    """Return whether the terminal signals the command too, because it runs in our group."""
    try:
        with Path("/dev/tty").open("rb", buffering=0) as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


# -- base URLs --------------------------------------------------------------------------------------------------------


def base_urls(url: str, routes: Mapping[str, Route]) -> dict[str, str]:
    """Return the variables that lead clients to a server with these routes.

    Routes called `openai` and `anthropic` are for that kind of client. Otherwise both use the default route, except
    that a key for Anthropic never goes to OpenAI.
    """
    default = routes.get("")
    openai, anthropic = (f"/{name}" if name in routes else "" for name in ("openai", "anthropic"))
    variables: dict[str, str] = {}
    if openai or default is not None:
        variables |= dict.fromkeys(_OPENAI_URLS, f"{url}{openai}/v1")
    if anthropic or (default is not None and urlsplit(default.targets[0].url).hostname not in _OPENAI_ONLY):
        variables |= dict.fromkeys(_ANTHROPIC_URLS, f"{url}{anthropic}")
    return variables


def unproxied(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment with loopback excluded from its HTTP proxy."""
    direct = dict(environ)
    if any(name.lower() in ("http_proxy", "all_proxy") and value for name, value in environ.items()):
        for name in ("NO_PROXY", "no_proxy"):
            hosts = environ.get(name)
            direct[name] = f"{hosts},{_DIRECT}" if hosts else _DIRECT
    return direct
