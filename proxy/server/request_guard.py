"""What is no request for us is refused from its raw bytes, before h11 or an app can read it in another way (F11)

h11 reads bare line feeds, folded headers and a length beside a transfer encoding in its own way, and whatever stands
before or behind us may read them in another: that is how a request is smuggled. So a head must be exactly what
RFC 9112 says, and the rest is refused, whoever sends it.
"""

import re
from http import HTTPStatus
from typing import Final, Literal, NamedTuple

from ..limits import HEAD_BYTES_MAX, HEADERS_MAX
from ..relay.http_responses import error

__all__ = ["Asked", "Guard", "Refusal", "refusal_bytes"]


class Asked(NamedTuple):
    """A head that was let through, as h11 would read it."""

    method: bytes
    target: bytes
    #: HTTP/1.0.
    old: bool
    #: In lower case, and without white space around the values.
    headers: list[tuple[bytes, bytes]]
    #: Of these, those that stand once at most.
    single: dict[bytes, bytes]
    #: Where the body begins.
    end: int


class Refusal(NamedTuple):
    """An answer, and then the end of the connection."""

    status: int
    message: str


_LINE: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([\x21-\x7e]+) HTTP/([0-9])\.([0-9])")
_HEADER: Final = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([^\x00-\x08\x0a-\x1f\x7f]*)")
#: No method begins like this: an empty line does with \\r, TLS with \\x16.
_FOREIGN: Final = re.compile(rb"[^!#$%&'*+\-.^_`|~0-9A-Za-z\r]")
_BARE: Final = re.compile(rb"(?<!\r)\n")
_LENGTH: Final = re.compile(rb"[0-9]{1,18}")
_HOST: Final = re.compile(rb"(?:[0-9A-Za-z._\-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{0,5})?")

#: Of each of these one at most: two readers may take different ones.
_ONCE: Final = frozenset(
    {b"authorization", b"content-length", b"content-type", b"expect", b"host", b"transfer-encoding", b"upgrade"}
)
_HINT: Final = "; the connection ends here"


class Guard:
    """Holds the bytes of one head until it is whole and clean: `add` until it says something."""

    __slots__ = ("_h2c_offers", "_head", "_scanned", "asked")

    def __init__(self, h2c_offers: Literal["refused", "ignored"] = "refused") -> None:
        #: What the last head said that was whole and clean.
        self.asked: Asked | None = None
        self._h2c_offers = h2c_offers
        self._head = bytearray()
        self._scanned = 0

    @property
    def begun(self) -> bool:
        """Whether a part of a head is held."""
        return bool(self._head)

    def add(self, data: bytes | bytearray) -> bytes | Refusal | None:
        """The whole head with what came behind it, why it is refused, or None while more is needed."""
        head = self._head
        head += data
        while head.startswith(b"\r\n"):  # RFC 9112 2.2: empty lines before a request are skipped
            del head[:2]
            self._scanned = 0
        end = head.find(b"\r\n\r\n", max(0, self._scanned - 3))
        scan_to = len(head) if end < 0 else end
        if _BARE.search(head, max(0, self._scanned - 1), scan_to):
            return Refusal(400, "a line of the request's head ends without CR" + _HINT)
        self._scanned = len(head)
        if (len(head) >= HEAD_BYTES_MAX) if end < 0 else (end + 4 > HEAD_BYTES_MAX):
            return Refusal(431, f"the request's head is longer than {HEAD_BYTES_MAX} bytes" + _HINT)
        if end < 0:
            if _FOREIGN.match(head):
                return Refusal(400, "this is not HTTP; TLS is not spoken on a plain port" + _HINT)
            return None
        refused = self._refusal(bytes(head[:end]))
        if refused is not None:
            return refused
        whole = bytes(head)
        head.clear()
        self._scanned = 0
        return whole

    def _refusal(self, head: bytes) -> Refusal | None:
        line, *lines = head.split(b"\r\n")
        if len(lines) > HEADERS_MAX:
            return Refusal(431, f"the request has more than {HEADERS_MAX} headers" + _HINT)
        parts = _LINE.fullmatch(line)
        if parts is None:
            return Refusal(400, "the request line is not HTTP/1.1" + _HINT)
        method, target, major, _ = parts.groups()
        if major != b"1":
            return Refusal(505, "only HTTP/1.1 and HTTP/1.0 are spoken here" + _HINT)
        if method == b"CONNECT":
            return Refusal(405, "this is no proxy for CONNECT" + _HINT)
        if not target.startswith(b"/"):
            return Refusal(400, "the request target is not a path" + _HINT)
        found: dict[bytes, bytes] = {}
        headers: list[tuple[bytes, bytes]] = []
        for each in lines:
            header = _HEADER.fullmatch(each)
            if header is None:
                return Refusal(400, "a header is folded, has no name or holds a control character" + _HINT)
            name, value = header[1].lower(), header[2].rstrip(b" \t")
            headers.append((name, value))
            if name in _ONCE:
                if name in found:
                    return Refusal(400, f"the header {name.decode('ascii')} stands twice" + _HINT)
                found[name] = value
        old = line.endswith(b"1.0")
        self.asked = Asked(method, target, old, headers, found, len(head) + 4)
        return _framing(found, old) or self._meaning(found)

    def _meaning(self, found: dict[bytes, bytes]) -> Refusal | None:
        if not _HOST.fullmatch(found.get(b"host", b"")):
            return Refusal(400, "the header host is not the name of a host" + _HINT)
        if found.get(b"expect", b"100-continue").lower() != b"100-continue":
            return Refusal(417, "the only expectation that is known here is 100-continue" + _HINT)
        upgrade = found.get(b"upgrade", b"").lower()
        if upgrade and not (upgrade == b"h2c" and self._h2c_offers == "ignored"):
            return Refusal(501, "no other protocol is spoken here, neither HTTP/2 in clear text nor WebSocket" + _HINT)
        return None


def _framing(found: dict[bytes, bytes], old: bool) -> Refusal | None:
    length, coding = found.get(b"content-length"), found.get(b"transfer-encoding")
    if coding is not None:
        if length is not None:
            return Refusal(400, "the request has both a length and a transfer encoding" + _HINT)
        if old:
            return Refusal(400, "HTTP/1.0 knows no transfer encoding" + _HINT)
        if coding.lower() != b"chunked":
            return Refusal(501, "the only transfer encoding that is known here is chunked" + _HINT)
    if length is not None and not _LENGTH.fullmatch(length):
        return Refusal(400, "the header content-length is not a number" + _HINT)
    if b"host" not in found and not old:
        return Refusal(400, "the header host is missing" + _HINT)
    return None


def refusal_bytes(refused: Refusal) -> bytes:
    """The whole answer on the wire; whoever gets it is not asked for another request."""
    kind = "server_error" if refused.status == 500 else "invalid_request_error"
    answer = error(refused.status, refused.message, type=kind, code=f"http_{refused.status}")
    head = b"HTTP/1.1 %d %b\r\n" % (answer.status, HTTPStatus(answer.status).phrase.encode("ascii"))
    headers = b"".join(b"%b: %b\r\n" % header for header in answer.headers)
    return head + headers + b"connection: close\r\n\r\n" + answer.body
