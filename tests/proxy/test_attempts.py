"""What follows a failed attempt: tables of literals."""

from dataclasses import replace
from typing import Any

import pytest

from wiretape.proxy.relay.attempts import Decision, Failure, Next, decide, in_band, refuses_streaming

REFUSED = Failure(ending="refused", message="")
STATUS = Failure(ending="upstream_error", message="", status=500)
NOW = 1_000_000_000.0


def after(failure: Failure, attempt: int = 1, *, elsewhere: bool = False, unstreamed: bool = True) -> Decision:
    return decide(failure, attempt=attempt, attempts=3, elsewhere=elsewhere, unstreamed=unstreamed, now=NOW)


@pytest.mark.parametrize(
    "failure",
    [
        Failure(ending="stalled", message=""),
        Failure(ending="protocol", message=""),
        Failure(ending="limit", message=""),
        Failure(ending="upstream_error", message="", transient=False),
    ],
    ids=["a stall took its whole deadline", "a page", "too much", "an error with a code of its own"],
)
def test_lasting_failures_are_not_retried(failure: Failure) -> None:
    assert after(failure, elsewhere=True) == Decision(Next.GIVE_UP)


@pytest.mark.parametrize(
    "failure",
    [replace(REFUSED, timed_out=True), replace(REFUSED, transient=False)],
    ids=["a connect that took its whole deadline", "a certificate"],
)
def test_unreachable_upstream_is_skipped_at_once(failure: Failure) -> None:  # U02, U05
    assert after(failure) == Decision(Next.GIVE_UP)
    assert after(failure, elsewhere=True) == Decision(Next.ELSEWHERE)


@pytest.mark.parametrize(
    ("header", "decision"),
    [
        ("2", Decision(Next.AGAIN, 2.0)),
        ("10", Decision(Next.AGAIN, 10.0)),
        ("10.001", Decision(Next.GIVE_UP)),
        ("1000000000", Decision(Next.GIVE_UP)),
        ("-5", Decision(Next.AGAIN, 0.25)),
        ("soon", Decision(Next.AGAIN, 0.25)),
        ("Sun, 09 Sep 2001 01:46:45 GMT", Decision(Next.AGAIN, 5.0)),
        ("Sun, 09 Sep 2001 01:46:30 GMT", Decision(Next.AGAIN, 0.25)),
        ("Sun, 09 Sep 2001 02:46:40 GMT", Decision(Next.GIVE_UP)),
    ],
)
def test_retry_after_is_honoured_up_to_a_limit(header: str, decision: Decision) -> None:  # U09
    assert after(replace(STATUS, status=429, retry_after=header)) == decision


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
