"""One request to an upstream and its response in HTTP/1.1, without I/O.

`feed` takes one socket read and returns the body bytes in it. What else the read meant is in `head`, `end` and `fault`;
nothing that an upstream sends raises. Body bytes before a fault are returned by the `feed` that finds it.
"""

import re
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

from wiretape.events.core.errors import LocalError

from ..http1 import TOKEN, Dechunker, MalformedError, chunk, format_head, parse_head
from ..http_headers import Header
from ..limits import HEAD_BYTES_MAX, HEADERS_MAX, INFORMATIONAL_MAX
from .errors import ProtocolError, TruncatedError, WireError

__all__ = ["End", "Exchange", "Head"]

_START: Final = b"HTTP/1."
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([0-9]) ([1-9][0-9]{2})(?: ([^\x00\n\r\x0b\x0c]*))?")
_LENGTH: Final = re.compile(rb"[0-9]{1,20}")
_METHOD: Final = re.compile(TOKEN)
_TARGET: Final = re.compile(rb"[\x21-\x7e]+")


class End(Enum):
    """How a body ended that has no fault."""

    FRAMED = "framed"
    """By its length, its last chunk, or because the response has no body."""
    CLOSED = "closed"
    """By the close of the connection, which looks the same as a cut."""


class Head(NamedTuple):
    """The head of a response; header names are as they came."""

    status: int
    reason: bytes
    headers: tuple[Header, ...]


class Exchange:
    """The state from the first byte of a request to the last of its response."""

    def __init__(self) -> None:
        self.head: Head | None = None
        self.end: End | None = None
        self.fault: WireError | None = None
        self.started = False
        """The upstream has sent something."""
        self.rest = b""
        """What came after the response."""
        self._method = b""
        self._request_left: int | None = 0  # None: chunked
        self._request_sent = False
        self._held = bytearray()
        self._scanned = 0
        self._informational = 0
        self._keep_alive = True
        self._dechunker: Dechunker | None = None
        self._left: int | None = None  # without this and a dechunker the body lasts until the close

    @property
    def reusable(self) -> bool:
        """Whether another request may follow on the connection."""
        return self._request_sent and self.end is End.FRAMED and self._keep_alive and not self.rest

    # The request

    def request(self, method: bytes, target: bytes, headers: Sequence[Header]) -> bytes:
        """Return the head; raise LocalError for anything that HTTP/1.1 cannot express."""
        names = [name.lower() for name, _ in headers]
        if not (_METHOD.fullmatch(method) and _TARGET.fullmatch(target)) or names.count(b"host") != 1:
            raise LocalError("this request head is not HTTP/1.1: bad method, target or Host")
        self._method = method
        if b"transfer-encoding" in names:
            self._request_left = None
        elif b"content-length" in names:
            self._request_left = int(headers[names.index(b"content-length")][1])
        return format_head(b"%b %b HTTP/1.1" % (method, target), headers)

    def data(self, data: bytes) -> bytes:
        """Return a piece of the request's body as it is sent."""
        if self._request_left is None:
            return chunk(data) if data else b""
        self._request_left -= len(data)
        if self._request_left < 0:
            raise LocalError("a request's body is longer than its content-length")
        return data

    def finish(self) -> bytes:
        """Return what ends the request's body."""
        if self._request_left:
            raise LocalError("a request's body is shorter than its content-length")
        self._request_sent = True
        return b"0\r\n\r\n" if self._request_left is None else b""

    # The response

    def fail(self, fault: WireError) -> None:
        """Note that the connection broke."""
        self.fault = self.fault or fault

    def feed(self, data: bytes) -> bytes:
        """Parse one read, empty at the end of the connection; return its body bytes."""
        assert self.end is None, "an exchange was fed after its end"
        assert self.fault is None, "an exchange was fed after its fault"
        try:
            if self.head is not None:
                return self._body(data)
            if not data:
                raise _truncated()
            self.started = True
            self._held += data
            if not self._parse_heads():
                return b""
            data = bytes(self._held)
            self._held.clear()
            return self._body(data) if data or self._left == 0 else b""
        except (ProtocolError, TruncatedError) as fault:
            self.fault = fault.with_traceback(None)  # its frames hold this exchange
            return b""

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

    def _body(self, data: bytes) -> bytes:
        if not data and (self._dechunker is not None or self._left):
            raise _truncated()
        if self._dechunker is not None:
            try:
                self._dechunker.feed(data)
            except MalformedError as error:
                self.fault = ProtocolError(f"the response is not HTTP/1.1: {error}")
            else:
                self.end = End.FRAMED if self._dechunker.done else None
                self.rest = self._dechunker.rest
            parts = self._dechunker.parts
            return parts[0] if len(parts) == 1 else b"".join(parts)
        if self._left is not None:
            body, self.rest = data[: self._left], data[self._left :]
            self._left -= len(body)
            self.end = None if self._left else End.FRAMED
            return body
        self.end = None if data else End.CLOSED
        return data


def _truncated() -> TruncatedError:
    return TruncatedError("the upstream closed the connection before the end of its response")
