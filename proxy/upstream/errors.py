"""The errors of an exchange with an upstream, one for each ending that they lead to.

No message contains a header's value or what an upstream sent: both may be, or echo, a credential.
"""

from typing import ClassVar, Literal

from wiretape.events.core.errors import WiretapeError

__all__ = [
    "LimitError",
    "ProtocolError",
    "RefusedError",
    "ResetError",
    "StalledError",
    "TruncatedError",
    "WireError",
]


class WireError(WiretapeError):
    """Any failure of an exchange; bytes that came before it were delivered before it."""

    ending: ClassVar[str]
    """The ending of the stream, if this was its last attempt."""


class RefusedError(WireError):
    """A connection that could not be opened; no byte of the request was sent."""

    ending = "refused"

    def __init__(self, cause: Literal["dns", "connect", "proxy", "tls", "timeout"], message: str) -> None:
        super().__init__(message)
        self.cause = cause


class StalledError(WireError):
    """A write deadline that passed without progress."""

    ending = "stalled"


class ResetError(WireError):
    """A reset, by the upstream or something in between."""

    ending = "reset"


class TruncatedError(WireError):
    """An orderly close that came too early: inside the head, a chunked body or a body with a length."""

    ending = "truncated"


class ProtocolError(WireError):
    """A response that is not HTTP/1.1, or whose head is beyond a limit."""

    ending = "protocol"


class LimitError(WireError):
    """A decompression bomb."""

    ending = "limit"
