"""What only real sockets do, over loopback: reset, refuse, half-close, go stale, run out of room."""

import errno
import socket
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.proxy.certificates import needs_openssl, over_tls, trusting
from tests.proxy.scripted import CONTEXT, HEAD, OK, Script, answers, chunk, post, request_of, says
from wiretape.proxy.upstream.errors import RefusedError, ResetError
from wiretape.proxy.upstream.exchange import End
from wiretape.proxy.upstream.transport import UpstreamTransport, body_of


@asynccontextmanager
async def listening(script: Script) -> AsyncGenerator[tuple[int, list[trio.SocketStream]]]:
    """The port, and the connections that came."""
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
    """Closes with RST."""
    assert isinstance(stream, trio.SocketStream)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    stream.socket.close()


async def test_a_connection_is_used_again_over_a_socket() -> None:
    async with listening(answers(OK, HEAD + chunk(b"x") + b"0\r\n\r\n", OK)) as (port, accepted):
        async with UpstreamTransport(context=CONTEXT) as transport:
            for expected in (b"ok", b"x", b"ok"):
                response = await transport.handle_async_request(post(url=f"http://127.0.0.1:{port}/"))
                assert await response.aread() == expected
        assert len(accepted) == 1


async def test_refused() -> None:
    """U01."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and never listens
        with pytest.raises(RefusedError, match=r"[Rr]efused") as raised:
            await UpstreamTransport(context=CONTEXT).handle_async_request(
                post(url=f"http://127.0.0.1:{bound.getsockname()[1]}/")
            )
    assert raised.value.cause == "connect"


async def test_a_reset_before_the_head() -> None:
    """U17."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        reset(stream)

    async with listening(script) as (port, _):
        with pytest.raises(ResetError):
            await UpstreamTransport(context=CONTEXT).handle_async_request(post(url=f"http://127.0.0.1:{port}/"))


async def test_a_reset_in_the_body_comes_after_what_was_received() -> None:
    """U18."""
    received = trio.Event()

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(b"data: {"))
        await received.wait()
        reset(stream)

    async with listening(script) as (port, _):
        body = body_of(
            await UpstreamTransport(context=CONTEXT).handle_async_request(post(url=f"http://127.0.0.1:{port}/"))
        )
        read = await body.receive()
        assert read is not None
        assert read.data == b"data: {"
        received.set()
        with pytest.raises(ResetError):
            await body.receive()
        assert isinstance(body.fault, ResetError)


@pytest.mark.parametrize("how", ["FIN", "RST", "garbage"])
async def test_a_stale_connection_is_seen_before_it_is_used(how: str) -> None:
    """U58: the socket is readable, so not even the request goes there."""
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

    async with listening(script) as (port, accepted), UpstreamTransport(context=CONTEXT) as transport:
        request = post(url=f"http://127.0.0.1:{port}/")
        assert await (await transport.handle_async_request(request)).aread() == b"ok"
        stale.set()
        while not next(iter(transport.pool._idle.values()))[0].readable:  # pyright: ignore[reportPrivateUsage]
            await trio.lowlevel.checkpoint()
        assert await (await transport.handle_async_request(request)).aread() == b"ok"
        assert (len(accepted), len(requests)) == (2, 2)


async def test_a_half_close_of_the_peer_ends_the_body() -> None:
    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        assert isinstance(stream, trio.SocketStream)
        await stream.send_eof()
        assert await stream.receive_some() == b"", "and we close ours"

    async with listening(script) as (port, _), UpstreamTransport(context=CONTEXT) as transport:
        body = body_of(await transport.handle_async_request(post(url=f"http://127.0.0.1:{port}/")))
        assert b"".join([read.data async for read in body]) == b"all of it"
        assert body.end is End.CLOSED


async def test_an_answer_during_an_upload_that_nobody_reads() -> None:
    """U59: the socket's buffer is full, so the upload waits; the answer does not."""

    async def script(stream: trio.abc.Stream) -> None:
        await stream.receive_some(10)
        await stream.send_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno")
        await trio.sleep_forever()

    async with listening(script) as (port, _), UpstreamTransport(context=CONTEXT) as transport:
        response = await transport.handle_async_request(post(b"x" * 64_000_000, url=f"http://127.0.0.1:{port}/"))
        assert (response.status_code, await response.aread()) == (413, b"no")


async def test_the_peer_sees_that_we_left() -> None:
    """Who leaves is gone: the upstream may stop generating."""
    noticed = trio.Event()

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(b"x"))
        try:
            assert await stream.receive_some() == b""
        finally:
            noticed.set()

    async with listening(script) as (port, _), UpstreamTransport(context=CONTEXT) as transport:
        async with body_of(await transport.handle_async_request(post(url=f"http://127.0.0.1:{port}/"))) as body:
            await body.receive()
        with trio.fail_after(10):
            await noticed.wait()


@needs_openssl
@pytest.mark.parametrize("torn", [False, True])
async def test_tls_over_a_socket_says_goodbye_or_is_torn(torn: bool) -> None:
    """Only a goodbye makes an end of a body without framing (design.md 4: a torn TLS is a reset)."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(b"HTTP/1.1 200 OK\r\n\r\nall of it")
        assert isinstance(stream, trio.SSLStream)
        if not torn:
            await stream.aclose()

    async with listening(over_tls(script)) as (port, _):
        transport = UpstreamTransport(context=trusting())
        body = body_of(await transport.handle_async_request(post(url=f"https://127.0.0.1:{port}/")))
        data = b""
        try:
            async for read in body:
                data += read.data
        except ResetError:
            pass
        assert data == b"all of it"
        assert (body.end, type(body.fault)) == ((None, ResetError) if torn else (End.CLOSED, type(None)))


@needs_openssl
async def test_an_idle_tls_connection_is_used_again_and_its_tickets_are_no_surprise() -> None:
    async with (
        listening(over_tls(answers(OK, OK, OK))) as (port, accepted),
        UpstreamTransport(context=trusting()) as transport,
    ):
        for _ in range(3):
            request = post(url=f"https://127.0.0.1:{port}/")
            assert await (await transport.handle_async_request(request)).aread() == b"ok"
        assert len(accepted) == 1


async def test_no_descriptor_is_left_for_us_is_a_refusal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulated: a test that takes all descriptors would take those of pytest."""

    def no_socket(*_: object, **__: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    async with listening(says()) as (port, _):
        monkeypatch.setattr("trio._highlevel_open_tcp_stream.socket", no_socket)
        with pytest.raises(RefusedError, match="Too many open files"):
            await UpstreamTransport(context=CONTEXT).handle_async_request(post(url=f"http://127.0.0.1:{port}/"))
