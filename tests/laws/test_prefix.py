"""L4: every prefix of a tape is a tape: nothing raises, and there is always a state."""

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.laws.variants import FULL
from tests.support.chat import tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.model import Ending
from wiretape.events.emit import Emitter, Summariser, emit

pytestmark = pytest.mark.slow

ENDINGS = get_args(Ending)


def check(body: bytes, *, hermes: bool = False) -> None:
    """Check that every prefix has a summary, and that its frames are a prefix of those of the whole."""
    records = tape(body, hermes=hermes)
    emitter, summariser, sent = Emitter(), Summariser(), b""
    for record in records:
        sent += b"".join(emitter.feed(record))
        summary = summariser.feed(record).summary
        assert summary.ending in (None, *ENDINGS)
        assert all(warned.code for warned in summary.warnings)
        assert emitter.wire.ending("eof") in ENDINGS
        assert emitter.wire.ending("reset") in ENDINGS
    assert sent == emit(records)


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_every_prefix_of_every_captured_stream_has_a_state(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for _, stream in [*sampled(one_in=6)][part::8]:
        check(stream.body)


@given(body=streams() | agent_streams(), hermes=st.booleans())
def test_every_prefix_of_any_stream_has_a_state(body: bytes, hermes: bool) -> None:
    check(body, hermes=hermes)


@given(body=streams() | agent_streams(), first=st.integers(0, 400), hermes=st.booleans())
def test_every_prefix_of_its_bytes_is_a_stream(body: bytes, first: int, hermes: bool) -> None:
    for end in range(first, len(body), 7 if FULL else 400):
        check(body[:end], hermes=hermes)
