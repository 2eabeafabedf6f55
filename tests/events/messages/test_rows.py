"""Every row of the dialect catalogue that is about Messages: what came, what goes out, and what the ledger says."""

import re

import pytest

from tests.events.chat.rows import check
from tests.events.messages.rows import ROWS
from tests.events.messages.streams import Row
from wiretape.events.emit import emit


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_of_the_catalogue(row: Row) -> None:
    check(row)


def test_every_messages_row_of_the_catalogue_has_a_case() -> None:
    numbers = {int(found[1]) for row in ROWS if (found := re.match(r"Q(\d+) \S", row.id))}
    assert numbers >= {40, 95, 106, *range(121, 130)}


def test_the_cases_have_different_names() -> None:
    assert len({row.id for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_a_row_in_transparent_is_what_came(row: Row) -> None:
    assert emit(row.tape(), "transparent") == b"".join(row.came)
