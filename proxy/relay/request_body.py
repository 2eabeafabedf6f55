"""The whole body of a request, within bounds of size and time, decoded, and what JSON it is."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import orjson
import trio

from wiretape.events.chat.hygiene import Found, edits, found
from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.core.splice import Edit

from ..http_headers import Header
from ..limits import INFLATE_MEMBERS_MAX, INFLATE_RATIO_MAX, INFLATED_AT_ONCE, PARSE_INLINE_BYTES_MAX, UPLOAD_TIMEOUT_S
from ..server.asgi import Receive
from ..upstream.decompression import CODINGS, Inflater
from ..upstream.errors import LimitError, WireError
from .http_responses import Answer, error

__all__ = ["CLOSE", "BodyError", "aside", "marked", "parsed", "read_as", "too_long", "whole_body"]


_T = TypeVar("_T")

#: Of an answer to a request that is not read to its end.
CLOSE: Final = (b"connection", b"close")

_limiters: Final = trio.lowlevel.RunVar[trio.CapacityLimiter]("threads that decode requests")


class BodyError(Exception):
    """It cannot be used; holds the answer that says why."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


async def whole_body(receive: Receive, length: bytes, bytes_max: int) -> bytes | None:
    """All of it, or None where the client left; raises BodyError where it is too long or takes too long."""
    if length.isdigit() and int(length) > bytes_max:
        raise BodyError(too_long(bytes_max))
    message = await _first(receive)
    if message["type"] == "http.disconnect":
        return None
    if not message.get("more_body", False):
        return _checked([message.get("body", b"")], bytes_max)
    parts: list[bytes] = [message.get("body", b"")]
    left_bytes = bytes_max - len(parts[0])
    with trio.move_on_after(UPLOAD_TIMEOUT_S):
        while message.get("more_body", False):
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            left_bytes -= len(parts[-1])
            if left_bytes < 0:
                raise BodyError(too_long(bytes_max))
        return b"".join(parts)
    raise BodyError(_too_slow())


async def _first(receive: Receive) -> Any:
    with trio.move_on_after(UPLOAD_TIMEOUT_S):
        return await receive()
    raise BodyError(_too_slow())


def _checked(parts: list[bytes], bytes_max: int) -> bytes:
    if len(parts[0]) > bytes_max:
        raise BodyError(too_long(bytes_max))
    return parts[0]


async def read_as(body: bytes, headers: Sequence[Header], bytes_max: int) -> bytes:
    """What it says: itself, or what it was before it was compressed. In a thread, since a little may say much."""
    codings = b", ".join(value for name, value in headers if name.lower() == b"content-encoding")
    coding = codings.decode("latin-1").strip().lower()
    if coding in ("", "identity"):
        return body
    if coding not in CODINGS:
        raise BodyError(_not_read(coding))
    try:
        decode = partial(_inflated, body, coding, bytes_max)
        return await trio.to_thread.run_sync(decode, abandon_on_cancel=True, limiter=_limiter())
    except LimitError:
        message = (
            f"the body, decoded, is longer than {bytes_max} bytes or {INFLATE_RATIO_MAX} times what was sent, "
            f"or has more than {INFLATE_MEMBERS_MAX} members"
        )
        raise BodyError(error(413, message, type="invalid_request_error", code="body_too_large")) from None
    except WireError:
        message = f"the body is not {coding}, or not all of it"
        raise BodyError(error(400, message, type="invalid_request_error", code="invalid_encoding")) from None


def _inflated(body: bytes, coding: str, bytes_max: int) -> bytes:
    inflater = Inflater(coding, bytes_max)
    plain = b"".join(inflater.feed(body))
    inflater.close()
    return plain


def _limiter() -> trio.CapacityLimiter:
    """One for each run of the loop: a thread that was abandoned gives its place back to the loop that it is of."""
    try:
        return _limiters.get()
    except LookupError:
        _limiters.set(trio.CapacityLimiter(INFLATED_AT_ONCE))
        return _limiters.get()


async def aside(body: bytes, do: Callable[[], _T]) -> _T:
    """What is done to a body; to a large one in a thread, because the loop may stall for 10 ms at most.

    That holds the loop up all the same while one call of C keeps Python's lock: orjson does for all of a body (3 ms a
    MB), a search for one string in it.
    """
    return do() if len(body) <= PARSE_INLINE_BYTES_MAX else await trio.to_thread.run_sync(do)


async def parsed(body: bytes) -> Any:
    """The JSON that it is."""
    value = await aside(body, partial(parse, body))
    if value is ABSENT:
        raise BodyError(error(400, _why(body), type="invalid_request_error", code="invalid_json"))
    return value


async def marked(body: bytes, asked: Any, *, repair: bool) -> tuple[Sequence[Found], Sequence[Edit]]:
    """What its history carries that a model must not read, and what takes it out."""
    return await aside(body, partial(_marked, body, asked, repair))


def _marked(body: bytes, asked: Any, repair: bool) -> tuple[Sequence[Found], Sequence[Edit]]:
    marks = found(body, asked)
    return marks, edits(body, marks) if repair and marks else ()


def _why(body: bytes) -> str:
    try:
        orjson.loads(body)
    except orjson.JSONDecodeError as exc:
        return f"the body is not JSON: line {exc.lineno}, column {exc.colno}"
    return "the body is not JSON"


def too_long(bytes_max: int) -> Answer:
    """The answer to a body beyond the limit."""
    message = f"the body is longer than {bytes_max} bytes"
    return error(413, message, type="invalid_request_error", code="body_too_large", headers=(CLOSE,))


def _not_read(coding: str) -> Answer:
    """RFC 9110 15.5.16: with what could be read."""
    message = f"the body is coded as {coding[:80]}, which is not read here; gzip and deflate are"
    read = (b"accept-encoding", b"gzip, deflate")
    return error(415, message, type="invalid_request_error", code="unsupported_encoding", headers=(read,))


def _too_slow() -> Answer:
    message = f"the body did not arrive within {UPLOAD_TIMEOUT_S:g} s"
    return error(408, message, type="invalid_request_error", code="body_timeout", headers=(CLOSE,))
