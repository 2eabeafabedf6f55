"""`python -m tests.bench.workers`: one process and two workers, each under 40 % of a core.

Finds the largest number of paced streams at which the p99 of a frame's lag stays within `LAG_P99_MS`, for `serve` and
for `serve --workers 2`. Then kills a worker under load and checks every client against the tapes. The quota is the
kernel's (cgroup v1, CPU controller), so this needs root. `--turns 1` is a quick look; it writes nothing.
"""

import argparse
import contextlib
import http.client
import os
import platform
import select
import signal
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

from tests.laws.checker import transcript_of
from tests.support.markdown import table
from wiretape.events.emit import emit
from wiretape.events.tape.tape import Reader

from .document import put
from .proxy_parties import CACHE, ROOT, Party, running, started
from .runs import HEADERS, PLAIN_MARK, PORT, Figures, Load, plain_request

QUOTA: Final = 0.4
PERIOD_US: Final = 100_000
#: Eight times the usual weight: other work on the machine waits, so that the quota is what limits.
SHARES: Final = 8_192
WORKERS: Final = 2
#: A frame may wait for the rest of one period of the quota, and no longer.
LAG_P99_MS: Final = 100.0

WINDOW_S: Final = 8
PERIOD_MS: Final = 100
#: Two seconds before the window, and one after it.
FRAMES: Final = (WINDOW_S + 3) * 1_000 // PERIOD_MS
#: The search ends when the smallest number that fails is so much larger than the largest that does not.
CLOSE: Final = 1.03
TURNS: Final = 3

#: The bars: more streams, CPU of a frame, CPU time of the busiest worker against the mean.
MORE: Final = 1.8
COST: Final = 1.1
BUSIEST: Final = 1.6

_START_S: Final = 20.0
_GROUPS: Final = Path("/sys/fs/cgroup/cpu")


@contextmanager
def quotas() -> Generator[Callable[[int], None]]:
    """Give a function that limits a process to its share of a core; leaving takes the limits away."""
    groups: list[Path] = []

    def limit(pid: int) -> None:
        group = _GROUPS / f"wiretape-bench-{os.getpid()}-{pid}"
        group.mkdir()
        groups.append(group)
        (group / "cpu.shares").write_text(str(SHARES))
        (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (group / "cpu.cfs_quota_us").write_text(str(round(QUOTA * PERIOD_US)))
        (group / "cgroup.procs").write_text(str(pid))

    try:
        yield limit
    finally:
        for group in groups:
            for pid in (group / "cgroup.procs").read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    (_GROUPS / "cgroup.procs").write_text(pid)
            group.rmdir()


def workers_of(parent: int) -> list[int]:
    """Return the processes that answer clients: the children of a parent, or a process without any."""
    tasks = Path(f"/proc/{parent}/task").iterdir()
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()] or [parent]


def all_of(party: Party, count: int, without: int = 0) -> list[int]:
    """Wait until so many processes answer clients, none of which is `without`; return them."""
    until = time.monotonic() + _START_S
    while without in (pids := workers_of(party.pid)) or len(pids) < count:
        if time.monotonic() > until:
            sys.exit(f"{len(pids)} workers run instead of {count}")
        time.sleep(0.05)
    return pids


class Carried(NamedTuple):
    """One load: how many streams, what they cost, and the CPU time of each worker in the window."""

    streams: int
    figures: Figures
    used_s: Sequence[float]
    #: CPU time of a stream's beginning and end.
    around_ms: float

    @property
    def good(self) -> bool:
        """Whether every frame arrived, and in time."""
        return not self.figures.short and self.figures.lag_p99_ms <= LAG_P99_MS

    @property
    def busiest(self) -> float:
        """CPU time of the busiest worker as a multiple of the mean."""
        return max(self.used_s) / statistics.mean(self.used_s)


def carried(party: Party, streams: int) -> Carried:
    """Run so many paced streams at once, with an upstream that starts all of them together."""
    upstream = [sys.executable, "-m", "tests.bench.runs_upstream"]
    upstream += [str(each) for each in (PORT, streams, FRAMES, PERIOD_MS)]
    with running("upstream", PORT, upstream, {"PYTHONPATH": str(ROOT)}):
        load = Load(party, frames=FRAMES, window_s=WINDOW_S, pids=workers_of(party.pid))
        before_s = sum(load.cpu_s())
        for _ in range(streams):
            load.open(plain_request(), PLAIN_MARK)
        figures = load.measured()
    around_s = sum(load.cpu_s()) - before_s - streams * FRAMES * figures.cpu_us / 1e6
    found = Carried(streams, figures, load.used_s, around_s / streams * 1e3)
    cost = f"{figures.cpu_us:5.1f} us a frame, {found.around_ms:.2f} ms a stream, {figures.cpu_share:.0%} of a core"
    said = f"{streams:6} streams: p99 {figures.lag_p99_ms:8.1f} ms, {cost}, busiest {found.busiest:.2f}"
    print(said, figures.short, file=sys.stderr, flush=True)
    return found


def most(measure: Callable[[int], Carried], guess: int) -> Carried:
    """Find the largest load that is good, beginning with a guess."""
    best: Carried | None = None
    bad: int | None = None
    streams = guess
    while best is None or bad is None or bad > best.streams * CLOSE:
        found = measure(streams)
        if found.good:
            best = found
        else:
            bad = streams
        if best is None:
            streams = round(streams / 1.2)
        elif bad is None:
            streams = round(streams * 1.2)
        else:
            streams = round((best.streams * bad) ** 0.5)
    return best


# -- a worker is killed -----------------------------------------------------------------------------------------------

#: Streams that run when a worker is killed, and of those each worker has, how many are resumed afterwards.
KILLED_STREAMS: Final = 400
RESUMED: Final = 10
#: Fresh connections for one question: all of them reach one worker in 1 of 128 cases.
ASKED: Final = 8


class Killed(NamedTuple):
    """What became of the streams that ran when a worker was killed."""

    others: int
    cut: int
    frames: int
    wrong: list[str]


def killed(party: Party, data: Path, streams: int) -> Killed:
    """Kill one of the workers when half of the frames have arrived; hold every client against its tape afterwards."""
    began, victim = counted(party), workers_of(party.pid)[0]
    upstream = [sys.executable, "-m", "tests.bench.runs_upstream"]
    upstream += [str(each) for each in (PORT, streams, FRAMES, PERIOD_MS)]
    with running("upstream", PORT, upstream, {"PYTHONPATH": str(ROOT)}):
        clients = [(socket.create_connection(("127.0.0.1", party.port)), bytearray()) for _ in range(streams)]
        for sock, _ in clients:
            sock.sendall(plain_request())
        left = read(clients, lambda: all(raw.count(b"\n\n") > FRAMES // 2 for _, raw in clients[-3:]))
        os.kill(victim, signal.SIGKILL)
        read(left, lambda: False)
    all_of(party, WORKERS, without=victim)
    counts = {counted(party) - began for _ in range(ASKED)}  # once all workers have answered, tapes are recovered
    return judged(party, data, [bytes(raw) for _, raw in clients], counts)


_Clients = list[tuple[socket.socket, bytearray]]


def read(clients: _Clients, enough: Callable[[], bool]) -> _Clients:
    """Read until all answers have ended or it is enough; return the clients whose answers have not ended."""
    poll, by_number = select.epoll(), {client[0].fileno(): client for client in clients}
    for number in by_number:
        poll.register(number, select.EPOLLIN)
    while by_number and not enough():
        for number, _ in poll.poll(1):
            sock, raw = by_number[number]
            with contextlib.suppress(ConnectionResetError):
                raw += (data := sock.recv(1 << 18))
                if data and not raw.endswith(b"0\r\n\r\n"):
                    continue
            poll.unregister(number)
            del by_number[number]
            sock.close()
    return list(by_number.values())


def judged(party: Party, data: Path, raws: Sequence[bytes], counts: set[float]) -> Killed:
    """Hold what clients got against the tapes, the scrapes, and what every worker now answers about these streams."""
    wrong: list[str] = []
    tapes = {path.stem: path for path in data.glob("w*/*/*.tape")}
    ended: dict[bool, list[str]] = {True: [], False: []}
    frames = 0
    for raw in raws:
        answer = transcript_of(raw)
        assert answer is not None, "a client got nothing"
        stream = answer.headers["x-wiretape-stream"]
        frames += answer.body.count(b"\n\n")
        ended[answer.whole].append(stream)
        if stream not in tapes:
            wrong.append(f"{stream} has no tape")
        elif not emit(Reader().feed(tapes[stream].read_bytes())).startswith(answer.body):
            wrong.append(f"{stream}: a client got frames that are not on its tape")
        elif answer.whole and answer.body.count(PLAIN_MARK) <= FRAMES:
            wrong.append(f"{stream}: ended without all of its frames")
    folders = [{tapes[each].relative_to(data).parts[0] for each in part if each in tapes} for part in ended.values()]
    if len(folders[0]) != WORKERS - 1 or len(folders[1]) != 1 or folders[0] & folders[1]:
        wrong.append(f"streams ended in {folders[0]}, and were cut in {folders[1]}")
    for stream in (each for part in ended.values() for each in part[:RESUMED]):
        answers = {asked(party, f"/wiretape/streams/{stream}/events") for _ in range(ASKED)}
        if len(answers) != 1 or {status for status, _ in answers} != {200}:
            wrong.append(f"{stream}: workers answer differently, with {sorted({status for status, _ in answers})}")
    if counts != {len(ended[True])}:
        wrong.append(f"scrapes count {counts} ended streams, and {len(ended[True])} ended")
    return Killed(len(ended[True]), len(ended[False]), frames, wrong)


def counted(party: Party) -> float:
    """Return how many streams have ended, as one scrape says."""
    lines = asked(party, "/wiretape/metrics")[1].decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("wiretape_streams_total"))


def asked(party: Party, path: str) -> tuple[int, bytes]:
    """Return the status and body of an answer on a connection of its own, which any worker may get."""
    client = http.client.HTTPConnection("127.0.0.1", party.port)
    client.request("GET", path, headers=HEADERS)
    answer = client.getresponse()
    body = answer.read()
    client.close()
    return answer.status, body


# -- the report -------------------------------------------------------------------------------------------------------

_TEXT: Final = """\

Written by `python -m tests.bench.workers`, which needs root: one process, and {workers} workers of
`serve --workers {workers}`, each of them under {quota:.0%} of a core by a control group of the kernel. Streams have
{rate} frames a second. A load is carried if no frame is missing and the p99 of their lag, from the upstream's write to
the client's read, is at most {lag:.0f} ms. Medians of {turns}, in turns.
Upstream, proxy and clients share {machine}.

{figures}
{bars}"""


class Medians(NamedTuple):
    """The figures of one way to serve."""

    streams: float
    cpu_us: float
    lag_p99_ms: float
    busiest: float


def medians(found: Sequence[Carried]) -> Medians:
    """Return the median of each figure, but the worst spread."""
    columns = [(each.streams, each.figures.cpu_us, each.figures.lag_p99_ms) for each in found]
    streams, cpu_us, lag_ms = (statistics.median(column) for column in zip(*columns, strict=True))
    return Medians(streams, cpu_us, lag_ms, max(each.busiest for each in found))


def bars(one: Medians, many: Medians, kill: Killed) -> list[tuple[str, str, str, bool]]:
    """Return each promise with its figure, its bar and whether it is kept."""
    more, cost = many.streams / one.streams, many.cpu_us / one.cpu_us
    return [
        (f"streams of {WORKERS} workers against one process", f"{more:.2f}x", f">= {MORE}x", more >= MORE),
        ("CPU of a frame", f"{cost:.2f}x", f"<= {COST}x", cost <= COST),
        ("busiest worker against the mean", f"{many.busiest:.2f}x", f"<= {BUSIEST}x", many.busiest <= BUSIEST),
        (
            f"`kill -9` of a worker: {kill.cut} streams cut, {kill.others} of others, {kill.frames:,} frames delivered",
            "; ".join(kill.wrong[:3]) or "all on tapes, no other stream hurt",
            "nothing lost",
            not kill.wrong,
        ),
    ]


def measured(turns: int, guess: int) -> tuple[Medians, Medians, Killed]:
    """Measure both ways in turns, then kill a worker of the second."""
    one: list[Carried] = []
    many: list[Carried] = []
    for _ in range(turns):
        for found, workers in ((one, 1), (many, WORKERS)):
            with serving(workers) as (party, _):
                first = guess if found is one else round(MORE * one[-1].streams)
                found.append(most(partial(carried, party), first))
    with serving(WORKERS) as (party, data):
        kill = killed(party, data, KILLED_STREAMS)
    return medians(one), medians(many), kill


@contextmanager
def serving(workers: int) -> Generator[tuple[Party, Path]]:
    """Run Wiretape with each process that serves under its quota, after a first load that does not count."""
    with (
        tempfile.TemporaryDirectory(prefix="tapes-", dir=CACHE) as data,
        quotas() as limit,
        started("wiretape", Path(data), to=PORT, streams_max=20_000, workers=workers) as party,
    ):
        for pid in all_of(party, workers):
            limit(pid)
        carried(party, 20)
        yield party, Path(data)


def _stopped(*_: object) -> None:
    """Leave through every `finally`: workers and their groups would outlive this process."""
    sys.exit("stopped")


def main() -> None:
    """Measure, report, and fail if a bar is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.workers", description=__doc__)
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--guess", type=int, default=600, help="streams of one process to begin with")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _stopped)
    CACHE.mkdir(parents=True, exist_ok=True)
    one, many, kill = measured(arguments.turns, arguments.guess)
    rows = [
        [name, f"{each.streams:,.0f}", f"{each.lag_p99_ms:.0f} ms", f"{each.cpu_us:.1f}", f"{each.busiest:.2f}"]
        for name, each in (("one process", one), (f"{WORKERS} workers", many))
    ]
    figures = table(["", "streams", "lag p99", "us of CPU a frame", "busiest / mean"], rows)
    promises = bars(one, many, kill)
    kept = table(
        ["promise", "figure", "bar", "kept"], [(*each[:3], "yes" if each[3] else "**no**") for each in promises]
    )
    print(figures + kept)
    if arguments.turns >= TURNS:
        machine = f"{os.cpu_count()} CPUs ({platform.python_implementation()} {platform.python_version()})"
        text = partial(_TEXT.format, workers=WORKERS, quota=QUOTA, rate=1_000 // PERIOD_MS, lag=LAG_P99_MS)
        put("workers", text(turns=arguments.turns, machine=machine, figures=figures, bars=kept))
    if not all(each[3] for each in promises):
        sys.exit("BAR BROKEN")


if __name__ == "__main__":
    main()
