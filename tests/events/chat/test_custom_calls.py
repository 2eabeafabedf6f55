"""Calls of custom tools, whose input is free text: streamed by OpenAI, in no specification. All cases synthetic."""

import json
from typing import Any

import pytest

from tests.support.chat import DONE, Run, begin, call, finish, frame, run, sse, tape, text
from wiretape.events.chat.chunk import envelope, payloads
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Repaired, ToolCallStarted

CALLS = finish("tool_calls")


def frame_of(*entries: Any, reason: str | None = None) -> bytes:
    """A delta with these entries."""
    return frame(
        {"role": "assistant", "tool_calls": list(entries)} if reason is None else {"tool_calls": [*entries]}, reason
    )


def custom(said: dict[str, Any] | None, **entry: Any) -> bytes:
    """A piece of one."""
    return call(**entry) if said is None else call(**entry, custom=said)


START = custom({"name": "bash", "input": ""}, role=True, index=0, id="a", type="custom")


def more(said: str, index: int = 0) -> bytes:
    """One more piece of its input."""
    return custom({"input": said}, index=index)


def chat(*frames: bytes, **settings: Any) -> Run:
    """What comes of these frames, without lifecycle frames if nothing else is said."""
    settings.setdefault("tool_events", False)
    return run(tape(list(frames), **settings))


def calls(result: Run) -> list[tuple[str, str, str, str]]:
    """Id, name, input and state of every call."""
    return [(one.id, one.name, one.arguments, one.state.value) for one in result.wire.calls()]


@pytest.mark.parametrize("pieces", [["ls"], ["{", "}{"], ["{}", "{}"], ["[1]", "[2]"], ["12345678", "12345678"], []])
@pytest.mark.parametrize("tools", ["live", "held"])
def test_a_custom_call_passes_as_it_came(pieces: list[str], tools: str) -> None:
    frames = [text("hi", role=True), START.replace(b'"role":"assistant",', b""), *map(more, pieces), CALLS, DONE]
    result = chat(*frames, tools=tools)
    assert b"".join(result.sent) == b"".join(frames)
    assert calls(result) == [("a", "bash", "".join(pieces), "running")]
    assert result.ended.ending == "completed"
    assert not {"call_split", "arguments_empty", "arguments_seed"} & set(result.repairs)


def test_two_custom_calls_and_a_function_stay_apart() -> None:
    frames = [
        START,
        custom({"name": "sql", "input": ""}, index=1, id="b", type="custom"),
        begin("c", "f", "", 2),
        more("select", 1),
        call(index=2, arguments='{"a":1}'),
        more("ls"),
        CALLS,
        DONE,
    ]
    result = chat(*frames)
    assert result.sent == frames
    assert [one[:3] for one in calls(result)] == [("a", "bash", "ls"), ("b", "sql", "select"), ("c", "f", '{"a":1}')]


@pytest.mark.parametrize(
    ("came", "sent", "repair"),
    [
        (custom({"input": "ls"}, index=0, id="a"), more("ls"), "call_id_repeated"),
        (custom({"input": "ls", "name": "bash"}, index=0), more("ls"), "name_repeated"),
        (custom({"input": None}, index=0), custom({}, index=0), "arguments_null"),
        (custom({"input": 5}, index=0), more("5"), "arguments_not_text"),
        (custom(None, index=0, extra=1), custom({}, index=0, extra=1), "call_function"),
        (custom({"input": "ls"}, index=7), more("ls"), "call_index"),
        (custom({"input": "ls"}), custom({"input": "ls"}, index=0), "call_index"),
    ],
    ids=["an id again", "a name again", "null", "a number", "metadata", "another index", "no index"],
)
def test_what_sdks_would_trip_over_is_repaired(came: bytes, sent: bytes, repair: str) -> None:
    first = START if b'"index":7' not in came else START.replace(b'[{"index":0,"id"', b'[{"index":7,"id"')
    result = chat(first, came, CALLS, DONE)
    assert json.loads(result.sent[1][6:]) == json.loads(sent[6:])
    assert repair in result.repairs
    assert calls(result)[0][1:2] == ("bash",)


@pytest.mark.parametrize("said", [[], ["rm -rf /"], ["{", "}"]], ids=str)
@pytest.mark.parametrize("tools", ["live", "held"])
def test_one_that_is_cut_is_dropped_and_named(said: list[str], tools: str) -> None:
    result = chat(text("hi", role=True), START.replace(b'"role":"assistant",', b""), *map(more, said), tools=tools)
    assert [one.state for one in result.wire.calls()] == [State.DROPPED]
    assert result.ended.ending == "truncated"
    assert b'"dropped_tools":[{"id":"a","name":"bash"}]' in result.sent[-1]
    assert DONE not in result.sent


def test_a_terminator_alone_does_not_make_a_text_whole() -> None:
    result = chat(START, more("{}"), DONE)
    assert result.ended.ending == "truncated"
    assert [one.state for one in result.wire.calls()] == [State.DROPPED]


def test_a_card_shows_the_text() -> None:
    result = chat(START, more("ls  -la\n/tmp"), CALLS, DONE, tool_events=True)
    card = json.loads(next(sent for sent in result.sent if sent.startswith(b"event:")).partition(b"data: ")[2])
    assert (card["tool"], card["status"], card["label"], card["input"]) == (
        "bash",
        "running",
        "ls -la /tmp",
        "ls  -la\n/tmp",
    )


def test_custom_call_after_a_waiting_call_follows_it() -> None:
    waits = call(role=True, index=0, id="a", type="function", arguments="{")
    second = custom({"name": "sql", "input": "select"}, index=1, id="b", type="custom")
    result = chat(waits, second, call(index=0, name="f", arguments="}"), more(" 1", 1), CALLS, DONE)
    assert calls(result) == [("a", "f", "{}", "running"), ("b", "sql", "select 1", "running")]
    sent = [json.loads(frame[6:])["choices"][0]["delta"].get("tool_calls") for frame in result.sent[:-1]]
    assert sent[3] == [{"index": 1, "id": "b", "type": "custom", "custom": {"name": "sql", "input": "select"}}]


def test_events_of_one_are_written_back_as_one() -> None:
    frames = [START, custom({"name": "_2"}, index=0), more("ls"), CALLS]
    result = chat(*frames)
    events = [event for event in result.events if not isinstance(event, Repaired)]
    written = [sse(json.loads(each)) for each in payloads(events, envelope("chatcmpl-1", "m", 7))]
    assert run(tape(written, tool_events=False)).wire.choices[0].calls[0].arguments == "ls"
    assert written == frames


# -- found by a reader who attacked it ---------------------------------------------------------------------------------

FUNCTION = begin("a", "f", role=True)
SAYS_LS = {"name": "bash", "input": "ls"}


def said(*frames: bytes, finish_frame: bytes = CALLS, **settings: Any) -> list[tuple[str, bool, str, str]]:
    """Name, kind, input and state of every call; and what a client reads from our bytes is the same."""
    result = chat(*frames, finish_frame, DONE, **settings)
    read: dict[int, list[Any]] = {}
    for sent in result.sent:
        if sent == DONE or b'"choices"' not in sent:
            continue
        for entry in json.loads(sent[6:])["choices"][0]["delta"].get("tool_calls", ()):
            assert ("custom" in entry) != ("function" in entry), entry
            assert entry.get("custom", {}).keys() <= {"name", "input"}, entry
            inner = entry.get("custom", entry.get("function"))
            mine = read.setdefault(entry["index"], ["", "custom" in entry, ""])
            assert mine[1] == ("custom" in entry)
            mine[0] += inner.get("name", "")
            mine[2] += inner.get("input", inner.get("arguments", ""))
    calls = list(result.wire.calls())
    announced = [[one.name, one.custom, one.arguments] for one in calls if one.name]
    assert announced == list(read.values())
    return [(one.name, one.custom, one.arguments, one.state.value) for one in calls]


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        # Junk next to what counts.
        ([START, call(index=0, function="x")], [("bash", True, "", "running")]),
        (
            [call(role=True, index=0, id="a", type="custom", function="x", custom=SAYS_LS)],
            [("bash", True, "ls", "running")],
        ),
        (
            [FUNCTION, call(index=0, arguments="{}"), call(index=0, function={}, custom={"name": 5})],
            [("f", False, "{}", "dropped"), ("", True, "", "malformed")],
        ),
        # An empty function next to it, as a program writes whose structure has both.
        (
            [call(role=True, index=0, id="a", type="custom", function={}, custom=SAYS_LS)],
            [("bash", True, "ls", "running")],
        ),
        (
            [call(role=True, index=0, id="a", type="custom", function={"arguments": ""}, custom=SAYS_LS)],
            [("bash", True, "ls", "running")],
        ),
        (
            [call(role=True, index=0, id="a", type="custom", function=None, custom=SAYS_LS)],
            [("bash", True, "ls", "running")],
        ),
        ([call(role=True, index=0, id="a", type="function", custom=SAYS_LS)], [("bash", True, "ls", "running")]),
        (
            [call(role=True, index=0, id="a", type="function", custom=None, name="f", arguments="{}")],
            [("f", False, "{}", "running")],
        ),
        # A function where a custom call was, in small pieces.
        (
            [START, more("ls"), call(index=0, arguments='{"a":'), call(index=0, arguments="1}")],
            [("bash", True, "ls", "dropped"), ("", False, "", "malformed")],
        ),
        # A name and an id of its own, or a name of its own after some input.
        (
            [START, more("ls"), custom({"name": "sql", "input": "select"}, index=0, type="custom")],
            [("bash", True, "ls", "running"), ("sql", True, "select", "running")],
        ),
        (
            [START, more("ls"), custom({"name": "bash", "input": "pwd"}, index=0, id="b", type="custom")],
            [("bash", True, "ls", "running"), ("bash", True, "pwd", "running")],
        ),
        ([START, more("l"), custom({"name": "bash", "input": "s"}, index=0)], [("bash", True, "ls", "running")]),
        # Entries of one list.
        (
            [frame_of({"type": "custom", "custom": SAYS_LS}, {"type": "custom", "custom": SAYS_LS})],
            [("bash", True, "ls", "running"), ("bash", True, "ls", "running")],
        ),
        (
            [frame_of({"index": 0, "custom": SAYS_LS}, {"index": 0, "custom": SAYS_LS})],
            [("bash", True, "ls", "running"), ("bash", True, "ls", "running")],
        ),
        # What waits for its name is nothing yet, or what its member says.
        (
            [call(role=True, index=0, id="a", type="custom"), call(index=0, name="f", arguments='{"a":')],
            [("f", False, '{"a":', "malformed")],
        ),
        (
            [custom({"input": "ls"}, role=True, index=0, id="a"), call(index=0, name="f", arguments="{}")],
            [("", True, "", "malformed"), ("", False, "", "malformed")],
        ),
        ([call(role=True, index=0, id="a"), custom(SAYS_LS, index=0)], [("bash", True, "ls", "running")]),
        # Braces are an input as any other.
        (
            [custom({"name": "bash", "input": "{}"}, role=True, index=0, id="a", type="custom"), more("{}"), more("x")],
            [("bash", True, "{}{}x", "running")],
        ),
        # The type tells where both members say something.
        (
            [
                call(
                    role=True, index=0, id="a", type="custom", function={"name": "f", "arguments": "{}"}, custom=SAYS_LS
                )
            ],
            [("bash", True, "ls", "running")],
        ),
        (
            [
                call(
                    role=True,
                    index=0,
                    id="a",
                    type="function",
                    function={"name": "f", "arguments": "{}"},
                    custom=SAYS_LS,
                )
            ],
            [("f", False, "{}", "running")],
        ),
        # Metadata says nothing of its kind.
        ([FUNCTION, call(index=0, type="custom"), call(index=0, arguments="{}")], [("f", False, "{}", "running")]),
        ([START, call(index=0, type="function"), more("ls")], [("bash", True, "ls", "running")]),
    ],
    ids=range(22),
)
def test_of_which_tool_a_call_is_one_place_decides(frames: list[bytes], expected: list[Any]) -> None:
    assert said(*frames) == expected


def test_a_function_that_was_cut_is_not_made_whole_by_a_custom_piece() -> None:
    frames = [FUNCTION, call(index=0, arguments="{"), call(index=0, function={}, custom={"input": "}"})]
    assert ("f", False, "{", "malformed") in said(*frames)


def test_a_function_without_arguments_gets_its_braces_where_it_has_its_name() -> None:
    last = frame_of({"index": 0, "type": "custom"}, reason="tool_calls")
    assert said(FUNCTION, finish_frame=last) == [("f", False, "{}", "running")]


def test_one_that_waits_is_known_for_what_it_is() -> None:
    result = chat(custom({"input": "ls"}, role=True, index=0, id="a"))
    assert result.of(ToolCallStarted) == [ToolCallStarted(n=2, choice=0, call=0, id="a", name="", custom=True)]


def test_custom_call_after_a_split_follows_it() -> None:
    both = frame_of({"index": 0, "function": {"arguments": "{}{}"}}, {"index": 1, "custom": {"input": "ls"}}, reason="")
    started = custom({"name": "bash", "input": ""}, index=1, id="b", type="custom")
    assert said(FUNCTION, started, both) == [
        ("f", False, "{}", "running"),
        ("bash", True, "ls", "running"),
        ("f", False, "{}", "running"),
    ]
