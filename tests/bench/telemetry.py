"""`python -m tests.bench.telemetry`: what the export of spans costs the frames of other streams.

Forty clients ask for one stream after the other, each of 50 frames in a second, with and without a collector, in turns.
Each frame carries the time at which the upstream wrote it, so a client knows how late it is.
"""

import argparse
import json
import select
import socket
import statistics
import sys
import tempfile
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple

from .proxy_parties import CACHE, ROOT, Party, running, started
from .runs import Reader, cpu_s

CLIENTS: Final = 40
PERIOD_MS: Final = 20
FRAMES: Final = 50
WINDOW_S: Final = 12
BEFORE_S: Final = 3
RATIO: Final = 1.05
_PORT, _COLLECTOR = 9_104, 9_105
_BODY: Final = json.dumps({"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}).encode()
_REQUEST: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
    b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


class Figures(NamedTuple):
    """One measurement."""

    frames: int
    cpu_us: float
    lag_p50_ms: float
    lag_p99_ms: float


def measured(party: Party) -> Figures:
    """Keep all clients asking, and measure after a moment."""
    poll, readers = select.epoll(), dict[int, Reader]()

    def ask() -> None:
        sock = socket.create_connection(("127.0.0.1", party.port))
        sock.sendall(_REQUEST)
        readers[sock.fileno()] = Reader(sock, b'"content":"')
        poll.register(sock, select.EPOLLIN)

    lags, before_s = list[float](), 0.0
    began = time.monotonic()
    for _ in range(CLIENTS):
        ask()
        time.sleep(FRAMES * PERIOD_MS / 1_000 / CLIENTS)
    while (now := time.monotonic()) < began + BEFORE_S + WINDOW_S:
        within = now >= began + BEFORE_S
        before_s = before_s if within else cpu_s(party.pid)
        for number, _ in poll.poll(0.05):
            if not readers[number].read(lags if within else None):
                poll.unregister(number)
                readers.pop(number).sock.close()
                ask()
    used_s = cpu_s(party.pid) - before_s
    for reader in readers.values():
        reader.sock.close()
    quantiles = statistics.quantiles(lags, n=100)
    return Figures(len(lags), used_s / len(lags) * 1e6, quantiles[49] * 1_000, quantiles[98] * 1_000)


class _Collector(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name in the base class
        pass


def main() -> None:
    """Measure, report, and fail if the bar is broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.telemetry", description=__doc__)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--collector", action="store_true", help="only run the collector")
    asked = parser.parse_args()
    if asked.collector:
        ThreadingHTTPServer(("127.0.0.1", _COLLECTOR), _Collector).serve_forever()
    CACHE.mkdir(parents=True, exist_ok=True)
    module, here = [sys.executable, "-m"], {"PYTHONPATH": str(ROOT)}
    upstream = [*module, "tests.bench.runs_upstream", str(_PORT), "1", str(FRAMES), str(PERIOD_MS)]
    collector = [*module, "tests.bench.telemetry", "--collector"]
    cases: dict[str, dict[str, Any]] = {"off": {}, "on": {"otel_endpoint": f"http://127.0.0.1:{_COLLECTOR}"}}
    turned: dict[str, list[Figures]] = {name: [] for name in cases}
    with running("paced upstream", _PORT, upstream, here), running("collector", _COLLECTOR, collector, here):
        for _ in range(asked.turns):
            for name, settings in cases.items():
                with (
                    tempfile.TemporaryDirectory(prefix="tapes-", dir=CACHE) as data,
                    started("wiretape", Path(data), to=_PORT, **settings) as party,
                ):
                    turned[name].append(measured(party))
                    print(name, turned[name][-1], flush=True)
    for name, column in (("frame latency p99", 3), ("p50", 2), ("CPU of a frame", 1)):
        off, on = (statistics.median(each[column] for each in turned[case]) for case in ("off", "on"))
        print(f"{name}: {off:.2f} without, {on:.2f} with export, {on / off:.3f}x")
        if column == 3 and on > RATIO * off:
            sys.exit(f"BAR BROKEN: <= {RATIO}x")


if __name__ == "__main__":
    main()
