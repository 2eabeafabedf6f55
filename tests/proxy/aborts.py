"""Requests that are aborted at random moments over real sockets: what is left of them, and how soon the upstream knows

    python -m tests.proxy.aborts 20000     # figures; 1 where anything is left

The proxy is a process of its own; clients and the upstream are here, so that one clock sees both ends.
"""

import itertools
import os
import random
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import trio

from tests.proxy.kills import Proxy
from tests.proxy.scripted import chunk, listening, request_of, reset
from tests.support.house import DONE, HEAD, call, finish, post, role, text

#: More of them would measure this one process, which plays all clients and the upstream.
AT_ONCE: Final = 3
#: Aborted before anything is counted: what is made once is there then.
WARM: Final = 200


@dataclass(slots=True)
class Figures:
    """What was seen."""

    aborted: int = 0
    whole: int = 0
    #: Seconds from a client's FIN or RST to the close of its upstream, where one was busy for it.
    closed_s: list[float] = field(default_factory=list[float])
    before: dict[str, Any] = field(default_factory=dict[str, Any])
    after: dict[str, Any] = field(default_factory=dict[str, Any])
    #: Connections that the upstream still had.
    upstreams: int = 0

    def at(self, part: float) -> float:
        """Milliseconds within which this part of the upstreams was closed."""
        return sorted(self.closed_s)[int(part * (len(self.closed_s) - 1))] * 1_000

    @property
    def left(self) -> list[str]:
        """What was not there before: nothing, where all is well. Idle upstream connections are meant to stay."""
        found = [
            f"{name}: {self.before[name]} before, {self.after[name]} after"
            for name in ("tasks", "streams", "charged")
            if self.after[name] != self.before[name]
        ]
        # Idle connections have no task; each is one descriptor.
        descriptors = [held["descriptors"] - held["idle"] for held in (self.before, self.after)]
        if descriptors[0] != descriptors[1]:
            found.append(f"descriptors: {descriptors[0]} before, {descriptors[1]} after")
        if self.upstreams != self.after["idle"]:
            found.append(f"upstream has {self.upstreams} connections, {self.after['idle']} are idle")
        return found + [f"log: {line}" for line in self.after["failed"]]


class _Peers:
    """The upstream, and when each request's client has left."""

    def __init__(self, chance: random.Random, figures: Figures) -> None:
        self.left: dict[bytes, float] = {}
        self.open = 0
        self._chance = chance
        self.figures = figures

    async def serve(self, stream: trio.abc.Stream) -> None:
        """One connection."""
        assert isinstance(stream, trio.SocketStream)
        self.open += 1
        try:
            while asked := await request_of(stream):
                mark = asked.partition(b'"user":"')[2].partition(b'"')[0]
                await self._answered(stream, mark)
        finally:
            self.open -= 1

    async def _answered(self, stream: trio.SocketStream, mark: bytes) -> None:
        """In pieces, until the answer is whole or the other side has closed."""
        done = trio.Event()
        whole = False

        async def watch() -> None:
            await trio.lowlevel.wait_readable(stream.socket)
            closed = time.perf_counter()
            with suppress(ConnectionResetError):
                if await stream.socket.recv(1, socket.MSG_PEEK):
                    assert whole, "nothing is asked while an answer is under way"
                    return
            if mark in self.left:
                self.figures.closed_s.append(closed - self.left.pop(mark))
            done.set()
            nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            try:
                last = await self._play(stream)
                whole = True
                await stream.send_all(last)
            except trio.BrokenResourceError:
                await done.wait()
            nursery.cancel_scope.cancel()
        if done.is_set():
            raise trio.ClosedResourceError

    async def _play(self, stream: trio.SocketStream) -> bytes:
        """All but its last bytes."""
        chance = self._chance
        frames = [role(), *[text("word ")] * chance.choice([1, 40, 80]), call('{"path":"x"}', "write_file")]
        await trio.sleep(chance.choice([0, 0, 0.02]))
        await stream.send_all(HEAD)
        for each in frames:
            await trio.sleep(chance.choice([0, 0.002, 0.005]))
            await stream.send_all(chunk(each))
        return chunk(finish("tool_calls")) + chunk(DONE) + b"0\r\n\r\n"


async def _one(port: int, number: int, chance: random.Random, peers: _Peers, figures: Figures) -> None:
    """Send one request and abort it at some moment between its first byte and shortly after its answer."""
    mark = b"n%d" % number
    body: dict[str, Any] = {"model": "m", "stream": True, "user": mark.decode(), "messages": []}
    sent = post(body)
    if chance.random() < 0.05:
        sent = sent[: chance.randrange(1, len(sent))]
    stream = await trio.open_tcp_stream("127.0.0.1", port)
    whole = False
    with trio.move_on_after(chance.choice([0, 0.01, 0.2, 0.2]) * chance.random()):
        with suppress(trio.BrokenResourceError):
            await stream.send_all(sent)
            tail = b""
            while data := await stream.receive_some():
                tail = tail[-8:] + data
                if tail.endswith(b"\r\n0\r\n\r\n"):
                    whole = True
                    break
    if whole:
        figures.whole += 1
    else:
        figures.aborted += 1
    resets = chance.random() < 0.5
    if not whole:
        peers.left[mark] = time.perf_counter()
    if resets:
        reset(stream)
    await trio.aclose_forcefully(stream)


async def _all(port: int, numbers: Sequence[int], chance: random.Random, peers: _Peers, figures: Figures) -> None:
    waiting = iter(numbers)

    async def some() -> None:
        for number in waiting:
            await _one(port, number, chance, peers, figures)

    async with trio.open_nursery() as nursery:
        for _ in range(AT_ONCE):
            nursery.start_soon(some)


async def _settled(proxy: Proxy, peers: _Peers) -> dict[str, Any]:
    """What the proxy holds once it holds the same for a while: tapes are closed by the commit round of each second."""
    last: dict[str, Any] = {}
    for _ in range(20):
        await trio.sleep(1.2)
        held = proxy.held()
        if held == last and not held["streams"] and peers.open == held["idle"]:
            break
        last = held
    return last


async def aborted(count: int, data: Path, *, seed: int = 0) -> Figures:
    """So many requests, three at once."""
    chance = random.Random(seed)  # noqa: S311 - a seed, so that a failure can be repeated
    figures, warm = Figures(), Figures()
    peers = _Peers(chance, warm)
    async with listening(peers.serve) as (port, _):
        proxy = Proxy(f"http://127.0.0.1:{port}/v1", data)
        numbers = itertools.count()
        await _all(proxy.port, list(itertools.islice(numbers, WARM)), chance, peers, warm)
        figures.before = await _settled(proxy, peers)
        peers.figures = figures
        await _all(proxy.port, list(itertools.islice(numbers, count)), chance, peers, figures)
        figures.after = await _settled(proxy, peers)
        figures.upstreams = peers.open
        proxy.end()
    return figures


def main() -> int:
    """Figures."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        figures = trio.run(aborted, int(sys.argv[1]), Path(folder))
    took_s, cores = time.perf_counter() - began, os.cpu_count()
    lines = [
        f"{figures.aborted} requests aborted, {figures.whole} read to their end, {AT_ONCE} at once",
        f"in {took_s:.0f} s on {cores} cores, the upstream and all clients included",
        f"before {figures.before}",
        f"after  {figures.after}; left: {', '.join(figures.left) or 'nothing'}",
        f"client's FIN or RST to upstream's close, {len(figures.closed_s)} times:",
        f"p50 {figures.at(0.5):.1f} ms, p99 {figures.at(0.99):.1f} ms, longest {figures.at(1):.1f} ms",
    ]
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 1 if figures.left else 0


if __name__ == "__main__":
    sys.exit(main())
