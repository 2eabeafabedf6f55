"""Streams of one frame and then nothing: the memory that each takes, and what silence costs.

`python -m tests.bench.proxy_idle PORT` is the upstream of such streams.
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

import trio

from wiretape.replay.playback.script import Fault, event_stream
from wiretape.replay.playback.server import listening

from .proxy_parties import Party

#: Of the proxy, a stream: the client's socket, the upstream's, the tape; and one to spare for what lives shorter.
DESCRIPTORS_A_STREAM: Final = 4

#: Opened, closed and left to rest before anything is counted, so that what is made once is not shared out.
_WARM: Final = 200
_OPENING_AT_ONCE: Final = 64
#: A stream without a frame after this time has failed.
_FRAME_S: Final = 60

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


class Idle(NamedTuple):
    """What so many silent streams cost."""

    streams: int
    #: Those that got their frame and were still open at the end.
    alive: int
    bytes_each: float
    #: Of one core, over those seconds in which no keepalive comment came.
    quiet_share: float
    quiet_s: int


async def idle(party: Party, streams: int) -> Idle:
    """Open them all, watch the proxy, close them."""
    async with trio.open_nursery() as nursery:
        await _Clients().open(nursery, party.port, _WARM)
        nursery.cancel_scope.cancel()
    await trio.sleep(3)
    before = _rss_bytes(party.pid)
    clients = _Clients()
    async with trio.open_nursery() as nursery:
        await clients.open(nursery, party.port, streams)
        each = (_rss_bytes(party.pid) - before) / streams
        cpu, comments = [_cpu_s(party.pid)], [clients.comments]
        for _ in range(_WATCH_S):
            await trio.sleep(1)
            cpu.append(_cpu_s(party.pid))
            comments.append(clients.comments)
            if len(cpu) == _WATCH_S // 2:
                each = max(each, (_rss_bytes(party.pid) - before) / streams)
        alive = clients.alive
        nursery.cancel_scope.cancel()
    # The second before a comment came, it was on its way.
    quiet = [at for at in range(_WATCH_S - 1) if comments[at] == comments[at + 2]]
    quiet_share = sum(cpu[at + 1] - cpu[at] for at in quiet) / max(1, len(quiet))
    await trio.sleep(1)
    return Idle(streams, alive, each, quiet_share, len(quiet))


@dataclass(slots=True)
class _Clients:
    """The clients of the streams: how many are open, and how many keepalive comments they got."""

    alive: int = 0
    comments: int = 0

    async def open(self, nursery: trio.Nursery, port: int, count: int) -> None:
        """Start so many clients; return once each has its frame or has failed."""
        places = trio.CapacityLimiter(_OPENING_AT_ONCE)

        async def one() -> None:
            async with places:
                with trio.move_on_after(_FRAME_S):
                    await nursery.start(self._hold, port)

        async with trio.open_nursery() as opening:
            for _ in range(count):
                opening.start_soon(one)

    async def _hold(self, port: int, *, task_status: trio.TaskStatus[None]) -> None:
        started = False
        try:
            async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                await stream.send_all(_REQUEST)
                async for data in stream:
                    self.comments += data.count(b": keepalive")
                    if not started and b"one word" in data:
                        self.alive, started = self.alive + 1, True
                        task_status.started()
        except (OSError, trio.BrokenResourceError):
            pass
        self.alive -= started
        if not started:
            task_status.started()


def _rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def _serve(port: int) -> None:
    async with listening(lambda _: event_stream([_FRAME], end=Fault.STALL), port):
        await trio.sleep_forever()


if __name__ == "__main__":
    trio.run(_serve, int(sys.argv[1]))
