"""The message fold."""

from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
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
from wiretape.events.folds.message import Message


def fold(*events: Event) -> Message:
    message = Message()
    for event in events:
        message.apply(event)
    return message


def test_an_answer_is_joined_from_its_deltas() -> None:
    message = fold(
        ResponseStarted(n=1, id="chatcmpl-1", model="m"),
        ReasoningDelta(n=1, choice=0, text="hm"),
        TextDelta(n=1, choice=0, text="h"),
        TextDelta(n=2, choice=0, text="i"),
        RefusalDelta(n=2, choice=1, text="no"),
        Finish(n=3, choice=0, reason="stop"),
        Finish(n=4, choice=0, reason="length"),
    )
    assert (message.id, message.model) == ("chatcmpl-1", "m")
    assert (message.text(), message.reasoning(), message.refusal(1), message.choices[0].finish) == (
        "hi",
        "hm",
        "no",
        "stop",
    )
    assert message.calls() == []


def test_surrogate_halves_are_joined_across_deltas() -> None:
    message = fold(TextDelta(n=1, choice=0, text="\ud83d"), TextDelta(n=2, choice=0, text="\ude00!"))
    assert message.text() == "\U0001f600!"
    assert fold(TextDelta(n=1, choice=0, text="\ud83d")).text() == "�"


def test_call_names_may_come_in_pieces_or_late() -> None:
    message = fold(
        ToolCallStarted(n=1, choice=0, call=0, id="", name=""),
        ToolCallStarted(n=2, choice=0, call=0, id="c", name="wri"),
        ToolNameDelta(n=3, choice=0, call=0, name="te"),
        ToolCallStarted(n=3, choice=0, call=0, id="x", name="again"),
        ToolArgumentsDelta(n=3, choice=0, call=0, text="{"),
        ToolArgumentsDelta(n=4, choice=0, call=0, text="}"),
        ToolArgumentsDelta(n=4, choice=0, call=2, text="[]"),
        ToolCallStarted(n=5, choice=0, call=1, id="d", name="read"),
    )
    assert message.calls() == [("c", "write", "{}"), ("d", "read", ""), ("", "", "[]")]


def test_a_new_attempt_starts_from_nothing() -> None:
    message = fold(TextDelta(n=1, choice=0, text="a"), AttemptStarted(n=2), TextDelta(n=3, choice=0, text="b"))
    assert message.text() == "b"


def test_other_events_add_nothing() -> None:
    silent: list[Event] = [
        ToolArgumentsComplete(n=1, choice=0, call=0),
        ToolResultSeen(n=1, id="c", name="f", failed=False, output="", duration_ms=None),
        ToolProgress(n=1, id="c", name="f", status="running"),
        Usage(n=1, counts={}),
        Terminator(n=1),
        UpstreamError(n=1, message="", code=""),
        ForeignFrame(n=1, why="foreign"),
        Repaired(n=1, repair="id"),
        Ended(n=2, ending="completed", cause="eof", flags=()),
    ]
    assert fold(*silent).choices == {}


def test_thousands_of_deltas_are_joined() -> None:
    message = Message()
    for number in range(3_000):
        message.apply(TextDelta(n=number, choice=0, text=str(number)))
    assert message.text() == "".join(map(str, range(3_000)))
    halves = Message()
    for number in range(1_023):
        halves.apply(ReasoningDelta(n=number, choice=0, text="x"))
    for half in ("\ud83d", "\ude00"):  # the first half ends one joined part, the second begins the next
        halves.apply(ReasoningDelta(n=9_999, choice=0, text=half))
    assert halves.reasoning() == "x" * 1_023 + "\U0001f600"
