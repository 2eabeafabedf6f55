"""How long after it was written a record reaches a follower on another machine: `python -m tests.bench.following`.

Processes with folders of their own stand for machines: each writes its streams, ships them, and follows those of the
next one. The bars are p50 25 ms and p99 100 ms with four proxies and 1,000 streams.
"""

import argparse
import json
import re
import subprocess
import sys
import time
from array import array
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import trio

from tests.postgres.cluster import temporary_cluster
from tests.postgres.conftest import migrate
from tests.support.chat import text
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.store.files import FileStore, open_files
from wiretape.proxy.store.postgres import server_at
from wiretape.proxy.store.postgres.reading import PostgresSource
from wiretape.proxy.store.postgres.ship import Shipper
from wiretape.proxy.store.store import StoreError

_AT: Final = re.compile(rb"at ([0-9]+) ")
#: Streams begin, and followers catch up, before anything is measured.
_WARM_S: Final = 5.0


async def machine(options: argparse.Namespace) -> None:
    """Write, ship and follow; print the lags in microseconds."""
    server, lags = server_at(options.url), array("l")
    streams, ends_at = options.streams // options.machines, time.monotonic() + _WARM_S + options.seconds
    with TemporaryDirectory() as root:
        async with open_files(Path(root), warn=print) as files, trio.open_nursery() as nursery:
            shipper = Shipper(server, files, Path(root), f"m{options.number}", dead_s=10, keep_days=7, warn=print)
            source = PostgresSource(server, f"m{options.number}", 10.0, print)
            nursery.start_soon(shipper.run)
            await nursery.start(source.run)
            for number in range(streams):
                pause_s = number / streams / options.rate
                nursery.start_soon(_write, files, f"m{options.number}-{number}", options.rate, pause_s)
                theirs = f"m{(options.number + 1) % options.machines}-{number}"
                nursery.start_soon(_follow, source, theirs, ends_at - options.seconds, lags)
            began = time.monotonic()
            cpu_s = time.process_time()
            await trio.sleep(ends_at - time.monotonic())
            cpu = (time.process_time() - cpu_s) / (time.monotonic() - began)
            nursery.cancel_scope.cancel()
    print(json.dumps({"lags": list(lags), "cpu": cpu}))


async def _write(files: FileStore, stream: str, rate: float, pause_s: float) -> None:
    recorder = Recorder()
    await files.create(stream)
    opening = {"format": 1, "stream": stream, "dialect": "chat", "created": 1_800_000_000, "caller": "c"}
    await files.append(stream, [recorder.record("open", 0, opening)])
    await trio.sleep(pause_s)
    due = trio.current_time()
    while True:
        now = time.monotonic_ns()
        await files.append(stream, recorder.read(now // 1_000, text(f"at {now} and some words more")))
        due += 1 / rate
        await trio.sleep_until(due)


async def _follow(source: PostgresSource, stream: str, since: float, lags: "array[int]") -> None:
    while True:
        try:
            async for records in source.follow(stream):
                now = time.monotonic_ns()
                if now > since * 1e9:
                    for record in records:
                        if (found := _AT.search(record.raw or b"")) is not None:
                            lags.append((now - int(found[1])) // 1_000)
        except StoreError:
            await trio.sleep(0.2)


def main() -> None:
    """Start a server and the machines, and print the quantiles of all lags."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--machines", type=int, default=4)
    parser.add_argument("--streams", type=int, default=1_000, help="of all machines together")
    parser.add_argument("--rate", type=float, default=10.0, help="records a second of each stream")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--url", help="for a machine; without it this starts everything")
    parser.add_argument("--number", type=int, default=0)
    options = parser.parse_args()
    if options.url:
        trio.run(machine, options)
        return
    with temporary_cluster() as cluster:
        database = cluster.create("following")
        migrate(database)
        given = [f"--{name}={getattr(options, name)}" for name in ("machines", "streams", "rate", "seconds")]
        command = [sys.executable, "-m", "tests.bench.following", "--url", database.url, *given]
        children = [
            subprocess.Popen([*command, "--number", str(number)], stdout=subprocess.PIPE, env=database.environment)
            for number in range(options.machines)
        ]
        found = [json.loads(child.communicate()[0].splitlines()[-1]) for child in children]
    lags = sorted(lag for each in found for lag in each["lags"])
    print(
        f"{options.machines} machines, {options.streams} streams, {options.rate:g} records/s each: {len(lags)} records"
    )
    quantiles = {f"p{part}": lags[int(len(lags) * part / 100)] / 1e3 for part in (50, 90, 99)}
    print(", ".join(f"{name} {ms:.1f} ms" for name, ms in quantiles.items()), f"max {lags[-1] / 1e3:.1f} ms")
    print("CPU of each machine:", ", ".join(f"{each['cpu']:.0%}" for each in found))


if __name__ == "__main__":
    main()
