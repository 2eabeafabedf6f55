"""A stream to an origin: name, TCP, egress proxy and TLS, under one deadline."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, cast

import trio

from ..config.model import Egress
from ..limits import CONNECT_TIMEOUT_S, RECEIVE_BYTES_MAX
from .errors import ProtocolError, RefusedError
from .exchange import Exchange
from .tls import TlsStream

__all__ = ["Connector", "OpenTcp", "Origin"]

OpenTcp = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Opens TCP by name: trio.open_tcp_stream, which tries all addresses (RFC 8305), or a test's own."""


class Origin(NamedTuple):
    """Where a request goes. Connections to one origin are alike."""

    tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_STAGES: Final = {
    "connect": "while resolving the name or connecting",
    "proxy": "while waiting for the egress proxy",
    "tls": "in the TLS handshake",
}


class Connector:
    """The settings for opening streams; it holds no stream."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        egress: Egress | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        open_tcp: OpenTcp = trio.open_tcp_stream,
    ) -> None:
        self._egress = egress
        self._context = context
        self._timeout_s = timeout_s
        self._open_tcp = open_tcp

    async def connect(self, origin: Origin) -> trio.abc.Stream:
        """Return a stream on which the next byte is the request's; raise RefusedError."""
        egress = self._egress
        first, stage = egress or origin, "connect"
        stream: trio.abc.Stream | None = None
        with trio.move_on_after(self._timeout_s):
            try:
                stream = await _connected(self._open_tcp, first.host, first.port)
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
    exchange, target = Exchange(), str(origin).encode()
    failed = f"no tunnel to {origin}: the egress proxy"
    try:
        await stream.send_all(exchange.request(b"CONNECT", target, [(b"Host", target), *egress.headers]))
        while exchange.head is None and exchange.fault is None:
            exchange.feed(bytes(await stream.receive_some(RECEIVE_BYTES_MAX)))
    except trio.BrokenResourceError as error:
        raise RefusedError("proxy", f"{failed} reset the connection") from error
    if exchange.head is None:
        what = "sent no HTTP/1.1 response" if isinstance(exchange.fault, ProtocolError) else "closed the connection"
        raise RefusedError("proxy", f"{failed} {what}")
    if not 200 <= exchange.head.status < 300:
        raise RefusedError("proxy", f"{failed} responded with {exchange.head.status}")
    if exchange.rest:
        raise RefusedError("proxy", f"{failed} sent data before TLS")


async def _connected(open_tcp: OpenTcp, host: str, port: int) -> trio.abc.Stream:
    try:
        return await open_tcp(host, port)
    except (socket.gaierror, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a name"
        raise RefusedError("dns", f"the name {host} is not known: {reason}") from error
    except OSError as error:
        first: BaseException = error
        cause: object = error.__cause__
        if isinstance(cause, BaseExceptionGroup):  # trio's, with one error for each address
            first = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
        reason = (first.strerror if isinstance(first, OSError) else None) or type(first).__name__
        raise RefusedError("connect", f"no connection to {host}:{port}: {reason}") from error
