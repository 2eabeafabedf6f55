"""Sealed runs: their records are kept, their ids renamed, and what their clients sent is redacted."""

from tests.replay.made import checked, codes
from tests.support.run_tapes import RUN, outputs, relayed, started, stopped, turn_of, two_turns
from tests.support.tapes import text
from wiretape.events.core.json_text import parse
from wiretape.replay.redaction.user_rules import Redaction
from wiretape.replay.seal import Rules, seal


def test_a_sealed_run_keeps_its_records_and_stays_the_same() -> None:
    other = "run_" + "6b" * 16
    tapes = [*two_turns(metadata={"kept": "call_kept"}), *two_turns(other, previous_response_id=RUN)]
    streams = checked(seal(tapes)).streams
    assert [records[0].keys["run"] for records in streams] == ["run_1", "run_1", "run_2", "run_2"]
    said = [record for records in streams for record in records if record.kind == "run"]
    assert [record.keys["what"] for record in said] == ["start", "outputs", "start", "outputs"]
    assert [parse(record.raw or b"") for record in said] == [
        started(metadata={"kept": "call_kept"}),
        outputs(call_1="Sunny"),
        started(previous_response_id="run_1"),
        outputs(call_1="Sunny"),
    ]


def test_secrets_that_a_client_sent_to_a_run_are_redacted() -> None:
    key = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789"
    first, _ = two_turns()
    second = turn_of(text("?", "Sunny"), "outputs", outputs(call_1=f"the key is {key}"), 2)
    data = seal([[*first], second])
    assert key.encode() not in data
    assert b"[redacted-openai-1]" in data
    assert codes(data) == []
    hidden = seal([first, second], Rules(redaction=Redaction(prompts=True)))
    assert b"weather?" not in hidden
    assert b"the key is" not in hidden
    checked(data)


def test_a_run_that_ended_without_its_upstream_is_sealed() -> None:
    for last in (stopped(2), stopped(2, "waited", what="expired")):
        data = seal([two_turns()[0], last])
        assert checked(data).streams[1][1].kind == "run"


def test_a_relayed_run_is_sealed_with_the_ids_of_both_sides() -> None:
    [stream] = checked(seal([relayed()])).streams
    assert [each.keys["run_id"] for each in stream if each.kind == "upstream_run"] == ["run_2"]
    assert [each.keys for each in stream if each.kind == "approval"] == [{"choice": "once", "resolved": 1}]
    frames = [each.raw or b"" for each in stream if each.kind == "frame"]
    assert [b'"run_id":"run_2"' in frame for frame in frames] == [True] * 4
