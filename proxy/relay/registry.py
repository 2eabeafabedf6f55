"""All running streams: lets them in, runs each in a scope that no request can cancel, and ends them at shutdown."""

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
from .http_responses import Answer, error
from .live import Live
from .pump import Pump
from .recording import Taping
from .services import Services
from .stream_request import Order

__all__ = ["Ended", "Registry", "memory_allows", "resident_bytes", "streams_that_fit"]


class Ended(NamedTuple):
    """What is told of a stream that has ended."""

    catalogue_row: CatalogueRow
    attempts: int
    tape_bytes: int
    cause: str


class Registry:
    """The only map of running streams; `run` holds their tasks."""

    def __init__(self, services: Services, *, on_ended: Callable[[Ended], None]) -> None:
        self.live: dict[str, Live] = {}
        self.draining = False
        self._services = services
        self._on_ended = on_ended
        self._pumps: dict[str, Pump] = {}
        self._nursery: trio.Nursery | None = None
        self._streams_max = min(services.config.streams_max, streams_that_fit())
        self._idle: trio.Event | None = None
        #: Requests whose body is still on its way.
        self._coming: set[trio.CancelScope] = set()
        #: The memory as it was last looked at, when, and how many streams began since.
        self._resident_bytes = 0
        self._looked_at = -inf
        self._begun = 0

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """For ever; what still runs when it is cancelled ends as `shutdown`."""
        async with trio.open_nursery() as self._nursery:
            task_status.started()
            await trio.sleep_forever()

    def refusal(self) -> Answer | None:
        """Why no stream may begin now."""
        if self.draining:
            return _later("Wiretape is shutting down", "shutdown")
        if len(self.live) >= self._streams_max:
            return _later(f"{self._streams_max} streams are running, which is the limit", "streams_max")
        if not self._memory_allows(self._services.config.memory_max_bytes):
            return _later("memory is short (memory_max_bytes)", "memory_max_bytes")
        health = self._services.store.health
        if health.failure and self._services.config.on_log_failure == "stop" and not health.full:
            return _later("tapes cannot be written (on_log_failure = stop)", "log_failure")
        return None

    @contextmanager
    def coming(self) -> Generator[trio.CancelScope]:
        """While the body of a request comes; cancelled when no stream may begin any more, as `refusal` then says."""
        with trio.CancelScope() as scope:
            self._coming.add(scope)
            try:
                yield scope
            finally:
                self._coming.discard(scope)

    def _memory_allows(self, max_bytes: int | None) -> bool:
        if max_bytes is None:
            return True
        now = trio.current_time()
        if now >= self._looked_at + MEMORY_SAMPLE_S:
            self._resident_bytes, self._looked_at, self._begun = resident_bytes(), now, 0
        return memory_allows(max_bytes, self._resident_bytes, self._begun)

    def start(self, order: Order) -> Live:
        """A stream begins; it was not refused."""
        assert self._nursery is not None, "streams begin while the registry runs"
        services = self._services
        stream, now = services.new_id(), trio.current_time()
        pump: Pump
        live = Live(stream, order.caller, order.route.name, now, on_left=lambda: pump.poke("left"))
        taped = order.dialect == "chat" or order.route.tape
        taping = Taping(
            stream,
            services.store if taped else None,
            now,
            serve_on=services.config.on_log_failure == "serve",
            wrote=services.wrote,
        )
        live.taped = taped
        pump = Pump(order, services, live, taping)
        self.live[stream] = live
        self._begun += 1
        self._pumps[stream] = pump
        self._nursery.start_soon(self._pump, stream, pump, taping)
        if pump.answering is not None:
            pump.answering.begin()
            self._nursery.start_soon(pump.answering.look_up)
        return live

    async def drain(self, until: float) -> None:
        """No stream begins any more; those that run may end by themselves until then, and are ended after."""
        self.draining = True
        for scope in self._coming:
            scope.cancel()
        await self._emptied(until)
        self.end_all()
        await self._emptied(inf)

    def end_all(self) -> None:
        """All that run, as `shutdown`, as soon as each of them can write it."""
        for pump in self._pumps.values():
            pump.poke("shutdown")

    async def _emptied(self, until: float) -> None:
        with trio.CancelScope(deadline=until):
            while self._pumps:
                self._idle = trio.Event()
                await self._idle.wait()

    async def _pump(self, stream: str, pump: Pump, taping: Taping) -> None:
        try:
            await pump.run()
        except Exception as error:  # noqa: BLE001 - P20: whatever it is, it is the end of this stream and of no other
            self._services.log.error("stream_failed", stream=stream, why=repr(error))
        finally:
            del self._pumps[stream], self.live[stream]
            if pump.answering is not None:
                pump.answering.over()
            if not self._pumps and self._idle is not None:
                self._idle.set()
            if taping.catalogue_row is not None:
                self._on_ended(Ended(taping.catalogue_row, pump.attempts, taping.written_bytes, pump.cause))


def streams_that_fit() -> int:
    """How many streams the descriptor limit allows: each holds its client, its upstream and its tape (P10, L01)."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 2**31
    return max(1, (soft - DESCRIPTORS_RESERVED) // DESCRIPTORS_A_STREAM)


def memory_allows(max_bytes: int, resident: int, begun: int) -> bool:
    """Whether one more stream may begin: this much is taken, and so many have begun since that was looked at (P13)."""
    expected = resident + (begun + 1) * MEMORY_A_STREAM_BYTES
    return expected + min(MEMORY_RESERVED_BYTES, max_bytes // 4) <= max_bytes


def resident_bytes() -> int:
    """What this process takes now; 0 where the system does not say."""
    try:
        pages = Path("/proc/self/statm").read_bytes().split()[1]
    except OSError:
        return 0
    return int(pages) * resource.getpagesize()


def _later(message: str, code: str) -> Answer:
    return error(503, message, type="wiretape_error", code=code, headers=((b"retry-after", b"1"),))
