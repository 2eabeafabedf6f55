"""A stream to an origin: name, TCP, egress proxy and TLS, under one deadline.

Name look-ups have threads of their own, so that a resolver that hangs does not block writes to disk: trio's take one of
the forty threads that the whole process shares, and a cancelled look-up keeps it until the system's resolver gives up
as well (10 to 30 s). With forty of them no tape could be written.
"""

import os
import socket
import ssl
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, cast

import trio

from ..config.model import Egress, UpstreamSettings
from ..limits import LOOKUPS_MAX
from .connection import Connection, Exchange, Origin, Outgoing, RefusedError, WireError
from .tls import TlsStream

__all__ = ["DEFAULTS", "Connector", "OpenTcp", "Resolver"]

OpenTcp = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Opens TCP by name: trio.open_tcp_stream, which tries all addresses (RFC 8305), or a test's own."""


DEFAULTS: Final = UpstreamSettings()
_STAGES: Final = {
    "connect": "while resolving the name or connecting",
    "proxy": "while waiting for the egress proxy",
    "tls": "in the TLS handshake",
}
_TUNNEL_FAULTS: Final = {
    "protocol": "sent no HTTP/1.1 response",
    "reset": "reset the connection",
    "stalled": "took nothing of the request",
    "truncated": "closed the connection",
}


class Connector:
    """The settings for opening streams; it holds no stream."""

    def __init__(
        self, context: ssl.SSLContext, settings: UpstreamSettings = DEFAULTS, open_tcp: OpenTcp = trio.open_tcp_stream
    ) -> None:
        self._egress = settings.egress
        self._context = context
        self._timeout_s = settings.connect_timeout_s
        self._open_tcp = open_tcp

    async def connect(self, origin: Origin) -> trio.abc.Stream:
        """Return a stream on which the next byte is the request's; raise RefusedError."""
        egress = self._egress
        first, stage = egress or origin, "connect"
        stream: trio.abc.Stream | None = None
        with trio.move_on_after(self._timeout_s):
            try:
                try:
                    stream = await self._open_tcp(first.host, first.port)
                except (UnicodeError, OSError, RuntimeError) as error:  # no thread for the look-up, say
                    raise _refused(first, error) from error
                if egress is not None and egress.tls:
                    stage = "tls"
                    stream = await self._shake(stream, egress.host)
                # Without TLS to the origin the proxy gets the request itself (RFC 9112 3.2.2): few allow CONNECT there.
                if egress is not None and origin.tls:
                    stage = "proxy"
                    await _tunnel(stream, origin, egress)
                if origin.tls:
                    stage = "tls"
                    stream = await self._shake(stream, origin.host)
            except BaseException:
                if stream is not None:
                    await trio.aclose_forcefully(stream)
                raise
            return stream
        raise RefusedError(
            "timeout", f"no connection to {origin} within {self._timeout_s:g} s: stopped {_STAGES[stage]}"
        )

    async def _shake(self, transport: trio.abc.Stream, host: str) -> trio.abc.Stream:
        stream = TlsStream(transport, self._context, host)
        try:
            await stream.handshake()
        except ssl.SSLCertVerificationError as error:
            raise RefusedError("tls", f"the certificate of {host} is not accepted: {error.verify_message}") from error
        except (ssl.SSLError, trio.BrokenResourceError) as error:
            reason = error.reason if isinstance(error, ssl.SSLError) else "connection reset"
            raise RefusedError("tls", f"no TLS with {host}: {reason}") from error
        return stream


async def _tunnel(stream: trio.abc.Stream, origin: Origin, egress: Egress) -> None:
    """Ask for a tunnel to the origin."""
    exchange, target = Exchange(Connection(origin, stream)), str(origin).encode()
    failed = f"no tunnel to {origin}: the egress proxy"
    headers = ((b"Host", target), *egress.headers)
    try:
        head = await exchange.send(Outgoing(origin, b"CONNECT", target, headers, b""))
    except WireError as fault:
        raise RefusedError("proxy", f"{failed} {_TUNNEL_FAULTS[fault.ending]}") from fault
    if not 200 <= head.status < 300:
        raise RefusedError("proxy", f"{failed} responded with {head.status}")
    if exchange.rest:
        raise RefusedError("proxy", f"{failed} sent data before TLS")


def _refused(origin: Egress | Origin, error: Exception) -> RefusedError:
    """Return what a failed look-up or connect means."""
    if isinstance(error, socket.gaierror | UnicodeError):
        reason = error.strerror if isinstance(error, OSError) else "not a name"
        return RefusedError("dns", f"no address for {origin.host}: {reason}")
    first: BaseException = error
    cause: object = error.__cause__
    if isinstance(cause, BaseExceptionGroup):  # trio's, with one error for each address
        first = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    # trio's own text repeats the address.
    number = first.errno if isinstance(first, OSError) else None
    reason = os.strerror(number) if number else str(first) or type(first).__name__
    return RefusedError("connect", f"no connection to {origin.host}:{origin.port}: {reason}")


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
    ) -> Any:
        """Look up addresses; a cancelled call returns at once, and its thread ends when the system's call does."""
        look_up: Any = socket.getaddrinfo  # mypy and pyright disagree about its type
        return await trio.to_thread.run_sync(
            look_up, host, port, family, type, proto, flags, abandon_on_cancel=True, limiter=self.limiter
        )

    async def getnameinfo(self, sockaddr: tuple[str, int] | tuple[str, int, int, int], flags: int) -> tuple[str, str]:
        """Look up a name."""
        look_up = partial(socket.getnameinfo, sockaddr, flags)
        return await trio.to_thread.run_sync(look_up, abandon_on_cancel=True, limiter=self.limiter)
