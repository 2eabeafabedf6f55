"""Every row of the dialect catalogue that is about chat: what came, what goes out, and what the ledger says of it.

The cases are in the rows_*.py files; all of them are synthetic.
"""

import re

import pytest

from tests.events.chat import rows_calls, rows_content, rows_envelope
from tests.events.chat.rows import Row, check
from tests.support.chat import DONE, HEAD, call, finish, frame, run, sse, tape, text
from wiretape.events.emit import Emitter, emit
from wiretape.events.limits import CHUNKS_WAITING_MAX, EVENT_BYTES_MAX

ROWS = [*rows_calls.ROWS, *rows_envelope.ROWS, *rows_content.ROWS]
#: Rows that are tested by functions of this file.
ELSEWHERE = {104}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_of_the_catalogue(row: Row) -> None:
    check(row)


def test_every_chat_row_of_the_catalogue_has_a_case() -> None:
    numbers = {int(found[1]) for row in ROWS if (found := re.match(r"Q(\d+) \S", row.id))} | ELSEWHERE
    assert numbers == set(range(1, 110))


def test_the_cases_can_be_told_apart() -> None:
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
    return call(role=not number, index=number, id=f"c{number}", type="function", name="f", arguments="{}")


@pytest.mark.parametrize("count", [CHUNKS_WAITING_MAX - 1, CHUNKS_WAITING_MAX, CHUNKS_WAITING_MAX + 1])
def test_so_many_chunks_wait_for_what_comes_next(count: int) -> None:
    emitter = Emitter()
    sent = [frame for record in tape([seed(number) for number in range(count)])[:-1] for frame in emitter.feed(record)]
    assert len(sent) == (count if count > CHUNKS_WAITING_MAX else 0)


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_chunks_that_wait_have_a_bound_together(over: int, monkeypatch: pytest.MonkeyPatch) -> None:
    bound = len(seed(0)) + len(seed(1)) - 2 * len(b"data: \n\n") - over
    monkeypatch.setattr("wiretape.events.chat.repair.UNDELIVERED_BYTES_MAX", bound)
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


def test_a_cut_answer_that_was_never_framed_is_a_cut() -> None:
    result = run(tape([b'{"error":{"mess']))
    assert (result.ended.ending, result.ended.flags) == ("truncated", ())


def test_an_error_field_that_is_no_object_is_no_error() -> None:
    result = run(tape([HI, b"error: {no}\n\n", b"error: {}\n\n", finish(), DONE]))
    assert result.ended.ending == "upstream_error"
    assert result.sent == [HI, sse({"error": {}})]


def test_an_error_beside_choices_some_of_which_are_none() -> None:
    both = sse({**HEAD, "choices": [5, {"index": 1, "delta": {"content": "!"}}], "error": "no"})
    result = run(tape([HI, both]))
    assert b'"content":"!"' in result.sent[1]
    assert result.ended.ending == "upstream_error"


def test_a_whole_answer_in_the_middle_of_a_stream_is_not_a_second_one() -> None:
    answer = b'{"choices":[{"message":{"content":"again"}}]}\n\n'
    result = run(tape([HI, answer, finish(), DONE]))
    assert result.sent == [HI, finish(), DONE]
    assert result.ended.flags == ("not_a_stream",)


def test_a_whole_answer_that_failed_ends_so() -> None:
    answer = b'{"choices":[{"index":0,"message":{"content":"hi"},"finish_reason":"error"}]}'
    result = run(tape([answer], body=True))
    assert result.ended.ending == "upstream_error"
    assert DONE not in result.sent


@pytest.mark.parametrize("junk", [b"null", b"[]", b"{}", b'"x"', b'{"choices":[5]}', b'{"choices":{}}', b"\xff"])
def test_an_answer_that_says_nothing_is_no_stream(junk: bytes) -> None:
    assert run(tape([junk], body=True)).ended.ending == "protocol"


def test_an_error_field_without_its_blank_line_is_an_error() -> None:
    result = run(tape([HI, b'error: {"message":"no"}']))
    assert result.sent == [HI, sse({"error": {"message": "no"}})]
    assert result.ended.ending == "upstream_error"
