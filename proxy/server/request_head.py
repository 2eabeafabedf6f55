"""A strict parser for request heads: what RFC 9112 does not allow is refused before any app sees it.

Servers differ in how they read bare line feeds, folded headers, or a length together with a transfer encoding, which is
how requests are smuggled past a proxy.
"""

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from wiretape.events.core.json_text import dumps

from ..http1 import PHRASES, TOKEN, Headers, format_head, parse_head
from ..limits import HEAD_BYTES_MAX, HEADERS_MAX

__all__ = ["HeadReader", "Refusal", "RequestHead", "refusal_bytes"]

_FIRST_LINE: Final = re.compile(rb"(" + TOKEN + rb") ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
#: No method begins like this: an empty line does with \\r, TLS with \\x16.
_FOREIGN: Final = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z\r]")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_HOST: Final = re.compile(rb"(?:[0-9A-Za-z._\-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")
#: Allowed once: two readers might take different ones.
_ONCE: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"expect", b"host", b"transfer-encoding", b"upgrade"}
)


class Refusal(NamedTuple):
    """An error response that ends the connection."""

    status: int
    message: str


@dataclass(frozen=True, slots=True)
class RequestHead:
    """A request head that passed; header names are in lower case."""

    method: str
    target: bytes
    http_version: str
    headers: Headers
    length: int | None
    """Of the body; None if it is chunked."""
    expects_continue: bool
    keep_alive: bool
    rest: bytes
    """What was received after the head."""


class HeadReader:
    """A buffer for one request head at a time: `feed` it until it returns something."""

    def __init__(self) -> None:
        self.held_bytes = 0
        """What is kept of an incomplete head."""
        self._data = bytearray()
        self._scanned = 0

    def feed(self, data: bytes) -> RequestHead | Refusal | None:
        """Return the head, why it is refused, or None while it is incomplete."""
        held = self._data
        held += data
        while held.startswith(b"\r\n"):  # RFC 9112 2.2: empty lines before a request are skipped
            del held[:2]
            self._scanned = 0
        end = held.find(b"\r\n\r\n", max(0, self._scanned - 3))
        to = len(held) if end < 0 else end
        if held.count(b"\n", self._scanned, to) > held.count(b"\r\n", max(0, self._scanned - 1), to):
            return Refusal(400, "A line of the request head ends without CR.")
        self._scanned = len(held)
        if (len(held) >= HEAD_BYTES_MAX) if end < 0 else (end + 4 > HEAD_BYTES_MAX):
            return Refusal(431, f"The request head is longer than {HEAD_BYTES_MAX} bytes.")
        if end < 0:
            if _FOREIGN.match(held):
                return Refusal(400, "This is not HTTP. The port does not use TLS.")
            self.held_bytes = len(held)
            return None
        head, rest = bytes(held[:end]), bytes(held[end + 4 :])
        held.clear()
        self._scanned = 0
        self.held_bytes = 0
        return self._parse(head, rest)

    def _parse(self, block: bytes, rest: bytes) -> RequestHead | Refusal:
        parsed = parse_head(block)
        first = _FIRST_LINE.fullmatch(block.partition(b"\r\n")[0])
        if block.count(b"\r\n") > HEADERS_MAX:
            return Refusal(431, f"The request has more than {HEADERS_MAX} headers.")
        if first is None:
            return Refusal(400, "The request line is not HTTP/1.1.")
        method, target, major, minor = first.groups()
        if major != b"1":
            return Refusal(505, "Only HTTP/1.1 and HTTP/1.0 are supported.")
        if method == b"CONNECT":
            return Refusal(405, "CONNECT is not supported: this is not a forward proxy.")
        if not target.startswith(b"/"):
            return Refusal(400, "The request target is not a path.")
        if parsed is None:
            return Refusal(400, "A header is folded, has no name or contains a control character.")
        headers, single, old = Headers(parsed[1]), dict(parsed[1]), minor == b"0"
        refusal = _headers_refusal(headers, single, old=old)
        if refusal is not None:
            return refusal
        options = b",".join(headers.all(b"connection")).lower().split(b",")
        return RequestHead(
            method=method.decode("ascii"),
            target=target,
            http_version="1.0" if old else "1.1",
            headers=headers,
            length=None if b"transfer-encoding" in single else int(single.get(b"content-length", b"0")),
            expects_continue=b"expect" in single and not old,
            keep_alive=not old and b"close" not in map(bytes.strip, options),
            rest=rest,
        )


def _headers_refusal(headers: Headers, single: dict[bytes, bytes], *, old: bool) -> Refusal | None:
    for name in headers.repeated(_ONCE):
        return Refusal(400, f"The header {name.decode('ascii')} is given twice.")
    length, coding = single.get(b"content-length"), single.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            return Refusal(400, "The request has both a content length and a transfer encoding.")
        if old:
            return Refusal(400, "HTTP/1.0 has no transfer encodings.")
        if coding.lower() != b"chunked":
            return Refusal(501, "The only supported transfer encoding is chunked.")
    if length is not None and not _LENGTH.fullmatch(length):
        return Refusal(400, "The header content-length is not a number, or it is beyond all limits.")
    if b"host" not in single and not old:
        return Refusal(400, "The header host is missing.")
    if not _HOST.fullmatch(single.get(b"host", b"")):
        return Refusal(400, "The header host is not the name of a host.")
    if single.get(b"expect", b"100-continue").lower() != b"100-continue":
        return Refusal(417, "The only supported expectation is 100-continue.")
    # Java's HttpClient offers h2c with every request; it is served HTTP/1.1.
    if single.get(b"upgrade", b"").lower() not in (b"", b"h2c"):
        return Refusal(501, "Upgrades are not supported.")
    return None


def refusal_bytes(refusal: Refusal) -> bytes:
    """Return the whole response, an error object as OpenAI clients read it."""
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    error = {"message": refusal.message, "type": kind, "param": None, "code": f"http_{refusal.status}"}
    body = dumps({"error": error})
    headers = (
        (b"content-type", b"application/json"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        *(((b"retry-after", b"1"),) if refusal.status == 503 else ()),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    )
    return format_head(b"HTTP/1.1 %d %b" % (refusal.status, PHRASES[refusal.status]), headers) + body
