"""Run a command with its own proxy: base URLs, signals, and the tapes that it leaves."""

import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import trio

from wiretape.events.core.errors import TapeError, WiretapeError
from wiretape.events.tape.record import Record
from wiretape.proxy.config.layers import DEFAULT
from wiretape.proxy.config.model import Config, Route
from wiretape.proxy.relay.relay import Log
from wiretape.proxy.serve import running

from ..seal import in_order
from ..sealed.load import load
from .clients import base_urls, unproxied

__all__ = ["CannotRunError", "recorded", "run", "tapes_in", "to_record"]

#: A terminal sends these to its whole foreground group, the command included.
_TYPED: Final = (signal.SIGINT, signal.SIGQUIT)
_PASSED: Final = (*_TYPED, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
#: After the command has ended, one of these ends the wait for its streams.
_HURRY: Final = frozenset({signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP})
#: Added to a signal's number, as shells do.
_SIGNALLED: Final = 128


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
        if is_default(name, "profile"):
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


def tapes_in(folder: Path) -> dict[str, Path]:
    """Return every tape of a data folder, finished or not, by its stream."""
    return {path.stem: path for path in folder.glob("*/*.tape")}


def recorded(folder: Path, before: frozenset[str] = frozenset()) -> tuple[list[Sequence[Record]], list[str]]:
    """Return the new streams in order of their start, and what is wrong with tapes that cannot be read."""
    streams: list[Sequence[Record]] = []
    damaged: list[str] = []
    for stream, path in sorted(tapes_in(folder).items()):
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
