"""HTTP responses that Wiretape makes: errors in the shape that a client reads, heads of streams, errors of upstreams.

None carries a page or a key. CORS headers are the application's (`cors_origins`).
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from math import floor
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import trio

from wiretape.events.core.json_text import ABSENT, as_object, dumps, parse
from wiretape.events.dialects import DIALECTS

from ..http1 import Header, Headers
from ..limits import ERROR_BYTES_MAX, EXCERPT_CHARS_MAX, FINAL_SEND_TIMEOUT_S, NOT_FOUND_STEP_S
from ..memory import Charge
from ..security.access import Refusal
from ..security.headers import to_client

__all__ = [
    "Answer",
    "AnswerError",
    "Fault",
    "busy",
    "error",
    "in_dialect",
    "json_answer",
    "not_earlier",
    "our_error",
    "refused",
    "relayed_head",
    "send_answer",
    "stream_head",
    "stream_header",
    "take",
    "wrapped_error",
]

_JSON: Final = b"application/json"
_OWN: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
#: Headers of an upstream that ours replace.
_REPLACED: Final = frozenset({b"cache-control", b"content-type", b"x-content-type-options"})
#: The members of every error besides its message.
_WORDS: Final = ("type", "code", "param")
#: The answers to failures on our side: status, code and message.
_OUR_ERRORS: Final[Mapping[str, tuple[int, str, str]]] = MappingProxyType(
    {
        "shutdown": (503, "shutdown", "Wiretape is shutting down. Retry in a moment."),
        "internal": (500, "internal", "Wiretape failed on this stream; its tape holds what came before."),
        "untaped": (
            503,
            "log_failure",
            "The tape of this stream cannot be written, so nothing is delivered (on_log_failure = stop).",
        ),
        "upload": (413, "body_too_large", "The request body is longer than the limit."),
        "slow_upload": (408, "body_timeout", "The request body came too slowly."),
    }
)


class Fault(NamedTuple):
    """The contents of an error of ours, before it takes the shape of a dialect."""

    message: str
    kind: str
    code: str | None
    param: str | None


class Answer(NamedTuple):
    """A whole response, or its status and headers alone; the headers hold the length of the body."""

    status: int
    headers: tuple[Header, ...]
    body: bytes
    #: Of an error of ours.
    fault: Fault | None = None


class AnswerError(Exception):
    """A request that cannot be answered otherwise than with this error."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(answer.status)
        self.answer = answer


def error(
    status: int,
    message: str,
    *,
    type: str,  # noqa: A002 - the name in OpenAI's error object
    code: str | None,
    param: str | None = None,
    headers: Iterable[Header] = (),
) -> Answer:
    """Return an error as every OpenAI client reads one. HTML in the message is escaped, so that no page can show it."""
    value = {"error": {"message": message, "type": type, "param": param, "code": code}}
    return json_answer(status, value, headers=headers)._replace(fault=Fault(message, type, code, param))


def in_dialect(answer: Answer, dialect: str) -> Answer:
    """Return an error of ours in the shape that clients of a dialect read; any other answer as it is."""
    status, headers, _, fault = answer
    if fault is None or dialect not in DIALECTS:
        return answer
    message, kind, code, param = fault
    body = _escaped(DIALECTS[dialect].error_body(status, message, kind=kind, code=code, param=param))
    passed = (header for header in headers if header[0] != b"content-length")
    return Answer(status, (*passed, (b"content-length", b"%d" % len(body))), body, fault)


async def not_earlier(began: float) -> None:
    """Wait for the next whole step of time since the request, so that its timing reveals nothing (C21)."""
    steps = floor((trio.current_time() - began) / NOT_FOUND_STEP_S) + 1
    await trio.sleep_until(began + steps * NOT_FOUND_STEP_S)


def busy(message: str, code: str, *headers: Header) -> Answer:
    """Return the error of a server that can take no more now."""
    return error(503, message, type="wiretape_error", code=code, headers=((b"retry-after", b"1"), *headers))


def take(held: Charge, size: int) -> None:
    """Charge bytes, or raise `AnswerError`; it ends the connection, since more of a body may follow."""
    if not held.add(size):
        message = "Memory limit reached (memory_max_bytes). Retry later."
        raise AnswerError(busy(message, "memory_max_bytes", (b"connection", b"close")))


def refused(refusal: Refusal) -> Answer:
    """Return the error that answers a refused request."""
    kind = "authentication_error" if refusal.status == 401 else "invalid_request_error"
    return error(refusal.status, refusal.message, type=kind, code=refusal.code, headers=refusal.headers)


def json_answer(status: int, value: Any, *, headers: Iterable[Header] = ()) -> Answer:
    """Return a value of ours as JSON, escaped so that it is harmless as HTML."""
    return _whole(status, _escaped(value), (b"content-type", _JSON), *_OWN, *headers)


def our_error(reason: str, *headers: Header) -> Answer:
    """Return the answer to a failure on our side, for a client without a status."""
    status, code, message = _OUR_ERRORS[reason]
    return error(status, message, type="wiretape_error", code=code, headers=headers)


def stream_header(stream: str) -> Header:
    """Return the header that names the stream."""
    return b"x-wiretape-stream", stream.encode("ascii")


def stream_head(upstream_headers: Iterable[Header], *headers: Header) -> Answer:
    """Return the head of an event stream that we emit: our headers, and the upstream's end-to-end headers."""
    passed = Headers(to_client(upstream_headers)).without(_REPLACED)
    ours = ((b"content-type", b"text/event-stream"), *_OWN, (b"x-accel-buffering", b"no"), *headers)
    return Answer(200, (*ours, *passed), b"")


def relayed_head(status: int, upstream_headers: Iterable[Header], *headers: Header, changed: bool = False) -> Answer:
    """Return the head of a response that passes as it comes, or with another body."""
    return Answer(status, (*to_client(upstream_headers, changed=changed), *headers), b"")


def wrapped_error(status: int, headers: Iterable[Header], body: bytes, *, crossed: bool = False) -> Answer:
    """Return an upstream's error for the client: JSON as it came, all else inside an error of ours.

    So also JSON of another dialect than the client's (`crossed`), of which the words remain.
    """
    upstream = Headers(to_client(headers))
    passed, media = upstream.without(_REPLACED), upstream.media_type()
    value = parse(body) if len(body) <= ERROR_BYTES_MAX else ABSENT
    if value is not ABSENT and not crossed:
        is_json = media == _JSON or media.endswith(b"+json")
        content_type = upstream.get(b"content-type") if is_json else _JSON
        return _whole(status, body, (b"content-type", content_type), *_OWN, *passed)
    said = as_object(as_object(value).get("error", value))
    if isinstance(said.get("message"), str):
        kind, code, param = (text if isinstance(text := said.get(name), str) else None for name in _WORDS)
        return error(status, said["message"], type=kind or "upstream_error", code=code, param=param, headers=passed)
    excerpt = body[: 4 * EXCERPT_CHARS_MAX].decode("utf-8", "replace")[:EXCERPT_CHARS_MAX].strip()
    kind = media.decode("latin-1") or "an unknown type"
    reason = f" with {len(body)} bytes of {kind}: {excerpt}" if excerpt else " without a reason"
    message = f"The upstream answered {status}{reason}"
    return error(status, message, type="upstream_error", code=f"http_{status}", headers=passed)


async def send_answer(send: Callable[[Any], Awaitable[None]], answer: Answer, *, head: bool = False) -> None:
    """Send a whole response over ASGI, for a bounded time and uncancelled; for HEAD (`head`) without its body."""
    with trio.CancelScope(shield=True, deadline=trio.current_time() + FINAL_SEND_TIMEOUT_S):
        await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
        await send({"type": "http.response.body", "body": b"" if head else answer.body, "more_body": False})


def _escaped(value: Any) -> bytes:
    return dumps(value).replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _whole(status: int, body: bytes, *headers: Header) -> Answer:
    return Answer(status, (*headers, (b"content-length", b"%d" % len(body))), body)
