"""A call of which a part was lost, or may have been, is never run as if it were whole, in every mode."""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

import pytest

from tests.support.chat import (
    DONE,
    HEAD,
    Run,
    begin,
    call,
    call_entry,
    chunk,
    finish,
    frame,
    run,
    sse,
    tape,
    text,
    tool_calls,
)
from wiretape.events.core.json_text import ABSENT
from wiretape.events.emission.words import WARNING

START: Final = begin("call_a", "write_file", role=True)
#: A frame that its gateway cut in two, and of which the second half never came.
TORN: Final = b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\\"pa\n\n'
MESSAGE: Final[dict[str, Any]] = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call_entry("call_a", "write_file", '{"path":"x"}', index=ABSENT)],
}
LEGACY: Final = frame({"role": "assistant", "function_call": {"name": "write_file", "arguments": ""}})


def arguments(piece: str) -> bytes:
    return call(index=0, arguments=piece)


DAMAGED: Final[Mapping[str, list[bytes]]] = {
    "all of the arguments": [START, TORN, finish("tool_calls"), DONE],
    "a member between two pieces": [START, arguments('{"a":1'), TORN, arguments("}"), finish("tool_calls"), DONE],
    "and a finish that would be supplied": [START, arguments('{"a":1'), TORN, arguments("}"), DONE],
    "behind whole arguments": [START, arguments('{"a":1}'), TORN, finish("tool_calls"), DONE],
    "all that was said of the call": [text("hi", role=True), TORN, finish("tool_calls"), DONE],
    "and a finish that speaks of no call": [text("hi", role=True), TORN, finish("stop"), DONE],
    "the first line of a payload over several": [
        START,
        b'data: {"choices":[{"index":0,\n"delta":{"tool_calls":[]}}]}\n\n',
        finish("tool_calls"),
        DONE,
    ],
    "a chunk without its field": [START, b'{"choices":[{"index":0,"delta":{}}]}\n\n', finish("tool_calls"), DONE],
    "choices that are no list": [START, sse({"choices": {"index": 0}}), finish("tool_calls"), DONE],
    "calls that are no list": [frame({"role": "assistant", "tool_calls": {"index": 0}}), finish("tool_calls"), DONE],
    "a call that is no object": [tool_calls("x", role=True), finish("tool_calls"), DONE],
    "bytes that are no text": [
        START,
        call(index=0, arguments='{"path":"/tmp/?"}').replace(b"?", b"\xc3"),
        finish("tool_calls"),
        DONE,
    ],
    "bytes that are no text, in one frame": [
        begin("a", "f", '{"p":"?"}', role=True).replace(b"?", b"\xc3"),
        finish("tool_calls"),
        DONE,
    ],
    "bytes of a legacy call that are no text": [
        frame({"role": "assistant", "function_call": {"name": "f", "arguments": '{"p":"?"}'}}).replace(b"?", b"\xc3"),
        finish("function_call"),
        DONE,
    ],
    "a part of a legacy call": [LEGACY, TORN, finish("function_call"), DONE],
    "another id for the same tool, before any argument": [
        START,
        begin("call_b", "write_file", '{"path":"x"}'),
        finish("tool_calls"),
        DONE,
    ],
    "the same call under its newer name": [
        LEGACY,
        begin("a", "write_file", '{"path":"x"}'),
        finish("tool_calls"),
        DONE,
    ],
}
SETTINGS: Final = [(mode, tools) for mode in ("error", "warn", "both") for tools in ("live", "held")]


def chunks(result: Run) -> list[dict[str, Any]]:
    return [json.loads(sent.partition(b"data: ")[2]) for sent in result.sent if sent != DONE]


def said_by(result: Run) -> list[dict[str, Any]]:
    """The arguments that a client has of each call, which it runs if nothing tells it not to."""
    calls: list[dict[str, Any]] = []
    for value in chunks(result):
        for choice in value.get("choices", ()):
            for entry in choice["delta"].get("tool_calls", ()):
                if "id" in entry:
                    calls.append({"name": entry["function"]["name"], "arguments": ""})
                calls[entry["index"]]["arguments"] += entry["function"].get("arguments", "")
    return calls


def finishes(result: Run) -> set[str]:
    choices = [choice for value in chunks(result) for choice in value.get("choices", ())]
    return {choice["finish_reason"] for choice in choices if choice["finish_reason"]}


@pytest.mark.parametrize(("mode", "tools"), SETTINGS)
@pytest.mark.parametrize("lost", sorted(DAMAGED))
def test_a_call_that_may_lack_a_part_is_never_run(lost: str, mode: str, tools: str) -> None:
    result = run(tape(DAMAGED[lost], on_partial=mode, tools=tools))
    told = result.out.decode()
    assert "Not completed; no result seen." in told
    assert not finishes(result) & {"tool_calls", "function_call", "stop"}
    assert '"status":"running"' not in told
    assert ('"error":' in told) == (mode != "warn")
    assert not (tools == "held" and said_by(result))
    assert result.ended.ending == "truncated" or "malformed_call" in result.ended.flags


def test_what_is_not_there_is_not_called_empty() -> None:
    result = run(tape([START, TORN, finish("tool_calls"), DONE]))
    assert said_by(result) == [{"name": "write_file", "arguments": ""}]
    assert "a part of write_file could not be read" in result.out.decode()


@pytest.mark.parametrize(
    "word",
    [
        b"data: ping\n\n",
        b": {\n\n",
        b"data:\n\n",
        b'event: x\ndata: {"type":"ping"}\n\n',
        b'event: keepalive\ndata: waiting for "m"\n\n',
        b'x-meta: {"region":"eu"}\n\n',
        b'data: {"object":"router.debug","choices":"none"}\n\n',
        b'data: {"choices":[null]}\n\n',
    ],
)
def test_a_sign_of_life_inside_a_call_harms_nothing(word: bytes) -> None:
    result = run(tape([START, word, arguments('{"a":1}'), finish("tool_calls"), DONE]))
    assert said_by(result) == [{"name": "write_file", "arguments": '{"a":1}'}]
    assert finishes(result) == {"tool_calls"}


def test_what_is_lost_harms_no_choice_that_has_finished() -> None:
    whole = begin("a", "f", '{"a":1}', role=True)
    other = text("hi", role=True, index=1)
    garbled = text("?", index=1).replace(b"?", b"\xc3")
    legacy = frame({"role": "assistant", "function_call": {"name": "g", "arguments": "{}"}}, index=2)
    torn = b'data: {"x\n\n'
    came = [whole, legacy, finish("tool_calls"), finish("function_call", 2), other, torn, garbled, finish("stop", 1)]
    result = run(tape([*came, DONE], request={"stream": True, "n": 3}))
    assert result.ended.flags == ("not_json",)
    assert result.sent[-1] == DONE


@pytest.mark.parametrize("index", [0, None, "x", [], {}, 7])
def test_invalid_utf_8_in_text_harms_no_call_of_the_same_frame(index: Any) -> None:
    call_beside = call_entry("a", "f", "{}")
    delta = {"role": "assistant", "content": "caf?", "tool_calls": [call_beside], "function_call": None}
    both = chunk({"index": index, "delta": delta, "finish_reason": "tool_calls"}).replace(b"?", b"\xe9")
    result = run(tape([both, DONE]))
    assert [each["arguments"] for each in said_by(result)] == ["{}"]
    assert finishes(result) == {"tool_calls"}


@pytest.mark.parametrize(
    "lost", [b'"tool_calls":null,"content":"hel', b'"content":"use tool_calls in', b'"content":"{']
)
def test_a_lost_text_that_speaks_of_calls_is_no_call(lost: bytes) -> None:
    torn = b'data: {"choices":[{"index":0,"delta":{' + lost + b"\n\n"
    result = run(tape([text("a", role=True), torn, text("b"), finish("stop"), DONE]))
    assert (result.ended.ending, result.ended.flags) == ("completed", ("not_json",))
    assert finishes(result) == {"stop"}


# -- arguments after the finish ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "tools"), SETTINGS)
def test_arguments_after_the_finish_end_in_an_error(mode: str, tools: str) -> None:
    """The call went out with `{}`, so only an error keeps who runs it at the end from doing so: in `warn`, too."""
    result = run(tape([START, finish("tool_calls"), arguments('{"path":"x"}'), DONE], on_partial=mode, tools=tools))
    error = chunks(result)[-1]["error"]
    assert (error["code"], error["dropped_tools"]) == ("malformed_call", [{"id": "call_a", "name": "write_file"}])
    assert "came after its finish" in error["message"]
    assert DONE not in result.sent
    assert {"late_call", "malformed_call"} <= set(result.ended.flags)


@pytest.mark.parametrize("mode", ["error", "warn", "both"])
@pytest.mark.parametrize("ends", [b"", finish("tool_calls", 1) + DONE])
def test_arguments_after_the_finish_and_a_cut_call_end_in_one_error(mode: str, ends: bytes) -> None:
    other = begin("b", "read", '{"a', role=True, choice=1)
    came = [START, other, finish("tool_calls"), arguments('{"path":"x"}'), ends]
    result = run(tape(came, on_partial=mode, request={"stream": True, "n": 2}))
    error = chunks(result)[-1]["error"]
    assert [dropped["name"] for dropped in error["dropped_tools"]] == ["write_file", "read"]
    assert "Not completed; no result seen." in error["message"]
    assert DONE not in result.sent


def test_legacy_arguments_after_the_finish_end_in_an_error() -> None:
    late = frame({"function_call": {"arguments": '{"path":"x"}'}})
    result = run(tape([LEGACY, finish("function_call"), late, DONE]))
    assert "came after its finish" in chunks(result)[-1]["error"]["message"]


@pytest.mark.parametrize(
    "late",
    [
        arguments(""),
        begin("call_b", None, "{}"),
        begin("call_a", "write_file", "{}", 1),
        call(index=1, name="write_file", arguments="{}"),
        frame({"function_call": "x"}),
    ],
)
def test_what_a_finish_has_closed_is_withheld_after_it(late: bytes) -> None:
    result = run(tape([START, finish("tool_calls"), late, DONE]))
    assert result.sent[-1] == DONE
    assert result.ended.flags == ("late_call",)


@pytest.mark.parametrize(
    ("late", "repair"),
    [
        ({"function_call": {"name": "write_file", "arguments": '{"a":1}'}}, "legacy_call_twin"),
        ({"tool_calls": []}, "late_call"),
    ],
)
def test_twin_or_no_call_after_the_finish_is_withheld_without_a_flag(late: dict[str, Any], repair: str) -> None:
    result = run(tape([START, finish("tool_calls"), frame(late), DONE]))
    assert (result.ended.flags, result.repairs.count(repair)) == ((), 1)


FIRST = begin("a", "f", '{"x":1}', role=True)
G = ("b", "g", '{"y":2}')


def last(*pieces: bytes, reason: str | None = "tool_calls") -> list[bytes]:
    """A second call after the finish of the first; its last piece brings a finish too."""
    value = json.loads(pieces[-1][6:])
    value["choices"][0]["finish_reason"] = reason
    return [FIRST, finish("tool_calls"), *pieces[:-1], sse(value)]


@pytest.mark.parametrize("tools", ["live", "held"])
@pytest.mark.parametrize(
    "came",
    [
        pytest.param(last(begin(*G, 1)), id="each whole"),
        pytest.param(last(begin(*G, 0)), id="at one index"),
        pytest.param(last(begin(*G, ABSENT)), id="without an index"),
        pytest.param(last(begin(*G, 1), reason="stop"), id="stop"),
        pytest.param(last(begin("b", "g", "", 1), call(index=1, arguments='{"y":2}')), id="in pieces"),
        pytest.param([*last(begin(*G, 1), reason=None), DONE], id="closed by [DONE]"),
        pytest.param([*last(begin(*G, 1)), finish("tool_calls"), DONE], id="a third finish"),
    ],
)
def test_parallel_calls_that_each_bring_a_finish_all_go_out(came: list[bytes], tools: str) -> None:
    """Together, and Gemini through OpenRouter: the client gets one finish, the first."""
    result = run(tape(came, tools=tools))
    assert said_by(result) == [{"name": "f", "arguments": '{"x":1}'}, {"name": "g", "arguments": '{"y":2}'}]
    assert (result.ended.ending, result.ended.flags) == ("completed", () if DONE in came else ("no_done",))
    assert [one["status"] for one in chunks(result) if "tool" in one] == ["running", "running"]
    assert [one for payload in chunks(result) for one in payload["choices"] if one["finish_reason"]] == [
        {"index": 0, "delta": {}, "finish_reason": "tool_calls"}
    ]
    assert result.sent[-1] == DONE


def test_calls_of_one_chunk_with_a_finish_each_are_reported_once() -> None:
    choices = [json.loads(one[6:])["choices"][0] for one in (FIRST, begin(*G, 1))]
    for choice in choices:
        choice["finish_reason"] = "tool_calls"
    result = run(tape([sse({**HEAD, "choices": choices}), DONE]))
    assert [one["toolCallId"] for one in chunks(result) if "tool" in one] == ["a", "b"]
    assert said_by(result) == [{"name": "f", "arguments": '{"x":1}'}, {"name": "g", "arguments": '{"y":2}'}]


@pytest.mark.parametrize(("mode", "tools"), SETTINGS)
@pytest.mark.parametrize(
    ("came", "code", "said"),
    [
        pytest.param(last(begin("b", "g", '{"y', 1), reason=None), "truncated", "g was cut short", id="a cut"),
        pytest.param(
            last(begin("b", "g", '{"y', 1)), "malformed_call", "the arguments of g are not valid JSON", id="malformed"
        ),
        pytest.param(
            last(begin(*G, 1), reason="length"), "malformed_call", "the call of g came after the finish", id="length"
        ),
        pytest.param(
            [text("hi", role=True), finish(), *last(begin(*G, 1))[2:]],
            "malformed_call",
            "the call of g came after the finish",
            id="after stop",
        ),
        pytest.param(
            [text("hi", role=True), finish("length"), *last(begin(*G, 1), reason="length")[2:]],
            "malformed_call",
            "the call of g came after the finish",
            id="after length",
        ),
    ],
)
def test_a_call_after_the_finish_that_cannot_run_is_named(
    came: list[bytes], code: str, said: str, mode: str, tools: str
) -> None:
    result = run(tape(came, on_partial=mode, tools=tools))
    assert [(one["toolCallId"], one["status"]) for one in chunks(result) if "tool" in one][-1] == ("b", "dropped")
    assert result.out.decode().count(said) == (2 if mode == "both" else 1)
    assert re.search(WARNING, result.out.decode())
    if mode == "warn":
        assert b'"name":"g"' not in result.out
    else:
        error = chunks(result)[-1]["error"]
        assert (error["code"], error["dropped_tools"]) == (code, [{"id": "b", "name": "g"}])


def test_a_call_with_arguments_is_not_repeated_after_its_finish() -> None:
    whole = arguments('{"a":1}')
    result = run(tape([START, whole, finish("tool_calls"), whole, DONE]))
    assert result.sent[-1] == DONE
    assert said_by(result) == [{"name": "write_file", "arguments": '{"a":1}'}]


# -- a whole message after its own stream -----------------------------------------------------------------------------


@pytest.mark.parametrize("tools", ["live", "held"])
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("begun", [[START], [text("hi", role=True)], [frame({"role": "assistant"})]])
def test_what_only_the_whole_message_says_of_a_call_is_delivered(begun: list[bytes], beside: bool, tools: str) -> None:
    if beside:
        whole = chunk({"index": 0, "delta": {}, "message": MESSAGE, "finish_reason": "tool_calls"})
    else:
        choice = {"index": 0, "message": MESSAGE, "finish_reason": "tool_calls"}
        whole = sse({"id": "chatcmpl-1", "object": "chat.completion", "created": 7, "model": "m", "choices": [choice]})
    result = run(tape([*begun, whole, DONE], tools=tools))
    assert said_by(result) == [{"name": "write_file", "arguments": '{"path":"x"}'}]
    assert finishes(result) == {"tool_calls"}
    assert result.sent[-1] == DONE


@pytest.mark.parametrize("begun", [[START, arguments('{"path":"x"}')], [LEGACY]])
def test_a_message_that_says_a_call_again_without_an_id_begins_none(begun: list[bytes]) -> None:
    again = {"type": "function", "function": {"name": "write_file", "arguments": '{"path":"x"}'}}
    message = {**MESSAGE, "tool_calls": [again, again]}
    whole = chunk({"index": 0, "delta": {}, "message": message, "finish_reason": "tool_calls"})
    result = run(tape([*begun, whole, DONE]))
    assert result.out.decode().count('"status":"running"') == 1


def test_junk_calls_of_a_whole_message_are_left_out() -> None:
    message = {**MESSAGE, "tool_calls": [7, {"type": "function"}, {"function": {"name": "far", "arguments": "{}"}}]}
    whole = chunk({"index": 0, "delta": {}, "message": message, "finish_reason": "tool_calls"})
    result = run(tape([START, whole, DONE]))
    assert said_by(result) == [{"name": "write_file", "arguments": "{}"}]


# -- several endings in one stream ------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["warn", "both"])
def test_an_error_after_a_malformed_call_names_it(mode: str) -> None:
    broken = begin("a", "write_file", '{"a', role=True)
    result = run(tape([broken, finish("tool_calls"), sse({"error": {"message": "boom"}})], on_partial=mode))
    assert "the arguments of write_file are not valid JSON. Not completed; no result seen." in result.out.decode()


def test_a_cut_names_a_call_that_the_limit_of_another_choice_cut() -> None:
    other = begin("call_b", "read", '{"a', role=True, choice=1)
    result = run(tape([START, other, finish("length")], request={"stream": True, "n": 2}))
    error = chunks(result)[-1]["error"]
    assert [dropped["name"] for dropped in error["dropped_tools"]] == ["write_file", "read"]


@pytest.mark.parametrize("mode", ["error", "warn", "both"])
def test_a_cut_after_a_running_call_does_not_claim_that_nothing_runs(mode: str) -> None:
    whole = begin("a", "read", "{}", role=True)
    other = begin("b", "write_file", '{"a', role=True, choice=1)
    result = run(tape([whole, other, finish("tool_calls")], request={"stream": True, "n": 2}, on_partial=mode))
    told = result.out.decode()
    assert "write_file was cut short. Not completed; no result seen." in told
    assert "executed" not in told
    assert re.search(WARNING, told) is not None


@pytest.mark.parametrize("mode", ["error", "warn"])
def test_a_stop_is_not_supplied_while_a_tool_of_the_upstream_runs(mode: str) -> None:
    runs = b'event: hermes.tool.progress\ndata: {"tool":"terminal","toolCallId":"t1","status":"running"}\n\n'
    result = run(tape([text("I check.", role=True), runs, DONE], hermes=True, on_partial=mode))
    assert result.ended.ending == "truncated"
    assert "stop" not in finishes(result)


def test_a_bound_that_the_last_chunk_passes_is_a_limit() -> None:
    piece = "x" * (6 << 20)
    last = chunk({"index": 0, "delta": {"tool_calls": [{"index": 0, "function": {"arguments": f'{piece}"}}'}}]}})
    last = last.replace(b'"finish_reason":null', b'"finish_reason":"tool_calls"')
    result = run(tape([START, arguments('{"a":"' + piece), arguments(piece), last]))
    assert result.ended.ending == "limit"
    assert chunks(result)[-1]["error"]["code"] == "limit"


def test_arguments_after_the_finish_are_found_after_an_entry_that_is_no_object() -> None:
    entries = [5, {"index": 0, "function": {"arguments": '{"path":"x"}'}}]
    result = run(tape([START, finish("tool_calls"), frame({"tool_calls": entries}), DONE]))
    assert {"late_call", "malformed_call"} <= set(result.ended.flags)


def test_other_type_of_a_known_call_is_removed() -> None:
    result = run(tape([START, call(index=0, type="custom"), arguments("{}"), finish("tool_calls"), DONE]))
    assert result.repairs.count("call_type") == 1
    assert result.ended.ending == "completed"
