"""`make capacity`: what 1,000, 100,000 and 10 million concurrent streams need, from measured costs.

Writes docs/internals/capacity.md. Costs name where they were measured; everything else is an assumption, to be replaced
by your own. Nothing is measured here, so the page changes only with a constant.
"""

from collections.abc import Callable
from math import ceil
from pathlib import Path
from typing import Final, NamedTuple

from tests.support.markdown import table

PLACE: Final = Path(__file__).parents[2] / "docs/internals/capacity.md"
_STREAMS: Final = (1_000, 100_000, 10_000_000)

# -- the load: assumptions
_FRAMES_A_SECOND: Final = 30
_STREAM_S: Final = 20
#: The busiest hour against the mean: what is kept grows with the mean.
_PEAK: Final = 3
_KEEP_DAYS: Final = 7

# -- the hardware: assumptions
_CORES: Final = 32
#: The share of a core beyond which the frames of a burst wait.
_BUSY: Final = 0.7
_NETWORK_BYTES: Final = 25e9 / 8
_WRITE_BYTES: Final = 1e9
_DISK_BYTES: Final = 10e12
#: PostgreSQL processes of one server, and those that one of ours uses: for shipping, questions, runs and notifications.
_CONNECTIONS: Final = 1_000
_OURS: Final = 4
#: A pack is dropped when its streams have ended and an hour has passed.
_PACKS_S: Final = 2 * 3_600
_FLUSH_S: Final = 0.02
_FLUSH_BYTES: Final = 1024 * 1024


class Cost(NamedTuple):
    """Something that was measured."""

    what: str
    value: float
    unit: str
    by: str


_PROTOTYPE: Final = "prototype, at two rates with 20 ms a flush"
_FRAME: Final = Cost("CPU of a frame", 55.3, "us", "`make bench-runs`, plain streams")
_STREAM: Final = Cost("CPU of a stream's beginning and end", 1_300, "us", "`python -m tests.bench.workers`")
_SPREAD: Final = Cost("busiest worker against the mean", 1.1, "", "400 connections over four processes")
_PROCESS: Final = Cost("memory of a process with 200 streams", 60, "MB", "`make bench-proxy`")
_IDLE: Final = Cost("memory of an idle stream", 0.048, "MB", "`make bench-proxy`")
_DESCRIPTORS: Final = Cost("descriptors of a stream", 3, "", "`proxy/limits.py`")
_RECORD: Final = Cost("a record on disk", 280, "bytes", "tapes of the benchmarks")
_SHIP_FLUSH: Final = Cost("CPU of a flush, proxy", 650, "us", _PROTOTYPE)
_SHIP_RECORD: Final = Cost("CPU of a record that is shipped, proxy", 0.55, "us", _PROTOTYPE)
_FLUSH: Final = Cost("CPU of a flush, database", 450, "us", _PROTOTYPE)
_ENDED: Final = Cost("CPU of a stream that ends, database", 270, "us", "1,000 short streams, three frames each")
_PACKED: Final = Cost("a record in a pack", 33, "bytes", _PROTOTYPE)
_BLOCKED: Final = Cost("a record of an ended stream", 17, "bytes", "the longest tapes of fixtures/, zstd 3")
_COSTS: Final = tuple(value for value in dict(globals()).values() if isinstance(value, Cost))


def _most(limit: float, use: Callable[[int], float]) -> int:
    """Return the largest number of streams whose use is within the limit."""
    low, high = 0, 1 << 40
    while low < high - 1:
        middle = (low + high) // 2
        low, high = (middle, high) if use(middle) <= limit else (low, middle)
    return low


def _process_us(streams: int) -> float:
    """Return the CPU time of one process a second."""
    frames = streams * _FRAMES_A_SECOND * (_FRAME.value + _SHIP_RECORD.value)
    return frames + streams / _STREAM_S * _STREAM.value + _flushes(streams) * _SHIP_FLUSH.value


def _flushes(streams: int) -> float:
    """Return how often one process ships a second."""
    return max(1 / _FLUSH_S, streams * _FRAMES_A_SECOND * _RECORD.value / _FLUSH_BYTES)


#: Streams of one process in the mean, so that the busiest one is not too busy; and of a machine, whose kernel gets two
#: cores.
_WORKER: Final = int(_most(_BUSY * 1e6, _process_us) / _SPREAD.value)
_MACHINE: Final = _WORKER * (_CORES - 2)


class Uses:
    """What so many concurrent streams use in all: processes, and what databases have to take."""

    def __init__(self, streams: int) -> None:
        records = streams * _FRAMES_A_SECOND
        self.workers = ceil(streams / _WORKER)
        self.flushes = self.workers * _flushes(min(streams, _WORKER))
        self.cores = (self.flushes * _FLUSH.value + streams / _STREAM_S * _ENDED.value) / 1e6
        self.received_bytes = records * (_PACKED.value + _BLOCKED.value)
        self.packs_bytes = records * _PACKED.value * _PACKS_S
        self.blocks_bytes = records / _PEAK * _BLOCKED.value * _KEEP_DAYS * 86_400


def _limits() -> dict[str, tuple[int, str]]:
    """Return what is used up, by how many streams, and what changes there."""
    shards = "shards by stream id"
    return {
        "one process: CPU": (_WORKER, "`--workers`"),
        "one machine: CPU": (_MACHINE, "machines that share a database"),
        "one database: disk": (
            _most(_DISK_BYTES, lambda streams: Uses(streams).blocks_bytes + Uses(streams).packs_bytes),
            "ended tapes become objects",
        ),
        "one database: connections": (_most(_CONNECTIONS, lambda streams: Uses(streams).workers * _OURS), shards),
        "one database: CPU": (_most(_CORES * _BUSY, lambda streams: Uses(streams).cores), shards),
        "one database: writes, log and table": (
            _most(_WRITE_BYTES, lambda streams: 2 * Uses(streams).received_bytes),
            shards,
        ),
        "one database: network": (_most(_NETWORK_BYTES, lambda streams: Uses(streams).received_bytes), shards),
    }


_TEXT: Final = """\
# How large it can get

Written by `make capacity` (tests/bench/capacity.py) from measured costs and named assumptions. No load of this size has
run. A stream has {rate} frames a second and takes {seconds} seconds. The busiest hour has {peak} times the streams of
the mean, and tapes are kept for {days} days. Machines and databases have {cores} cores, used to {busy:.0%}, and a
network of 25 Gbit/s. A database has {disk:.0f} TB and writes {write:.0f} GB a second.

## What so many concurrent streams need

{needs}
Without objects, ended tapes also need {blocks:.0f} MB of a database's disk for each concurrent stream.

## Where the limits are

{limits}
## What changes there

**Workers.** A process uses one core. `serve --workers N` uses the others, without a database.

**PostgreSQL.** A record costs the database little, a flush costs {flush:.0f} us. A busy process flushes {flushes:.0f}
times a second, so the database's CPU grows with the number of processes.

**Objects.** Ended tapes fill the disk first. Their blocks are compressed and never change, so they can move to object
storage, and the database keeps one row for each stream. At 10 million streams, {endings:,.0f} streams end each second.
So a process writes one object a minute, and each row has its place in it: {objects:,.0f} objects a second.

**Shards.** A stream's id names the worker that made it, and can name its database too. Each process then ships to one
database, and a resume asks one. Lists ask all databases. Tool calls are looked up by caller, so their rows belong to
the database that the caller's hash names.

Objects and shards are not built.

## The costs

{costs}"""
_HEAD: Final = ("streams", "processes", "machines", "memory, descriptors of a process", "local tapes of a machine")
_DATABASE_HEAD: Final = ("flushes a second", "database cores", "received", "databases, ended tapes as objects")


def _row(streams: int) -> list[str]:
    uses, machines, each = Uses(streams), ceil(streams / _MACHINE), min(streams, _WORKER)
    local_bytes = streams / machines / _PEAK * _FRAMES_A_SECOND * _RECORD.value * 86_400
    databases = max(streams / most for most, then in _limits().values() if then.startswith("shards"))
    return [
        f"{streams:,}",
        f"{uses.workers:,}",
        f"{machines:,}",
        f"{_PROCESS.value + each * _IDLE.value:.0f} MB, {each * _DESCRIPTORS.value:,.0f}",
        f"{local_bytes / 1e9:,.0f} GB a day",
        f"{uses.flushes:,.0f}",
        f"{uses.cores:,.1f}",
        f"{uses.received_bytes / 1e6:,.1f} MB/s",
        f"{ceil(databases):,}",
    ]


def page() -> str:
    """Return the whole page."""
    limits = sorted(_limits().items(), key=lambda limit: limit[1])
    return _TEXT.format(
        rate=_FRAMES_A_SECOND,
        seconds=_STREAM_S,
        peak=_PEAK,
        days=_KEEP_DAYS,
        cores=_CORES,
        busy=_BUSY,
        disk=_DISK_BYTES / 1e12,
        write=_WRITE_BYTES / 1e9,
        needs=table((*_HEAD, *_DATABASE_HEAD), map(_row, _STREAMS)),
        blocks=Uses(1).blocks_bytes / 1e6,
        limits=table(("what is used up", "by streams", "then"), [(what, f"{n:,}", then) for what, (n, then) in limits]),
        flush=_FLUSH.value,
        flushes=_flushes(_WORKER),
        endings=_STREAMS[-1] / _STREAM_S,
        objects=Uses(_STREAMS[-1]).workers / 60,
        costs=table(
            ("cost", "", "measured by"), [(each.what, f"{each.value:,g} {each.unit}", each.by) for each in _COSTS]
        ),
    )


if __name__ == "__main__":
    PLACE.write_text(page(), encoding="utf-8")
    print(page())
