"""Chunks to events and back: canonical chunks, frames of ours to the byte, and pictures of tools."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat import DONE, call, finish, run, tape, text
from wiretape.events.chat import chunk, write
from wiretape.events.chat.repair import Repair
from wiretape.events.core.json_text import parse
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import LABEL_CHARS_MAX
from wiretape.events.core.model import (
    AttemptStarted,
    Ended,
    Event,
    Finish,
    ForeignFrame,
    HandedOver,
    ReasoningDelta,
    RefusalDelta,
    Repaired,
    ResponseStarted,
    Terminator,
    TextDelta,
    ToolArgumentsComplete,
    ToolArgumentsDelta,
    ToolCallStarted,
    ToolNameDelta,
    ToolProgress,
    ToolResultSeen,
    UpstreamError,
    Usage,
)
from wiretape.events.core.settings import Facts, Settings
from wiretape.events.emission.cards import Cards, emoji_of
from wiretape.events.emission.dialect import Context
from wiretape.events.emission.frames import Ledger
from wiretape.events.folds.wire import Call, Wire
from wiretape.events.tape.record import Record

ENVELOPE = chunk.envelope("chatcmpl-1", "m", 7)
CONTEXT = Context(Facts(model="m"), Settings(), "1", 7, Wire(), Ledger(), set())
CARDS = Cards(Settings(), Ledger())


def a_call(
    arguments: str = '{"path":"a.txt"}', name: str = "write_file", reason: str = "", state: State = State.ANNOUNCED
) -> Call:
    call = Call(0, 0, "call_1", name)
    call.state = state
    call.text.write(arguments)
    call.reason = reason
    return call


def card(call: Call, status: str) -> bytes:
    """The lifecycle frame of a call."""
    writer = write.ChatWriter(CONTEXT)
    return writer.encode(writer.card(1, 0, CARDS.of_call(call, status)))


def payload(frame: bytes) -> dict[str, Any]:
    """The JSON of a frame."""
    value: dict[str, Any] = json.loads(frame.partition(b"data: ")[2])
    return value


def test_a_running_frame_is_a_chunk_with_an_empty_delta() -> None:
    assert card(a_call(), "running") == (
        b'event: hermes.tool.progress\ndata: {"id":"chatcmpl-1","object":"chat.completion.chunk",'
        b'"created":7,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":null}],"tool":"write_file","toolCallId":"call_1",'
        b'"status":"running","label":"a.txt","input":"{\\"path\\":\\"a.txt\\"}"}\n\n'
    )


@pytest.mark.parametrize(
    ("failed", "duration", "status"),
    [pytest.param(False, 12, "completed", id="a result"), pytest.param(True, None, "failed", id="an error result")],
)
def test_a_result_frame(failed: bool, duration: int | None, status: str) -> None:
    event = ToolResultSeen(n=2, id="call_1", name="write_file", failed=failed, output="done", duration_ms=duration)
    said = write.ChatWriter(CONTEXT).card(2, 0, CARDS.of_result(event)).value
    assert (said["status"], said["toolCallId"], said["output"]) == (status, "call_1", "done")
    assert said.get("duration_ms") == duration


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        pytest.param('{"n":1,"path":"a  b\\nc"}', "a b c", id="the first string, on one line"),
        pytest.param('{"n":1}', None, id="no string"),
        pytest.param("[1]", None, id="no object"),
        pytest.param("{", None, id="no JSON"),
        pytest.param(json.dumps({"a": "x" * LABEL_CHARS_MAX}), "x" * LABEL_CHARS_MAX, id="at the limit"),
        pytest.param(json.dumps({"a": "x" * (LABEL_CHARS_MAX + 1)}), "x" * (LABEL_CHARS_MAX - 1) + "…", id="above it"),
    ],
)
def test_a_label_previews_the_main_argument(arguments: str, label: str | None) -> None:
    assert payload(card(a_call(arguments), "running")).get("label") == label


def test_what_has_no_form_on_the_wire_gives_no_payload() -> None:
    silent: list[Event] = [
        AttemptStarted(n=0),
        ResponseStarted(n=0, id="chatcmpl-1", model="m"),
        ToolArgumentsComplete(n=1, choice=0, call=0),
        HandedOver(n=1, choice=0, call=0),
        ToolResultSeen(n=1, id="call_1", name="f", failed=False, output="", duration_ms=None),
        ToolProgress(n=1, id="call_1", name="f", status="running"),
        ForeignFrame(n=1, why="foreign"),
        Repaired(n=1, repair="id"),
        Ended(n=2, ending="completed", cause="eof", flags=()),
    ]
    assert list(chunk.payloads(silent, ENVELOPE)) == []


def test_an_error_and_a_terminator_have_their_own() -> None:
    events: list[Event] = [UpstreamError(n=0, message="no", code="429"), Terminator(n=1)]
    assert list(chunk.payloads(events, ENVELOPE)) == [
        b'{"error":{"message":"no","type":"upstream_error","code":"429"}}',
        b"[DONE]",
    ]


_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
_DELTAS: st.SearchStrategy[Event] = st.one_of(
    st.builds(TextDelta, n=st.just(5), choice=st.integers(0, 2), text=_TEXT),
    st.builds(ReasoningDelta, n=st.just(5), choice=st.integers(0, 2), text=_TEXT),
    st.builds(RefusalDelta, n=st.just(5), choice=st.integers(0, 2), text=_TEXT),
    st.builds(ToolCallStarted, n=st.just(5), choice=st.integers(0, 2), call=st.integers(0, 3), id=_TEXT, name=_TEXT),
    st.builds(ToolNameDelta, n=st.just(5), choice=st.integers(0, 2), call=st.integers(0, 3), name=_TEXT),
    st.builds(ToolArgumentsDelta, n=st.just(5), choice=st.integers(0, 2), call=st.integers(0, 3), text=_TEXT),
    st.builds(Finish, n=st.just(5), choice=st.integers(0, 2), reason=st.sampled_from(["stop", "length", "tool_calls"])),
    st.builds(Usage, n=st.just(5), counts=st.dictionaries(_TEXT, st.integers(0, 2**53), min_size=1, max_size=2)),
)


@given(events=st.lists(_DELTAS, max_size=12))
def test_events_written_and_read_again_are_the_same_events(events: list[Event]) -> None:
    again = [event for payload in chunk.payloads(events, ENVELOPE) for event in chunk.events(json.loads(payload), 5)]
    assert again == events


def test_each_choice_gets_its_role_once() -> None:
    events: list[Event] = [
        Finish(n=1, choice=0, reason="stop"),
        TextDelta(n=1, choice=1, text="a"),
        TextDelta(n=1, choice=1, text="b"),
    ]
    deltas = [json.loads(payload)["choices"][0]["delta"] for payload in chunk.payloads(events, ENVELOPE)]
    assert deltas == [{"role": "assistant"}, {"role": "assistant", "content": "a"}, {"content": "b"}]


def of_delta(delta: dict[str, Any], reason: str | None = None, **extra: Any) -> list[Event]:
    return list(chunk.events({"choices": [{"index": 1, "delta": delta, "finish_reason": reason}], **extra}, 4))


CASES: list[Any] = [
    pytest.param({"content": "hi"}, [TextDelta(n=4, choice=1, text="hi")], id="text"),
    pytest.param({"content": ""}, [], id="an empty piece says nothing"),
    pytest.param({"content": None, "role": "assistant"}, [], id="nor does a role"),
    pytest.param({"refusal": "no"}, [RefusalDelta(n=4, choice=1, text="no")], id="refusal (Q84)"),
    pytest.param({"reasoning_content": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="reasoning (Q74)"),
    pytest.param({"reasoning": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="the other name (Q73)"),
    pytest.param(
        {"reasoning": "a", "reasoning_content": "a"}, [ReasoningDelta(n=4, choice=1, text="a")], id="both, once"
    ),
    pytest.param(
        {"reasoning": "b", "reasoning_content": "a"},
        [ReasoningDelta(n=4, choice=1, text="a"), ReasoningDelta(n=4, choice=1, text="b")],
        id="both, and they differ",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}]},
        [ToolCallStarted(n=4, choice=1, call=0, id="c", name="f")],
        id="a call starts",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        [
            ToolCallStarted(n=4, choice=1, call=0, id="c", name="f"),
            ToolArgumentsDelta(n=4, choice=1, call=0, text="{}"),
        ],
        id="a whole call (Q12)",
    ),
    pytest.param(
        {"tool_calls": [{"index": 0, "id": "c"}]}, [ToolCallStarted(n=4, choice=1, call=0, id="c", name="")], id="bare"
    ),
    pytest.param(
        {"tool_calls": [{"index": 2, "function": {"name": "_x"}}]},
        [ToolNameDelta(n=4, choice=1, call=2, name="_x")],
        id="a further piece of a name (Q16)",
    ),
    pytest.param(
        {"function_call": {"name": "f", "arguments": "{"}},
        [
            ToolCallStarted(n=4, choice=1, call=chunk.LEGACY_CALL, id="function_call_1", name="f"),
            ToolArgumentsDelta(n=4, choice=1, call=chunk.LEGACY_CALL, text="{"),
        ],
        id="the legacy call (Q29)",
    ),
    pytest.param({"function_call": {"name": "", "arguments": None}}, [], id="an empty legacy call"),
]


@pytest.mark.parametrize(("delta", "events"), CASES)
def test_a_delta(delta: dict[str, Any], events: list[Event]) -> None:
    assert of_delta(delta) == events


def test_the_finish_comes_after_the_content_of_its_chunk_and_usage_last() -> None:
    assert of_delta({"content": "."}, "stop", usage={"total_tokens": 1}) == [
        TextDelta(n=4, choice=1, text="."),
        Finish(n=4, choice=1, reason="stop"),
        Usage(n=4, counts={"total_tokens": 1}),
    ]
    assert of_delta({}, usage={}) == []


CALLS = [
    call(index=0, id="c0", type="function", name="read_file", arguments='{"path":"x"}'),
    finish("tool_calls"),
    DONE,
]


@pytest.mark.parametrize(
    ("tool", "emoji"),
    [
        ("read_file", "📖"),
        ("readFile", "📖"),
        ("READ-FILE", "📖"),
        ("mcp__fs__write_text", "📝"),
        ("web_search", "🌐"),
        ("bash", "💻"),
        ("frobnicate", "🔧"),
        ("", "🔧"),
        ("日本", "🔧"),
    ],
)
def test_the_first_word_that_is_known_decides(tool: str, emoji: str) -> None:
    assert emoji_of(tool) == emoji


def frames(records: list[Record]) -> list[dict[str, object]]:
    sent = [frame for frame in run(records).sent if frame.startswith(b"event: ")]
    return [parse(frame.partition(b"\ndata: ")[2]) for frame in sent]


def test_there_is_no_emoji_by_default() -> None:
    assert all("emoji" not in frame for frame in frames(tape(CALLS)))


def test_every_step_of_a_call_has_the_same() -> None:
    made = [*frames(tape(CALLS, emoji=True)), *frames(tape(CALLS[:1], emoji=True))]
    assert [(frame["status"], frame["emoji"]) for frame in made] == [("running", "📖"), ("dropped", "📖")]
    result = Record(2, 0, "results", {"results": [{"id": "c0", "name": "read_file", "output": "hi"}]})
    opened, asked, *rest = tape(CALLS, emoji=True)
    told = frames([opened, asked, result, *(record._replace(n=record.n + 1) for record in rest)])
    assert [(frame["status"], frame["emoji"]) for frame in told] == [("completed", "📖"), ("running", "📖")]


def test_half_of_an_emoji_in_an_id_is_repeated_in_any_style() -> None:
    first = text("x", role=True).replace(b'"id":"', b'"id":"\\ud83d')
    other = b'data: {"id": "c2", "choices": [{"index": 0, "delta": {"content": "\xc3\xa9"}}]}\n\n'
    result = run(tape([first, other, finish(), DONE]))
    assert [frame.count(b"ud83d") for frame in result.sent] == [1, 1, 1, 0]


def test_upstreams_begin_their_own_answers() -> None:
    assert Repair(CONTEXT).opening(0) == []
