"""A client on its own connection that keeps every read, its time, and the ending.

As a script, `python tests/replay/raw_client.py PORT PATH KEY` sends the body from stdin and prints JSON; it needs only
the standard library.
"""

import base64
import hashlib
import json
import sys
import time
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any, NamedTuple

__all__ = ["Heard", "ask", "from_json"]

_READ_BYTES = 64 * 1024


class Heard(NamedTuple):
    """A response; times are seconds since the request was sent."""

    status: int
    headers: list[tuple[str, str]]
    head_s: float
    #: Each read with content, without framing; none is longer than a chunk.
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
    headers = [(name, content) for name, content in value["headers"]]
    reads = [(at, base64.b64decode(data)) for at, data in value["reads"]]
    return Heard(value["status"], headers, value["head_s"], reads, value["ending"], value["ended_s"])


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
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", "Connection": "close"}
    connection = HTTPConnection("127.0.0.1", port, timeout=patience_s)
    connection.connect()
    began = now()
    heard = Heard(0, [], 0.0, [], "ended", 0.0)
    response: HTTPResponse | None = None
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            connection.putheader(name, value)
        connection.endheaders(body)
        response = connection.getresponse()
        pairs = [(name.lower(), value) for name, value in response.getheaders()]
        heard = heard._replace(status=response.status, headers=pairs, head_s=now() - began)
        took(0)
        while data := response.read1(_READ_BYTES):
            heard.reads.append((now() - began, data))
            took(len(data))
        ending = "cut" if response.length else "ended"
    except TimeoutError:
        ending = "silent"
    except HTTPException:  # also a close before the head, which is a ConnectionResetError too
        ending = "cut"
    except ConnectionResetError:
        ending = "reset"
    finally:
        if response is not None:
            response.close()
        connection.close()
    return heard._replace(ending=ending, ended_s=now() - began)


if __name__ == "__main__":
    found = ask(int(sys.argv[1]), sys.stdin.buffer.read(), sys.argv[2], key=sys.argv[3])
    sys.stdout.write(json.dumps(found.to_json()) + "\n")
