"""An upstream that follows a script, over memory streams or sockets, and counts what is open."""

import socket
import ssl
import struct
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import httpx
import trio
from trio.testing import memory_stream_pair

from wiretape.proxy.config.model import UpstreamSettings
from wiretape.proxy.upstream.connection import Exchange
from wiretape.proxy.upstream.tls import client_context
from wiretape.proxy.upstream.transport import UpstreamTransport

Script = Callable[[trio.abc.Stream], Awaitable[None]]
"""Plays the peer of one connection; the connection is closed when it returns, and reset when it raises Reset."""


class Reset(Exception):  # noqa: N818 - what a script wants
    """The connection ends with a reset; what was sent before arrives."""


HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


CONTEXT = client_context()
"""Read once: it takes longer than most tests."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


class Fake(trio.abc.Stream):
    """Our end of a connection whose peer takes everything and sends nothing; it knows when it was closed."""

    closed_at = inf

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        del data
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        del max_bytes
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        self.closed_at = min(self.closed_at, trio.current_time())
        await trio.lowlevel.checkpoint()


def opening(result: trio.abc.Stream | Exception | float) -> Any:
    """Return an `open_tcp` that returns this, raises it, or fails after so many seconds."""

    async def open_tcp(*_: object) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        if isinstance(result, trio.abc.Stream):
            return result
        if isinstance(result, Exception):
            raise result
        await trio.sleep(result)
        raise OSError("no answer")

    return open_tcp


class Counted(trio.abc.Stream):
    """Our end of a connection, which knows whether it was closed."""

    def __init__(self, stream: trio.abc.Stream, still_open: set["Counted"]) -> None:
        self._stream = stream
        self._still_open = still_open
        self.reset = False
        still_open.add(self)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        data = await self._stream.receive_some(max_bytes)
        if not data and self.reset:
            raise trio.BrokenResourceError("the peer reset the connection")
        return data

    async def aclose(self) -> None:
        self._still_open.discard(self)
        await self._stream.aclose()


class Upstream:
    """`open_tcp` of a transport: each connection runs the next script, the last one again and again."""

    def __init__(self, nursery: trio.Nursery, scripts: Sequence[Script]) -> None:
        self.opened: list[tuple[str, int]] = []
        self.still_open: set[Counted] = set()
        self._nursery = nursery
        self._scripts = list(scripts)

    async def open_tcp(self, host: str, port: int) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        script = self._scripts[min(len(self.opened), len(self._scripts) - 1)]
        self.opened.append((host, port))
        ours, theirs = memory_stream_pair()
        counted = Counted(ours, self.still_open)
        self._nursery.start_soon(_play, script, theirs, counted)
        return counted


async def _play(script: Script, stream: trio.abc.Stream, ours: Counted) -> None:
    try:
        await script(stream)
    except Reset:
        ours.reset = True
    except (trio.BrokenResourceError, trio.ClosedResourceError):
        pass  # the other side left
    finally:
        await trio.aclose_forcefully(stream)


@asynccontextmanager
async def served(
    *scripts: Script, settings: UpstreamSettings | None = None, context: ssl.SSLContext = CONTEXT
) -> AsyncGenerator[tuple[UpstreamTransport, Upstream]]:
    """A transport before these scripts; at the end nothing may be open but what is idle, and then nothing at all."""
    async with trio.open_nursery() as nursery:
        upstream = Upstream(nursery, scripts)
        transport = UpstreamTransport(settings, open_tcp=upstream.open_tcp, context=context)
        yield transport, upstream
        assert len(upstream.still_open) == len(transport.pool)
        await transport.aclose()
        assert not upstream.still_open
        nursery.cancel_scope.cancel()


def reset(stream: trio.SocketStream) -> None:
    """Close with RST instead of FIN."""
    stream.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@asynccontextmanager
async def listening(script: Script) -> AsyncGenerator[tuple[int, list[trio.SocketStream]]]:
    """Play a script on real sockets; yield the port and the accepted connections."""
    accepted: list[trio.SocketStream] = []

    async def serve(stream: trio.SocketStream) -> None:
        accepted.append(stream)
        try:
            await script(stream)
        except Reset:
            await trio.sleep(0.05)  # a reset drops what the other side has not read
            reset(stream)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the other side left
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        yield listener.socket.getsockname()[1], accepted
        nursery.cancel_scope.cancel()


async def request_of(stream: trio.abc.Stream) -> bytes:
    """One request, by its length or its last chunk; empty where the other side left."""
    received = b""
    while b"\r\n\r\n" not in received or not _whole(received):
        data = await stream.receive_some()
        if not data:
            return b""
        received += data
    return received


def _whole(received: bytes) -> bool:
    head, _, body = received.partition(b"\r\n\r\n")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
        if line.startswith(b"transfer-encoding:"):
            return body.endswith(b"0\r\n\r\n")
    return True


def answers(*each: bytes) -> Script:
    """One of these answers a request; then closes when the next request has come."""

    async def script(stream: trio.abc.Stream) -> None:
        for answer in each:
            if not await request_of(stream):
                return
            await stream.send_all(answer)
        await request_of(stream)

    return script


def post(
    content: bytes | AsyncIterator[bytes] | None = b"{}",
    *,
    url: str = "http://upstream.test/v1/chat/completions",
    headers: dict[str, str] | None = None,
) -> httpx.Request:
    return httpx.Request("POST", url, content=content, headers=headers)


async def fetch(transport: UpstreamTransport, request: httpx.Request) -> httpx.Response:
    """Send httpx's request over the transport, with the path in its extension `target` as it is."""
    path: bytes = request.extensions.get("target", request.url.raw_path)
    stream = request.stream
    assert isinstance(stream, httpx.AsyncByteStream)
    body = b"".join(stream) if isinstance(stream, httpx.ByteStream) else stream
    outgoing = transport.addressed(request.url, request.method.encode(), path, request.headers.raw, body)
    head, received = await transport.exchange(outgoing)
    return httpx.Response(
        head.status, headers=list(head.headers), stream=_Bytes(received), extensions={"body": received}
    )


def body_of(response: httpx.Response) -> Exchange:
    """The body with its times and its ending."""
    body = response.extensions["body"]
    assert isinstance(body, Exchange)
    return body


class _Bytes(httpx.AsyncByteStream):
    def __init__(self, body: Exchange) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        async for read in self._body:
            yield read.data

    async def aclose(self) -> None:
        await self._body.aclose()
