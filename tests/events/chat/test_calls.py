"""Tool calls of one choice: the corners between rows 1 to 31 of the dialect catalogue. All cases synthetic."""

import gc
import json
import sys
import weakref
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

import pytest

from tests.support.chat import (
    DONE,
    Run,
    begin,
    call,
    call_entry,
    chunk,
    finish,
    frame,
    run,
    sse,
    tape,
    text,
    tool_calls,
)
from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import CALLS_IN_A_PIECE_MAX, NAME_CHARS_MAX
from wiretape.events.core.model import ToolArgumentsDelta, ToolCallStarted
from wiretape.events.emit import Emitter

CALLS = finish("tool_calls")
START = begin("a", "f", role=True)
#: A start without an index, and one that waits for its name.
OPEN = call(role=True, id="a", type="function", name="f", arguments="[")
WHOLE = call(role=True, id="a", type="function", name="f", arguments="[1]")
WAITS = tool_calls({"index": 0, "id": "a"}, role=True)
A: Final = ("a", "f", "[]")
G: Final = ("call_s1_0_1", "g", "[]")


def calls(result: Run) -> list[tuple[str, str, str, str]]:
    """Id, name, arguments and state of every call."""
    return [(one.id, one.name, one.arguments, one.state.value) for one in result.wire.calls()]


def chat(*frames: bytes, **settings: Any) -> Run:
    """Run these frames without lifecycle frames."""
    return run(tape(list(frames), tool_events=False, **settings))


def texts(result: Run) -> list[str]:
    """Return the arguments of every call."""
    return [one.arguments for one in result.wire.calls()]


def pieces(*arguments: str, **members: Any) -> bytes:
    """One frame with a piece of arguments for each of several calls."""
    return tool_calls(*({**members, "function": {"arguments": piece}} for piece in arguments))


def three(*, with_index: bool = False) -> list[bytes]:
    """The starts of three calls."""
    places = [number if with_index else ABSENT for number in range(3)]
    return [tool_calls(call_entry(f"c{place}", "f", "", places[place]), role=not place) for place in range(3)]


#: The frames, and id, name and arguments of each call that runs.
CASES: Final[Mapping[str, tuple[list[bytes], list[tuple[str, str, str]]]]] = {
    "keys are escaped": ([START.replace(b'"index"', b'"\\u0069ndex"'), call(index=0, arguments="[]")], [A]),
    "a name joins the call that waits for it": (
        [tool_calls({"id": "a"}, role=True), call(name="f", arguments="[]")],
        [A],
    ),
    "a known id under another name is another call": (
        [call(role=True, id="a", name="f", arguments="[]"), call(id="a", name="g", arguments="[]")],
        [A, G],
    ),
    "the same name again before any argument": (
        [call(role=True, id="a", name="f", arguments=""), call(name="f", arguments="[]")],
        [A],
    ),
    "the same id and another name after whole arguments": (
        [call(role=True, index=0, id="a", name="f", arguments="[]"), call(index=0, id="a", name="g", arguments="[]")],
        [A, G],
    ),
    "the last call owns a piece without id, name and index": (
        [*three(), call(arguments="[1]")],
        [("c0", "f", "{}"), ("c1", "f", "{}"), ("c2", "f", "[1]")],
    ),
    "several pieces go by their places": (
        [*three(), pieces("[0]", "[1]", "[2]")],
        [("c0", "f", "[0]"), ("c1", "f", "[1]"), ("c2", "f", "[2]")],
    ),
    "more pieces than calls go to the last one": ([START, pieces("[", "1", ",2", "]")], [("a", "f", "[1,2]")]),
    "a name without arguments after whole ones is another call": (
        [WHOLE, call(name="f", arguments=""), call(arguments="[2]")],
        [("a", "f", "[1]"), ("call_s1_0_1", "f", "[2]")],
    ),
    "a known id finds its call": (
        [*three(), *(call(id=f"c{number}", arguments=f"[{number}]") for number in (1, 0, 2))],
        [("c0", "f", "[0]"), ("c1", "f", "[1]"), ("c2", "f", "[2]")],
    ),
    "a new id goes on in the middle of arguments": ([OPEN, call(id="b", arguments="1]")], [("a", "f", "[1]")]),
    "an id finds its call where another was split off": (
        [
            tool_calls(
                *(call_entry(*one, index=ABSENT) for one in (("a", "f", "[][]"), ("b", "g", "["), ("c", "h", "["))),
                role=True,
            ),
            *(call(id=one, arguments=f"{number}]") for number, one in enumerate("bc")),
        ],
        [A, ("call_s1_0_1", "f", "[]"), ("b", "g", "[0]"), ("c", "h", "[1]")],
    ),
    "without ids the index goes on with the last call that had it": (
        [
            call(role=True, index=0, name="f", arguments="[1]"),
            call(index=0, name="f", arguments="["),
            call(index=0, arguments="2]"),
        ],
        [("call_s1_0_0", "f", "[1]"), ("call_s1_0_1", "f", "[2]")],
    ),
    "the first id that comes is the id": ([WAITS, call(index=0, id="b", name="f", arguments="[]")], [A]),
    "an id comes with the name after the first arguments": (
        [call(role=True, index=0, arguments="["), call(index=0, id="a", name="f", arguments="]")],
        [A],
    ),
    "a call that waits keeps the first name that came": (
        [
            WAITS,
            call(index=1, id="b", name="g", arguments="[1]"),
            tool_calls({"index": 2, "id": "c"}),
            call(index=3, id="d", name="i", arguments="[3]"),
            tool_calls(*({"index": place, "function": {"name": "f", "arguments": "[]"}} for place in (0, 2))),
            call(index=3, name="z", arguments=""),
        ],
        [A, ("b", "g", "[1]"), ("c", "f", "[]"), ("d", "i", "[3]")],
    ),
}


@pytest.mark.parametrize(("frames", "expected"), CASES.values(), ids=CASES)
def test_frames_make_these_calls(frames: list[bytes], expected: list[tuple[str, str, str]]) -> None:
    assert calls(chat(*frames, CALLS, DONE)) == [(*one, "running") for one in expected]


# -- junk -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("junk", [None, 5, "x", [], [{}], {}, {"index": 7}, {"function": []}, {"id": 5}], ids=str)
def test_junk_next_to_a_call_is_left_out(junk: Any) -> None:
    given = call_entry("a", "f", '{"x":1}')
    result = chat(tool_calls(junk, given, role=True), CALLS, DONE)
    assert result.sent[0] == tool_calls(given, role=True)
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("index", [True, None, "0", -1, 10**30, 1.0, [], {}], ids=str)
def test_an_index_may_be_anything(index: Any) -> None:
    goes_on = {"index": index, "function": {"arguments": '{"x":1}'}}
    result = chat(begin("a", "f", "", index, role=True), tool_calls(goes_on), CALLS, DONE)
    assert result.sent[0] == START
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("arguments", [True, 0, 1.5, [1], {"x": {}}, [], "  "], ids=str)
def test_arguments_may_be_anything(arguments: Any) -> None:
    (text,) = texts(chat(START, call(index=0, arguments=arguments), CALLS, DONE))
    assert text.replace(" ", "") == str(arguments).replace("'", '"').replace("True", "true").replace(" ", "")


@pytest.mark.parametrize("given", [None, "", 5, True, 0, [], ["x"], {}, "custom"], ids=str)
def test_a_type_that_is_no_text_is_the_usual_one(given: Any) -> None:
    start = call(role=True, index=0, id="a", type=given, name="f", arguments="[]")
    assert chat(start, CALLS, DONE).sent[0] == (start if given == "custom" else begin("a", "f", "[]", role=True))


def test_keys_may_be_escaped_and_repeated() -> None:
    escaped = START.replace(b'"index":0,"id":"a"', b'"index":9,"\\u0069ndex":3,"id":1,"i\\u0064":"a"')
    result = chat(escaped, call(index=3, arguments="[]"), CALLS, DONE)
    assert calls(result) == [(*A, "running")]
    assert {"reserialised", "key_repeated"} <= set(result.repairs)


# -- which call -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frames", "expected"),
    [
        ([OPEN, call(arguments="]"), call(id="b", arguments="[1]")], ["[]", ""]),
        ([OPEN, call(arguments="]"), call(id="b", arguments="1")], ["[]", ""]),
        ([OPEN, tool_calls({"id": "b"})], ["[", ""]),
        ([tool_calls({"id": "a"}, role=True), tool_calls({"id": "b"})], ["", ""]),
    ],
)
def test_a_new_id_without_a_name_is_another_call(frames: list[bytes], expected: list[str]) -> None:
    assert texts(chat(*frames, CALLS, DONE)) == expected


@pytest.mark.parametrize("between", [sse({"type": "ping"}), text("hm"), begin("b", "g", '{"y":2}', 1)])
def test_possible_seed_never_runs_once_it_was_sent(between: bytes) -> None:
    """Q20 or Q8: `{}`, something else, then arguments without id and name. It is ambiguous, so nothing runs."""
    result = chat(begin("a", "f", "{}", role=True), between, call(index=0, arguments='{"x":1}'), CALLS, DONE)
    assert calls(result)[0] == ("a", "f", '{}{"x":1}', "malformed")
    assert not [one for one in result.wire.calls() if one.state.value == "running"]


# -- what waits -------------------------------------------------------------------------------------------------------


def test_what_waits_with_a_call_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiretape.events.chat.tool_calls.KEPT_CHARS_MAX", 3)
    assert chat(WAITS, call(index=0, arguments="123")).of(ToolArgumentsDelta) == []
    above = chat(WAITS, call(index=0, arguments="123"), call(index=0, arguments="4"))
    assert [event.text for event in above.of(ToolArgumentsDelta)] == ["1234"]
    assert len(above.of(ToolCallStarted)) == 1


@pytest.mark.parametrize("count", [15, 16, 17])
def test_so_many_members_wait_with_a_call(count: int) -> None:
    waits = tool_calls({"index": 0, "id": "a", **{f"x{number}": number for number in range(count)}}, role=True)
    result = chat(waits, call(index=0, name="f", arguments="[]"), CALLS, DONE)
    (start,) = [frame for frame in result.sent if b'"name":"f"' in frame]
    assert start.count(b'"x') == min(count, 16)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_name_in_pieces_has_a_bound(over: int) -> None:
    piece = "x" * (NAME_CHARS_MAX - len("fgh") + over)
    result = chat(begin("a", "fgh", role=True), call(index=0, name=piece), call(index=0, arguments="{}"), CALLS, DONE)
    assert calls(result)[0][1] == ("fgh" if over > 0 else "fgh" + piece)


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize(("text", "last"), [("[]", "waits"), ("[][]", "waits"), ("[][]", "is there")])
def test_calls_follow_the_call_that_they_waited_for(before: int, text: str, last: str) -> None:
    """A call is split only where no call waits after it, so that numbers rise."""
    result = chat(
        *three(with_index=True)[:before],
        tool_calls({"index": 3, "id": "a"}),
        call(index=4, id="b", name="g", arguments="[4]"),
        call(index=5, id="c", name="h", arguments=text),
        *([tool_calls({"index": 6, "id": "d"})] if last == "waits" else []),
        call(index=3, name="f", arguments="[3]"),
        *([call(index=6, name="i", arguments="[6]")] if last == "waits" else []),
        CALLS,
        DONE,
    )
    end = [("h", "[]"), ("h", "[]")] if last == "is there" else [("h", text), ("i", "[6]")]
    assert [one[1:3] for one in calls(result)] == [*[("f", "{}")] * before, ("f", "[3]"), ("g", "[4]"), *end]


# -- arguments --------------------------------------------------------------------------------------------------------


def test_entries_after_a_split_follow_it_so_that_numbers_rise() -> None:
    two = tool_calls(
        call_entry("a", "f", '{"p":1}{"p":2}'),
        {**call_entry("b", "g", '{"q"', 1), "extra": 1},
        {"index": 1, "function": {"arguments": ":1}"}},
    )
    result = chat(frame({"role": "assistant", "content": ""}), two, CALLS, DONE)
    assert texts(result) == ['{"p":1}', '{"p":2}', '{"q":1}']
    sent = [json.loads(one[6:])["choices"][0]["delta"]["tool_calls"] for one in result.sent if b'"tool_calls":[' in one]
    assert [entry["index"] for delta in sent for entry in delta] == [0, 1, 2, 2]
    assert sent[2][0]["extra"] == 1


@pytest.mark.parametrize("count", [CALLS_IN_A_PIECE_MAX - 1, CALLS_IN_A_PIECE_MAX, CALLS_IN_A_PIECE_MAX + 1])
def test_a_piece_is_split_into_so_many_calls_at_most(count: int) -> None:
    result = chat(begin("a", "f", "[]" * count, role=True), CALLS, DONE)
    assert len(texts(result)) == min(count, CALLS_IN_A_PIECE_MAX)
    assert "".join(texts(result)) == "[]" * count
    assert (result.ended.flags == ()) == (count <= CALLS_IN_A_PIECE_MAX)


def test_nothing_is_split_while_a_call_waits_for_its_name() -> None:
    waits = [begin("a", "f", "[", role=True), tool_calls({"index": 1, "id": "b"})]
    result = chat(*waits, call(index=0, arguments="][]"), call(index=1, name="g", arguments="[]"), CALLS, DONE)
    assert [one[:3] for one in calls(result)] == [("a", "f", "[][]"), ("b", "g", "[]")]


@pytest.mark.parametrize("text", ['{}{"x":1}', "{} []"])
def test_an_empty_object_before_more_arguments_is_no_seed(text: str) -> None:
    found = texts(chat(begin("a", "f", text, role=True), CALLS, DONE))
    assert ("".join(found), len(found)) == (text, 2)


@pytest.mark.parametrize(
    ("first", "second", "flagged"),
    [
        ("1234567", "1234567", False),
        ("12345678", "12345678", True),
        ("123456789", "123456789", True),
        ("12345678", "12345679", False),
        ("12345679", "12345678", False),
    ],
)
def test_only_long_pieces_that_are_the_same_look_repeated(first: str, second: str, *, flagged: bool) -> None:
    result = chat(START, *(call(index=0, arguments=piece) for piece in ("[", first, second, "]")), CALLS, DONE)
    assert ("arguments_repeated" in result.repairs) is flagged


def test_replacement_character_of_the_model_damages_no_call() -> None:
    result = chat(begin("a", "f", '{"a":"\ufffd"}', role=True), CALLS)
    assert [one.state for one in result.wire.calls()] == [State.RUNNING]


def work(frames: list[bytes]) -> int:
    """Run the frames, and count the calls of functions and the resumptions of generators."""
    emitter, made = Emitter(), 0

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal made
        made += event == "call"

    records = tape(frames)
    sys.setprofile(count)
    try:
        for record in records:
            emitter.feed(record)
    finally:
        sys.setprofile(None)
    assert all(one.state is State.RUNNING for one in emitter.wire.calls())
    return made


def test_calls_of_one_stream_take_linear_work() -> None:
    def at_once(many: int) -> list[bytes]:
        entries = ({"function": {"name": f"f{number}", "arguments": {"x": number}}} for number in range(many))
        return [tool_calls(*entries, role=True), CALLS, DONE]

    def one_by_one(many: int) -> list[bytes]:
        return [*(call(role=not at, index=0, id=f"c{at}", name="f", arguments="") for at in range(many)), CALLS, DONE]

    for frames in (at_once, one_by_one):
        assert work(frames(800)) <= 2.2 * work(frames(400))


def test_whole_message_begins_no_call_after_one_without_a_name() -> None:
    entries = [{"id": "x"}, {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}]
    whole = chunk({"index": 0, "delta": {}, "message": {"tool_calls": entries}, "finish_reason": "tool_calls"})
    result = run(tape([text("hi", role=True), whole, DONE]))
    assert not list(result.wire.calls())


def test_arguments_of_a_whole_message_are_found_after_an_entry_that_is_no_object() -> None:
    entries = [5, {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}]
    whole = chunk({"index": 0, "delta": {}, "message": {"tool_calls": entries}, "finish_reason": "tool_calls"})
    assert calls(run(tape([START, whole, DONE]))) == [("a", "f", '{"x":1}', "running")]


def test_call_without_arguments_runs_before_the_same_tool_with_an_empty_object() -> None:
    frames = [begin("a", "f", "", role=True), begin("b", "f", "{}"), finish("tool_calls"), DONE]
    calls = run(tape(frames)).wire.calls()
    assert [(call.id, call.arguments, call.state) for call in calls] == [(id_, "{}", State.RUNNING) for id_ in "ab"]


def test_no_call_keeps_its_stream_in_memory() -> None:
    """A cycle of references is freed by a garbage collection alone, and an idle server makes none."""
    seeds = [tool_calls({"index": n, "id": f"c{n}", "function": {"name": "f", "arguments": "{}"}}) for n in range(3)]
    gc.collect()
    gc.disable()
    try:
        emitter = Emitter()
        for record in tape([begin("a", "f", role=True), *seeds, CALLS, DONE]):
            emitter.feed(record)
        wire = weakref.ref(emitter.wire.choice(0).calls[0].text)
        del emitter
        assert wire() is None
    finally:
        gc.enable()
