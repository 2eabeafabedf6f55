"""Puts the parts together, starts them, and stops them in order: drain, end what is left, last commit round."""

import base64
import gc
import secrets
import signal
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from math import inf
from typing import Final, NamedTuple

import trio

from .api.control import control_app
from .api.front import front
from .api.metrics import Metrics
from .config.model import Config, ConfigError
from .limits import EXPIRE_EVERY_S, SHUTDOWN_FLUSH_S, SHUTDOWN_GRACE_S
from .relay.app import RelayApp
from .relay.registry import Ended, Registry
from .relay.relay import Log, Services
from .security.keys import Keys, salt_of
from .server.asgi import App
from .server.reaper import Reaper
from .server.server import ServerSettings, listening, serve
from .store.files import open_files
from .store.memory import MemoryStore
from .store.store import Store, StoreError
from .upstream.names import Resolver
from .upstream.transport import UpstreamTransport

__all__ = ["Assembly", "Running", "assembled", "new_stream_id", "run", "running"]

#: 112 bits of chance behind 48 of time.
_ID_RANDOM_BYTES: Final = 14


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
    """Ids in the order of their milliseconds, none of which says another; a file name everywhere."""
    when = int(time.time() * 1_000).to_bytes(6, "big")
    return base64.b32hexencode(when + secrets.token_bytes(_ID_RANDOM_BYTES)).decode("ascii").lower()


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
    reaper, metrics = Reaper(), Metrics(config.routes)
    keys = Keys(config.keys, salt)
    services = Services(
        config=config,
        store=store,
        transport=transport,
        reaper=reaper,
        log=log,
        wall=wall,
        new_id=new_id,
        wrote=metrics.log_wrote,
    )

    def ended(what: Ended) -> None:
        metrics.on_ended(what)
        log.ended(what)

    registry = Registry(services, on_ended=ended)
    metrics.live = lambda: len(registry.live)
    metrics.log_lines_dropped = lambda: log.dropped
    hot = RelayApp(services, keys, registry, on_refused=metrics.refused)
    control = control_app(registry=registry, store=store, config=config, metrics=metrics, log=log, wall=wall)
    app = front(config, keys, hot, control, on_refused=metrics.refused)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        nursery.start_soon(_expire, services)
        await nursery.start(registry.run)
        yield Assembly(app, registry, reaper, services, metrics)
        await registry.drain(-inf)
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
    async with open_files(
        config.data, durability=config.durability, warn=lambda why: log.warn("store", why=why)
    ) as store:
        for tape in store.recovered:
            log.warn("recovered", stream=tape.stream)
        yield store


@asynccontextmanager
async def running(config: Config, *, log: Log) -> AsyncGenerator[Running]:
    """A server on its sockets; leaving it ends at once what runs. Raises what keeps it from starting, as one line."""
    async with _ready(config, log) as (assembly, sockets), trio.open_nursery() as nursery:
        shutdown = trio.Event()
        await nursery.start(partial(_serving, config, assembly, sockets, log, shutdown))
        yield Running(_url(config, sockets), assembly)
        await assembly.registry.drain(-inf)
        nursery.cancel_scope.deadline = trio.current_time() + SHUTDOWN_GRACE_S
        shutdown.set()


async def run(config: Config, *, log: Log, on_ready: Callable[[str], None]) -> None:
    """Until SIGTERM or SIGINT: no new streams, `drain_s` for those that run, then their ending; a second: at once."""
    async with _ready(config, log) as (assembly, sockets):
        stop, hurry = trio.Event(), trio.CancelScope()
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_obey, signals, stop, hurry, assembly.registry)
                with hurry:
                    async with trio.open_nursery() as serving:
                        await serving.start(partial(_serving, config, assembly, sockets, log, stop))
                        _settle()
                        on_ready(_url(config, sockets))
                        await stop.wait()
                        log.info("draining", streams=len(assembly.registry.live), seconds=config.drain_s)
                        await assembly.registry.drain(trio.current_time() + config.drain_s)
                with trio.move_on_after(SHUTDOWN_GRACE_S):
                    await assembly.registry.drain(-inf)
                nursery.cancel_scope.cancel()


async def _obey(signals: AsyncIterator[int], stop: trio.Event, hurry: trio.CancelScope, registry: Registry) -> None:
    async for _ in signals:
        if stop.is_set():
            registry.end_all()  # before their clients are cut, or each stream would end as if its client had left
            hurry.cancel()
        stop.set()


@asynccontextmanager
async def _ready(config: Config, log: Log) -> AsyncGenerator[tuple[Assembly, Sequence[socket.socket]]]:
    trio.socket.set_custom_hostname_resolver(Resolver())
    sockets = listening(config.host, config.port)
    try:
        transport = _transport(config)
        async with _store(config, log) as store:
            salt = salt_of(None if config.durability == "none" else config.data)
            async with assembled(config, store=store, transport=transport, log=log, salt=salt) as assembly:
                yield assembly, sockets
    finally:
        for sock in sockets:
            sock.close()


def _transport(config: Config) -> UpstreamTransport:
    try:
        return UpstreamTransport(config.upstream)
    except OSError as error:  # an SSLError is one, too
        raise ConfigError(f"ca_file {config.upstream.ca_file} cannot be used: {error.strerror or error}") from error


async def _serving(
    config: Config,
    assembly: Assembly,
    sockets: Sequence[socket.socket],
    log: Log,
    shutdown: trio.Event,
    *,
    task_status: trio.TaskStatus[list[str]],
) -> None:
    """Clients have a little longer than streams, to be told how theirs ended."""
    settings = ServerSettings(
        graceful_s=config.drain_s + SHUTDOWN_FLUSH_S,
        h2c_offers="ignored",  # Java's HttpClient offers it with every request: declined, and served in HTTP/1.1
        log=lambda line: log.warn("server", why=line),
        on_refused=assembly.metrics.refused,
    )
    await serve(
        assembly.app, sockets, settings=settings, reaper=assembly.reaper, shutdown=shutdown, task_status=task_status
    )


def _settle() -> None:
    """What was made at the start stays, so no collection need look at it; and what one read makes is gone before a
    collection every 700 objects would have looked at it twice (a fifth of what a frame cost in bursts).
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)


def _url(config: Config, sockets: Sequence[socket.socket]) -> str:
    bare = config.host.strip("[]")
    host = f"[{bare}]" if ":" in bare else bare
    return f"http://{host}:{sockets[0].getsockname()[1]}"
