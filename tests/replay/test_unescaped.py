"""A text behind its escapes: every character knows where it stood, however often it was escaped, and by what."""

import json
from itertools import pairwise
from typing import Final
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.replay.redaction.unescaped import decoded

_BITS: Final = st.sampled_from(
    ["a", " ", "é", "\\", "\\\\", '\\"', "\\n", "\\u0061", "\\ud83d", "\\x61", "%41", "%C3%A9", "%25", "%2541",
     "%5Cu0061", "&amp;", "&#65;", "&#x41;", "&#0;", "&#1;", "&#1114112;", "&amp;#65;", "%", "&", "\\u00", "\\x6"]
)  # fmt: skip


@given(st.lists(_BITS, max_size=20).map("".join))
def test_each_character_has_its_place(text: str) -> None:
    seen = {text}
    for each in decoded(text, lambda _: True):
        assert each.text not in seen, "each way once"
        seen.add(each.text)
        assert len(each.places) == len(each.text) + 1
        assert all(0 <= before <= after for before, after in pairwise(each.places))
        assert each.places[-1] == len(text)
        for number, char in enumerate(each.text):
            before, after = each.places[number : number + 2]
            assert text[before:after] == char or any(sign in text[before:after] for sign in "\\%&;")


@pytest.mark.parametrize("layers", range(5))
def test_up_to_four_layers(layers: int) -> None:
    text = "it's <a> word"
    for number in range(layers):
        text = json.dumps(text + '"')[1:-1] if number % 2 else quote(text, safe="")
    assert any(each.text.startswith("it's <a> word") for each in decoded(text, lambda _: True)) == (layers > 0)


def test_nothing_is_made_where_nothing_is_found() -> None:
    assert list(decoded("\\u0061 %41 &#65;", lambda _: False)) == []
    assert list(decoded("plain", lambda _: True)) == []
