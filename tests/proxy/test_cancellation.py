"""Cancelled at every checkpoint (G11), in each part of an exchange: nothing is left, and what comes after works."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing

import httpx
import pytest
import trio
from trio.lowlevel import Task

from tests.proxy.certificates import needs_openssl, over_tls, trusting
from tests.proxy.scripted import CONTEXT, HEAD, OK, Script, Upstream, answers, body_of, chunk, fetch, post, request_of
from wiretape.proxy.config.model import Egress, UpstreamSettings
from wiretape.proxy.limits import SEND_BYTES_MAX
from wiretape.proxy.upstream.transport import UpstreamTransport

HTTPS = "https://upstream.test/"


async def streamed(stream: trio.abc.Stream) -> None:
    """An answer in several reads, again and again."""
    while await request_of(stream):
        await stream.send_all(b"HTTP/1.1 103 X\r\n\r\n" + HEAD[:20])
        for piece in (HEAD[20:], chunk(b"a"), chunk(b"b") + b"0\r\n", b"\r\n"):
            await trio.lowlevel.checkpoint()
            await stream.send_all(piece)


async def tunnelled(stream: trio.abc.Stream) -> None:
    await request_of(stream)
    await stream.send_all(b"HTTP/1.1 200 X\r\n\r\n")
    await over_tls(streamed)(stream)


async def early(stream: trio.abc.Stream) -> None:
    await stream.receive_some()
    await stream.send_all(OK)


class Pieces(httpx.AsyncByteStream):
    """No generator: httpx would leave one to the garbage collector."""

    def __init__(self) -> None:
        self._left = 5

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        await trio.lowlevel.checkpoint()
        if not self._left:
            raise StopAsyncIteration
        self._left -= 1
        return b"piece"


Use = Callable[[UpstreamTransport], Awaitable[None]]


async def read_all(transport: UpstreamTransport, url: str = "http://upstream.test/") -> None:
    async with aclosing(body_of(await fetch(transport, post(url=url)))) as body:
        async for _ in body:
            pass


async def read_all_tls(transport: UpstreamTransport) -> None:
    await read_all(transport, HTTPS)


async def drain(transport: UpstreamTransport) -> None:
    async with aclosing(body_of(await fetch(transport, post()))) as body:
        await body.receive()
        await body.drain()


async def twice(transport: UpstreamTransport) -> None:
    for _ in range(2):
        await read_all(transport)


async def upload_bytes(transport: UpstreamTransport) -> None:
    await (await fetch(transport, post(b"x" * 3 * SEND_BYTES_MAX))).aclose()


async def upload_pieces(transport: UpstreamTransport) -> None:
    request = httpx.Request("POST", "http://upstream.test/", stream=Pieces())
    await (await fetch(transport, request)).aclose()


async def by_httpx(transport: UpstreamTransport) -> None:
    response = await fetch(transport, post())
    try:
        await response.aread()
    finally:
        await response.aclose()


class Nth(trio.abc.Instrument):
    """Cancels a scope when its task has been given the floor so many times."""

    def __init__(self, task: Task, nth: int, scope: trio.CancelScope) -> None:
        self._task, self._left, self._scope = task, nth, scope

    def before_task_step(self, task: Task) -> None:
        if task is self._task or task.parent_nursery in self._task.child_nurseries:
            self._left -= 1
            if self._left == 0:
                self._scope.cancel()


async def cancelled_at(nth: int, scripts: list[Script], use: Use, settings: UpstreamSettings | None) -> bool:
    """Whether there was such a checkpoint; fails where anything is left."""
    async with trio.open_nursery() as nursery:
        upstream = Upstream(nursery, scripts)
        context = trusting() if use is read_all_tls else CONTEXT
        transport = UpstreamTransport(settings, open_tcp=upstream.open_tcp, context=context)
        nurseries = list(trio.lowlevel.current_task().child_nurseries)
        with trio.CancelScope() as scope:
            instrument = Nth(trio.lowlevel.current_task(), nth, scope)
            trio.lowlevel.add_instrument(instrument)
            try:
                await use(transport)
            finally:
                trio.lowlevel.remove_instrument(instrument)
        assert len(upstream.still_open) == len(transport.pool), "a connection is neither idle nor closed"
        assert trio.lowlevel.current_task().child_nurseries == nurseries, "a task is left"
        with trio.fail_after(5):
            await use(transport)  # the transport is as good as new
        await transport.aclose()
        assert not upstream.still_open
        nursery.cancel_scope.cancel()
        return scope.cancelled_caught


@needs_openssl
@pytest.mark.parametrize(
    ("script", "use", "egress"),
    [
        pytest.param(streamed, read_all, None, id="connect, send, head, body, end"),
        pytest.param(over_tls(streamed), read_all_tls, None, id="the same over TLS"),
        pytest.param(tunnelled, read_all_tls, Egress(host="proxy.test", port=1), id="through an egress proxy"),
        pytest.param(streamed, drain, None, id="drain"),
        pytest.param(streamed, twice, None, id="a connection that is used again"),
        pytest.param(answers(OK), twice, None, id="a connection that is stale"),
        pytest.param(streamed, upload_bytes, None, id="a large upload"),
        pytest.param(streamed, upload_pieces, None, id="an upload in pieces"),
        pytest.param(early, upload_pieces, None, id="an answer before the upload's end"),
        pytest.param(streamed, by_httpx, None, id="as httpx reads"),
    ],
)
async def test_every_checkpoint(script: Script, use: Use, egress: Egress | None) -> None:
    settings = UpstreamSettings(egress=egress)
    nth = 1
    while await cancelled_at(nth, [script], use, settings):
        nth += 1
    assert nth > 8, "the sweep has seen hardly anything"
