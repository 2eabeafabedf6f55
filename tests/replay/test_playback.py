"""Playback in tests: its log, what counts as changed, and internal errors."""

from typing import Any

import pytest

from tests.support.tapes import CHAT, asking, records_of, text
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import Deck, How
from wiretape.replay.playback.script import Request, Script
from wiretape.replay.serving.answers import Answers
from wiretape.replay.serving.playback import Playback, Sent

STREAMS = [records_of(text("hi", "sunny")), records_of(text("more", "rain"))]


def playback(*faults: str, streams: list[list[Record]] = STREAMS, match: How = "key", **more: Any) -> Playback:
    return Playback(Answers(Deck(streams, match), Faults.of(faults), **more), streams)


def request(question: str, path: str = CHAT) -> Request:
    return Request(b"POST", path.encode(), [(b"X-Name", b"a"), (b"x-name", b"b")], dumps(asking(question)))


def said(script: Script) -> bytes:
    return b"".join(step.what for step in script.steps if isinstance(step.what, bytes))


def test_requests_and_responses_are_kept() -> None:
    played = playback()
    assert b"rain" in said(played.choose(request("more")))
    assert played.choose(request("nothing")).status == 599
    (first, second), (told,) = played.sent, played.answers
    assert (first.method, first.path, first.json, first.headers) == ("POST", CHAT, asking("more"), {"x-name": "b"})
    assert second.json["messages"][0]["content"] == "nothing"
    assert told.fold.text == "rain"
    assert [line.rpartition("-> ")[2] for line in played.lines] == [
        "stream 2, completed",
        "no recorded response",
    ]
    assert len(played.misses) == 1
    assert [line.partition(":")[0] for line in played.unused] == ["stream 1"]
    assert not played.changed


def test_a_retry_after_a_fault_gets_the_same_response() -> None:
    played = playback("cut@text#1")
    answers = [said(played.choose(request("hi"))) for _ in range(3)]
    assert len(set(answers)) == 1
    assert played.changed
    assert [told.fold.ending for told in played.answers] == ["truncated"] * 3


@pytest.mark.parametrize("match", ["key", "position"])
@pytest.mark.parametrize("fault", ["drop@done", "duplicate@done", "eof@done", "rechunk=1"])
def test_a_fault_that_leaves_the_response_complete_counts_as_answered(fault: str, match: How) -> None:
    played = playback(fault, streams=[*STREAMS[:1], *STREAMS[:1]], match=match)
    answers = [played.choose(request("hi")).status for _ in range(3)]
    assert answers == [200, 200, 599]


@pytest.mark.parametrize(("match", "more"), [("position", "something else"), ("strict", "more")])
def test_by_position_only_the_same_request_is_a_retry(match: How, more: str) -> None:
    played = playback("cut@text", match=match)
    sunny = [b"sunny" in said(played.choose(request(words))) for words in ("hi", "hi", more, more)]
    assert sunny == [True, True, False, False]
    assert not played.unused


def test_other_chunks_are_not_a_change() -> None:
    played = playback("rechunk=1")
    played.choose(request("hi"))
    assert not played.changed
    assert played.choose(request("hi")).status == 599


def test_fresh_ids_are_not_a_change() -> None:
    played = playback(streams=[STREAMS[0], STREAMS[0]], ids="fresh")
    answers = {said(played.choose(request("hi"))) for _ in range(2)}
    assert len(answers) == 2
    assert not played.changed
    assert not played.unused


def test_an_unplayable_stream_is_a_response_and_is_kept() -> None:
    broken = [record._replace(keys={"status": 7}) if record.kind == "head" else record for record in STREAMS[0]]
    played = playback(streams=[broken])
    answer = played.choose(request("hi"))
    assert answer.status == 500
    assert "status" in str(played.broken)


def test_sent_requests_are_shown_without_keys() -> None:
    assert Sent("GET", "/v1/models", {}, b"").json is None
    assert str(Sent("POST", "/v1/x", {}, b"abc")) == "POST /v1/x (3 bytes)"
    key = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789"
    assert str(Sent("GET", f"/v1/x?key=a1&k={key}", {}, b"")) == "GET /v1/x?key=***&k=[redacted-openai] (0 bytes)"
