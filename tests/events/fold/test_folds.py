"""The summary and the live state, event by event. tests/events/chat shows both through whole streams."""

from typing import Any, get_args

import pytest

from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import (
    Ended,
    Ending,
    Event,
    Finish,
    ForeignFrame,
    ReasoningDelta,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
    UpstreamError,
)
from wiretape.events.folds.summary import Answer, StreamSummary
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record

STARTED = ToolCallStarted(n=1, choice=0, call=0, id="c", name="f")
ARGUMENTS = ToolArgumentsDelta(n=2, choice=0, call=0, text="{}")
HALF = ToolArgumentsDelta(n=2, choice=0, call=0, text="{")
CLOSED = ToolArgumentsComplete(n=3, choice=0, call=0)
TEXT = TextDelta(n=1, choice=0, text="hi")
STOP = Finish(n=3, choice=0, reason="stop")
CALLS = Finish(n=3, choice=0, reason="tool_calls")
LENGTH = Finish(n=3, choice=0, reason="length")
DONE = Terminator(n=4)
TOOL = ToolProgress(n=1, id="cc", name="f", status="running")
ERROR = UpstreamError(n=4, message="no", code="500")


def fold(*events: Event, **bounds: Any) -> Wire:
    wire = Wire(**bounds)
    for event in events:
        wire.apply(event)
    return wire


NO_STREAM = ForeignFrame(n=2, why="not_a_stream")
#: Events, cause, ending and flags.
ENDINGS: dict[str, tuple[list[Event], str, str, tuple[str, ...]]] = {
    "nothing came": ([], "eof", "truncated", ()),
    "an EOF is never a terminator": ([TEXT], "eof", "truncated", ()),
    "the proxy hung up": ([TEXT], "closed", "truncated", ()),
    "an HTTP status": ([TEXT], "status", "upstream_error", ()),
    "a cause of a later version": ([TEXT], "a later word", "internal", ()),
    "a finish completes": ([TEXT, STOP], "reset", "completed", ("no_done",)),
    "finish and done": ([TEXT, STOP, DONE], "client_gone", "completed", ()),
    "done alone does not complete here": ([TEXT, DONE], "reset", "truncated", ()),
    "an error wins": ([TEXT, STOP, ERROR], "eof", "upstream_error", ()),
    "each choice that started must finish": ([STOP, TextDelta(n=2, choice=1, text="x")], "eof", "truncated", ()),
    "no stream at all": ([NO_STREAM], "eof", "protocol", ("not_a_stream",)),
    "reset says more": ([NO_STREAM], "reset", "reset", ("not_a_stream",)),
    "a stream, then junk": ([TEXT, NO_STREAM], "eof", "truncated", ("not_a_stream",)),
    "a stream that only began": (
        [ResponseStarted(n=1, id="", model=""), NO_STREAM],
        "eof",
        "truncated",
        ("not_a_stream",),
    ),
    "a tool of its own that only began": ([TOOL, NO_STREAM], "eof", "truncated", ("not_a_stream",)),
    "malformed": ([STARTED, HALF, CLOSED, CALLS], "eof", "completed", ("no_done", "malformed_call")),
    "synthesised needs no done": (
        [ForeignFrame(n=1, why="synthesised"), TEXT, STOP, LENGTH],
        "eof",
        "completed",
        ("synthesised",),
    ),
}


@pytest.mark.parametrize(("events", "cause", "ending", "flags"), ENDINGS.values(), ids=ENDINGS)
def test_an_ending(events: list[Event], cause: str, ending: str, flags: tuple[str, ...]) -> None:
    wire = fold(*events)
    assert (wire.ending(cause), wire.all_flags()) == (ending, flags)


@pytest.mark.parametrize("cause", get_args(Ending))
def test_every_ending_but_two_is_its_own_cause(cause: Ending) -> None:
    """`completed` and `upstream_error` need the upstream's word; a truncation is an `eof`."""
    expected = "internal" if cause in ("completed", "truncated", "upstream_error") else cause
    assert fold(TEXT).ending(cause) == expected


@pytest.mark.parametrize(
    ("events", "state", "reason"),
    [
        ([STARTED], State.ANNOUNCED, ""),
        ([STARTED, ARGUMENTS, CLOSED], State.READY, ""),
        ([STARTED, ARGUMENTS, CLOSED, CLOSED, CALLS], State.RUNNING, ""),
        ([STARTED, HALF, CLOSED, CALLS], State.MALFORMED, "malformed"),
        ([STARTED, CLOSED, CALLS], State.MALFORMED, "malformed"),
        ([STARTED, ARGUMENTS, LENGTH], State.DROPPED, "length"),
        ([ARGUMENTS, CLOSED], State.MALFORMED, "malformed"),
        ([ToolNameDelta(n=1, choice=0, call=0, name="f"), ARGUMENTS, CLOSED], State.READY, ""),
        ([STARTED, Ended(n=4, ending="reset", cause="reset", flags=())], State.DROPPED, "reset"),
    ],
)
def test_the_state_of_a_call(events: list[Event], state: State, reason: str) -> None:
    (call,) = fold(*events).calls()
    assert (call.state, call.reason) == (state, reason)


@pytest.mark.parametrize(("bound", "overflow"), [(3, False), (2, False), (1, True)])
def test_arguments_have_a_bound(bound: int, overflow: bool) -> None:
    wire = fold(STARTED, ARGUMENTS, kept_chars_max=2 * 16_384 + len("cf") + bound)
    assert wire.overflow is overflow
    assert wire.ending("eof") == ("limit" if overflow else "truncated")
    assert next(wire.calls()).arguments == ("" if overflow else "{}")


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_calls_choices_and_names_are_kept_under_the_same_bound(over: int) -> None:
    name = ToolNameDelta(n=2, choice=0, call=0, name="oo")
    wire = fold(STARTED, name, TextDelta(n=3, choice=1, text="x"), kept_chars_max=3 * 16_384 + len("cf") + 2 - over)
    assert wire.overflow is (over > 0)
    assert fold(STARTED, name, kept_chars_max=2 * 16_384 + 3).choices[0].calls[0].name == "f"
    assert fold(TOOL, kept_chars_max=16_384 + len("ccf") - over).overflow is (over > 0)


def test_calls_come_in_order_of_choice() -> None:
    wire = fold(ToolCallStarted(n=1, choice=1, call=0, id="b", name="f"), STARTED)
    assert [(call.choice, call.id) for call in wire.drop(9, "reset")] == [(0, "c"), (1, "b")]


@pytest.mark.parametrize(("text", "closes"), [(" {}", True), ("[1]", True), ("12", False), ("", False)])
def test_a_number_does_not_tell_that_it_is_whole(text: str, closes: bool) -> None:
    wire = fold(STARTED, ToolArgumentsDelta(n=2, choice=0, call=0, text=text))
    assert next(wire.calls()).closes_itself is closes


def test_only_the_first_error_is_kept() -> None:
    assert fold(ERROR, UpstreamError(n=5, message="later", code="")).error is ERROR


def answer(*events: Event) -> Answer:
    summary = StreamSummary()
    summary.take(Record(0, 1, "rest"), fold(*events), events)
    return summary.answer()


def test_surrogate_halves_are_joined_across_deltas() -> None:
    halves: list[Event] = [TextDelta(n=1, choice=0, text="\ud83d"), TextDelta(n=2, choice=0, text="\ude00!")]
    assert answer(*halves).text == "\U0001f600!"
    assert answer(halves[0]).text == "\ufffd"
    many: list[Event] = [ReasoningDelta(n=1, choice=0, text=str(number % 10)) for number in range(1_023)]
    many += [ReasoningDelta(n=2, choice=0, text=half) for half in ("\ud83d", "\ude00")]  # two joined parts
    assert answer(*many).reasoning == "0123456789" * 102 + "012\U0001f600"


def test_call_names_may_come_in_pieces_or_late() -> None:
    events: list[Event] = [
        ToolCallStarted(n=1, choice=0, call=0, id="", name=""),
        ToolCallStarted(n=2, choice=0, call=0, id="c", name="wri"),
        ToolNameDelta(n=3, choice=0, call=0, name="te"),
        ToolCallStarted(n=3, choice=0, call=0, id="x", name="again"),
        *(ToolArgumentsDelta(n=3, choice=0, call=0, text=str(number % 10)) for number in range(3_000)),
        ToolArgumentsDelta(n=4, choice=0, call=2, text="[]"),
        ToolCallStarted(n=5, choice=0, call=1, id="d", name="read"),
    ]
    assert [(call.id, call.name, call.arguments) for call in fold(*events).calls()] == [
        ("c", "write", "0123456789" * 300), ("", "", "[]"), ("d", "read", "")
    ]  # fmt: skip


def test_an_answer_has_its_name_and_its_first_finish() -> None:
    wire = fold(ResponseStarted(n=1, id="chatcmpl-1", model="m"), STOP, LENGTH)
    assert (wire.id, wire.model, wire.choices[0].finish) == ("chatcmpl-1", "m", "stop")
