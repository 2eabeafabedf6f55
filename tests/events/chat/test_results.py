"""Requests: their facts, the tool results in them, and the frames that report those. All cases synthetic."""

import json
from typing import Any

import pytest

from tests.events.chat.rows import tools
from tests.support.chat import DONE, Run, begin, call, call_entry, finish, frame, run, tape, text, tool_calls
from wiretape.events.chat.request import LEGACY_ID, facts, results_in, unsealed
from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from wiretape.events.core.model import ToolResultSeen
from wiretape.events.core.results import Result, Results
from wiretape.events.core.settings import Facts
from wiretape.events.dialects import CHAT
from wiretape.events.emission.words import preview
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder


def called(*calls: tuple[str, str, str]) -> dict[str, Any]:
    entries = [call_entry(call_id, name, arguments, index=ABSENT) for call_id, name, arguments in calls]
    return {"role": "assistant", "content": None, "tool_calls": entries}


def answered(call_id: Any, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def found(*messages: Any) -> list[Result]:
    there = results_in({"messages": list(messages)})
    return [] if there is None else there.results


USER = {"role": "user", "content": "do it"}
READ = called(("call_1", "read", '{"path":"a"}'))


# -- what is found ----------------------------------------------------------------------------------------------------


def test_a_result_has_the_name_and_the_arguments_of_its_call() -> None:
    assert results_in({"messages": [USER, READ, answered("call_1", "text")]}) == Results(
        [Result("call_1", "read", "text", arguments='{"path":"a"}')], after=1, more=0
    )


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [USER],
        [USER, {"role": "assistant", "content": "hello"}, USER],
        [USER, READ],
        [USER, READ, answered("call_1"), {"role": "assistant", "content": "done"}, USER],
    ],
    ids=["no message", "a first turn", "a second turn", "a call that nobody answered", "answered a turn ago"],
)
def test_a_request_without_results_brings_none(messages: list[Any]) -> None:
    assert results_in({"messages": messages}) is None


def test_an_id_that_is_used_each_turn_means_the_call_of_the_last_turn() -> None:
    first = called(("list_dir:0", "list_dir", '{"path":"."}'))
    second = called(("list_dir:0", "read_file", '{"path":"a"}'))
    (result,) = found(USER, first, answered("list_dir:0", "a b"), second, answered("list_dir:0", "text"))
    assert result == Result("list_dir:0", "read_file", "text", arguments='{"path":"a"}')


def test_of_two_results_of_one_call_the_first_counts_and_of_two_calls_of_one_id_too() -> None:
    calls = called(("a", "read", ""), ("a", "write", ""))
    assert found(calls, answered("a", "1"), answered("a", "2")) == [Result("a", "read", "1")]


def test_a_result_that_answers_no_call_of_the_last_message_is_an_orphan() -> None:
    two = [USER, READ, called(("call_2", "write", "{}"))]
    assert found(*two, answered("call_1"), answered("call_2"), answered(None)) == [
        Result("call_1", "", "ok", orphan=True),
        Result("call_2", "write", "ok", arguments="{}"),
        Result("", "", "ok", orphan=True),
    ]
    assert results_in({"messages": [answered("call_1")]}) == Results([Result("call_1", "", "ok", orphan=True)], 0, 0)
    assert found(USER, answered("call_1")) == [Result("call_1", "", "ok", orphan=True)]
    assert found("junk", answered("call_1")) == [Result("call_1", "", "ok", orphan=True)]


def test_a_custom_tool_has_an_input() -> None:
    custom = {"role": "assistant", "tool_calls": [{"id": "a", "custom": {"name": "run", "input": "ls"}}]}
    assert found(custom, answered("a")) == [Result("a", "run", "ok", arguments="ls")]


def test_a_legacy_function_is_answered_by_name() -> None:
    legacy = {"role": "assistant", "function_call": {"name": "look", "arguments": "{}"}}
    said = {"role": "function", "name": "look", "content": "seen"}
    other = {"role": "function", "name": "jump", "content": "no"}
    assert found(legacy, said) == [Result(LEGACY_ID, "look", "seen", arguments="{}")]
    assert found(legacy, other, said) == [
        Result("", "", "no", orphan=True),
        Result(LEGACY_ID, "look", "seen", arguments="{}"),
    ]
    assert found(READ, said) == [Result("", "", "seen", orphan=True)]


@pytest.mark.parametrize(
    ("content", "output"),
    [
        ("text", "text"),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "ab"),
        (["a", {"text": 5}, {"type": "image_url"}, None, {"text": "b"}], "ab"),
        (None, ""),
        ({"text": "no part"}, ""),
        ("x" * 5_000_000, "x" * PREVIEW_BYTES_MAX),
        (["x" * (PREVIEW_BYTES_MAX - 1), "yz", "more"], "x" * (PREVIEW_BYTES_MAX - 1) + "y"),
        ("é" * PREVIEW_BYTES_MAX, "é" * (PREVIEW_BYTES_MAX // 2)),
    ],
    ids=["text", "parts", "junk among parts", "null", "an object", "5 MB", "parts beyond a preview", "two bytes each"],
)
def test_the_output_is_a_preview_of_the_text(content: Any, output: str) -> None:
    assert [result.output for result in found(READ, answered("call_1", content))] == [output]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_a_preview_ends_at_its_bound_and_between_characters(over: int) -> None:
    assert preview("x" * (PREVIEW_BYTES_MAX + over)) == "x" * (PREVIEW_BYTES_MAX + min(0, over))
    fits = "x" * (PREVIEW_BYTES_MAX - 2 + over)
    assert preview(fits + "é") == (fits if over > 0 else fits + "é")
    assert preview("\ud83d") == "\ud83d"


@pytest.mark.parametrize(
    ("message", "failed"),
    [
        (answered("call_1"), False),
        (answered("call_1", is_error=True), True),
        (answered("call_1", is_error="yes"), False),
        (answered("call_1", [{"type": "text", "text": "no", "is_error": True}]), True),
        (answered("call_1", '{"error": "a text may say anything"}'), False),
    ],
    ids=["no word for it", "is_error", "no boolean", "on a part", "inside the text"],
)
def test_a_call_has_failed_only_where_the_request_says_so(message: Any, failed: bool) -> None:
    assert [result.failed for result in found(READ, message)] == [failed]


@pytest.mark.parametrize("over", [-1, 0, 1])
def test_results_beyond_a_bound_are_counted(over: int) -> None:
    calls = called(*((str(number), "read", "") for number in range(RESULTS_MAX + over)))
    there = results_in({"messages": [calls, *(answered(str(number)) for number in range(RESULTS_MAX + over))]})
    assert there is not None
    assert (len(there.results), there.more) == (RESULTS_MAX + min(0, over), max(0, over))


JUNK: list[Any] = [None, 5, True, "x", [], [None], {}, {"role": "assistant"}, [[]]]


@pytest.mark.parametrize("junk", JUNK, ids=str)
def test_a_malformed_history_is_read_as_far_as_it_goes(junk: Any) -> None:
    assert results_in(junk) is None
    assert results_in({"messages": junk}) is None
    calls = {"role": "assistant", "tool_calls": junk, "function_call": junk}
    assert [result.orphan for result in found(junk, calls, junk, answered("a"))] in ([True], [])
    entry = {
        "role": "assistant",
        "tool_calls": [junk, {"id": junk}, {"id": "a", "function": junk}, {"id": "b", "custom": junk}],
    }
    assert [result.id for result in found(entry, answered("a", junk), answered("b"), answered(junk))][:2] == ["a", "b"]
    assert found({"role": "assistant", "function_call": junk}, {"role": "function", "name": junk, "content": junk})


# -- the frames ------------------------------------------------------------------------------------------------------


def answering(results: Any, upstream: list[bytes], **settings: Any) -> list[Record]:
    """The tape of a stream whose request brought these results; its attempts are split by empty pieces."""
    opening = tape([], **settings)[:2]
    recorder = Recorder()
    made = [recorder.record(record.kind, 0, record.keys) for record in opening]
    made += recorder.attempt(0, {"number": 1})
    made.append(recorder.record("results", 0, {"results": results}))
    for t, data in enumerate(upstream, 1):
        made += recorder.read(t, data) if data else recorder.attempt(t, {"number": 2})
    return [*made, *recorder.rest(1 << 40), recorder.end(1 << 40, {"cause": "eof"})]


def told(result: Run) -> list[tuple[str, str]]:
    frames = [json.loads(frame.partition(b"data: ")[2]) for frame in result.sent if frame.startswith(b"event:")]
    return [(payload["status"], payload["toolCallId"]) for payload in frames]


ROLE = text("", role=True)
ANSWERED = [{"id": "call_0", "name": "read", "output": "text"}]


def test_a_retry_after_a_frame_without_content_shows_the_same_frames() -> None:
    plain = run(answering(ANSWERED, [ROLE, text("hi"), finish(), DONE]))
    again = run(answering(ANSWERED, [ROLE, b"", ROLE, text("hi"), finish(), DONE]))
    assert told(plain) == told(again) == [("completed", "call_0")]
    assert plain.sent == again.sent


def test_a_call_of_this_stream_may_have_the_id_of_one_that_is_answered_here() -> None:
    """Each is reported once, the ended one first, even where the first frame is the last."""
    whole = begin("call_0", "read", "{}", role=True)
    for settings in ({}, {"tools": "held"}):
        apart = run(answering(ANSWERED, [whole, finish("tool_calls"), DONE], **settings))
        assert told(apart) == [("completed", "call_0"), ("running", "call_0")]
    choice = json.loads(whole[6:])["choices"][0] | {"finish_reason": "tool_calls"}
    at_once = b"data: " + json.dumps(json.loads(whole[6:]) | {"choices": [choice]}).encode() + b"\n\n"
    assert told(run(answering(ANSWERED, [at_once, DONE]))) == [("completed", "call_0"), ("running", "call_0")]


@pytest.mark.parametrize("settings", [{}, {"tools": "held"}, {"on_partial": "warn"}, {"on_partial": "both"}], ids=str)
@pytest.mark.parametrize(
    "came",
    [
        pytest.param([tool_calls(call_entry("a", "f", "{}"), reason="tool_calls", role=True)], id="a whole call"),
        pytest.param([tool_calls(call_entry("a", "f", "{}"), reason="tool_calls")], id="a whole call without a role"),
        pytest.param([tool_calls(call_entry("a", "f", "{"), reason="length", role=True)], id="half a call"),
        pytest.param([tool_calls(call_entry("a", "f", "{"), reason="tool_calls", role=True)], id="a malformed call"),
        pytest.param([frame({"role": "assistant", "content": "hi"}, "stop")], id="a whole text"),
        pytest.param([begin("a", "f", '{"x', role=True)], id="a cut"),
        pytest.param(
            [text("hi", role=True, index=1), finish("stop", 1), text("hi", role=True), finish()], id="choice 1"
        ),
    ],
)
def test_a_whole_call_in_the_first_chunk_keeps_its_role(came: list[bytes], settings: dict[str, Any]) -> None:
    """LangChain.js takes the kind of message from the first delta of a choice, whichever frame that is (R1)."""
    for made in (tape([*came, DONE], **settings), answering(ANSWERED, [*came, DONE], **settings)):
        roles: dict[int, list[bool]] = {}
        for payload in (sent.partition(b"data: ")[2] for sent in run(made).sent):
            for choice in json.loads(payload).get("choices", ()) if payload != b"[DONE]\n\n" else ():
                roles.setdefault(choice["index"], []).append("role" in choice["delta"])
        assert all(one[0] and sum(one) == 1 for one in roles.values()), roles


def test_results_that_come_between_frames_are_reported_with_the_next_frame() -> None:
    made = tape([text("a", role=True), text("b"), text("c"), text("d"), finish(), DONE])
    late = [*made[:4], Record(4, 2, "results", {"results": ANSWERED}), *(one._replace(n=one.n + 1) for one in made[4:])]
    assert [one.startswith(b"event") for one in run(late).sent] == [False] * 3 + [True] + [False] * 3


def test_never_two_frames_of_one_status_for_one_call() -> None:
    """The defect found in review of hermes pull 16666: a progress and a start frame for the same call."""
    pieces = [begin("call_1", "read", '{"a":')]
    pieces += [call(index=0, id="call_1", name="read", arguments="1}"), finish("tool_calls"), finish("tool_calls")]
    result = run(answering([*ANSWERED, *ANSWERED], [ROLE, *pieces, DONE, DONE]))
    assert told(result) == [("completed", "call_0"), ("running", "call_1")]


def test_internal_tools_and_orphans_are_in_the_ledger_and_not_on_the_wire() -> None:
    results = [{"id": "a", "name": "_plan"}, {"id": "b", "orphan": True}, {"id": "c", "orphan": True, "name": "x"}]
    internal = begin("d", "_plan", "{}", role=True)
    result = run(answering(results, [internal, finish("tool_calls"), DONE]))
    assert told(result) == []
    assert [(entry.n, entry.repair) for entry in result.ledger] == [
        (3, "internal_tool"),
        (3, "orphan_result"),
        (3, "orphan_result"),
        (5, "internal_tool"),
    ]
    off = run(answering(results, [internal, finish("tool_calls"), DONE], tool_events=False))
    assert (off.sent, off.ledger) == (result.sent, [])


def test_a_tool_that_the_request_declares_is_not_internal() -> None:
    """The facts of a request have the names of its tools, so that its first letter decides nothing."""
    request = tools("_plan")
    declared = begin("d", "_plan", "{}", role=True)
    whole = run(answering([{"id": "a", "name": "_plan"}], [declared, finish("tool_calls"), DONE], request=request))
    assert told(whole) == [("completed", "a"), ("running", "d")]
    cut = run(tape([begin("d", "_plan", '{"x'), begin("e", "_other", "", 1)], request=request))
    assert told(cut) == [("dropped", "d")]
    error = json.loads(cut.sent[-1][6:])["error"]
    assert error["dropped_tools"] == [{"id": "d", "name": "_plan"}]
    assert "_plan, an internal tool were cut short" in error["message"]


def test_results_of_a_tape_may_be_junk() -> None:
    results = [{"id": 5}, {"id": "a", "name": 5, "duration_ms": "x"}, {"id": "b", "name": "read", "duration_ms": 7}]
    seen = run(answering(results, [])).of(ToolResultSeen)
    assert [(one.id, one.name, one.duration_ms) for one in seen] == [("a", "", None), ("b", "read", 7)]


def test_a_request_with_everything() -> None:
    body = {
        "model": "m",
        "stream": True,
        "stream_options": {"include_usage": True},
        "n": 2,
        "tools": [{"type": "function", "function": {"name": "f"}}, {"type": "custom", "custom": {"name": "g"}}],
        "functions": [{"name": "h"}],
    }
    known = Facts(stream=True, usage=True, model="m", choices=2, tools=frozenset({"f", "g", "h"}))
    assert facts(body) == known
    assert Facts.of({"facts": known.to_keys()}) == known


@pytest.mark.parametrize("n", [None, 1], ids=str)
def test_one_answer_is_the_default(n: int | None) -> None:
    assert facts({"n": n}).choices == 1
    assert facts({}).choices == 1


@pytest.mark.parametrize("junk", [None, 5, True, "x", [], [None], [[]], {}, {"name": 5}, [{"function": 5}]], ids=str)
def test_junk_is_nothing(junk: Any) -> None:
    assert facts(junk) == Facts(stream=False, choices=1)
    members = {"stream_options": junk, "tools": junk, "functions": junk}
    assert facts(members) == Facts(stream=False, choices=1)


@pytest.mark.parametrize("junk", ["2", 2.0, True, [], {}], ids=str)
def test_a_junk_count_of_answers_is_unknown(junk: Any) -> None:
    assert facts({"n": junk}).choices is None


def test_request_for_a_whole_answer_asks_for_no_stream() -> None:
    asked = b'{"stream":true, "stream_options":{"include_usage":true},"model":"m"}'
    assert parse(CHAT.unstreamed(asked)) == {"stream": False, "model": "m"}


@pytest.mark.parametrize("details", [[], [{"data": "x"}], [{"data": "wt1.e30="}, {"data": "x"}], "wt1.", None], ids=str)
def test_request_goes_out_without_envelopes_of_ours(details: Any) -> None:
    asked = {"messages": [{"role": "assistant", "content": "a", "reasoning_details": details}, 5]}
    sent = parse(unsealed(dumps(asked)))["messages"][0]["reasoning_details"]
    assert sent == ([{"data": "x"}] if isinstance(details, list) and details else details)
