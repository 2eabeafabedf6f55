"""Crossing laws over captured streams: there and back is the same but for listed losses, and a cut is a failure.

Also L1 (other reads change nothing) and live equals replayed, for crossed tapes.
"""

from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import streams, tool_streams
from tests.laws.variants import FULL, VARIANTS, chosen, reads, rewritten
from tests.support.answers import read
from tests.support.chat import run, tape
from tests.support.corpus import PROTOCOLS, Stream, load, needs_corpus, sampled
from tests.support.meaning import Meaning, meaning
from tests.support.scripted_streams import DIALECTS
from wiretape.events.core.lifecycle import CUT_FINISHES
from wiretape.events.crossing.names import call_id
from wiretape.events.emit import Emitter, emit
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import Decoder

pytestmark = pytest.mark.slow

PAIRS: Final = [(theirs, ours) for theirs in DIALECTS for ours in DIALECTS if ours != theirs]
ASKED: Final = {"stream": True, "model": "m", "stream_options": {"include_usage": True}}
_PREFIX: Final = {"messages": "toolu_", "chat": "call_", "responses": "call_"}


def crossed(body: bytes | list[bytes], theirs: str, ours: str, **more: Any) -> list[Record]:
    return tape(body, request=ASKED, dialect=ours, upstream_dialect=theirs, **more)


def carried(given: Meaning, theirs: str, ours: str) -> Meaning:
    """Return what is left of an answer after it was crossed: the listed losses, and no other."""
    prefix = _PREFIX[ours]
    calls = tuple((call_id(one[0], prefix), *one[1:]) for one in given.calls)
    finish, left = given.finish, replace(given, calls=calls)
    if finish == "function_call":  # the older form of a call
        finish = "tool_calls"
    if finish == "tool_calls" and not calls:  # no client waits for calls that do not come
        finish = "stop"
    if ours == "messages" and left.refusal:  # a refusal is a text and a stop reason
        left = replace(left, text=left.text + left.refusal, refusal="")
        finish = finish if finish in CUT_FINISHES else "content_filter"
    if ours == "messages":
        # The input of a call is an object.
        calls = tuple((*one[:2], "{}" if one[2] == "null" else one[2], *one[3:]) for one in left.calls)
        left = replace(left, calls=calls)
        # Input tokens never hold what the cache served, though an upstream may count more of that.
        counts = left.counts
        inside = (counts.cached or 0) + (counts.cache_write or 0)
        left = replace(left, counts=counts._replace(input=max(counts.input or 0, inside)))
    return replace(left, finish=finish)


def shown(given: Meaning) -> Meaning:
    """Return what counts of an answer: a failed one has no finish and no counts."""
    if given.whole and given.finish in CUT_FINISHES:  # a whole call was handed over once another one began
        return replace(given, calls=tuple((*call[:4], False) for call in given.calls if call[2]))
    if given.whole:
        return replace(given, calls=tuple(call for call in given.calls if call[2] or call[4]))
    unrun = tuple((*call[:4], False) for call in given.calls if call[2])
    return replace(given, calls=unrun, finish="", counts=type(given.counts)())


@needs_corpus
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda one: one)
def test_there_and_back_is_the_same_but_for_listed_losses(theirs: str, ours: str) -> None:
    for _, stream in sampled(PROTOCOLS[theirs], one_in=30):
        first, _ = meaning(tape(stream.body, request=ASKED, dialect=theirs), theirs)
        there, sent = meaning(crossed(stream.body, theirs, ours), ours)
        read(ours, sent)
        back, sent_back = meaning(crossed(sent, ours, theirs), theirs)
        read(theirs, sent_back)
        due = shown(carried(first, theirs, ours))
        assert shown(replace(there, finish=due.finish)) == due, stream.id
        assert shown(back) == shown(carried(due, ours, theirs)), stream.id


def frame_ends(body: bytes) -> list[int]:
    """Return the place after every frame."""
    ends, at = list[int](), 0
    for frame in Decoder().feed(body):
        at += len(frame.raw)
        ends.append(at)
    return ends


def _has_one_choice(stream: Stream) -> bool:
    """Return whether it is what a crossed request asks for: more choices than one are refused."""
    emitter = Emitter()
    for record in tape(stream.body, request=ASKED):
        emitter.feed(record)
    return len(emitter.wire.choices) == 1


def _cuts(stream: Stream) -> list[int]:
    """Return every frame's end of a short stream in `make laws`, else some of them."""
    ends = frame_ends(stream.body)
    return ends if FULL and len(ends) < 100 else ends[:: max(1, len(ends) // (40 if FULL else 5))]


@needs_corpus
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda one: one)
def test_truncated_stream_is_a_failure_in_every_dialect(theirs: str, ours: str) -> None:
    for _, stream in sampled(PROTOCOLS[theirs], one_in=100):
        if theirs == "chat" and not _has_one_choice(stream):
            continue
        for end in _cuts(stream):
            body = stream.body[:end]
            first, _ = meaning(tape(body, request=ASKED, dialect=theirs), theirs)
            there, sent = meaning(crossed(body, theirs, ours), ours)
            assert there.whole is first.whole, (stream.id, end)
            answer = read(ours, sent)
            assert (answer.ending == "error") is not first.whole, (stream.id, end)
            whole = {call[0] for call in there.calls if call[4]}
            assert {call[0] for call in answer.calls} <= whole, (stream.id, end)


@needs_corpus
@pytest.mark.parametrize("variant", VARIANTS[::12], ids=str)
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda one: one)
def test_other_reads_and_line_ends_change_nothing(theirs: str, ours: str, variant: Any) -> None:
    streams = [stream for stream in load(PROTOCOLS[theirs]) if len(stream.body) < 20_000]
    for stream in streams[:: len(streams) // (40 if FULL else 3)]:
        for one in chosen(stream.id) if FULL else [variant]:
            body = rewritten(stream.body, one)
            cut = crossed(list(reads(body, one.split, stream.id)), theirs, ours)
            assert emit(cut) == emit(crossed(stream.body, theirs, ours)), stream.id


@needs_corpus
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda one: one)
def test_live_equals_replayed(theirs: str, ours: str) -> None:
    for _, stream in sampled(PROTOCOLS[theirs], one_in=60):
        live, emitter = Recorder(skim=True), Emitter()
        sent: list[bytes] = []
        for record in _live(live, stream.body, theirs, ours):
            sent += emitter.feed(record)
        assert b"".join(sent) == emit(crossed(stream.body, theirs, ours)), stream.id


def _live(recorder: Recorder, body: bytes, theirs: str, ours: str) -> list[Record]:
    whole = crossed(body, theirs, ours)
    records = [recorder.record(record.kind, 0, record.keys) for record in whole[:2]]
    records += recorder.attempt(0, dict(whole[2].keys))
    for t, data in enumerate([body[at : at + 1_000] for at in range(0, len(body), 1_000)], 1):
        records += recorder.read(t, data)
    return [*records, *recorder.rest(1 << 40), recorder.end(1 << 40, {"cause": "eof"})]


@needs_corpus
@pytest.mark.parametrize(("theirs", "ours"), PAIRS, ids=lambda one: one)
def test_the_ledger_explains_every_crossed_frame(theirs: str, ours: str) -> None:
    for _, stream in sampled(PROTOCOLS[theirs], one_in=100):
        run(crossed(stream.body, theirs, ours))


@pytest.mark.parametrize("ours", ["messages", "responses"])
@settings(max_examples=2_000 if FULL else 60)
@given(body=streams() | tool_streams(), held=st.booleans())
def test_any_chat_stream_is_in_order_in_other_dialects(ours: str, body: bytes, held: bool) -> None:
    """`read` fails on any other order; what failed here failed there."""
    tools = "held" if held else "live"
    given_, _ = meaning(tape(body, request=ASKED, tools=tools), "chat")
    there, sent = meaning(crossed(body, "chat", ours, tools=tools), ours)
    answer = read(ours, sent)
    assert (answer.ending == "error") is not there.whole
    assert there.whole <= given_.whole or b'"index":1' in body
