"""The laws of the core over captured and generated streams: L1, L2, L4, L5, L7, L8, and discarded attempts.

L8 is held by `run` itself (tests/support/chat.py): applied in order, the entries of each record turn the frame as it
came into exactly what was emitted for it, and a frame without entries is the very object that came.
"""

import random
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams, tool_streams
from tests.laws.said import Said, objects, payloads, said
from tests.laws.variants import FULL, SPLITS, VARIANTS, Variant, chosen, frame_ends, reads, rewritten
from tests.support.chat import Run, run, tape, text
from tests.support.corpus import PROTOCOLS, Stream, needs_corpus, sampled
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import AttemptStarted, Ended, Ending, Event, Finish, ForeignFrame, Repaired, Usage
from wiretape.events.emit import Emitter, Summariser, emit, events, summarise
from wiretape.events.folds.wire import counts_tokens, tokens
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


def check_split(body: bytes, variant: Variant, key: str, **how: Any) -> None:
    """One variant against the whole body in one read, and against the body with LF and no BOM."""
    rewrite = rewritten(body, variant)
    whole = tape(rewrite, request=REQUEST, **how)
    cut = tape(list(reads(rewrite, variant.split, key)), request=REQUEST, **how)
    assert untimed(whole) == untimed(cut), key
    plain = tape(rewritten(body, Variant("whole", "LF", bom=False)), request=REQUEST, **how)
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


def check_lossless(pieces: list[bytes], cause: str, **how: Any) -> None:
    records, reader = tape(pieces, cause=cause, **how), Reader()
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


def check_prefixes(body: bytes, **how: Any) -> None:
    """Check that every prefix has a summary, and that its frames are a prefix of those of the whole."""
    records = tape(body, **how)
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


def check_ending(records: list[Record], mode: str, dialect: str = "chat") -> None:
    result = run(records)
    assert [event for event in result.events if isinstance(event, Ended)] == [result.ended]
    assert isinstance(result.events[-1], Ended)
    ending = result.ended.ending
    assert ending in ENDINGS
    whole = ending == "completed" and "malformed_call" not in result.ended.flags
    found = said(payloads(result.out), dialect)
    warned = not whole and mode == "warn" and ending != "upstream_error"
    assert (found.done, len(found.errors)) == ((1, 0) if whole or warned else (0, 1))
    assert not found.behind
    assert not warned or "length" in found.finishes
    check_nothing_invented(result, found, dialect, warned=warned)
    supplied = result.repairs.count("finish_supplied")
    assert whole or "malformed_call" in result.ended.flags or not supplied


def check_nothing_invented(result: Run, found: Said, dialect: str, *, warned: bool) -> None:
    """Finish reasons and usage on the wire are the upstream's, save the closers that were asked for or are owed."""
    given = [event.reason for event in result.of(Finish)]
    sent = found.finishes
    if warned:
        closers = result.repairs.count("warn_finish") if dialect == "chat" else 1
        assert sent[len(sent) - closers :] == ["length"] * closers
        sent = sent[: len(sent) - closers]
    assert set(sent) <= set(given)
    assert len(sent) <= len(given)
    usages = [event.counts for event in result.of(Usage)]
    if dialect == "chat":
        assert all(value["usage"] in usages for value in objects(result.out) if value.get("usage"))
    else:  # Messages sends parts in two places, and zeros for what was not counted
        counted = [pair for usage in usages for pair in counts_tokens(usage).items()]
        counted += [("total_tokens", (tokens(usage) or {}).get("total_tokens")) for usage in usages]  # codex needs it
        assert all(pair in counted for usage in found.usages for pair in counts_tokens(usage).items())


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
#: What makes a lifecycle frame harmless to the readers of each dialect.
CARD_MEMBERS = {"chat": b'"delta":{}', "responses": b'"type":"keepalive"', "messages": b'"type":"ping"'}
#: Of a tool that the upstream runs itself; a call of the client with the same id may have been dropped before it.
RAN = [["running", "completed"], ["running", "failed"], ["running", "dropped"]]


def statuses(result: Run, dialect: str = "chat") -> dict[str, list[str]]:
    """Return the statuses of each call id, in order."""
    reported: dict[str, list[str]] = defaultdict(list)
    cards = [frame for frame in result.sent if frame.startswith(b"event: hermes.tool.progress\n")]
    for frame in cards:
        assert CARD_MEMBERS[dialect] in frame
        assert b'"tool":"_' not in frame
    for call_id, status in said(payloads(b"".join(cards)), dialect).told:
        reported[call_id].append(status)
    return reported


def check_tools(result: Run, dialect: str = "chat") -> None:
    reported = statuses(result, dialect)
    assert all(order in ALLOWED for order in reported.values()), reported
    calls = [call for call in result.wire.calls() if call.name and not call.name.startswith("_")]
    assert set(reported) == {call.id for call in calls}
    cut = {call.id for call in calls if call.state is not State.RUNNING}  # an upstream may end one that it cut
    assert set(said(payloads(result.out), dialect).unannounced) <= cut


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


def captured_lossless(_: int, stream: Stream, dialect: str) -> None:
    for split in SPLITS if FULL else ():
        check_lossless(list(reads(stream.body, split, stream.id)), "eof", dialect=dialect)
    variant = chosen(stream.id)[0]
    check_lossless(list(reads(rewritten(stream.body, variant), variant.split, stream.id)), "eof", dialect=dialect)


def captured_split(_: int, stream: Stream, dialect: str) -> None:
    for variant in chosen(stream.id):
        check_split(stream.body, variant, stream.id, dialect=dialect)


def captured_ending(number: int, stream: Stream, dialect: str) -> None:
    mode = ("error", "warn", "both")[number % 3]
    check_ending(tape(stream.body, request=REQUEST, dialect=dialect, on_partial=mode), mode, dialect)


def captured_tools(number: int, stream: Stream, dialect: str) -> None:
    tools = ("live", "held")[number % 2]
    check_tools(run(tape(stream.body, request=REQUEST, dialect=dialect, tools=tools)), dialect)


def captured_ledger(number: int, stream: Stream, dialect: str) -> None:
    run(tape(stream.body, request=REQUEST, dialect=dialect, **SETTINGS[number % len(SETTINGS)]))


LAWS: dict[str, Callable[[int, Stream, str], object]] = {
    "L1 split": captured_split,
    "L2 lossless": captured_lossless,
    "L4 prefix": lambda _, stream, dialect: check_prefixes(stream.body, dialect=dialect),
    "L5 one ending": captured_ending,
    "L7 tools once": captured_tools,
    "L8 ledger": captured_ledger,
}


@needs_corpus
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("dialect", PROTOCOLS)
def test_law_holds_for_every_captured_stream(dialect: str, law: str, part: int) -> None:
    """All in `make laws`, one of 24 in the default suite."""
    for number, stream in [*sampled(PROTOCOLS[dialect], one_in=24)][part::8]:
        LAWS[law](number, stream, dialect)


@needs_corpus
@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("dialect", PROTOCOLS)
def test_any_cut_of_a_captured_stream_ends_once(dialect: str, part: int) -> None:
    """At every frame and at 200 seeded bytes in `make laws`, at three places in the default suite; with the ledger."""
    for _, stream in [*sampled(PROTOCOLS[dialect], one_in=24)][part::8]:
        chance = random.Random(stream.id)  # noqa: S311 - a seeded cut, not a secret
        places = [chance.randrange(len(stream.body) + 1) for _ in range(200 if FULL else 3)]
        for cut in [*places, *(frame_ends(stream.body) if FULL else ())]:
            mode, tools = chance.choice(("error", "warn", "both")), chance.choice(("live", "held"))
            records = tape(stream.body[:cut], request=REQUEST, dialect=dialect, on_partial=mode, tools=tools)
            check_ending(records, mode, dialect)


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
