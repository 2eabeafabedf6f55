"""Name look-ups by the system's resolver, and by one that hangs."""

import socket

from wiretape.proxy.upstream.connect import Resolver


async def test_local_name_is_resolved_both_ways() -> None:
    resolver = Resolver()
    found = await resolver.getaddrinfo(b"localhost", 80, type=socket.SOCK_STREAM)
    assert {address[4][0] for address in found} <= {"127.0.0.1", "::1"}
    assert await resolver.getnameinfo(("127.0.0.1", 80), socket.NI_NUMERICHOST | socket.NI_NUMERICSERV) == (
        "127.0.0.1",
        "80",
    )
