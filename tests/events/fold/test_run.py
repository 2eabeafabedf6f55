"""The fold of runs: which events the tapes of a run give, and the state after them. Every play checks the laws."""

from typing import Any

import orjson
import pytest

from tests.support.chat import DONE, HEAD, begin, call, finish, frame, sse, text
from tests.support.runs import RUN, TURN_S, Played, outputs, own, play, relayed, start, turn
from wiretape.events.core import model
from wiretape.events.emit import RunReader, emit, events, summarise
from wiretape.events.folds.run import RunFold
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record

USAGE = sse({**HEAD, "choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}})
ANSWER = [text("Hel", role=True), text("lo"), finish(), USAGE, DONE]
WEATHER = [begin("c1", "get_weather", '{"city":', role=True), call(index=0, arguments='"Rome"}')]
ASKS = [*WEATHER, finish("tool_calls"), USAGE, DONE]


def test_a_run_of_text_starts_streams_and_completes() -> None:
    played = play(start(*ANSWER, body={"metadata": {"k": 1}}, session="conversation"))
    assert played.names == ["run.started", "message.delta", "message.delta", "run.completed"]
    assert played.events[0] == {
        "event": "run.started",
        "run_id": RUN,
        "timestamp": 1_700_000_000 + TURN_S + 1e-6,
        "sequence": 1,
        "model": "m",
        "session_id": "conversation",
    }
    usage = {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    assert played.last == {"event": "run.completed", "output": "Hello", "usage": usage}
    run = played.run
    assert (run.run_id, run.status, run.mode, run.model, run.session) == (RUN, "completed", "own", "m", "conversation")
    assert (run.metadata, run.turn, run.streams, run.output, run.usage) == ({"k": 1}, 1, ["s1"], "Hello", usage)
    assert run.created_us == (1_700_000_000 + TURN_S) * 1_000_000 < run.updated_us


def test_events_have_no_line_end_that_only_unicode_knows() -> None:
    """The line reader of httpx splits at them."""
    frames = RunReader().feed(*start(text("a\x85b\u2028c\u2029d\xe9", role=True), finish(), DONE))
    assert [len(frame.decode().splitlines()) for frame in frames] == [3] * len(frames)
    assert [orjson.loads(frame.split(b"data: ")[1]).get("delta") for frame in frames][1] == "a\x85b\u2028c\u2029d\xe9"


def test_a_run_waits_for_its_tools_and_goes_on_with_their_outputs() -> None:
    asked = play(start(*ASKS))
    assert asked.names == ["run.started", "tool.started", "run.waiting_for_tools"]
    assert asked.of("tool.started") == [{"tool": "get_weather", "call_id": "c1", "preview": "Rome"}]
    calls = [{"call_id": "c1", "tool": "get_weather", "arguments": '{"city":"Rome"}'}]
    assert asked.of("run.waiting_for_tools") == [{"calls": calls}]
    assert (asked.run.status, [*asked.run.pending]) == ("waiting_for_tools", ["c1"])

    answered = play(start(*ASKS), outputs(*ANSWER, c1="12 degrees"))
    assert answered.events[:3] == asked.events
    assert answered.names[3:] == ["tool.completed", "message.delta", "message.delta", "run.completed"]
    completed = {"tool": "get_weather", "call_id": "c1", "duration": TURN_S - 0.003, "error": False}
    assert answered.of("tool.completed") == [completed]
    usage = {"input_tokens": 6, "output_tokens": 4, "total_tokens": 10}
    assert answered.last == {"event": "run.completed", "output": "Hello", "usage": usage}
    assert (answered.run.streams, answered.run.turn, answered.run.pending) == (["s1", "s2"], 2, {})


def test_a_cut_stream_fails_the_run_with_the_text_that_came() -> None:
    played = play(start(text("Hel", role=True), cause="reset"))
    error = "The upstream reset the connection before its answer was complete."
    assert played.last == {"event": "run.failed", "error": error, "code": "reset", "output": "Hel"}
    assert (played.run.status, played.run.error) == ("failed", error)


@pytest.mark.parametrize("why", ["asked", "unwatched"])
def test_a_running_turn_that_is_stopped_cancels_the_run(why: str) -> None:
    played = play(start(text("Hel", role=True), ("stop", {"why": why}), cause="client_gone"))
    assert played.last == {"event": "run.cancelled", "reason": why}
    assert played.run.output == "Hel"


@pytest.mark.parametrize(("what", "why"), [("stop", "asked"), ("stop", "unwatched"), ("expired", "waited")])
def test_a_waiting_run_that_is_stopped_is_cancelled(what: str, why: str) -> None:
    played = play(start(*ASKS), turn(2, what, keys={"why": why}, cause="client_gone"))
    assert played.last == {"event": "run.cancelled", "reason": why}
    assert played.run.pending == {}


# -- turns of our own -------------------------------------------------------------------------------------------------


def of(played: Played, *names: str) -> list[dict[str, Any]]:
    """Return the events of these names, without the fields that all have."""
    return [{"event": one["event"], **own(one)} for one in played.events if one["event"] in names]


def test_reasoning_is_whole_once_the_text_begins() -> None:
    thinks = [frame({"role": "assistant", "reasoning_content": "Let me "}), frame({"reasoning_content": "think"})]
    played = play(start(*thinks, text("Hi"), frame({"reasoning_content": "More"}), finish(), DONE))
    said = [*played.of("reasoning.delta"), *played.of("reasoning.available")]
    assert said == [
        {"delta": "Let me "},
        {"delta": "think"},
        {"delta": "More"},
        {"text": "Let me think"},
        {"text": "More"},
    ]
    assert played.names[3:5] == ["reasoning.available", "message.delta"]
    assert play(start(*thinks, *ASKS)).names[3:5] == ["reasoning.available", "tool.started"]
    cut = play(start(*thinks, cause="stalled"))
    assert cut.names[3:] == ["reasoning.available", "run.failed"]
    assert cut.last["error"] == "The upstream sent nothing for too long."


def test_arguments_stream_only_if_they_were_asked_for() -> None:
    body = {"stream_tool_arguments": True}
    deltas = [{"tool": "get_weather", "call_id": "c1", "delta": piece} for piece in ('{"city":', '"Rome"}')]
    assert play(start(*ASKS)).of("tool.arguments.delta") == []
    assert play(start(*ASKS, body=body)).of("tool.arguments.delta") == deltas
    assert play(start(*ASKS, body={"stream_tool_arguments": 1})).of("tool.arguments.delta") == []
    held = play(start(*ASKS, body=body, settings={"tools": "held"}))
    assert held.of("tool.arguments.delta") == [{**deltas[0], "delta": '{"city":"Rome"}'}], "none of a lost attempt"


def test_only_the_first_choice_is_the_answer() -> None:
    other = [
        text("x", index=1),
        frame({"reasoning_content": "r"}, None, 1),
        begin("c9", "f", "{}", choice=1),
        finish("tool_calls", 1),
    ]
    body = {"stream_tool_arguments": True}
    played = play(start(*other, *ANSWER, body=body, choices=2))
    assert played.names == ["run.started", "message.delta", "message.delta", "run.completed"]
    assert play(start(*other, DONE, choices=2)).last == {"event": "run.completed", "output": ""}
    thinks = frame({"role": "assistant", "reasoning_content": "Let me"})
    played = play(start(thinks, *WEATHER, *other[2:], thinks, *ASKS[2:], body=body, choices=2))
    assert played.of("reasoning.available") == [{"text": "Let me"}] * 2
    played = play(start(thinks, other[2], thinks, *WEATHER, *other[2:], *ASKS[2:], body=body, choices=2))
    assert played.of("reasoning.available") == [{"text": "Let meLet me"}]
    assert [one["call_id"] for one in played.of("tool.arguments.delta")] == ["c1", "c1"]


def test_a_refusal_is_the_answer() -> None:
    played = play(start(frame({"role": "assistant", "refusal": "No."}), finish(), DONE))
    assert played.last == {"event": "run.completed", "output": "No."}


def test_the_halves_of_a_character_come_together() -> None:
    halves = [frame({"role": "assistant", "content": b}) for b in ("a\ud83d", "\ude00b", "c\ud83d")]
    played = play(start(*halves, finish(), DONE))
    assert [one["delta"] for one in played.of("message.delta")] == ["a", "😀b", "c", "\ufffd"]
    assert played.last["output"] == "a😀bc\ufffd"
    thinks = [frame({"role": "assistant", "reasoning_content": "x\ud83d"}), text("\ud83d"), text("\ude00")]
    played = play(start(*thinks, finish(), DONE))
    assert [one["delta"] for one in played.of("reasoning.delta")] == ["x", "\ufffd"]
    assert [one["delta"] for one in played.of("message.delta")] == ["😀"]
    call_pieces = [begin("c1", "f", '{"q":"\ud83d', role=True), call(index=0, arguments='\ude00"}')]
    played = play(start(*call_pieces, finish("tool_calls"), DONE, body={"stream_tool_arguments": True}))
    assert [one["delta"] for one in played.of("tool.arguments.delta")] == ['{"q":"', '😀"}']


def test_outputs_complete_their_calls_each_once() -> None:
    two = [begin("c1", "f", "{}", role=True), begin("c2", "g", "{}", 1), begin("c3", "h", "{}", 2)]
    rows = [
        {"call_id": "c2", "output": "", "error": True},
        {"call_id": "c2"},
        {"call_id": "c1", "error": None},
        {"call_id": "else"},
        {"call_id": 7},
        8,
    ]
    asked = start(*two, finish("tool_calls"), DONE)
    played = play(asked, turn(2, "outputs", {"tool_outputs": rows}, ANSWER))
    assert [(one["call_id"], one["error"]) for one in played.of("tool.completed")] == [("c2", True), ("c1", False)]
    assert played.run.pending == {}
    again = play(
        asked, outputs(*two[:1], finish("tool_calls"), DONE, c1="1", c2="2", c3="3"), outputs(c1="4", number=3)
    )
    assert again.names.count("run.waiting_for_tools") == 2
    assert len(again.of("tool.started")) == len(again.of("tool.completed")) == 4


def test_usage_is_absent_if_one_turn_has_none() -> None:
    uncounted = [*ANSWER[:3], DONE]
    assert "usage" not in play(start(*ASKS), outputs(*uncounted, c1="x")).last
    assert "usage" not in play(start(*WEATHER, finish("tool_calls"), DONE), outputs(*ANSWER, c1="x")).last
    stopped = play(start(*ASKS), outputs(text("a", role=True), ("stop", {"why": "asked"}), c1="x"))
    assert stopped.run.usage is None, "the turn that was stopped used tokens too"
    assert play(start(*ASKS), turn(2, "stop")).run.usage == {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}
    for junk in ({"prompt_tokens": True, "completion_tokens": 1}, {"prompt_tokens": -1, "completion_tokens": 1}, {}):
        counted = sse({**HEAD, "choices": [], "usage": junk})
        assert "usage" not in play(start(*ANSWER[:3], counted, DONE)).last
    counted = sse({**HEAD, "choices": [], "usage": {"input_tokens": 1, "output_tokens": 2}})
    assert play(start(*ANSWER[:3], counted, DONE)).last["usage"]["total_tokens"] == 3


LENGTH = "The answer was cut at its output limit"
MALFORMED = "The model made a malformed tool call"
LOST = "(lost tool calls: get_weather)"
#: What the upstream sent, why it ended, and the events from the end on.
ENDS: dict[str, tuple[list[Any], str, list[dict[str, Any]]]] = {
    "text cut by length": (
        [text("a", role=True), finish("length"), DONE],
        "eof",
        [
            {"event": "run.warning", "code": "length", "message": f"{LENGTH}.", "calls": []},
            {"event": "run.completed", "output": "a"},
        ],
    ),
    "a call cut by length": (
        [*WEATHER[:1], finish("length"), DONE],
        "eof",
        [
            {
                "event": "run.warning",
                "code": "length",
                "message": f"{LENGTH} {LOST}.",
                "calls": [{"call_id": "c1", "tool": "get_weather"}],
            },
            {"event": "run.failed", "code": "length", "error": f"{LENGTH} {LOST}."},
        ],
    ),
    "a malformed call": (
        [text("a", role=True), *WEATHER[:1], finish("tool_calls"), DONE],
        "eof",
        [
            {
                "event": "run.warning",
                "code": "malformed",
                "message": f"{MALFORMED} {LOST}.",
                "calls": [{"call_id": "c1", "tool": "get_weather"}],
            },
            {"event": "run.failed", "code": "malformed_call", "error": f"{MALFORMED} {LOST}.", "output": "a"},
        ],
    ),
    "cut inside a call": (
        WEATHER[:1],
        "eof",
        [
            {
                "event": "run.failed",
                "code": "truncated",
                "error": f"The upstream ended its answer before it was complete {LOST}.",
            },
        ],
    ),
    "cut after the hand-over": (
        [*WEATHER, finish("tool_calls")],
        "reset",
        [
            {
                "event": "run.warning",
                "code": "no_done",
                "message": "The answer is marked no_done.",
                "calls": [],
            },
            {
                "event": "run.waiting_for_tools",
                "calls": [{"call_id": "c1", "tool": "get_weather", "arguments": '{"city":"Rome"}'}],
            },
        ],
    ),
    "an error in the stream": (
        [text("a", role=True), sse({"error": {"message": "Overloaded.\nLater", "code": "529"}})],
        "closed",
        [
            {
                "event": "run.failed",
                "code": "upstream_error",
                "error": "The upstream reported an error: Overloaded. Later.",
                "output": "a",
            },
        ],
    ),
    "no connection": (
        [("failed", {"attempt": 1, "ending": "refused", "message": "Connection to 127.0.0.1:9 refused."})],
        "refused",
        [{"event": "run.failed", "code": "refused", "error": "Connection to 127.0.0.1:9 refused."}],
    ),
    "the reason of the last attempt": (
        [
            ("failed", {"attempt": 1, "ending": "refused", "message": "Connection to 127.0.0.1:9 refused."}),
            ("attempt", {"number": 2}),
        ],
        "shutdown",
        [
            {
                "event": "run.failed",
                "code": "shutdown",
                "error": "Wiretape was shut down before the answer was complete.",
            },
        ],
    ),
    "an HTTP error": (
        [
            ("head", {"status": 401}),
            ("body", {}, b'{"error":{"message":"Wrong API key."}}'),
            ("failed", {"attempt": 1, "message": "The upstream answered 401.", "status": 401}),
            ("commit", {"status": 401}, b"{}"),
        ],
        "status",
        [
            {
                "event": "run.failed",
                "code": "upstream_error",
                "error": "The upstream answered 401: Wrong API key.",
            },
        ],
    ),
    "an HTTP error without words": (
        [
            ("head", {"status": 502}),
            ("body", {}, b"<html>"),
            ("failed", {"message": "The upstream answered 502."}),
            ("commit", {"status": 502}, b"{}"),
        ],
        "status",
        [{"event": "run.failed", "code": "upstream_error", "error": "The upstream answered 502."}],
    ),
    "a client that left without a stop": (
        [text("a", role=True)],
        "client_gone",
        [
            {
                "event": "run.failed",
                "code": "client_gone",
                "error": "The run was stopped before its answer was complete.",
                "output": "a",
            },
        ],
    ),
    "a crash before anything": (
        [],
        "crashed",
        [{"event": "run.failed", "code": "crashed", "error": "Wiretape crashed before the answer was complete."}],
    ),
}


@pytest.mark.parametrize(("upstream", "cause", "last"), ENDS.values(), ids=ENDS)
def test_the_end_of_a_turn(upstream: list[Any], cause: str, last: list[dict[str, Any]]) -> None:
    assert of(play(start(*upstream, cause=cause)), *(f"run.{word}" for word in CLOSES)) == last


CLOSES = ("waiting_for_tools", "warning", "completed", "failed", "cancelled")


#: No chat stream hands over a call before its choice finishes; other dialects do.
HANDED_OVER: list[model.Event] = [
    model.ToolCallStarted(n=1, choice=0, call=0, id="c1", name="f"),
    model.ToolArgumentsDelta(n=1, choice=0, call=0, text="{}"),
    model.ToolArgumentsComplete(n=1, choice=0, call=0),
    model.HandedOver(n=1, choice=0, call=0),
]


def folded(*seen: model.Event) -> list[str]:
    """Return the names of the events of a turn with these events, a finish by length and a proper end."""
    fold, wire, caused = RunFold(), Wire(), list[str]()
    end = model.Ended(n=1, ending="completed", cause="eof", flags=())
    for event in (*seen, model.Finish(n=1, choice=0, reason="length"), end):
        wire.apply(event)
        kind = "end" if event is end else "frame"
        caused += [one["event"] for one in fold.take(Record(1, 1, kind), wire, [event])]
    return caused


def test_a_call_that_was_handed_over_before_another_was_cut_is_run() -> None:
    cut = model.ToolCallStarted(n=1, choice=0, call=1, id="c2", name="g")
    assert folded(*HANDED_OVER, cut) == ["run.started", "tool.started", "run.waiting_for_tools"]


def test_arguments_beyond_the_limit_of_what_is_kept_are_left_out() -> None:
    fold, wire = RunFold(), Wire(kept_chars_max=0)
    wire.apply(delta := model.ToolArgumentsDelta(n=1, choice=0, call=0, text="{}"))
    begun = Record(0, 0, "run", {"what": "start"}, b'{"stream_tool_arguments":true}')
    assert [one["event"] for one in fold.take(begun, wire, [])] == ["run.started"]
    assert (fold.take(Record(1, 1, "frame"), wire, [delta]), wire.overflow) == ([], True)


def test_one_malformed_call_keeps_all_calls_of_its_answer_from_being_run() -> None:
    calls = [begin("c1", "f", "{}", role=True), begin("c2", "g", "{", 1)]
    played = play(start(*calls, finish("tool_calls"), DONE))
    assert played.names == ["run.started", "run.warning", "run.warning", "run.failed"]
    assert played.last["code"] == "malformed_call"
    late = play(start(*calls[:1], finish("tool_calls"), calls[1], finish("length"), DONE))
    assert late.names == ["run.started", "tool.started", "run.warning", "run.failed"]
    assert late.last["code"] == "malformed_call"
    assert folded(*HANDED_OVER, model.ToolCallDamaged(n=1, choice=0, call=0))[-1] == "run.failed"


def test_a_stop_wins_over_an_answer_that_is_whole() -> None:
    played = play(start(*ASKS, ("stop", {"why": "junk"}), cause="client_gone"), outputs(*ANSWER, c1="x"))
    assert played.last == {"event": "run.cancelled", "reason": "asked"}
    assert (played.run.status, played.run.streams, played.run.pending) == ("cancelled", ["s1", "s2"], {})


def test_the_states_of_a_run() -> None:
    records = start(text("a", role=True), ("stop", {"why": "asked"}), cause="client_gone")
    states = [play(records[:count]).run.status for count in range(len(records) + 1)]
    assert states == ["started"] * 4 + ["running"] * 2 + ["stopping", "cancelled"]
    second = outputs(*ANSWER, c1="x")
    states = [play(start(*ASKS), second[:count]).run.status for count in range(3)]
    assert states == ["waiting_for_tools", "waiting_for_tools", "running"]


# -- tools of the upstream ---------------------------------------------------------------------------------------------


def progress(status: str, tool: str = "terminal", **more: Any) -> bytes:
    """What hermes-agent reports of its own tools in a chat stream."""
    value = {"tool": tool, "toolCallId": "t1", "status": status, **more}
    return b"event: hermes.tool.progress\n" + sse(value)


def test_tools_that_the_upstream_runs_are_shown() -> None:
    shows = [progress("running", label="ls -la"), text("a", role=True), progress("failed"), finish(), DONE]
    played = play(start(*shows, settings={"hermes": True}))
    assert played.of("tool.started") == [{"tool": "terminal", "call_id": "t1", "preview": "ls -la"}]
    completed = {"tool": "terminal", "call_id": "t1", "duration": 0.002, "error": True}
    assert played.of("tool.completed") == [completed]
    assert played.last == {"event": "run.completed", "output": "a"}
    internal = play(start(progress("running", "_thinking"), *ANSWER, settings={"hermes": True}))
    assert internal.of("tool.started") == []
    unheard = play(start(progress("running"), *ANSWER, settings={"hermes": True}))
    assert unheard.of("run.warning") == [
        {
            "code": "unfinished",
            "message": "The upstream never reported the end of its tool (lost tool calls: terminal).",
            "calls": [{"call_id": "t1", "tool": "terminal"}],
        }
    ]


# -- runs of the upstream's own ----------------------------------------------------------------------------------------


def says(event: str, **fields: Any) -> dict[str, Any]:
    """An event as hermes-agent sends it."""
    return {"event": event, "run_id": "run_other", "timestamp": 7.5, **fields}


def test_the_events_of_a_relayed_run_get_ids() -> None:
    played = play(
        relayed(
            says("message.delta", delta="Let me "),
            b": keepalive\n\n",
            says("tool.started", tool="terminal", preview="ls"),
            says("tool.started", tool="terminal", preview="pwd"),
            says("tool.started", tool="web"),
            says("tool.completed", tool="web", duration=0.25, error=False),
            says("tool.completed", tool="terminal", duration=1, error=True),
            says("tool.completed", tool="terminal"),
            *(says("tool.completed", tool="terminal", duration=junk) for junk in ("long", True, -1, 10**400)),
            says("reasoning.available", text="Let me "),
            says("message.delta", delta="see"),
            says("new.event", delta="see"),
            b"data: [1]\n\n",
            says("run.completed", output="see", usage={"input_tokens": 1, "output_tokens": 2, "total_tokens": 4}),
            b": stream closed\n\n",
            ("upstream_run", {"run_id": "run_other"}),
            session="c",
        )
    )
    ids = [f"call_{RUN[-8:]}_{number}" for number in range(1, 8)]
    assert [(one["call_id"], one["tool"], one["preview"]) for one in played.of("tool.started")] == [
        (ids[0], "terminal", "ls"),
        (ids[1], "terminal", "pwd"),
        (ids[2], "web", ""),
    ]
    assert [(one["call_id"], one["duration"], one["error"]) for one in played.of("tool.completed")] == [
        (ids[2], 0.25, False),
        (ids[0], 1, True),
        (ids[1], 0.004, False),
        *((call_id, 0, False) for call_id in ids[3:]),
    ]
    usage = {"input_tokens": 1, "output_tokens": 2, "total_tokens": 4}
    assert played.last == {"event": "run.completed", "output": "see", "usage": usage}
    assert played.of("reasoning.available") == [{"text": "Let me "}]
    assert played.events[0]["session_id"] == "c"
    assert {event["run_id"] for event in played.events} == {RUN}
    assert (played.run.mode, played.run.output) == ("relay", "see")


def test_a_relayed_run_waits_for_an_approval() -> None:
    asks = says("approval.request", command="rm", choices=["once", "deny"], self=1, sequence=9)
    parts = [asks, ("approval", {"choice": "once"}), says("approval.responded", choice="once", resolved=1)]
    waits = play(relayed(asks)[:-1])
    assert waits.last == {"event": "approval.request", "command": "rm", "choices": ["once", "deny"], "self": 1}
    assert waits.run.status == "waiting_for_approval"
    assert play(relayed(*parts)[:-1]).run.status == "running"
    assert play(relayed(*parts)[:-1]).last == {"event": "approval.responded", "choice": "once", "resolved": 1}
    assert play(relayed(asks, says("message.delta", delta="x"))[:-1]).run.status == "running"
    stopped = play(relayed(("stop", {"why": "asked"}), asks, says("approval.responded", choice="x", resolved=-1))[:-1])
    assert stopped.run.status == "stopping"
    assert stopped.last == {"event": "approval.responded", "choice": "x"}


RECOVERED = b'{"status":"completed","output":"all","usage":{"input_tokens":1,"output_tokens":1}}'
#: Parts of a relayed run, why it ended, and its closing event.
RELAYED: dict[str, tuple[list[Any], str, dict[str, Any]]] = {
    "the upstream failed": (
        [says("message.delta", delta="a"), says("run.failed", error="No model.")],
        "eof",
        {
            "event": "run.failed",
            "error": "The upstream reported an error: No model.",
            "code": "upstream_error",
            "output": "a",
        },
    ),
    "it failed without words": (
        [says("run.failed", error=7)],
        "eof",
        {"event": "run.failed", "error": "The upstream reported an error.", "code": "upstream_error"},
    ),
    "it was stopped through us": (
        [("stop", {"why": "unwatched"}), says("run.cancelled")],
        "eof",
        {"event": "run.cancelled", "reason": "unwatched"},
    ),
    "it was cancelled there": ([says("run.cancelled")], "eof", {"event": "run.cancelled", "reason": "upstream"}),
    "it completed without output": ([says("run.completed")], "eof", {"event": "run.completed", "output": ""}),
    "no closing event": (
        [says("message.delta", delta="a")],
        "eof",
        {
            "event": "run.failed",
            "error": "The upstream ended its answer before it was complete.",
            "code": "truncated",
            "output": "a",
        },
    ),
    "a reset": (
        [],
        "reset",
        {
            "event": "run.failed",
            "error": "The upstream reset the connection before its answer was complete.",
            "code": "reset",
        },
    ),
    "junk for an ending": (
        [],
        "junk",
        {
            "event": "run.failed",
            "error": "Wiretape failed on this run; its tape holds what came before.",
            "code": "internal",
        },
    ),
    "recovered": (
        [("recovered", {}, b'{"status":"running"}'), ("recovered", {}, RECOVERED)],
        "reset",
        {
            "event": "run.completed",
            "output": "all",
            "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
            "recovered": True,
        },
    ),
    "recovered, failed": (
        [("recovered", {}, b'{"status":"failed","error":{"message":"x"}}')],
        "reset",
        {
            "event": "run.failed",
            "error": "The upstream reported an error: x.",
            "code": "upstream_error",
            "recovered": True,
        },
    ),
    "recovered, cancelled": (
        [("recovered", {}, b'{"status":"cancelled"}')],
        "reset",
        {"event": "run.cancelled", "reason": "upstream", "recovered": True},
    ),
    "recovered, junk": (
        [("recovered", {}, b"[]"), ("recovered", {}), ("stop", {})],
        "reset",
        {"event": "run.cancelled", "reason": "asked"},
    ),
}


@pytest.mark.parametrize(("parts", "cause", "last"), RELAYED.values(), ids=RELAYED)
def test_the_end_of_a_relayed_run(parts: list[Any], cause: str, last: dict[str, Any]) -> None:
    assert play(relayed(*parts, cause=cause)).last == last


def test_the_words_of_an_upstream_are_one_short_line() -> None:
    error = play(relayed(says("run.failed", error="No\n model\ud83d" + " x" * 9_000))).last["error"]
    assert error.startswith("The upstream reported an error: No model\ufffd x x")
    assert len(error) < 2_100


def test_reasoning_of_a_relayed_run_is_whole_once() -> None:
    played = play(
        relayed(says("reasoning.delta", delta="a"), says("reasoning.available", text="ab"), says("run.failed"))
    )
    assert played.names == ["run.started", "reasoning.delta", "reasoning.available", "run.failed"]
    played = play(relayed(says("reasoning.delta", delta="a"), says("reasoning.available", text="ab")))
    assert played.names == ["run.started", "reasoning.delta", "reasoning.available", "run.failed"]
    played = play(relayed(says("reasoning.delta", delta="a")))
    assert played.names == ["run.started", "reasoning.delta", "reasoning.available", "run.failed"]


# -- other readers of these tapes --------------------------------------------------------------------------------------


@pytest.mark.parametrize("upstream", [ANSWER, ASKS, WEATHER, ENDS["an HTTP error"][0]])
def test_the_records_of_runs_change_no_stream(upstream: list[Any]) -> None:
    kinds = ["run", "stop", "upstream_run", "approval", "recovered"]
    plain = [record for record in start(*upstream) if record.kind != "run"]
    noted = [more for record in plain for more in (record, *(Record(0, record.t, kind, raw=b"{}") for kind in kinds))]
    assert emit(noted) == emit(plain)
    assert [*events(noted)] == [*events(plain)]
    with_them, without = summarise(noted[:-5]), summarise(plain)
    assert with_them.warnings == without.warnings
    assert (with_them.ending, with_them.flags, with_them.attempts, with_them.received, with_them.answers) == (
        without.ending,
        without.flags,
        without.attempts,
        without.received,
        without.answers,
    )


def test_a_tape_of_a_waiting_run_that_crashed_before_its_outputs_changes_nothing() -> None:
    crashed = turn(2, "outputs", cause="crashed")
    waits = play(start(*ASKS), [record for record in crashed if record.kind != "run"])
    assert (waits.run.status, waits.names) == ("waiting_for_tools", play(start(*ASKS)).names)
    assert play(start(*ASKS), crashed[:1], outputs(*ANSWER, c1="x", number=3)).last["event"] == "run.completed"
    assert play(start(*ASKS), crashed).last["code"] == "crashed"


@pytest.mark.parametrize(
    "junk", [b"", b"[]", b"{", b'{\n"model": "m"\n}', b'{"model":7,"metadata":[],"tool_outputs":{}}']
)
def test_a_body_may_be_anything(junk: bytes) -> None:
    started = play(turn(1, "start", junk, ANSWER))
    assert started.names[-1] == "run.completed"
    assert started.run.model == ("m" if b"\n" in junk else "")
    assert play(start(*ASKS), turn(2, "outputs", junk, ANSWER)).names[-1] == "run.completed"


@pytest.mark.parametrize("created", [-1, 10**400, True, "7", None])
def test_a_time_that_is_junk_is_the_start_of_all_times(created: Any) -> None:
    assert play(start(*ANSWER, created_us=created)).events[0]["timestamp"] == 1e-6


def test_time_that_runs_backwards_gives_no_negative_duration() -> None:
    earlier = [record._replace(keys={**record.keys, "created_us": 5}) for record in outputs(*ANSWER, c1="x")[:1]]
    played = play(start(*ASKS), [*earlier, *outputs(*ANSWER, c1="x")[1:]])
    assert played.of("tool.completed")[0]["duration"] == 0


def test_a_call_beyond_the_limit_of_calls_fails_the_run() -> None:
    pieces = [begin(f"c{number}", "f", "{", number) for number in range(1_100)]
    played = play(start(*pieces, body={"stream_tool_arguments": True}))
    assert played.last["code"] == "limit"
    assert len(played.last["error"]) < 3_000
