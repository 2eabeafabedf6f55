"""L4: every prefix of a tape is a tape: nothing raises, and there is always a state."""

from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.laws.variants import FULL
from tests.support.chat import tape
from tests.support.corpus import load, needs_corpus
from wiretape.events.emit import Emitter, emit
from wiretape.events.fold.message import Message
from wiretape.events.fold.timing import Timing
from wiretape.events.fold.tools import Tools
from wiretape.events.fold.usage import UsageFold
from wiretape.events.fold.warnings import Warnings
from wiretape.events.model import Ending, Event

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
