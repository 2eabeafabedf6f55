"""The transport over trio: one HTTP/1.1 response for one request, or a WireError.

It adds nothing to a request but Host and framing, and interprets nothing of a response: no cookies, redirects,
decompression, environment or log. A connection belongs to its request until it is idle, so a cancelled request leaves
nothing open (httpcore's pool loses a slot for ever with each request that is cancelled while connecting).
"""

import ssl
from collections import deque
from collections.abc import AsyncIterable, Sequence
from functools import lru_cache
from typing import Final

import httpx
import trio

from wiretape.events.core.errors import LocalError

from ..config.model import UpstreamSettings
from ..http1 import Header
from ..limits import IDLE_CONNECTION_TIMEOUT_S, IDLE_CONNECTIONS_MAX, STALE_CONNECTION_S
from .connect import DEFAULTS, Connector, OpenTcp
from .connection import Connection, Exchange, Head, Origin, Outgoing, ResetError, TruncatedError
from .tls import client_context

__all__ = ["Pool", "UpstreamTransport"]

_PORTS: Final = {"http": 80, "https": 443}


class Pool:
    """The owner of all idle connections: a stack for each origin.

    The newest is taken first, so the oldest is always at the bottom: every operation costs the same however many wait.
    """

    def __init__(
        self, *, idle_max: int = IDLE_CONNECTIONS_MAX, idle_timeout_s: float = IDLE_CONNECTION_TIMEOUT_S
    ) -> None:
        self._idle: dict[Origin, deque[Connection]] = {}
        self._idle_max = idle_max
        self._idle_timeout_s = idle_timeout_s

    def __len__(self) -> int:
        return sum(map(len, self._idle.values()))

    async def take(self, origin: Origin) -> Connection | None:
        """Return the connection that was used last, if it can still be used."""
        since = trio.current_time() - self._idle_timeout_s
        while stack := self._idle.get(origin):
            connection = stack.pop()
            if not stack:
                del self._idle[origin]
            if connection.idle_since > since and not connection.readable:
                return connection
            await connection.aclose()
        return None

    async def give(self, connection: Connection) -> None:
        """Keep a reusable connection for the next request, or close it."""
        if self._idle_max < 1:
            await connection.aclose()
            return
        connection.idle_since = trio.current_time()
        stack = self._idle.setdefault(connection.origin, deque())
        stack.append(connection)
        if len(stack) > self._idle_max:
            await stack.popleft().aclose()

    async def expire(self) -> None:
        """Close what has been idle for too long; the caller does so now and then."""
        since = trio.current_time() - self._idle_timeout_s
        for origin, stack in list(self._idle.items()):
            while stack and stack[0].idle_since <= since:
                connection = stack.popleft()
                if not stack:
                    del self._idle[origin]
                await connection.aclose()

    async def aclose(self) -> None:
        """Close all of them, and each that is given back later."""
        self._idle_max, self._idle_timeout_s = 0, 0.0
        await self.expire()


class UpstreamTransport:
    """A transport for one task or many. Each response must be closed, or read to its end."""

    def __init__(
        self,
        settings: UpstreamSettings | None = None,
        *,
        open_tcp: OpenTcp = trio.open_tcp_stream,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Read the trust store, which takes some 30 ms, unless a context is given."""
        settings = settings or DEFAULTS
        self._egress = settings.egress
        self._write_timeout_s = settings.write_timeout_s
        self._connector = Connector(context or client_context(settings.ca_file), settings, open_tcp)
        self.pool = Pool()

    def addressed(
        self, url: httpx.URL, method: bytes, path: bytes, headers: Sequence[Header], body: bytes | AsyncIterable[bytes]
    ) -> Outgoing:
        """Return a request to this URL's origin with this path; Host and framing are added where they are missing."""
        origin, netloc = _origin_of(url)
        names = [name.lower() for name, _ in headers]
        framings = {b"content-length", b"transfer-encoding"}.intersection(names)
        if len(framings) > 1:
            raise LocalError("a request has a content length or a transfer encoding, not both")
        sent = list(headers) if b"host" in names else [(b"Host", netloc), *headers]
        if not framings and body != b"":
            length = (b"Content-Length", b"%d" % len(body)) if isinstance(body, bytes) else None
            sent.append(length or (b"Transfer-Encoding", b"chunked"))
        if self._egress is not None and not origin.tls:
            path = b"http://" + netloc + path
            sent += self._egress.headers
        return Outgoing(origin, method, path, tuple(sent), body)

    async def exchange(self, outgoing: Outgoing, *, once: bool = False) -> tuple[Head, Exchange]:
        """Send a request from `addressed`, and return once the head of its response has come."""
        # An idle connection may have been closed by now, so what may or can be sent only `once` gets a new one.
        idle = None if once or not isinstance(outgoing.body, bytes) else await self.pool.take(outgoing.origin)
        if idle is not None:
            exchange = Exchange(idle, self.pool.give)
            try:
                return await exchange.send(outgoing), exchange
            except (ResetError, TruncatedError) as fault:
                # A close that was under way is seen at once; an upstream that took longer had the request.
                if exchange.started or trio.current_time() > exchange.sent_at + STALE_CONNECTION_S:
                    raise
                fault.with_traceback(None)  # its frames hold the exchange, which holds the fault
        stream = await self._connector.connect(outgoing.origin)
        connection = Connection(outgoing.origin, stream, write_timeout_s=self._write_timeout_s)
        exchange = Exchange(connection, self.pool.give)
        exchange.repeated = idle is not None
        return await exchange.send(outgoing), exchange

    async def aclose(self) -> None:
        """Close the idle connections; the others are closed by their owners."""
        await self.pool.aclose()


@lru_cache(maxsize=256)
def _origin_of(url: httpx.URL) -> tuple[Origin, bytes]:
    if url.scheme not in _PORTS or not url.raw_host:
        raise LocalError("an upstream's URL begins with http:// or https:// and has a host")
    origin = Origin(url.scheme == "https", url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
    return origin, url.netloc
