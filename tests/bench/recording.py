"""`python -m tests.bench.recording`: what recording adds to a read; alternating, on loopback; writes docs/recording.md

The upstream writes into each frame when it sent it, the client subtracts that from when it read it; both are threads of
this process, the proxies are processes of their own. Five arms take turns, one stream each: no proxy at all; a proxy
that tapes nothing; tapes in memory; tapes on disk, as by default; tapes that are durable before anything is delivered.
"""

import argparse
import contextlib
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from os import cpu_count
from pathlib import Path
from typing import Final, NamedTuple

__all__ = ["ARMS", "main"]

_DOCUMENT: Final = Path(__file__).parents[2] / "docs/recording.md"
_BEGIN: Final = "<!-- measured: begin -->"
_END: Final = "<!-- measured: end -->"

_FRAMES: Final = 100
_GAP_S: Final = 0.005
#: The p50 that recording adds to a read, against the same proxy without recording.
_BAR_MS: Final = 1.0

_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_FRAME: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{"content":"a word "},"finish_reason":null}],"sent":%d}\n\n'
)
_LAST: Final = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"m",'
    b'"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
)
#: What asks for no dialect is taped only where the route says so; so one of these can be left untaped.
_CHAT: Final = "/v1/chat/completions"
_OTHER: Final = "/v1/words"

_Options = tuple[str, ...]


class _Arm(NamedTuple):
    name: str
    path: str
    #: None is no proxy.
    options: _Options | None


ARMS: Final = (
    _Arm("no proxy", _CHAT, None),
    _Arm("proxy, nothing taped", _OTHER, ("--tape=off",)),
    _Arm("proxy, the same taped", _OTHER, ("--tape=on",)),
    _Arm("chat, tapes in memory", _CHAT, ("--durability=none",)),
    _Arm("chat, tapes on disk (default)", _CHAT, ()),
    _Arm("chat, durable before delivery", _CHAT, ("--durability=disk",)),
)
_BASE: Final = "proxy, nothing taped"


def _answer(connection: socket.socket) -> None:
    with connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        asked = b""
        while b"\r\n\r\n" not in asked or not asked.endswith(b"}"):
            data = connection.recv(65_536)
            if not data:
                return
            asked += data
        connection.sendall(_HEAD)
        for _ in range(_FRAMES):
            time.sleep(_GAP_S)
            _chunk(connection, _FRAME % time.monotonic_ns())
        _chunk(connection, _LAST)
        connection.sendall(b"0\r\n\r\n")


def _chunk(connection: socket.socket, data: bytes) -> None:
    connection.sendall(b"%x\r\n%b\r\n" % (len(data), data))


@contextmanager
def _upstream() -> Generator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=_answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield listener.getsockname()[1]


@contextmanager
def _proxy(upstream: int, options: _Options, data: str) -> Generator[int]:
    command = [
        sys.executable,
        "-m",
        "wiretape.proxy.cli.main",
        "serve",
        "--upstream",
        f"http://127.0.0.1:{upstream}/v1",
    ]
    command += ["--port", "0", "--data", data, "--profile", "transparent", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        yield int(process.stdout.readline().strip().removesuffix("/v1").rpartition(":")[2])
        process.terminate()


def _delays_ms(port: int, path: str) -> list[float]:
    """Of each frame of one stream."""
    body = b'{"model":"m","stream":true,"messages":[{"role":"user","content":"?"}]}'
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
    found: list[float] = []
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        while data := connection.recv(65_536):
            now = time.monotonic_ns()
            found += [(now - int(part.partition(b"}")[0])) / 1e6 for part in data.split(b'"sent":')[1:]]
    return found


class _Row(NamedTuple):
    name: str
    p50: float
    p99: float
    reads: int


def _measure(streams: int) -> list[_Row]:
    found: dict[str, list[float]] = {arm.name: [] for arm in ARMS}
    with ExitStack() as stack:
        upstream = stack.enter_context(_upstream())
        ports: dict[str, int] = {}
        for arm in ARMS:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            ports[arm.name] = (
                upstream if arm.options is None else stack.enter_context(_proxy(upstream, arm.options, folder))
            )
        for turn in range(streams + 1):
            for arm in ARMS:
                delays = _delays_ms(ports[arm.name], arm.path)
                if turn:  # the first is for what loads late
                    found[arm.name] += delays
    return [_Row(name, statistics.median(all_), _p99(all_), len(all_)) for name, all_ in found.items()]


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.99)]


def _table(rows: Sequence[_Row]) -> str:
    base = next(row for row in rows if row.name == _BASE)
    lines = ["| | p50 | p99 | added, p50 |", "|---|---|---|---|"]
    for row in rows:
        added = "" if row.name in ("no proxy", _BASE) else f"{(row.p50 - base.p50) * 1_000:+.0f} µs"
        lines.append(f"| {row.name} | {row.p50:.3f} ms | {row.p99:.3f} ms | {added} |")
    each = min(row.reads for row in rows)
    where = f"{platform.machine()}, {cpu_count()} cores, Python {platform.python_version()}"
    return "\n".join([_BEGIN, *lines, "", f"{each} reads an arm, in turns, on loopback; {where}.", _END])


def main() -> int:
    """The exit status: 1 where taping adds more than its bar."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.recording", description=__doc__)
    parser.add_argument("--streams", type=int, default=20, help="for each arm")
    parser.add_argument("--dry", action="store_true", help="do not write the document")
    asked = parser.parse_args()
    rows = _measure(asked.streams)
    table = _table(rows)
    sys.stdout.write(table + "\n")
    if not asked.dry:
        text = _DOCUMENT.read_text(encoding="utf-8")
        before, _, rest = text.partition(_BEGIN)
        _DOCUMENT.write_text(before + table + rest.partition(_END)[2], encoding="utf-8")
    by_name = {row.name: row.p50 for row in rows}
    return 0 if by_name["proxy, the same taped"] - by_name[_BASE] < _BAR_MS else 1


if __name__ == "__main__":
    sys.exit(main())
