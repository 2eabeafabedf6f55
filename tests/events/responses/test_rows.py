"""Every quirk of the dialect catalogue that concerns Responses: what came, what goes out, and what it means."""

import pytest

from .made import Row, check
from .rows import ROWS


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_quirk(row: Row) -> None:
    check(row)
