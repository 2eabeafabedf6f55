"""Streams that say one frame and then nothing: what each holds in memory, and what silence costs.

`python -m tests.bench.proxy_idle PORT` is the upstream of such streams.
"""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from .proxy_parties import Party

#: Of the proxy, a stream: the client's socket, the upstream's, the tape; and one to spare for what lives shorter.
_DESCRIPTORS_A_STREAM: Final = 4

#: Opened, closed and left to rest before anything is counted, so that what is made once is not shared out.
_WARM: Final = 200
_OPENING_AT_ONCE: Final = 64

#: Not the default of 15 s: they take that long to open, and there would be no second in which nothing is sent.
IDLE_KEEPALIVE_S: Final = 60
#: From the last one's opening past the keepalive of each.
_WATCH_S: Final = IDLE_KEEPALIVE_S + 5

_REQUEST_BODY: Final = b'{"model":"idle","stream":true,"messages":[{"role":"user","content":"hi"}]}'
_REQUEST: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_REQUEST_BODY), _REQUEST_BODY)
)
_FRAME: Final = (
    b'data: {"id":"chatcmpl-idle","object":"chat.completion.chunk","created":1700000000,"model":"idle",'
    b'"choices":[{"index":0,"delta":{"role":"assistant","content":"one word"},"finish_reason":null}]}\n\n'
)
_ANSWER: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n"
    % (len(_FRAME), _FRAME)
)


class Idle(NamedTuple):
    """What so many silent streams cost."""

    streams: int
    #: Those that got their frame and were still open at the end.
    alive: int
    bytes_each: float
    #: Of one core, over those seconds in which no keepalive comment came.
    quiet_share: float
    quiet_s: int


def descriptors_max(limit: int) -> int:
    """How many streams a proxy can hold under this limit."""
    return limit // _DESCRIPTORS_A_STREAM


def rss_bytes(pid: int) -> int:
    """Resident memory."""
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def idle(party: Party, streams: int) -> Idle:
    """Opens them all, watches the proxy, closes them."""
    return asyncio.run(_idle(party, streams))


async def _idle(party: Party, count: int) -> Idle:
    for warm in await _opened(party.port, _WARM):
        warm.close()
    await asyncio.sleep(3)
    before = rss_bytes(party.pid)
    clients = await _opened(party.port, count)
    each = (rss_bytes(party.pid) - before) / count
    cpu, comments = [_cpu_s(party.pid)], [_comments(clients)]
    for _ in range(_WATCH_S):
        await asyncio.sleep(1)
        cpu.append(_cpu_s(party.pid))
        comments.append(_comments(clients))
        if len(cpu) == _WATCH_S // 2:
            each = max(each, (rss_bytes(party.pid) - before) / count)
    # The second before a comment came, it was on its way.
    quiet = [at for at in range(_WATCH_S - 1) if comments[at] == comments[at + 2]]
    quiet_share = sum(cpu[at + 1] - cpu[at] for at in quiet) / max(1, len(quiet))
    alive = sum(client.alive for client in clients)
    for client in clients:
        client.close()
    await asyncio.sleep(1)
    return Idle(count, alive, each, quiet_share, len(quiet))


def _comments(clients: list["_Client"]) -> int:
    return sum(client.comments for client in clients)


async def _opened(port: int, count: int) -> list["_Client"]:
    places = asyncio.Semaphore(_OPENING_AT_ONCE)

    async def one() -> _Client:
        async with places:
            loop = asyncio.get_running_loop()
            client = _Client(loop)
            try:
                await loop.create_connection(lambda: client, "127.0.0.1", port)
                await asyncio.wait_for(client.first, 60)
            except (OSError, TimeoutError):
                client.alive = False
            return client

    return list(await asyncio.gather(*[one() for _ in range(count)]))


class _Client(asyncio.Protocol):
    """Asks, takes what comes, and counts comments."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.first: asyncio.Future[None] = loop.create_future()
        self.alive = False
        self.comments = 0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(_REQUEST)

    def data_received(self, data: bytes) -> None:
        self.comments += data.count(b": keepalive")
        if b"one word" in data and not self.first.done():
            self.alive = True
            self.first.set_result(None)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        self.alive = False
        if not self.first.done():
            self.first.set_exception(ConnectionError("closed before its frame"))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class _Upstream(asyncio.Protocol):
    """One frame for each request that is whole, and then silence."""

    def __init__(self) -> None:
        self._seen = b""
        self._write: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if self._seen.endswith(_REQUEST_BODY) and self._write is not None:
            self._seen = b""
            self._write(_ANSWER)


async def _serve(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(_Upstream, "127.0.0.1", port, backlog=4096)
    await server.serve_forever()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1])))
