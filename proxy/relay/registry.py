"""All running streams: starts each in a task that no request can cancel, and ends them at shutdown."""

import resource
from collections.abc import Callable, Generator
from contextlib import contextmanager
from math import inf
from pathlib import Path
from typing import NamedTuple

import trio

from ..limits import (
    DESCRIPTORS_A_STREAM,
    DESCRIPTORS_RESERVED,
    MEMORY_A_STREAM_BYTES,
    MEMORY_RESERVED_BYTES,
    MEMORY_SAMPLE_S,
)
from ..store.catalogue_row import CatalogueRow
from .delivery import Delivery
from .http_responses import Answer, error
from .relay import Relay, Services
from .stream_request import StreamRequest

__all__ = ["Ended", "Registry", "memory_allows", "resident_bytes", "streams_that_fit"]


class Ended(NamedTuple):
    """What log and metrics get of a stream that has ended."""

    catalogue_row: CatalogueRow
    attempts: int
    tape_bytes: int
    cause: str


class Registry:
    """The running streams; `run` holds their tasks."""

    def __init__(self, services: Services, *, on_ended: Callable[[Ended], None]) -> None:
        self.live: dict[str, Delivery] = {}
        self.draining = False
        self._services = services
        self._on_ended = on_ended
        self._relays: dict[str, Relay] = {}
        self._nursery: trio.Nursery | None = None
        self._streams_max = min(services.config.streams_max, streams_that_fit())
        self._empty: trio.Event | None = None
        #: Requests whose body is still on its way.
        self._reading: set[trio.CancelScope] = set()
        #: The memory in use when it was last sampled, when that was, and how many streams have begun since.
        self._resident_bytes = 0
        self._sampled_at = -inf
        self._begun = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Run streams until cancelled; those that still run then end as `shutdown`."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def refusal(self) -> Answer | None:
        """Return why no stream may begin now."""
        config = self._services.config
        if self.draining:
            return _busy("Wiretape is shutting down. Retry in a moment.", "shutdown")
        if len(self.live) >= self._streams_max:
            return _busy(f"Stream limit reached ({self._streams_max} streams). Retry later.", "streams_max")
        if config.memory_max_bytes is not None and not self._memory_allows(config.memory_max_bytes):
            return _busy("Memory limit reached (memory_max_bytes). Retry later.", "memory_max_bytes")
        health = self._services.store.health
        if health.failure and config.on_log_failure == "stop" and not health.full:
            return _busy("Tapes cannot be written (on_log_failure = stop).", "log_failure")
        return None

    @contextmanager
    def reading(self) -> Generator[trio.CancelScope]:
        """Hold this while the body of a request arrives; a shutdown cancels it."""
        with trio.CancelScope() as scope:
            self._reading.add(scope)
            try:
                yield scope
            finally:
                self._reading.discard(scope)

    def _memory_allows(self, max_bytes: int) -> bool:
        now = trio.current_time()
        if now >= self._sampled_at + MEMORY_SAMPLE_S:
            self._resident_bytes, self._sampled_at, self._begun = resident_bytes(), now, 0
        return memory_allows(max_bytes, self._resident_bytes, self._begun)

    def start(self, request: StreamRequest) -> Delivery:
        """Start the relay of a request that was not refused; return its client's side."""
        assert self._nursery is not None, "streams begin while the registry runs"
        stream = self._services.new_id()
        relay = self._relays[stream] = Relay(stream, request, self._services)
        self.live[stream] = relay.delivery
        self._begun += 1
        self._nursery.start_soon(self._run, stream, relay)
        if relay.tool_results is not None:
            self._nursery.start_soon(self._look_up, relay)
        return relay.delivery

    async def drain(self, until: float) -> None:
        """Start no stream any more; let those that run end by themselves until then, and end the others."""
        self.draining = True
        for scope in self._reading:
            scope.cancel()
        await self._emptied(until)
        self.end_all()
        await self._emptied(inf)

    def end_all(self) -> None:
        """End every stream as `shutdown`, each as soon as it can record that."""
        for relay in self._relays.values():
            relay.signals.send("shutdown")

    async def _emptied(self, until: float) -> None:
        with trio.CancelScope(deadline=until):
            while self._relays:
                self._empty = trio.Event()
                await self._empty.wait()

    async def _run(self, stream: str, relay: Relay) -> None:
        try:
            await relay.run()
        except Exception as error:  # noqa: BLE001 - P20: it ends this stream and no other
            self._services.log.error("stream_failed", stream=stream, why=repr(error))
        finally:
            del self._relays[stream], self.live[stream]
            if relay.tool_results is not None:
                relay.tool_results.over()
            if not self._relays and self._empty is not None:
                self._empty.set()
            recording = relay.recording
            if recording.catalogue_row is not None:
                self._on_ended(Ended(recording.catalogue_row, relay.attempts, recording.written_bytes, relay.cause))

    async def _look_up(self, relay: Relay) -> None:
        assert relay.tool_results is not None
        try:
            await relay.tool_results.look_up(self._services.store)
        except Exception as error:  # noqa: BLE001 - the index is disposable, and the stream can do without it
            self._services.log.error("look_up_failed", why=repr(error))


def streams_that_fit() -> int:
    """Return how many streams the descriptor limit allows: each has a client, an upstream and a tape (P10, L01)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**31
    return max(1, (soft - DESCRIPTORS_RESERVED) // DESCRIPTORS_A_STREAM)


def memory_allows(max_bytes: int, resident: int, begun: int) -> bool:
    """Return whether one more stream may begin, after `begun` of them since `resident` was sampled (P13)."""
    expected = resident + (begun + 1) * MEMORY_A_STREAM_BYTES
    return expected + min(MEMORY_RESERVED_BYTES, max_bytes // 4) <= max_bytes


def resident_bytes() -> int:
    """Return the memory of this process; 0 if the system does not report it."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _busy(message: str, code: str) -> Answer:
    return error(503, message, type="wiretape_error", code=code, headers=((b"retry-after", b"1"),))
