"""The error tree of the wire: what went wrong between us and an upstream, by the ending that it leads to.

    WiretapeError
    └── WireError
        ├── RefusedError     no connection: name, TCP, egress proxy, TLS or the time for all of them
        ├── StalledError     the upstream took no more of the request
        ├── ResetError       the connection was reset, or its TLS torn
        ├── TruncatedError   the connection was closed before the answer's end
        ├── ProtocolError    what came is not an answer in HTTP/1.1, or its head goes beyond a limit
        └── LimitError       its body grows beyond every proportion

No message holds a header's value or what an upstream sent: both may be, or echo, a credential.
"""

from typing import ClassVar, Literal

from wiretape.events.core.errors import WiretapeError

__all__ = [
    "LimitError",
    "ProtocolError",
    "RefusalCause",
    "RefusedError",
    "ResetError",
    "StalledError",
    "TruncatedError",
    "WireError",
]

RefusalCause = Literal["dns", "connect", "proxy", "tls", "timeout"]


class WireError(WiretapeError):
    """Everything that can happen to an exchange; bytes that came before it were delivered before it."""

    ending: ClassVar[str]
    """The stream's ending, if this was its last attempt."""


class RefusedError(WireError):
    """No byte of the request was sent."""

    ending = "refused"

    def __init__(self, cause: RefusalCause, message: str) -> None:
        super().__init__(message)
        self.cause: RefusalCause = cause


class StalledError(WireError):
    """The write deadline passed without progress."""

    ending = "stalled"


class ResetError(WireError):
    """The upstream, or something between, dropped the connection."""

    ending = "reset"


class TruncatedError(WireError):
    """An orderly close, too early: before the head's end, inside a chunked body, short of the length."""

    ending = "truncated"


class ProtocolError(WireError):
    """Nothing more can be understood on this connection."""

    ending = "protocol"


class LimitError(WireError):
    """A few bytes that mean far too many (U52)."""

    ending = "limit"
