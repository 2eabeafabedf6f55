"""The upstream side: an httpx transport of our own over trio and h11, and the only file here that knows httpx.

It adds nothing to a request but Host and framing, and takes nothing from an answer: no cookies, redirects,
decompression, environment or log. One answer in HTTP/1.1 for one request, and a WireError where there is none.
Law of ownership: a connection belongs to its request until it is idle, so a cancelled request leaves nothing behind
(httpcore's pool lost a slot for ever with each one cancelled while connecting, failures.md F1).
"""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Sequence
from functools import lru_cache
from typing import Final

import httpx
import trio

from wiretape.events.core.errors import LocalError

from ..config.model import UpstreamSettings
from ..http_headers import Header
from ..limits import (
    SEND_BYTES_MAX,
    STALE_CONNECTION_S,
)
from .body import Body
from .connect import Connector, OpenTcp, Origin
from .connection import Connection, Outgoing
from .errors import ResetError, TruncatedError
from .exchange import Head
from .pool import Pool
from .tls import client_context

__all__ = ["UpstreamTransport", "body_of"]

_PORTS: Final = {"http": 80, "https": 443}
_BODY: Final = "wiretape.body"


def body_of(response: httpx.Response) -> Body:
    """The answer's body with times and ending, which httpx's own iterators do not have."""
    body = response.extensions[_BODY]
    assert isinstance(body, Body), "an answer of another transport"
    return body


class UpstreamTransport(httpx.AsyncBaseTransport):
    """For one task or many; each answer must be closed, or read to its end."""

    def __init__(
        self,
        settings: UpstreamSettings | None = None,
        *,
        open_tcp: OpenTcp = trio.open_tcp_stream,
        context: ssl.SSLContext | None = None,
    ) -> None:
        """Reads the trust store, which takes some 30 ms, unless a context is given."""
        settings = settings or UpstreamSettings()
        self._egress = settings.egress
        self._write_timeout_s = settings.write_timeout_s
        self._connector = Connector(
            context or client_context(settings.ca_file),
            egress=settings.egress,
            timeout_s=settings.connect_timeout_s,
            open_tcp=open_tcp,
        )
        self.pool = Pool(idle_max=settings.idle_connections_max, idle_timeout_s=settings.idle_connection_timeout_s)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """The answer once its head is there; raises WireError, or whatever the request's body raised."""
        head, body = await self.exchange(self._outgoing(request))
        extensions = {"http_version": b"HTTP/1.1", "reason_phrase": head.reason, _BODY: body}
        return httpx.Response(head.status, headers=list(head.headers), stream=_Bytes(body), extensions=extensions)

    async def exchange(self, outgoing: Outgoing, *, fresh: bool = False) -> tuple[Head, Body]:
        """The same below httpx, whose request and response cost 0.2 ms; `outgoing` comes from `addressed`."""
        # A connection may have been closed by now. What can be sent only once gets a new one.
        again = isinstance(outgoing.body, bytes) and not fresh
        connection = await self.pool.take(outgoing.origin) if again else None
        if connection is not None:
            answered = await self.answered(connection, outgoing)
            if answered is not None:
                return answered
        repeated = fresh or connection is not None
        stream = await self._connector.connect(outgoing.origin)
        connection = Connection(outgoing.origin, stream, write_timeout_s=self._write_timeout_s)
        head, body = await self._answered(connection, outgoing)
        body.repeated = repeated
        return head, body

    async def begun(self, outgoing: Outgoing) -> Connection | None:
        """A connection that waited, with as much of the request out as goes at once; `answered` is to follow. Waits for
        nothing: None where that is not enough.
        """
        if not isinstance(outgoing.body, bytes) or len(outgoing.body) > SEND_BYTES_MAX or outgoing.origin.tls:
            return None
        connection = self.pool.ready(outgoing.origin)
        if connection is not None:
            try:
                connection.begin(outgoing, outgoing.body)
            except LocalError:
                await connection.aclose()
                raise
        return connection

    async def answered(
        self, connection: Connection, outgoing: Outgoing | None = None, *, keeps: bool = False
    ) -> tuple[Head, Body] | None:
        """Of a connection that waited; None where it was closed meanwhile. Without `outgoing` of the request that has
        begun on it; if that is out, a cancelled call that `keeps` it has lost nothing, and may be followed by another.
        """
        try:
            return await self._answered(connection, outgoing, keeps=keeps)
        except (ResetError, TruncatedError) as fault:
            # One that was closed while it waited says so at once; who works on a request for longer has got it.
            if connection.exchange.begun or trio.current_time() > connection.asked_at + STALE_CONNECTION_S:
                raise
            fault.with_traceback(None)  # its frames hold the connection, which holds the fault
            return None

    async def aclose(self) -> None:
        """Closes what is idle; what is in use is closed by those who use it."""
        await self.pool.aclose()

    async def _answered(
        self, connection: Connection, outgoing: Outgoing | None, *, keeps: bool = False
    ) -> tuple[Head, Body]:
        try:
            first = await (connection.answer() if outgoing is None else connection.send(outgoing))
        except BaseException as error:
            if not (keeps and isinstance(error, trio.Cancelled)):
                await connection.aclose()
            raise
        head = connection.exchange.head
        assert head is not None, "send returns with a head"
        return head, Body(connection, self.pool, first)

    def addressed(
        self, url: httpx.URL, method: bytes, path: bytes, headers: Sequence[Header], body: bytes | AsyncIterable[bytes]
    ) -> Outgoing:
        """A request to where this URL says, with this path; Host and framing are added where they are missing."""
        origin, netloc = _origin_of(url)
        sent = _framed(headers, netloc, body)
        if self._egress is None or origin.tls:
            return Outgoing(origin, method, path, sent, body)
        return Outgoing(origin, method, b"http://" + netloc + path, (*sent, *self._egress.headers), body)

    def _outgoing(self, request: httpx.Request) -> Outgoing:
        if request.method == "CONNECT" or "upgrade" in request.headers:
            raise LocalError("a request that turns the connection into something else is not relayed")
        # httpx.URL rewrites some of what it is given; who needs a path exactly as it came says it in httpx's extension.
        path: bytes = request.extensions.get("target", request.url.raw_path)
        headers = tuple(request.headers.raw)
        return self.addressed(request.url, request.method.encode(), path, headers, _body(request.stream))


@lru_cache(maxsize=256)
def _origin_of(url: httpx.URL) -> tuple[Origin, bytes]:
    if url.scheme not in _PORTS or not url.raw_host:
        raise LocalError("an upstream's URL begins with http:// or https:// and names a host")
    origin = Origin(url.scheme == "https", url.raw_host.decode("ascii"), url.port or _PORTS[url.scheme])
    return origin, url.netloc


def _body(stream: httpx.SyncByteStream | httpx.AsyncByteStream) -> bytes | httpx.AsyncByteStream:
    if isinstance(stream, httpx.ByteStream):
        return b"".join(stream)
    if isinstance(stream, httpx.AsyncByteStream):
        return stream
    raise LocalError("the body of a request is bytes or an async iterable")


def _framed(headers: Sequence[Header], netloc: bytes, body: bytes | AsyncIterable[bytes]) -> tuple[Header, ...]:
    """The caller's, in their order and spelling, with Host and framing where they are missing."""
    names = [name.lower() for name, _ in headers]
    framings = {b"content-length", b"transfer-encoding"}.intersection(names)
    if len(framings) > 1:
        raise LocalError("a request has a length or a transfer encoding, not both")
    host = () if b"host" in names else ((b"Host", netloc),)
    if framings or body == b"":
        return (*host, *headers)
    if isinstance(body, bytes):
        return (*host, *headers, (b"Content-Length", b"%d" % len(body)))
    return (*host, *headers, (b"Transfer-Encoding", b"chunked"))


class _Bytes(httpx.AsyncByteStream):
    """The same body for httpx's own iterators; no generator, so nothing is left to a finaliser."""

    def __init__(self, body: Body) -> None:
        self._body = body

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        return (await self._body.__anext__()).data

    async def aclose(self) -> None:
        await self._body.aclose()
