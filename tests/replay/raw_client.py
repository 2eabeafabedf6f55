"""A client on a connection of its own that keeps the ending of a response."""

from http.client import HTTPConnection, HTTPException
from typing import NamedTuple


class Heard(NamedTuple):
    """A response, and how it ended: `ended` properly, `cut`, `reset`, or `silent` beyond the timeout."""

    status: int
    headers: dict[str, str]
    body: bytes
    ending: str


def ask(port: int, body: bytes, path: str = "/v1/chat/completions", *, patience_s: float = 15.0) -> Heard:
    """Send one request and return what came."""
    status, headers, read = 0, dict[str, str](), list[bytes]()
    connection = HTTPConnection("127.0.0.1", port, timeout=patience_s)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json", "Connection": "close"})
        with connection.getresponse() as response:
            status, headers = response.status, {name.lower(): value for name, value in response.getheaders()}
            while data := response.read1(65_536):
                read.append(data)
            ending = "cut" if response.length else "ended"
    except TimeoutError:
        ending = "silent"
    except HTTPException:  # also a close before the head, which is a ConnectionResetError too
        ending = "cut"
    except ConnectionResetError:
        ending = "reset"
    finally:
        connection.close()
    return Heard(status, headers, b"".join(read), ending)
