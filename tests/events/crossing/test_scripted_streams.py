"""The scripted streams through every pair of client and upstream: the right content, calls, ending and order."""

from dataclasses import replace
from typing import Any, Final

import pytest

from tests.support.answers import read
from tests.support.chat import Run, run, tape
from tests.support.scripted_streams import DIALECTS, OWN, STREAMS, Begin, Expected, Scripted
from wiretape.events.crossing.names import call_id

PAIRS: Final = [(client, upstream) for client in DIALECTS for upstream in DIALECTS]
#: Counted by every upstream of the scripts.
INPUT, OUTPUT = 11, 7


def crossed(stream: Scripted, client: str, upstream: str, **settings: Any) -> Run:
    """Return what a client gets of a stream."""
    asked = {"stream": True, "model": "m", "stream_options": {"include_usage": True}}
    theirs = "" if upstream == client else upstream
    frames = stream.frames(upstream)
    return run(tape(frames, dialect=client, upstream_dialect=theirs, cause=stream.cause, request=asked, **settings))


def wanted(expected: Expected, client: str, upstream: str) -> Expected:
    """Return what a client of this dialect gets; Messages has no refusal but its stop reason."""
    prefix = "toolu_" if client == "messages" else "call_"
    ids = {call[0]: call[0] if client == upstream else call_id(call[0], prefix) for call in expected.calls}
    calls = tuple((ids[one[0]], *one[1:]) for one in expected.calls)
    expected = replace(expected, calls=calls, order=tuple(ids.get(one, one) for one in expected.order))
    if client == "messages" and expected.refusal:
        said = expected.text + expected.refusal
        return replace(expected, text=said, refusal="", ending="content_filter", order=("text",))
    return expected


@pytest.mark.parametrize("stream", [*STREAMS, *OWN], ids=lambda one: one.name)
@pytest.mark.parametrize(("client", "upstream"), PAIRS, ids=lambda one: one)
def test_scripted_stream_in_every_pair(stream: Scripted, client: str, upstream: str) -> None:
    if upstream in stream.without:
        return
    result, expected = crossed(stream, client, upstream), wanted(stream.expected, client, upstream)
    answer = read(client, result.out)
    assert (answer.text, answer.reasoning, answer.refusal) == (expected.text, expected.reasoning, expected.refusal)
    assert tuple(answer.calls) == expected.calls
    assert answer.ending == expected.ending
    assert tuple(answer.order) == (expected.order or tuple(call[0] for call in expected.calls) or ("refusal",))
    assert (result.ended.ending == "completed") is (expected.ending != "error")
    assert answer.cards == _cards(stream, expected)
    if expected.ending == "error":
        assert answer.error["message"]


def _cards(stream: Scripted, expected: Expected) -> list[tuple[str, str]]:
    begun = [step.id for step in stream.steps if isinstance(step, Begin)]
    if expected.calls:
        return [(call[0], "running") for call in expected.calls]
    return [(call, "dropped") for call in begun]
