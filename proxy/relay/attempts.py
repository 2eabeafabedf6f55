"""What follows a failed attempt, as a pure function: again, elsewhere, without streaming, or the end.

Nothing that a client has seen can be taken back, so only what failed before any content was delivered is tried again.
"""

import re
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from typing import Any, Final, NamedTuple

from ..limits import RETRY_AFTER_MAX_S, RETRY_FIRST_S

__all__ = ["Decision", "Failure", "Next", "decide", "in_band", "refuses_streaming", "retry_after_s"]

#: Statuses that say "later": a timeout, a conflict, too many requests. All of 500 to 599 say so too (529 is Anthropic's
#: word for overloaded).
_LATER: Final = frozenset({408, 409, 429})
#: Endings in which the connection failed and not the request. A stall is none: it took the whole first-byte deadline.
_LOST: Final = frozenset({"refused", "reset", "truncated"})
#: What gateways say in a 200 when their own upstream dropped the connection (clients.md 7: hermes tries these again).
_CONNECTION_LOST: Final = re.compile(
    r"network connection lost|connection (?:was )?(?:lost|reset|closed|aborted|error)|peer closed connection"
    r"|incomplete chunked read|socket hang ?up|econnreset|upstream connect error|server disconnected",
    re.IGNORECASE,
)
_NO_STREAMING: Final = re.compile(
    r"\bstream(?:ing)?\b.{0,80}\b(?:not|isn.t|un)\s*(?:be\s+)?(?:support|allow|available|enabled|implemented)"
    r"|(?:not|n.t)\s+(?:currently\s+)?(?:support|allow)\w*\s.{0,40}\bstream"
    r"|unsupported.{0,40}\bstream|\bstream\W+must be\W+false",
    re.IGNORECASE | re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt ended that delivered nothing."""

    #: The ending that the stream gets if nothing follows.
    ending: str
    #: For a person; never holds what may be, or echo, a credential.
    message: str
    #: Of an HTTP answer, or of the error in the stream where it gives one.
    status: int = 0
    #: It was an HTTP answer that said so.
    answered: bool = False
    #: The header as it came.
    retry_after: str = ""
    #: A deadline passed, which is another status than a connection refused.
    timed_out: bool = False
    #: The same request may succeed when it is made again.
    transient: bool = True
    #: The upstream would answer, but not as a stream.
    unstreamed: bool = False
    #: An agent's run that failed after its own retries: asked again, it would do all of its work again.
    final: bool = False


class Next(Enum):
    """What follows."""

    AGAIN = "again"
    ELSEWHERE = "elsewhere"
    UNSTREAMED = "unstreamed"
    GIVE_UP = "give_up"


class Decision(NamedTuple):
    """What follows, after which wait; `exhausted` where it would have been tried again, were there attempts left."""

    next: Next
    after_s: float = 0.0
    exhausted: bool = False


def decide(
    failure: Failure, *, attempt: int, attempts: int, elsewhere: bool, unstreamed: bool, now: float = 0.0
) -> Decision:
    """`attempt` counts from 1 at this upstream; `unstreamed` where asking without streaming was not tried yet."""
    if failure.final:
        return Decision(Next.GIVE_UP, exhausted=True)
    if failure.unstreamed and unstreamed:
        return Decision(Next.UNSTREAMED)
    if failure.ending == "refused" and (failure.timed_out or not failure.transient):
        # Asked again it would take its whole deadline again (U02), or show the same certificate (U05).
        return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP)
    if not _worth_another(failure):
        return Decision(Next.GIVE_UP)
    wait_s = retry_after_s(failure.retry_after, now)
    if wait_s is not None and wait_s > RETRY_AFTER_MAX_S:
        return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP)
    if attempt < attempts:
        return Decision(Next.AGAIN, max(wait_s or 0.0, RETRY_FIRST_S * 2 ** (attempt - 1)))
    return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP, exhausted=True)


def _worth_another(failure: Failure) -> bool:
    if failure.status:
        return failure.status in _LATER or 500 <= failure.status <= 599
    return failure.transient and (failure.ending in _LOST or failure.ending == "upstream_error")


def retry_after_s(value: str, now: float) -> float | None:
    """Seconds to wait as the header says, `now` in seconds since 1970; None where it says nothing with a meaning."""
    text = value.strip()
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", text, re.ASCII):
        return float(text)
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    try:
        return max(0.0, at.timestamp() - now)
    except (ValueError, OverflowError):
        return None


def in_band(message: str, code: Any) -> tuple[int, bool]:
    """Of an error inside a 200: its status where the code is one, and whether it is worth another attempt.

    An error with a code that is no status names the request's own fault; one without is believed only when it speaks of
    a lost connection.
    """
    if isinstance(code, str) and re.fullmatch(r"[45]\d\d", code, re.ASCII):
        code = int(code)
    if type(code) is int and 400 <= code <= 599:
        return code, code in _LATER or code >= 500
    return 0, code in (None, "") and _CONNECTION_LOST.search(message) is not None


def refuses_streaming(status: int, body: bytes) -> bool:
    """Whether an error answer says that it is streaming which the upstream cannot do."""
    return (
        status in (400, 404, 405, 422, 501)
        and _NO_STREAMING.search(body[:4_096].decode("utf-8", "replace")) is not None
    )
