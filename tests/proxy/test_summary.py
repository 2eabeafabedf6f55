"""The JSON of one stream, at every record of its tape."""

from typing import Any

import pytest

from tests.proxy.control_cases import ME
from tests.proxy.store_cases import CREATED, flat, stream_of
from tests.support.chat import call, tape, text
from wiretape.events.emit import Emitter, Summariser
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.proxy.api.streams import summary_json


def summary_of(stream: str, records: list[Record], *, whole: bool = False) -> dict[str, Any]:
    return summary_json(stream, Summariser().feed(*records), whole=whole)


WHOLE = flat(stream_of("s1", caller=ME, call_id="call-1"))


def test_json_of_a_whole_stream() -> None:
    said = summary_of("s1", WHOLE)
    received = said.pop("received")
    assert len(received.pop("sha256")) == 64
    assert received == {"bytes": 866, "frames": 6}
    assert said == {
        "id": "s1",
        "created": CREATED,
        "route": "default",
        "dialect": "chat",
        "profile": "strict",
        "model": "m",
        "live": False,
        "status": None,
        "ending": "completed",
        "flags": [],
        "cause": "eof",
        "answer": None,
        "error": None,
        "attempts": [],
        "timing": {
            "first_frame_us": 1_000,
            "first_content_us": 1_000,
            "last_content_us": 5_000,
            "longest_silence_us": 84_000,
            "longest_pause_us": 85_000,
            "duration_us": 90_000,
        },
        "usage": None,
        "message": {
            "id": "chatcmpl-1",
            "answers": [
                {"index": 0, "finish": "tool_calls", "text_chars": 21, "reasoning_chars": 0, "refusal_chars": 0}
            ],
        },
        "tools": [
            {
                "id": "call-1",
                "name": "look_up",
                "choice": 0,
                "run_by": "client",
                "state": "running",
                "reason": None,
                "answered_by": None,
                "duration_ms": None,
                "moves": [{"n": 5, "state": "announced"}, {"n": 6, "state": "ready"}, {"n": 6, "state": "running"}],
                "arguments_chars": 2,
            }
        ],
        "results": [],
        "history": [],
        "warnings": [],
        "repairs": {"role_missing": 1, "call_type": 1, "lifecycle": 1},
        "records": 9,
        "damage": [],
    }


def test_a_cut_call_is_named_in_tools_and_warnings() -> None:
    cut = call(index=0, id="c9", name="write_file", arguments='{"path":')
    said = summary_of("s1", tape([text("a", role=True), cut], cause="reset"))
    assert (said["ending"], said["cause"]) == ("reset", "reset")
    assert [(tool["id"], tool["state"], tool["reason"]) for tool in said["tools"]] == [("c9", "dropped", "reset")]
    assert said["warnings"] == [{"code": "reset", "calls": [{"id": "c9", "name": "write_file"}]}]


def test_attempts_list_upstream_status_and_failure() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat"})]
    records += recorder.attempt(1, {"number": 1, "upstream": "first"})
    records.append(recorder.record("head", 2, {"status": 503}))
    records.append(recorder.body(3, b'{"error":{}}'))
    records.append(recorder.record("failed", 4, {"attempt": 1, "ending": "upstream_error", "next": "elsewhere"}))
    records += recorder.attempt(4, {"number": 2, "upstream": "second"})
    records.append(recorder.record("head", 5, {"status": 200}))
    records += recorder.read(6, text("a"))
    records.append(recorder.record("commit", 6, {"status": 200}))
    said = summary_of("s1", records)
    failure = {"n": 4, "at_us": 4, "ending": "upstream_error", "next": "elsewhere"}
    assert said["attempts"] == [
        {"n": 1, "at_us": 1, "number": 1, "upstream": "first", "status": 503}
        | {"error": '{"error":{}}', "failure": failure},
        {"n": 5, "at_us": 4, "number": 2, "upstream": "second", "status": 200},
    ]
    assert said["status"] == 200
    assert said["received"] == {"bytes": len(text("a")), "frames": 1}
    assert said["timing"]["first_frame_us"] == 6


@pytest.mark.parametrize("profile", ["strict", "transparent"])
@pytest.mark.parametrize(("streams", "flags"), [(False, []), (True, ["synthesised"])])
def test_a_whole_answer_is_synthesised_only_where_a_stream_was_asked_for(
    profile: str, streams: bool, flags: list[str]
) -> None:
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "profile": profile, "settings": {"synthesise": True}}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"stream": streams}})]
    records += recorder.attempt(1, {"number": 1, "upstream": "a"})
    records.append(recorder.record("head", 2, {"status": 200}))
    records.append(recorder.body(3, b'{"choices":[{"index":0,"message":{"content":"a"},"finish_reason":"stop"}]}'))
    emitter = Emitter()
    for record in records:
        emitter.feed(record)
    assert emitter.ending("eof") == ("completed", tuple(flags))
    ending = {"cause": "eof", "ending": "completed", "flags": flags}
    said = summary_of("s1", [*records, recorder.end(4, ending)])
    assert [warning["code"] for warning in said["warnings"]] == flags
    assert said["message"]["answers"][0]["text_chars"] == 1
