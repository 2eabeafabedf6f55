"""Documents that are drawn from the code say what the code says."""

import re

import pytest

from tests.support.docs import DOCS, DOCUMENTS
from wiretape.events.tape.record import Record, decode


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_drawn_document_is_up_to_date(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == DOCUMENTS[name](), "run `make docs`"


def test_the_line_shown_in_the_format_of_the_tape_is_a_record() -> None:
    (line,) = re.findall(r"^    (\{.*\})$", (DOCS / "tape.md").read_text(encoding="utf-8"), re.MULTILINE)
    record = decode(line.encode())
    assert isinstance(record, Record)
    assert (record.n, record.t, record.kind) == (2, 81_234, "frame")
