"""Generated documents match the code."""

import re

import pytest

from tests.support.docs import DOCS, DOCUMENTS
from wiretape.events.tape.record import Record, decode


@pytest.mark.parametrize("name", DOCUMENTS)
def test_generated_document_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == DOCUMENTS[name](), "run `make docs`"


def test_example_line_in_tape_md_is_a_valid_record() -> None:
    (line,) = re.findall(r"^    (\{.*\})$", (DOCS / "tape.md").read_text(encoding="utf-8"), re.MULTILINE)
    record = decode(line.encode())
    assert isinstance(record, Record)
    assert (record.n, record.t, record.kind) == (2, 81_234, "frame")
