"""One request and its answer in HTTP/1.1, without any I/O: h11 under our limits.

`feed` takes what one socket read gave and returns the body bytes in it, joined. What else it meant stands in `head`,
`end` and `fault`; upstream data never raises. Bytes before a fault are returned by the `feed` that finds it.
"""

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final, NamedTuple

import h11

from wiretape.events.core.errors import LocalError

from ..http_headers import Header
from ..limits import HEAD_BYTES_MAX, HEADERS_MAX, INFORMATIONAL_MAX
from ..server.plain import read_answer, request_head
from .chunked import Dechunker
from .errors import ProtocolError, TruncatedError, WireError

__all__ = ["End", "Exchange", "Head", "machine"]


#: How an answer in a version that we speak begins.
_START: Final = b"HTTP/1."

#: What h11 must know of a request in order to read its answer: its method, and that nothing about it is odd.
_SKELETONS: Final = {
    method: h11.Request(method=method, target=b"/", headers=[(b"host", b"x")])
    for method in (b"DELETE", b"GET", b"HEAD", b"PATCH", b"POST", b"PUT")
}
_END: Final = h11.EndOfMessage()

#: Where h11 begins to quote: from there on a message holds what the upstream sent.
_QUOTED: Final = re.compile(r":? \(?(?:b['\"]|bytearray)")


class End(Enum):
    """How the body ended, where nothing went wrong."""

    FRAMED = "framed"
    """By its length, its last chunk, or because this answer has none."""
    CLOSED = "closed"
    """By the close of the connection, which no one can tell from a cut (failures.md F5)."""


class Head(NamedTuple):
    """The answer's head; header names as they came, trailers never join them."""

    status: int
    reason: bytes
    headers: tuple[Header, ...]


def machine() -> h11.Connection:
    """The state of a connection; it serves one exchange after the other."""
    return h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_BYTES_MAX)


class Exchange:
    """From the first byte of a request to the last of its answer."""

    def __init__(self, connection: h11.Connection) -> None:
        if connection.our_state is not h11.IDLE:
            connection.start_next_cycle()
        self._h11 = connection
        self.head: Head | None = None
        self.end: End | None = None
        self.fault: WireError | None = None
        self._start = b""
        self._informational = 0
        self._head_bytes = 0
        self._dechunker: Dechunker | None = None
        self._bodiless = False
        #: A request that h11 has not been told of, and need not be while its answer is plain.
        self._untold: h11.Request | None = None

    @property
    def begun(self) -> bool:
        """Whether the upstream has said anything."""
        return bool(self._start)

    @property
    def reusable(self) -> bool:
        """Whether another exchange may follow: both sides are done, stay, and nothing lies behind the answer."""
        if self.fault is not None or (self._untold is None and self._h11.our_state is not h11.DONE):
            return False  # MUST_CLOSE, where the answer said so
        if self._dechunker is not None:
            return self._dechunker.done and not self._dechunker.behind
        return self._h11.their_state is h11.DONE and self._h11.trailing_data == (b"", False)

    def next(self) -> "Exchange":
        """The one that follows on this connection; h11 has not seen the end of a body that we took apart ourselves."""
        assert self.reusable, "nothing may follow"
        seen = self._dechunker is None or self._untold is not None
        return Exchange(self._h11 if seen else machine())

    def request(self, method: bytes, target: bytes, headers: Iterable[Header]) -> bytes:
        """The request's head; raises LocalError for what HTTP/1.1 cannot say, such as a line end inside a value."""
        self._bodiless = method == b"HEAD"
        try:
            sent = self._h11.send(h11.Request(method=method, target=target, headers=list(headers)))
        except h11.LocalProtocolError:
            # Not `from`: h11 quotes the value, and that may be a key.
            raise LocalError("this request's head is not HTTP/1.1: a forbidden character or lengths at odds") from None
        return sent

    def whole(self, method: bytes, target: bytes, headers: Sequence[Header], body: bytes) -> bytes:
        """The same with a body that is there, and its end."""
        skeleton = _SKELETONS.get(method)
        head = request_head(method, target, headers, len(body)) if skeleton is not None else None
        if head is None or skeleton is None:
            return self.request(method, target, headers) + self.data(body) + self.finish()
        self._bodiless = method == b"HEAD"
        self._untold = skeleton
        return head + body

    def _tell(self, request: h11.Request) -> None:
        self._untold = None
        self._h11.send(request)
        self._h11.send(_END)

    def data(self, data: bytes) -> bytes:
        """A piece of the request's body, framed."""
        return self._send(h11.Data(data=data))

    def finish(self) -> bytes:
        """The end of the request's body, framed."""
        return self._send(h11.EndOfMessage())

    def _send(self, event: h11.Data | h11.EndOfMessage) -> bytes:
        try:
            return self._h11.send(event)
        except h11.LocalProtocolError as exc:
            raise LocalError(f"a request's body is not what its head announced: {exc}") from exc

    def fail(self, fault: WireError) -> None:
        """The connection broke."""
        self.fault = self.fault or fault

    def feed(self, data: bytes | bytearray) -> bytes:
        """What one read gave, empty at the end of the connection."""
        assert self.end is None, "an exchange was fed after its end"
        assert self.fault is None, "an exchange was fed after its fault"
        if self._dechunker is not None:
            return self._unchunked(self._dechunker, bytes(data))
        if len(self._start) < len(_START):
            self._start += data[: len(_START) - len(self._start)]
            if not _START.startswith(self._start):
                self.fault = ProtocolError("the upstream does not speak HTTP/1.1")
                return b""
        if self._untold is not None:
            read = None if self._bodiless else read_answer(bytes(data))
            if read is not None:
                self.head = Head(read.status, read.reason, read.headers)
                self._dechunker = Dechunker()
                return self._unchunked(self._dechunker, bytes(data[read.end :])) if len(data) > read.end else b""
            self._tell(self._untold)
        parts: list[bytes | bytearray] = []
        self._head_bytes += len(data)
        self._h11.receive_data(bytes(data))  # no copy where it is bytes
        try:
            while self.end is None:
                event = self._h11.next_event()
                if isinstance(event, h11.Data):
                    parts.append(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    self.end = End.FRAMED if data else End.CLOSED
                elif isinstance(event, h11.Response):
                    self._dechunker = self._final(event)
                    if self._dechunker is not None:
                        behind = self._h11.trailing_data[0]
                        return self._unchunked(self._dechunker, behind) if behind else b""
                elif isinstance(event, h11.InformationalResponse):
                    self._provisional(event)
                else:
                    break  # more is needed
        except h11.RemoteProtocolError as exc:
            exc.with_traceback(None)  # h11 raises it from a method of its own: it would hold itself
            self.fault = _translated(exc, at_close=not data)
        except ProtocolError as exc:
            self.fault = exc
        return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)

    def _unchunked(self, dechunker: Dechunker, data: bytes) -> bytes:
        if not data:
            self.fault = TruncatedError("the upstream closed the connection before the end of its answer")
            return b""
        try:
            dechunker.feed(data)
        except ProtocolError as exc:
            self.fault = exc
        if dechunker.done and self.fault is None:
            self.end = End.FRAMED
        parts = dechunker.parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _block(self, event: h11.Response | h11.InformationalResponse) -> None:
        """Holds the limits of one header block."""
        behind = len(self._h11.trailing_data[0])
        if not event.http_version.startswith(b"1."):
            raise ProtocolError("the upstream does not speak HTTP/1.1")
        if self._head_bytes - behind > HEAD_BYTES_MAX:
            raise ProtocolError(f"the answer's header block is longer than {HEAD_BYTES_MAX} bytes")
        if len(event.headers) > HEADERS_MAX:
            raise ProtocolError(f"the answer has more than {HEADERS_MAX} headers")
        self._head_bytes = behind

    def _provisional(self, event: h11.InformationalResponse) -> None:
        self._block(event)
        self._informational += 1
        if event.status_code == 101:
            raise ProtocolError("the upstream switched protocols, which nobody asked for")
        if self._informational > INFORMATIONAL_MAX:
            raise ProtocolError(f"more than {INFORMATIONAL_MAX} 1xx answers before the real one")

    def _final(self, event: h11.Response) -> Dechunker | None:
        self._block(event)
        names = {name for name, _ in event.headers}
        if {b"transfer-encoding", b"content-length"} <= names:
            # Two readers may disagree about where it ends, so nothing of it can be believed.
            raise ProtocolError("the answer has both a length and a transfer encoding")
        self.head = Head(event.status_code, bytes(event.reason), tuple(event.headers.raw_items()))
        has_body = not self._bodiless and event.status_code not in (204, 304)
        return Dechunker() if has_body and b"transfer-encoding" in names else None


def _translated(exc: h11.RemoteProtocolError, *, at_close: bool) -> WireError:
    """The one border where h11's word for a fault becomes ours."""
    if at_close:
        return TruncatedError("the upstream closed the connection before the end of its answer")
    return ProtocolError(f"the answer is not HTTP/1.1: {_QUOTED.split(str(exc), maxsplit=1)[0]}")
