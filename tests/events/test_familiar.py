"""Payloads known by their edges: what is known is JSON, and says what reading it would have said."""

import pytest

from wiretape.events.core.json_text import ABSENT, parse
from wiretape.events.tape.familiar import Familiar

KNOWN = Familiar(b'{"a":"', b'","b":1}')


@pytest.mark.parametrize(
    "payload",
    [
        b'{"a":"","b":1}',
        b'{"a":"x","b":1}',
        b'{"a":"\\n\\"","b":1}',
        '{"a":"é😀","b":1}'.encode(),
        b'{"a":"\x7f","b":1}',
    ],
    ids=["no text", "a letter", "escapes", "more than ASCII", "a control character that JSON takes"],
)
def test_another_text_between_the_same_edges_is_known(payload: bytes) -> None:
    assert KNOWN.knows(payload)
    assert parse(payload) is not ABSENT


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b'{"a":","b":1}',
        b'{"a":"x","b":2}',
        b'{"A":"x","b":1}',
        b'{"a":"x","c":"y","b":1}',
        b'{"a":"x\\","b":1}',
        b'{"a":"\\ud83d","b":1}',
        b'{"a":"\\x","b":1}',
        b'{"a":"\n","b":1}',
        b'{"a":"\xff","b":1}',
        b'{"a":"\xed\xa0\x80","b":1}',
    ],
    ids=[
        "nothing",
        "edges that overlap",
        "another end",
        "another beginning",
        "a quote in the middle",
        "an escaped quote at the edge",
        "a surrogate",
        "no escape of JSON",
        "a bare line end",
        "not UTF-8",
        "a surrogate in UTF-8",
    ],
)
def test_all_else_has_to_be_read(payload: bytes) -> None:
    assert not KNOWN.knows(payload)
