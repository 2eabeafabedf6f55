"""The summary of a stream, and leaked markup, which is found wherever its pieces were cut (Q77, Q78, Q81 to Q83)."""

from typing import Any

import pytest

from tests.support.chat import DONE, call, call_entry, finish, frame, run, sse, tape, text, tool_calls
from wiretape.events.core.lifecycle import State
from wiretape.events.core.model import Event, ReasoningDelta, TextDelta, ToolArgumentsDelta
from wiretape.events.emit import summarise
from wiretape.events.folds.summary import Answer, Markup, StreamSummary, Warned
from wiretape.events.folds.wire import Wire
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

CALL = call(index=0, id="c", name="f", role=True)
HALF = call(index=0, id="c", name="f", arguments='{"q":', role=True)
WHOLE = call(index=0, id="c", name="f", arguments="{}", role=True)
OTHER = call(choice=1, index=0, id="d", name="g", role=True)


@pytest.mark.parametrize(
    ("upstream", "cause", "found"),
    [
        pytest.param([text("x"), finish(), DONE], "eof", [], id="nothing"),
        pytest.param([WHOLE, finish("tool_calls"), DONE], "eof", [], id="a call was handed over"),
        pytest.param([HALF], "reset", [Warned("reset", (("c", "f"),))], id="a call was cut"),
        pytest.param([text("x")], "stalled", [Warned("stalled", ())], id="a text was cut"),
        pytest.param([HALF, finish("tool_calls"), DONE], "eof", [Warned("malformed", (("c", "f"),))], id="malformed"),
        pytest.param(
            [HALF, OTHER, finish("length")],
            "eof",
            [Warned("length", (("c", "f"),)), Warned("truncated", (("d", "g"),))],
            id="one by length, one cut",
        ),
        pytest.param([text("x"), finish()], "eof", [Warned("no_done", ())], id="a flag"),
        pytest.param(
            [HALF, finish("tool_calls")],
            "eof",
            [Warned("malformed", (("c", "f"),)), Warned("no_done", ())],
            id="a malformed call and a flag",
        ),
    ],
)
def test_warnings_name_lost_calls_with_the_reason(upstream: list[bytes], cause: str, found: list[Warned]) -> None:
    records = tape(upstream, cause=cause, request={"model": "m", "stream": True, "n": 2})
    assert summarise(records).warnings == found
    assert summarise(records[:-1]).warnings == [], "known at the end only"


def moves(records: list[Record]) -> list[tuple[int, State]]:
    (call,) = summarise(records).wire.calls()
    return call.moves


def test_moves_list_every_state_with_its_record() -> None:
    records = tape([CALL, call(index=0, arguments="{}"), finish("tool_calls"), DONE])
    assert moves(records) == [(2, State.ANNOUNCED), (4, State.READY), (4, State.RUNNING)]
    assert moves(tape([CALL], cause="reset")) == [(2, State.ANNOUNCED), (3, State.DROPPED)]
    malformed = tape([HALF, finish("tool_calls"), DONE])
    assert moves(malformed) == [(2, State.ANNOUNCED), (3, State.MALFORMED)]


def test_the_last_token_counts_are_taken_and_never_summed() -> None:
    assert summarise(tape([text("x"), finish(), DONE])).wire.usage is None
    several = [frame({"content": "x", "role": "assistant"}, usage={"total_tokens": 3}), finish()]
    several += [sse({"id": "chatcmpl-1", "choices": [], "usage": {"total_tokens": 9}}), DONE]
    assert summarise(tape(several)).wire.usage == {"total_tokens": 9}
    texts = [frame({"content": "x"}, usage={"total_tokens": number}) for number in range(1, 9)]
    assert summarise(tape([text("a", role=True), *texts, finish(), DONE])).wire.usage == {"total_tokens": 8}


def test_a_new_attempt_starts_from_nothing() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat"})]
    for number, frames in enumerate(([frame({}, usage={"total_tokens": 1})], [text("b", role=True)]), 1):
        records += recorder.attempt(10 * number, {"number": number})
        records.append(recorder.record("head", 10 * number, {"status": 500 + number}))
        records.append(
            recorder.record("failed", 10 * number, {"address": "a", "attempt": number, "error": f"e{number}"})
        )
        for data in frames:
            records += recorder.read(10 * number + 1, data)
    summary = summarise(records)
    assert (summary.wire.usage, summary.frames, summary.first_frame_us, summary.first_content_us) == (None, 1, 21, 21)
    assert (summary.records, summary.attempts) == (
        len(records),
        [
            {
                "n": 1,
                "at_us": 10,
                "number": 1,
                "status": 501,
                "failure": {"n": 3, "at_us": 10, "address": "a", "error": "e1"},
            },
            {
                "n": 5,
                "at_us": 20,
                "number": 2,
                "status": 502,
                "failure": {"n": 7, "at_us": 20, "address": "a", "error": "e2"},
            },
        ],
    )


def test_silence_counts_from_the_attempt_and_a_pause_from_content() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat"})]
    records += recorder.attempt(10, {"number": 1})
    records += recorder.attempt(40, {"number": 2})
    records += recorder.read(60, frame({}))
    assert (summarise(records).longest_silence_us, summarise(records).longest_pause_us) == (30, 0)
    records += [*recorder.read(65, text("a", role=True)), *recorder.read(85, text("b"))]
    assert (summarise(records).longest_silence_us, summarise(records).longest_pause_us) == (30, 20)
    records.append(recorder.end(125, {"cause": "stalled"}))
    assert (summarise(records).longest_silence_us, summarise(records).longest_pause_us) == (40, 40)


def test_keepalive_of_an_agent_ends_a_silence() -> None:
    def silence(*settings: dict[str, bool]) -> int:
        recorder = Recorder()
        records = [recorder.record("open", 0, {"format": 1, "dialect": "chat", "settings": each}) for each in settings]
        records += recorder.attempt(10, {"number": 1})
        records += [*recorder.read(60, b": keepalive\n\n"), *recorder.read(100, text("a", role=True))]
        return summarise(records).longest_silence_us

    assert (silence({"hermes": True}), silence({"hermes": False}), silence()) == (50, 90, 90)
    assert summarise([]).t == 0


def test_without_events_only_the_facts_of_the_catalogue_are_kept() -> None:
    summary, wire = StreamSummary(), Wire()
    wire.apply(TextDelta(n=0, choice=0, text="x"))
    summary.take(Record(0, 7, "frame", raw=text("x")), wire)
    assert (summary.frames, summary.first_content_us, summary.received_bytes) == (1, 7, len(text("x")))
    assert (summary.answers, summary.last_content_us) == ([], None)


def test_an_end_alone_is_no_silence() -> None:
    summary = summarise([Record(0, 100, "end", {"cause": "eof"})])
    assert (summary.longest_silence_us, summary.longest_pause_us) == (0, 0)


def test_answer_has_the_finish_of_its_choice() -> None:
    summary = summarise(tape([text("x", role=True), finish(), DONE]))
    assert [summary.answer(choice) for choice in (0, 1)] == [Answer(0, "x", "", "", "stop"), Answer(1, "", "", "", "")]


@pytest.mark.parametrize(
    ("dialect", "keys", "ending", "flags"),
    [
        ("chat", {"cause": "eof"}, "completed", ["no_done"]),
        ("chat", {"cause": "eof", "ending": "reset", "flags": ["unframed", 7]}, "reset", ["unframed"]),
        ("", {"cause": "eof", "ending": 7}, "internal", []),
        ("chat", None, None, ["no_done"]),
    ],
    ids=["computed", "stated", "neither", "running"],
)
def test_ending_is_the_stated_one_or_else_computed(
    dialect: str, keys: dict[str, Any] | None, ending: str | None, flags: list[str]
) -> None:
    opened, *records, end = tape([text("x", role=True), finish()])
    ends = [] if keys is None else [end._replace(keys=keys)]
    summary = summarise([opened._replace(keys={**opened.keys, "dialect": dialect}), *records, *ends])
    assert (summary.ending, summary.flags) == (ending, flags)


def test_received_bytes_are_those_of_the_end_where_it_counts_them() -> None:
    records = tape([text("x", role=True)])
    counted = {key: records[-1].keys[key] for key in ("bytes", "frames", "sha256")}
    assert summarise(records).received == counted
    without = {"bytes": len(text("x", role=True)), "frames": 1}
    assert summarise(records[:-1]).received == without
    assert summarise([*records[:-1], records[-1]._replace(keys={"cause": "eof"})]).received == without


def test_results_marks_and_refusals_are_kept() -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat"})]
    records.append(recorder.record("history", 0, {"marks": [{"markers": 1}]}))
    records.append(recorder.record("results", 0, {"results": [{"id": "c"}]}))
    records += recorder.read(1, frame({"role": "assistant", "refusal": "no"}))
    summary = summarise(records)
    assert (summary.history, summary.results["results"]) == ([{"markers": 1}], [{"id": "c"}])
    assert summary.answer().refusal == "no"


@pytest.mark.parametrize("dialect", ["", "realtime"])
def test_stream_of_another_dialect_has_the_warnings_of_its_tape(dialect: str) -> None:
    recorder = Recorder()
    records = [recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": dialect}), recorder.body(1, b"{}")]
    records.append(recorder.end(2, {"cause": "reset", "ending": "reset", "flags": ["unframed"]}))
    assert summarise(records).warnings == [Warned("reset", ()), Warned("unframed", ())]


@pytest.mark.parametrize(
    "repeated", [frame({"text": "a", "content": "b"}), frame({"content": "b"}).replace(b'"b"', b'"\\u0062"')]
)
def test_text_next_to_another_text_or_in_escapes_is_read(repeated: bytes) -> None:
    records = tape([text("x", role=True), repeated, repeated, repeated, finish(), DONE])
    assert summarise(records).answer().text == "xbbb"


def test_frames_of_one_shape_add_their_text() -> None:
    """Most frames of a tape are recognised by their shape and never parsed by the dialect."""
    pieces = ["word ", 'a "quote"', "", "\n", "line\\", "é", "\U0001f600", "<think>", "x" * 3_000, "end"]
    frames = [text("first ", role=True), *map(text, pieces), finish(), DONE]
    summary = summarise(tape(frames))
    assert summary.answer().text == "first " + "".join(pieces)
    assert [warned.code for warned in summary.warnings] == ["leaked_think"]
    assert (summary.first_content_us, summary.last_content_us, summary.frames) == (1, len(pieces) + 1, len(frames))


CASES = [
    ("Q77 Q78 <think> in text", "<think>hm</think>", ("leaked_think",)),
    ("Q78 only the closing tag", "hm</think>hi", ("leaked_think",)),
    ("Q81 Kimi's section", "<|tool_calls_section_begin|>", ("leaked_tool_section",)),
    ("Q81 Kimi's call", "<|tool_call_begin|>", ("leaked_tool_section",)),
    ("Q81 Kimi's other dialect", "<|open|>tools", ("leaked_tool_section",)),
    ("Q82 DeepSeek, full-width pipes", "<\uff5cDSML\uff5cinvoke", ("leaked_dsml",)),
    ("Q82 DeepSeek, plain pipes", "<|DSML|invoke", ("leaked_dsml",)),
    ("Q82 DeepSeek, drawn pipes", "<\u2502DSML\u2502invoke", ("leaked_dsml",)),
    ("Q83 Qwen", "<tool_call>{}</tool_call>", ("leaked_tool_call",)),
    ("Q83 Qwen's coder", "<function=f>", ("leaked_tool_call",)),
    ("two at once", "<tool_call></think>", ("leaked_think", "leaked_tool_call")),
    ("nothing", "a < b, <thinker>, <|x|>, DSML", ()),
]


@pytest.mark.parametrize(("words", "found"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_markup_in_text_is_found_wherever_it_is_cut(words: str, found: tuple[str, ...]) -> None:
    for cut in range(len(words) + 1):
        markup = Markup()
        for piece in ("long before " * 3, words[:cut], words[cut:]):
            markup.apply(TextDelta(n=0, choice=0, text=piece))
        assert sorted(markup.found) == sorted(found)
        one_by_one = Markup()
        for letter in words:
            one_by_one.apply(TextDelta(n=0, choice=0, text=letter))
        assert sorted(one_by_one.found) == sorted(found)


@pytest.mark.parametrize(
    ("event", "found"),
    [
        (ReasoningDelta(n=0, choice=0, text="<think><tool_call>"), ("leaked_tool_call",)),
        (ToolArgumentsDelta(n=0, choice=0, call=0, text="<think><tool_call><|DSML|"), ("leaked_dsml",)),
    ],
    ids=["a thought", "arguments"],
)
def test_markup_is_found_only_where_it_is_out_of_place(event: Event, found: tuple[str, ...]) -> None:
    markup = Markup()
    markup.apply(event)
    assert tuple(markup.found) == found


def test_pieces_of_different_texts_do_not_make_a_marker() -> None:
    markup = Markup()
    markup.apply(TextDelta(n=0, choice=0, text="<thi"))
    markup.apply(TextDelta(n=0, choice=1, text="nk>"))
    markup.apply(ReasoningDelta(n=0, choice=0, text="nk>"))
    assert not markup.found


def test_leaked_markup_is_a_warning_and_no_repair() -> None:
    result = run(tape([text("<tool_call>", role=True), finish(), DONE]))
    assert summarise(result.records).warnings == [Warned("leaked_tool_call", ())]
    assert result.repairs == []


def test_warning_names_a_thousand_calls_at_most() -> None:
    entries = [call_entry(f"c{number}", "f", "{", number) for number in range(1_001)]
    (warned,) = summarise(tape([tool_calls(*entries[:500], role=True), tool_calls(*entries[500:])])).warnings
    assert len(warned.calls) == 1_000
