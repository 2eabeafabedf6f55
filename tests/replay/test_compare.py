"""Two recordings beside each other: one row for each kind of difference, with its verdict at every level."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat import DONE, call, finish, frame, sse, text
from tests.support.corpus import needs_corpus, sampled
from tests.support.make_fixtures import TAPES
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Reader, Recorder, reads
from wiretape.replay.compare.compare import compare, verdict
from wiretape.replay.compare.difference import Difference, Level, first_difference, shortened
from wiretape.replay.compare.json_diff import Change, changes
from wiretape.replay.formats.har import to_har
from wiretape.replay.formats.sse import to_sse
from wiretape.replay.seal import seal
from wiretape.replay.sealed.load import parse

LEVELS: tuple[Level, ...] = ("fold", "shape", "bytes", "clock")

TEXT = [text("Hel", role=True), text("lo"), finish(), DONE]
CALL = [call(index=0, id="call_1", name="save", arguments='{"a": 1}', role=True), finish("tool_calls"), DONE]
CUSTOM = call(index=0, id="call_1", type="custom", custom={"name": "save", "input": '{"a": 1}'}, role=True)
USAGE = sse(
    {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m", "choices": [], "usage": {"total_tokens": 3}}
)


def recorded(
    reads: list[bytes],
    *,
    dialect: str = "chat",
    content: str = "hi",
    cause: str = "eof",
    ending: str = "completed",
    status: int = 200,
    headers: list[list[str]] | None = None,
    gap_us: int = 10_000,
    body: bool = False,
    attempts: int = 1,
) -> list[Record]:
    """One stream."""
    recorder = Recorder()
    asked = {"model": "m", "stream": True, "messages": [{"role": "user", "content": content}]}
    said = {"method": "POST", "path": "/v1/chat/completions", "facts": facts(asked).to_keys()}
    records = [
        recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": dialect, "created": 7}),
        recorder.record("request", 10, said, dumps(asked)),
    ]
    for number in range(1, attempts + 1):
        records += recorder.attempt(20, {"number": number, "upstream": "u"})
    head = {"status": status, "headers": headers or [["content-type", "text/event-stream"]]}
    records.append(recorder.record("head", 30, head))
    for number, data in enumerate(reads, 1):
        records += [recorder.body(gap_us * number, data)] if body else recorder.read(gap_us * number, data)
    end = gap_us * (len(reads) + 1)
    return [*records, *recorder.rest(end), recorder.end(end, {"cause": cause, "ending": ending, "flags": []})]


#: What is different; the verdict at fold, shape, bytes, clock; the path of the first that counts at fold level.
ROWS: dict[str, tuple[list[Record], list[Record], tuple[int, int, int, int], str]] = {
    "nothing": (recorded(TEXT), recorded(TEXT), (0, 0, 0, 0), ""),
    "a text": (recorded(TEXT), recorded([TEXT[0], text("p"), *TEXT[2:]]), (2, 0, 2, 2), "text of answer 0"),
    "where the text is cut": (
        recorded(TEXT), recorded([text("He", role=True), text("llo"), *TEXT[2:]]), (0, 0, 2, 2), "",
    ),
    "an id": (
        recorded(TEXT), recorded([each.replace(b"chatcmpl-1", b"chatcmpl-2") for each in TEXT]), (1, 0, 1, 1), "id",
    ),
    "the model's name": (
        recorded(TEXT), recorded([each.replace(b'"m"', b'"n"') for each in TEXT]), (1, 0, 2, 2), "model",
    ),
    "the finish": (
        recorded(TEXT), recorded([*TEXT[:2], finish("length"), DONE]), (2, 0, 2, 2), "finish of answer 0",
    ),
    "no finish": (
        recorded(TEXT), recorded(TEXT[:2], ending="truncated"), (2, 2, 2, 2), "finish of answer 0",
    ),
    "the way it broke": (
        recorded(TEXT[:2], ending="truncated"), recorded(TEXT[:2], cause="reset", ending="reset"),
        (2, 2, 2, 2), "ending",
    ),
    "no [DONE]": (recorded(TEXT), recorded(TEXT[:3]), (1, 2, 2, 2), "flags"),
    "usage": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded([*TEXT[:3], USAGE.replace(b":3}", b":4}"), DONE]),
        (1, 0, 2, 2), "usage.total_tokens",
    ),
    "usage, and none": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded(TEXT), (1, 2, 2, 2), "usage.total_tokens",
    ),
    "none, and usage": (
        recorded(TEXT), recorded([*TEXT[:3], USAGE, DONE]), (1, 1, 2, 2), "usage.total_tokens",
    ),
    "a type": (
        recorded([*TEXT[:3], USAGE, DONE]), recorded([*TEXT[:3], USAGE.replace(b":3}", b':"3"}'), DONE]),
        (1, 2, 2, 2), "usage.total_tokens",
    ),
    "a member": (
        recorded(TEXT), recorded([each.replace(b'"created":7,', b"") for each in TEXT]), (0, 2, 2, 2), "",
    ),
    "a member that was not always there": (
        recorded(TEXT), recorded([TEXT[0].replace(b'"created":7,', b""), *TEXT[1:]]), (0, 0, 2, 2), "",
    ),
    "a member more": (
        recorded([each.replace(b'"created":7,', b"") for each in TEXT]), recorded(TEXT), (0, 1, 2, 2), "",
    ),
    "reasoning": (
        recorded([frame({"reasoning_content": "Hm"}), *TEXT]), recorded([frame({"reasoning_content": "Ah"}), *TEXT]),
        (2, 0, 2, 2), "reasoning of answer 0",
    ),
    "another order of kinds": (
        recorded([frame({"reasoning_content": "Hm"}), *TEXT]),
        recorded([*TEXT[:2], frame({"reasoning_content": "Hm"}), *TEXT[2:]]),
        (0, 2, 2, 2), "",
    ),
    "a second answer": (
        recorded(TEXT), recorded([*TEXT[:2], text("2", index=1), finish(index=1), *TEXT[2:]]), (2, 0, 2, 2), "answer 1",
    ),
    "a call's name": (
        recorded(CALL), recorded([CALL[0].replace(b"save", b"load"), *CALL[1:]]), (2, 0, 2, 2), "call 0: name",
    ),
    "a call's arguments": (
        recorded(CALL), recorded([CALL[0].replace(b'\\"a\\": 1', b'\\"a\\": 2'), *CALL[1:]]),
        (2, 0, 2, 2), "call 0: arguments.a",
    ),
    "spaces in a call's arguments": (
        recorded(CALL), recorded([CALL[0].replace(b'\\"a\\": 1', b'\\"a\\":1'), *CALL[1:]]),
        (1, 0, 2, 2), "call 0: arguments, written another way",
    ),
    "the kind of a tool": (
        recorded(CALL), recorded([CUSTOM, *CALL[1:]]), (2, 2, 2, 2), "call 0: tool",
    ),
    "spaces in the input of a custom call": (
        recorded([CUSTOM, *CALL[1:]]), recorded([CUSTOM.replace(b'\\"a\\": 1', b'\\"a\\":1'), *CALL[1:]]),
        (2, 0, 2, 2), "call 0: input",
    ),
    "a call's id": (
        recorded(CALL), recorded([CALL[0].replace(b"call_1", b"call_2"), *CALL[1:]]), (1, 0, 1, 1), "call 0: id",
    ),
    "one call more": (
        recorded(CALL), recorded([CALL[0], call(index=1, id="call_2", name="b", arguments="{}"), *CALL[1:]]),
        (2, 0, 2, 2), "call 1",
    ),
    "a call cut short": (
        recorded(CALL), recorded([CALL[0].replace(b': 1}', b': '), *CALL[1:]]), (2, 0, 2, 2), "call 0: state",
    ),
    "the question": (recorded(TEXT), recorded(TEXT, content="ho"), (1, 1, 2, 2), "request.messages[0].content"),
    "the status": (
        recorded([b'{"error":{"message":"no"}}'], status=400, body=True, ending="upstream_error", cause="status"),
        recorded([b'{"error":{"message":"no"}}'], status=401, body=True, ending="upstream_error", cause="status"),
        (2, 2, 2, 2), "status",
    ),
    "Retry-After": (
        recorded(TEXT), recorded(TEXT, headers=[["content-type", "text/event-stream"], ["retry-after", "7"]]),
        (0, 0, 2, 2), "",
    ),
    "a request id in a header": (
        recorded(TEXT), recorded(TEXT, headers=[["content-type", "text/event-stream"], ["x-request-id", "7"]]),
        (0, 0, 1, 1), "",
    ),
    "a retry": (recorded(TEXT), recorded(TEXT, attempts=2), (1, 0, 2, 2), "attempts"),
    "a comment": (recorded(TEXT), recorded([b": ping\n\n", *TEXT]), (0, 0, 1, 2), ""),
    "spaces in a frame": (
        recorded(TEXT), recorded([TEXT[0].replace(b'":', b'": '), *TEXT[1:]]), (0, 0, 1, 2), "",
    ),
    "line ends": (recorded(TEXT), recorded([each.replace(b"\n", b"\r\n") for each in TEXT]), (0, 0, 1, 2), ""),
    "the read boundaries": (recorded(TEXT), recorded([b"".join(TEXT)]), (0, 0, 0, 2), ""),
    "the times": (recorded(TEXT), recorded(TEXT, gap_us=20_000), (0, 0, 0, 1), ""),
    "the times, a little": (recorded(TEXT), recorded(TEXT, gap_us=10_001), (0, 0, 0, 0), ""),
    "bytes of an exchange": (
        recorded([b"event: a\ndata: {}\n\n"], dialect=""), recorded([b"event: b\ndata: {}\n\n"], dialect=""),
        (1, 2, 1, 1), "frame 0, written another way",
    ),
    "a value of an exchange": (
        recorded([b'{"data":[1]}'], dialect="", body=True), recorded([b'{"data":[2]}'], dialect="", body=True),
        (2, 0, 2, 2), "body 0.data[0]",
    ),
    "an exchange that is no JSON": (
        recorded([b"one two"], dialect="", body=True), recorded([b"one too"], dialect="", body=True),
        (2, 0, 2, 2), "body 0",
    ),
    "bytes that are no frame": (
        recorded([*TEXT, b"data: 1"]), recorded([*TEXT, b"data: 2"]), (0, 0, 2, 2), "",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("level", "column"), [(level, at) for at, level in enumerate(LEVELS)])
@pytest.mark.parametrize("name", ROWS)
def test_what_breaks_and_what_does_not(name: str, level: Level, column: int) -> None:
    a, b, verdicts, _ = ROWS[name]
    found = list(compare([a], [b], level))
    assert verdict(found) == verdicts[column], [difference.line() for difference in found]


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row[3]])
def test_where_it_is(name: str) -> None:
    a, b, _, path = ROWS[name]
    found = list(compare([a], [b]))
    first = next((difference for difference in found if difference.breaking), found[0])
    assert first.path == path


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", ROWS)
def test_a_recording_is_the_same_as_itself(name: str, level: Level) -> None:
    for records in ROWS[name][:2]:
        assert list(compare([records], [records], level)) == []


@pytest.mark.parametrize("level", LEVELS)
def test_a_live_tape_is_the_same_as_its_sealed_one(level: Level) -> None:
    long_id = [data.replace(b'"chatcmpl-1"', b'"chatcmpl-B9aXc0dEfG1hIjKlMnOpQr"') for data in TEXT]
    assert long_id != TEXT
    one, two, three, four = long_id
    live = recorded([one, two + three[:-20], three[-20:] + four])
    sealed = parse(seal([live])).streams
    assert len(b"".join(data for _, data in reads(sealed[0]))) < len(b"".join(long_id))
    assert verdict(list(compare([live], sealed, level))) <= 1
    other = recorded([one, two + three[:-21], three[-21:] + four])
    assert verdict(list(compare([other], sealed, "clock"))) == 2


def test_a_text_parts_at_a_character_of_a_record() -> None:
    a, b, _, _ = ROWS["a text"]
    assert [difference.line() for difference in compare([a], [b])] == [
        'breaking: stream 1, record 5: text of answer 0 at 3: "Hello" -> "Help"'
    ]


def test_of_what_is_missing_whole_the_top_is_named() -> None:
    usage = [*TEXT[:3], USAGE, DONE]
    found = list(compare([recorded(usage)], [recorded(TEXT)], "shape"))
    assert [difference.path for difference in found] == ["usage", "order of kinds"]
    back = list(compare([recorded(TEXT)], [recorded(usage)], "shape"))
    assert [(difference.path, difference.breaking) for difference in back] == [
        ("usage", False),
        ("order of kinds", False),
    ]


def test_one_stream_more_is_breaking() -> None:
    one = recorded(TEXT)
    assert list(compare([one], [one, one])) == [Difference("streams", 1, 2, breaking=True, stream=2)]


def test_the_second_stream_says_that_it_is_the_second() -> None:
    one, other = recorded(TEXT), recorded([text("x", role=True), *TEXT[1:]])
    assert [difference.stream for difference in compare([one, one], [one, other])] == [2]


CHANGES: list[tuple[Any, Any, list[Change]]] = [
    ({"a": 1}, {"a": 1.0}, []),
    ({"a": 1}, {"a": True}, [Change("a", 1, True, "type")]),
    ({"a": None}, {}, [Change("a", None, None, "missing")]),
    ({}, {"b c": 1}, [Change("['b c']", None, 1, "new")]),
    ([1, [2]], [1, [3, 4]], [Change("[1][1]", None, 4, "new"), Change("[1][0]", 2, 3, "value")]),
    ({"a": {"b": []}}, {"a": {"b": {}}}, [Change("a.b", [], {}, "type")]),
]


@pytest.mark.parametrize(("a", "b", "found"), CHANGES)
def test_json_beside_json(a: Any, b: Any, found: list[Change]) -> None:
    assert list(changes(a, b)) == found


@given(st.text(), st.text(), st.text())
def test_the_place_where_two_texts_part(common: str, a: str, b: str) -> None:
    at = first_difference(common + a, common + b)
    assert (common + a)[:at] == (common + b)[:at]
    assert at >= len(common)
    assert (common + a)[at : at + 1] != (common + b)[at : at + 1] or common + a == common + b


@pytest.mark.parametrize(
    ("value", "at", "shown"),
    [
        (None, None, "(absent)"),
        ("a\nb", None, '"a\\nb"'),
        ("x" * 100, None, '"' + "x" * 68 + "…"),
        ("x" * 50 + "HERE" + "y" * 100, 50, '…"' + "x" * 20 + "HERE" + "y" * 46 + '"…'),
        (b"\xff", 0, '"\\\\xff"'),
        ({"a": 1}, None, '{"a": 1}'),
        ("\ud83d", None, '"\\ud83d"'),
    ],
)
def test_what_is_shown_of_a_value(value: Any, at: int | None, shown: str) -> None:
    assert shortened(value, at) == shown


@needs_corpus
@pytest.mark.slow
def test_a_corpus_stream_differs_from_the_next_and_not_from_itself() -> None:
    tapes = [recorded([stream.body]) for _, stream in sampled() if stream.body]
    for a, b in pairwise(tapes):
        for level in LEVELS:
            assert list(compare([a], [a], level)) == []
        if [each.raw for each in a[4:]] != [each.raw for each in b[4:]]:
            assert list(compare([a], [b], "bytes"))


@pytest.mark.parametrize("name", [*TAPES, "a call's name"])
@pytest.mark.parametrize("level", LEVELS)
def test_every_prefix_of_a_tape_can_be_compared_and_exported(name: str, level: Level) -> None:
    """Law L4."""
    records = Reader().feed(TAPES[name]) if name in TAPES else ROWS[name][0]
    for end in range(1, len(records)):
        prefix = records[:end]
        assert list(compare([prefix], [prefix], level)) == []
        assert verdict(list(compare([prefix], [records], level))) in (0, 1, 2)
        to_har([prefix])
        to_sse(prefix, client=True)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("keys", [{"headers": [1, [2]]}, {"headers": "no", "status": []}, {"status": {"a": 1}}])
def test_a_head_that_nobody_of_ours_wrote_is_compared_too(level: Level, keys: dict[str, Any]) -> None:
    odd = [each._replace(keys=keys) if each.kind == "head" else each for each in recorded(TEXT)]
    assert list(compare([odd], [odd], level)) == []
    list(compare([odd], [recorded(TEXT)], level))
    to_har([odd])
