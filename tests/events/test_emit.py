"""The one pure function from a tape to bytes, and the events of a tape."""

from collections.abc import Iterable

import pytest

from tests.support.chat import DONE, HEAD, call, finish, frame, tape, text
from wiretape.events.core.json_text import dumps
from wiretape.events.core.limits import UNDELIVERED_BYTES_MAX
from wiretape.events.core.model import Ended, Event, Repaired, TextDelta
from wiretape.events.emit import Emitter, Summariser, emit, events, summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import BOM

STREAM = [text("hi", role=True), b": ping\n\n", text("\xfc"), finish(), DONE, b"rest"]


def reopened(records: list[Record], **keys: object) -> list[Record]:
    """The same tape under another `open` record."""
    return [records[0]._replace(keys={**records[0].keys, **keys}), *records[1:]]


def test_strict_is_the_default_and_transparent_is_what_came() -> None:
    records = tape(STREAM)
    assert emit(records) == b"".join(STREAM[:1] + STREAM[2:5])
    assert emit(records, "transparent") == b"".join(STREAM)
    assert emit(reopened(records, profile="transparent")) == b"".join(STREAM)
    assert emit(reopened(records, profile="transparent"), "strict") == emit(records)


@pytest.mark.parametrize("dialect", ["realtime", None, 5], ids=str)
def test_a_dialect_that_is_not_known_is_emitted_as_it_came(dialect: object) -> None:
    assert emit(reopened(tape(STREAM), dialect=dialect)) == b"".join(STREAM)


def test_before_open_nothing_has_been_said() -> None:
    emitter = Emitter()
    assert (emitter.wire.content, emitter.wire.terminated, emitter.delivered) == (False, False, False)
    assert emitter.ending("internal")[0] == "internal"


def test_an_answer_of_ours_is_emitted_in_transparent_too() -> None:
    commit = Record(1, 1, "commit", {"status": 502}, b"no")
    assert emit([tape(STREAM)[0], commit], "transparent") == b"no"


def test_a_tape_without_an_open_record_is_emitted_as_it_came() -> None:
    assert emit(tape(STREAM)[1:]) == b"".join(STREAM)


def test_an_open_record_may_be_junk() -> None:
    assert emit(reopened(tape(STREAM), stream=5, created="x", settings=[], profile="?")) == emit(tape(STREAM))


def test_what_goes_out_as_it_came_has_no_ledger() -> None:
    seen = list(events(reopened(tape([text("hi", role=True), text("x", role=True)]), profile="transparent")))
    assert not [event for event in seen if isinstance(event, Repaired)]
    assert [event.text for event in seen if isinstance(event, TextDelta)] == ["hi", "x"]
    assert [event.repair for event in events(tape(STREAM[:1] * 2)) if isinstance(event, Repaired)] == [
        "role_repeated",
        "error_frame",
    ]


def test_of_an_exchange_the_end_alone_says_how_it_ended() -> None:
    """HTTP's framing is no business of a dialect, and nothing of its bytes is read."""
    recorder = Recorder()
    keys = {"cause": "framed", "ending": "completed", "flags": ["unframed", 7]}
    records = [
        recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": ""}),
        recorder.body(1, b'{"choices":[]}', {"ending": "completed"}),
        recorder.record("failed", 1, {"ending": "completed"}),
        recorder.end(2, keys),
    ]
    assert list(events(records)) == [Ended(n=3, ending="completed", cause="framed", flags=("unframed",))]
    assert list(events([*records[:3], records[3]._replace(keys={"ending": "junk"})])) == []
    assert emit(records) == b'{"choices":[]}'


# -- events of frames that flow ---------------------------------------------------------------------------------------


def without_repairs(seen: Iterable[Event]) -> list[Event]:
    return [event for event in seen if not isinstance(event, Repaired)]


FLOWING = {
    "text": [text("a", role=True), text("b"), text("c"), finish(), DONE],
    "a role on each": [text("a", role=True), text("b", role=True), text("c", role=True), finish(), DONE],
    "reasoning, a refusal and both at once": [
        text("a", role=True),
        frame({"reasoning_content": "hm", "content": "b"}),
        frame({"refusal": "no"}),
        finish(),
        DONE,
    ],
    "reasoning under its other name": [
        text("a", role=True),
        frame({"reasoning": "hm"}),
        frame({"reasoning": "so"}),
        frame({"reasoning": "then"}),
        finish(),
        DONE,
    ],
    "usage that rides on text": [
        text("a", role=True),
        frame({"content": "b"}, usage={"total_tokens": 1}),
        frame({"content": "c"}, usage={"total_tokens": 2}),
        finish(),
        DONE,
    ],
    "empty text, null text, no text": [
        text("a", role=True), text(""), frame({"content": None}), frame({}), text("z"), finish(), DONE,
    ],
    "a call in between": [
        text("a", role=True),
        text("b"),
        call(index=0, id="c", type="function", name="f", arguments=""),
        call(index=0, arguments="{}"),
        text("c"),
        finish("tool_calls"),
        DONE,
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", FLOWING)
def test_events_are_the_same_with_and_without_the_ledger(case: str) -> None:
    records = tape(FLOWING[case])
    assert list(events(records, repairs=False)) == without_repairs(list(events(records)))


def test_body_without_a_commit_record_is_sent_at_the_end() -> None:
    parts = [b"x" * UNDELIVERED_BYTES_MAX, b"y"]
    emitter = Emitter()
    *before, last = [emitter.feed(record) for record in tape(parts, body=True, request={"stream": False})]
    assert (b"".join(map(b"".join, before)), last) == (b"", parts)


def test_plain_answer_is_read_where_no_stream_may_be_made_of_one() -> None:
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}
    records = tape([dumps({**HEAD, "choices": [choice]})], body=True, request={"stream": False}, synthesise=False)
    assert summarise(records).answer().text == "hi"


def test_unframed_terminator_counts_after_a_byte_order_mark() -> None:
    summariser = Summariser().feed(*tape([BOM + DONE.strip()]))
    assert summariser.summary.wire.terminated
    assert summariser.repairs == {"done_unfinished": 1, "error_frame": 1}
