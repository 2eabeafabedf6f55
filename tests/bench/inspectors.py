"""`make bench-inspectors`: a busy proxy with and without ten inspectors that follow its list of streams.

Plain streams as in `make bench-runs`, in turns through the same process. `--watching` also lets each inspector follow
the records of one stream: that work was requested, so it has no bar. `--turns 1 --streams 20` is a quick
look.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from .proxy_parties import CACHE, ROOT, Party, running, started
from .runs import FRAMES, PERIOD_MS, PORT, Figures, plain

INSPECTORS: Final = 10
STREAMS: Final = 200
#: How much more latency (p99) and CPU time a frame may take (faces.md 1.9, check 10).
MOST: Final = 1.05

#: Reads what the inspectors get, in a process of its own: `PORT TOKEN COUNT WATCHING`.
_TABS: Final = """
import contextlib, http.client, json, select, sys, time

port, token, count, watching = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4] == "True"
headers = {"Authorization": f"Bearer {token}"}

def opened(path):
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.status
    return answer

answers = [opened("/wiretape/streams?follow=1") for _ in range(count)]
if watching:
    rows = []
    while len(rows) < count:
        time.sleep(0.2)
        rows = json.loads(opened(f"/wiretape/streams?live=1&limit={count}").read())["streams"]
    answers += [opened(f"/wiretape/streams/{row['id']}/inspect") for row in rows]
poll, by_number = select.epoll(), {answer.fileno(): answer for answer in answers}
for number in by_number:
    poll.register(number, select.EPOLLIN)
print("open", flush=True)
while by_number:
    for number, _ in poll.poll():
        if not by_number[number].read1():
            del by_number[number]
            with contextlib.suppress(OSError):  # closed with its answer
                poll.unregister(number)
"""


def main() -> None:
    """Measure both in turns, and print them with their ratios."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.inspectors", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--streams", type=int, default=STREAMS)
    parser.add_argument("--watching", action="store_true")
    asked = parser.parse_args()
    alone: list[Figures] = []
    watched: list[Figures] = []
    upstream = [sys.executable, "-m", "tests.bench.runs_upstream"]
    upstream += [str(each) for each in (PORT, asked.streams, FRAMES, PERIOD_MS)]
    with (
        tempfile.TemporaryDirectory(prefix="tapes-", dir=CACHE) as data,
        running("upstream", PORT, upstream, {"PYTHONPATH": str(ROOT)}),
        started("wiretape", Path(data), to=PORT) as party,
    ):
        while not Path(data, "address").exists():
            time.sleep(0.1)
        token = Path(data, "operator.token").read_text(encoding="ascii")
        for turn in range(asked.turns):
            for figures in (alone, watched) if turn % 2 else (watched, alone):
                with inspectors(party, token, INSPECTORS if figures is watched else 0, watching=asked.watching):
                    figures.append(plain(party, asked.streams))
                time.sleep(1)
    medians = [
        [statistics.median(getattr(each, name) for each in figures) for name in ("lag_p99_ms", "cpu_us")]
        for figures in (alone, watched)
    ]
    print(f"{'':24}{'p99 of lag':>12}{'CPU a frame':>14}")
    for name, (lag_ms, cpu_us) in zip(("alone", f"{INSPECTORS} inspectors"), medians, strict=True):
        print(f"{name:24}{lag_ms:9.2f} ms{cpu_us:11.1f} us")
    ratios = [after / before for before, after in zip(*medians, strict=True)]
    print(f"{'ratio':24}{ratios[0]:12.3f}{ratios[1]:14.3f}")
    if max(ratios) > MOST and not asked.watching:
        sys.exit("BAR BROKEN")


@contextmanager
def inspectors(party: Party, token: str, count: int, *, watching: bool) -> Generator[None]:
    """Keep so many inspectors open."""
    if not count:
        yield
        return
    command = [sys.executable, "-c", _TABS, str(party.port), token, str(count), str(watching)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as tabs:
        try:
            if not watching:
                assert tabs.stdout is not None
                tabs.stdout.readline()
            yield
        finally:
            tabs.kill()


if __name__ == "__main__":
    main()
