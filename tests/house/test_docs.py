"""Documents match the code."""

import re

import pytest

from tests.support.docs import DOCUMENTS, read
from wiretape.events.tape.record import Record, decode
from wiretape.proxy.limits import KEY_CHARS_MIN
from wiretape.replay.formats.table import FORMATS


@pytest.mark.parametrize("name", DOCUMENTS)
def test_generated_parts_are_current(name: str) -> None:
    assert read(name) == DOCUMENTS[name](read(name)), "run `make docs`"


def test_what_is_written_by_hand_is_current() -> None:
    _, _, last = read("formats.md").rpartition("\n## ")
    assert re.findall(r"^\| `(\w+)` \|", last, re.MULTILINE) == list(FORMATS)
    assert f"A key has at least {KEY_CHARS_MIN} characters" in read("configuration.md")


def test_example_line_in_tape_md_is_a_valid_record() -> None:
    (line,) = re.findall(r"^```json\n(\{.*\})$", read("tape.md"), re.MULTILINE)
    record = decode(line.encode())
    assert isinstance(record, Record)
    assert (record.n, record.t, record.kind) == (2, 81_234, "frame")
