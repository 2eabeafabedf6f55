"""When a relay stops waiting, what a failed attempt was, and what follows it: another attempt or upstream, or the end.

Nothing that a client has seen can be taken back, so only an attempt that delivered no content is repeated.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import Enum
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.errors import RequestError
from wiretape.events.core.model import UpstreamError
from wiretape.events.dialects import CHAT

from ..http1 import Headers
from ..limits import RETRY_AFTER_MAX_S, RETRY_FIRST_S, SAID_BYTES_MAX
from ..server.asgi import Reaper, together
from ..upstream.connection import RefusedError, WireError
from .stream_request import StreamRequest

__all__ = [
    "OUR_CAUSES",
    "WHOLE",
    "Decision",
    "Failure",
    "Next",
    "Signals",
    "cause_of",
    "chat_cause",
    "decide",
    "exchange_ending",
    "failed_in_stream",
    "failed_status",
    "in_band",
    "is_answer",
    "no_answer",
    "not_crossed",
    "not_whole",
    "refuses_streaming",
    "retry_after_s",
    "unusable",
]

#: After these causes the answer is whole, or something was sent in place of its rest.
WHOLE: Final = frozenset({"framed", "closed", "status", "upload", "slow_upload"})
#: Causes on our side; the client gets an error answer of ours if it has no status yet.
OUR_CAUSES: Final = frozenset({"shutdown", "internal", "upload", "slow_upload"})
#: The ending of an exchange without dialect, where it is not named like its cause.
_EXCHANGE_ENDINGS: Final[Mapping[str, str]] = MappingProxyType(
    {"eof": "truncated", "closed": "truncated", "status": "upstream_error", "upload": "limit", "slow_upload": "limit"}
)
_UNUSABLE: Final[Mapping[str, str]] = MappingProxyType(
    {
        "truncated": "The upstream closed the connection before sending any content.",
        "protocol": "The upstream did not answer with a stream of its dialect (check `speaks`).",
        "limit": "The response of the upstream exceeds a limit.",
    }
)

#: Statuses that ask to try later: a timeout, a conflict, too many requests. So do all of 500 to 599 (529 is Anthropic's
#: word for overloaded).
_LATER: Final = frozenset({408, 409, 429})
#: Endings in which the connection failed and not the request. Not a stall: it took the whole first-byte deadline.
_LOST: Final = frozenset({"refused", "reset", "truncated"})
_PASSING: Final = _LOST | {"upstream_error"}
#: What gateways report in a 200 when their own upstream dropped the connection (clients.md 7: hermes retries these).
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
#: A 404 that names a model means the model, not the path (OpenAI, Anthropic, vLLM and Ollama all do).
_OF_MODEL: Final = re.compile(r"\bmodels?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """How an attempt failed that delivered nothing."""

    #: The ending that the stream gets if nothing follows.
    ending: str
    #: For people; never holds what may be, or echo, a credential.
    message: str
    #: The HTTP status, or the one that an error in the stream names.
    status: int = 0
    #: An HTTP response reported it.
    answered: bool = False
    #: The header, unparsed.
    retry_after: str = ""
    #: A deadline passed, which gives another status than a refused connection.
    timed_out: bool = False
    #: The same request may succeed if it is repeated.
    transient: bool = True
    #: The upstream would answer, but not as a stream.
    unstreamed: bool = False
    #: An agent's run that failed after its own retries: repeated, it would do all of its work again.
    final: bool = False
    #: The upstream has no such path, and so did nothing.
    no_path: bool = False
    #: The upstream refuses to be asked for usage.
    uncounted: bool = False
    #: What came was a stream, but not of its dialect.
    garbled: bool = False
    #: The error's code, if it is not the ending, and the field of the request that it is about.
    code: str = ""
    param: str | None = None


class Next(Enum):
    """What follows a failure."""

    AGAIN = "again"
    ELSEWHERE = "elsewhere"
    UNSTREAMED = "unstreamed"
    #: In another dialect.
    CROSSED = "crossed"
    #: Without asking for usage.
    UNCOUNTED = "uncounted"
    GIVE_UP = "give_up"


class Decision(NamedTuple):
    """What follows, after how long; `exhausted` if only the number of attempts forbids another one."""

    next: Next
    after_s: float = 0.0
    exhausted: bool = False


def decide(
    failure: Failure, *, attempt: int, attempts: int, elsewhere: bool, unstreamed: bool, now: float = 0.0
) -> Decision:
    """Decide what follows. `attempt` counts from 1 at each upstream; `unstreamed`: a whole answer may be tried."""
    if failure.final:
        return Decision(Next.GIVE_UP, exhausted=True)
    if failure.unstreamed and unstreamed:
        return Decision(Next.UNSTREAMED)
    if failure.ending == "refused" and (failure.timed_out or not failure.transient):
        # Repeated, it would take its whole deadline again (U02), or show the same certificate (U05).
        return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP)
    if failure.status:
        passing = failure.status in _LATER or 500 <= failure.status <= 599
    else:
        passing = failure.garbled or (failure.transient and failure.ending in _PASSING)
    if not passing:
        return Decision(Next.GIVE_UP)
    wait_s = retry_after_s(failure.retry_after, now)
    if wait_s is not None and wait_s > RETRY_AFTER_MAX_S:
        return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP)
    if attempt < attempts:
        return Decision(Next.AGAIN, max(wait_s or 0.0, RETRY_FIRST_S * 2 ** (attempt - 1)))
    return Decision(Next.ELSEWHERE) if elsewhere else Decision(Next.GIVE_UP, exhausted=True)


def retry_after_s(value: str, now: float) -> float | None:
    """Return the seconds to wait from a Retry-After header, or None; `now` is in seconds since 1970."""
    text = value.strip()
    if re.fullmatch(r"\d{1,18}(?:\.\d{1,9})?", text, re.ASCII):
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - now)
    except (ValueError, TypeError, IndexError, OverflowError):
        return None


def in_band(message: str, code: Any, statuses: Mapping[str, int] = MappingProxyType({})) -> tuple[int, bool]:
    """Return the status in an error inside a 200 (or 0), and whether it is worth another attempt.

    `statuses` are those of the dialect's own words. An error with any other code blames the request; one without a code
    is retried only if it reports a lost connection.
    """
    code = statuses.get(code, code) if isinstance(code, str) else code
    if isinstance(code, str) and re.fullmatch(r"[45]\d\d", code, re.ASCII):
        code = int(code)
    if type(code) is int and 400 <= code <= 599:
        return code, code in _LATER or code >= 500
    return 0, code in (None, "") and _CONNECTION_LOST.search(message) is not None


def refuses_streaming(status: int, body: bytes) -> bool:
    """Return whether an error response means that the upstream cannot stream."""
    return (
        status in (400, 404, 405, 422, 501)
        and _NO_STREAMING.search(body[:SAID_BYTES_MAX].decode("utf-8", "replace")) is not None
    )


# -- what ended an attempt --------------------------------------------------------------------------------------------


def cause_of(ending: str) -> str:
    """Return the cause that leads to this ending; after an error in the stream we close the connection."""
    return {"truncated": "eof", "completed": "eof", "upstream_error": "closed"}.get(ending, ending)


def chat_cause(cause: str) -> str:
    """Return the cause as the tape of a chat stream has it: the end of its framing alone says nothing (L5)."""
    return "eof" if cause == "framed" else cause


def exchange_ending(status: int, cause: str, *, cut: bool) -> tuple[str, Sequence[str]]:
    """Return the ending and flags of an exchange without dialect: only HTTP's own framing can end it properly."""
    if cause in ("framed", "eof") and not cut:
        return ("upstream_error" if status >= 400 else "completed"), (() if cause == "framed" else ("unframed",))
    return _EXCHANGE_ENDINGS.get(cause, cause), ()


def no_answer(fault: WireError) -> Failure:
    """Return the failure of an attempt without a response head."""
    refused = fault.cause if isinstance(fault, RefusedError) else ""
    return Failure(ending=fault.ending, message=str(fault), transient=refused != "tls", timed_out=refused == "timeout")


def failed_status(status: int, headers: Headers, body: bytes, *, streams: bool, agent: bool = False) -> Failure:
    """Return the failure that a status reports; an agent's run has a header of its own for it."""
    said = body[:SAID_BYTES_MAX].decode("utf-8", "replace")
    return Failure(
        ending="upstream_error",
        message=f"The upstream answered {status}.",
        status=status,
        answered=True,
        retry_after=headers.get(b"retry-after").decode("latin-1"),
        unstreamed=streams and refuses_streaming(status, body),
        final=agent and headers.get(b"x-hermes-completed") == b"false",
        no_path=status in (404, 405, 501) and _OF_MODEL.search(said) is None,
        uncounted=status in (400, 422) and CHAT.refuses_usage(said),
    )


def not_crossed(bad: RequestError) -> Failure:
    """Return the failure of a request that cannot be asked in the upstream's dialect."""
    return Failure(ending="refused", message=str(bad), status=400, transient=False, code=bad.code, param=bad.param)


def failed_in_stream(error: UpstreamError, statuses: Mapping[str, int]) -> Failure:
    """Return the failure that an error object in the stream reports; `statuses` are those of its dialect's words."""
    code, transient = in_band(error.message, error.code, statuses)
    return Failure(ending="upstream_error", message=error.message, status=code, transient=transient)


def is_answer(ending: str, flags: Sequence[str], *, crossed: bool) -> bool:
    """Return whether a whole answer is one that a client of Responses or Messages, or of another dialect, can use.

    One that the upstream itself calls unfinished is, since its client knows these states.
    """
    if crossed or "malformed_call" in flags:
        return ending == "completed" and "malformed_call" not in flags
    return ending not in ("protocol", "upstream_error") or "unfinished" in flags


def not_whole(ending: str, *, malformed: bool) -> Failure:
    """Return the failure of an answer that was no stream, and that no client may be given."""
    if malformed:
        message = "The upstream's answer holds a tool call whose arguments are not JSON."
        return Failure(ending=ending, message=message, code="malformed_call")
    if ending == "protocol":
        return Failure(ending=ending, message="The upstream did not answer in its dialect (check `speaks`).")
    return Failure(ending=ending, message="The upstream's answer ends in the middle of its JSON.")


def unusable(ending: str, fault: WireError | None, *, garbled: bool = False) -> Failure:
    """Return the failure of a response that ended before it had any content."""
    message = str(fault) if fault is not None else _UNUSABLE.get(ending, "The response of the upstream was not usable.")
    return Failure(ending=ending, message=message, garbled=garbled)


# -- when to stop waiting ---------------------------------------------------------------------------------------------


class Signals:
    """The signals from other tasks, and the deadlines, that a relay handles even if the upstream sends nothing.

    The relay attends to them between two batches. A read moves a deadline by setting a number.
    """

    def __init__(self, request: StreamRequest, reaper: Reaper, now: float) -> None:
        self.wanted: set[str] = set()
        #: Records that other tasks want on the tape: kind, keys and body.
        self.notes: list[tuple[str, Mapping[str, Any], bytes | None]] = []
        #: What the relay waits in, if it waits for anything that may be interrupted.
        self.waiting: trio.CancelScope | None = None
        #: When the upstream last sent something with a meaning, and when the client was last sent anything.
        self.progress_at = now
        #: Between two signs of life of the upstream, so far.
        self.longest_silence_s = 0.0
        self.published_at = now
        #: The upstream has sent something since it was asked.
        self.progressed = False
        #: The client wants to know that it is waited for.
        self.keepalives = request.streams and not request.verbatim and request.turn is None
        #: When to stop waiting for the terminator, and when to end the stream if it has no readers then.
        self.grace_at = self.leave_at = inf
        self.over = False
        self._route = request.route
        self._reaper = reaper
        reaper.watch(self._silence, self._next_look(now))

    def hear(self) -> None:
        """Note that something of the request or the answer is on its way."""
        self.progress_at = trio.current_time()

    def send(self, signal: str) -> None:
        """`left`: a reader has gone. `stop`: the run is stopped. `shutdown`: the proxy stops. `look`: a deadline may
        have passed, or there are notes.
        """
        self.wanted.add(signal)
        if self.waiting is not None:
            self.waiting.cancel()

    def note(self, kind: str, keys: Mapping[str, Any], body: bytes | None = None, *, signal: str = "look") -> None:
        """Write a record as soon as the relay can, and then attend to the signal."""
        self.notes.append((kind, keys, body))
        self.send(signal)

    def grace(self, now: float) -> None:
        """Wait a moment for the terminator: every choice has its finish reason."""
        self.grace_at = now + self._route.finish_grace_s
        self._reaper.watch(self._passed, self.grace_at)

    def leave(self, at: float) -> None:
        """End the stream at this time if it has no readers then."""
        self.leave_at = at
        self._reaper.watch(self._passed, at)

    @property
    def silent_s(self) -> float:
        """How long the upstream may be silent now."""
        return self._route.idle_s if self.progressed else self._route.first_byte_s

    @property
    def stall_at(self) -> float:
        """When the upstream counts as stalled."""
        return self.progress_at + self.silent_s

    @property
    def keepalive_at(self) -> float:
        """When a keepalive is due."""
        return self.published_at + self._route.keepalive_s if self.keepalives else inf

    def _silence(self, now: float) -> float | None:
        if self.over:
            return None
        due = min(self.stall_at, self.keepalive_at)
        if due > now:
            return min(due, self._next_look(now))
        self.send("look")
        return now + min(1.0, self._route.keepalive_s)

    def _next_look(self, now: float) -> float:
        """No deadline that a read sets meanwhile is sooner."""
        route = self._route
        return together(now, now + min(route.first_byte_s, route.idle_s, route.keepalive_s if self.keepalives else inf))

    def _passed(self, _: float) -> None:
        if not self.over:
            self.send("look")
