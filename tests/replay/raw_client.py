"""A client on a bare socket that keeps every read, its time, and the ending.

As a script, `python tests/replay/raw_client.py PORT PATH KEY` sends the body from stdin and prints JSON; it needs only
the standard library.
"""

import base64
import hashlib
import json
import socket
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["Heard", "ask", "from_json"]

_READ_BYTES = 64 * 1024


class Heard(NamedTuple):
    """A response; times are seconds since the request was sent."""

    status: int
    headers: list[tuple[str, str]]
    head_s: float
    #: Each read of the socket with content, without framing.
    reads: list[tuple[float, bytes]]
    #: `ended` properly, `cut`, `reset`, or `silent` beyond the timeout.
    ending: str
    ended_s: float

    @property
    def body(self) -> bytes:
        """The whole body."""
        return b"".join(data for _, data in self.reads)

    @property
    def sha256(self) -> str:
        """The hash of the body."""
        return hashlib.sha256(self.body).hexdigest()

    @property
    def sizes(self) -> list[int]:
        """The size of each read."""
        return [len(data) for _, data in self.reads]

    def header(self, name: str) -> str | None:
        """Return the first header with this name."""
        return next((value for each, value in self.headers if each == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        reads = [[at, base64.b64encode(data).decode()] for at, data in self.reads]
        return {**self._asdict(), "reads": reads}


def from_json(value: dict[str, Any]) -> Heard:
    """Return a response from its JSON."""
    return Heard(
        status=value["status"],
        headers=[(name, content) for name, content in value["headers"]],
        head_s=value["head_s"],
        reads=[(at, base64.b64decode(data)) for at, data in value["reads"]],
        ending=value["ending"],
        ended_s=value["ended_s"],
    )


def ask(
    port: int,
    body: bytes,
    path: str = "/v1/chat/completions",
    *,
    key: str = "x",
    patience_s: float = 15.0,
    method: str = "POST",
    now: Callable[[], float] = time.monotonic,
    took: Callable[[int], object] = lambda _: None,
) -> Heard:
    """Send one request on its own connection. `took` gets 0 for the head and the size of each read of the body."""
    lines = [
        f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Content-Type: application/json",
        f"Authorization: Bearer {key}", f"Content-Length: {len(body)}", "Connection: close", "", "",
    ]  # fmt: skip
    with socket.create_connection(("127.0.0.1", port), timeout=patience_s) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        began = now()
        connection.sendall("\r\n".join(lines).encode("latin-1") + body)
        return _heard(connection, lambda: now() - began, took)


def _heard(connection: socket.socket, since: Callable[[], float], took: Callable[[int], object]) -> Heard:
    held, head_s, status = b"", 0.0, 0
    headers: list[tuple[str, str]] = []
    framing = _Framing()
    reads: list[tuple[float, bytes]] = []
    while True:
        try:
            data = connection.recv(_READ_BYTES)
        except ConnectionResetError:
            return Heard(status, headers, head_s, reads, "reset", since())
        except TimeoutError:
            return Heard(status, headers, head_s, reads, "silent", since())
        at = since()
        if not data:
            return Heard(status, headers, head_s, reads, "ended" if framing.closed() else "cut", at)
        if not status:
            held += data
            if b"\r\n\r\n" not in held:
                continue
            head, _, data = held.partition(b"\r\n\r\n")
            status, headers, head_s = int(head.split(b" ")[1]), _headers(head), at
            framing = _Framing(headers)
            took(0)
        content = framing.feed(data)
        if content:
            reads.append((at, content))
            took(len(content))
        if framing.done:
            return Heard(status, headers, head_s, reads, "ended", at)


def _headers(head: bytes) -> list[tuple[str, str]]:
    pairs = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    return [(name.decode("latin-1").lower(), value.strip().decode("latin-1")) for name, _, value in pairs]


class _Framing:
    """Removes the framing of a body; `done` when it is complete."""

    def __init__(self, headers: list[tuple[str, str]] | None = None) -> None:
        known = dict(headers or [])
        self._chunked = "chunked" in known.get("transfer-encoding", "")
        self._left = int(known["content-length"]) if "content-length" in known and not self._chunked else None
        self._by_close = bool(headers) and not self._chunked and self._left is None
        self._held: bytes = b""
        #: Bytes left of the chunk with its line end; None between chunks.
        self._chunk: int | None = None
        self.done = self._left == 0

    def closed(self) -> bool:
        """Return whether a close is the proper end."""
        return self.done or self._by_close

    def feed(self, data: bytes) -> bytes:
        """Return the content of a read."""
        if self._left is not None:
            self._left -= len(data)
            self.done = self._left <= 0
            return data
        return self._dechunked(data) if self._chunked else data

    def _dechunked(self, data: bytes) -> bytes:
        self._held += data
        content: bytes = b""
        while not self.done:
            if self._chunk is None:
                line, end, rest = self._held.partition(b"\r\n")
                if not end:
                    break
                size = int(line.split(b";")[0], 16)
                self._held, self._chunk = rest, size + 2
                self.done = size == 0
                continue
            piece, self._held = self._held[: self._chunk], self._held[self._chunk :]
            content += piece[: max(0, self._chunk - 2)]
            self._chunk -= len(piece)
            if self._chunk:
                break
            self._chunk = None
        return content


if __name__ == "__main__":
    found = ask(int(sys.argv[1]), sys.stdin.buffer.read(), sys.argv[2], key=sys.argv[3])
    sys.stdout.write(json.dumps(found.to_json()) + "\n")
