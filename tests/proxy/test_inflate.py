"""Answers that came compressed all the same: decoded in steps, and given up where they are a bomb (U51, U52)."""

import gzip
import zlib

import pytest

from wiretape.events.errors import WiretapeError
from wiretape.proxy.errors import LimitError, ProtocolError, TruncatedError
from wiretape.proxy.inflate import Inflater
from wiretape.proxy.limits import INFLATE_STEP_BYTES_MAX

TEXT = bytes(range(256)) * 40


def decoded(coding: str, wire: bytes, step: int) -> bytes:
    inflater = Inflater(coding)
    text = b"".join(piece for at in range(0, len(wire), step) for piece in inflater.feed(wire[at : at + step]))
    inflater.close()
    return text


@pytest.mark.parametrize("step", [1, 7, 100_000])
@pytest.mark.parametrize(
    ("coding", "wire", "text"),
    [
        ("gzip", gzip.compress(TEXT), TEXT),
        ("x-gzip", gzip.compress(TEXT) + gzip.compress(b"more"), TEXT + b"more"),
        ("deflate", zlib.compress(TEXT), TEXT),
        ("gzip", b"", b""),
    ],
    ids=["gzip", "several members", "deflate", "nothing at all"],
)
def test_however_it_is_cut_the_text_comes_out(coding: str, wire: bytes, text: bytes, step: int) -> None:
    assert decoded(coding, wire, step) == text


@pytest.mark.parametrize(
    ("coding", "wire", "error"),
    [
        ("br", b"", ProtocolError),
        ("gzip", b"not gzip at all", ProtocolError),
        ("gzip", gzip.compress(TEXT)[:-9], TruncatedError),
        ("gzip", gzip.compress(bytes(10_000_000)), LimitError),
    ],
    ids=["a coding that we have not", "damage", "half of it", "a bomb"],
)
def test_what_cannot_be_decoded_is_given_up(coding: str, wire: bytes, error: type[WiretapeError]) -> None:
    with pytest.raises(error):
        decoded(coding, wire, 1_000)


def test_one_step_is_never_longer_than_its_bound() -> None:
    wire = gzip.compress(b"".join(b"%d" % number for number in range(400_000)))
    pieces = list(Inflater("gzip").feed(wire))
    assert max(map(len, pieces)) <= INFLATE_STEP_BYTES_MAX
    assert len(pieces) > 2
