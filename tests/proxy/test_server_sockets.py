"""The server on real sockets: what only a kernel does"""

import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from tests.support.http import request
from wiretape.proxy.connections import Timeouts
from wiretape.proxy.limits import TCP_USER_TIMEOUT_MS
from wiretape.proxy.reaper import Reaper
from wiretape.proxy.server import BindError, ServerSettings, listening, serve

App = Callable[[Any, Any, Any], Awaitable[None]]


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(
    app: App, settings: ServerSettings | None = None
) -> AsyncGenerator[tuple[int, trio.Event, trio.Event]]:
    """The port, the shutdown and what is set when `serve` has returned."""
    sockets = listening("127.0.0.1", 0)
    shutdown, returned = trio.Event(), trio.Event()
    async with trio.open_nursery() as nursery:
        reaper = Reaper()
        nursery.start_soon(reaper.run)

        async def run(*, task_status: trio.TaskStatus[list[str]]) -> None:
            settings_ = settings or ServerSettings()
            await serve(app, sockets, settings=settings_, reaper=reaper, shutdown=shutdown, task_status=task_status)
            returned.set()

        (url,) = await nursery.start(run)
        yield int(url.rpartition(":")[2]), shutdown, returned
        shutdown.set()
        with trio.fail_after(5):
            await returned.wait()
        nursery.cancel_scope.cancel()


async def said(stream: trio.abc.ReceiveStream) -> bytes:
    parts: list[bytes] = []
    with trio.fail_after(5):
        async for data in stream:
            parts.append(bytes(data))
    return b"".join(parts)


async def test_a_request_over_tcp() -> None:
    async with serving(hello) as (port, _, _):
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            await client.send_all(request("GET", "/", "Connection: close"))
            assert (await said(client)).endswith(b"\r\n\r\nhello")


async def endless(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": bytes(4096), "more_body": True})


async def test_a_shutdown_ends_in_time_with_readers_that_stall() -> None:
    async with serving(endless, ServerSettings(graceful_s=0.3)) as (port, shutdown, returned):
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            await client.send_all(request())
            await trio.sleep(0.2)  # until the kernel's buffers are full
            began = trio.current_time()
            shutdown.set()
            with trio.fail_after(1.3):
                await returned.wait()
            assert trio.current_time() - began >= 0.3


async def test_a_shutdown_stops_accepting_and_closes_idle_connections_at_once() -> None:
    async with serving(hello) as (port, shutdown, returned):
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            await client.send_all(request())
            assert b"hello" in bytes(await client.receive_some())
            shutdown.set()
            with trio.fail_after(0.1):
                assert await client.receive_some() == b""
                await returned.wait()
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port)


async def test_a_reader_that_stalls_is_reset_at_the_write_timeout() -> None:
    left = trio.Event()

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(endless, None, None, send)
            while (await receive())["type"] != "http.disconnect":
                pass
            left.set()
            nursery.cancel_scope.cancel()

    async with serving(app, ServerSettings(timeouts=Timeouts(write_s=0.3))) as (port, _, _):
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            await client.send_all(request())
            with trio.fail_after(1.3):
                await left.wait()
            with pytest.raises(trio.BrokenResourceError):
                await said(client)


def test_listening_sockets_pass_the_user_timeout_on() -> None:
    (sock,) = listening("127.0.0.1", 0)
    with sock, socket.create_connection(sock.getsockname()):
        sock.setblocking(True)
        accepted, _ = sock.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == TCP_USER_TIMEOUT_MS


def test_localhost_is_one_port_on_all_its_addresses() -> None:
    sockets = listening("localhost", 0)
    assert len({sock.getsockname()[1] for sock in sockets}) == 1
    for sock in sockets:
        sock.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "no.such.host.invalid"], ids=["a port in use", "an unknown host"])
def test_what_cannot_be_listened_on_is_one_line(host: str) -> None:
    (taken,) = listening("127.0.0.1", 0)
    with taken, pytest.raises(BindError, match=r"^cannot listen on .* port \d+: [^\n]+$"):
        listening(host, taken.getsockname()[1])
