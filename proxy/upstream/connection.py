"""Connections to upstreams, and the exchanges on them: one HTTP/1.1 request and its response, read by read.

Nothing that an upstream sends raises before everything that came earlier has been returned. One class parses and reads,
because each layer around a read costs as much as the read.

There is one error for each ending that it leads to. No message contains a header's value or what an upstream sent: both
may be, or echo, a credential.
"""

import re
import socket
import zlib
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from math import inf
from typing import ClassVar, Final, Literal, NamedTuple, Self, cast

import trio

from wiretape.events.core.errors import LocalError, WiretapeError

from ..http1 import TOKEN, Dechunker, Header, MalformedError, format_head, parse_head
from ..limits import (
    BODY_BYTES_MAX,
    DRAIN_BYTES_MAX,
    DRAIN_TIMEOUT_S,
    HEAD_BYTES_MAX,
    HEADERS_MAX,
    INFLATE_FREE_BYTES,
    INFLATE_MEMBERS_MAX,
    INFLATE_RATIO_MAX,
    INFLATE_SLICE_BYTES,
    INFLATE_STEP_BYTES_MAX,
    INFORMATIONAL_MAX,
    READS_A_TURN,
    RECEIVE_BYTES_MAX,
    SEND_BYTES_MAX,
    WRITE_TIMEOUT_S,
)
from .tls import TlsStream

__all__ = [
    "CODINGS",
    "Connection",
    "End",
    "Exchange",
    "Head",
    "Inflater",
    "LimitError",
    "Origin",
    "Outgoing",
    "ProtocolError",
    "Read",
    "RefusedError",
    "ResetError",
    "StalledError",
    "TruncatedError",
    "WireError",
]

_START: Final = b"HTTP/1."
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\x00\n\r\x0b\x0c]*))?")
_LENGTH: Final = re.compile(rb"[0-9]{1,20}")
_METHOD: Final = re.compile(TOKEN)
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")
#: zlib's window sizes: gzip only, and the zlib header for `deflate` (RFC 9110 8.4.1.2).
_WINDOWS: Final = {"gzip": 31, "x-gzip": 31, "deflate": 15}

#: The supported codings.
CODINGS: Final = frozenset(_WINDOWS)


class WireError(WiretapeError):
    """Any failure of an exchange; bytes that came before it were delivered before it."""

    ending: ClassVar[str]
    """The ending of the stream, if this was its last attempt."""


class RefusedError(WireError):
    """A connection that could not be opened; no byte of the request was sent."""

    ending = "refused"

    def __init__(self, cause: Literal["dns", "connect", "proxy", "tls", "timeout"], message: str) -> None:
        super().__init__(message)
        self.cause = cause


class StalledError(WireError):
    """A write deadline that passed without progress."""

    ending = "stalled"


class ResetError(WireError):
    """A reset, by the upstream or something in between."""

    ending = "reset"


class TruncatedError(WireError):
    """An orderly close that came too early: inside the head, a chunked body or a body with a length."""

    ending = "truncated"


class ProtocolError(WireError):
    """A response that is not HTTP/1.1, or whose head is beyond a limit."""

    ending = "protocol"


class LimitError(WireError):
    """A decompression bomb."""

    ending = "limit"


class Origin(NamedTuple):
    """Where a request goes. Connections to one origin are alike."""

    tls: bool
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request; it can be sent again if its body is bytes."""

    origin: Origin
    method: bytes
    target: bytes
    headers: tuple[Header, ...]
    body: bytes | AsyncIterable[bytes]


class Head(NamedTuple):
    """The head of a response; header names are as they came."""

    status: int
    reason: bytes
    headers: tuple[Header, ...]


class Read(NamedTuple):
    """The body bytes of one socket read, and its time on trio's clock."""

    t: float
    data: bytes


class End(Enum):
    """How a body ended that has no fault."""

    FRAMED = "framed"
    """By its length, its last chunk, or because the response has no body."""
    CLOSED = "closed"
    """By the close of the connection, which looks the same as a cut."""


class Connection:
    """A stream to an origin, used by one exchange at a time."""

    def __init__(self, origin: Origin, stream: trio.abc.Stream, *, write_timeout_s: float = WRITE_TIMEOUT_S) -> None:
        self.origin = origin
        self.stream = stream
        self.idle_since = 0.0
        #: Reads and small sends bypass trio's layers, and a turn of the scheduler, where the socket is the kernel's.
        self.raw = _raw_socket(stream)
        self.reads_without_wait = 0
        self._write_timeout_s = write_timeout_s

    @property
    def readable(self) -> bool:
        """Whether something came without a request: nearly always a close."""
        stream = self.stream
        while isinstance(stream, TlsStream):
            if stream.unsolicited:
                return True
            stream = stream.transport
        raw = _raw_socket(stream)
        if raw is None:
            return False
        try:
            raw.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            pass  # as good as a close
        return True

    async def send(self, data: bytes) -> bool:
        """Send all bytes; return False if the peer takes no more: its reason is read, not guessed."""
        if self.raw is not None:
            with suppress(OSError):  # the next send raises it again, unless only the buffer was full
                data = data[self.raw.send(data) :]
        if not data:
            return True
        with trio.move_on_after(self._write_timeout_s):
            try:
                await self.stream.send_all(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return False
            return True
        raise StalledError(f"sending the request to the upstream made no progress for {self._write_timeout_s:g} s")

    async def aclose(self) -> None:
        """Close the stream at once, without waiting; works in a cancelled scope."""
        await trio.aclose_forcefully(self.stream)


class Exchange:
    """One request and its response. It owns its connection until the response has ended or `aclose` is called.

    One task reads it. `feed` parses without I/O: what a read meant is in `head`, `end` and `fault`.
    """

    def __init__(
        self, connection: Connection | None, keep: Callable[[Connection], Awaitable[None]] | None = None
    ) -> None:
        """`keep` takes a connection that can be used again; without it, each is closed."""
        self.head: Head | None = None
        self.end: End | None = None
        """How the body ended, once its last byte was received."""
        self.fault: WireError | None = None
        """What ended it instead; `receive` raises it after everything that came before it."""
        self.started = False
        """The upstream has sent something."""
        self.rest = b""
        """What came after the response."""
        self.sent_at = self.head_t = 0.0
        """When the request began to go out, and when the head was complete."""
        self.repeated = False
        """The request was sent twice: the idle connection that it was sent on first had been closed."""
        self._connection = connection
        self._keep = keep
        self._first: Read | None = None
        self._method = b""
        self._request_left: int | None = 0  # None: chunked
        self._request_sent = False
        self._held = bytearray()
        self._scanned = 0
        self._informational = 0
        self._keep_alive = True
        self._dechunker: Dechunker | None = None
        self._left: int | None = None  # without this and a dechunker the body lasts until the close

    # -- the request --------------------------------------------------------------------------------------------------

    async def send(self, outgoing: Outgoing) -> Head:
        """Send a request until the head of its response has come; the rest of the request is then not sent.

        Raise WireError, or what the body raises; the connection is then closed, as when this is cancelled.
        """
        connection = self._connection
        assert connection is not None, "an exchange sends once"
        self.sent_at, body = trio.current_time(), outgoing.body
        try:
            head = self.request(outgoing)
            if isinstance(body, bytes) and len(body) <= SEND_BYTES_MAX:
                self._request_sent = await connection.send(head + self._framed(body) + self._last())
                read = await self.receive()
            else:
                read = await self._send_and_read(connection, head, body)
        except BaseException:
            await self.aclose()
            raise
        assert read is not None, "a response has a head"
        assert self.head is not None, "a response has a head"
        self.head_t, self._first = read.t, read if read.data else None
        return self.head

    def request(self, outgoing: Outgoing) -> bytes:
        """Return the head of a request; raise LocalError for anything that HTTP/1.1 cannot express."""
        method, target, headers = outgoing.method, outgoing.target, outgoing.headers
        names = [name.lower() for name, _ in headers]
        if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target)) or names.count(b"host") != 1:
            raise LocalError("this request head is not HTTP/1.1: bad method, target or Host")
        self._method = method
        if b"transfer-encoding" in names:
            self._request_left = None
        elif b"content-length" in names:
            self._request_left = int(headers[names.index(b"content-length")][1])
        return format_head(b"%b %b HTTP/1.1" % (method, target), headers)

    async def _send_and_read(
        self, connection: Connection, head: bytes, body: bytes | AsyncIterable[bytes]
    ) -> Read | None:
        reads: list[Read | None] = []
        failures: list[Exception] = []

        async def upload() -> None:
            try:
                self._request_sent = await self._upload(connection, head, body)
            except Exception as error:  # noqa: BLE001 - the body is the caller's; raised below without a group
                failures.append(error)
                nursery.cancel_scope.cancel()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(upload)
            try:
                reads.append(await self.receive())
            except WireError as error:
                failures.append(error)
            nursery.cancel_scope.cancel()
        if reads:
            return reads[0]
        raise failures[0]

    async def _upload(self, connection: Connection, head: bytes, body: bytes | AsyncIterable[bytes]) -> bool:
        """Send head and body; return False if the peer takes no more, and may have answered already."""
        if not await connection.send(head):
            return False
        pieces = _once(body) if isinstance(body, bytes) else aiter(body)
        try:
            async for data in pieces:
                for at in range(0, len(data), SEND_BYTES_MAX):
                    if not await connection.send(self._framed(data[at : at + SEND_BYTES_MAX])):
                        return False
        finally:
            if isinstance(pieces, AsyncGenerator):  # left early, it would wait for the garbage collector
                await cast("AsyncGenerator[bytes]", pieces).aclose()
        return await connection.send(self._last())

    def _framed(self, data: bytes) -> bytes:
        """Return a piece of the request's body as it is sent."""
        if self._request_left is None:
            return b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        self._request_left -= len(data)
        if self._request_left < 0:
            raise LocalError("a request's body is longer than its content-length")
        return data

    def _last(self) -> bytes:
        """Return what ends the request's body."""
        if self._request_left:
            raise LocalError("a request's body is shorter than its content-length")
        return b"0\r\n\r\n" if self._request_left is None else b""

    # -- the response -------------------------------------------------------------------------------------------------

    async def receive(self) -> Read | None:
        """Return the next read of the body, never empty; None after the end.

        Raise WireError after the last bytes before a fault. There is no deadline; a cancelled call has lost nothing.
        """
        if self._first is not None:
            read, self._first = self._first, None
            return read
        headless, connection = self.head is None, self._connection
        while self.end is None and self.fault is None:
            if connection is None:
                raise LocalError("a body was read after it had been closed")
            raw, data = connection.raw, b""
            try:
                if raw is None:
                    data = bytes(await connection.stream.receive_some(RECEIVE_BYTES_MAX))
                else:
                    if connection.reads_without_wait >= READS_A_TURN:  # before the read: a cancelled call loses nothing
                        connection.reads_without_wait = 0
                        await trio.lowlevel.checkpoint()
                    while True:
                        try:
                            data = raw.recv(RECEIVE_BYTES_MAX)
                            break
                        except BlockingIOError:
                            connection.reads_without_wait = 0
                            await trio.lowlevel.wait_readable(raw)
                    connection.reads_without_wait += 1
            except (trio.BrokenResourceError, OSError):
                self.fault = ResetError("the upstream reset the connection")
                break
            t = trio.current_time()
            data = self.feed(data)
            if data or (headless and self.head is not None):
                return Read(t, data)
        await self.aclose()
        if self.fault is not None:
            raise self.fault
        return None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Read:
        read = await self.receive()
        if read is None:
            raise StopAsyncIteration
        return read

    async def drain(self, timeout_s: float = DRAIN_TIMEOUT_S) -> list[Read]:
        """Read the rest, within bounds, so that the connection can be used again; then close it.

        A fault is not raised, only kept in `fault`.
        """
        reads: list[Read] = []
        ended = self._first is None and (self.end is not None or self.fault is not None)
        left_bytes = DRAIN_BYTES_MAX
        try:
            with trio.move_on_after(timeout_s), suppress(WireError):
                while not ended and left_bytes >= 0 and (read := await self.receive()):
                    reads.append(read)
                    left_bytes -= len(read.data)
        finally:
            await self.aclose()
        return reads

    async def aclose(self) -> None:
        """Close the connection, or give it back if the end was reached; at once, also in a cancelled scope."""
        self._first = None
        connection, self._connection = self._connection, None
        if connection is None:
            return
        # Another request may follow if the socket has taken this one, and nothing came after its response.
        reusable = self._request_sent and self.end is End.FRAMED and self._keep_alive and not self.rest
        await (self._keep(connection) if self._keep is not None and reusable else connection.aclose())

    # -- parsing ------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> bytes:
        """Parse one read, empty at the end of the connection; return its body bytes."""
        assert self.end is None, "an exchange was fed after its end"
        assert self.fault is None, "an exchange was fed after its fault"
        if not data and (self.head is None or self._dechunker is not None or self._left):
            self.fault = TruncatedError("the upstream closed the connection before the end of its response")
            return b""
        try:
            if self.head is None:
                self.started = True
                self._held += data
                if not self._parse_heads():
                    return b""
                data = bytes(self._held)
                self._held.clear()
                if not (data or self._left == 0):
                    return b""
            if self._dechunker is not None:
                self._dechunker.feed(data)
        except ProtocolError as fault:
            self.fault = fault.with_traceback(None)  # its frames hold this exchange
            return b""
        except MalformedError as error:
            self.fault = ProtocolError(f"the response is not HTTP/1.1: {error}")
        if self._dechunker is not None:
            if self._dechunker.done:
                self.end, self.rest = End.FRAMED, self._dechunker.rest
            parts = self._dechunker.parts
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if self._left is not None:
            body, self.rest = data[: self._left], data[self._left :]
            self._left -= len(body)
            self.end = None if self._left else End.FRAMED
            return body
        self.end = None if data else End.CLOSED
        return data

    def _parse_heads(self) -> bool:
        """Take 1xx heads and the final one out of what is held; return whether the final one has come."""
        held = self._held
        while held:
            if not held.startswith(_START[: len(held)]):
                raise ProtocolError("the upstream does not speak HTTP/1.1")
            found = _HEAD_END.search(held, max(0, self._scanned - 3))
            if (found.end() if found else len(held)) > HEAD_BYTES_MAX:
                raise ProtocolError(f"the response's head is longer than {HEAD_BYTES_MAX} bytes")
            if found is None:
                self._scanned = len(held)
                return False
            self._scanned = 0
            parsed = parse_head(bytes(held[: found.start()]), lenient=True)
            del held[: found.end()]
            status_line = _STATUS_LINE.fullmatch(parsed[0]) if parsed else None
            if parsed is None or status_line is None:
                raise ProtocolError("the response's head is not HTTP/1.1")
            status, headers = int(status_line[2]), parsed[1]
            if len(headers) > HEADERS_MAX:
                raise ProtocolError(f"the response has more than {HEADERS_MAX} headers")
            if status >= 200:
                self._frame(status, headers, persistent=status_line[1] != b"0")
                self.head = Head(status, status_line[3] or b"", tuple(headers))
                return True
            if status == 101:
                raise ProtocolError("the upstream switched protocols without being asked")
            self._informational += 1
            if self._informational > INFORMATIONAL_MAX:
                raise ProtocolError(f"more than {INFORMATIONAL_MAX} 1xx responses before the final one")
        return False

    def _frame(self, status: int, headers: Sequence[Header], *, persistent: bool) -> None:
        """Decide where the body ends; raise ProtocolError where two readers could disagree."""
        codings: list[bytes] = []
        lengths: set[bytes] = set()
        for name, value in headers:
            match name.lower():
                case b"transfer-encoding":
                    codings.append(value.lower())
                case b"content-length":
                    lengths.update(each.strip() for each in value.split(b","))
                case b"connection":
                    persistent = persistent and b"close" not in [each.strip() for each in value.lower().split(b",")]
                case _:
                    pass
        self._keep_alive = persistent
        if codings and lengths:
            raise ProtocolError("the response has both a content length and a transfer encoding")
        if codings not in ([], [b"chunked"]):
            raise ProtocolError("the response has a transfer encoding other than chunked")
        if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise ProtocolError("the response's content length is not a number")
        if self._method == b"HEAD" or status in (204, 304) or (self._method == b"CONNECT" and status < 300):
            self._left = 0
        elif codings:
            self._dechunker = Dechunker()
        elif lengths:
            self._left = int(lengths.pop())
            if self._left > BODY_BYTES_MAX:
                raise ProtocolError(f"the response's content length is beyond {BODY_BYTES_MAX} bytes")


async def _once(body: bytes) -> AsyncGenerator[bytes]:
    yield body


def _raw_socket(stream: trio.abc.Stream) -> socket.socket | None:
    """Return the standard library's socket under trio's; a contract test pins its name."""
    raw = getattr(stream.socket, "_sock", None) if isinstance(stream, trio.SocketStream) else None
    return raw if isinstance(raw, socket.socket) else None


# -- decompression of requests, and of responses that came compressed although identity was asked for -----------------


class Inflater:
    """A decoder for one body: `feed` it each read, take the output in steps, and `close` it at the end of the body.

    It raises ProtocolError for an unknown coding or damage, LimitError for a bomb, TruncatedError for an early end.
    """

    def __init__(self, coding: str, bytes_max: int | None = None) -> None:
        """With `bytes_max`, as for requests, the output, the members and, beyond 8 MiB, the ratio are bounded."""
        if coding not in _WINDOWS:
            raise ProtocolError("the response has an unsupported content encoding")
        self.coding = coding
        self._inflate = zlib.decompressobj(_WINDOWS[coding])
        self._in = 0
        self._out = 0
        self._bytes_max = inf if bytes_max is None else bytes_max
        self._free_bytes = 0 if bytes_max is None else INFLATE_FREE_BYTES
        self._members_left = inf if bytes_max is None else INFLATE_MEMBERS_MAX

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Decode in steps of at most `INFLATE_STEP_BYTES_MAX`, each when it is taken, so that the loop never stalls."""
        self._in += len(data)
        for at in range(0, len(data), INFLATE_SLICE_BYTES):
            rest = data[at : at + INFLATE_SLICE_BYTES]
            while rest:
                if self._inflate.eof:  # gzip may have several members (RFC 1952 2.2)
                    self._inflate = zlib.decompressobj(_WINDOWS[self.coding])
                    self._members_left -= 1
                try:
                    out = self._inflate.decompress(rest, INFLATE_STEP_BYTES_MAX)
                except zlib.error:
                    raise ProtocolError("the response's compression is damaged") from None
                self._out += len(out)
                if self._members_left <= 0 or self._out > min(
                    self._bytes_max, max(self._free_bytes, self._in * INFLATE_RATIO_MAX)
                ):
                    raise LimitError("the response's compression is a bomb")
                rest = self._inflate.unused_data if self._inflate.eof else self._inflate.unconsumed_tail
                yield out

    def close(self) -> None:
        """Raise TruncatedError if the body ended too early."""
        if self._in and not self._inflate.eof:
            raise TruncatedError("the response's compression ends too early")
