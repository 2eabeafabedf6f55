"""CPU of the upstream side alone: `python -m tests.bench.upstream` prints microseconds an event.

The peer is another process, so that only the client's time counts: one stream as fast as sockets allow, many at the
pace of tokens, and many short ones, opening and closing included.
"""

import multiprocessing
import sys
import time
from multiprocessing.connection import Connection as Pipe
from typing import Final

import httpx
import trio

from wiretape.proxy.upstream.transport import UpstreamTransport, body_of

__all__ = ["main"]

_FRAME: Final = b"data: " + b"x" * 190 + b"\n\n"
_CHUNK: Final = b"%x\r\n%b\r\n" % (len(_FRAME), _FRAME)
_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
_CONTEXT: Final = multiprocessing.get_context("spawn")


def _serve(pipe: Pipe) -> None:
    trio.run(_listen, pipe)


async def _listen(pipe: Pipe) -> None:
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(trio.serve_tcp, _answer, 0)
        pipe.send(listeners[0].socket.getsockname()[1])


async def _answer(stream: trio.SocketStream) -> None:
    """The path says how many frames, how many a write, and the seconds between writes."""
    async with stream:
        try:
            while request := await stream.receive_some():
                frames, per_write, gap_s = request.split(b" ")[1].strip(b"/").split(b"-")
                await stream.send_all(_HEAD)
                for _ in range(int(frames) // int(per_write)):
                    if float(gap_s):
                        await trio.sleep(float(gap_s))
                    await stream.send_all(_CHUNK * int(per_write))
                await stream.send_all(b"0\r\n\r\n")
        except trio.BrokenResourceError:
            return


async def _stream(transport: UpstreamTransport, url: str, delay_s: float) -> int:
    await trio.sleep(delay_s)
    received_bytes = 0
    async with body_of(await transport.handle_async_request(httpx.Request("POST", url, content=b"{}"))) as body:
        while (read := await body.receive()) is not None:
            received_bytes += len(read.data)
    return received_bytes


async def _run(port: int, streams: int, work: str, delay_s: float) -> float:
    """Microseconds of CPU an event."""
    url, frames = f"http://127.0.0.1:{port}/{work}", int(work.split("-", maxsplit=1)[0])
    async with UpstreamTransport() as transport:
        await _stream(transport, f"http://127.0.0.1:{port}/1-1-0", 0)
        totals: list[int] = []

        async def one(delay_s: float) -> None:
            totals.append(await _stream(transport, url, delay_s))

        began = time.process_time()
        async with trio.open_nursery() as nursery:
            for n in range(streams):
                nursery.start_soon(one, delay_s * n / streams)
        taken_s = time.process_time() - began
    assert totals == [frames * len(_FRAME)] * streams, "a frame was lost"
    return taken_s * 1e6 / frames / streams


_CASES: Final = {
    "1 stream, blast, 1 frame a write": (1, "40000-1-0", 0.0),
    "1 stream, blast, 50 frames a write": (1, "100000-50-0", 0.0),
    "200 streams paced, 25 a second, 100 frames": (200, "100-1-0.04", 1.0),
    "200 streams of 2 frames, by open and close": (200, "2-2-0", 1.0),
}


def main() -> None:
    """Each case three times; the median."""
    ours, theirs = _CONTEXT.Pipe()
    server = _CONTEXT.Process(target=_serve, args=(theirs,), daemon=True)
    server.start()
    port = int(ours.recv())
    for name, (streams, work, delay_s) in _CASES.items():
        figures = sorted(trio.run(_run, port, streams, work, delay_s) for _ in range(3))
        sys.stdout.write(f"{name}: {figures[1]:.1f} us an event\n")
    server.terminate()


if __name__ == "__main__":
    main()
