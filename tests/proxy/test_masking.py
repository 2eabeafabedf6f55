"""Masking of echoed keys: every form, across any read boundaries."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.support.house import DONE, answer, house, text
from wiretape.events.core.json_text import dumps
from wiretape.proxy.config.model import Secret
from wiretape.proxy.limits import JUDGED_BYTES_MAX
from wiretape.proxy.security.masking import ErrorMask, KeyMask

KEY = "sk/key-of-ours+1"
FORMS = [KEY, KEY.replace("/", "\\/"), "sk/key-of-ours%2B1", "sk%2Fkey-of-ours%2B1"]


def fed(*pieces: bytes) -> tuple[bytes, bool]:
    mask = KeyMask([Secret(KEY)])
    shown = b"".join(map(mask.feed, pieces)) + mask.close()
    return shown, mask.found


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", [1, 2, 7, 1_000])
def test_every_form_becomes_stars_across_any_cuts(form: str, size: int) -> None:
    text = b"before " + form.encode() + b" after s"
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    assert fed(*pieces) == (text.replace(form.encode(), b"*" * len(form)), True)


@given(st.text("sk/-eyofur+1 \n", max_size=80), st.lists(st.integers(0, 80), max_size=10))
def test_other_text_passes_unchanged(text: str, cuts: list[int]) -> None:
    data = text.replace(KEY, "").encode()
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    pieces = [data[start:end] for start, end in itertools.pairwise(places)]
    assert fed(*pieces) == (data, False)


def test_words_too_short_for_a_key_are_kept() -> None:
    mask = KeyMask([Secret("EMPTY")])
    assert (mask.feed(b"EMPTY"), mask.close(), mask.found) == (b"EMPTY", b"", False)


# -- the caller's own key in errors ------------------------------------------------------------------------------------

CALLER = "sk-CALLER-0123456789abcdef"
STARS = b"*" * len(CALLER)
SAID = "Incorrect API key provided: " + CALLER
ERRORS = {
    "of OpenAI": dumps({"error": {"message": SAID, "code": 401}}),
    "with white space": b'{"error" : {"message": "%b"}}' % SAID.encode(),
    "as a word": dumps({"error": SAID}),
    "of Anthropic": dumps({"type": "error", "error": {"message": SAID}}),
    "that says it late": dumps({"message": SAID, "object": "error"}),
    "of MiniMax": dumps({"base_resp": {"status_msg": SAID, "status_code": 1004}}),
    "on a chunk": dumps({"id": "c1", "choices": [], "error": {"message": SAID}}),
}
WORDS = {
    "a chunk": text(SAID),
    "a chunk that says error": text('{"error": {"level": "error"}} ' + SAID),
    "a chunk with no error": b'data: {"error":null,"text":"%b"}\n\n' % SAID.encode(),
    "a chunk after another one": b"data: {}\r\n\r\ndata: %b\r\n\r\n" % SAID.encode(),
}


def masked_in_errors(*pieces: bytes, frames: bool = True) -> bytes:
    mask = ErrorMask([Secret(CALLER)], frames=frames)
    return b"".join(map(mask.feed, pieces)) + mask.close()


def cut_everywhere(data: bytes) -> list[list[bytes]]:
    """Return the data whole, cut in two at each place, and in single bytes."""
    return [[data], *([data[:at], data[at:]] for at in range(1, len(data))), [bytes([each]) for each in data]]


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_callers_key_in_an_error_becomes_stars_across_any_cuts(error: bytes) -> None:
    masked = error.replace(CALLER.encode(), STARS)
    stream = text("hi") + b"data: " + error + b"\n\n" + DONE
    for pieces in cut_everywhere(stream):
        assert masked_in_errors(*pieces) == stream.replace(error, masked), pieces[0][-20:]
    for pieces in cut_everywhere(error):
        assert masked_in_errors(*pieces, frames=False) == masked, pieces[0][-20:]


@pytest.mark.parametrize("said", WORDS.values(), ids=WORDS)
def test_model_output_is_never_changed(said: bytes) -> None:
    stream = said + b'data: {"error":{"message":"no"}}\n\n' + said
    for pieces in cut_everywhere(stream):
        assert masked_in_errors(*pieces) == stream


def test_possible_error_waits_within_bounds() -> None:
    mask = ErrorMask([Secret(CALLER)], frames=True)
    begun = b'data: {"message":"' + CALLER.encode()
    assert mask.feed(begun) == begun[: -len(CALLER)]
    more = b"x" * (JUDGED_BYTES_MAX - len(CALLER))
    assert mask.feed(more) == b""
    assert mask.feed(b"x") == CALLER.encode() + more + b"x"


def _long(before: int, after: int, error: bytes = b'"error":{}') -> bytes:
    return b'{"w":"%b","m":"%b","x":"%b",%b}' % (b"w" * before, CALLER.encode(), b"y" * after, error)


#: An error frame, and whether its mark is within the bound.
LONG = {
    "far after the key": (_long(0, JUDGED_BYTES_MAX + 600), False),
    "at the last byte of the bound": (_long(0, JUDGED_BYTES_MAX - len(CALLER) - 18), True),
    "a byte after it": (_long(0, JUDGED_BYTES_MAX - len(CALLER) - 17), False),
    "far before the key": (b'{"error":{},' + _long(3 * JUDGED_BYTES_MAX, 10)[1:], True),
    "near after a key that is far in": (_long(3 * JUDGED_BYTES_MAX, 10), True),
}


@pytest.mark.parametrize("frames", [True, False])
@pytest.mark.parametrize(("error", "in_time"), LONG.values(), ids=LONG)
def test_bound_is_independent_of_read_boundaries(error: bytes, in_time: bool, frames: bool) -> None:
    error = b"data: " + error + b"\n\n" if frames else error
    expected = error.replace(CALLER.encode(), STARS) if in_time else error
    key, size = error.index(CALLER.encode()), len(error)
    near = [at for place in (0, key, key + JUDGED_BYTES_MAX, size) for at in range(place - 40, place + 60)]
    cuts = [[at] for at in (*near, 12_674) if 0 < at < size]
    cuts += [[12_674, 16_615], [*range(1, size)], [*range(1_400, size, 1_400)], [*range(64, size, 64)]]
    for places in cuts:
        ends = [place for place in places if place < size]
        pieces = [error[start:end] for start, end in itertools.pairwise([0, *ends, size])]
        assert masked_in_errors(*pieces, frames=frames) == expected, places[:5]
    assert masked_in_errors(error, frames=frames) == expected


async def test_files_pass_unchanged(autojump_clock: MockClock) -> None:
    async with house(answer(200, ERRORS["of OpenAI"], kind="application/octet-stream")) as home:
        answered = await home.ask(None, f"Authorization: Bearer {CALLER}", path="/v1/files/f/content", method="GET")
        assert answered.body == ERRORS["of OpenAI"]
