"""The metrics of all workers as those of one server, and what else connects a worker with the others."""

from collections.abc import Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Any, Final

import orjson
import trio

from ..api.metrics import Families, Metrics, counters_of, families_of, summed
from ..api.streams import StreamsApi
from ..limits import WORKER_ANSWER_S
from ..relay.app import Application
from ..relay.http_responses import json_answer, send_answer
from ..runs.runs import Runs
from ..runs.shares import RunShares
from ..server.asgi import App, Receive, Send
from ..store.siblings import Siblings
from ..upstream.connection import Outgoing, WireError
from .forward import ORIGIN, Forward, opened
from .worker import COUNTED, Worker

__all__ = ["connected"]

#: The path on the Unix sockets, and on no other, where a worker says what it counts itself.
_METRICS: Final = b"/metrics"


class _Totals:
    """What was shown of a worker is where its next process begins, after a kill or a restart: no counter ever falls."""

    def __init__(self, own: Path, others: list[Path], metrics: Metrics) -> None:
        self._own = own
        self._others = others
        self._metrics = metrics
        self._before = _kept(own)

    def own(self) -> Families:
        """Return what this worker has counted in all its lives, once that is kept."""
        families = summed([families_of(self._metrics.collect()), self._before])
        fresh = self._own / f"{COUNTED}.new"
        with suppress(OSError):  # a full disk is what this scrape must show
            fresh.touch(mode=0o600)
            fresh.write_bytes(orjson.dumps(counters_of(families)))
            fresh.replace(self._own / COUNTED)
        return families

    async def together(self) -> list[Families]:
        """Return what each worker counts; of one that does not answer what it said last."""
        return [self.own(), *[await _asked(folder) for folder in self._others]]


def _kept(folder: Path) -> Families:
    file = folder / COUNTED
    return list[list[Any]](orjson.loads(file.read_bytes())) if file.exists() else []


async def _asked(folder: Path) -> Families:
    with trio.move_on_after(WORKER_ANSWER_S), suppress(WireError):
        if exchange := await opened(folder):
            async with aclosing(exchange):
                await exchange.send(Outgoing(ORIGIN, b"GET", _METRICS, ((b"Host", b"worker"),), b""))
                return list[list[Any]](orjson.loads(b"".join([read.data async for read in exchange])))
    return _kept(folder)


def connected(
    worker: Worker, siblings: Siblings, app: Application, streams: StreamsApi, metrics: Metrics, runs: Runs
) -> App:
    """Let a worker ask the others, and answer them; return the app of its Unix socket."""
    own = (others := worker.folders).pop(worker.number)
    totals = _Totals(own, others, metrics)
    shares = RunShares(own / "runs.json", [folder / "runs.json" for folder in others], worker.root / "runs.lock")
    metrics.together = totals.together
    runs.owns = lambda run_id: worker.owner_of(run_id) == worker.number
    runs.may_begin, runs.on_active = shares.may_begin, shares.note
    app.elsewhere = Forward(worker, siblings, streams, runs.id_of)

    async def answer(scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        if scope["raw_path"] == _METRICS:
            await send_answer(send, json_answer(200, totals.own()))
        else:
            await app({**scope, "forwarded": True}, receive, send)

    return answer
