"""The transport, over memory streams with virtual time and over loopback sockets."""

import ssl
from collections.abc import AsyncIterator
from contextlib import aclosing
from math import inf
from pathlib import Path

import httpx
import pytest
import trio
from trio.testing import MockClock

from tests.proxy.certificates import needs_openssl, over_tls, trusting
from tests.proxy.scripted import (
    CONTEXT,
    OK,
    Fake,
    Reset,
    answers,
    body_of,
    fetch,
    listening,
    opening,
    post,
    request_of,
    served,
)
from wiretape.events.core.errors import LocalError
from wiretape.proxy.config.model import Egress, UpstreamSettings
from wiretape.proxy.limits import SEND_BYTES_MAX, WRITE_TIMEOUT_S
from wiretape.proxy.upstream.connection import End, ResetError, StalledError
from wiretape.proxy.upstream.transport import UpstreamTransport


async def pieces(*each: bytes, gap_s: float = 0) -> AsyncIterator[bytes]:
    """Yield a body that can be sent once."""
    for piece in each:
        yield piece
        await trio.sleep(gap_s)


async def sent(request: httpx.Request, settings: UpstreamSettings | None = None) -> bytes:
    """Return what the upstream received."""
    received: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        received.append(await request_of(stream))
        await stream.send_all(OK)

    async with served(script, settings=settings) as (transport, _):
        await (await fetch(transport, request)).aread()
    return received[0]


async def test_only_missing_host_and_framing_are_added() -> None:
    request = post(url="http://upstream.test:8080/v1?api-version=1&a=%2F")
    for name in ("host", "content-length"):
        del request.headers[name]
    head = b"POST /v1?api-version=1&a=%2F HTTP/1.1\r\nHost: upstream.test:8080\r\nContent-Length: 2\r\n\r\n{}"
    assert await sent(request) == head


@pytest.mark.parametrize("target", [b'/v1/%2F%zz|{"a"}/./<b>?q=\'"`', b"*"])
async def test_given_target_is_sent_unchanged(target: bytes) -> None:
    """httpx.URL normalises quotes, braces and dots."""
    request = httpx.Request("GET", "http://upstream.test/v1", extensions={"target": target})
    assert await sent(request) == b"GET " + target + b" HTTP/1.1\r\nHost: upstream.test\r\n\r\n"
    egress = UpstreamSettings(egress=Egress(host="proxy.test", port=3128))
    assert (await sent(request, egress)).startswith(b"GET http://upstream.test" + target + b" HTTP/1.1\r\n")


async def test_streamed_body_is_sent_in_chunks(autojump_clock: MockClock) -> None:
    got = await sent(post(pieces(b"abc", b"", b"de", gap_s=1)))
    assert got.partition(b"\r\n\r\n")[2] == b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    request = post(pieces(b"abc"))
    del request.headers["transfer-encoding"]
    assert b"Transfer-Encoding: chunked\r\n" in await sent(request)


async def test_http_goes_through_egress_proxy_by_full_url() -> None:
    word = "pw"
    egress = Egress(host="proxy.test", port=3128, user="me", password=word)
    got = await sent(post(b"", url="http://upstream.test/v1?a=b"), UpstreamSettings(egress=egress))
    assert got.startswith(b"POST http://upstream.test/v1?a=b HTTP/1.1\r\nHost: upstream.test\r\n")
    assert got.count(b"Proxy-Authorization: Basic bWU6cHc=\r\n") == 1
    assert word not in repr(egress)


@pytest.mark.parametrize(
    "request_",
    [
        pytest.param(post(headers={"Transfer-Encoding": "chunked", "Content-Length": "2"}), id="two framings"),
        pytest.param(post(url="ftp://upstream.test/"), id="another scheme"),
        pytest.param(post(url="/v1"), id="no host"),
        pytest.param(post(headers={"X": "a\r\nEvil: b"}), id="an injected header"),
    ],
)
async def test_invalid_request_is_refused(request_: httpx.Request) -> None:
    async with served(answers(OK)) as (transport, _):
        with pytest.raises(LocalError):
            await fetch(transport, request_)


class Clogged(Fake):
    """A peer that stops taking data after so many sends."""

    def __init__(self, sends: int) -> None:
        self._sends = sends

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        del data
        self._sends -= 1
        if self._sends < 0:
            await trio.sleep_forever()
        await trio.sleep(WRITE_TIMEOUT_S - 1)


@pytest.mark.parametrize(("body", "sends"), [(b"{}", 0), (b"x" * 10 * SEND_BYTES_MAX, 5)])
async def test_write_deadline_measures_progress(body: bytes, sends: int, autojump_clock: MockClock) -> None:
    stream = Clogged(sends)
    transport, began = UpstreamTransport(open_tcp=opening(stream)), trio.current_time()
    with pytest.raises(StalledError):
        await fetch(transport, post(body))
    assert trio.current_time() - began == pytest.approx(sends * (WRITE_TIMEOUT_S - 1) + WRITE_TIMEOUT_S)
    assert stream.closed_at < inf


async def test_proxy_environment_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://proxy.test:1")
    async with served(answers(OK)) as (transport, upstream):
        await (await fetch(transport, post())).aread()
    assert upstream.opened == [("upstream.test", 80)]


def test_invalid_ca_file_raises_at_start() -> None:
    with pytest.raises(ssl.SSLError):
        UpstreamTransport(UpstreamSettings(ca_file=Path(__file__)))


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
            raise Reset
        if how == "garbage":
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
