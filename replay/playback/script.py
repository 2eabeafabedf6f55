"""One scripted HTTP response as data: its chunks, their delays and the way it ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["EVENT_STREAM", "Fault", "Request", "Script", "Step", "event_stream", "json_answer"]

_Header = tuple[bytes, bytes]

EVENT_STREAM: Final[tuple[_Header, ...]] = ((b"Content-Type", b"text/event-stream"),)
_JSON: Final[_Header] = (b"Content-Type", b"application/json")


class Fault(Enum):
    """A way to end other than the proper one."""

    #: An orderly FIN inside the body: no final chunk, or fewer bytes than promised.
    CUT = "cut"
    #: A TCP reset; a cut over a stream that is not a socket.
    RESET = "reset"
    #: Silence until the client leaves.
    STALL = "stall"
    #: Bytes that are not HTTP, then a FIN.
    GARBAGE = "garbage"


class Step(NamedTuple):
    """After a delay: one chunk, or the end."""

    delay_s: float
    what: bytes | Fault


class Request(NamedTuple):
    """One request as it was received."""

    method: bytes
    target: bytes
    headers: Sequence[_Header]
    body: bytes
    http_version: bytes = b"1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Status, headers and steps. What follows a fault is never played; without a fault, the response ends properly.

    With a `Content-Length`, or with `closes`, the bytes go out as they are. Otherwise each step is one HTTP chunk.
    """

    status: int = 200
    headers: Sequence[_Header] = EVENT_STREAM
    steps: Sequence[Step] = ()
    #: From the request to the head, or to the fault that replaces it.
    head_delay_s: float = 0.0
    #: The end of the connection is the end of the body.
    closes: bool = False
    #: The fault that replaces the response.
    unanswered: Fault | None = None
    #: Give the client time to read each chunk by itself, as far as possible.
    apart: bool = False

    @property
    def chunked(self) -> bool:
        """Whether the body is sent in HTTP chunks."""
        return self.has_body and not self.closes and all(name.lower() != b"content-length" for name, _ in self.headers)

    @property
    def has_body(self) -> bool:
        """Whether HTTP allows a body with this status (RFC 9110, 6.4.1)."""
        return self.status not in (204, 304)


def event_stream(pieces: Iterable[bytes], *, gap_s: float = 0.0, end: Fault | None = None) -> Script:
    """Return an event stream of these chunks, with one delay before each and before the fault."""
    steps = [Step(gap_s, piece) for piece in pieces]
    return Script(steps=[*steps, *([Step(gap_s, end)] if end else [])])


def json_answer(body: bytes, status: int = 200) -> Script:
    """Return a JSON response with its length."""
    headers = (_JSON, (b"Content-Length", b"%d" % len(body)))
    return Script(status=status, headers=headers, steps=[Step(0, body)] if body else ())
