"""Our keys in an answer: every form of them, in whatever pieces they come."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wiretape.proxy.keys import Secret
from wiretape.proxy.masking import KeyMask

KEY = "sk/key-of-ours+1"
FORMS = [KEY, KEY.replace("/", "\\/"), "sk/key-of-ours%2B1", "sk%2Fkey-of-ours%2B1"]


def fed(*pieces: bytes) -> tuple[bytes, bool]:
    mask = KeyMask([Secret(KEY)])
    shown = b"".join(map(mask.feed, pieces)) + mask.close()
    return shown, mask.found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_every_form_becomes_stars_of_its_length_however_it_is_cut(form: str, size: int) -> None:
    text = b"before " + form.encode() + b" behind s"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert fed(*pieces) == (text.replace(form.encode(), b"*" * len(form)), True)


@given(st.text("sk/-eyofur+1 \n", max_size=80), st.lists(st.integers(0, 80), max_size=10))
def test_what_is_no_key_passes_whole(text: str, cuts: list[int]) -> None:
    data = text.replace(KEY, "").encode()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert fed(*pieces) == (data, False)


def test_only_what_may_be_a_key_waits() -> None:
    mask = KeyMask([Secret(KEY)])
    assert mask.feed(b"data: x\n\n") == b"data: x\n\n"
    assert mask.feed(b"abc sk/k") == b"abc "
    assert mask.feed(b"ind") == b"sk/kind"


def test_a_word_that_is_too_short_for_a_key_is_left() -> None:
    mask = KeyMask([Secret("EMPTY")])
    assert (mask.feed(b"EMPTY"), mask.close(), mask.found) == (b"EMPTY", b"", False)
