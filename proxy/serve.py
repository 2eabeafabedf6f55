"""Puts the parts together, starts them, and stops them in order: drain, end what is left, last commit round."""

import base64
import secrets
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Final, NamedTuple

import trio

from .config import Config
from .control import control_app
from .front import App, front
from .hot import Hot
from .keys import Keys, salt_of
from .limits import EXPIRE_EVERY_S, SHUTDOWN_GRACE_S
from .metrics import Metrics
from .names import Resolver
from .reaper import Reaper
from .registry import Ended, Registry
from .server import ServerSettings, listening, serve, shielded
from .services import Log, Services
from .store import Store, StoreError
from .store_files import open_files
from .store_memory import MemoryStore
from .upstream import UpstreamTransport

__all__ = ["Assembly", "Running", "assembled", "new_stream_id", "run", "running"]

_ID_BYTES: Final = 16


class Assembly(NamedTuple):
    """Everything but the listening sockets."""

    app: App
    registry: Registry
    reaper: Reaper
    services: Services
    metrics: Metrics


class Running(NamedTuple):
    """A server that listens."""

    url: str
    assembly: Assembly


def new_stream_id() -> str:
    """128 bits, because who knows an id must not be able to guess another; a file name everywhere."""
    return base64.b32encode(secrets.token_bytes(_ID_BYTES)).decode("ascii").rstrip("=").lower()


@asynccontextmanager
async def assembled(
    config: Config,
    *,
    store: Store,
    transport: UpstreamTransport,
    log: Log,
    salt: bytes,
    wall: Callable[[], float] = time.time,
    new_id: Callable[[], str] = new_stream_id,
) -> AsyncGenerator[Assembly]:
    """The application and its tasks; what still runs at the end has been given its ending."""
    reaper, metrics = Reaper(), Metrics()
    keys = Keys(config.keys, salt)
    services = Services(
        config=config, store=store, transport=transport, reaper=reaper, log=log, wall=wall, new_id=new_id
    )

    def ended(what: Ended) -> None:
        metrics.on_ended(what)
        row = what.entry.stream
        log.info("ended", stream=row.stream, route=row.route, model=row.model, ending=row.ending, flags=list(row.flags))

    registry = Registry(services, on_ended=ended)
    hot = Hot(services, keys, registry, on_refused=metrics.refused)
    control = control_app(registry=registry, store=store, keys=keys, config=config, metrics=metrics, log=log)
    app = front(config, keys, hot, shielded(control), on_refused=metrics.refused)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        nursery.start_soon(_expire, services)
        await nursery.start(registry.run)
        yield Assembly(app, registry, reaper, services, metrics)
        await registry.drain(trio.current_time())
        nursery.cancel_scope.cancel()
    await transport.aclose()


async def _expire(services: Services) -> None:
    """Old tapes, and idle connections that their upstream will close."""
    while True:
        await trio.sleep(EXPIRE_EVERY_S)
        await services.transport.pool.expire()
        try:
            gone = await services.store.expire(services.wall(), services.config.keep)
        except (StoreError, OSError) as error:
            services.log.error("expire_failed", why=str(error))
        else:
            if gone:
                services.log.info("expired", streams=len(gone))


@asynccontextmanager
async def _store(config: Config, log: Log) -> AsyncGenerator[Store]:
    if config.durability == "none":
        yield MemoryStore()
        return
    warn = partial(log.warn, "store")
    async with open_files(config.data, durability=config.durability, warn=lambda why: warn(why=why)) as store:
        for tape in store.recovered:
            log.warning("recovered", stream=tape.stream)
        yield store


@asynccontextmanager
async def running(config: Config, *, log: Log, shutdown: trio.Event | None = None) -> AsyncGenerator[Running]:
    """A server on its sockets; leaving it ends what runs at once. Raises what keeps it from starting, as one line."""
    shutdown = shutdown or trio.Event()
    trio.socket.set_custom_hostname_resolver(Resolver())
    sockets = listening(config.host, config.port)
    salt = salt_of(None if config.durability == "none" else config.data)
    async with (
        _store(config, log) as store,
        assembled(config, store=store, transport=UpstreamTransport(config.upstream), log=log, salt=salt) as assembly,
        trio.open_nursery() as nursery,
    ):
        serving = partial(serve, assembly.app, sockets, settings=ServerSettings(), reaper=assembly.reaper)
        await nursery.start(partial(serving, shutdown=shutdown))
        host = f"[{config.host}]" if ":" in config.host else config.host
        yield Running(f"http://{host}:{sockets[0].getsockname()[1]}", assembly)
        await assembly.registry.drain(trio.current_time())
        shutdown.set()


async def run(config: Config, *, log: Log, on_ready: Callable[[str], None]) -> None:
    """Until SIGTERM or SIGINT: no new streams, `drain_s` for those that run, then their ending; a second: at once."""
    stop = trio.Event()
    async with running(config, log=log, shutdown=stop) as server, trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            on_ready(server.url)
            hurry = trio.CancelScope()

            async def stopping() -> None:
                count = 0
                async for _ in signals:
                    count += 1
                    if count == 1:
                        log.info("draining", streams=len(server.assembly.registry.live), seconds=config.drain_s)
                        stop.set()
                        drained.start()
                    else:
                        hurry.cancel()

            drained = _Drain(server.assembly.registry, config.drain_s, hurry)
            nursery.start_soon(stopping)
            await drained.wait()
            nursery.cancel_scope.cancel()


class _Drain:
    """Waits for the first signal, then until all streams have ended."""

    def __init__(self, registry: Registry, drain_s: float, hurry: trio.CancelScope) -> None:
        self._registry = registry
        self._drain_s = drain_s
        self._hurry = hurry
        self._begun = trio.Event()

    def start(self) -> None:
        """The first signal has come."""
        self._begun.set()

    async def wait(self) -> None:
        """Returns when no stream runs."""
        await self._begun.wait()
        until = trio.current_time() + self._drain_s
        with self._hurry:
            await self._registry.drain(until)
        if self._hurry.cancelled_caught:
            with trio.move_on_after(SHUTDOWN_GRACE_S):
                await self._registry.drain(-inf)
