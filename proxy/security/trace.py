"""The trace of one stream (W3C Trace Context): its caller's, or one that is derived from the stream's id.

Every id is a function of the tape, so that spans can be made again at any time and are the same. What clients get does
not depend on it.
"""

import hashlib
import re
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import as_object, as_text

from ..http1 import Header, Headers

__all__ = ["Trace", "trace_of"]

#: Version 00 has four fields, a later one may have more.
_TRACEPARENT: Final = re.compile(
    rb"(?!ff)([0-9a-f]{2})-((?!0{32})[0-9a-f]{32})-((?!0{16})[0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
_SPAN_ID: Final = re.compile(r"[0-9a-f]{16}")


class Trace(NamedTuple):
    """The ids of a stream's trace, in hex digits."""

    stream: str
    id: str
    #: The span of the client's request to Wiretape.
    server: str
    #: The caller's span, if it has one, and whether it exports its own.
    parent: str = ""
    sampled: bool = True

    def span(self, role: str, number: int | str = 0) -> str:
        """Return the id of another span of the stream."""
        return hashlib.sha256(f"{self.stream} {role} {number}".encode("utf-8", "replace")).hexdigest()[:16]

    def traceparent(self, attempt: int) -> Header:
        """Return the header that makes an upstream's span the child of one attempt."""
        return b"traceparent", f"00-{self.id}-{self.span('attempt', attempt)}-0{self.sampled:d}".encode("ascii")

    @staticmethod
    def on_tape(stream: str, keys: Any) -> "Trace":
        """Return the trace that an `open` record names, or would name if it were not of an older version."""
        found = as_object(keys)
        trace, parent = as_text(found.get("id")), as_text(found.get("parent"))
        derived = trace_of(stream, Headers())
        if not _TRACE_ID.fullmatch(trace):
            return derived
        parent = parent if _SPAN_ID.fullmatch(parent) else ""
        return derived._replace(id=trace, parent=parent, sampled=found.get("sampled") is not False)


def trace_of(stream: str, headers: Headers) -> Trace:
    """Return the trace of a new stream."""
    server = hashlib.sha256(f"{stream} server 0".encode("utf-8", "replace")).hexdigest()[:16]
    values = headers.all(b"traceparent")
    given = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    if given is None or (given[1] == b"00" and given[5]):
        return Trace(stream, hashlib.sha256(stream.encode("utf-8", "replace")).hexdigest()[:32], server)
    return Trace(stream, given[2].decode("ascii"), server, given[3].decode("ascii"), int(given[4], 16) & 1 == 1)
