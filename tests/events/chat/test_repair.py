"""Every row of the dialect catalogue that is about chat: what came, what goes out, and what the ledger says of it.

The cases are in the rows_*.py files; all of them are synthetic.
"""

import re

import pytest

from tests.events.chat import rows_calls, rows_content, rows_envelope
from tests.events.chat.rows import Row, check
from tests.support.chat import DONE, finish, run, tape, text
from wiretape.events.emit import emit
from wiretape.events.limits import EVENT_BYTES_MAX

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
