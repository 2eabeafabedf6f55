"""Every row of the dialect catalogue that is about chat: what came, what goes out, and what the ledger says.

The cases are in the rows_*.py files; all of them are synthetic.
"""

import re
from typing import Any

import pytest

from tests.events.chat import rows_calls, rows_content, rows_envelope
from tests.events.chat.rows import Row, check
from tests.support.chat import (
    DONE,
    HEAD,
    begin,
    call,
    call_entry,
    finish,
    frame,
    run,
    sse,
    tape,
    text,
    tool_calls,
)
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import CHUNKS_WAITING_MAX, EVENT_BYTES_MAX
from wiretape.events.emit import Emitter, emit

ROWS = [*rows_calls.ROWS, *rows_envelope.ROWS, *rows_content.ROWS]
#: Rows that are tested by functions of this file.
ELSEWHERE = {104}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_of_the_catalogue(row: Row) -> None:
    check(row)


def test_every_chat_row_of_the_catalogue_has_a_case() -> None:
    numbers = {int(found[1]) for row in ROWS if (found := re.match(r"Q(\d+) \S", row.id))} | ELSEWHERE
    assert numbers == set(range(1, 110))


def test_the_cases_have_different_names() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_in_transparent_is_what_came(row: Row) -> None:
    assert emit(row.tape(), "transparent") == b"".join(row.came)


def test_q104_a_frame_below_the_cap_passes_however_long() -> None:
    long = text("x" * 2_000_000, role=True)
    result = run(tape([long, finish(), DONE]))
    assert result.sent == [long, finish(), DONE]
    assert result.ended.ending == "completed"


def test_q104_above_the_cap_the_stream_ends_as_limit() -> None:
    long = b"data: " + b"x" * EVENT_BYTES_MAX
    result = run(tape([text("hi", role=True), long]))
    assert (result.ended.ending, result.sent[0]) == ("limit", text("hi", role=True))
    assert b'"code":"limit"' in result.sent[1]


HI = text("hi", role=True)


def seed(number: int) -> bytes:
    """A start whose `{}` may be a seed."""
    return begin(f"c{number}", "f", "{}", number, role=not number)


@pytest.mark.parametrize("count", [CHUNKS_WAITING_MAX - 1, CHUNKS_WAITING_MAX, CHUNKS_WAITING_MAX + 1])
def test_so_many_chunks_wait_for_what_comes_next(count: int) -> None:
    emitter = Emitter()
    sent = [frame for record in tape([seed(number) for number in range(count)])[:-1] for frame in emitter.feed(record)]
    assert len(sent) == (count if count > CHUNKS_WAITING_MAX else 0)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_chunks_that_wait_have_a_bound_together(over: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = len(seed(0)) + len(seed(1)) - 2 * len(b"data: \n\n") - over
    monkeypatch.setattr("wiretape.events.core.limits.UNDELIVERED_BYTES_MAX", bound)
    emitter = Emitter()
    sent = [frame for record in tape([seed(0), seed(1)])[:-1] for frame in emitter.feed(record)]
    assert len(sent) == (2 if over > 0 else 0)


@pytest.mark.parametrize("between", [frame({}), b": ping\n\n", b"data:\n\n", sse({**HEAD, "choices": []})])
def test_what_says_nothing_decides_nothing_about_a_seed(between: bytes) -> None:
    result = run(tape([seed(0), between, call(index=0, arguments="[1]"), finish("tool_calls"), DONE]))
    assert [one.arguments for one in result.wire.calls()] == ["[1]"]


@pytest.mark.parametrize(
    "decides", [text("!"), call(index=1, id="b", name="g", arguments="[]"), DONE, sse({"error": 1})]
)
def test_what_says_anything_decides_that_it_was_no_seed(decides: bytes) -> None:
    result = run(tape([seed(0), decides]))
    assert next(result.wire.calls()).arguments == "{}"


def test_an_error_field_without_its_blank_line_is_an_error() -> None:
    result = run(tape([text("a", role=True), b'error: {"message":"overloaded"}']))
    assert "error_field" in result.repairs
    assert result.ended.ending == "upstream_error"


def test_an_error_next_to_choices_without_a_finish_is_sent_after_them() -> None:
    choices = [7, {"index": 0, "delta": {"role": "assistant", "content": "a"}, "finish_reason": None}]
    result = run(tape([sse({"id": "chatcmpl-1", "choices": choices, "error": {"message": "overloaded"}})]))
    assert "error_apart" in result.repairs
    assert result.ended.ending == "upstream_error"


def test_legacy_arguments_that_are_json_become_text() -> None:
    result = run(tape([frame({"role": "assistant", "function_call": {"name": "f", "arguments": {"a": 1}}}), DONE]))
    assert "arguments_not_text" in result.repairs
    assert b'"arguments":"{\\"a\\":1}"' in result.out


def test_an_error_field_that_is_no_object_is_no_error() -> None:
    result = run(tape([HI, b"error: {no}\n\n", b"error: {}\n\n", finish(), DONE]))
    assert result.ended.ending == "upstream_error"
    assert result.sent == [HI, sse({"error": {}})]


def test_a_whole_answer_that_failed_ends_so() -> None:
    answer = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"error"}]}'
    result = run(tape([answer], body=True))
    assert result.ended.ending == "upstream_error"
    assert DONE not in result.sent


@pytest.mark.parametrize("junk", [b"null", b"[]", b"{}", b'"x"', b'{"choices":[5]}', b'{"choices":{}}', b"\xff"])
def test_an_answer_that_says_nothing_is_no_stream(junk: bytes) -> None:
    assert run(tape([junk], body=True)).ended.ending == "protocol"


# -- the envelope -----------------------------------------------------------------------------------------------------


def head(frame: bytes) -> dict[str, Any]:
    """The members of a chunk."""
    value: dict[str, Any] = parse(frame.removeprefix(b"data: "))
    return value


@pytest.mark.parametrize("given", [None, "", 5, True, [], {"a": 1}], ids=str)
def test_an_id_that_is_no_text_is_made_from_the_stream(given: Any) -> None:
    first, second = run(tape([frame({"role": "assistant", "content": "hi"}, id=given), text("!")])).sent[:2]
    assert head(first)["id"] == head(second)["id"] == "chatcmpl-s1"


@pytest.mark.parametrize(
    ("given", "created"),
    [("7.9", 7), ("8", 8), (9.5, 9), (2**53 + 1, 2**53 + 1), (True, 0), ("soon", 0), (None, 0), ([1], 0), ("1e999", 0)],
    ids=str,
)
def test_created_is_an_integer_and_zero_gives_way(given: Any, created: int) -> None:
    first, second = run(tape([frame({"role": "assistant", "content": "hi"}, created=given), text("!")])).sent[:2]
    assert head(first)["created"] == created
    assert head(second)["created"] == (created or HEAD["created"])


# -- neither chunk nor terminator -------------------------------------------------------------------------------------


@pytest.mark.parametrize("choices", [{}, "", 0, False, [5], [None, []]], ids=str)
def test_choices_that_are_none_are_foreign(choices: Any) -> None:
    result = run(tape([HI, sse({**HEAD, "choices": choices, "usage": {"total_tokens": 1}}), finish(), DONE]))
    assert result.sent == [HI, finish(), DONE]
    assert result.repairs == ["foreign"]
    assert result.ended.flags == ("foreign",)


@pytest.mark.parametrize("last", [b"data: 5", b'data: "x"', b"data: [DONE", b"data: [DONF]", b"data: "])
def test_other_bytes_at_the_end_are_no_terminator(last: bytes) -> None:
    result = run(tape([HI, last]))
    assert result.ended.ending == "truncated"
    assert DONE not in result.sent


@pytest.mark.parametrize(
    "done", [b"data:  [DONE]\n\n", b"data: [DONE] \n\n", b": bye\ndata: [DONE]\n\n", b"id: 1\ndata: [DONE]\n\n"]
)
def test_a_terminator_goes_out_in_its_own_form(done: bytes) -> None:
    result = run(tape([HI, finish(), done]))
    assert result.sent == [HI, finish(), DONE]
    assert result.repairs == ["framing"]


@pytest.mark.parametrize(("reason", "ending"), [("tool_calls", "completed"), ("error", "upstream_error")])
def test_a_finish_decides_about_the_seeds_on_its_own_chunk(reason: str, ending: str) -> None:
    entry = call_entry("a", "f", "{}")
    result = run(tape([tool_calls(entry, reason=reason, role=True)]))
    assert result.frames[2]
    assert result.ended.ending == ending


@pytest.mark.parametrize(
    "body",
    [b'error: {"message":"no"}\n\n', b'{"error":{"message":"no"}}\n\n', b'{"error":{"message":"no"}}', b"data: [DONE]"],
    ids=["an error field (Q92)", "a bare error (Q93)", "the same without its blank line", "a last terminator (Q106)"],
)
def test_a_bom_before_an_improper_frame_changes_nothing(body: bytes) -> None:
    """Q103: found by the full laws."""
    with_bom, without = run(tape(b"\xef\xbb\xbf" + body)), run(tape(body))
    assert with_bom.sent == without.sent
    assert (with_bom.ended.ending, with_bom.ended.flags) == (without.ended.ending, without.ended.flags)


@pytest.mark.parametrize(("over", "ending"), [(0, "completed"), (1, "truncated")])
def test_body_that_is_too_large_is_not_read(over: int, ending: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}]}'
    monkeypatch.setattr("wiretape.events.emission.engine.BODY_BYTES_MAX", len(answer) + 1 - over)
    assert run(tape([answer, b" "], body=True)).ended.ending == ending


def test_other_members_of_a_whole_answer_are_kept() -> None:
    answer = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"stop"}],"x_region":"eu"}'
    assert head(run(tape([answer], body=True)).sent[0])["x_region"] == "eu"


@pytest.mark.parametrize(("n", "merged"), [(None, True), (1, True), (0, False), (2, False), ("x", False)], ids=str)
def test_calls_of_a_whole_answer_join_its_text_where_one_answer_was_requested(n: Any, *, merged: bool) -> None:
    calls = [{"tool_calls": [call_entry(call_id, "f", "{}")]} for call_id in "ab"]
    messages = [{"content": "hi"}, *calls]
    choices = [{"index": index, "message": message, "x_at": index} for index, message in enumerate(messages)]
    result = run(tape([dumps({**HEAD, "choices": choices})], body=True, request={"stream": True, "model": "m", "n": n}))
    assert [one.choice for one in result.wire.calls()] == ([0, 0] if merged else [1, 2])
    assert [choice["x_at"] for choice in head(result.sent[0])["choices"]] == ([1] if merged else [0, 1, 2])


@pytest.mark.parametrize(("before", "settings"), [([HI], {}), ([], {"synthesise": False})], ids=["after text", "off"])
def test_unframed_answer_is_not_made_into_a_stream(before: list[bytes], settings: dict[str, Any]) -> None:
    answer = b'{"choices":[{"index":0,"message":{"content":"x"},"finish_reason":"stop"}]}'
    result = run(tape([*before, answer], **settings))
    assert (result.sent[:-1], result.ended.flags) == (before, ("not_a_stream",))


def test_status_of_a_failure_needs_a_code() -> None:
    result = run(tape([HI, frame({"content": "!"}, base_resp={"status_msg": "fine"}), finish(), DONE]))
    assert (len(result.sent), result.ended.ending) == (4, "completed")


def test_name_alone_makes_an_entry_with_an_empty_custom_member_a_function() -> None:
    entry = {"index": 0, "id": "a", "type": "function", "function": {"name": "f"}, "custom": {}}
    result = run(tape([tool_calls(entry, role=True), finish("tool_calls"), DONE]))
    assert [(call.name, call.custom) for call in result.wire.calls()] == [("f", False)]


def test_custom_call_of_type_function_gets_its_type() -> None:
    entry = {"index": 0, "id": "a", "type": "function", "custom": {"name": "f", "input": "x"}}
    sent = run(tape([frame({"role": "assistant", "tool_calls": [entry]}), finish("tool_calls"), DONE])).sent
    assert head(sent[0])["choices"][0]["delta"]["tool_calls"][0]["type"] == "custom"


def test_replacement_character_in_a_whole_answer_damages_no_call() -> None:
    entry = call_entry("a", "f", '{"x":"\ufffd"}')
    answer = {"choices": [{"index": 0, "message": {"tool_calls": [entry]}, "finish_reason": "tool_calls"}]}
    result = run(tape([dumps(answer)], body=True))
    assert [call.state for call in result.wire.calls()] == [State.RUNNING]
