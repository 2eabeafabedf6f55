"""Documents that are drawn from the code say what the code says."""

import pytest

from tests.support.docs import DOCS, DOCUMENTS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_drawn_document_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == DOCUMENTS[name](), "run `make docs`"
