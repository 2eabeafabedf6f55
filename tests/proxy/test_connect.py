"""Opening connections: names, TCP, egress proxy and TLS. U02, U03, U04 and U06 are in tests/failures."""

import socket
import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from tests.proxy.certificates import HOST, authority, needs_openssl, over_tls, server_context, trusting
from tests.proxy.scripted import CONTEXT, OK, Counted, Script, answers, fetch, post, request_of, served
from wiretape.proxy.config.model import Egress, UpstreamSettings
from wiretape.proxy.limits import HEAD_BYTES_MAX
from wiretape.proxy.upstream.connect import Connector, Resolver
from wiretape.proxy.upstream.connection import Connection, Origin, RefusedError
from wiretape.proxy.upstream.tls import TlsStream, client_context

HTTPS = f"https://{HOST}/v1"


@pytest.mark.parametrize("garbage", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b""])
async def test_peer_without_tls_is_refused(garbage: bytes) -> None:
    async def script(stream: trio.abc.Stream) -> None:
        await stream.receive_some()
        if garbage:
            await stream.send_all(garbage)

    async with served(script) as (transport, upstream):
        with pytest.raises(RefusedError, match="no TLS") as raised:
            await fetch(transport, post(url=HTTPS))
        assert (raised.value.cause, upstream.still_open) == ("tls", set())


async def test_a_refused_connection_is_one_sentence_with_the_reason() -> None:
    with socket.socket() as taken:  # bound, and nothing listens
        taken.bind(("127.0.0.1", 0))
        host, port = taken.getsockname()
        with pytest.raises(RefusedError) as raised:
            await Connector(CONTEXT).connect(Origin(tls=False, host=host, port=port))
    assert str(raised.value) == f"no connection to {host}:{port}: Connection refused"


WORD = "pw"
EGRESS = Egress(host="proxy.test", port=3128, user="me", password=WORD)


def tunnel(answer: bytes, inner: Script | None = None, seen: list[bytes] | None = None) -> Script:
    """Return a proxy that responds to CONNECT like this, and then plays the origin."""

    async def script(stream: trio.abc.Stream) -> None:
        request = await request_of(stream)
        if seen is not None:
            seen.append(request)
        await stream.send_all(answer)
        if inner is not None:
            await inner(stream)

    return script


@needs_openssl
@pytest.mark.parametrize("answer", [b"HTTP/1.1 200 X\r\n\r\n", b"HTTP/1.1 103 X\r\n\r\nHTTP/1.0 200 X\r\nA: b\r\n\r\n"])
async def test_https_goes_through_egress_proxy_by_connect(answer: bytes) -> None:
    seen: list[bytes] = []
    asked: list[bytes] = []

    async def origin(stream: trio.abc.Stream) -> None:
        asked.append(await request_of(stream))
        await stream.send_all(OK)

    script = tunnel(answer, over_tls(origin), seen)
    settings = UpstreamSettings(egress=EGRESS)
    async with served(script, settings=settings, context=trusting()) as (transport, upstream):
        assert await (await fetch(transport, post(url=HTTPS))).aread() == b"ok"
        assert upstream.opened == [("proxy.test", 3128)]
    host = f"{HOST}:443".encode()
    assert seen == [b"CONNECT %b HTTP/1.1\r\nHost: %b\r\nProxy-Authorization: Basic bWU6cHc=\r\n\r\n" % (host, host)]
    assert asked[0].startswith(b"POST /v1 HTTP/1.1\r\n")
    assert b"Proxy-" not in asked[0]


@needs_openssl
async def test_egress_proxy_may_use_tls() -> None:
    egress = Egress(tls=True, host=HOST, port=3128)
    script = over_tls(tunnel(b"HTTP/1.1 200 X\r\n\r\n", over_tls(answers(OK))))
    settings = UpstreamSettings(egress=egress)
    async with served(script, settings=settings, context=trusting()) as (transport, _):
        assert await (await fetch(transport, post(url=HTTPS))).aread() == b"ok"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "responded with 407", id="407"),
        pytest.param(b"HTTP/1.1 200 X\r\n\r\nhello", "data before TLS", id="data before TLS"),
        pytest.param(b"garbage\r\n\r\n", "no HTTP/1.1", id="garbage"),
        pytest.param(b"", "closed", id="closed"),
        pytest.param(b"HTTP/1.1 200 X\r\nA", "closed", id="closed inside the head"),
        pytest.param(b"HTTP/1.1 100 X\r\n\r\n" * (HEAD_BYTES_MAX // 10), "no HTTP/1.1", id="a flood of 1xx"),
        pytest.param(b"HTTP/1.1 200 X\r\nA: " + b"b" * 2 * HEAD_BYTES_MAX, "no HTTP/1.1", id="a head without an end"),
    ],
)
async def test_egress_proxy_failure_has_its_reason(answer: bytes, reason: str) -> None:
    async with served(tunnel(answer), settings=UpstreamSettings(egress=EGRESS)) as (transport, upstream):
        with pytest.raises(RefusedError, match=reason) as raised:
            await fetch(transport, post(url=HTTPS))
        assert (raised.value.cause, upstream.still_open) == ("proxy", set())
        assert WORD not in str(raised.value)


async def test_local_name_is_resolved_both_ways() -> None:
    resolver = Resolver()
    found = await resolver.getaddrinfo(b"localhost", 80, type=socket.SOCK_STREAM)
    assert {address[4][0] for address in found} <= {"127.0.0.1", "::1"}
    assert await resolver.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == (
        "127.0.0.1",
        "80",
    )


# -- TLS, against the standard library's own server side --------------------------------------------------------------


@asynccontextmanager
async def joined(
    context: ssl.SSLContext | None = None,
) -> AsyncGenerator[tuple[TlsStream, "trio.SSLStream[trio.abc.Stream]"]]:
    """Yield both sides after the handshake."""
    ours, theirs = memory_stream_pair()
    client = TlsStream(ours, context or trusting(), HOST)
    server: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(theirs, server_context(), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        await client.handshake()
    yield client, server


@needs_openssl
async def test_goodbye_is_an_end_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"bye")
        await server.aclose()
        assert await client.receive_some() == b"bye"
        assert [await client.receive_some() for _ in range(2)] == [b"", b""]


@needs_openssl
async def test_close_without_goodbye_is_broken_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"by")
        await server.transport_stream.aclose()
        assert await client.receive_some() == b"by"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()


@needs_openssl
async def test_damage_is_broken_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"good")
        await server.transport_stream.send_all(b"\x17\x03\x03\x00\x13" + b"x" * 19)
        assert await client.receive_some() == b"good"
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(b"more")


class Trickle(Counted):
    """A stream that returns so many bytes a read."""

    step = 1

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        return await super().receive_some(min(self.step, max_bytes or self.step))


@needs_openssl
@pytest.mark.parametrize("step", [1, 3, 7, 1 << 16])
@pytest.mark.parametrize(
    ("tail", "unsolicited"),
    [
        pytest.param(b"", False, id="nothing"),
        pytest.param(b"\x17", True, id="a byte"),
        pytest.param(b"\x17\x03\x03\x00\x13", True, id="the header of a record"),
        pytest.param(b"\x17\x03\x03\x00\x13" + b"x" * 18, True, id="most of a record"),
        pytest.param(None, True, id="a goodbye"),
    ],
)
async def test_bytes_of_an_unsolicited_tls_record_show_that_a_connection_cannot_be_used_again(
    step: int, tail: bytes | None, unsolicited: bool
) -> None:
    ours, theirs = memory_stream_pair()
    trickle = Trickle(ours, set())
    trickle.step = step
    client = TlsStream(trickle, trusting(), HOST)
    connection = Connection(Origin(True, HOST, 443), client)
    server: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(theirs, server_context(), server_side=True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.do_handshake)
        await client.handshake()

    async def read() -> None:
        while await client.receive_some():
            pass

    for last in (False, False, True):
        await server.send_all(b"answer")
        if last:
            await (server.transport_stream.send_all(tail) if tail is not None else server.aclose())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(read)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        assert connection.readable == (last and unsolicited)


@needs_openssl
async def test_data_with_end_of_handshake_is_returned_at_once() -> None:
    server_context("TLS 1.2").maximum_version = ssl.TLSVersion.TLSv1_2  # here the server sends the last message
    ours, theirs = memory_stream_pair()
    ours.receive_stream.receive_some_hook = wait_all_tasks_blocked
    server: trio.SSLStream[trio.abc.Stream] = trio.SSLStream(theirs, server_context("TLS 1.2"), server_side=True)
    client = TlsStream(ours, trusting(), HOST)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.send_all, b"at once")
        await client.handshake()
        with trio.fail_after(10):
            assert await client.receive_some() == b"at once"


@needs_openssl
async def test_ca_file_is_trusted_in_addition_to_the_system_store(monkeypatch: pytest.MonkeyPatch) -> None:
    server_context("self-signed")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority()))
    context = client_context(authority().parent / "self-signed.pem")
    assert len(context.get_ca_certs()) == 2
    async with joined(context) as (client, server):  # the server's certificate is from the store's authority
        await server.send_all(b"a")
        assert await client.receive_some() == b"a"
