"""The live fold: ending, open calls and flags, event by event."""

from typing import Any, get_args

import pytest

from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Ending,
    Event,
    Finish,
    ForeignFrame,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
    ToolResultSeen,
    UpstreamError,
    Usage,
)
from wiretape.events.folds.wire import Wire

STARTED = ToolCallStarted(n=1, choice=0, call=0, id="c", name="f")
ARGUMENTS = ToolArgumentsDelta(n=2, choice=0, call=0, text="{}")
HALF = ToolArgumentsDelta(n=2, choice=0, call=0, text="{")
CLOSED = ToolArgumentsComplete(n=3, choice=0, call=0)
TEXT = TextDelta(n=1, choice=0, text="hi")
STOP = Finish(n=3, choice=0, reason="stop")
CALLS = Finish(n=3, choice=0, reason="tool_calls")
LENGTH = Finish(n=3, choice=0, reason="length")
DONE = Terminator(n=4)
ERROR = UpstreamError(n=4, message="no", code="500")


def fold(*events: Event, **bounds: Any) -> Wire:
    wire = Wire(**bounds)
    for event in events:
        wire.apply(event)
    return wire


@pytest.mark.parametrize(
    ("events", "cause", "ending", "flags"),
    [
        pytest.param([], "eof", "truncated", (), id="nothing came"),
        pytest.param([TEXT], "eof", "truncated", (), id="an EOF is never a terminator"),
        pytest.param([TEXT], "reset", "reset", (), id="reset"),
        pytest.param([TEXT], "stalled", "stalled", (), id="stalled"),
        pytest.param([TEXT], "closed", "truncated", (), id="we hung up"),
        pytest.param([TEXT], "status", "upstream_error", (), id="an HTTP status"),
        pytest.param([TEXT], "a later word", "internal", (), id="a cause of a later version"),
        pytest.param([TEXT, STOP], "reset", "completed", ("no_done",), id="a finish completes, whatever follows"),
        pytest.param([TEXT, STOP, DONE], "client_gone", "completed", (), id="finish and done"),
        pytest.param([TEXT, DONE], "reset", "truncated", (), id="done alone does not complete here"),
        pytest.param([TEXT, STOP, ERROR], "eof", "upstream_error", (), id="an error wins"),
        pytest.param(
            [STOP, TextDelta(n=2, choice=1, text="x")],
            "eof",
            "truncated",
            (),
            id="each choice that started must finish",
        ),
        pytest.param(
            [ForeignFrame(n=1, why="not_a_stream")], "eof", "protocol", ("not_a_stream",), id="no stream at all"
        ),
        pytest.param(
            [ForeignFrame(n=1, why="not_a_stream")], "reset", "reset", ("not_a_stream",), id="reset says more"
        ),
        pytest.param(
            [TEXT, ForeignFrame(n=2, why="not_a_stream")],
            "eof",
            "truncated",
            ("not_a_stream",),
            id="a stream, then junk",
        ),
        pytest.param(
            [ResponseStarted(n=1, id="", model=""), ForeignFrame(n=2, why="not_a_stream")],
            "eof",
            "truncated",
            ("not_a_stream",),
            id="a stream that only began",
        ),
        pytest.param([STARTED, HALF, CLOSED, CALLS], "eof", "completed", ("no_done", "malformed_call"), id="malformed"),
    ],
)
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
        pytest.param([STARTED], State.ANNOUNCED, "", id="announced"),
        pytest.param([STARTED, ARGUMENTS, CLOSED], State.READY, "", id="closed with JSON"),
        pytest.param([STARTED, ARGUMENTS, CLOSED, CLOSED, CALLS], State.RUNNING, "", id="handed over"),
        pytest.param([STARTED, HALF, CLOSED, CALLS], State.MALFORMED, "malformed", id="not JSON"),
        pytest.param([STARTED, CLOSED, CALLS], State.MALFORMED, "malformed", id="no arguments at all"),
        pytest.param([STARTED, ARGUMENTS, LENGTH], State.DROPPED, "length", id="ended by length, whole or not"),
        pytest.param(
            [HALF, ToolArgumentsDelta(n=3, choice=0, call=0, text="}"), CLOSED],
            State.MALFORMED,
            "malformed",
            id="no name",
        ),
        pytest.param(
            [ToolNameDelta(n=1, choice=0, call=0, name="f"), ARGUMENTS, CLOSED], State.READY, "", id="never announced"
        ),
        pytest.param(
            [STARTED, Ended(n=4, ending="reset", cause="reset", flags=())],
            State.DROPPED,
            "reset",
            id="the stream ended",
        ),
    ],
)
def test_the_state_of_a_call(events: list[Event], state: State, reason: str) -> None:
    (call,) = fold(*events).calls()
    assert (call.state, call.reason) == (state, reason)


def test_a_malformed_call_takes_its_siblings_along() -> None:
    other: list[Event] = [
        ToolCallStarted(n=2, choice=0, call=1, id="d", name="g"),
        ToolArgumentsDelta(n=2, choice=0, call=1, text="{}"),
    ]
    wire = fold(STARTED, HALF, *other, CLOSED, ToolArgumentsComplete(n=3, choice=0, call=1), CALLS)
    assert [call.state for call in wire.calls()] == [State.MALFORMED, State.DROPPED]
    assert [call.number for call in wire.malformed_calls] == [0]


def test_a_name_may_come_later_and_in_pieces() -> None:
    nameless = ToolCallStarted(n=1, choice=0, call=0, id="c", name="")
    wire = fold(nameless, STARTED, STARTED, ToolNameDelta(n=2, choice=0, call=0, name="oo"))
    (call,) = wire.calls()
    assert (call.id, call.name, call.internal) == ("c", "foo", False)


def test_calls_come_in_order_of_choice() -> None:
    wire = fold(ToolCallStarted(n=1, choice=1, call=0, id="b", name="f"), STARTED)
    assert [(call.choice, call.id) for call in wire.open_calls] == [(0, "c"), (1, "b")]


@pytest.mark.parametrize(("bound", "overflow"), [(3, False), (2, False), (1, True)])
def test_arguments_have_a_bound(bound: int, overflow: bool) -> None:
    wire = fold(STARTED, ARGUMENTS, kept_chars_max=2 * 1_024 + len("cf") + bound)
    assert wire.overflow is overflow
    assert wire.ending("eof") == ("limit" if overflow else "truncated")
    assert next(wire.calls()).arguments == ("" if overflow else "{}")


def test_arguments_in_very_many_pieces_are_joined_in_between() -> None:
    wire = fold(STARTED, *(ToolArgumentsDelta(n=2, choice=0, call=0, text=str(i % 10)) for i in range(3_000)))
    assert next(wire.calls()).arguments == "0123456789" * 300


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_calls_choices_and_names_are_kept_under_the_same_bound(over: int) -> None:
    name = ToolNameDelta(n=2, choice=0, call=0, name="oo")
    wire = fold(STARTED, name, TextDelta(n=3, choice=1, text="x"), kept_chars_max=3 * 1_024 + len("cf") + 2 - over)
    assert wire.overflow is (over > 0)
    assert fold(STARTED, name, kept_chars_max=2 * 1_024 + 3).choices[0].calls[0].name == "f"


def test_a_new_attempt_starts_from_nothing() -> None:
    wire = fold(STARTED, ERROR, AttemptStarted(n=5), TEXT)
    assert (list(wire.calls()), wire.error, wire.ending("eof")) == ([], None, "truncated")


@pytest.mark.parametrize(("text", "closes"), [(" {}", True), ("[1]", True), ("12", False), ("", False)])
def test_a_number_does_not_tell_that_it_is_whole(text: str, closes: bool) -> None:
    wire = fold(STARTED, ToolArgumentsDelta(n=2, choice=0, call=0, text=text))
    assert next(wire.calls()).closes_itself is closes


def test_an_answer_that_was_no_stream_needs_no_done() -> None:
    assert fold(ForeignFrame(n=1, why="synthesised"), TEXT, STOP).all_flags() == ("synthesised",)


def test_a_second_finish_changes_nothing() -> None:
    assert fold(TEXT, STOP, LENGTH).choices[0].finish == "stop"


def test_only_the_first_error_is_kept() -> None:
    assert fold(ERROR, UpstreamError(n=5, message="later", code="")).error is ERROR


def test_what_does_not_concern_the_wire_changes_nothing() -> None:
    others: list[Event] = [
        Usage(n=1, counts={}),
        ToolResultSeen(n=1, id="c", name="f", failed=False, output="", duration_ms=None),
        ToolProgress(n=1, id="c", name="f", status="running"),
        Repaired(n=1, repair="id"),
    ]
    wire = fold(*others)
    assert (wire.choices, wire.flags, wire.content) == ({}, {}, False)


@pytest.mark.parametrize(
    "event", [TEXT, ReasoningDelta(n=1, choice=0, text="x"), RefusalDelta(n=1, choice=0, text="x"), STARTED]
)
def test_what_counts_as_content(event: Event) -> None:
    assert fold(event).content
