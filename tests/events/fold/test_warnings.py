"""What a person is told."""

import pytest

from wiretape.events.core.model import (
    Ended,
    Event,
    Finish,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
)
from wiretape.events.folds.warnings import Warned, Warnings

CALL = ToolCallStarted(n=1, choice=0, call=0, id="c", name="f")
OTHER = ToolCallStarted(n=1, choice=1, call=0, id="d", name="g")
MALFORMED = [CALL, ToolArgumentsComplete(n=2, choice=0, call=0), Finish(n=2, choice=0, reason="tool_calls")]


def ended(ending: str, *flags: str) -> Ended:
    return Ended(n=9, ending=ending, cause="eof", flags=flags)  # type: ignore[arg-type]  # words of the table below


@pytest.mark.parametrize(
    ("events", "found"),
    [
        pytest.param([TextDelta(n=1, choice=0, text="x"), ended("completed")], [], id="nothing"),
        pytest.param(
            [
                CALL,
                ToolArgumentsDelta(n=1, choice=0, call=0, text="{}"),
                ToolArgumentsComplete(n=2, choice=0, call=0),
                Finish(n=2, choice=0, reason="tool_calls"),
                ended("completed"),
            ],
            [],
            id="a call was handed over",
        ),
        pytest.param([CALL, ended("reset")], [Warned("reset", (("c", "f"),))], id="a call was cut"),
        pytest.param([ended("stalled")], [Warned("stalled", ())], id="a text was cut"),
        pytest.param(
            [*MALFORMED, ended("completed", "malformed_call")], [Warned("malformed", (("c", "f"),))], id="malformed"
        ),
        pytest.param(
            [CALL, Finish(n=2, choice=0, reason="length"), OTHER, ended("truncated")],
            [Warned("length", (("c", "f"),)), Warned("truncated", (("d", "g"),))],
            id="one by length, one cut",
        ),
        pytest.param([ended("completed", "no_done")], [Warned("no_done", ())], id="a flag"),
        pytest.param([*MALFORMED[:1], OTHER], [], id="not ended yet"),
        pytest.param(
            [*MALFORMED, ended("completed", "malformed_call", "no_done")],
            [Warned("malformed", (("c", "f"),)), Warned("no_done", ())],
            id="a flag beside",
        ),
    ],
)
def test_warnings(events: list[Event], found: list[Warned]) -> None:
    fold = Warnings()
    for event in events:
        fold.apply(event)
    assert fold.found == found
