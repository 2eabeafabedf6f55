"""`python -m tests.bench.shipping`: what shipping to PostgreSQL costs the process that records.

One process writes 50,000 records a second to 1,000 tapes that end and begin again, in turns with and without a
shipper. CPU is that of the whole process. Each record has a time at which it is due, so a late loop counts as latency.
"""

import argparse
import gc
import json
import os
import random
import statistics
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import trio

from tests.postgres.cluster import PASSWORD, Cluster, Database, temporary_cluster
from wiretape.events.tape.record import Record
from wiretape.proxy.store.catalogue_row import CatalogueRow, StreamRow
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.postgres import server_at
from wiretape.proxy.store.postgres.schema import migrate
from wiretape.proxy.store.postgres.ship import Shipper

RATE: Final = 50_000
STREAMS: Final = 1_000
RECORDS: Final = 400
WINDOW_S: Final = 10.0
OUTAGE_RATE: Final = 2_000
TURNS: Final = 5
CPU_US_MAX: Final = 2.0
RATIO_MAX: Final = 1.05
#: Records written before other tasks run.
_STEP: Final = 20


class Figures(NamedTuple):
    """One window."""

    records: int
    cpu_us: float
    p50_ms: float
    p99_ms: float
    lag_s: float


def payloads() -> list[bytes]:
    """Return frames of a chat model, 240 bytes each."""
    dice = random.Random(1)  # noqa: S311 - no secret
    words = ["".join(dice.choices("abcdefghijklmnopqrstuvwxyz", k=dice.randint(2, 9))) for _ in range(5_000)]
    head = {
        "object": "chat.completion.chunk",
        "created": 1_794_996_000,
        "model": "gpt-x",
        "system_fingerprint": "fp_44",
    }
    found: list[bytes] = []
    for number in range(10_000):
        delta = {"index": 0, "delta": {"content": " " + dice.choice(words)}, "finish_reason": None}
        found.append(json.dumps({"id": f"chatcmpl-{number // 50:029x}", **head, "choices": [delta]}).encode())
    return found


class Load:
    """Streams that take turns: each gets its next record, ends after enough of them, and another begins."""

    def __init__(self, files: FileStore, streams: int) -> None:
        self.written = 0
        #: How late each record was, in seconds.
        self.late: list[float] = []
        self._files, self._frames, dice = files, payloads(), random.Random(2)  # noqa: S311 - no secret
        self._begun = 0
        self._streams: list[list[Any]] = [
            ["", 0, dice.randint(10, RECORDS)] for _ in range(streams)
        ]  # so not all end at once

    async def _begin(self, place: list[Any]) -> None:
        self._begun += 1
        place[:2] = f"{os.getpid():x}x{id(self):x}x{self._begun:x}", 2
        opening = {"format": 1, "stream": place[0], "dialect": "chat", "profile": "strict", "created": int(time.time())}
        asked = {"method": "POST", "path": "/v1/chat/completions", "facts": {"model": "gpt-x"}, "messages": 2}
        body = b'{"model":"gpt-x","messages":[{"role":"user","content":"hello"}]}'
        await self._files.create(place[0])
        first = [
            Record(0, 0, "open", opening | {"caller": "c", "route": "r"}),
            Record(1, 0, "request", asked, None, body),
        ]
        await self._files.append(place[0], first)
        self.written += 2

    async def _end(self, place: list[Any]) -> None:
        stream, n, _ = place
        row = StreamRow(
            stream=stream,
            created=int(time.time()),
            caller="c",
            route="r",
            dialect="chat",
            model="m",
            ending="completed",
        )
        end: dict[str, Any] = {"cause": "eof", "ending": "completed", "flags": []}
        await self._files.append(stream, [Record(n, n * 20_000, "end", end)], CatalogueRow(row, ()))
        self.written += 1

    async def run(self, rate: int, until: Callable[[], bool]) -> None:
        """Write so many records a second; `until` says when to stop."""
        for place in self._streams:
            if not place[0]:
                await self._begin(place)
        began, before, at = time.perf_counter(), self.written, 0
        while not until():
            due = before + int((time.perf_counter() - began) * rate)
            if self.written >= due:
                await trio.sleep(0.001)
                continue
            for _ in range(min(_STEP, due - self.written)):
                place = self._streams[at]
                stream, n, most = place
                if n >= most:
                    await self._end(place)
                    place[2] = RECORDS
                    await self._begin(place)
                else:
                    frame = self._frames[(self.written * 7) % len(self._frames)]
                    await self._files.append(stream, [Record(n, n * 20_000, "frame", {}, None, frame)])
                    place[1] = n + 1
                    self.written += 1
                self.late.append(time.perf_counter() - began - (self.written - before) / rate)
                at = (at + 1) % len(self._streams)
            await trio.lowlevel.checkpoint()

    async def finish(self) -> None:
        """End all streams."""
        for place in self._streams:
            await self._end(place)


@asynccontextmanager
async def recording(database: Database | None) -> AsyncGenerator[tuple[FileStore, Shipper | None]]:
    """A store of files in memory, so that the disk of this machine does not count; shipped if there is a database."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        root = Path(folder, "data")
        async with open_files(root, warn=print, search=False) as files, trio.open_nursery() as nursery:
            shipper = None
            if database is not None:
                name = f"{time.time()}"
                shipper = Shipper(
                    server_at(database.url), files, root, name, dead_s=10, keep_days=7, warn=lambda *a, **b: print(a, b)
                )
                nursery.start_soon(shipper.run)
                while not shipper.connected:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            yield files, shipper
            nursery.cancel_scope.cancel()


async def window(database: Database | None, seconds: float, rate: int, streams: int) -> Figures:
    """Measure one window."""
    async with recording(database) as (files, shipper):
        load = Load(files, streams)
        warm = time.perf_counter() + 1
        await load.run(rate // 4, lambda: time.perf_counter() > warm)
        gc.collect()
        gc.freeze()
        gc.disable()
        load.late, before, until, cpu_s = [], load.written, time.perf_counter() + seconds, time.process_time()
        await load.run(rate, lambda: time.perf_counter() > until)
        cpu_s, written, late = time.process_time() - cpu_s, load.written - before, sorted(load.late)
        gc.enable()
        lag_s = shipper.lag_s if shipper else 0.0
    return Figures(written, cpu_s / written * 1e6, late[len(late) // 2] * 1e3, late[len(late) * 99 // 100] * 1e3, lag_s)


# -- an outage --------------------------------------------------------------------------------------------------------


def resident_mib() -> float:
    """Return the memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE") / 2**20


async def outage(cluster: Cluster, database: Database, records: int, rate: int) -> None:
    """Stop the server, write an hour's records as fast as it goes, start the server and go on at the usual rate."""
    async with recording(database) as (files, shipper):
        assert shipper is not None
        load = Load(files, 40)
        warm = time.perf_counter() + 3
        await load.run(rate, lambda: time.perf_counter() > warm)
        await trio.to_thread.run_sync(cluster.stop)
        began, before, memory = time.perf_counter(), load.written, [resident_mib()]

        def reached(most: int) -> bool:
            return load.written >= most

        for tenth in range(1, 11):
            gc.collect()
            goal = before + records * tenth // 10
            await load.run(10**6, partial(reached, goal))
            memory.append(resident_mib())
            load.late.clear()
        print(
            f"away: {load.written - before} records in {time.perf_counter() - began:.0f} s, MiB {[*map(round, memory)]}"
        )
        cluster.spawn()
        cluster.wait()
        warm = time.perf_counter() + 5  # until it connects again
        await load.run(rate, lambda: shipper.connected or time.perf_counter() > warm)
        caught, load.late = trio.Event(), []
        began, backlog = time.perf_counter(), load.written - shipper.records

        async def through() -> None:
            with trio.fail_after(600):
                while shipper.lag_s > 1:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            caught.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(through)
            await load.run(rate, caught.is_set)
        took_s, late = time.perf_counter() - began, sorted(load.late)
        after, load.late = time.perf_counter() + 10, []
        await load.run(rate, lambda: time.perf_counter() > after)
        usual = sorted(load.late)
        await load.finish()
        await shipper.through()
        ((streams, found),) = database.sql(
            "SELECT count(*), sum(records) FROM wiretape.stream WHERE sealed IS NOT NULL"
        )
        print(
            f"caught up: {backlog} records in {took_s:.1f} s, {backlog / took_s / rate:.1f} times the rate, "
            f"MiB {resident_mib():.0f}; p99 late {late[len(late) * 99 // 100] * 1e3:.1f} ms, "
            f"afterwards {usual[len(usual) * 99 // 100] * 1e3:.1f} ms; {streams} streams, "
            f"{'all' if found == load.written else found} of {load.written} records in the database"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outage", type=int, nargs="?", const=7_200_000, default=0, help="records of an outage")
    parser.add_argument("--seconds", type=float, default=WINDOW_S)
    parser.add_argument("--rate", type=int, default=RATE)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--turns", type=int, default=TURNS)
    given = parser.parse_args()
    os.environ["PGPASSWORD"] = PASSWORD
    with temporary_cluster() as cluster:
        database = cluster.create("bench")

        async def migrated() -> None:
            await migrate(await server_at(database.url).connect())

        trio.run(migrated)
        if given.outage:
            trio.run(outage, cluster, database, given.outage, OUTAGE_RATE)
            return
        alone, shipped = list[Figures](), list[Figures]()
        for _ in range(given.turns):
            for found, where in ((alone, None), (shipped, database)):
                found.append(trio.run(window, where, given.seconds, given.rate, given.streams))
                print("files + database" if where else "files alone     ", found[-1], flush=True)
        more = statistics.median(b.cpu_us - a.cpu_us for a, b in zip(alone, shipped, strict=True))
        ratio = statistics.median(b.p99_ms / a.p99_ms for a, b in zip(alone, shipped, strict=True))
        print(f"shipping: {more:.2f} us CPU a record; p99 {ratio:.2f} times")


if __name__ == "__main__":
    main()
