"""hermes-agent as upstream: a case for each line of its contract (clients.md 7.1), in the form in which 0.19.0 writes.

The streams are written by us after what a real one sent (tests/real/hermes.py starts one); ids and times are not its.
"""

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.events.chat.rows import Row, check, error
from tests.support.chat import DONE, HEAD, Run, begin, call, frame, run, sse, tape, text
from wiretape.events.chat.content import Retold
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import (
    CALL_ID_CHARS_MAX,
    EMOJI_CHARS_MAX,
    KEPT_CHARS_MAX,
    LABEL_CHARS_MAX,
    NAME_CHARS_MAX,
    PREVIEW_BYTES_MAX,
    RETOLD_CHARS_MAX,
    RETOLD_CHARS_MIN,
    RETOLD_PLACES_MAX,
)
from wiretape.events.core.model import TextDelta, ToolProgress, UpstreamError
from wiretape.events.emit import summarise
from wiretape.events.folds.summary import Warned
from wiretape.events.tape.record import Record

ROLE = frame({"role": "assistant"})
#: Finish and usage in one chunk.
STOP = frame({}, "stop", usage={"prompt_tokens": 18, "completion_tokens": 10, "total_tokens": 28})
USAGE = {"prompt_tokens": 18, "completion_tokens": 10, "total_tokens": 28}
NO_USAGE = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
LOOK = '"emoji":"💻","label":"ls -l"'.encode()


def agent(**said: Any) -> bytes:
    """A frame of its own: Python's json.dumps, with its spaces and escapes."""
    return b"event: hermes.tool.progress\ndata: %b\n\n" % json.dumps(said).encode()


def running(tool: str = "terminal", call_id: str = "call_1") -> bytes:
    return agent(tool=tool, emoji="💻", label="ls -l", toolCallId=call_id, status="running")


def completed(tool: str = "terminal", call_id: str = "call_1", status: str = "completed") -> bytes:
    return agent(tool=tool, toolCallId=call_id, status=status)


def told(status: str, call_id: str = "call_1", *more: bytes, tool: str = "terminal", **changed: Any) -> bytes:
    """The frame that goes out for it."""
    choices: list[dict[str, Any]] = [{"index": 0, "delta": {}, "finish_reason": None}]
    said = sse({**HEAD, **changed, "choices": choices, "tool": tool, "toolCallId": call_id, "status": status})
    return (
        b"event: hermes.tool.progress\n"
        + b",".join([said[:-3], *(part.replace(b", ", b",") for part in more)])
        + b"}\n\n"
    )


def last(reason: str, message: str | None, code: str, **account: bool) -> bytes:
    """Its final chunk where something went wrong."""
    account = {"completed": False, "partial": False, "failed": False} | account
    failed: dict[str, Any] = {"error": {"message": message, "type": "agent_error"}} if message else {}
    hermes = {**account, "error": message, "error_code": code}
    return frame({}, reason, usage=NO_USAGE, **failed, hermes=hermes)


TRUNCATED = last("length", "Response truncated due to output length limit", "output_truncated", partial=True)
FAILED = last("error", "HTTP 500: model broke", "agent_error", failed=True)
FAILURE = sse(
    {
        "error": {"message": "HTTP 500: model broke", "type": "agent_error"},
        "hermes": {
            "completed": False,
            "partial": False,
            "failed": True,
            "error": "HTTP 500: model broke",
            "error_code": "agent_error",
        },
    }
)
RAN = told("running", "call_1", LOOK)
OVER = told("completed")


def without_error(chunk: bytes) -> bytes:
    value = json.loads(chunk[6:])
    del value["error"]
    return sse(value)


ROWS = [
    Row(
        id="role, text, finish and usage in one chunk, the terminator: as it came",
        came=[ROLE, text("It "), text("is \u20ac."), STOP, DONE],
        text="It is €.",
        usage=USAGE,
    ),
    Row(
        id="a tool that it runs: two frames of the one shape, and the next turn's text with its two line ends",
        came=[ROLE, text("It "), running(), completed(), text("\n\n18 "), STOP, DONE],
        sent=[0, 1, RAN, OVER, 4, 5, 6],
        ledger=[("progress", 2, ""), ("progress", 3, "")],
        text="It \n\n18 ",
        usage=USAGE,
    ),
    Row(
        id="switched off, they stay on the tape",
        came=[ROLE, running(), completed(), text("18"), STOP, DONE],
        sent=[0, 3, 4, 5],
        ledger=[("progress_withheld", 1, ""), ("progress_withheld", 2, "")],
        text="18",
        usage=USAGE,
        settings={"tool_events": False},
    ),
    Row(
        id="parallel calls, whose ends come in another order",
        came=[ROLE, running(), running(call_id="call_2"), completed(call_id="call_2"), completed(), STOP, DONE],
        sent=[0, RAN, told("running", "call_2", LOOK), told("completed", "call_2"), OVER, 5, 6],
        ledger=[("progress", 1, ""), ("progress", 2, ""), ("progress", 3, ""), ("progress", 4, "")],
        usage=USAGE,
    ),
    Row(
        id="a call of the next turn with the id of an earlier one gets an id of its own; the role comes first",
        came=[running(), completed(), ROLE, running(), completed(status="failed"), STOP, DONE],
        sent=[
            frame({"role": "assistant"}).replace(b"chatcmpl-1", b"chatcmpl-s1"),
            told("running", "call_1", LOOK, id="chatcmpl-s1"),
            told("completed", id="chatcmpl-s1"),
            frame({}).replace(b"chatcmpl-1", b"chatcmpl-s1"),
            told("running", "call_s1_ran_1", LOOK, id="chatcmpl-s1"),
            told("failed", "call_s1_ran_1", id="chatcmpl-s1"),
            STOP.replace(b"chatcmpl-1", b"chatcmpl-s1"),
            DONE,
        ],
        ledger=[
            ("role_apart", 0, ""),
            ("progress", 0, ""),
            ("progress", 1, ""),
            ("id", 2, "id"),
            ("role_repeated", 2, "delta.role"),
            ("progress", 3, ""),
            ("progress", 4, ""),
            ("id", 5, "id"),
        ],
        usage=USAGE,
    ),
    Row(
        id="told again, an end without a beginning, an internal tool, no id, no name, another word: withheld",
        came=[
            ROLE,
            running(),
            running(),
            completed(),
            completed(),
            completed(call_id="other"),
            running("_thinking", "call_3"),
            completed("_thinking", "call_3"),
            running(call_id=""),
            running(""),
            completed(status="waiting"),
            agent(tool=["x"], toolCallId=5),
            STOP,
            running(call_id="late"),
            DONE,
        ],
        sent=[0, RAN, OVER, 12, 14],
        ledger=[
            ("progress", 1, ""),
            ("progress_withheld", 2, ""),
            ("progress", 3, ""),
            ("progress_withheld", 4, ""),
            ("progress_withheld", 5, ""),
            ("progress_withheld", 6, ""),
            ("progress_withheld", 7, ""),
            ("progress_withheld", 8, ""),
            ("progress_withheld", 9, ""),
            ("progress_withheld", 10, ""),
            ("progress_withheld", 11, ""),
            ("progress_withheld", 13, ""),
        ],
        usage=USAGE,
    ),
    Row(
        id="a tool of whose end nothing was heard is over when the answer is",
        came=[ROLE, running(), text("Well."), STOP, DONE],
        sent=[0, RAN, 2, told("dropped", "call_1", b'"reason":"unfinished"'), 3, 4],
        ledger=[("progress", 1, ""), ("lifecycle", 3, "")],
        text="Well.",
        usage=USAGE,
    ),
    Row(
        id="a cut while a tool runs: its end is told, and nothing is said of what it did",
        came=[ROLE, text("It "), running()],
        sent=[
            0,
            1,
            RAN,
            told("dropped", "call_1", b'"reason":"truncated"'),
            error("⚠ Connection dropped: the answer is incomplete.", "stream_truncated", "truncated"),
        ],
        ledger=[("progress", 2, ""), ("lifecycle", 3, ""), ("error_frame", 3, "")],
        text="It ",
        finish=("",),
        ending="truncated",
    ),
    Row(
        id="its keepalives are comments",
        came=[ROLE, b": keepalive\n\n", text("18"), STOP, DONE],
        sent=[0, 2, 3, 4],
        ledger=[("comment", 1, "")],
        text="18",
        usage=USAGE,
    ),
    Row(
        id="an end by length stays one: the error that SDKs raise on goes, its account of it stays",
        came=[ROLE, text("It "), TRUNCATED, DONE],
        sent=[0, 1, without_error(TRUNCATED), 3],
        ledger=[("length_error", 2, "error")],
        text="It ",
        finish=("length",),
        usage=NO_USAGE,
        flags=("output_truncated",),
    ),
    Row(
        id="a failure behind text is an error that carries its account; the tool that it ran under has its end",
        came=[ROLE, text("It "), running(), FAILED, DONE],
        sent=[0, 1, RAN, told("dropped", "call_1", b'"reason":"upstream_error"'), FAILURE],
        ledger=[("progress", 2, ""), ("lifecycle", 3, ""), ("error_shape", 3, ""), ("done_withheld", 4, "")],
        text="It ",
        finish=("",),
        usage=NO_USAGE,
        ending="upstream_error",
    ),
    Row(
        id="a failure of which it gives no message",
        came=[ROLE, text("It "), last("error", None, "agent_error", failed=True), DONE],
        sent=[
            0,
            1,
            last("error", None, "agent_error", failed=True).replace(
                b'"finish_reason":"error"', b'"finish_reason":null'
            ),
            sse(
                {
                    "error": {
                        "message": "the upstream ended the answer with finish_reason 'error'",
                        "type": "upstream_error",
                        "code": "finish_error",
                    }
                }
            ),
        ],
        ledger=[("finish_failure", 2, "choice.finish_reason"), ("finish_failure", 2, ""), ("done_withheld", 3, "")],
        text="It ",
        finish=("",),
        usage=NO_USAGE,
        ending="upstream_error",
    ),
    Row(
        id="a crash of its writer: a bare finish that says error",
        came=[ROLE, text("It "), frame({}, "error"), DONE],
        sent=[
            0,
            1,
            frame({}),
            sse(
                {
                    "error": {
                        "message": "the upstream ended the answer with finish_reason 'error'",
                        "type": "upstream_error",
                        "code": "finish_error",
                    }
                }
            ),
        ],
        ledger=[("finish_failure", 2, "choice.finish_reason"), ("finish_failure", 2, ""), ("done_withheld", 3, "")],
        text="It ",
        finish=("",),
        ending="upstream_error",
    ),
    Row(
        id="an error without its account is one like any other",
        came=[ROLE, text("It "), frame({}, "error", error={"message": "m", "type": "RuntimeError"}), DONE],
        sent=[0, 1, sse({"error": {"message": "m", "type": "RuntimeError"}})],
        ledger=[("error_shape", 2, ""), ("done_withheld", 3, "")],
        text="It ",
        finish=("",),
        ending="upstream_error",
    ),
    Row(
        id="its model's stream broke inside a call, orderly: the text comes again, and again",
        came=[
            ROLE,
            *[text(piece) for piece in ("It ", "is ", "It ", "is ", "It ", "is ")],
            running(),
            completed(),
            text("\n\n18"),
            STOP,
            DONE,
        ],
        sent=[*range(7), RAN, OVER, 9, 10, 11],
        ledger=[("text_repeated", 4, ""), ("text_repeated", 6, ""), ("progress", 7, ""), ("progress", 8, "")],
        text="It is It is It is \n\n18",
        usage=USAGE,
        flags=("text_repeated",),
    ),
    Row(
        id="its model's connection broke inside a call: it says so itself, in the text, before it comes again",
        came=[
            ROLE,
            text("It "),
            text("\n\n⚠ Connection dropped mid tool-call; reconnecting…\n\n"),
            text("It "),
            STOP,
            DONE,
        ],
        sent=[*range(6)],
        ledger=[("text_repeated", 2, "")],
        text="It \n\n⚠ Connection dropped mid tool-call; reconnecting…\n\nIt ",
        usage=USAGE,
        flags=("text_repeated",),
    ),
    Row(
        id="a stream that also says a call to the client under the same id: told once",
        came=[ROLE, begin("call_1", "f", "{}"), running(), completed(), frame({}, "tool_calls"), DONE],
        sent=[0, 1, RAN, OVER, 4, 5],
        ledger=[("progress", 2, ""), ("progress", 3, "")],
        calls=[("call_1", "f", "{}", "running")],
    ),
    Row(
        id="an error with any other finish is an error",
        came=[ROLE, text("It "), frame({}, "stop", error={"message": "no"}, hermes=5), DONE],
        sent=[0, 1, sse({"error": {"message": "no"}})],
        ledger=[("error_shape", 2, ""), ("done_withheld", 3, "")],
        text="It ",
        finish=("",),
        ending="upstream_error",
    ),
    Row(
        id="an error by length elsewhere than in the finish is an error",
        came=[ROLE, text("It "), sse({"error": {"message": "length"}, "hermes": 5}), DONE],
        sent=[0, 1, sse({"error": {"message": "length"}})],
        ledger=[("error_shape", 2, ""), ("done_withheld", 3, "")],
        text="It ",
        finish=("",),
        ending="upstream_error",
    ),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.id)
def test_the_contract(row: Row) -> None:
    settings = {"hermes": True, "tool_events": True} | row.settings
    check(replace(row, settings=settings))


def hermes(*came: bytes, **settings: Any) -> Run:
    settings = {"hermes": True, **settings}
    return run(tape(list(came), **settings))


def test_a_frame_of_its_own_that_is_no_object_is_foreign_here_too() -> None:
    result = hermes(ROLE, b"event: hermes.tool.progress\ndata: [1]\n\n", text("18"), STOP, DONE)
    assert (result.sent, result.ended.flags) == ([ROLE, text("18"), STOP, DONE], ("foreign",))
    other = hermes(ROLE, running().replace(b"progress", b"status"), text("18"), STOP, DONE)
    assert (other.sent, other.ended.flags) == (result.sent, ("foreign",))


@pytest.mark.parametrize("code", [b"5", b'""'])
def test_code_of_the_agent_that_is_no_word_gives_way_to_the_code_of_the_error(code: bytes) -> None:
    (error,) = hermes(ROLE, FAILED.replace(b'"agent_error"}}', code + b"}}")).of(UpstreamError)
    assert error.code == "agent_error"


def test_other_members_pass_but_not_those_that_clients_would_misread() -> None:
    long = "x" * PREVIEW_BYTES_MAX
    said = (
        b'{"id":9,"error":"no","choices":5,"usage":1,"tool":"t","toolCallId":"c","status":"running","n":12345678901234567,'
        b'"long":"%b","fits":"%b","d":\n{"a":\t1}}' % (long.encode(), long[2:].encode())
    )
    data = b"".join(b"data: %b\n" % line for line in said.split(b"\n"))
    result = hermes(ROLE, b"event: hermes.tool.progress\n%b\n" % data)
    extra = b'"n":12345678901234567,"fits":"%b","d":{"a":1}' % long[2:].encode()
    assert result.sent[1] == told("running", "c", extra, tool="t")


def test_what_a_tool_did_cannot_be_undone_so_no_attempt_follows() -> None:
    shown = [hermes(ROLE, running(), tool_events=on, cause="reset").frames[3] for on in (True, False)]
    assert shown == [[ROLE, RAN], [ROLE]]
    assert hermes(ROLE, completed(), cause="reset").frames[3] == []
    assert hermes(ROLE, FAILED).frames[3] == [ROLE, FAILURE]


def test_a_call_that_the_client_runs_is_not_reported_again() -> None:
    first, second = call(role=True, index=0, id="call_1", name="f", arguments="{}"), text("x", role=True, index=1)
    came = [first, second, frame({}, "tool_calls"), running(), frame({}, "stop", 1), DONE]
    result = hermes(*came)
    assert [frame for frame in result.sent if frame.startswith(b"event")] == [result.sent[2]]
    assert result.repairs == ["call_type", "lifecycle", "progress_withheld"]


@pytest.mark.parametrize("call_id", ["call_0", "call_2"])
def test_tool_is_reported_next_to_a_call_of_another_id(call_id: str) -> None:
    first, second = call(role=True, index=0, id=call_id, name="f", arguments="{}"), text("x", role=True, index=1)
    result = hermes(first, second, frame({}, "tool_calls"), running(), completed(), frame({}, "stop", 1), DONE)
    assert [told[:2] for told in lives(result)] == [
        (call_id, "running"),
        ("call_1", "running"),
        ("call_1", "completed"),
    ]


def test_in_the_folds_a_tool_that_it_runs_has_the_life_of_any_call() -> None:
    ran = [running(), running("read", "call_2"), completed(), running("_plan", "call_3"), completed("x", "y")]
    result = hermes(ROLE, *ran, completed("read", "call_2", "failed"))
    summary = summarise(result.records)
    summary.wire.apply(ToolProgress(n=9, id="unknown", name="x", status="completed"))
    assert [(one.id, one.name, one.state.value, one.reason) for one in summary.wire.all_calls()] == [
        ("call_1", "terminal", "completed", ""),
        ("call_2", "read", "failed", ""),
        ("call_3", "_plan", "dropped", "truncated"),
    ]
    assert list(summary.wire.calls()) == []
    assert [(call.number, *call.moves) for call in summary.wire.all_calls()] == [
        (-2, (3, State.RUNNING), (5, State.COMPLETED)),
        (-3, (4, State.RUNNING), (8, State.FAILED)),
        (-4, (6, State.RUNNING), (9, State.DROPPED)),
    ]
    assert summary.warnings == [Warned("truncated", (("call_3", "_plan"),))]


@pytest.mark.slow
def test_more_of_them_than_any_answer_has_end_it() -> None:
    name, each = "x" * NAME_CHARS_MAX, NAME_CHARS_MAX + CALL_ID_CHARS_MAX + 16 * 1_024
    many = KEPT_CHARS_MAX // each
    result = hermes(*[running(name, f"{number:0{CALL_ID_CHARS_MAX}}") for number in range(many + 5)])
    assert (result.ended.ending, len(result.wire.ran)) == ("limit", many)


# -- text that comes again --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pieces", "again"),
    [
        (["It ", "is ", "It ", "is "], [3]),
        (["It is", " It", "It ", "is It", " on"], [3]),
        (["\n\n", "It is ", "", "It is so.", "It is so."], [3, 4]),
        (["It is so, it is ", "It was"], []),
        (["6", "6", "6"], []),
        (["a" * RETOLD_CHARS_MIN] * 2, [1]),
        (["a" * (RETOLD_CHARS_MIN - 1)] * 2, []),
        (["⚠ Stream stalled mid tool-call (terminal); the action was not executed."], [0]),
        (["x" * RETOLD_CHARS_MAX] * 2, [1]),
        (["x" * (RETOLD_CHARS_MAX + 1)] * 2, []),
        (["- one", *["\n", "- two"] * 20], []),
        # So many places look like a beginning that the one which is has no room.
        (["ab ab ab ab ab xy", *["ab "] * RETOLD_PLACES_MAX, "ab ab ab ab ab xy"], []),
    ],
)
def test_what_has_come_before(pieces: list[str], again: list[int]) -> None:
    retold = Retold()
    assert [number for number, piece in enumerate(pieces) if retold.says_again(piece)] == again


def test_another_turn_may_begin_alike() -> None:
    result = hermes(ROLE, text("It is so."), running(), completed(), text("\n\nIt is so."), STOP, DONE)
    assert (result.ended.flags, len(result.of(TextDelta))) == ((), 2)


# -- issue 4's left-overs ---------------------------------------------------------------------------------------------


def lives(result: Run) -> list[tuple[str, str, str]]:
    """Id, status and reason of each frame about a tool."""
    values = [json.loads(sent.partition(b"data: ")[2]) for sent in result.sent if sent.startswith(b"event: ")]
    return [(value["toolCallId"], value["status"], value.get("reason", "")) for value in values]


def with_results(results: list[dict[str, Any]], frames: list[bytes]) -> list[Record]:
    """The tape of a stream whose request brought these results."""
    made = tape(frames, hermes=True)
    found = Record(2, 0, "results", {"results": results, "after": 1})
    return [*made[:2], found, *[record._replace(n=record.n + 1) for record in made[2:]]]


@pytest.mark.parametrize("first", [[ROLE], []], ids=["results first", "its tool first"])
def test_a_tool_of_its_own_under_the_id_of_an_answered_call_gets_an_id_of_its_own(first: list[bytes]) -> None:
    frames = [*first, running(), completed(), text("18"), STOP, DONE]
    told_of = lives(run(with_results([{"id": "call_1", "name": "read"}], frames)))
    assert sorted(told_of) == [
        ("call_1", "completed", ""),
        ("call_s1_ran_0", "completed", ""),
        ("call_s1_ran_0", "running", ""),
    ]
    unknown = lives(run(with_results([{"id": "call_1", "name": "_plan"}], frames)))
    assert unknown == [("call_1", "running", ""), ("call_1", "completed", "")], "of an internal one nothing is told"


def test_what_the_wire_says_of_a_tool_is_what_the_summary_says() -> None:
    """Without an end before the finish it is over there, and later frames change nothing."""
    result = run(tape([ROLE, running(), STOP, FAILED, DONE], hermes=True))
    assert lives(result) == [("call_1", "running", ""), ("call_1", "dropped", "unfinished")]
    summary = summarise(result.records)
    (tool,) = summary.wire.ran.values()
    assert (result.ended.ending, tool.state, tool.reason) == ("upstream_error", State.DROPPED, "unfinished")
    assert summary.warnings[:2] == [Warned("unfinished", (("call_1", "terminal"),)), Warned("upstream_error", ())]
    assert [state for call in summary.wire.all_calls() for _, state in call.moves] == [State.RUNNING, State.DROPPED]


JUNK: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "as it comes": ({"label": "ls -l", "emoji": "💻"}, {"label": "ls -l", "emoji": "💻"}),
    "no texts": ({"label": {"a": 1}, "emoji": 5}, {}),
    "nothing": ({"label": None, "emoji": ""}, {"emoji": ""}),
    "a long label": ({"label": "x" * (LABEL_CHARS_MAX + 1)}, {"label": "x" * (LABEL_CHARS_MAX - 1) + "…"}),
    "a label at the bound": ({"label": "x" * LABEL_CHARS_MAX}, {"label": "x" * LABEL_CHARS_MAX}),
    "no emoji": ({"emoji": "x" * (EMOJI_CHARS_MAX + 1)}, {}),
    "a family": ({"emoji": "👨‍👩‍👧‍👦"}, {"emoji": "👨‍👩‍👧‍👦"}),
}


@pytest.mark.parametrize(("said", "told_of"), JUNK.values(), ids=JUNK)
def test_what_a_card_shows_is_a_text_of_some_length(said: dict[str, Any], told_of: dict[str, Any]) -> None:
    progress = agent(tool="terminal", toolCallId="call_1", status="running", **said)
    sent = next(sent for sent in run(tape([ROLE, progress], hermes=True)).sent if sent.startswith(b"event: "))
    value = json.loads(sent.partition(b"data: ")[2])
    assert {key: value[key] for key in ("label", "emoji") if key in value} == told_of


@pytest.mark.parametrize(
    ("name", "call_id", "believed"),
    [
        ("x" * NAME_CHARS_MAX, "y" * CALL_ID_CHARS_MAX, True),
        ("x" * (NAME_CHARS_MAX + 1), "y", False),
        ("x", "y" * (CALL_ID_CHARS_MAX + 1), False),
    ],
    ids=["at the bounds", "a long name", "a long id"],
)
def test_a_tool_has_a_name_and_an_id_of_some_length(name: str, call_id: str, believed: bool) -> None:
    result = run(tape([ROLE, running(name, call_id), STOP, DONE], hermes=True))
    assert ("progress" in result.repairs, "progress_withheld" in result.repairs) == (believed, not believed)


@pytest.mark.parametrize("status", [[], {}, None, 1, "waiting"])
def test_a_progress_frame_without_a_known_status_is_withheld(status: Any) -> None:
    result = hermes(ROLE, agent(tool="terminal", toolCallId="call_1", status=status), STOP, DONE)
    assert result.repairs == ["progress_withheld"]
    assert not result.wire.ran
