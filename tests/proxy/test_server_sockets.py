"""The server on real sockets: what only a kernel does."""

import os
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tests.support.http import request
from wiretape.proxy.limits import TCP_USER_TIMEOUT_MS
from wiretape.proxy.server.asgi import Reaper, ServerSettings
from wiretape.proxy.server.server import BindError, listening, serve

App = Callable[[Any, Any, Any], Awaitable[None]]


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"5")]})
    await send({"type": "http.response.body", "body": b"hello"})


@asynccontextmanager
async def serving(
    app: App, settings: ServerSettings | None = None
) -> AsyncGenerator[tuple[int, trio.Event, trio.Event]]:
    """Yield the port, the shutdown event, and the event that is set when `serve` has returned."""
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
    with trio.fail_after(5):
        return b"".join([bytes(data) async for data in stream])


async def endless(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    while True:
        await send({"type": "http.response.body", "body": bytes(4096), "more_body": True})


async def test_shutdown_ends_in_time_with_stalled_readers() -> None:
    """Take the best of three: a busy machine slows only some of them."""
    assert min([await _shutdown_s() for _ in range(3)]) < 1.3


async def _shutdown_s() -> float:
    settings = ServerSettings(graceful_s=0.3)
    async with (
        serving(endless, settings) as (port, shutdown, returned),
        await trio.open_tcp_stream("127.0.0.1", port) as client,
    ):
        await client.send_all(request())
        await wait_all_tasks_blocked(0.02)  # until the kernel's buffers are full
        began = trio.current_time()
        shutdown.set()
        with trio.fail_after(10):  # otherwise the reader stalls for ever
            await returned.wait()
        took_s = trio.current_time() - began
        assert took_s >= 0.3
    return took_s


async def test_shutdown_stops_accepting_and_closes_idle_connections_at_once() -> None:
    assert min([await _closed_s() for _ in range(5)]) < 0.1


async def _closed_s() -> float:
    async with serving(hello) as (port, shutdown, returned):
        async with await trio.open_tcp_stream("127.0.0.1", port) as client:
            await client.send_all(request())
            assert b"hello" in bytes(await client.receive_some())
            began = trio.current_time()
            shutdown.set()
            with trio.fail_after(10):  # otherwise the response has 30 s
                assert await client.receive_some() == b""
                await returned.wait()
            took_s = trio.current_time() - began
        with pytest.raises(OSError, match="all attempts to connect"):
            await trio.open_tcp_stream("127.0.0.1", port)
    return took_s


def test_accepted_sockets_inherit_user_timeout() -> None:
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
def test_bind_error_is_one_line(host: str) -> None:
    (taken,) = listening("127.0.0.1", 0)
    with taken, pytest.raises(BindError, match=r"^cannot listen on .* port \d+: [^\n]+$"):
        listening(host, taken.getsockname()[1])


async def test_cut_response_arrives_to_its_last_byte() -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"a" * 100_000, "more_body": True})
        scope["extensions"]["wiretape"].abort()

    async with serving(app) as (port, _, _), await trio.open_tcp_stream("127.0.0.1", port) as client:
        await client.send_all(request())
        await wait_all_tasks_blocked(0.02)
        answer = await said(client)
        assert answer.count(b"a" * 100_000) == 1
        assert not answer.endswith(b"0\r\n\r\n")


async def test_early_response_to_long_body_is_not_lost_to_a_reset() -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 413, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": b"no!"})

    async with serving(app) as (port, _, _), await trio.open_tcp_stream("127.0.0.1", port) as client:
        await client.send_all(request("POST", body=bytes(4 << 20)))
        assert (await said(client)).endswith(b"\r\n\r\nno!")


async def test_without_descriptors_accepting_pauses_and_continues() -> None:
    log: list[str] = []

    def limited(limit: str, what: str) -> None:
        assert limit == "accept"
        log.append(what)

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    async with serving(hello, ServerSettings(on_limited=limited)) as (port, _, _):
        clients = [trio.socket.socket() for _ in range(3)]
        taken = os.dup(0)
        os.close(taken)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken, hard))
        try:
            for client in clients:
                await client.connect(("127.0.0.1", port))
            await trio.sleep(0.5)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert set(log) == {"Cannot accept connections: Too many open files"}
        assert len(log) <= 10
        for client in clients:
            await client.send(request("GET", "/", "Connection: close"))
            assert (await said(trio.SocketStream(client))).endswith(b"hello")
            client.close()


def test_trio_keeps_its_socket_under_the_private_name_used_here() -> None:
    with socket.socket() as sock:
        assert vars(trio.socket.from_stdlib_socket(sock))["_sock"] is sock
