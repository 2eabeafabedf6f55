"""TLS over memory streams, against the standard library's own server side."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import (
    memory_stream_pair,
    wait_all_tasks_blocked,
)

from tests.proxy.certificates import HOST, authority, needs_openssl, server_context, trusting
from wiretape.proxy.upstream.tls import TlsStream, client_context

pytestmark = needs_openssl


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


async def test_goodbye_is_an_end_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"bye")
        await server.aclose()
        assert await client.receive_some() == b"bye"
        assert [await client.receive_some() for _ in range(2)] == [b"", b""]


async def test_close_without_goodbye_is_broken_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"by")
        await server.transport_stream.aclose()
        assert await client.receive_some() == b"by"
        for _ in range(2):
            with pytest.raises(trio.BrokenResourceError):
                await client.receive_some()


async def test_damage_is_broken_after_all_data() -> None:
    async with joined() as (client, server):
        await server.send_all(b"good")
        await server.transport_stream.send_all(b"\x17\x03\x03\x00\x13" + b"x" * 19)
        assert await client.receive_some() == b"good"
        with pytest.raises(trio.BrokenResourceError):
            await client.receive_some()
        with pytest.raises(trio.BrokenResourceError):
            await client.send_all(b"more")


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


async def test_ca_file_is_trusted_in_addition_to_the_system_store(monkeypatch: pytest.MonkeyPatch) -> None:
    server_context("self-signed")
    monkeypatch.setenv("SSL_CERT_FILE", str(authority()))
    context = client_context(authority().parent / "self-signed.pem")
    assert len(context.get_ca_certs()) == 2
    async with joined(context) as (client, server):  # the server's certificate is from the store's authority
        await server.send_all(b"a")
        assert await client.receive_some() == b"a"
