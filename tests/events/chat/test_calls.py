"""Tool calls of one choice: rows 1 to 31 of the dialect catalogue, and the corners between. All cases synthetic."""

import json
from typing import Any

import pytest

from tests.events.chat.rows import Row, check
from tests.events.chat.rows_calls import ROWS
from tests.support.chat import DONE, Run, begin, call, call_entry, finish, frame, run, sse, tape, text, tool_calls
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import CALLS_IN_A_PIECE_MAX, NAME_CHARS_MAX
from wiretape.events.core.model import ToolArgumentsDelta, ToolCallStarted
from wiretape.events.emit import Emitter

CALLS = finish("tool_calls")
START = begin("a", "f", role=True)


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
    assert result.sent[1] == tool_calls(
        {"index": 0, "extra_content": 1, "function": {"arguments": "{}"}}, reason="tool_calls"
    )
    assert calls(result) == [("a", "f", "{}", "running")]


def test_a_delta_without_function_gets_one() -> None:
    """The helper of the SDK for Python asserts that it is there."""
    result = chat(START, entries({"index": 0, "function": None}), call(index=0, arguments="{}"), CALLS, DONE)
    assert result.sent[1] == entries({"index": 0, "function": {}})


@pytest.mark.parametrize(
    "between",
    [[sse({"type": "ping"})], [text("hm")], [begin("b", "g", '{"y":2}', 1)]],
    ids=["a foreign frame", "text", "another call"],
)
def test_what_may_be_a_seed_or_a_call_of_its_own_never_runs_once_it_is_out(between: list[bytes]) -> None:
    """Q20 or Q8: `{}`, something else, then arguments without id and name. Nobody knows, so nothing runs."""
    whole = begin("a", "f", "{}", role=True)
    result = chat(whole, *between, call(index=0, arguments='{"x":1}'), CALLS, DONE)
    assert calls(result)[0] == ("a", "f", '{}{"x":1}', "malformed")
    assert not [one for one in result.wire.calls() if one.state.value == "running"]


def test_entries_behind_a_split_go_behind_it_so_that_numbers_rise() -> None:
    two = entries(
        call_entry("a", "f", '{"p":1}{"p":2}'),
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
    seeding = [begin("a", "f", "{}", role=True), call(index=0, arguments="[1]")]
    last = entries(call_entry("b", "g", "{}", 1), reason="tool_calls")
    result = chat(*seeding, last, DONE)
    assert result.sent[2] == last
    assert "arguments_empty" not in result.repairs
    assert calls(result) == [("a", "f", "[1]", "running"), ("b", "g", "{}", "running")]


@pytest.mark.parametrize("junk", [None, 5, "x", [], [{}], {}, {"index": 7}, {"function": []}, {"id": 5}], ids=str)
def test_junk_beside_a_call_is_left_out(junk: Any) -> None:
    given = call_entry("a", "f", '{"x":1}')
    result = chat(entries(junk, given, role=True), CALLS, DONE)
    assert result.sent[0] == entries(given, role=True)
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("index", [True, None, "0", -1, 10**30, 1.0, [], {}], ids=str)
def test_an_index_may_be_anything(index: Any) -> None:
    start = call_entry("a", "f", "", index)
    goes_on = {"index": index, "function": {"arguments": '{"x":1}'}}
    result = chat(entries(start, role=True), entries(goes_on), CALLS, DONE)
    assert result.sent[0] == START
    assert calls(result) == [("a", "f", '{"x":1}', "running")]


@pytest.mark.parametrize("given", [None, 5, True, [], {}, "", "null"], ids=str)
def test_an_id_may_be_anything(given: Any) -> None:
    result = chat(begin(given, "f", "[]", role=True), CALLS, DONE)
    assert calls(result) == [("call_s1_0_0", "f", "[]", "running")]


def test_an_id_may_hold_half_a_character() -> None:
    start = begin("a\ud83d", "f", "[]", role=True)
    again = begin("a\ud83d", "g", "[]", 1)
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
    assert {"reserialised", "key_repeated"} <= set(result.repairs)


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
    monkeypatch.setattr("wiretape.events.chat.tool_calls.KEPT_CHARS_MAX", 3)
    below = chat(entries({"index": 0, "id": "a"}, role=True), call(index=0, arguments="123"))
    above = chat(
        entries({"index": 0, "id": "a"}, role=True), call(index=0, arguments="123"), call(index=0, arguments="4")
    )
    assert below.of(ToolArgumentsDelta) == []
    assert [event.text for event in above.of(ToolArgumentsDelta)] == ["1234"]
    assert len(above.of(ToolCallStarted)) == 1


@pytest.mark.parametrize("count", [CALLS_IN_A_PIECE_MAX - 1, CALLS_IN_A_PIECE_MAX, CALLS_IN_A_PIECE_MAX + 1])
def test_a_piece_is_split_into_so_many_calls_at_most(count: int) -> None:
    result = chat(begin("a", "f", "[]" * count, role=True), CALLS, DONE)
    texts = [one[2] for one in calls(result)]
    assert len(texts) == min(count, CALLS_IN_A_PIECE_MAX)
    assert "".join(texts) == "[]" * count
    assert (result.ended.flags == ()) == (count <= CALLS_IN_A_PIECE_MAX)


def test_nothing_is_split_while_a_call_waits_for_its_name() -> None:
    result = chat(
        begin("a", "f", "[", role=True),
        entries({"index": 1, "id": "b"}),
        call(index=0, arguments="][]"),
        call(index=1, name="g", arguments="[]"),
        CALLS,
        DONE,
    )
    assert [one[:3] for one in calls(result)] == [("a", "f", "[][]"), ("b", "g", "[]")]


@pytest.mark.slow
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
    piece = "x" * (NAME_CHARS_MAX - len("fgh") + over)
    start = begin("a", "fgh", role=True)
    result = chat(start, call(index=0, name=piece), call(index=0, arguments="{}"), CALLS, DONE)
    assert calls(result)[0][1] == ("fgh" if over > 0 else "fgh" + piece)


# -- which call -------------------------------------------------------------------------------------------------------


def three(*, with_index: bool = False) -> list[bytes]:
    """The starts of three calls."""
    places = [{"index": number} if with_index else {} for number in range(3)]
    return [
        call(role=not number, **places[number], id=f"c{number}", type="function", name="f", arguments="")
        for number in range(3)
    ]


def texts(result: Run) -> list[str]:
    """The arguments of every call."""
    return [one.arguments for one in result.wire.calls()]


def test_without_anything_that_tells_a_piece_goes_to_the_last_call() -> None:
    assert texts(chat(*three(), call(arguments="[1]"), CALLS, DONE)) == ["{}", "{}", "[1]"]


def test_without_anything_that_tells_several_pieces_go_by_their_places() -> None:
    pieces = entries(*({"function": {"arguments": f"[{number}]"}} for number in range(3)))
    assert texts(chat(*three(), pieces, CALLS, DONE)) == ["[0]", "[1]", "[2]"]


def test_more_pieces_than_calls_go_to_the_last_one() -> None:
    pieces = entries(*({"function": {"arguments": piece}} for piece in ("[", "1", ",2", "]")))
    assert texts(chat(START, pieces, CALLS, DONE)) == ["[1,2]"]


@pytest.mark.parametrize("name", ["e", "g"])
@pytest.mark.parametrize("begun", ["", "["], ids=["before any argument", "in the middle of the arguments"])
def test_without_an_index_another_name_is_another_call(name: str, begun: str) -> None:
    first = call(role=True, id="a", type="function", name="f", arguments=begun)
    result = chat(first, call(name=name, arguments="[1]"), CALLS, DONE)
    assert [one[1:3] for one in calls(result)] == [("f", begun or "{}"), (name, "[1]")]


def test_without_an_index_a_name_without_arguments_behind_whole_ones_is_another_call() -> None:
    first = call(role=True, id="a", type="function", name="f", arguments="[1]")
    result = chat(first, call(name="f", arguments=""), call(arguments="[2]"), CALLS, DONE)
    assert texts(result) == ["[1]", "[2]"]


@pytest.mark.parametrize(("begun", "further"), [("[1]", "1"), ("[1]", ""), ("", "")])
def test_without_an_index_the_same_name_goes_on_only_with_arguments_that_are_due(begun: str, further: str) -> None:
    first = call(role=True, id="a", type="function", name="f", arguments=begun)
    result = chat(first, call(name="f", arguments=further), CALLS, DONE)
    assert texts(result) == [begun or "{}", further or "{}"]


def test_without_an_index_a_known_id_finds_its_call() -> None:
    pieces = [call(id=f"c{number}", arguments=f"[{number}]") for number in (1, 0, 2)]
    assert texts(chat(*three(), *pieces, CALLS, DONE)) == ["[0]", "[1]", "[2]"]


def test_without_an_index_a_new_id_goes_on_only_in_the_middle_of_arguments() -> None:
    first = call(role=True, id="a", type="function", name="f", arguments="[")
    assert texts(chat(first, call(id="b", arguments="1]"), CALLS, DONE)) == ["[1]"]
    assert texts(chat(first, call(arguments="]"), call(id="b", arguments="[1]"), CALLS, DONE)) == ["[]", ""]
    assert texts(chat(first, call(arguments="]"), call(id="b", arguments="1"), CALLS, DONE)) == ["[]", ""]
    assert len(calls(chat(first, entries({"id": "b"}), CALLS, DONE))) == 2


def test_without_an_index_an_id_finds_its_call_also_where_that_was_split_off() -> None:
    together = entries(
        call_entry("a", "f", "[][]", index=None),
        call_entry("b", "g", "[", index=None),
        call_entry("c", "h", "[", index=None),
        role=True,
    )
    pieces = [call(id=one, arguments=f"{number}]") for number, one in enumerate("bc")]
    assert texts(chat(together, *pieces, CALLS, DONE)) == ["[]", "[]", "[0]", "[1]"]


def test_without_ids_the_index_goes_on_with_the_last_call_that_had_it() -> None:
    pieces = [call(role=True, index=0, name="f", arguments="[1]"), call(index=0, name="f", arguments="[")]
    assert texts(chat(*pieces, call(index=0, arguments="2]"), CALLS, DONE)) == ["[1]", "[2]"]


@pytest.mark.parametrize("other", ["c0", "c2"])
def test_an_id_seen_at_another_index_says_nothing(other: str) -> None:
    result = chat(*three(with_index=True), call(index=1, id=other, arguments="[1]"), CALLS, DONE)
    assert texts(result) == ["{}", "[1]", "{}"]


@pytest.mark.parametrize("index", [0, 1_000])
def test_calls_that_take_turns_at_one_index_are_told_apart_by_their_ids(index: int) -> None:
    starts = [begin(one, name, "", index, role=one == "a") for one, name in (("a", "f"), ("b", "g"))]
    pieces = [
        call(index=index, id=one, arguments=piece) for one, piece in (("a", "["), ("b", "{"), ("a", "]"), ("b", "}"))
    ]
    assert texts(chat(*starts, *pieces, CALLS, DONE)) == ["[]", "{}"]


@pytest.mark.parametrize("given", ["a", "nul", "null0", "zebra", "NULL"])
def test_any_text_but_null_is_an_id(given: str) -> None:
    start = begin(given, "f", "[]", role=True)
    assert chat(start, CALLS, DONE).sent[0] == start


# -- what waits -------------------------------------------------------------------------------------------------------


def test_the_first_id_that_comes_is_the_id() -> None:
    result = chat(
        entries({"index": 0, "id": "a"}, role=True), call(index=0, id="b", name="f", arguments="[]"), CALLS, DONE
    )
    assert calls(result) == [("a", "f", "[]", "running")]


def test_an_id_may_come_with_the_name_behind_the_first_arguments() -> None:
    result = chat(call(role=True, index=0, arguments="["), call(index=0, id="a", name="f", arguments="]"), CALLS, DONE)
    assert calls(result) == [("a", "f", "[]", "running")]
    assert [event.id for event in result.of(ToolCallStarted)] == ["", "a"]


@pytest.mark.parametrize("before", [1, 2])
@pytest.mark.parametrize(("text", "last"), [("[]", "waits"), ("[][]", "waits"), ("[][]", "is there")])
def test_calls_that_waited_for_the_one_before_them_go_out_behind_it(before: int, text: str, last: str) -> None:
    """Split only where no call waits behind it: numbers rise."""
    result = chat(
        *three(with_index=True)[:before],
        entries({"index": 3, "id": "a"}),
        call(index=4, id="b", name="g", arguments="[4]"),
        call(index=5, id="c", name="h", arguments=text),
        *([entries({"index": 6, "id": "d"})] if last == "waits" else []),
        call(index=3, name="f", arguments="[3]"),
        *([call(index=6, name="i", arguments="[6]")] if last == "waits" else []),
        CALLS,
        DONE,
    )
    split = [("h", "[]"), ("h", "[]")]
    assert [(one[1], one[2]) for one in calls(result)] == [
        *[("f", "{}")] * before,
        ("f", "[3]"),
        ("g", "[4]"),
        *(split if last == "is there" else [("h", text), ("i", "[6]")]),
    ]


def test_a_call_that_waits_keeps_the_first_name_that_came() -> None:
    result = chat(
        entries({"index": 0, "id": "a"}, role=True),
        call(index=1, id="b", name="g", arguments="[1]"),
        entries({"index": 2, "id": "c"}),
        call(index=3, id="d", name="i", arguments="[3]"),
        entries(*({"index": place, "function": {"name": "f", "arguments": "[]"}} for place in (0, 2))),
        call(index=3, name="z", arguments=""),
        CALLS,
        DONE,
    )
    assert [(one.name, one.arguments) for one in result.wire.calls()] == [
        ("f", "[]"),
        ("g", "[1]"),
        ("f", "[]"),
        ("i", "[3]"),
    ]


def test_an_id_that_is_repeated_with_the_name_is_the_same() -> None:
    waits = entries({"index": 0, "id": "call-1"}, role=True)
    result = chat(waits, begin("call-1", "f", "[]"), CALLS, DONE)
    assert "call_id" not in result.repairs


@pytest.mark.parametrize("count", [15, 16, 17])
def test_so_many_members_wait_with_a_call(count: int) -> None:
    waiting = {f"x{number}": number for number in range(count)}
    result = chat(
        entries({"index": 0, "id": "a", **waiting}, role=True), call(index=0, name="f", arguments="[]"), CALLS, DONE
    )
    (start,) = [frame for frame in result.sent if b'"name":"f"' in frame]
    assert start.count(b'"x') == min(count, 16)


# -- arguments --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ['{}{"x":1}', "{} []"])
def test_an_empty_object_before_more_arguments_is_no_seed(text: str) -> None:
    result = chat(begin("a", "f", text, role=True), CALLS, DONE)
    assert "".join(texts(result)) == text
    assert len(texts(result)) == 2


def test_what_is_split_off_is_counted_over_the_whole_chunk() -> None:
    both = entries(call_entry("a", "f", "[]" * CALLS_IN_A_PIECE_MAX), call_entry("b", "g", "[][]", 1), role=True)
    assert texts(chat(both, CALLS, DONE))[-1] == "[][]"


@pytest.mark.parametrize("given", [None, "", 5, True, 0, [], ["x"], {}], ids=str)
def test_a_type_that_is_no_text_is_the_usual_one(given: Any) -> None:
    start = call(role=True, index=0, id="a", type=given, name="f", arguments="[]")
    usual = begin("a", "f", "[]", role=True)
    assert chat(start, CALLS, DONE).sent[0] == usual


def test_another_type_stays() -> None:
    start = call(role=True, index=0, id="a", type="custom", name="f", arguments="[]")
    assert chat(start, CALLS, DONE).sent[0] == start


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
    pieces = [call(index=0, arguments=piece) for piece in ("[", first, second, "]")]
    assert ("arguments_repeated" in chat(START, *pieces, CALLS, DONE).repairs) is flagged
