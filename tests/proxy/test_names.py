"""Name look-ups by the system's resolver, and by one that hangs."""

import socket
import threading

import pytest
import trio

from wiretape.proxy.upstream.connect import Resolver


async def test_local_name_is_resolved_both_ways() -> None:
    resolver = Resolver()
    found = await resolver.getaddrinfo(b"localhost", 80, type=socket.SOCK_STREAM)
    assert {address[4][0] for address in found} <= {"127.0.0.1", "::1"}
    assert await resolver.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == (
        "127.0.0.1",
        "80",
    )


async def test_hanging_resolver_takes_no_shared_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """U04: the call is cancelled at once, while its thread goes on."""
    goes_on, began = threading.Event(), threading.Event()

    def hang(*_: object) -> list[object]:
        began.set()
        goes_on.wait(10)
        return []

    monkeypatch.setattr("wiretape.proxy.upstream.connect.socket.getaddrinfo", hang)
    resolver, shared = Resolver(lookups_max=2), trio.to_thread.current_default_thread_limiter()
    trio.socket.set_custom_hostname_resolver(resolver)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(resolver.getaddrinfo, b"upstream.test", 80)
        while not began.is_set():
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()
    assert (resolver.limiter.borrowed_tokens, shared.borrowed_tokens) == (1, 0)
    goes_on.set()
    while resolver.limiter.borrowed_tokens:
        await trio.lowlevel.checkpoint()
