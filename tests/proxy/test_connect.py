"""Opening connections: names, TCP, egress proxy and TLS. U02, U03, U04 and U06 are in tests/failures."""

import socket

import pytest
import trio

from tests.proxy.certificates import HOST, needs_openssl, over_tls, trusting
from tests.proxy.scripted import OK, Script, answers, fetch, post, request_of, served
from wiretape.proxy.config.model import Egress, UpstreamSettings
from wiretape.proxy.limits import HEAD_BYTES_MAX
from wiretape.proxy.upstream.connect import Resolver
from wiretape.proxy.upstream.connection import RefusedError

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
