"""Clients of /v1/runs in memory, and what their viewers must have received

async with house(Peer(text("hi"), finish(), DONE)) as home:
    run = await started(home)
    viewed = await view(home, run)
    assert frames_of(viewed.body) == await history(home.store, run)
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, Final

from tests.support.house import HEAD, House, post
from tests.support.http import Answer, Client
from tests.support.runs import CLOSING, misfit
from wiretape.events.core.json_text import parse
from wiretape.events.emit import RunReader
from wiretape.events.folds.run_events import event_schema
from wiretape.events.tape.record import Record
from wiretape.proxy.store.store import Filter, Store

__all__ = [
    "CLOSING",
    "HEAD_ONCE",
    "RUNS",
    "TOOLS",
    "ask",
    "event_of",
    "frames_of",
    "history",
    "history_of",
    "names",
    "number_of",
    "records_of",
    "started",
    "view",
    "viewer",
    "wrong_with",
]

RUNS: Final = "/v1/runs"
#: Of an upstream that takes one request, so that the next turn meets the next script.
HEAD_ONCE: Final = HEAD.replace(b"Transfer", b"Connection: close\r\nTransfer")
TOOLS: Final[Sequence[Mapping[str, Any]]] = tuple(
    {"type": "function", "name": name, "parameters": {"type": "object"}}
    for name in ("write_file", "get_weather", "read")
)


# -- requests ---------------------------------------------------------------------------------------------------------


async def ask(
    home: House, path: str, body: Any = b"", *headers: str, method: str = "POST"
) -> tuple[int, dict[str, Any]]:
    """Return the status and the JSON of one request below /v1/runs."""
    answered = await home.ask(body, *headers, path=RUNS + path, method=method)
    return answered.status, parse(answered.body)


async def started(home: House, *headers: str, **more: Any) -> str:
    """Start a run and return its id."""
    status, said = await ask(home, "", {"model": "m", "input": "hi", **more}, *headers)
    assert status == 202, said
    assert said["status"] == "started"
    return str(said["run_id"])


async def viewer(home: House, run: str, *headers: str, query: str = "", capacity: int | None = None) -> Client:
    """A client that has asked for the events of a run."""
    client = await home.connect(capacity=capacity)
    await client.send(post(b"", *headers, path=f"{RUNS}/{run}/events{query}", method="GET"))
    return client


async def view(home: House, run: str, *headers: str, query: str = "") -> Answer:
    """Return the events of a run, up to the end of their stream."""
    client = await viewer(home, run, *headers, query=query)
    answered = await client.response()
    client.close()
    return answered


# -- frames -----------------------------------------------------------------------------------------------------------


def frames_of(body: bytes) -> list[bytes]:
    """Return each whole frame with an event; comments are left out."""
    return [block + b"\n\n" for block in body.split(b"\n\n")[:-1] if not block.startswith(b":")]


def event_of(frame: bytes) -> dict[str, Any]:
    """Return the event of a frame."""
    event: dict[str, Any] = parse(frame.partition(b"data: ")[2])
    return event


def number_of(frame: bytes) -> int:
    """Return the id of a frame."""
    return int(frame.removeprefix(b"id: ").partition(b"\n")[0])


def names(frames: Sequence[bytes]) -> list[str]:
    """Return the name of each event."""
    return [event_of(frame)["event"] for frame in frames]


# -- tapes ------------------------------------------------------------------------------------------------------------


async def records_of(store: Store, run: str) -> list[list[Record]]:
    """Return the tapes of a run in order."""
    rows = await store.list(Filter(run=run))
    tapes = [[record async for batch in store.read(row.stream) for record in batch] for row in rows]
    return sorted(
        (tape for tape in tapes if tape), key=lambda tape: (tape[0].keys["created_us"], tape[0].keys["stream"])
    )


async def history(store: Store, run: str) -> list[bytes]:
    """Return the frames that the tapes of a run give."""
    return history_of(await records_of(store, run))


def history_of(tapes: Sequence[Sequence[Record]]) -> list[bytes]:
    """Return the frames that these tapes give."""
    reader = RunReader()
    return [frame for tape in tapes for frame in reader.feed(*tape)]


# -- what must hold ---------------------------------------------------------------------------------------------------


def wrong_with(frames: Sequence[bytes], run: str, *, ended: bool = True) -> list[str]:
    """Return what is wrong with these frames as the whole history of a run."""
    wrong: list[str] = []
    events = [event_of(frame) for frame in frames]
    numbers = list(range(1, len(frames) + 1))
    if [number_of(frame) for frame in frames] != numbers or [event.get("sequence") for event in events] != numbers:
        wrong.append(f"numbers of {run} have gaps")
    if any(event.get("run_id") != run for event in events):
        wrong.append(f"an event of {run} names another run")
    times = [event["timestamp"] for event in events]
    if any(later < at - 0.001 for at, later in pairwise(times)):  # records of one moment are a microsecond apart
        wrong.append(f"time goes backwards in {run}")
    closing = [at for at, event in enumerate(events) if event["event"] in CLOSING]
    if closing != ([len(events) - 1] if ended else []):
        wrong.append(f"{run} has closing events at {closing} of {len(events)}")
    misfits = [(event, misfit(event, event_schema(event["event"]))) for event in events]
    return [*wrong, *(f"{event} of {run}: {what}" for event, what in misfits if what)]
