"""L1: cutting the upstream's bytes into other reads changes no frame, event, fold or emitted byte."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.laws.variants import FULL, VARIANTS, Variant, chosen, reads, rewritten
from tests.support.chat import tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.model import Ended, Event, ForeignFrame, Repaired
from wiretape.events.emit import Emitter, emit, events
from wiretape.events.tape.record import Record

pytestmark = pytest.mark.slow

REQUEST = {"stream": True, "n": None}


def untimed(records: Iterable[Record]) -> list[Record]:
    """The records without what may hang on the reads."""
    return [
        record._replace(t=0, keys={key: value for key, value in record.keys.items() if key != "cuts"})
        for record in records
    ]


def meaning(records: Iterable[Record]) -> list[Event]:
    """The events; how a frame was written is the ledger's business, and a BOM alone may make a `rest` before `end`."""
    return [
        replace(event, n=0) if isinstance(event, Ended) else event
        for event in events(records)
        if not isinstance(event, Repaired)
    ]


def check(body: bytes, variant: Variant, key: str, *, hermes: bool = False) -> None:
    """One variant against the whole body in one read, and against the body with LF and no BOM."""
    rewrite = rewritten(body, variant)
    whole = tape(rewrite, request=REQUEST, hermes=hermes)
    cut = tape(list(reads(rewrite, variant.split, key)), request=REQUEST, hermes=hermes)
    assert untimed(whole) == untimed(cut), key
    plain = tape(rewritten(body, Variant("whole", "LF", bom=False)), request=REQUEST, hermes=hermes)
    assert emit(cut) == emit(plain), key
    assert meaning(cut) == meaning(plain), key


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_every_captured_stream_in_other_reads_line_ends_and_with_a_bom(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for _, stream in [*sampled(one_in=6)][part::8]:
        for variant in chosen(stream.id):
            check(stream.body, variant, stream.id)


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@settings(max_examples=300 if FULL else 6)
@given(body=streams() | agent_streams(), hermes=st.booleans())
def test_any_stream_in_other_reads_line_ends_and_with_a_bom(variant: Variant, body: bytes, hermes: bool) -> None:
    check(body, variant, body.hex(), hermes=hermes)


@given(body=streams() | agent_streams(), hermes=st.booleans())
def test_a_read_more_or_less_never_changes_what_was_emitted_so_far(body: bytes, hermes: bool) -> None:
    """What the client has after k bytes is the same whether they came in one read or in k."""
    one_by_one = Emitter()
    records = tape(list(reads(body, "1 byte", "")), hermes=hermes)[:-1]
    sent = b"".join(b"".join(one_by_one.feed(record)) for record in records)
    assert emit(tape(body, hermes=hermes)[:-1]) == sent


def test_foreign_frames_are_events_too() -> None:
    """So that the comparison above sees them."""
    assert any(isinstance(event, ForeignFrame) for event in meaning(tape(b"data: [DATA]\n\n")))
