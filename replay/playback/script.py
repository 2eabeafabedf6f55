"""What a scripted upstream says: one HTTP answer as pure data, its pieces, their delays, and the way it ends"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

__all__ = ["EVENT_STREAM", "Fault", "Request", "Script", "Step", "event_stream", "json_answer"]

_Header = tuple[bytes, bytes]

EVENT_STREAM: Final[tuple[_Header, ...]] = ((b"Content-Type", b"text/event-stream"),)
_JSON: Final[_Header] = (b"Content-Type", b"application/json")


class Fault(Enum):
    """A way to end that is not the proper one."""

    #: An orderly FIN in the middle of the body: no final chunk, or fewer bytes than promised.
    CUT = "cut"
    #: A TCP reset. Over a stream that is no socket it is a cut.
    RESET = "reset"
    #: Nothing more, and the connection stays open until the other side leaves.
    STALL = "stall"
    #: Something that is no HTTP where HTTP is due, and then a FIN.
    GARBAGE = "garbage"


class Step(NamedTuple):
    """After so many seconds: these bytes as one piece, or the end."""

    delay_s: float
    what: bytes | Fault


class Request(NamedTuple):
    """One request as it came."""

    method: bytes
    target: bytes
    headers: Sequence[_Header]
    body: bytes
    http_version: bytes = b"1.1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Status, headers, steps. With a `Content-Length` among the headers the pieces go out as they are, and so they do
    where the end of the connection is the end of the body (`closes`); otherwise each is one chunk. What follows a fault
    is never played; without one the answer ends properly.
    """

    status: int = 200
    headers: Sequence[_Header] = EVENT_STREAM
    steps: Sequence[Step] = ()
    #: From the request to the head, or to what comes instead of it.
    head_delay_s: float = 0.0
    closes: bool = False
    #: Instead of any answer.
    unanswered: Fault | None = None
    #: Somebody asked for just these pieces: the client has time to read each by itself, as far as that can be had.
    apart: bool = False

    @property
    def chunked(self) -> bool:
        """Whether the body is framed in chunks."""
        return self.has_body and not self.closes and all(name.lower() != b"content-length" for name, _ in self.headers)

    @property
    def has_body(self) -> bool:
        """Whether HTTP allows one with this status (RFC 9110 6.4.1)."""
        return self.status not in (204, 304)


def event_stream(pieces: Iterable[bytes], *, gap_s: float = 0.0, end: Fault | None = None) -> Script:
    """An event stream of these pieces, one gap between any two of them, and before the end."""
    steps = [Step(gap_s, piece) for piece in pieces]
    return Script(steps=[*steps, *([Step(gap_s, end)] if end else [])])


def json_answer(body: bytes, status: int = 200) -> Script:
    """A whole answer, with its length."""
    return Script(
        status=status, headers=(_JSON, (b"Content-Length", b"%d" % len(body))), steps=[Step(0, body)] if body else ()
    )
