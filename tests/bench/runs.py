"""`make bench-runs`: 500 runs with two viewers each, ten frames a second, against 500 plain streams.

A frame carries the time at which the upstream wrote it, so each viewer knows how late it is. CPU time is that of the
proxy's process between two moments at which all streams run. `--turns 1 --runs 100` is a quick look; it writes nothing.
"""

import argparse
import http.client
import json
import os
import platform
import select
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.support.markdown import table

from .document import put
from .proxy_parties import CACHE, ROOT, Party, running, started

RUNS: Final = 500
VIEWERS: Final = 2
PERIOD_MS: Final = 100
#: What is before the time in a frame of a plain stream.
PLAIN_MARK: Final = b'"content":"'
#: Seconds that are measured, and those before it after the first frame.
WINDOW_S: Final = 15
BEFORE_S: Final = 2

LAG_P99_MS: Final = 250.0
CPU_RATIO: Final = 1.2

PORT: Final = 9_102
FRAMES: Final = (BEFORE_S + WINDOW_S + 3) * 1_000 // PERIOD_MS
HEADERS: Final = {"Content-Type": "application/json", "Authorization": "Bearer sk-bench"}


@dataclass(slots=True)
class Reader:
    """One connection that receives frames."""

    sock: socket.socket
    #: What is before the time in a frame.
    mark: bytes
    held: bytes = b""
    frames: int = 0
    last_id: int = 0
    gaps: int = 0
    whole: bool = False

    def read(self, lags: list[float] | None) -> bool:
        """Take what is there; return whether more may come."""
        data = self.sock.recv(1 << 18)
        now = time.monotonic()
        *blocks, self.held = (self.held + data).split(b"\n\n")
        for block in blocks:
            at = block.find(self.mark)
            numbered = block.find(b"id: ")
            if numbered >= 0:
                number = int(block[numbered + 4 : block.index(b"\n", numbered)])
                self.gaps += number != self.last_id + 1
                self.last_id = number
            if at >= 0 and block[at + len(self.mark) : at + len(self.mark) + 1].isdigit():
                self.frames += 1
                if lags is not None:
                    start = at + len(self.mark)
                    lags.append(now - float(block[start : block.index(b" ", start)]))
        self.whole = self.held.endswith(b"0\r\n\r\n")
        return bool(data) and not self.whole


class Figures(NamedTuple):
    """One measurement."""

    events: int
    cpu_us: float
    cpu_share: float
    lag_p50_ms: float
    lag_p99_ms: float
    lag_max_ms: float
    short: str


@dataclass(slots=True)
class Load:
    """All readers of one case, and their loop."""

    party: Party
    #: Frames of each stream, and the seconds that are measured.
    frames: int = FRAMES
    window_s: float = WINDOW_S
    #: The processes that serve, if they are not the party's own, and the CPU time of each in the window.
    pids: Sequence[int] = ()
    used_s: list[float] = field(default_factory=list[float])
    readers: list[Reader] = field(default_factory=list[Reader])
    #: When the first frame arrived.
    begun_t: float | None = None

    def open(self, request: bytes, mark: bytes) -> None:
        """Connect one reader."""
        sock = socket.create_connection(("127.0.0.1", self.party.port))
        sock.sendall(request)
        self.readers.append(Reader(sock, mark))

    def measured(self) -> Figures:
        """Read everything to its end, and measure the seconds in the middle."""
        poll, by_number = select.epoll(), {reader.sock.fileno(): reader for reader in self.readers}
        for number in by_number:
            poll.register(number, select.EPOLLIN)
        lags: list[float] = []
        begun: tuple[float, list[float], int] | None = None
        ended: tuple[float, list[float], int] | None = None
        while by_number:
            now = time.monotonic()
            if self.begun_t is None and self._received():
                self.begun_t = now
            if begun is None and self.begun_t is not None and now >= self.begun_t + BEFORE_S:
                begun = now, self.cpu_s(), self._received()
            if begun is not None and ended is None and now >= begun[0] + self.window_s:
                ended = now, self.cpu_s(), self._received()
            within = lags if begun is not None and ended is None else None
            for number, _ in poll.poll(0.05):
                if not by_number[number].read(within):
                    poll.unregister(number)
                    by_number.pop(number).sock.close()
        assert begun is not None, "no stream was measured"
        assert ended is not None, "the streams ended before the measurement"
        self.used_s = [later - before for later, before in zip(ended[1], begun[1], strict=True)]
        seconds, cpu, events = ended[0] - begun[0], sum(self.used_s), ended[2] - begun[2]
        p50, p99 = (statistics.quantiles(lags, n=100)[at] * 1_000 for at in (49, 98))
        return Figures(events, cpu / events * 1e6, cpu / seconds, p50, p99, max(lags) * 1_000, self._short())

    def cpu_s(self) -> list[float]:
        """Return the CPU time of each process so far."""
        return [cpu_s(pid) for pid in self.pids or (self.party.pid,)]

    def _received(self) -> int:
        return sum(reader.frames for reader in self.readers)

    def _short(self) -> str:
        lost = sum(self.frames - reader.frames for reader in self.readers)
        cut, gaps = sum(not reader.whole for reader in self.readers), sum(reader.gaps for reader in self.readers)
        return f"{lost} frames, {cut} endings, {gaps} gaps" if lost or cut or gaps else ""


def plain(party: Party, count: int) -> Figures:
    """Measure streams of chat completions, one reader each."""
    load = Load(party)
    for _ in range(count):
        load.open(plain_request(), PLAIN_MARK)
    return load.measured()


def plain_request() -> bytes:
    """Return the request of one stream of chat completions."""
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}'
    return _request(b"POST /v1/chat/completions", body)


def runs(party: Party, count: int) -> Figures:
    """Measure runs with their viewers."""
    load, client = Load(party), http.client.HTTPConnection("127.0.0.1", party.port)
    for _ in range(count):
        client.request("POST", "/v1/runs", b'{"model":"m","input":"hi"}', HEADERS)
        answer = client.getresponse()
        said = json.loads(answer.read())
        if answer.status != 202:
            sys.exit(f"POST /v1/runs was answered {answer.status} {said}")
        for _ in range(VIEWERS):
            load.open(_request(f"GET /v1/runs/{said['run_id']}/events".encode(), b""), b'"delta":"')
    client.close()
    return load.measured()


def _request(line: bytes, body: bytes) -> bytes:
    lines = [line + b" HTTP/1.1", b"Host: 127.0.0.1", b"Connection: close", b"Content-Length: %d" % len(body)]
    return b"\r\n".join([*lines, *(f"{name}: {value}".encode() for name, value in HEADERS.items()), b"", body])


def cpu_s(pid: int) -> float:
    """Return the CPU time of all threads of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- the report -------------------------------------------------------------------------------------------------------

_TEXT: Final = """\

Written by `make bench-runs`: {count} runs with {viewers} viewers each, and {count} plain streams, {rate} frames a
second in each, in turns through the same process. Medians of {turns}. The upstream writes its time into each frame, so
the lag of a viewer includes the upstream's write, the proxy and the viewer's own read. CPU time is that of the proxy's
process over {window} seconds in which all streams run.
Upstream, proxy and viewers share {machine}.

{figures}
{bars}"""


def _medians(turns: Sequence[Figures]) -> Figures:
    events, cpu, share, p50, p99, most = (statistics.median(column) for column in list(zip(*turns, strict=True))[:6])
    short = "; ".join(dict.fromkeys(each.short for each in turns if each.short))
    return Figures(events, cpu, share, p50, p99, most, short)


def _rows(cases: dict[str, Figures]) -> list[list[str]]:
    return [
        [
            name,
            f"{each.events / WINDOW_S:,.0f}",
            f"{each.cpu_us:.1f}",
            f"{each.cpu_share:.0%}",
            *(f"{lag:.1f} ms" for lag in each[3:6]),
        ]
        for name, each in cases.items()
    ]


def _bars(cases: dict[str, Figures]) -> list[tuple[str, str, str, bool]]:
    ours, base = cases["run"], cases["plain"]
    ratio, lost = ours.cpu_us / base.cpu_us, ours.short or base.short
    return [
        ("events lost", lost or "none", "none", not lost),
        ("lag of a viewer, p99", f"{ours.lag_p99_ms:.0f} ms", f"<= {LAG_P99_MS:.0f} ms", ours.lag_p99_ms <= LAG_P99_MS),
        ("CPU of an event against a plain frame", f"{ratio:.2f}x", f"<= {CPU_RATIO}x", ratio <= CPU_RATIO),
    ]


def main() -> None:
    """Measure, report, and fail if a bar is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.runs", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--turns", type=int, default=3)
    asked = parser.parse_args()
    CACHE.mkdir(parents=True, exist_ok=True)
    turned: dict[str, list[Figures]] = {"plain": [], "run": []}
    upstream = [sys.executable, "-m", "tests.bench.runs_upstream", str(PORT), str(asked.runs), str(FRAMES)]
    upstream.append(str(PERIOD_MS))
    with tempfile.TemporaryDirectory(prefix="tapes-", dir=CACHE) as data:
        settings: dict[str, Any] = {"runs_max": 2 * asked.runs, "streams_max": 2_000}
        with (
            running("paced upstream", PORT, upstream, {"PYTHONPATH": str(ROOT)}),
            started("wiretape", Path(data), to=PORT, **settings) as party,
        ):
            for _ in range(asked.turns):
                for name, case in (("plain", plain), ("run", runs)):
                    turned[name].append(case(party, asked.runs))
                    print(name, turned[name][-1], file=sys.stderr, flush=True)
    cases = {name: _medians(figures) for name, figures in turned.items()}
    figures = table(
        ["case", "events a second", "us of CPU an event", "of a core", "lag p50", "p99", "max"], _rows(cases)
    )
    bars = _bars(cases)
    kept = table(["promise", "figure", "bar", "kept"], [(*bar[:3], "yes" if bar[3] else "**no**") for bar in bars])
    print(figures + kept)
    if asked.runs == RUNS and asked.turns >= 3:
        machine = f"{os.cpu_count()} CPUs ({platform.python_implementation()} {platform.python_version()})"
        text = partial(_TEXT.format, count=RUNS, viewers=VIEWERS, rate=1_000 // PERIOD_MS, window=WINDOW_S)
        put("runs", text(turns=asked.turns, machine=machine, figures=figures, bars=kept))
    if not all(bar[3] for bar in bars):
        sys.exit("BAR BROKEN")


if __name__ == "__main__":
    main()
