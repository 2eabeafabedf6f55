"""Answers that came compressed: what they mean, in bounded steps, and what ends them."""

import gzip
import zlib
from collections.abc import Iterable

import pytest

from wiretape.proxy.errors import LimitError, ProtocolError, TruncatedError, WireError
from wiretape.proxy.inflate import Inflater
from wiretape.proxy.limits import INFLATE_STEP_BYTES_MAX

TEXT = b"".join(b'data: {"n":%d}\n\n' % number for number in range(20_000))
RANDOM = b"".join(zlib.crc32(b"%d" % number).to_bytes(4) for number in range(1_000))


def inflated(coding: str, reads: Iterable[bytes]) -> list[bytes]:
    inflater = Inflater(coding)
    steps = [step for read in reads for step in inflater.feed(read)]
    inflater.close()
    return steps


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@pytest.mark.parametrize(
    ("coding", "data"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("x-gzip", gzip.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)),
        pytest.param("gzip", gzip.compress(TEXT[:100]) + gzip.compress(TEXT[100:]), id="gzip in two members"),
    ],
)
@pytest.mark.parametrize("size", [1, 1_000, 64 * 1024])
def test_whatever_the_reads_the_bytes_are_the_same_and_every_step_is_bounded(
    coding: str, data: bytes, size: int
) -> None:
    steps = inflated(coding, cut(data, size))
    assert b"".join(steps) == TEXT
    assert max(map(len, steps)) <= INFLATE_STEP_BYTES_MAX


@pytest.mark.parametrize(
    ("coding", "data", "fault"),
    [
        pytest.param("br", b"", ProtocolError, id="another coding"),
        pytest.param("zstd", b"", ProtocolError, id="a newer coding"),
        pytest.param("gzip, gzip", b"", ProtocolError, id="two codings"),
        pytest.param("gzip", b"no gzip", ProtocolError, id="none of it"),
        pytest.param("gzip", gzip.compress(RANDOM)[:-100] + b"x" * 100, ProtocolError, id="damage"),
        pytest.param("gzip", gzip.compress(TEXT)[:-9], TruncatedError, id="a cut"),
        pytest.param("gzip", gzip.compress(b"x" * 10_000_000), LimitError, id="a bomb"),
        pytest.param("deflate", zlib.compress(b"x" * 10_000_000), LimitError, id="another bomb"),
    ],
)
def test_what_cannot_be_believed_is_a_fault(coding: str, data: bytes, fault: type[WireError]) -> None:
    with pytest.raises(fault):
        inflated(coding, [data])


def test_a_bomb_ends_before_it_grows() -> None:
    grown = 0
    inflater = Inflater("gzip")
    steps = (step for read in cut(gzip.compress(b"x" * 60_000_000), 16 * 1024) for step in inflater.feed(read))

    def grow() -> None:
        nonlocal grown
        for step in steps:
            grown += len(step)

    with pytest.raises(LimitError):
        grow()
    assert grown <= 8 * 1024 * 1024
