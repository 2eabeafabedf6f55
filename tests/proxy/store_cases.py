"""Streams to put into a store: batches of records as a relay would append them."""

from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import trio

from tests.support.chat import DONE, call, finish, text
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Damage, Recorder
from wiretape.proxy.memory import Charge
from wiretape.proxy.store.catalogue_row import Alike, CatalogueRow, Fate, StreamRow, Wanted
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.memory import MemoryStore
from wiretape.proxy.store.store import Batches, Filter, Source, Store, UnreachableError, fates_of
from wiretape.proxy.store.tape_file import Durability

#: 2026-11-18 12:00:00 UTC.
CREATED = 1_794_996_000
Batch = list[Record]


def stream_of(
    stream: str,
    *,
    reads: int = 3,
    caller: str = "caller-1",
    model: str = "m",
    route: str = "default",
    created: int = CREATED,
    call_id: str = "",
    arguments: str = "{}",
    messages: int = 1,
    results: Sequence[Mapping[str, Any]] = (),
    body: bytes = b"{}",
    end: bool = True,
    run: str = "",
    turn: int = 1,
    session: str = "",
) -> list[Batch]:
    """One chat stream: its opening, `reads` reads of text (and a tool call), its end; `results` end the messages of
    its request, and `run` makes it a turn."""
    recorder, emitter = Recorder(), Emitter()
    opening: dict[str, Any] = {"format": 1, "stream": stream, "dialect": "chat", "profile": "strict"}
    opening |= {"created": created, "created_us": created * 1_000_000, "caller": caller, "route": route}
    opening |= ({"run": run} if run else {}) | ({"session": session} if session else {})
    facts: dict[str, Any] = {"stream": True, "usage": True, "model": model, "n": 1, "tools": []}
    asked = {"facts": facts, "messages": messages}
    batches = [[recorder.record("open", 0, opening)]]
    if run:
        batches[0].append(recorder.record("run", 0, {"turn": turn, "what": "start", "mode": "own"}, body))
    batches[0].append(recorder.record("request", 0, asked, body))
    if results:
        after = messages - 1 - len(results)
        batches[0].append(recorder.record("results", 0, {"results": list(results), "after": after}))
    upstream = [text(f"word {number} ") for number in range(reads)]
    if call_id:
        upstream.append(call(index=0, id=call_id, name="look_up", arguments=arguments))
    upstream.append(finish("tool_calls" if call_id else "stop"))
    batches += [recorder.read(1_000 * number, data) for number, data in enumerate([*upstream, DONE], 1)]
    for batch in batches:
        for record in batch:
            emitter.feed(record)
    if end:
        ending, flags = emitter.ending("eof")
        batches.append([recorder.end(90_000, {"cause": "eof", "ending": ending, "flags": list(flags)})])
    return batches


class Elsewhere(MemoryStore):
    """What other processes have, for a `JoinedStore`; `why` it cannot be asked, or that it says nothing for so long."""

    def __init__(self) -> None:
        super().__init__()
        self.why = ""
        self.silent_s = 0.0

    async def running(self, streams: Collection[str]) -> Collection[str]:
        """Those that have not ended."""
        await self.asked()
        return [row.stream for row in await super().list(Filter(ending="")) if row.stream in streams]

    async def list(self, which: Filter, limit: int = 100) -> Sequence[StreamRow]:
        await self.asked()
        return await super().list(which, limit)

    async def recent(self) -> Sequence[StreamRow]:
        """Return all."""
        await self.asked()
        return await super().list(Filter())

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        await self.asked()
        return await super().alike(wanted)

    async def rows(self, streams: Sequence[str]) -> Mapping[str, CatalogueRow]:
        await self.asked()
        return await super().rows(streams)

    def read(self, stream: str, from_n: int = 0) -> Any:
        """Raise late, as a source may."""
        return _Late(self, partial(super().read, stream, from_n))

    def follow(self, stream: str, from_n: int = 0) -> Any:
        return _Late(self, partial(super().follow, stream, from_n))

    async def asked(self) -> None:
        """Answer, or not."""
        await trio.sleep(self.silent_s)
        if self.why:
            raise UnreachableError(self.why)


class _Late:
    held: Charge | None = None
    cancellable = True

    def __init__(self, source: Elsewhere, opened: Callable[[], Batches]) -> None:
        self._source, self._opened = source, opened
        self._batches: Batches | None = None

    def __aiter__(self) -> "_Late":
        return self

    async def __anext__(self) -> list[Record]:
        await self._source.asked()
        self._batches = self._batches or self._opened()
        return await anext(self._batches)

    @property
    def damage(self) -> Sequence[Damage]:
        return self._batches.damage if self._batches else ()


def flat(batches: Iterable[Sequence[Record]]) -> list[Record]:
    """All records."""
    return [record for batch in batches for record in batch]


async def put(store: Store, stream: str, batches: Sequence[Batch]) -> list[Record]:
    """Begin a stream, append its batches and return their records."""
    await store.create(stream)
    for batch in batches:
        await store.append(stream, batch)
    return flat(batches)


async def fates_in(store: Store | Source, stream: str, now: float) -> Mapping[str, Fate]:
    """What became of the calls of a stream; nothing if the stream has not ended."""
    found = (await store.rows([stream])).get(stream)
    return {} if found is None else await fates_of(store, found, now)


async def gathered(batches: Batches) -> list[Record]:
    """All records that a reader gets."""
    records: list[Record] = []
    async for batch in batches:
        assert batch, "a batch is never empty"
        records += batch
    return records


@asynccontextmanager
async def opened_files(root: Path, *, durability: Durability = "process", **options: Any) -> AsyncGenerator[FileStore]:
    """A store on disk that says nothing to complain about."""
    said: list[str] = []
    async with open_files(root, durability=durability, warn=said.append, **options) as store:
        yield store
    assert said == []
