"""Frames that repeat a shape are sent without being parsed, exactly as if they were. All cases are synthetic."""

import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat import DONE, HEAD, call, chunk, finish, frame, run, sse, tape, text
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.model import Event
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

ROLE = {"role": "assistant"}


def emitted(upstream: bytes, *, skim: bool, **settings: Any) -> tuple[list[bytes], dict[str, int], int]:
    """Return the frames, the counts of repairs, and how many records were not parsed."""
    recorder, emitter = Recorder(skim=skim), Emitter()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7, "settings": settings}
    records: list[Record] = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {}})]
    records += recorder.read(1, upstream) if upstream else []
    if not skim:  # a frame with any key is read the long way
        records = [one._replace(keys={**one.keys, "long": True}) if one.kind == "frame" else one for one in records]
    records += [*recorder.rest(2), recorder.end(2, {"cause": "eof"})]
    frames = [frame for record in records for frame in emitter.feed(record)]
    return frames, emitter.ledger.counts, sum(record.shape is not None and record.value is ABSENT for record in records)


SAME = {
    "text": [frame({"content": word}) for word in "abcdef"],
    "a role on each": [frame({**ROLE, "content": word}) for word in ("a", "b", "\xe9", "d", 'e"', "f\n")],
    "reasoning under its other name": [frame({"reasoning": word, "content": ""}) for word in "abcdef"],
    "Python's style": [
        b'data: {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 7, "model": "m", "choices": '
        b'[{"index": 0, "delta": {"role": "assistant", "content": "%b"}, "finish_reason": null}]}\n\n' % word
        for word in (b"a", b"b", b"\\u00e9", b"\xc3\xa9", b"\\/", b"f")
    ],
    "citations on each": [frame({"content": word}, citations=["u"]) for word in "abcdef"],
    "padding": [
        frame({**ROLE, "content": word}, obfuscation=padding)
        for word, padding in (("a", "x"), ("b", "%s"), ("c", ""), ("d", "d"), ("e", "\xe9"), ("f", "y"))
    ],
    "reasoning under both names": [
        frame({"reasoning_content": word, "reasoning": other}) for word, other in ("ab", "cb", "bb", "db", "eb", "ff")
    ],
    "reasoning under both names, the other first": [
        frame({"reasoning": other, "reasoning_content": word}) for word, other in ("ab", "bb", "bc", "bd", "eb", "ff")
    ],
    "calls of null": [frame({"content": word, "tool_calls": None, "function_call": None}) for word in "abcdef"],
    "the same text in two members": [frame({**ROLE, "content": word, "refusal": "c"}) for word in "cabdef"],
    "escapes around the text": [
        frame({**ROLE, "content": word}, note="e").replace(b'"note":"e"', b'"note":"\\u00e9"') for word in "abcdef"
    ],
    "a message that grows next to the delta": [
        chunk({"index": 0, "message": {"content": word}, "delta": {"content": "x"}, "finish_reason": None})
        for word in ("a", "ab", "abc", "abcd")
    ],
    "a finish on each": [frame({"content": word}, "stop") for word in "abcdef"],
    "usage on each": [frame({"content": "a"}, usage={"total_tokens": count}) for count in range(6)],
    "numbers that lose their spelling": [
        frame({**ROLE, "content": word}, x=1.5).replace(b"1.5", b"1.50") for word in "abcdef"
    ],
}


@pytest.mark.parametrize(
    "settings", [{}, {"cumulative": True}, {"think": True}, {"reasoning": "as_is"}, {"hermes": True}]
)
@pytest.mark.parametrize("case", SAME)
def test_frames_are_the_same_whether_they_are_parsed_or_not(case: str, settings: dict[str, Any]) -> None:
    upstream = b"".join([text("hi", role=True), *SAME[case], *SAME[case], finish(), DONE])
    assert emitted(upstream, skim=True, **settings)[:2] == emitted(upstream, skim=False, **settings)[:2]


def test_frame_that_is_sent_with_an_earlier_one_gives_the_form_of_the_next() -> None:
    pieces = [frame({**ROLE, "content": word}) for word in "ab"]
    upstream = b"".join([frame({**ROLE, "content": ""}, note="a"), *pieces, finish(), DONE])
    assert emitted(upstream, skim=True)[:2] == emitted(upstream, skim=False)[:2]


def test_text_is_the_same_next_to_a_number_that_orjson_cannot_write() -> None:
    first = text("hi", role=True).replace(b'"created":7', b'"created":1%b' % (b"0" * 27))
    upstream = b"".join([first, *(text(word) for word in ("a", "b", "\x7f", "\xe9")), finish(), DONE])
    assert emitted(upstream, skim=True)[:2] == emitted(upstream, skim=False)[:2]


def test_bytes_after_the_last_frame_are_no_frame_of_its_shape() -> None:
    frames = [text("hi", role=True), *map(text, "abc")]
    records = tape([*frames, text("d").removeprefix(b"data: ").strip()])
    assert run(records).sent[:-1] == run([one._replace(shape=None) for one in records]).sent[:-1] == frames


#: How many of these frames, sent twice over, are quick: live, read from a tape, with a ledger, and with a sink alone.
QUICK = {
    "text": [11, 11, 11, 11],
    "a role on each": [11, 11, 0, 11],
    "reasoning under its other name": [11, 11, 0, 11],
    "Python's style": [3, 3, 0, 3],
    "citations on each": [10, 10, 0, 10],
    "padding": [11, 11, 0, 11],
    "calls of null": [11, 11, 0, 11],
    "the same text in two members": [10, 10, 0, 0],
}


@pytest.mark.parametrize("case", SAME)
def test_most_frames_of_a_text_are_not_parsed(case: str) -> None:
    sinks: list[dict[str, Any]] = [{}, {"sink": list[Event]().append}]
    counts = [quick(case, skim=True), *(quick(case, **sink) for sink in sinks), quick(case, **sinks[1], repairs=False)]
    assert counts == QUICK.get(case, [0, 0, 0, 0])


def quick(case: str, *, skim: bool = False, **options: Any) -> int:
    """Count the frames that are sent with few calls of functions."""
    recorder, emitter, made, found = Recorder(skim=skim), Emitter(**options), 0, 0
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7}
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {}})]
    records += recorder.read(1, b"".join([text("hi", role=True), *SAME[case], *SAME[case]]))

    def count(_: FrameType, event: str, __: object) -> None:
        nonlocal made
        made += event == "call"

    for record in records if skim else [one._replace(shape=None) for one in records]:
        made = 0
        sys.setprofile(count)
        emitter.feed(record)
        sys.setprofile(None)
        found += record.kind == "frame" and made < 15
    return found


PIECES = st.sampled_from(
    [
        *SAME["text"],
        *SAME["a role on each"],
        *SAME["reasoning under its other name"],
        frame({"content": "a"}),
        frame({"content": None}),
        frame({}),
        b": ping\n\n",
        b"data: null\n\n",
        text("x", index=1),
        sse({**HEAD, "choices": [], "usage": {"total_tokens": 1}}),
        call(index=0, id="c", type="function", name="f", arguments="{"),
        call(index=0, arguments="}"),
        finish(),
        finish("length"),
        sse({"error": {"message": "no"}}),
        DONE,
    ]
)


@given(
    pieces=st.lists(PIECES, max_size=14),
    settings=st.fixed_dictionaries({"on_partial": st.sampled_from(["error", "warn", "both"])}),
)
def test_any_frames_are_the_same_whether_they_are_parsed_or_not(pieces: list[bytes], settings: dict[str, Any]) -> None:
    upstream = b"".join(pieces)
    assert emitted(upstream, skim=True, **settings)[:2] == emitted(upstream, skim=False, **settings)[:2]


@pytest.mark.slow
@needs_corpus
def test_captured_frames_are_the_same_whether_they_are_parsed_or_not() -> None:
    for _, capture in sampled():
        assert emitted(capture.body, skim=True)[:2] == emitted(capture.body, skim=False)[:2], capture.id


def test_frame_with_other_framing_is_repaired_after_frames_of_its_shape() -> None:
    recorder, emitter = Recorder(), Emitter()
    opening = {"format": 1, "stream": "s1", "dialect": "chat", "created": 7}
    records: list[Record] = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {}})]
    came = [frame({**ROLE, "content": "a"}), frame({"content": "b"}), frame({"content": "c"}), frame({"content": "d"})]
    for data in [*came, b"id: 1\n" + frame({"content": "e"})]:
        records += [one._replace(shape=None) for one in recorder.read(1, data)]  # as it is read from a tape
    sent = [frame for record in records for frame in emitter.feed(record)]
    assert sent == [*came, frame({"content": "e"})]
    for kind in ("body", "unknown"):
        assert emitter.feed(records[-2]) == [came[-1]]
        assert emitter.feed(records[-2]._replace(kind=kind)) == []
