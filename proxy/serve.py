"""Compose the proxy, start it, and stop it in order: drain, end what still runs, commit the tapes."""

import gc
import os
import signal
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import trio

from .api.control import control_app
from .api.metrics import Metrics
from .api.streams import StreamsApi
from .config.model import Config, ConfigError, UpstreamSettings
from .config.otel import collector_of
from .config.urls import address_of
from .inspector.changes import Changes
from .inspector.page import ADDRESS_FILE
from .inspector.routes import Compare, inspector_routes
from .limits import CLOCK_DOUBTED_S, EXPIRE_AGED_EVERY_S, EXPIRE_EVERY_S, SHUTDOWN_FLUSH_S, SHUTDOWN_GRACE_S
from .memory import Memory
from .refusals import Refusals
from .relay.app import Application, Registry, new_stream_id
from .relay.recording import Ended
from .relay.relay import Log, Services
from .runs.api import RunsApi
from .runs.runs import Runs
from .security.access import Keys, operator_token, salt_of
from .server.asgi import App, Reaper, ServerSettings
from .server.server import listening, serve
from .server.systemd import notify
from .store.files import FileStore, open_files
from .store.folder import days_in, folders_in, old_folders
from .store.memory import MemoryStore
from .store.postgres import server_at
from .store.siblings import Siblings, WithSiblings
from .store.store import Store, StoreError
from .telemetry.export import Exporter, Sender
from .upstream.connect import Resolver
from .upstream.transport import UpstreamTransport
from .workers.totals import connected
from .workers.worker import Worker, control_socket

if TYPE_CHECKING:
    from .store.postgres.ship import Shipper

__all__ = ["Assembly", "Running", "assembled", "run", "running"]

#: A clock that cannot be set, and that goes on while the machine sleeps; and by how much the wall clock may depart from
#: it between two runs of retention. Beyond that it was set.
_ELAPSED: Final = partial(time.clock_gettime, getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
_CLOCK_JUMP_S: Final = 3_600.0
_Sockets = Sequence[socket.socket]


class Assembly(NamedTuple):
    """The whole proxy except its listening sockets."""

    app: App
    registry: Registry
    reaper: Reaper
    services: Services
    metrics: Metrics
    refusals: Refusals
    #: What other workers ask, if there are others.
    for_others: App | None = None


class Running(NamedTuple):
    """A listening proxy."""

    url: str
    assembly: Assembly


@asynccontextmanager
async def assembled(
    config: Config,
    *,
    store: Store,
    transport: UpstreamTransport,
    log: Log,
    salt: bytes,
    operator: str = "",
    export: Exporter | None = None,
    wall: Callable[[], float] = time.time,
    elapsed: Callable[[], float] = _ELAPSED,
    new_id: Callable[[], str] = new_stream_id,
    compare: Compare | None = None,
    worker: Worker | None = None,
    siblings: Siblings | None = None,
    shipping: "Shipper | None" = None,
) -> AsyncGenerator[Assembly]:
    """Run the application and its tasks until left; then end every stream. `compare` is for the inspector."""
    reaper, metrics = Reaper(), Metrics(config.routes, config.metrics_models)
    services = Services(
        config=config,
        store=store,
        transport=transport,
        reaper=reaper,
        log=log,
        wall=wall,
        new_id=new_id,
        memory=Memory(config.memory_max_bytes),
    )
    changes = Changes()

    def on_ended(ended: Ended) -> None:
        for told in (metrics.on_ended, changes.ended, *((export.ended,) if export else ())):
            told(ended)

    registry = Registry(services, on_ended=on_ended, on_limited=metrics.limited)
    store.on_read = changes.note
    metrics.shipping = shipping
    _observe(metrics, services, registry)
    refusals = Refusals(metrics.refused, log.warn)
    runs = Runs(services, registry, salt, on_started=metrics.run_started, on_ended=metrics.run_ended)
    streams = StreamsApi(store, registry, wall)
    control = control_app(streams, metrics=metrics, log_error=log.error)
    inspector_routes(control, streams, changes, compare)
    keys, on_runs = Keys(config.keys, salt, operator), RunsApi(runs, services)
    if store.shared is not None:
        store.shared.on_asked = on_runs.asked
    app = Application(services, keys, registry, control, on_refused=refusals.answered, runs=on_runs)
    joined = connected(worker, siblings, app, streams, metrics, runs) if worker and siblings else None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(reaper.run)
        nursery.start_soon(_expire, services, elapsed, runs, refusals)
        await nursery.start(registry.run)
        if export is not None:
            nursery.start_soon(export.run)
        yield Assembly(app, registry, reaper, services, metrics, refusals, joined)
        await registry.drain(-inf)
        nursery.cancel_scope.cancel()
    await transport.aclose()


def _observe(metrics: Metrics, services: Services, registry: Registry) -> None:
    """Let metrics read what others know."""
    log, config = services.log, services.config
    metrics.write_times = services.store.write_times
    metrics.live = lambda: len(registry.live)
    metrics.readers = lambda: sum(delivery.readers for delivery in registry.live.values())
    if config.durability != "none":
        metrics.folder = config.data
    metrics.warn = log.warn
    metrics.log_lines_dropped = lambda: log.dropped


async def _expire(services: Services, elapsed: Callable[[], float], runs: Runs, refusals: Refusals) -> None:
    """Remove old tapes and runs, and close idle connections before their upstream does."""
    began, aged_at = services.wall() - elapsed(), -inf
    while True:
        await trio.sleep(EXPIRE_EVERY_S)
        refusals.sweep()
        await services.transport.pool.expire()
        now, at, keep = services.wall(), elapsed(), services.config.keep
        jump_s, began = now - at - began, now - at
        if abs(jump_s) > _CLOCK_JUMP_S:
            aged_at = at + CLOCK_DOUBTED_S
            why = f"No tape expires by its age for {CLOCK_DOUBTED_S / 3_600:g} hours."
            services.log.warn("clock_jumped", seconds=round(jump_s), why=why)
        if at >= aged_at:
            aged_at = at + EXPIRE_AGED_EVERY_S
            await runs.sweep()
        else:
            keep = replace(keep, days=None)
        try:
            gone = await services.store.expire(now, keep)
            if gone:
                services.log.info("expired", streams=len(gone))
        except (StoreError, OSError, RuntimeError) as error:  # no thread could be started, say
            services.log.error("expire_failed", why=str(error))


class _Stores(NamedTuple):
    """What is recorded to, and what knows about it."""

    store: Store
    siblings: Siblings | None = None
    shipper: "Shipper | None" = None


@asynccontextmanager
async def _stores(config: Config, log: Log, root: Path | None) -> AsyncGenerator[_Stores]:
    """Open the folder of this process, those below `root` that none writes to, and the database; join them to one."""
    if root is None:
        yield _Stores(MemoryStore())
        return
    async with AsyncExitStack() as opening:
        files = await opening.enter_async_context(_files(config, config.data, log))
        # The first worker keeps what none writes to.
        kept = old_folders(root, config.workers) if config.data in (root, root / "w0") else []
        stores = [await opening.enter_async_context(_files(config, folder, log)) for folder in kept]
        siblings = Siblings(partial(folders_in, root, but=config.data), lambda why: log.warn("store", why=why))
        store: Store = WithSiblings(files, siblings, stores) if stores or config.data != root else files
        if config.store is None:
            yield _Stores(store, siblings)
            return
        server = server_at(config.store)
        from .store.postgres.start import opened

        old = zip(kept, stores, strict=True)
        async with opened(server, files, store, config, root, log.warn, old) as (shared, shipper):
            yield _Stores(shared, siblings, shipper)


@asynccontextmanager
async def _files(config: Config, folder: Path, log: Log) -> AsyncGenerator[FileStore]:
    assert config.durability != "none", "that has no folder"
    async with open_files(
        folder,
        durability=config.durability,
        warn=lambda why: log.warn("store", why=why),
        search=config.search and config.requests == "full",
    ) as store:
        for tape in store.recovered:
            if tape.refused:
                log.error("not_recovered", stream=tape.stream, why=tape.refused)
            else:
                log.warn("recovered", stream=tape.stream)
        yield store


@asynccontextmanager
async def running(
    config: Config, *, log: Log, compare: Compare | None = None, worker: Worker | None = None
) -> AsyncGenerator[Running]:
    """Serve until the block is left, which ends every stream at once. Raise what keeps the server from starting."""
    async with _ready(config, log, compare, worker=worker) as (assembly, sockets), trio.open_nursery() as nursery:
        shutdown = trio.Event()
        await nursery.start(partial(_serve, assembly, sockets, shutdown))
        yield Running(address_of(config.host, sockets[0].getsockname()[1]), assembly)
        await assembly.registry.drain(-inf)
        nursery.cancel_scope.deadline = trio.current_time() + SHUTDOWN_GRACE_S
        shutdown.set()


async def run(
    config: Config,
    *,
    log: Log,
    on_ready: Callable[[str], None],
    inherited: _Sockets = (),
    compare: Compare | None = None,
    store: Store | None = None,
    worker: Worker | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then give running streams `drain_s` to end; a second signal ends them at once.

    `store` is instead of the data folder. A `worker` also stops when its parent has died.
    """
    async with _ready(config, log, compare, inherited, store, worker) as (assembly, sockets):
        stop, hurry = trio.Event(), trio.CancelScope()
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_stop_on, signals, stop, hurry, assembly.registry)
                if worker is not None:
                    nursery.start_soon(_stop_with_parent, worker, assembly.registry)
                with hurry:
                    async with trio.open_nursery() as serving:
                        await serving.start(partial(_serve, assembly, sockets, stop))
                        _settle()
                        url = address_of(config.host, sockets[0].getsockname()[1])
                        if config.durability != "none":
                            with suppress(OSError):  # only `wiretape ui` misses it
                                await trio.Path(config.data / ADDRESS_FILE).write_text(url)
                        on_ready(url)
                        notify("READY=1")
                        await stop.wait()
                        notify("STOPPING=1")
                        log.info("draining", streams=len(assembly.registry.live), seconds=config.drain_s)
                        await assembly.registry.drain(trio.current_time() + config.drain_s)
                with trio.move_on_after(SHUTDOWN_GRACE_S):
                    await assembly.registry.drain(-inf)
                nursery.cancel_scope.cancel()


async def _stop_on(signals: AsyncIterator[int], stop: trio.Event, hurry: trio.CancelScope, registry: Registry) -> None:
    async for _ in signals:
        if stop.is_set():
            registry.end_all()  # before the connections are cut, or each stream would end as `client_gone`
            hurry.cancel()
        stop.set()


async def _stop_with_parent(worker: Worker, registry: Registry) -> None:
    """Stop without a drain: the next parent needs the port and the folders."""
    await worker.parent_died()
    await registry.drain(-inf)
    os.kill(os.getpid(), signal.SIGTERM)


@asynccontextmanager
async def _ready(
    config: Config,
    log: Log,
    compare: Compare | None,
    inherited: _Sockets = (),
    given: Store | None = None,
    worker: Worker | None = None,
) -> AsyncGenerator[tuple[Assembly, _Sockets]]:
    trio.socket.set_custom_hostname_resolver(Resolver())
    root = None if config.durability == "none" else config.data
    sockets = (worker.sockets if worker is not None else inherited) or listening(config.host, config.port)
    config = config if root is None else _part_of(config, worker)
    try:
        try:
            transport = UpstreamTransport(config.upstream)
        except OSError as error:  # includes SSLError
            why = error.strerror or error
            raise ConfigError(f"Cannot use ca_file {config.upstream.ca_file}: {why}") from error
        opening = _stores(config, log, root) if given is None else nullcontext(_Stores(given))
        async with opening as (store, siblings, shipper):
            salt, operator = salt_of(root), operator_token(root)
            export = _exporter(config, store, log, root and config.data)
            async with assembled(
                config,
                store=store,
                transport=transport,
                log=log,
                salt=salt,
                operator=operator,
                export=export,
                compare=compare,
                new_id=new_stream_id if worker is None else partial(new_stream_id, bytes([worker.number])),
                worker=worker,
                siblings=siblings,
                shipping=shipper,
            ) as assembly:
                yield assembly, sockets
    finally:
        for sock in sockets:
            sock.close()


def _part_of(config: Config, worker: Worker | None) -> Config:
    """Return the configuration of one process: with its folder, and its share of what is for all folders together."""
    count, kept, memory = 1 if worker is None else worker.count, config.keep.bytes, config.memory_max_bytes
    with_tapes = [folder for folder in old_folders(config.data, count) if days_in(folder)]
    keep = replace(config.keep, bytes=kept and kept // (count + len(with_tapes)))
    config = replace(config, keep=keep, workers=count)
    if worker is None:
        return config
    return replace(
        config,
        data=worker.folders[worker.number],
        streams_max=max(1, config.streams_max // count),
        memory_max_bytes=memory and memory // count,
    )


def _exporter(config: Config, store: Store, log: Log, root: Path | None) -> Exporter | None:
    """Return what exports spans, if a collector is named. It is reached directly, not through the egress proxy."""
    try:
        collector = collector_of(config, os.environ)
    except ConfigError as error:  # variables may be meant for other programs, so they stop no server
        log.error("otel_off", why=str(error))
        return None
    if collector is None:
        return None
    transport = UpstreamTransport(UpstreamSettings(ca_file=config.upstream.ca_file))
    return Exporter(collector, Sender(collector, transport, log), store, log, time.time, root)


async def _serve(
    assembly: Assembly, sockets: _Sockets, stop: trio.Event, *, task_status: trio.TaskStatus[list[str]]
) -> None:
    """Serve the sockets, and the other workers if there are any.

    Connections get a little longer than streams, so that each client receives its ending.
    """
    settings = ServerSettings(
        graceful_s=assembly.services.config.drain_s + SHUTDOWN_FLUSH_S,
        connections_max=assembly.registry.connections_max,
        log=lambda line: assembly.services.log.warn("server", why=line),
        on_refused=assembly.refusals.head,
        on_limited=assembly.metrics.limited,
    )
    served = partial(serve, settings=settings, reaper=assembly.reaper, shutdown=stop)
    async with trio.open_nursery() as nursery:
        if assembly.for_others is not None:
            control = control_socket(assembly.services.config.data)
            await nursery.start(partial(served, assembly.for_others, [control]))
        await served(assembly.app, sockets, task_status=task_status)


def _settle() -> None:
    """Spare the garbage collector, which at every 700 objects was a fifth of what a frame cost in bursts."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 5, 5)
