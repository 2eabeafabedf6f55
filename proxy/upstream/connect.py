"""A stream to an origin: name, TCP, egress proxy and TLS, under one deadline; it is open, or nothing is left of it."""

import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, NoReturn, cast

import h11
import trio

from ..config.model import Egress
from ..limits import CONNECT_TIMEOUT_S, HEAD_BYTES_MAX, RECEIVE_BYTES_MAX
from .errors import RefusalCause, RefusedError
from .exchange import machine
from .tls import TlsStream

__all__ = ["Connector", "OpenTcp", "Origin"]

OpenTcp = Callable[[str, int], Awaitable[trio.abc.Stream]]
"""Opens TCP by name; trio.open_tcp_stream, which tries all addresses (RFC 8305), or what a test puts in its place."""


class Origin(NamedTuple):
    """Whom a request is for. Connections to one origin are alike."""

    tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


_STAGES: Final[dict[RefusalCause, str]] = {
    "connect": "while resolving the name or connecting",
    "proxy": "while waiting for the egress proxy",
    "tls": "in the TLS handshake",
}


class Connector:
    """Opens streams; holds nothing."""

    def __init__(
        self,
        context: ssl.SSLContext,
        *,
        egress: Egress | None = None,
        timeout_s: float = CONNECT_TIMEOUT_S,
        open_tcp: OpenTcp = trio.open_tcp_stream,
    ) -> None:
        self.egress = egress
        self._context = context
        self._timeout_s = timeout_s
        self._open_tcp = open_tcp

    async def connect(self, origin: Origin) -> trio.abc.Stream:
        """A stream on which the next byte is the request's; raises RefusedError."""
        attempt = _Attempt(origin, self._context, self._open_tcp)
        with trio.move_on_after(self._timeout_s):
            return await attempt.run(self.egress)
        stage = _STAGES[attempt.stage]
        raise RefusedError("timeout", f"no connection to {origin} within {self._timeout_s:g} s: stopped {stage}")


class _Attempt:
    """One way to one origin, and how far it came."""

    def __init__(self, origin: Origin, context: ssl.SSLContext, open_tcp: OpenTcp) -> None:
        self.stage: RefusalCause = "connect"
        self._origin = origin
        self._context = context
        self._open_tcp = open_tcp
        self._stream: trio.abc.Stream | None = None

    async def run(self, egress: Egress | None) -> trio.abc.Stream:
        try:
            if egress is None:
                await self._tcp(self._origin.host, self._origin.port)
            else:
                await self._through(egress)
            if self._origin.tls:
                await self._shake(self._origin.host)
        except BaseException:
            if self._stream is not None:
                await trio.aclose_forcefully(self._stream)
            raise
        return self._open

    @property
    def _open(self) -> trio.abc.Stream:
        assert self._stream is not None, "the stages come in order"
        return self._stream

    async def _tcp(self, host: str, port: int) -> None:
        try:
            self._stream = await self._open_tcp(host, port)
        except (socket.gaierror, UnicodeError) as exc:
            reason = exc.strerror if isinstance(exc, OSError) else "not a name"
            raise RefusedError("dns", f"the name {host} is not known: {reason}") from exc
        except OSError as exc:
            raise RefusedError("connect", f"no connection to {host}:{port}: {_reason(exc)}") from exc

    async def _shake(self, host: str) -> None:
        self.stage = "tls"
        stream = self._stream = TlsStream(self._open, self._context, host)
        try:
            await stream.handshake()
        except ssl.SSLCertVerificationError as exc:
            raise RefusedError("tls", f"the certificate of {host} is not accepted: {exc.verify_message}") from exc
        except (ssl.SSLError, trio.BrokenResourceError) as exc:
            reason = exc.reason if isinstance(exc, ssl.SSLError) else "connection reset"
            raise RefusedError("tls", f"no TLS with {host}: {reason}") from exc

    async def _through(self, egress: Egress) -> None:
        await self._tcp(egress.host, egress.port)
        if egress.tls:
            await self._shake(egress.host)
        # Without TLS to the origin it gets the request itself (RFC 9112, 3.2.2); few let CONNECT to such ports.
        if self._origin.tls:
            self.stage = "proxy"
            try:
                await self._tunnel(egress)
            except (trio.BrokenResourceError, h11.RemoteProtocolError) as exc:
                raise RefusedError("proxy", "the egress proxy broke off") from exc

    async def _tunnel(self, egress: Egress) -> None:
        connection, stream, target = machine(), self._open, str(self._origin).encode()
        request = h11.Request(method=b"CONNECT", target=target, headers=[(b"Host", target), *egress.headers])
        await stream.send_all(connection.send(request) + connection.send(h11.EndOfMessage()))
        received_bytes = 0
        while not isinstance(event := connection.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                data = await stream.receive_some(RECEIVE_BYTES_MAX)
                received_bytes += len(data)
                connection.receive_data(bytes(data))
            if received_bytes > HEAD_BYTES_MAX:
                self._refuse("says more than an answer")
        if not 200 <= event.status_code < 300:
            self._refuse(f"answered {event.status_code}")
        if connection.trailing_data != (b"", False):
            self._refuse("sent something into the tunnel")

    def _refuse(self, what: str) -> NoReturn:
        raise RefusedError("proxy", f"no way to {self._origin}: the egress proxy {what}")


def _reason(exc: OSError) -> str:
    """Of the first address that failed: trio puts one error an address into a group."""
    first: BaseException = exc
    cause: object = exc.__cause__
    if isinstance(cause, BaseExceptionGroup):
        first = cast("BaseExceptionGroup[BaseException]", cause).exceptions[0]
    return (first.strerror if isinstance(first, OSError) else None) or type(first).__name__
