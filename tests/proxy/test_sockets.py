"""The upstream transport over loopback: resets, stale connections and TLS on real sockets."""

import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import aclosing, asynccontextmanager

import pytest
import trio

from tests.proxy.certificates import needs_openssl, over_tls, trusting
from tests.proxy.scripted import CONTEXT, OK, Script, answers, body_of, fetch, post, request_of
from wiretape.proxy.upstream.connection import End
from wiretape.proxy.upstream.errors import ResetError
from wiretape.proxy.upstream.transport import UpstreamTransport


@asynccontextmanager
async def listening(script: Script) -> AsyncGenerator[tuple[int, list[trio.SocketStream]]]:
    """Yield the port and the accepted connections."""
    accepted: list[trio.SocketStream] = []

    async def serve(stream: trio.SocketStream) -> None:
        accepted.append(stream)
        try:
            await script(stream)
        except trio.BrokenResourceError:
            pass  # the other side left
        finally:
            await trio.aclose_forcefully(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(trio.serve_listeners, serve, [listener])
        with trio.fail_after(10):
            yield listener.socket.getsockname()[1], accepted
        nursery.cancel_scope.cancel()


def reset(stream: trio.abc.Stream) -> None:
    """Close with RST."""
    assert isinstance(stream, trio.SocketStream)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


@pytest.mark.parametrize("how", ["FIN", "RST", "garbage"])
async def test_stale_connection_is_detected_before_reuse(how: str) -> None:
    """U58: the socket is readable, so the request is not even sent on it."""
    stale = trio.Event()
    requests: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        requests.append(await request_of(stream))
        await stream.send_all(OK)
        await stale.wait()
        if how == "RST":
            reset(stream)
        elif how == "garbage":
            await stream.send_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
            await trio.sleep_forever()

    async with listening(script) as (port, accepted), aclosing(UpstreamTransport(context=CONTEXT)) as transport:
        request = post(url=f"http://127.0.0.1:{port}/")
        assert await (await fetch(transport, request)).aread() == b"ok"
        stale.set()
        while not next(iter(transport.pool._idle.values()))[0].readable:  # pyright: ignore[reportPrivateUsage]
            await trio.lowlevel.checkpoint()
        assert await (await fetch(transport, request)).aread() == b"ok"
        assert (len(accepted), len(requests)) == (2, 2)


@needs_openssl
@pytest.mark.parametrize("torn", [False, True])
async def test_tls_close_without_goodbye_is_a_reset(torn: bool) -> None:
    """A body that lasts until the close is complete only if TLS said goodbye."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        assert isinstance(stream, trio.SSLStream)
        if not torn:
            await stream.aclose()

    async with listening(over_tls(script)) as (port, _):
        transport = UpstreamTransport(context=trusting())
        body = body_of(await fetch(transport, post(url=f"https://127.0.0.1:{port}/")))
        data = b""
        try:
            async for read in body:
                data += read.data
        except ResetError:
            pass
        assert data == b"all of it"
        assert (body.end, type(body.fault)) == ((None, ResetError) if torn else (End.CLOSED, type(None)))


@needs_openssl
async def test_idle_tls_connection_is_reused_despite_its_tickets() -> None:
    async with (
        listening(over_tls(answers(OK, OK, OK))) as (port, accepted),
        aclosing(UpstreamTransport(context=trusting())) as transport,
    ):
        for _ in range(3):
            request = post(url=f"https://127.0.0.1:{port}/")
            assert await (await fetch(transport, request)).aread() == b"ok"
        assert len(accepted) == 1
