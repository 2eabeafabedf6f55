"""Ten loads that try to make a proxy with `memory_max_bytes` hold more than that, while an honest client goes on asking

    python -m tests.proxy.hostile                      # all loads, 12 s each; 1 where one was not withstood
    python -m tests.proxy.hostile nested gzip --seconds 5
    python -m tests.proxy.hostile --write              # also docs/internals/hostile-loads.md

The proxy is `wiretape serve`. Attackers and upstream are processes of their own, so that the honest client, which is
here, measures the proxy. Each load gets a new proxy.
"""

import argparse
import gzip
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from tests.house.tree import ROOT
from tests.proxy.scripted import chunk
from tests.support.house import DONE, HEAD, finish, post, role, text
from tests.support.markdown import table

MIB: Final = 1024 * 1024
LIMIT_BYTES: Final = 256 * MIB
#: What must hold.
FACTOR_MAX: Final = 1.3
HONEST_MAX_S: Final = 2.0
#: What docs/guides/production.md recommends.
ALLOCATOR: Final = {
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
    "MALLOC_TRIM_THRESHOLD_": "262144",
}
_PAGE: Final = Path(ROOT) / "docs/internals/hostile-loads.md"
_PROSE: Final = b"The quick brown fox jumps over the lazy dog, then it sleeps; nobody asks why. " * 13
_WHOLE_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
_PIECE: Final = 256 * 1024


# -- the upstream ------------------------------------------------------------------------------------------------------


async def _upstream(stream: trio.SocketStream) -> None:
    """Answer as the model's name asks; read bodies without keeping them."""
    head, rest = b"", b""
    while True:
        head = rest
        while b"\r\n\r\n" not in head:
            data = await stream.receive_some(_PIECE)
            if not data:
                return
            head += data
        head, _, body = head.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: *([0-9]+)", head)
        left = (int(length[1]) if length else 0) - len(body)
        start = body[:200]
        while left > 0:
            data = await stream.receive_some(_PIECE)
            if not data:
                return
            left -= len(data)
        rest = b""
        model = re.search(rb'"model":"([a-z]+)', start)
        await _ANSWERS.get(model[1] if model else b"", _short)(stream)


async def _short(stream: trio.SocketStream) -> None:
    frames = [role(), *[text("word ")] * 5, finish(), DONE]
    await stream.send_all(HEAD + b"".join(map(chunk, frames)) + b"0\r\n\r\n")


async def _flood(stream: trio.SocketStream) -> None:
    """Send 8 MB of frames as fast as they are taken."""
    frames = b"".join(chunk(text(f"word {n} ")) for n in range(1_000))
    await stream.send_all(HEAD + chunk(role()))
    for _ in range(40):
        await stream.send_all(frames)
    await stream.send_all(chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")


async def _slow(stream: trio.SocketStream) -> None:
    """Send a word a second, as a model does that thinks."""
    await stream.send_all(HEAD + chunk(role()))
    for _ in range(60):
        await stream.send_all(chunk(text("word ")))
        await trio.sleep(1)


async def _line(stream: trio.SocketStream) -> None:
    """Send one event that is just below the longest allowed, and never end it."""
    await stream.send_all(HEAD + chunk(role()))
    await stream.send_all(chunk(b'data: {"choices":[{"index":0,"delta":{"content":"'))
    for _ in range(31):
        await stream.send_all(chunk(b"x" * _PIECE))
    await trio.sleep(60)


async def _whole(stream: trio.SocketStream) -> None:
    """Send a whole answer of 32 MB."""
    before, after = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"', b'"}}]}'
    count = 32 * MIB // len(_PROSE)
    await stream.send_all(_WHOLE_HEAD % (len(before) + count * len(_PROSE) + len(after)) + before)
    for _ in range(count // 256):
        await stream.send_all(_PROSE * 256)
    await stream.send_all(_PROSE * (count % 256) + after)


_ANSWERS: Final[Mapping[bytes, Callable[[trio.SocketStream], Awaitable[None]]]] = {
    b"flood": _flood,
    b"slow": _slow,
    b"line": _line,
    b"whole": _whole,
}


async def _serve_upstream() -> None:
    async def serve(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await _upstream(stream)
        await trio.aclose_forcefully(stream)

    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    sys.stdout.write(f"{listeners[0].socket.getsockname()[1]}\n")
    sys.stdout.flush()
    await trio.serve_listeners(serve, listeners)


# -- the attackers -----------------------------------------------------------------------------------------------------


def _asks(model: str, messages: bytes, *, stream: bool = True, before: bytes = b"") -> bytes:
    return b'{"model":"%b","stream":%b,%b"messages":[%b]}' % (
        model.encode(), b"true" if stream else b"false", before, messages,
    )  # fmt: skip


def _history(size: int) -> bytes:
    message = b'{"role":"user","content":"%b"}' % _PROSE
    return b",".join([message] * (size // len(message)))


class Attack:
    """One attacker process: what it sends, and what it was answered."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.answers: Counter[str] = Counter()

    async def ask(self, request: bytes, *, hold_s: float = 0.0, reads: bool = True) -> bytes:
        """Send a request and note its status; read the answer, or only its head."""
        head = b""
        try:
            async with await trio.open_tcp_stream("127.0.0.1", self._port) as stream:
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
                async with trio.open_nursery() as nursery:

                    async def send() -> None:
                        with suppress(trio.BrokenResourceError):
                            for at in range(0, len(request), _PIECE):
                                await stream.send_all(request[at : at + _PIECE])

                    nursery.start_soon(send)
                    with suppress(trio.BrokenResourceError):
                        head = bytes(await stream.receive_some(4096))
                        self.answers[head[9:12].decode("latin-1") or "closed"] += 1
                        while reads and await stream.receive_some(_PIECE):
                            pass
                        await trio.sleep(hold_s)
                    nursery.cancel_scope.cancel()
        except (OSError, trio.BrokenResourceError):
            self.answers["no connection"] += 1
        if not head.startswith(b"HTTP/1.1 2"):
            await trio.sleep(0.2)
        return head

    async def again(self, count: int, request: bytes, *, hold_s: float = 0.0, reads: bool = True) -> None:
        """So many clients ask this again and again."""

        async def one() -> None:
            while True:
                await self.ask(request, hold_s=hold_s, reads=reads)

        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(one)

    async def bodies(self) -> None:
        """12 clients send 64 MB each, 12 others 12 MB"""
        async with trio.open_nursery() as nursery:
            for size in (64 * MIB, 12 * MIB):
                nursery.start_soon(self.again, 12, post(_asks("short", _history(size)), "Connection: close"))

    async def nested(self) -> None:
        """4 clients send 16 MB of `[],[],`, 12 as many lists or nested objects as are parsed"""
        deep = b'{"a":' * 900 + b"1" + b"}" * 900
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.again, 4, post(_asks("short", (b"[]," * (16 * MIB // 3))[:-1])))
            nursery.start_soon(self.again, 6, post(_asks("short", (b"[]," * 249_000)[:-1])))
            nursery.start_soon(self.again, 6, post(_asks("short", b",".join([deep] * 550))))

    async def heads(self) -> None:
        """9,000 connections send 60 KB of a head, and no more"""
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Long: " + b"x" * 60_000

        async def one() -> None:
            while True:
                await self.ask(head)

        async with trio.open_nursery() as nursery:
            for number in range(9_000):
                nursery.start_soon(one)
                if number % 50 == 0:
                    await trio.sleep(0.01)

    async def readers(self) -> None:
        """300 clients ask for 8 MB streams and read nothing"""
        await self.again(300, post(_asks("flood", _history(1_000))), hold_s=60, reads=False)

    async def whole(self) -> None:
        """24 clients ask for whole answers of 32 MB"""
        await self.again(24, post(_asks("whole", _history(1_000), stream=False), "Connection: close"))

    async def resumers(self) -> None:
        """300 readers of a long tape with a 16 MB request, who read little"""
        found: bytes | None = None
        while found is None:
            head = await self.ask(post(_asks("flood", _history(16 * MIB)), "Connection: close"))
            stream = re.search(rb"(?i)x-wiretape-stream: ([a-z0-9]+)", head)
            found = stream[1] if stream else None
        place = b"/wiretape/streams/" + found

        def get(path: bytes) -> bytes:
            return b"GET %b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n" % path

        async with trio.open_nursery() as nursery:
            nursery.start_soon(lambda: self.again(200, get(place + b"/events"), hold_s=60, reads=False))
            nursery.start_soon(lambda: self.again(50, get(place + b"/tape"), hold_s=60, reads=False))
            nursery.start_soon(lambda: self.again(50, get(place + b"?whole=1")))

    async def lines(self) -> None:
        """100 streams with one event of 7.8 MB that does not end"""
        await self.again(100, post(_asks("line", _history(1_000)), "Connection: close"))

    async def gzip(self) -> None:
        """32 clients send 1 MB that becomes 24 MB"""
        message = b'{"role":"user","content":"%b"}'
        texts = (b"%x" % number**9 + _PROSE for number in range(24 * MIB // len(_PROSE)))
        plain = _asks("slow", b",".join(message % each for each in texts))
        request = post(gzip.compress(plain), "Content-Encoding: gzip", "Connection: close")
        await self.again(32, request)

    async def tools(self) -> None:
        """24 clients send 50,000 tools each"""
        tool = '{"type":"function","function":{"name":"tool_%d","parameters":{"type":"object","properties":{}}}}'
        tools = b'"tools":[%b],' % ",".join(tool % number for number in range(50_000)).encode()
        await self.again(24, post(_asks("slow", _history(1_000), before=tools)))

    async def histories(self) -> None:
        """100 clients send 8 MB of history and wait for a slow model"""
        await self.again(100, post(_asks("slow", _history(8 * MIB))))


LOADS: Final = ("bodies", "nested", "heads", "readers", "whole", "resumers", "lines", "gzip", "tools", "histories")


async def _attack(load: str, port: int) -> None:
    attack = Attack(port)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(getattr(attack, load))
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            async for _ in signals:
                break
        nursery.cancel_scope.cancel()
    sys.stdout.write(json.dumps(attack.answers) + "\n")


# -- what is measured --------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class Figures:
    """Of one load."""

    load: str
    idle_bytes: int = 0
    peak_bytes: int = 0
    #: Seconds of each request of the honest client, and those that were not answered with the whole stream.
    honest_s: list[float] = field(default_factory=list[float])
    unserved: int = 0
    attackers: dict[str, int] = field(default_factory=dict[str, int])

    @property
    def row(self) -> tuple[str, ...]:
        """For the table."""
        worst, middle = max(self.honest_s), sorted(self.honest_s)[len(self.honest_s) // 2]
        answers = ", ".join(f"{count} x {status}" for status, count in sorted(self.attackers.items()))
        return (
            self.load,
            (getattr(Attack, self.load).__doc__ or "").strip(),
            f"{self.peak_bytes / MIB:.0f} MiB",
            f"{self.peak_bytes / LIMIT_BYTES:.2f}",
            f"{len(self.honest_s)}, {self.unserved} unserved",
            f"{middle * 1_000:.0f} ms, {worst * 1_000:.0f} ms",
            answers,
        )

    @property
    def withstood(self) -> bool:
        """Whether all that must hold held."""
        served = self.honest_s and max(self.honest_s) <= HONEST_MAX_S and not self.unserved
        return bool(served) and self.peak_bytes <= FACTOR_MAX * LIMIT_BYTES


_COLUMNS: Final = ("load", "", "peak", "of the limit", "honest requests", "median, worst", "what the attackers got")


async def _honest(port: int, figures: Figures) -> None:
    """Ask for a short stream again and again, each time on a new connection."""
    while True:
        began = trio.current_time()
        got = bytearray()
        with trio.move_on_after(10), suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(post(_asks("short", b'{"role":"user","content":"hi"}'), "Connection: close"))
                while data := await stream.receive_some():
                    got += data
        figures.honest_s.append(trio.current_time() - began)
        if not (got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n0\r\n\r\n")):
            figures.unserved += 1
        await trio.sleep(0.1)


def _resident(pid: int, name: bytes) -> int:
    found = re.search(name + rb":\s+([0-9]+) kB", Path(f"/proc/{pid}/status").read_bytes())
    assert found is not None
    return int(found[1]) * 1024


@contextmanager
def _child(*command: str, **environment: str) -> Generator[subprocess.Popen[bytes]]:
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **environment}
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _line_of(process: subprocess.Popen[bytes], pattern: bytes) -> bytes:
    assert process.stdout is not None
    for line in process.stdout:
        if found := re.search(pattern, line):
            return found[1]
    raise AssertionError("a process ended before it was ready")


async def measured(load: str, seconds: float, wiretape: str, allocator: Mapping[str, str]) -> Figures:
    """Run one load against a new proxy."""
    figures = Figures(load)
    me = (sys.executable, "-m", "tests.proxy.hostile")
    with tempfile.TemporaryDirectory() as data, _child(*me, "--upstream") as upstream:
        url = f"http://127.0.0.1:{_line_of(upstream, rb'([0-9]+)').decode()}/v1"
        more = ("--data", data, "--port", "0", "--memory-max-bytes", "256 MiB", "--streams-max", "1000")
        with _child(wiretape, "serve", "--upstream", url, *more, **allocator) as proxy:
            port = int(_line_of(proxy, rb"http://127\.0\.0\.1:([0-9]+)"))
            figures.idle_bytes = _resident(proxy.pid, b"VmRSS")
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_honest, port, figures)
                await trio.sleep(1)
                with _child(*me, "--attack", load, "--port", str(port)) as attacker:
                    await trio.sleep(seconds)
                    figures.peak_bytes = _resident(proxy.pid, b"VmHWM")
                    attacker.terminate()
                    with trio.move_on_after(10):
                        answers = await trio.to_thread.run_sync(
                            _line_of, attacker, rb"(\{.*\})", abandon_on_cancel=True
                        )
                        figures.attackers = json.loads(answers)
                nursery.cancel_scope.cancel()
    return figures


def _page(rows: list[tuple[str, ...]], seconds: float, idle_bytes: int) -> str:
    return f"""# Loads that want memory

Written by `make hostile-loads`. `wiretape serve` with `memory_max_bytes = "256 MiB"` and the allocator settings of
[deployment](../guides/production.md) on Linux, {os.cpu_count()} shared cores, {seconds:.0f} s for each load; idle it
has {idle_bytes / MIB:.0f} MiB. `peak` is VmHWM, to stay below {FACTOR_MAX} times the limit. Meanwhile an honest client
asks for a short stream again and again, to be served within {HONEST_MAX_S:.0f} s each time.

{table(_COLUMNS, rows)}"""


def main() -> int:
    """Figures."""
    parser = argparse.ArgumentParser()
    parser.add_argument("loads", nargs="*", default=LOADS)
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--wiretape", default=str(Path(sys.executable).with_name("wiretape")))
    parser.add_argument("--no-allocator", action="store_true")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--upstream", action="store_true")
    parser.add_argument("--attack")
    parser.add_argument("--port", type=int)
    given = parser.parse_args()
    if given.upstream:
        trio.run(_serve_upstream)
    elif given.attack:
        trio.run(_attack, given.attack, given.port)
    else:
        return _measure(given)
    return 0


def _measure(given: Any) -> int:
    results: list[Figures] = []
    for load in given.loads:
        allocator = {} if given.no_allocator else ALLOCATOR
        figures = trio.run(measured, load, given.seconds, given.wiretape, allocator)
        results.append(figures)
        sys.stdout.write(" | ".join([*figures.row, "" if figures.withstood else "NOT WITHSTOOD"]) + "\n")
        sys.stdout.flush()
    if given.write:
        _PAGE.write_text(_page([each.row for each in results], given.seconds, results[0].idle_bytes))
    return 0 if all(each.withstood for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
