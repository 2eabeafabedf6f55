"""Scripts are data: what the two short ways to write one give."""

from wiretape.replay.playback.script import EVENT_STREAM, Fault, Script, Step, event_stream, json_answer


def test_a_stream_has_a_gap_before_each_piece_and_before_its_fault() -> None:
    script = event_stream([b"a", b"b"], gap_s=2, end=Fault.RESET)
    assert script == Script(steps=[Step(2, b"a"), Step(2, b"b"), Step(2, Fault.RESET)])
    assert script.chunked
    assert script.headers == EVENT_STREAM


def test_an_answer_in_json_carries_its_length() -> None:
    assert not json_answer(b"{}").chunked
    assert json_answer(b"").steps == ()
