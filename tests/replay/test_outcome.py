"""The outcome of a response, as recorded and with faults."""

import pytest

from tests.support.tapes import Turn, asking, calls, exchange, records_of, text
from wiretape.events.tape.tape import reads
from wiretape.replay.faults.faults import Faults
from wiretape.replay.playback.player import ORIGINAL, as_played, script_of
from wiretape.replay.playback.script import Fault, Script
from wiretape.replay.serving.outcome import Call, Outcome

TEXT = records_of(text("hi", "sunny", " day", gap_s=0.5))
CALL = records_of(calls("write", "write_file", '{"path":', '"a"}'))


def test_a_recorded_response() -> None:
    outcome = Outcome(TEXT)
    assert (outcome.fold.text, outcome.fold.finish, outcome.fold.ending) == ("sunny day", "stop", "completed")
    assert outcome.timing == [(t / 1_000_000, len(data)) for t, data in reads(TEXT)]
    assert Outcome(CALL).fold.calls == [
        Call(id="call_1", name="write_file", arguments='{"path":"a"}', state="running", whole=True)
    ]


def test_a_response_without_a_fault_is_as_recorded() -> None:
    played = Outcome(as_played(TEXT, script_of(TEXT, speed=ORIGINAL)))
    assert played.fold == Outcome(TEXT).fold
    assert played.timing == Outcome(TEXT).timing


ENDINGS = {
    "cut@text": ("truncated", "sunny"),
    "reset@text": ("reset", "sunny"),
    "stall@text": ("stalled", "sunny"),
    "garbage@text": ("protocol", "sunny"),
    "eof@text": ("truncated", "sunny"),
    "eof@done": ("completed", "sunny day"),
    "cut@start": ("truncated", ""),
    "status=429/7": ("upstream_error", ""),
    "error@text": ("upstream_error", "sunny"),
    "rechunk=1": ("completed", "sunny day"),
}


@pytest.mark.parametrize("fault", ENDINGS)
def test_a_fault_gives_the_ending_of_a_recording(fault: str) -> None:
    script, _ = Faults.of([fault]).over(script_of(TEXT), 0)
    fold = Outcome(as_played(TEXT, script)).fold
    assert (fold.ending, fold.text) == ENDINGS[fault]


def test_an_incomplete_call_is_not_whole_and_its_tool_is_named() -> None:
    script, _ = Faults.of(["eof@tool:write_file"]).over(script_of(CALL), 0)
    fold = Outcome(as_played(CALL, script)).fold
    assert [(call.arguments, call.state, call.whole) for call in fold.calls] == [("{", "dropped", False)]
    assert fold.warnings == [("truncated", ["write_file"])]


@pytest.mark.parametrize(("end", "ending"), [(None, "completed"), (Fault.CUT, "truncated"), (Fault.RESET, "reset")])
def test_an_exchange_has_only_an_ending(end: Fault | None, ending: str) -> None:
    records = records_of(exchange("/v1/embeddings", asking(), b"{}"))
    recorded = script_of(records)
    script = Script(headers=recorded.headers, steps=[*recorded.steps, *([(0.0, end)] if end else [])])  # type: ignore[list-item]
    outcome = Outcome(as_played(records, script))
    assert (outcome.fold.ending, outcome.fold.text, outcome.fold.calls) == (ending, "", [])


def test_frames_of_another_dialect_stay_frames() -> None:
    turn = Turn(asking(), [(0.0, b'event: ping\ndata: {"type":"ping"}\n\n')], path="/v1/messages", dialect="messages")
    records = records_of(turn)
    played = as_played(records, script_of(records))
    assert [record.raw for record in played if record.kind == "frame"] == [turn.reads[0][1]]
