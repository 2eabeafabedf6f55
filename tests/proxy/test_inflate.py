"""Bounded decompression in steps (U51, U52)."""

import gzip
import zlib

import pytest

from wiretape.events.core.errors import WiretapeError
from wiretape.proxy.limits import (
    INFLATE_FREE_BYTES,
    INFLATE_MEMBERS_MAX,
    INFLATE_RATIO_MAX,
    INFLATE_STEP_BYTES_MAX,
)
from wiretape.proxy.upstream.decompression import Inflater
from wiretape.proxy.upstream.errors import LimitError, ProtocolError, TruncatedError

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
def test_input_may_be_cut_anywhere(coding: str, wire: bytes, text: bytes, step: int) -> None:
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
def test_invalid_input_raises(coding: str, wire: bytes, error: type[WiretapeError]) -> None:
    with pytest.raises(error):
        decoded(coding, wire, 1_000)


def test_output_steps_are_bounded() -> None:
    wire = gzip.compress(b"".join(b"%d" % number for number in range(400_000)))
    pieces = list(Inflater("gzip").feed(wire))
    assert max(map(len, pieces)) <= INFLATE_STEP_BYTES_MAX
    assert len(pieces) > 2


EMPTY = gzip.compress(b"", mtime=0)


def test_number_of_members_of_a_request_is_bounded() -> None:
    wire = EMPTY * (INFLATE_MEMBERS_MAX - 1) + gzip.compress(TEXT)
    assert b"".join(Inflater("gzip", len(TEXT)).feed(wire)) == TEXT
    with pytest.raises(LimitError):
        list(Inflater("gzip", len(TEXT)).feed(EMPTY + wire))


def test_ratio_of_a_request_counts_only_beyond_free_size() -> None:
    line = b"2026-01-01 00:00:00 INFO ok\\n"
    text = line * (INFLATE_FREE_BYTES // len(line))
    wire = gzip.compress(text)
    assert len(text) > 2 * len(wire) * INFLATE_RATIO_MAX
    assert b"".join(Inflater("gzip", len(text)).feed(wire)) == text
    with pytest.raises(LimitError):
        list(Inflater("gzip", len(text) - 1).feed(wire))
    with pytest.raises(LimitError):
        list(Inflater("gzip", 2 * len(text)).feed(gzip.compress(text + 100 * line)))
