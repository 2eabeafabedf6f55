"""L4: every prefix of a tape is a tape: nothing raises, and there is always a state."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.laws.variants import FULL
from tests.support.chat import tape
from tests.support.corpus import load, needs_corpus
from wiretape.events.core.model import Ending, Event
from wiretape.events.emission.emit import Emitter, emit
from wiretape.events.folds.message import Message
from wiretape.events.folds.timing import Timing
from wiretape.events.folds.tools import Tools
from wiretape.events.folds.usage import UsageFold
from wiretape.events.folds.warnings import Warnings

pytestmark = pytest.mark.slow

ENDINGS = get_args(Ending)


def check(body: bytes, *, hermes: bool = False) -> None:
    """Every fold after every record; what was emitted for a prefix is a prefix of what is emitted for the whole."""
    records = tape(body, hermes=hermes)
    seen: list[Event] = []
    emitter, sent = Emitter(sink=seen.append), b""
    folds: tuple[Message | Tools | UsageFold | Warnings, ...] = (Message(), Tools(), UsageFold(), Warnings())
    timing = Timing()
    for record in records:
        sent += b"".join(emitter.feed(record))
        timing.alive(record.t)
        for event in seen:
            for fold in folds:
                fold.apply(event)
            timing.apply(event, record.t)
        seen.clear()
        assert emitter.wire.ending("eof") in ENDINGS
        assert emitter.wire.ending("reset") in ENDINGS
    assert sent == emit(records)


@needs_corpus
@pytest.mark.parametrize("part", range(16))
def test_every_prefix_of_every_captured_stream_has_a_state(part: int) -> None:
    for stream in load()[part::16]:
        check(stream.body)


@given(body=streams() | agent_streams(), hermes=st.booleans())
def test_every_prefix_of_any_stream_has_a_state(body: bytes, hermes: bool) -> None:
    check(body, hermes=hermes)


@settings(max_examples=1_000 if FULL else 15)
@given(body=streams() | agent_streams(), hermes=st.booleans())
def test_every_prefix_of_its_bytes_is_a_stream(body: bytes, hermes: bool) -> None:
    for end in range(0, len(body), 7):
        check(body[:end], hermes=hermes)
