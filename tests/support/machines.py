"""Several machines with one log, in memory and virtual time

    async with machines("a", "b", scripts=[Peer(text("hi"), finish(), DONE)]) as (log, [a, b]):
        run = await started(a)
        assert frames_of((await view(b, run)).body) == await history(log.tapes, run)

Each machine is a whole proxy with a store of its own, and the log has what that gets a moment later. The log takes the
place of the database: it knows who wrote a stream, who claimed a turn and who reads what, and it can be away.
"""

from collections import Counter
from collections.abc import AsyncGenerator, Callable, Collection, Generator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from typing import Any, Final

import trio

from tests.proxy.scripted import Script
from tests.proxy.store_cases import Elsewhere
from tests.support.house import House, house
from wiretape.events.tape.record import Record
from wiretape.proxy.store.joined import JoinedStore
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Filter

__all__ = ["Agreement", "Log", "Shipped", "crashed", "joined", "machines", "tapes_of"]

#: After so long a claim of which nothing came may be taken over.
CLAIM_S: Final = 30.0


def crashed(last: Record) -> Record:
    """Return the end that recovery writes."""
    return Record(last.n + 1, last.t, "end", {"cause": "crashed", "ending": "crashed", "flags": []})


def tapes_of(store: MemoryStore) -> dict[str, list[Record]]:
    """Return the records of every tape."""
    return {stream: tape.records for stream, tape in store._tapes.items()}  # pyright: ignore[reportPrivateUsage]


class Log:
    """What all machines know."""

    def __init__(self) -> None:
        self.tapes = Elsewhere()
        #: By stream: the machine that wrote it.
        self.writers: dict[str, str] = {}
        #: Who claimed it, and when.
        self.claims: dict[tuple[str, int], tuple[str, float]] = {}
        self.readers: Counter[tuple[str, str]] = Counter()
        #: Those that run.
        self.machines: dict[str, Agreement] = {}

    async def put(self, name: str, stream: str, records: Sequence[Record], row: Any) -> None:
        """Take what a machine ships, unless others have ended the stream."""
        if stream not in self.writers:
            self.writers[stream] = name
            await self.tapes.create(stream)
        if not any(record.kind == "end" for record in tapes_of(self.tapes)[stream][-1:]):
            await self.tapes.append(stream, records, row)

    async def bury(self, name: str) -> list[str]:
        """Declare a machine dead; return the streams that were ended for that."""
        ended = [row.stream for row in await MemoryStore.list(self.tapes, Filter(ending=""), 1_000)]
        ended = [stream for stream in ended if self.writers[stream] == name]
        for stream in ended:
            await self.tapes.append(stream, [crashed(tapes_of(self.tapes)[stream][-1])])
        return ended


class Shipped(MemoryStore):
    """The own store of a machine; it ships all that it gets, so long after it got it."""

    def __init__(self, log: Log, name: str, lag_s: Callable[[], float], *args: Any) -> None:
        super().__init__(*args)
        self._log = log
        self._name = name
        self._lag_s = lag_s
        self._queue: list[tuple[str, Sequence[Record], Any]] = []
        self._dirty = trio.Event()

    async def append(self, stream: str, records: Sequence[Record], row: Any = None) -> int:
        size = await super().append(stream, records, row)
        self._queue.append((stream, records, row))
        self._dirty.set()
        return size

    async def release(self, stream: str) -> None:
        """End it for others as recovery will."""
        await super().release(stream)
        if (records := self._tapes[stream].records) and records[-1].kind != "end":
            self._queue.append((stream, [crashed(records[-1])], None))
            self._dirty.set()

    async def ship(self) -> None:
        """Ship until cancelled, as by kill -9."""
        while True:
            await self._dirty.wait()
            self._dirty = trio.Event()
            await trio.sleep(self._lag_s())
            await self.flush()

    async def flush(self) -> None:
        """Ship everything now."""
        queue, self._queue = self._queue, []
        for stream, records, row in queue:
            await self._log.put(self._name, stream, records, row)


class Agreement:
    """The agreement of one machine with the others (`Shared`)."""

    def __init__(self, log: Log, name: str) -> None:
        self.on_asked: Any = None
        self._log = log
        self._name = name

    async def claim(self, run: str, turn: int) -> bool:
        await self._log.tapes.asked()
        held = self._log.claims.get((run, turn))
        rows = await MemoryStore.list(self._log.tapes, Filter(run=run), 1_000)
        begun = any(row.turn == turn for row in rows)
        if held and (begun or not (held[0] == self._name or trio.current_time() > held[1] + CLAIM_S)):
            return False
        self._log.claims[run, turn] = self._name, trio.current_time()
        return True

    async def ask(self, stream: str, what: str, keys: Mapping[str, Any]) -> Mapping[str, Any] | None:
        await self._log.tapes.asked()
        await trio.sleep(0.1)
        machine = self._log.machines.get(self._log.writers[stream])
        with trio.move_on_after(40):
            if machine is None:
                await trio.sleep_forever()
            said: Mapping[str, Any] = await machine.on_asked(what, keys)
            return said
        return None

    async def read_elsewhere(self, stream: str) -> bool:
        if self._log.tapes.why:
            return False
        await trio.lowlevel.checkpoint()
        return any(read and at[0] == stream and at[1] != self._name for at, read in self._log.readers.items())

    @contextmanager
    def reading(self, stream: str) -> Generator[None]:
        self._log.readers[stream, self._name] += 1
        try:
            yield
        finally:
            self._log.readers[stream, self._name] -= 1

    async def forget(self, streams: Sequence[str]) -> None:
        await self._log.tapes.asked()
        await self._log.tapes.delete(streams)
        for name, machine in self._log.machines.items():
            for stream in streams:
                if self._log.writers[stream] == name != self._name:
                    await machine.on_asked("forget", {"stream": stream})


class _View:
    """The log as one machine reads it."""

    def __init__(self, log: Log, name: str) -> None:
        self._log, self._name = log, name
        self.read, self.follow = log.tapes.read, log.tapes.follow
        self.list, self.alike, self.rows = log.tapes.list, log.tapes.alike, log.tapes.rows
        self.recent = log.tapes.recent

    async def running(self, streams: Collection[str]) -> Collection[str]:
        return [stream for stream in await self._log.tapes.running(streams) if self._log.writers[stream] != self._name]


def joined(log: Log, name: str, own: MemoryStore) -> JoinedStore:
    """Return the store of a machine."""
    return JoinedStore(own, _View(log, name), Agreement(log, name))


@asynccontextmanager
async def machines(
    *names: str, scripts: Sequence[Script], lag_s: float = 0.05, **how: Any
) -> AsyncGenerator[tuple[Log, list[House]]]:
    """Run several machines; `how` is of each house. Of all connections to upstreams each runs the next script."""
    log, ids, homes, rest = Log(), list[str](), list[House](), [*scripts]

    async def upstream(stream: trio.abc.Stream) -> None:
        await (rest.pop(0) if len(rest) > 1 else rest[0])(stream)

    async with trio.open_nursery() as nursery, AsyncExitStack() as stack:
        for name in names:
            own = Shipped(log, name, lambda: lag_s)
            nursery.start_soon(own.ship)
            homes.append(await stack.enter_async_context(house(upstream, store=joined(log, name, own), ids=ids, **how)))
            shared: Any = homes[-1].store.shared
            log.machines[name] = shared
        yield log, homes
        log.tapes.why = ""
        for home in homes:
            await home.settled()
        await trio.sleep(2 * lag_s)
        await stack.aclose()
        nursery.cancel_scope.cancel()
