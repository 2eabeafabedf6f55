"""Answers of our own, and an upstream's errors as a client gets them."""

import json
from typing import Any

import pytest

from wiretape.proxy.config.secrets import Secret
from wiretape.proxy.limits import ERROR_BYTES_MAX
from wiretape.proxy.relay.http_responses import Answer, error, json_answer, send_answer, stream_head, wrapped_error

JSON_TYPE = (b"content-type", b"application/json")
SECRET = Secret("sk-upstream-0123456789")


def said(answer: Answer) -> dict[str, Any]:
    headers = dict(answer.headers)
    assert len(headers) == len(answer.headers)
    assert headers[b"content-length"] == b"%d" % len(answer.body)
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert not [name for name in headers if name.startswith(b"access-control")]
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_an_error_has_openais_shape() -> None:
    answer = error(401, "no", type="authentication_error", code="invalid_api_key", headers=[(b"retry-after", b"1")])
    assert answer.status == 401
    assert JSON_TYPE in answer.headers
    assert (b"retry-after", b"1") in answer.headers
    assert said(answer) == {
        "error": {"message": "no", "type": "authentication_error", "param": None, "code": "invalid_api_key"}
    }
    assert said(error(400, "a", type="b", code=None, param="c"))["error"]["param"] == "c"


def test_no_answer_is_html_even_for_those_who_guess() -> None:
    answer = error(400, "<script>alert('&')</script>\ud800", type="a", code="b")
    assert not set(b"<>&") & set(answer.body)
    assert said(answer)["error"]["message"].startswith("<script>alert('&')</script>")
    assert said(json_answer(200, {"a": ["<b>"]})) == {"a": ["<b>"]}


async def test_an_answer_goes_out_in_two_messages() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    answer = error(404, "no", type="a", code="b")
    await send_answer(send, answer)
    await send_answer(send, answer, head=True)
    assert sent[0] == {"type": "http.response.start", "status": 404, "headers": list(answer.headers)} == sent[2]
    assert sent[1] == {"type": "http.response.body", "body": answer.body, "more_body": False}
    assert sent[3] == {"type": "http.response.body", "body": b"", "more_body": False}


def test_the_head_of_a_stream() -> None:
    upstream = [
        (b"Content-Type", b"text/event-stream; charset=latin-1"),
        (b"cache-control", b"max-age=5"),
        (b"content-length", b"5"),
        (b"set-cookie", b"a=b"),
        (b"x-request-id", b"1"),
        (b"X-Wiretape-Stream", b"forged"),
        (b"x-accel-buffering", b"yes"),
    ]
    assert list(stream_head(upstream, "abc").headers) == [
        (b"content-type", b"text/event-stream"),
        (b"cache-control", b"no-store"),
        (b"x-content-type-options", b"nosniff"),
        (b"x-accel-buffering", b"no"),
        (b"x-wiretape-stream", b"abc"),
        (b"x-request-id", b"1"),
    ]


ECHO = b'{"error": {"message":"Incorrect API key: sk-upstream-0123456789","big":123456789012345678901234567890}}'

BYTE_FOR_BYTE: list[tuple[str, bytes, bytes]] = [
    (
        "spaces, big integers and duplicate keys",
        b"application/json",
        b'{ "a":1, "a":123456789012345678901234567890.0}\n',
    ),
    ("with a charset", b"application/json; charset=utf-8", b'{"error":"\\u00e9"}'),
    ("of a kind of its own", b"application/problem+json", b'{"title":"<b>"}'),
    ("a lone surrogate", b"application/json", b'{"error":"\\ud83d"}'),
    ("not an object", b"application/json", b"null"),
]


@pytest.mark.parametrize(("media", "body"), [row[1:] for row in BYTE_FOR_BYTE], ids=[row[0] for row in BYTE_FOR_BYTE])
@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500, 503, 529])
def test_json_passes_byte_for_byte(status: int, media: bytes, body: bytes) -> None:
    headers = [(b"content-type", media), (b"retry-after", b"7"), (b"content-length", b"999"), (b"set-cookie", b"a")]
    answer = wrapped_error(status, headers, body)
    assert (answer.status, answer.body) == (status, body)
    assert dict(answer.headers) == {
        b"content-type": media,
        b"retry-after": b"7",
        b"content-length": b"%d" % len(body),
        b"cache-control": b"no-store",
        b"x-content-type-options": b"nosniff",
    }


@pytest.mark.parametrize("media", [b"text/html", b"text/plain", None])
def test_json_error_gets_a_json_media_type(media: bytes | None) -> None:
    headers = [] if media is None else [(b"content-type", media)]
    answer = wrapped_error(400, headers, b'{"error":"<script>"}')
    assert answer.body == b'{"error":"<script>"}'
    assert JSON_TYPE in answer.headers


PAGES: list[tuple[str, bytes, bytes, str]] = [
    ("a page", b"text/html; charset=utf-8", b"<html><title>502</title>", "text/html: <html><title>502</title>"),
    ("a text", b"text/plain", b"busy\n", "5 bytes of text/plain: busy"),
    ("JSON that is cut", b"application/json", b'{"error":', 'application/json: {"error":'),
    ("bytes", b"application/json", b"\xff\xfe", "\ufffd\ufffd"),
    ("an unknown type", b"", b"x", "an unknown type: x"),
    ("nothing", b"text/html", b"", "The upstream answered 502 without a reason"),
]


@pytest.mark.parametrize(("media", "body", "expected"), [row[1:] for row in PAGES], ids=[row[0] for row in PAGES])
def test_error_that_is_not_json_is_wrapped(media: bytes, body: bytes, expected: str) -> None:
    """U11."""
    answer = wrapped_error(502, [(b"content-type", media), (b"retry-after", b"3")], body)
    found = said(answer)["error"]
    assert answer.status == 502
    assert JSON_TYPE in answer.headers
    assert (b"retry-after", b"3") in answer.headers
    assert expected in found["message"]
    assert (found["type"], found["code"]) == ("upstream_error", "http_502")
    assert b"<" not in answer.body


@pytest.mark.parametrize(("more", "whole"), [(-1, True), (0, True), (1, False)])
def test_an_error_of_any_size_stays_small(more: int, whole: bool) -> None:
    body = b'"' + b"x" * (ERROR_BYTES_MAX + more - 2) + b'"'
    answer = wrapped_error(500, [JSON_TYPE], body)
    assert (answer.body == body) == whole
    assert len(answer.body) <= ERROR_BYTES_MAX


@pytest.mark.parametrize("letter", [b"<", b"\x00", "é".encode(), b"\xff"])
def test_two_megabytes_of_html_are_at_most_the_limit(letter: bytes) -> None:
    answer = wrapped_error(500, [(b"content-type", b"text/html")], letter * 2_000_000)
    assert len(answer.body) <= ERROR_BYTES_MAX
    said(answer)
