"""Tool calls of one choice: rows 1 to 31 of the dialect catalogue, and the corners between. All cases synthetic."""

import json
from typing import Any

import pytest

from tests.events.chat.rows import Row, check
from tests.events.chat.rows_calls import ROWS
from tests.support.chat import DONE, Run, call, finish, frame, run, sse, tape, text
from wiretape.events.emit import Emitter
from wiretape.events.lifecycle import State
from wiretape.events.limits import CALLS_IN_A_PIECE_MAX, NAME_CHARS_MAX
from wiretape.events.model import ToolArgumentsDelta, ToolCallStarted

CALLS = finish("tool_calls")
START = call(role=True, index=0, id="a", type="function", name="f", arguments="")


def entries(*given: Any, reason: str | None = None, role: bool = False) -> bytes:
    """A delta with these entries of `tool_calls`."""
    return frame({**({"role": "assistant"} if role else {}), "tool_calls": list(given)}, reason)


def calls(result: Run) -> list[tuple[str, str, str, str]]:
    """Id, name, arguments and state of every call."""
    return [(one.id, one.name, one.arguments, one.state.value) for one in result.wire.calls()]


def chat(*frames: bytes, **settings: Any) -> Run:
    """What comes of these frames, without lifecycle frames."""
    return run(tape(list(frames), tool_events=False, **settings))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_of_the_catalogue(row: Row) -> None:
    check(row)


def test_no_arguments_and_a_last_entry_without_function_get_one() -> None:
    result = chat(START, entries({"index": 0, "extra_content": 1, "function": None}, reason="tool_calls"), DONE)
    assert result.sent[1] == frame(
        {"tool_calls": [{"index": 0, "extra_content": 1, "function": {"arguments": "{}"}}]}, "tool_calls"
    )
    assert calls(result) == [("a", "f", "{}", "running")]


def test_a_delta_without_function_gets_one() -> None:
    """The helper of the SDK for Python asserts that it is there."""
    result = chat(START, entries({"index": 0, "function": None}), call(index=0, arguments="{}"), CALLS, DONE)
    assert result.sent[1] == entries({"index": 0, "function": {}})


@pytest.mark.parametrize(
    "between",
    [[sse({"type": "ping"})], [text("hm")], [call(index=1, id="b", type="function", name="g", arguments='{"y":2}')]],
    ids=["a foreign frame", "text", "another call"],
)
def test_what_may_be_a_seed_or_a_call_of_its_own_never_runs_once_it_is_out(between: list[bytes]) -> None:
    """Q20 or Q8: `{}`, something else, then arguments without id and name. Nobody knows, so nothing runs."""
    whole = call(role=True, index=0, id="a", type="function", name="f", arguments="{}")
    result = chat(whole, *between, call(index=0, arguments='{"x":1}'), CALLS, DONE)
    assert calls(result)[0] == ("a", "f", '{}{"x":1}', "malformed")
    assert not [one for one in result.wire.calls() if one.state.value == "running"]


def test_entries_behind_a_split_go_behind_it_so_that_numbers_rise() -> None:
    two = entries(
        {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"p":1}{"p":2}'}},
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": '{"q"'}, "extra": 1},
        {"index": 1, "function": {"arguments": ":1}"}},
    )
    result = chat(frame({"role": "assistant", "content": ""}), two, CALLS, DONE)
    assert calls(result) == [
        ("a", "f", '{"p":1}', "running"),
        ("call_s1_0_1", "f", '{"p":2}', "running"),
        ("b", "g", '{"q":1}', "running"),
    ]
    sent = [json.loads(one[6:])["choices"][0]["delta"]["tool_calls"] for one in result.sent if b'"tool_calls":[' in one]
    assert [entry["index"] for delta in sent for entry in delta] == [0, 1, 2, 2]
    assert sent[2][0]["extra"] == 1


def test_a_proven_seed_on_the_chunk_of_its_finish_is_the_whole_argument() -> None:
    """The upstream seeds, so `{}` would be dropped and given back: the very bytes pass."""
    seeding = [
        call(role=True, index=0, id="a", type="function", name="f", arguments="{}"),
        call(index=0, arguments="[1]"),
    ]
    last = entries(
        {"index": 1, "id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}}, reason="tool_calls"
    )
    result = chat(*seeding, last, DONE)
    assert result.sent[2] == last
    assert "arguments_empty" not in result.repairs
    assert calls(result) == [("a", "f", "[1]", "running"), ("b", "g", "{}", "running")]


@pytest.mark.parametrize("junk", [None, 5, "x", [], [{}], {}, {"index": 7}, {"function": []}, {"id": 5}], ids=str)
def test_junk_beside_a_call_is_left_out(junk: Any) -> None:
    given = {"index": 0, "id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}}
    result = chat(entries(junk, given, role=True), CALLS, DONE)
    assert result.sent[0] == entries(given, role=True)
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("index", [True, None, "0", -1, 10**30, 1.0, [], {}], ids=str)
def test_an_index_may_be_anything(index: Any) -> None:
    start = {"index": index, "id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}
    goes_on = {"index": index, "function": {"arguments": '{"x":1}'}}
    result = chat(entries(start, role=True), entries(goes_on), CALLS, DONE)
    assert result.sent[0] == START
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("given", [None, 5, True, [], {}, "", "null"], ids=str)
def test_an_id_may_be_anything(given: Any) -> None:
    result = chat(call(role=True, index=0, id=given, type="function", name="f", arguments="[]"), CALLS, DONE)
    assert calls(result) == [("call_s1_0_0", "f", "[]", "running")]


def test_an_id_may_hold_half_a_character() -> None:
    start = call(role=True, index=0, id="a\ud83d", type="function", name="f", arguments="[]")
    again = call(index=1, id="a\ud83d", type="function", name="g", arguments="[]")
    result = chat(start, again, CALLS, DONE)
    assert result.sent[0] == start
    assert [one[0] for one in calls(result)] == ["a\ud83d", "call_s1_0_1"]


@pytest.mark.parametrize("arguments", [True, 0, 1.5, [1], {"x": {}}, [], "  "], ids=str)
def test_arguments_may_be_anything(arguments: Any) -> None:
    result = chat(START, call(index=0, arguments=arguments), CALLS, DONE)
    ((_, _, text, _),) = calls(result)
    assert text.replace(" ", "") == str(arguments).replace("'", '"').replace("True", "true").replace(" ", "")


@pytest.mark.parametrize("name", [None, 5, [], {}, True, ""], ids=str)
def test_a_name_may_be_anything(name: Any) -> None:
    result = chat(call(role=True, index=0, id="a", type="function", name=name), call(index=0, name="f"), CALLS, DONE)
    assert calls(result) == [("a", "f", "{}", "running")]


def test_keys_may_be_escaped_and_repeated() -> None:
    escaped = START.replace(b'"index":0,"id":"a"', b'"index":9,"\\u0069ndex":3,"id":1,"i\\u0064":"a"')
    result = chat(escaped, call(index=3, arguments="[]"), CALLS, DONE)
    assert calls(result) == [("a", "f", "[]", "running")]
    assert b'"index":9,"\\u0069ndex":0,"id":1' in result.sent[0]


def test_without_an_index_a_name_joins_the_call_that_waits_for_it() -> None:
    result = chat(entries({"id": "a"}, role=True), call(name="f", arguments="[]"), CALLS, DONE)
    assert calls(result) == [("a", "f", "[]", "running")]


def test_without_an_index_a_second_call_without_its_name_is_another_one() -> None:
    result = chat(entries({"id": "a"}, role=True), entries({"id": "b"}), CALLS, DONE)
    assert [(one[0], one[3]) for one in calls(result)] == [("a", "malformed"), ("b", "malformed")]


def test_without_an_index_a_known_id_under_another_name_is_another_call() -> None:
    result = chat(
        call(role=True, id="a", name="f", arguments="[]"), call(id="a", name="g", arguments="[]"), CALLS, DONE
    )
    assert calls(result) == [("a", "f", "[]", "running"), ("call_s1_0_1", "g", "[]", "running")]


def test_without_an_index_the_same_name_again_before_any_argument() -> None:
    result = chat(call(role=True, id="a", name="f", arguments=""), call(name="f", arguments="[]"), CALLS, DONE)
    assert calls(result) == [("a", "f", "[]", "running")]


def test_the_same_id_and_another_name_behind_whole_arguments_is_another_call() -> None:
    result = chat(
        call(role=True, index=0, id="a", name="f", arguments="[]"),
        call(index=0, id="a", name="g", arguments="[]"),
        CALLS,
        DONE,
    )
    assert calls(result) == [("a", "f", "[]", "running"), ("call_s1_0_1", "g", "[]", "running")]


def test_what_waits_with_a_call_does_not_overrule_what_comes_with_its_name() -> None:
    result = chat(
        entries({"index": 0, "id": "a", "x": 1, "y": 2}, role=True),
        call(index=0, name="f", arguments="[]", x=3),
        CALLS,
        DONE,
    )
    (start,) = [frame for frame in result.sent if b'"name":"f"' in frame]
    assert b'"y":2' in start
    assert b'"x":3' in start
    assert b'"x":1' not in start


def test_what_waits_with_a_call_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiretape.events.chat.calls.KEPT_CHARS_MAX", 3)
    below = chat(entries({"index": 0, "id": "a"}, role=True), call(index=0, arguments="123"))
    above = chat(
        entries({"index": 0, "id": "a"}, role=True), call(index=0, arguments="123"), call(index=0, arguments="4")
    )
    assert below.of(ToolArgumentsDelta) == []
    assert [event.text for event in above.of(ToolArgumentsDelta)] == ["1234"]
    assert len(above.of(ToolCallStarted)) == 1


@pytest.mark.parametrize("count", [CALLS_IN_A_PIECE_MAX - 1, CALLS_IN_A_PIECE_MAX, CALLS_IN_A_PIECE_MAX + 1])
def test_a_piece_is_split_into_so_many_calls_at_most(count: int) -> None:
    result = chat(call(role=True, index=0, id="a", type="function", name="f", arguments="[]" * count), CALLS, DONE)
    texts = [one[2] for one in calls(result)]
    assert len(texts) == min(count, CALLS_IN_A_PIECE_MAX)
    assert "".join(texts) == "[]" * count
    assert (result.ended.flags == ()) == (count <= CALLS_IN_A_PIECE_MAX)


def test_nothing_is_split_while_a_call_waits_for_its_name() -> None:
    result = chat(
        call(role=True, index=0, id="a", type="function", name="f", arguments="["),
        entries({"index": 1, "id": "b"}),
        call(index=0, arguments="][]"),
        call(index=1, name="g", arguments="[]"),
        CALLS,
        DONE,
    )
    assert [one[:3] for one in calls(result)] == [("a", "f", "[][]"), ("b", "g", "[]")]


def test_ten_thousand_calls_take_no_quadratic_time() -> None:
    """Quadratic work took minutes here."""
    many = 10_000
    whole = [{"function": {"name": f"f{number}", "arguments": {"x": number}}} for number in range(many)]
    one_by_one = [call(role=not number, index=0, id=f"c{number}", name="f", arguments="") for number in range(many)]
    for frames in ([entries(*whole, role=True), CALLS, DONE], [*one_by_one, CALLS, DONE]):
        emitter = Emitter()
        for record in tape(frames):
            emitter.feed(record)
        assert sum(one.state is State.RUNNING for one in emitter.wire.calls()) == many


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_name_in_pieces_has_a_bound(over: int) -> None:
    piece = "x" * (NAME_CHARS_MAX - 1 + over)
    start = call(role=True, index=0, id="a", type="function", name="f", arguments="")
    result = chat(start, call(index=0, name=piece), call(index=0, arguments="{}"), CALLS, DONE)
    assert calls(result)[0][1] == ("f" if over > 0 else "f" + piece)
