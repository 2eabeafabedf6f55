"""The laws of the core over captured and generated streams: L1, L2, L4, L5, L7, L8, and discarded attempts.

L8 is held by `run` itself (tests/support/chat.py): applied in order, the entries of each record turn the frame as it
came into exactly what was emitted for it, and a frame without entries is the very object that came.
"""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams, tool_streams
from tests.laws.variants import FULL, SPLITS, VARIANTS, Variant, chosen, reads, rewritten
from tests.support.chat import DONE, Run, run, tape, text
from tests.support.corpus import Stream, needs_corpus, sampled
from wiretape.events.core.model import AttemptStarted, Ended, Ending, Event, Finish, ForeignFrame, Repaired, Usage
from wiretape.events.emit import Emitter, Summariser, emit, events, summarise
from wiretape.events.tape import tape as tapes
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.tape import Reader, Recorder

pytestmark = pytest.mark.slow

REQUEST = {"stream": True, "n": None}
ENDINGS = get_args(Ending)
ANY = streams() | agent_streams()
MODES = st.sampled_from(["error", "warn", "both"])
TOOLS = st.sampled_from(["live", "held"])

# -- L1: other reads, line ends and a BOM change no frame, event, fold or emitted byte --------------------------------


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


def check_split(body: bytes, variant: Variant, key: str, *, hermes: bool = False) -> None:
    """One variant against the whole body in one read, and against the body with LF and no BOM."""
    rewrite = rewritten(body, variant)
    whole = tape(rewrite, request=REQUEST, hermes=hermes)
    cut = tape(list(reads(rewrite, variant.split, key)), request=REQUEST, hermes=hermes)
    assert untimed(whole) == untimed(cut), key
    plain = tape(rewritten(body, Variant("whole", "LF", bom=False)), request=REQUEST, hermes=hermes)
    assert emit(cut) == emit(plain), key
    assert meaning(cut) == meaning(plain), key


@pytest.mark.parametrize("variant", VARIANTS, ids=str)
@settings(max_examples=300 if FULL else 6)
@given(body=ANY, hermes=st.booleans())
def test_any_stream_in_other_reads_line_ends_and_with_a_bom(variant: Variant, body: bytes, hermes: bool) -> None:
    check_split(body, variant, body.hex(), hermes=hermes)


@given(body=ANY, hermes=st.booleans())
def test_a_read_more_or_less_never_changes_what_was_emitted_so_far(body: bytes, hermes: bool) -> None:
    """What the client has after k bytes is the same whether they came in one read or in k."""
    one_by_one = Emitter()
    records = tape(list(reads(body, "1 byte", "")), hermes=hermes)[:-1]
    sent = b"".join(b"".join(one_by_one.feed(record)) for record in records)
    assert emit(tape(body, hermes=hermes)[:-1]) == sent


def test_foreign_frames_are_events_too() -> None:
    """So that the comparison above sees them."""
    assert any(isinstance(event, ForeignFrame) for event in meaning(tape(b"data: [DATA]\n\n")))


# -- L2: a tape gives back the upstream's exact bytes, read boundaries, arrival times and way of ending ---------------


def check_lossless(pieces: list[bytes], cause: str) -> None:
    records, reader = tape(pieces, cause=cause), Reader()
    again = reader.feed(b"".join(map(encode, records)))
    assert (reader.damage, reader.torn) == ([], b"")
    assert again == [record._replace(keys=dict(record.keys)) for record in records]
    assert list(tapes.reads(again)) == list(enumerate(pieces, 1))
    assert again[-1].keys["cause"] == cause
    assert emit(again) == emit(records)
    assert emit(again, "transparent") == b"".join(pieces)


@given(
    body=streams(), sizes=st.lists(st.integers(1, 400), min_size=1), cause=st.sampled_from(["eof", "reset", "stalled"])
)
def test_any_stream_comes_back(body: bytes, sizes: list[int], cause: str) -> None:
    pieces: list[bytes] = []
    while body:
        size = sizes[len(pieces) % len(sizes)]
        pieces.append(body[:size])
        body = body[size:]
    check_lossless(pieces, cause)


# -- L4: every prefix of a tape is a tape: nothing raises, and there is always a state --------------------------------


def check_prefixes(body: bytes, *, hermes: bool = False) -> None:
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


@given(body=ANY, hermes=st.booleans())
def test_every_prefix_of_any_stream_has_a_state(body: bytes, hermes: bool) -> None:
    check_prefixes(body, hermes=hermes)


@given(body=ANY, first=st.integers(0, 400), hermes=st.booleans())
def test_every_prefix_of_its_bytes_is_a_stream(body: bytes, first: int, hermes: bool) -> None:
    for end in range(first, len(body), 7 if FULL else 400):
        check_prefixes(body[:end], hermes=hermes)


# -- L5: every stream has exactly one ending, and for one that is not completed nothing is made up --------------------

CAUSES = [
    *("eof", "closed", "reset", "stalled", "limit", "client_gone", "shutdown", "crashed", "internal", "protocol", ""),
]


def chunks(result: Run) -> list[dict[str, Any]]:
    """The JSON of every emitted frame, `[DONE]` left out."""
    payloads = [frame.partition(b"data: ")[2].strip() for frame in result.sent if frame != DONE]
    return [json.loads(payload) for payload in payloads]


def finishes(result: Run) -> list[str]:
    choices = [choice for chunk in chunks(result) for choice in chunk.get("choices", ())]
    return [choice["finish_reason"] for choice in choices if choice["finish_reason"]]


def check_ending(records: list[Record], mode: str) -> None:
    result = run(records)
    assert [event for event in result.events if isinstance(event, Ended)] == [result.ended]
    assert isinstance(result.events[-1], Ended)
    ending = result.ended.ending
    assert ending in ENDINGS
    malformed = "malformed_call" in result.ended.flags
    whole = ending == "completed" and not malformed
    errors = [chunk["error"] for chunk in chunks(result) if "error" in chunk]
    if whole:
        assert result.sent[-1] == DONE
        assert not errors
    elif mode == "warn" and ending != "upstream_error":
        assert result.sent[-1] == DONE
        assert "length" in finishes(result)
    else:
        assert DONE not in result.sent
        assert len(errors) == 1
    assert result.sent.count(DONE) <= 1
    check_nothing_invented(result, mode, whole=whole)


def check_nothing_invented(result: Run, mode: str, *, whole: bool) -> None:
    """Finish reasons and usage on the wire are the upstream's, save the closers that were asked for or are owed."""
    given = [event.reason for event in result.of(Finish)]
    sent = finishes(result)
    if not whole and mode == "warn":
        closers = result.repairs.count("warn_finish")
        assert sent[len(sent) - closers :] == ["length"] * closers
        sent = sent[: len(sent) - closers]
    supplied = result.repairs.count("finish_supplied")
    assert whole or "malformed_call" in result.ended.flags or not supplied
    assert set(sent) <= set(given)
    assert len(sent) <= len(given)
    usages = [event.counts for event in result.of(Usage)]
    assert all(chunk["usage"] in usages for chunk in chunks(result) if chunk.get("usage"))


@pytest.mark.parametrize("delta", [b'{"reasoning":"data: "}', b'{"content":"data: [DONE]"}'])
def test_a_text_that_speaks_of_frames_ends_once(delta: bytes) -> None:
    """Seen with generated words: this test's own reading of frames took the last `data: ` for the field."""
    body = b'data: {"id":"c","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":'
    check_ending(tape(body + delta + b',"finish_reason":null}]}\n\n'), "error")


@given(
    body=ANY, cut=st.integers(0, 2_000), cause=st.sampled_from(CAUSES), mode=MODES, tools=TOOLS, hermes=st.booleans()
)
def test_any_stream_cut_anywhere_for_any_cause_ends_once(
    body: bytes, cut: int, cause: str, mode: str, tools: str, hermes: bool
) -> None:
    kept = body[: max(0, len(body) - cut)]
    check_ending(tape(kept, cause=cause, on_partial=mode, tools=tools, hermes=hermes), mode)


# -- L7: a call gets at most one `running` and one terminal frame, in that order; internal tools and orphans none -----

ALLOWED = [["running"], ["dropped"]]
#: Of a tool that the upstream runs itself; a call of the client with the same id may have been dropped before it.
RAN = [["running", "completed"], ["running", "failed"], ["running", "dropped"]]


def statuses(result: Run) -> dict[str, list[str]]:
    """Return the statuses of each call id, in order."""
    reported: dict[str, list[str]] = defaultdict(list)
    for frame in result.sent:
        if frame.startswith(b"event: hermes.tool.progress\n"):
            payload = json.loads(frame.partition(b"data: ")[2])
            assert payload["choices"][0]["delta"] == {}
            assert not payload["tool"].startswith("_")
            reported[payload["toolCallId"]].append(payload["status"])
    return reported


def check_tools(result: Run) -> None:
    reported = statuses(result)
    assert all(order in ALLOWED for order in reported.values()), reported
    calls = [call for call in result.wire.calls() if call.name and not call.name.startswith("_")]
    assert set(reported) == {call.id for call in calls}


@given(body=tool_streams(), cut=st.integers(0, 800), mode=MODES, tools=TOOLS)
def test_every_call_of_any_cut_stream_is_reported_once(body: bytes, cut: int, mode: str, tools: str) -> None:
    check_tools(run(tape(body[: max(0, len(body) - cut)], on_partial=mode, tools=tools)))


@given(body=agent_streams(), cut=st.integers(0, 800), mode=MODES, tools=TOOLS)
def test_each_call_of_an_agent_has_one_beginning_and_one_end(body: bytes, cut: int, mode: str, tools: str) -> None:
    result = run(tape(body[: max(0, len(body) - cut)], on_partial=mode, tools=tools, hermes=True))
    reported = statuses(result)
    ran = {call.id: call for call in result.wire.ran.values() if not call.name.startswith("_")}
    for call_id, order in reported.items():
        assert order in (RAN if call_id in ran else ALLOWED), reported
    assert set(ran) <= set(reported)
    off = run(tape(body, tool_events=False, hermes=True))
    assert (statuses(off), off.wire.ran.keys()) == ({}, run(tape(body, hermes=True)).wire.ran.keys())


@given(body=tool_streams())
def test_the_switch_turns_the_frames_off_and_nothing_else(body: bytes) -> None:
    on, off = run(tape(body)), run(tape(body, tool_events=False))
    assert not statuses(off)
    assert off.sent == [frame for frame in on.sent if not frame.startswith(b"event:")]


# -- L8: every difference between what came and what was emitted is a named repair of the record it changed ------------

SETTINGS: list[dict[str, Any]] = [
    {"on_partial": mode, "tools": tools, "reasoning": reasoning}
    for mode in ("error", "warn", "both")
    for tools in ("live", "held")
    for reasoning in ("reasoning_content", "reasoning", "as_is")
]


@given(body=ANY, settings=st.sampled_from(SETTINGS), usage=st.booleans(), hermes=st.booleans())
def test_every_difference_of_any_stream_is_in_the_ledger(
    body: bytes, settings: dict[str, Any], usage: bool, hermes: bool
) -> None:
    request = {"stream": True, "stream_options": {"include_usage": usage}}
    run(tape(body, request=request, hermes=hermes, **settings))


# -- every law over every captured stream -----------------------------------------------------------------------------


def captured_lossless(_: int, stream: Stream) -> None:
    for split in SPLITS if FULL else ():
        check_lossless(list(reads(stream.body, split, stream.id)), "eof")
    variant = chosen(stream.id)[0]
    check_lossless(list(reads(rewritten(stream.body, variant), variant.split, stream.id)), "eof")


def captured_split(_: int, stream: Stream) -> None:
    for variant in chosen(stream.id):
        check_split(stream.body, variant, stream.id)


def captured_ending(number: int, stream: Stream) -> None:
    mode = ("error", "warn", "both")[number % 3]
    check_ending(tape(stream.body, request=REQUEST, on_partial=mode), mode)


LAWS: dict[str, Callable[[int, Stream], object]] = {
    "L1 split": captured_split,
    "L2 lossless": captured_lossless,
    "L4 prefix": lambda _, stream: check_prefixes(stream.body),
    "L5 one ending": captured_ending,
    "L7 tools once": lambda _, stream: check_tools(run(tape(stream.body, request=REQUEST))),
    "L8 ledger": lambda number, stream: run(tape(stream.body, request=REQUEST, **SETTINGS[number % len(SETTINGS)])),
}


@needs_corpus
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("law", LAWS)
def test_law_holds_for_every_captured_stream(law: str, part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for number, stream in [*sampled(one_in=6)][part::8]:
        LAWS[law](number, stream)


# -- what an attempt brought before any content counts for nothing: not for the client, and not for a fold ------------


def attempts(bodies: list[bytes], *, hermes: bool) -> list[Record]:
    """One tape of several attempts."""
    recorder = Recorder()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7, "settings": {"hermes": hermes}}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"model": "m"}})]
    for number, body in enumerate(bodies, 1):
        records += recorder.attempt(number, {"number": number})
        records += recorder.read(number, body) if body else []
    records += recorder.rest(99)
    return [*records, recorder.end(99, {"cause": "eof"})]


def resulted(records: list[Record]) -> object:
    """Return what the stream resulted in."""
    summary = summarise(records)
    calls = [(call.choice, call.id, call.name, call.arguments) for call in summary.wire.calls()]
    states = [[state for _, state in call.moves] for call in summary.wire.all_calls()]
    return summary.answers, calls, summary.wire.usage, states, summary.warnings


def delivered(body: bytes, *, hermes: bool = False) -> bool:
    emitter = Emitter()
    for record in attempts([body], hermes=hermes)[:-1]:
        emitter.feed(record)
    return emitter.delivered


@settings(max_examples=1_000 if FULL else 100)
@given(failed=st.lists(streams(calls=st.just(0)), max_size=2), last=ANY, hermes=st.booleans())
def test_a_failed_attempt_leaves_no_trace(failed: list[bytes], last: bytes, hermes: bool) -> None:
    bodies = [*(body for body in failed if not delivered(body, hermes=hermes)), last]
    several, alone = run(attempts(bodies, hermes=hermes)), run(attempts([last], hermes=hermes))
    assert several.sent == alone.sent
    assert (several.ended.ending, several.ended.flags) == (alone.ended.ending, alone.ended.flags)
    assert resulted(several.records) == resulted(alone.records)
    assert len(several.of(AttemptStarted)) == len(bodies)


def test_the_generator_finds_attempts_that_delivered_nothing() -> None:
    runs = b'event: hermes.tool.progress\ndata: {"tool":"t","toolCallId":"c","status":"running"}\n\n'
    assert not delivered(b": ping\n\n")
    assert delivered(runs, hermes=True)
    assert not delivered(runs)
    assert delivered(text("x"))
