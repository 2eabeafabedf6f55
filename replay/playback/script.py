"""One scripted HTTP response as data: its chunks, their delays and the way it ends."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, NamedTuple

__all__ = [
    "EVENT_STREAM",
    "Fault",
    "Request",
    "Script",
    "Splice",
    "Step",
    "cut_at",
    "event_stream",
    "json_answer",
    "spliced",
]

_Header = tuple[bytes, bytes]
#: Start and end in a body, and the bytes that replace what is between them.
Splice = tuple[int, int, bytes]

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
    def body(self) -> bytes:
        """The bytes of the body."""
        return b"".join(what for _, what in self.steps if isinstance(what, bytes))

    @property
    def fault(self) -> Fault | None:
        """The fault that ends the response, or replaces it."""
        ends = (what for _, what in self.steps if isinstance(what, Fault))
        return self.unanswered or next(ends, None)

    @property
    def chunked(self) -> bool:
        """Whether the body is sent in HTTP chunks."""
        return not self.closes and not self.has_length

    @property
    def has_body(self) -> bool:
        """Whether HTTP allows a body with this status (RFC 9110, 6.4.1)."""
        return self.status not in (204, 304)

    @property
    def has_length(self) -> bool:
        """Whether the head says how long the body is."""
        return not self.has_body or any(name.lower() == b"content-length" for name, _ in self.headers)


def event_stream(pieces: Iterable[bytes], *, gap_s: float = 0.0, end: Fault | None = None) -> Script:
    """Return an event stream of these chunks, with one delay before each and before the fault."""
    steps = [Step(gap_s, piece) for piece in pieces]
    return Script(steps=[*steps, *([Step(gap_s, end)] if end else [])])


def json_answer(body: bytes, status: int = 200) -> Script:
    """Return a JSON response with its length."""
    headers = (_JSON, (b"Content-Length", b"%d" % len(body)))
    return Script(status=status, headers=headers, steps=[Step(0, body)] if body else ())


def spliced(script: Script, splices: Sequence[Splice]) -> Script:
    """Replace parts of the body, given in order. New bytes arrive with the chunk in which the old ones began."""
    waiting = list(reversed(splices))
    steps: list[Step] = []
    at = done = 0  # the start of this chunk, and the end of the last splice
    for step in script.steps:
        if isinstance(step.what, Fault):
            steps.append(step)
            break
        after, parts = at + len(step.what), list[bytes]()
        while waiting and waiting[-1][0] < after:
            start, end, new = waiting.pop()
            parts += [step.what[max(0, done - at) : start - at], new]
            done = end
        parts.append(step.what[max(0, done - at) :])
        steps.append(Step(step.delay_s, b"".join(parts)))
        at = after
    return _with_length(replace(script, steps=steps))


def cut_at(script: Script, kept: int, tail: bytes = b"", fault: Fault | None = None) -> Script:
    """End after so many bytes. The tail arrives with the chunk from which it is; nothing is waited for after it."""
    cut = spliced(script, [(kept, len(script.body), tail)])
    steps = [step for step in cut.steps if not isinstance(step.what, Fault)]
    while steps and not steps[-1].what:
        steps.pop()
    return _with_length(replace(script, steps=[*steps, *([Step(0.0, fault)] if fault else [])]))


def _with_length(script: Script) -> Script:
    """Promise the length of the body, or more if a fault ends it."""
    headers: list[_Header] = []
    for name, value in script.headers:
        if name.lower() == b"content-length":
            size = len(script.body)
            promised = size if script.fault is None else max(int(value) if value.isdigit() else 0, size + 1)
            headers.append((name, b"%d" % promised))
        else:
            headers.append((name, value))
    return replace(script, headers=headers)
