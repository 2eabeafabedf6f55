"""Name look-ups in threads of their own, so that a resolver that hangs does not block writes to disk.

trio's look-up takes one of the forty threads that the whole process shares, and a cancelled look-up keeps it until the
system's resolver gives up as well (10 to 30 s). With forty of them no tape could be written.
The server installs this once: `trio.socket.set_custom_hostname_resolver(Resolver())`.
"""

import socket
from socket import AddressFamily, SocketKind
from typing import Any, Literal, cast

import trio

from ..limits import LOOKUPS_MAX

__all__ = ["Resolver"]

_Address = (
    tuple[Literal[AddressFamily.AF_INET], SocketKind, int, str, tuple[str, int]]
    | tuple[Literal[AddressFamily.AF_INET6], SocketKind, int, str, tuple[str, int, int, int] | tuple[int, bytes]]
)


class Resolver(trio.abc.HostnameResolver):
    """The system's resolver, in threads of its own."""

    def __init__(self, lookups_max: int = LOOKUPS_MAX) -> None:
        self.limiter = trio.CapacityLimiter(lookups_max)

    async def getaddrinfo(
        self,
        host: bytes | None,
        port: bytes | str | int | None,
        family: int = 0,
        type: int = 0,  # noqa: A002 - trio's name
        proto: int = 0,
        flags: int = 0,
    ) -> list[_Address]:
        """Look up addresses; a cancelled call returns at once, and its thread ends when the system's call does."""

        def look_up() -> list[_Address]:
            found: Any = socket.getaddrinfo(host, port, family, type, proto, flags)
            return cast("list[_Address]", found)  # mypy and pyright disagree about its type

        return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self.limiter)

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        """Look up a name."""

        def look_up() -> tuple[str, str]:
            return socket.getnameinfo(sockaddr, flags)

        return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self.limiter)
