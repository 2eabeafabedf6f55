"""The engine with a dialect that is nothing like chat. All cases are synthetic."""

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.events.emission.toy import Toy
from wiretape.events.core.json_text import dumps
from wiretape.events.core.model import Ended, Event, Repaired, ToolArgumentsDelta
from wiretape.events.emission.dialect import Dialect
from wiretape.events.emission.engine import Engine
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import encode

HELLO, MORE = ("text", "hel"), ("text", "lo")
CALL, ARGUMENTS, READY = ("call", "c1"), ("arguments", "{}"), ("ready", "")
DONE = ("done", "")
RUNNING, DROPPED = ("card", "running"), ("card", "dropped")


def records(*said: tuple[str, str] | str, cause: str = "eof") -> list[Record]:
    """A tape: frames of a type and a word, or records of a kind."""
    recorder = Recorder()
    made = [recorder.record("open", 0), recorder.record("request", 0, {"facts": {"stream": True}})]
    for t, one in enumerate(said, 1):
        if isinstance(one, str):
            made += recorder.attempt(t, {}) if one == "attempt" else [recorder.record(one, t)]
        else:
            made += recorder.read(t, encode(dumps({"type": one[0], "say": one[1]})))
    return [*made, recorder.end(99, {"cause": cause})]


class ToyEngine(Engine):
    """The engine with nothing but the toy."""

    dialects: ClassVar[Mapping[str, Dialect]] = {"toy": Toy()}


class Run:
    """What a client gets of a tape, and every event."""

    def __init__(self, tape: list[Record], **settings: Any) -> None:
        self.events: list[Event] = []
        opening = {"dialect": "toy", "stream": "s1", "created": 7, "settings": settings}
        self.engine = ToyEngine(sink=self.events.append)
        frames = [frame for record in [tape[0]._replace(keys=opening), *tape[1:]] for frame in self.engine.feed(record)]
        self.values: list[dict[str, Any]] = [json.loads(frame.partition(b"data: ")[2]) for frame in frames]

    @property
    def sent(self) -> list[tuple[str, str]]:
        """The type of each frame, and its word or status."""
        return [(value["type"], value.get("status", value.get("say", ""))) for value in self.values]

    @property
    def ending(self) -> str:
        """How it ended, which the last event says."""
        (ended,) = [event for event in self.events if isinstance(event, Ended)]
        assert self.events[-1] is ended
        return ended.ending


@pytest.mark.parametrize(
    ("tools", "said", "sent", "ending"),
    [
        ("live", [HELLO, MORE, DONE], [HELLO, MORE, DONE], "completed"),
        ("live", [CALL, ARGUMENTS, READY, DONE], [CALL, ARGUMENTS, RUNNING, READY, DONE], "completed"),
        ("held", [CALL, HELLO, ARGUMENTS, READY, DONE], [HELLO, CALL, ARGUMENTS, RUNNING, READY, DONE], "completed"),
        ("live", [CALL, ARGUMENTS], [CALL, ARGUMENTS, DROPPED, ("failed", "truncated")], "truncated"),
        ("held", [HELLO, CALL, ARGUMENTS], [HELLO, DROPPED, ("failed", "truncated")], "truncated"),
        (
            "held",
            [CALL, ARGUMENTS, READY, ("call", "c2")],
            [CALL, ARGUMENTS, RUNNING, READY, DROPPED, ("failed", "truncated")],
            "truncated",
        ),
        ("live", [CALL, ("failed", "no")], [CALL, DROPPED, ("failed", "no")], "upstream_error"),
        ("live", [HELLO, DONE, MORE, DONE], [HELLO, DONE], "completed"),
        (
            "live",
            [CALL, ("arguments", "{"), READY, HELLO],
            [CALL, ("arguments", "{"), DROPPED, READY, HELLO],
            "truncated",
        ),
    ],
)
def test_frames_of_a_dialect_that_hands_over_each_call(
    tools: Any, said: list[tuple[str, str]], sent: list[tuple[str, str]], ending: str
) -> None:
    run = Run(records(*said), tools=tools)
    assert run.sent[: len(sent)] == sent
    assert run.ending == ending


def test_warning_comes_before_the_end_of_a_cut_stream() -> None:
    run = Run(records(HELLO, CALL), on_partial="both")
    assert run.sent == [HELLO, CALL, DROPPED, ("text", "truncated: ['c1']"), ("failed", "truncated")]


def test_attempt_without_content_leaves_no_frame_and_no_number() -> None:
    run = Run(records(("ping", ""), "attempt", HELLO, DONE))
    assert [value["number"] for value in run.values] == [0, 1]
    assert next(event.repair for event in run.events if isinstance(event, Repaired)) == "attempt_discarded"


def test_result_is_reported_after_the_first_frame() -> None:
    tape = records("results", HELLO, DONE)
    tape[2] = tape[2]._replace(keys={"results": [{"id": "c0", "name": "f"}, {"id": "c0"}, {"id": "_", "name": "_f"}]})
    assert Run(tape).sent == [HELLO, ("result", ""), DONE]


FRAMES = st.sampled_from([HELLO, CALL, ("call", "c2"), ARGUMENTS, READY, ("ping", ""), ("failed", "no"), DONE])


@given(said=st.lists(FRAMES, max_size=9), on_partial=st.sampled_from(["error", "warn", "both"]), held=st.booleans())
def test_laws_hold_for_any_frames(said: list[tuple[str, str]], on_partial: Any, *, held: bool) -> None:
    run = Run(records(*said), on_partial=on_partial, tools="held" if held else "live")
    assert run.ending
    assert [value["number"] for value in run.values] == list(range(len(run.values)))
    cards = Counter((value["id"], value["status"]) for value in run.values if value["type"] == "card")
    calls = Counter(word for kind, word in said if kind == "call")
    assert all(count <= calls[call_id] for (call_id, _), count in cards.items())
    if held or on_partial == "warn":
        shown = sum(kind == "arguments" for kind, _ in run.sent)
        handed = {call.number for call in run.engine.wire.calls() if call.state.value == "running"}
        said_of = [event for event in run.events if isinstance(event, ToolArgumentsDelta)]
        assert shown == sum(event.call in handed for event in said_of)
