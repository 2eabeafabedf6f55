"""Our own responses, errors of an upstream as clients get them, and the decision after a failed attempt."""

import json
from typing import Any

import pytest

from wiretape.proxy.limits import ERROR_BYTES_MAX
from wiretape.proxy.relay.attempts import in_band, refuses_streaming
from wiretape.proxy.relay.http_responses import Answer, error, json_answer, wrapped_error

JSON_TYPE = (b"content-type", b"application/json")


def said(answer: Answer) -> dict[str, Any]:
    headers = dict(answer.headers)
    assert len(headers) == len(answer.headers)
    assert headers[b"content-length"] == b"%d" % len(answer.body)
    assert headers[b"cache-control"] == b"no-store"
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert not [name for name in headers if name.startswith(b"access-control")]
    found: dict[str, Any] = json.loads(answer.body)
    return found


def test_no_answer_is_html_even_for_those_who_guess() -> None:
    answer = error(400, "<script>alert('&')</script>\ud800", type="a", code="b")
    assert not set(b"<>&") & set(answer.body)
    assert said(answer)["error"]["message"].startswith("<script>alert('&')</script>")
    assert said(json_answer(200, {"a": ["<b>"]})) == {"a": ["<b>"]}


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


@pytest.mark.parametrize(
    ("message", "code", "said"),
    [
        ("Network connection lost", None, (0, True)),
        ("Network connection lost", "", (0, True)),
        ("Network connection lost", "bad_request", (0, False)),
        ("invalid model", None, (0, False)),
        ("slow down", 429, (429, True)),
        ("slow down", "429", (429, True)),
        ("overloaded", 529, (529, True)),
        ("your request", 400, (400, False)),
        ("peer closed connection without sending complete message body (incomplete chunked read)", None, (0, True)),
        ("what", 200, (0, False)),
        ("what", True, (0, False)),
    ],
)
def test_an_error_inside_a_200_is_believed_when_it_speaks_of_a_lost_connection(
    message: str, code: Any, said: tuple[int, bool]
) -> None:
    assert in_band(message, code) == said


@pytest.mark.parametrize(
    ("status", "body", "refuses"),
    [
        (400, b'{"error":{"message":"Streaming is not supported for this model"}}', True),
        (400, b'{"error":{"message":"This model does not support streaming."}}', True),
        (422, b'{"detail":"stream=true isn\'t supported"}', True),
        (400, b'{"error":{"message":"Unsupported value: \'stream\' does not support true with this model."}}', True),
        (400, b'{"error":{"message":"upstream is not available"}}', False),
        (400, b'{"error":{"message":"messages must not be empty"}}', False),
        (500, b'{"error":{"message":"Streaming is not supported"}}', False),
        (400, b"\xff\xfe", False),
    ],
)
def test_an_answer_that_refuses_to_stream_is_known_by_its_words(status: int, body: bytes, refuses: bool) -> None:
    assert refuses_streaming(status, body) is refuses
