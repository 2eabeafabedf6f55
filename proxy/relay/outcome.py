"""The heads and errors that clients get: one place for what an ending means as an HTTP status."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from ..http_headers import Header
from ..security.headers import to_client
from .attempts import Failure
from .http_responses import Answer, error, stream_headers, wrapped_error

__all__ = ["exchange_ending", "failure_answer", "our_error", "relayed_head", "stream_head"]

#: Of an ending that comes before a status was given.
_STATUS: Final = MappingProxyType({"stalled": 504, "shutdown": 503, "internal": 500, "limit": 502})
_SAID: Final = MappingProxyType(
    {
        "shutdown": "Wiretape is shutting down",
        "internal": "Wiretape failed on this stream; its tape holds what came before",
        "untaped": "the tape of this stream cannot be written, so nothing is delivered (on_log_failure = stop)",
        "upload": "the request's body is longer than the limit",
        "slow_upload": "the request's body stopped coming",
    }
)


def stream_head(upstream_headers: Sequence[Header], stream: str) -> Answer:
    """Of a stream that we emit."""
    return Answer(200, tuple(stream_headers(upstream_headers, stream)), b"")


def relayed_head(status: int, upstream_headers: Sequence[Header], stream: str, *, decoded: bool = False) -> Answer:
    """Of an answer that passes as it comes, or as it was decoded."""
    return Answer(status, (*to_client(upstream_headers, changed=decoded), _named(stream)), b"")


def our_error(reason: str, stream: str) -> Answer:
    """A failure on our side, before a status was given."""
    status = {"untaped": 503, "upload": 413, "slow_upload": 408}.get(reason) or _STATUS.get(reason, 502)
    code = {"untaped": "log_failure", "upload": "body_too_large", "slow_upload": "body_timeout"}.get(reason, reason)
    return error(status, _SAID[reason], type="wiretape_error", code=code, headers=(_named(stream),))


def failure_answer(
    failure: Failure,
    stream: str,
    upstream_headers: Sequence[Header],
    said: bytes,
    *,
    exhausted: bool,
) -> Answer:
    """What is left of a stream that failed before it had a status: the upstream's own error, or ours."""
    extra: tuple[Header, ...] = (_named(stream), *(((b"x-should-retry", b"false"),) if exhausted else ()))
    if failure.answered or said:
        answer = wrapped_error(failure.status or 502, upstream_headers, said)
        headers = answer.headers
        if exhausted:  # what the upstream thinks of another attempt was asked for already
            headers = tuple(header for header in headers if header[0].lower() != b"x-should-retry")
        return Answer(answer.status, (*headers, *extra), answer.body)
    status = failure.status or (504 if failure.timed_out else _STATUS.get(failure.ending, 502))
    return error(status, failure.message, type="upstream_error", code=failure.ending, headers=extra)


def exchange_ending(status: int, cause: str, *, cut: bool) -> tuple[str, Sequence[str]]:
    """Of an exchange that is no dialect's: HTTP's own framing is all that can end it properly."""
    if cause in ("framed", "eof") and not cut:
        return ("upstream_error" if status >= 400 else "completed"), (() if cause == "framed" else ("unframed",))
    return _EXCHANGE_ENDINGS.get(cause, cause), ()


#: Of the causes whose name is no ending.
_EXCHANGE_ENDINGS: Final = MappingProxyType(
    {"eof": "truncated", "closed": "truncated", "status": "upstream_error", "upload": "limit", "slow_upload": "limit"}
)


def _named(stream: str) -> Header:
    return b"x-wiretape-stream", stream.encode("ascii")
