"""Whole answers and errors in the forms that clients take. All cases synthetic."""

from typing import Any

import pytest

from tests.support.chat import sse
from wiretape.events.chat.answers import choices_of, chunks_of, delivers, error_of, failure_of, has_delta, news_of
from wiretape.events.core.json_text import parse


@pytest.mark.parametrize(
    ("payload", "frame", "message", "code"),
    [
        (b'{"error":{"message":"no","code":5}}', b'{"error":{"message":"no","code":5}}', "no", "5"),
        (b'{"error":{"code":null,"type":"t"},"x":1}', b'{"error":{"code":null,"type":"t"}}', "", "t"),
        (b'{ "error":1,"err\\u006fr":{"a":1},"x":1 }', b'{"error":{"a":1}}', "", ""),
        (b'{"error":[1]}', b'{"error":{"message":"[1]","type":"upstream_error","code":null}}', "[1]", "upstream_error"),
        (b'{"error":{"message":null}}', b'{"error":{"message":null}}', "", ""),
    ],
)
def test_an_error_stands_alone_and_verbatim(payload: bytes, frame: bytes, message: str, code: str) -> None:
    failure = error_of(payload, parse(payload), b"", usable=False)
    assert failure is not None
    assert failure.frame == sse(frame)
    assert (failure.message, failure.code) == (message, code)


def test_a_bad_status_is_an_error_in_its_own_words_or_ours() -> None:
    for text, message in (("slow", "slow"), (None, "the upstream failed")):
        failure = error_of(b"", {"base_resp": {"status_code": 1002, "status_msg": text}}, b"", usable=True)
        assert failure is not None
        assert (failure.message, failure.code) == (message, "1002")


@pytest.mark.parametrize("status", [0, "0", "", None], ids=repr)
def test_a_good_status_is_no_error(status: Any) -> None:
    assert error_of(b"", {"base_resp": {"status_code": status}}, b"", usable=False) is None
    assert error_of(b"", {"base_resp": {}}, b"", usable=False) is None
    assert error_of(b"", {"base_resp": 5, "error": None}, b"ping", usable=False) is None


def test_an_event_called_error_is_one_unless_it_is_a_chunk() -> None:
    assert error_of(b"{}", {}, b"error", usable=True) is None
    assert error_of(b"{}", {}, b"error", usable=False) == failure_of(0, b'{"error":{}}', {"error": {}})


def test_news_are_a_finish_that_is_missing_and_usage() -> None:
    answer: dict[str, Any] = {
        "choices": [{"index": 0, "finish_reason": "stop"}, 5, {"index": 1, "finish_reason": None}, {}],
        "usage": {},
    }
    assert news_of(answer, [0, 1]) == [{"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    assert news_of({**answer, "usage": {"n": 1}}, []) == [{"choices": [], "usage": {"n": 1}}]


def test_the_calls_of_several_choices_join_the_text_of_the_first() -> None:
    answer: dict[str, Any] = {
        "choices": [
            {"message": {"content": "hi"}, "finish_reason": "stop"},
            {"index": 1, "message": {"tool_calls": [1]}, "finish_reason": "tool_calls"},
            {"index": 2, "message": {"tool_calls": {"no": "list"}}},
        ]
    }
    joined, finish = chunks_of(answer, one=True)
    assert joined["choices"] == [{"index": 0, "delta": {"content": "hi", "tool_calls": [1]}, "finish_reason": None}]
    assert finish == {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}
    assert len(chunks_of(answer, one=False)[0]["choices"]) == 3


def test_choices_that_have_calls_of_their_own_stay_apart() -> None:
    with_calls = {"message": {"tool_calls": [1]}}
    assert len(chunks_of({"choices": [with_calls, with_calls]}, one=True)[0]["choices"]) == 2
    assert len(chunks_of({"choices": [with_calls, {"message": {}}]}, one=True)[0]["choices"]) == 2


def test_what_is_no_choice() -> None:
    assert choices_of({"choices": {}}) == []
    assert not has_delta(5)
    assert not has_delta({"delta": []})
    assert not delivers({"delta": {"role": "assistant", "content": ""}})
    assert delivers({"delta": {"content": "x"}})


def test_an_error_that_is_alone_keeps_its_white_space() -> None:
    payload = b'{ "error" : {"a": 1} }'
    assert failure_of(0, payload, parse(payload)).frame == sse(payload)


def test_members_on_both_sides_of_an_error_stay_behind() -> None:
    payload = b'{"zone":1,"error":{"a": 1},"code":2}'
    assert failure_of(0, payload, parse(payload)).frame == sse(b'{"error":{"a": 1}}')


@pytest.mark.parametrize("usage", [None, 5, "x", [1], {}], ids=str)
def test_an_error_without_counts(usage: Any) -> None:
    assert failure_of(0, b'{"error":{}}', {"error": {}, "usage": usage}).usage is None


def test_an_error_with_counts() -> None:
    payload = b'{"error":{},"usage":{"n":1}}'
    assert failure_of(0, payload, parse(payload)).usage == {"n": 1}


def test_a_stream_made_of_an_answer_keeps_every_other_member() -> None:
    choice = {"a": 1, "index": 0, "message": {"content": "hi"}, "native": 2, "finish_reason": "stop"}
    first, *_ = chunks_of({"a": 1, "usage": {"n": 1}, "x_of_theirs": 2, "choices": [choice]}, one=True)
    assert (first["a"], first["x_of_theirs"], "usage" in first) == (1, 2, False)
    assert first["choices"] == [{"a": 1, "index": 0, "native": 2, "delta": {"content": "hi"}, "finish_reason": None}]
