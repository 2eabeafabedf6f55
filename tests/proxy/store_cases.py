"""Streams to put into a store: batches of records as a relay would append them."""

from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.chat import DONE, call, finish, text
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.store import Batches, Store
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


def flat(batches: Iterable[Sequence[Record]]) -> list[Record]:
    """All records."""
    return [record for batch in batches for record in batch]


async def put(store: Store, stream: str, batches: Sequence[Batch]) -> list[Record]:
    """Begin a stream, append its batches and return their records."""
    await store.create(stream)
    for batch in batches:
        await store.append(stream, batch)
    return flat(batches)


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
