"""Answers of our own: errors in OpenAI's shape, the head of a stream, an upstream's error as a client may see it

No answer carries a CORS header, a page, or a key.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, NamedTuple

from wiretape.events.core.json_text import ABSENT, dumps, parse

from ..config.secrets import Secret
from ..http_headers import Header
from ..limits import ERROR_BYTES_MAX, EXCERPT_CHARS_MAX
from ..security.access import Refusal
from ..security.headers import masked, to_client

__all__ = ["Answer", "error", "json_answer", "refused", "send_answer", "stream_headers", "wrapped_error"]

_JSON: Final = b"application/json"
_OWN: Final = ((b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff"))
#: What `_OWN` and ours replace in an upstream's headers.
_REPLACED: Final = frozenset({b"cache-control", b"content-type", b"x-content-type-options"})


class Answer(NamedTuple):
    """A whole answer; its headers hold the length of its body."""

    status: int
    headers: tuple[Header, ...]
    body: bytes


def error(
    status: int,
    message: str,
    *,
    type: str,  # noqa: A002 - the word of OpenAI's error object
    code: str | None,
    param: str | None = None,
    headers: Iterable[Header] = (),
) -> Answer:
    """An error as every OpenAI client reads one; HTML in the message is escaped, so that no page can show it."""
    value = {"error": {"message": message, "type": type, "param": param, "code": code}}
    return json_answer(status, value, headers=headers)


def refused(refusal: Refusal) -> Answer:
    """Return the error that answers a refused request."""
    kind = "authentication_error" if refusal.status == 401 else "invalid_request_error"
    return error(refusal.status, refusal.message, type=kind, code=refusal.code, headers=refusal.headers)


def json_answer(status: int, value: Any, *, headers: Iterable[Header] = ()) -> Answer:
    """Any value of ours as an answer."""
    return _whole(status, _escaped(dumps(value)), (b"content-type", _JSON), *_OWN, *headers)


def stream_headers(upstream_headers: Iterable[Header], stream_id: str) -> list[Header]:
    """The head of an event stream: the upstream's end-to-end headers, and ours."""
    passed = [header for header in to_client(upstream_headers) if header[0].lower() not in _REPLACED]
    return [
        (b"content-type", b"text/event-stream"),
        *_OWN,
        (b"x-accel-buffering", b"no"),
        (b"x-wiretape-stream", stream_id.encode("ascii")),
        *passed,
    ]


def wrapped_error(
    status: int,
    headers: Iterable[Header],
    body: bytes,
    limit: int = ERROR_BYTES_MAX,
    *,
    secrets: Iterable[Secret] = (),
) -> Answer:
    """An upstream's error for the client: JSON byte for byte but for our keys, all else inside an error of ours."""
    upstream = to_client(headers)
    shown = masked(body, secrets)
    passed = [(name, masked(value, secrets)) for name, value in upstream if name.lower() not in _REPLACED]
    if len(body) <= limit and parse(shown) is not ABSENT:
        return _whole(status, shown, (b"content-type", _json_type(upstream)), *_OWN, *passed)
    media = _media(upstream).decode("latin-1")
    excerpt = shown[: 4 * EXCERPT_CHARS_MAX].decode("utf-8", "replace")[:EXCERPT_CHARS_MAX].strip()
    message = f"The upstream answered {status}"
    message += f" with {len(body)} bytes of {media or 'an unknown type'}: {excerpt}" if excerpt else " without a reason"
    return error(status, message, type="upstream_error", code=f"http_{status}", headers=passed)


async def send_answer(send: Callable[[Any], Awaitable[None]], answer: Answer, *, head: bool = False) -> None:
    """Over ASGI; for HEAD (`head`) the same headers without the body."""
    await send({"type": "http.response.start", "status": answer.status, "headers": list(answer.headers)})
    await send({"type": "http.response.body", "body": b"" if head else answer.body, "more_body": False})


def _whole(status: int, body: bytes, *headers: Header) -> Answer:
    return Answer(status, (*headers, (b"content-length", b"%d" % len(body))), body)


def _escaped(text: bytes) -> bytes:
    """JSON that stays harmless where something takes it for HTML; these bytes stand in strings only."""
    return text.replace(b"<", b"\\u003c").replace(b">", b"\\u003e").replace(b"&", b"\\u0026")


def _media(headers: Iterable[Header]) -> bytes:
    types = [value for name, value in headers if name.lower() == b"content-type"]
    return types[0].partition(b";")[0].strip().lower() if types else b""


def _json_type(headers: list[Header]) -> bytes:
    """The upstream's own word where it is one for JSON."""
    media = _media(headers)
    if media == _JSON or media.endswith(b"+json"):
        return next(value for name, value in headers if name.lower() == b"content-type")
    return _JSON
