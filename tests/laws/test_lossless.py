"""L2: a tape gives back the upstream's exact bytes, read boundaries, arrival times and way of ending."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import streams
from tests.laws.variants import FULL, SPLITS, chosen, reads, rewritten
from tests.support.chat import tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.emit import emit
from wiretape.events.tape import tape as tapes
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Reader

pytestmark = pytest.mark.slow


def reread(records: list[Record]) -> list[Record]:
    """Through lines and back."""
    reader = Reader()
    again = reader.feed(b"".join(map(encode, records)))
    assert not reader.damage
    assert not reader.torn
    return again


def check(pieces: list[bytes], cause: str) -> None:
    records = tape(pieces, cause=cause)
    again = reread(records)
    assert again == [record._replace(keys=dict(record.keys)) for record in records]
    assert list(tapes.reads(again)) == list(enumerate(pieces, 1))
    assert again[-1].keys["cause"] == cause
    assert emit(again) == emit(records)
    assert emit(again, "transparent") == b"".join(pieces)


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_every_captured_stream_comes_back(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for _, stream in [*sampled(one_in=6)][part::8]:
        for split in SPLITS if FULL else ():
            check(list(reads(stream.body, split, stream.id)), "eof")
        variant = chosen(stream.id)[0]
        check(list(reads(rewritten(stream.body, variant), variant.split, stream.id)), "eof")


@given(
    body=streams(), sizes=st.lists(st.integers(1, 400), min_size=1), cause=st.sampled_from(["eof", "reset", "stalled"])
)
def test_any_stream_comes_back(body: bytes, sizes: list[int], cause: str) -> None:
    pieces: list[bytes] = []
    while body:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(body[:size])
        body = body[size:]
    check(pieces, cause)
