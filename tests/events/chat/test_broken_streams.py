"""A stream that breaks inside a tool call, in every way that there is: nothing runs, and the client learns why.

The client here is the most careless that we know (clients.md 4): it runs every call that it has seen as soon as the
stream is over and nothing was raised, and takes no arguments for `{}`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import product
from typing import Any, Final, NamedTuple

import pytest

from tests.laws.variants import FULL
from tests.support.chat import DONE, begin, call, finish, frame, run, sse, tape, text
from wiretape.events.core.json_text import ABSENT, as_object, parse
from wiretape.events.wire.sse import Decoder

CALL: Final = begin("call_a", "write_file")
OTHER: Final = begin("call_b", "read_file", "", 1)


class Way(NamedTuple):
    """How it ends: what still comes, the cause, and what the client is to read."""

    tail: bytes
    cause: str
    ending: str
    says: str


CUTS: Final = {
    "clean close": Way(b"", "eof", "truncated", "Connection dropped"),
    "reset": Way(b"", "reset", "reset", "Connection dropped"),
    "stall": Way(b"", "stalled", "stalled", "Stream stalled"),
    "terminator without finish": Way(DONE, "closed", "truncated", "Connection dropped"),
    "limit": Way(b"", "limit", "limit", "Size limit reached"),
    "shutdown": Way(b"", "shutdown", "shutdown", "The proxy was shut down"),
    "crash": Way(b"", "crashed", "crashed", "The proxy crashed"),
    "garbage": Way(b"", "protocol", "protocol", "Stream ended early"),
    "our own fault": Way(b"", "internal", "internal", "Stream ended early"),
}
ARGUMENTS: Final = {
    "nothing of its arguments": [],
    "the beginning": ['{"pa'],
    "half": ['{"path":', '"/etc/'],
    "all but a brace": ['{"path":"x","text":"y"'],
    "all, and no finish": ['{"path":', '"x"}'],
}
BEFORE: Final = {
    "nothing": [],
    "text": [text("I will write.", role=True)],
    "reasoning": [frame({"role": "assistant", "reasoning_content": "hm"})],
    "both": [frame({"role": "assistant", "reasoning_content": "hm"}), text("I will.")],
}
MODES: Final = [(mode, tools) for mode in ("error", "warn", "both") for tools in ("live", "held")]
IN_EVERY_MODE: Final = pytest.mark.parametrize(("mode", "tools"), MODES, ids=map("-".join, MODES))
WAYS: Final = [way for way in CUTS if way != "terminator without finish"]
#: All combinations in `make laws`; by default every pair of two of them.
CASES: Final = [
    (way, mode, given, before)
    for (i, way), (j, mode) in product(enumerate(WAYS), enumerate(MODES))
    for (k, given), (m, before) in product(enumerate(ARGUMENTS), enumerate(BEFORE))
    if FULL or (k == (i + j) % len(ARGUMENTS) and m == (i + 3 * j) % len(BEFORE))
]


@dataclass
class Careless:
    """What it made of the frames."""

    text: str = ""
    reasoning: str = ""
    calls: dict[int, dict[str, str]] = field(default_factory=dict[int, dict[str, str]])
    finishes: list[str] = field(default_factory=list[str])
    raised: dict[str, Any] | None = None
    done: bool = False
    #: Lifecycle frames: status and id, in order; and what the last of each id says.
    seen: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    last: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])

    def ran(self) -> dict[str, Any]:
        """What it executes, by the name of the tool."""
        if self.raised is not None:
            return {}
        return {one["name"]: parse((one["arguments"] or "{}").encode()) for one in self.calls.values()}

    def takes(self, value: dict[str, Any]) -> None:
        """The next payload."""
        assert not self.done, "data after the terminator"
        assert self.raised is None, "data after the error"
        if "error" in value:
            self.raised = value["error"]
            return
        if "toolCallId" in value:
            self.seen.append((value["status"], value["toolCallId"]))
            self.last[value["toolCallId"]] = value
            assert [choice["delta"] for choice in value["choices"]] == [{}]
        for choice in value["choices"]:
            self._takes_delta(choice["delta"])
            if choice["finish_reason"]:
                self.finishes.append(choice["finish_reason"])

    def _takes_delta(self, delta: dict[str, Any]) -> None:
        self.text += delta.get("content") or ""
        self.reasoning += delta.get("reasoning_content") or ""
        for entry in delta.get("tool_calls", []):
            one = self.calls.setdefault(entry["index"], {"name": "", "arguments": ""})
            one["name"] += as_object(entry.get("function")).get("name") or ""
            one["arguments"] += as_object(entry.get("function")).get("arguments") or ""


def client(upstream: list[bytes], cause: str, mode: str, tools: str) -> Careless:
    result = run(tape(upstream, cause=cause, on_partial=mode, tools=tools))
    decoder, got = Decoder(), Careless()
    for each in decoder.feed(result.out):
        assert each.payload is not None
        if each.payload == b"[DONE]":
            got.done = True
        else:
            value = parse(each.payload)
            assert value is not ABSENT
            got.takes(value)
    assert not decoder.rest
    return got


def arguments(pieces: list[str], index: int = 0) -> Iterator[bytes]:
    for piece in pieces:
        yield call(index=index, arguments=piece)


def told(got: Careless, mode: str) -> str:
    """Check the one report of the cut, in the chosen mode; the client must not take the stream for whole."""
    if mode == "warn":
        assert got.raised is None
        assert (got.finishes, got.done) == (["length"], True)
        return got.text
    assert got.raised is not None
    assert not got.finishes
    assert not got.done
    message: str = got.raised["message"]
    if mode == "both":
        assert got.text.endswith(message)
    return message


@pytest.mark.parametrize(("way", "modes", "given", "before"), CASES)
def test_a_cut_inside_a_call(way: str, modes: tuple[str, str], given: str, before: str) -> None:
    tail, cause, ending, says = CUTS[way]
    mode, tools = modes
    got = client([*BEFORE[before], CALL, *arguments(ARGUMENTS[given]), tail], cause, mode, tools)

    assert got.ran() == {}
    assert f"⚠ {says} mid tool-call: write_file was cut short. Not completed; no result seen." in told(got, mode)
    assert got.seen == [("dropped", "call_a")]
    assert got.last["call_a"]["reason"] == ending
    if mode == "warn" or tools == "held":
        assert not got.calls, "a held call is never seen"
    if got.raised is not None:
        assert got.raised["type"] == "stream_truncated"
        assert got.raised["code"] == ending
        assert got.raised["dropped_tools"] == [{"id": "call_a", "name": "write_file"}]


@IN_EVERY_MODE
@pytest.mark.parametrize("given", [name for name in ARGUMENTS if name != "all, and no finish"])
def test_a_terminator_without_a_finish_over_half_a_call(given: str, mode: str, tools: str) -> None:
    got = client([CALL, *arguments(ARGUMENTS[given]), DONE], "closed", mode, tools)
    assert got.ran() == {}
    assert "⚠ Connection dropped mid tool-call: write_file was cut short. Not completed; no result seen." in told(
        got, mode
    )
    assert got.seen == [("dropped", "call_a")]


@IN_EVERY_MODE
@pytest.mark.parametrize("end", [[DONE], [finish("tool_calls")], [finish("tool_calls"), DONE]])
@pytest.mark.parametrize("given", [['{"path":', '"x"}'], []], ids=["arguments", "none"])
def test_a_whole_call_runs_without_its_terminator(given: list[str], end: list[bytes], mode: str, tools: str) -> None:
    if not given and finish("tool_calls") not in end:
        return  # a terminator alone does not end a call without arguments
    got = client([CALL, *arguments(given), *end], "eof", mode, tools)
    assert got.ran() == {"write_file": {"path": "x"} if given else {}}
    assert (got.finishes, got.done, got.raised) == (["tool_calls"], True, None)
    assert got.seen == [("running", "call_a")]


@IN_EVERY_MODE
@pytest.mark.parametrize("way", CUTS)
def test_of_two_calls_each_is_named(way: str, mode: str, tools: str) -> None:
    tail, cause, _, says = CUTS[way]
    upstream = [CALL, *arguments(['{"path":"x"}']), OTHER, *arguments(['{"pa'], 1), tail]
    got = client(upstream, cause, mode, tools)
    assert got.ran() == {}
    message = f"⚠ {says} mid tool-call: write_file, read_file were cut short. Not completed; no result seen."
    assert message in told(got, mode)
    assert got.seen == [("dropped", "call_a"), ("dropped", "call_b")]


@IN_EVERY_MODE
@pytest.mark.parametrize("given", [name for name in ARGUMENTS if name != "all, and no finish"])
def test_the_output_limit_inside_a_call(given: str, mode: str, tools: str) -> None:
    got = client(
        [text("I will.", role=True), CALL, *arguments(ARGUMENTS[given]), finish("length"), DONE], "closed", mode, tools
    )
    assert (got.finishes, got.done, got.raised) == (["length"], True, None)
    assert got.seen == [("dropped", "call_a")]
    assert got.last["call_a"]["reason"] == "length"
    warned = (
        "⚠ Output limit reached mid tool-call: write_file was cut short. Not completed; no result seen." in got.text
    )
    assert warned == (mode != "error")
    if mode == "warn" or tools == "held":
        assert got.ran() == {}
    else:  # as it comes directly: the one exception, and the finish says it
        assert got.calls[0]["arguments"] == "".join(ARGUMENTS[given])


@IN_EVERY_MODE
@pytest.mark.parametrize("given", ["the beginning", "half", "all but a brace"])
@pytest.mark.parametrize("end", [[finish("tool_calls"), DONE], [finish("stop"), DONE], [finish("tool_calls")]])
def test_a_claimed_finish_over_arguments_that_are_no_json(end: list[bytes], given: str, mode: str, tools: str) -> None:
    got = client([CALL, *arguments(ARGUMENTS[given]), *end], "eof", mode, tools)
    assert got.ran() == {}
    said = told(got, mode)
    assert (
        "⚠ Malformed tool call: the arguments of write_file are not valid JSON. Not completed; no result seen." in said
    )
    assert got.seen == [("dropped", "call_a")]
    assert got.last["call_a"]["reason"] == "malformed"
    if got.raised is not None:
        assert got.raised["type"] == "malformed_call"


@IN_EVERY_MODE
@pytest.mark.parametrize("given", ARGUMENTS)
def test_the_upstreams_own_error_inside_a_call(given: str, mode: str, tools: str) -> None:
    failure = sse({"error": {"message": "overloaded", "type": "server_error", "code": 529}})
    got = client([text("I will.", role=True), CALL, *arguments(ARGUMENTS[given]), failure], "closed", mode, tools)
    assert got.ran() == {}
    assert got.raised is not None
    assert got.raised["message"] == "overloaded"
    assert got.seen == [("dropped", "call_a")]
    warned = "⚠ The provider failed mid tool-call: write_file was cut short. Not completed; no result seen." in got.text
    assert warned == (mode != "error")


@pytest.mark.parametrize("way", CUTS)
@pytest.mark.parametrize("before", ["text", "reasoning", "both"])
def test_a_cut_of_text_alone_adds_nothing_to_the_text(before: str, way: str) -> None:
    tail, cause, ending, _ = CUTS[way]
    if way == "terminator without finish":
        return  # Q37: content and a terminator are a whole answer
    got = client([*BEFORE[before], tail], cause, "warn", "held")
    assert got.text == "".join({"text": "I will write.", "reasoning": "", "both": "I will."}[before])
    assert (got.finishes, got.done, got.raised) == (["length"], True, None)
    for mode in ("error", "both"):
        got = client([*BEFORE[before], tail], cause, mode, "live")
        assert "⚠" not in got.text
        assert got.raised is not None
        assert got.raised["code"] == ending
        assert got.raised["dropped_tools"] == []


@IN_EVERY_MODE
def test_of_two_choices_the_whole_one_is_kept(mode: str, tools: str) -> None:
    whole = [text("done", index=1), finish("stop", index=1)]
    got = client([CALL, *whole, *arguments(['{"pa'])], "eof", mode, tools)
    assert got.seen == [("dropped", "call_a")]
    assert "stop" in got.finishes
    assert got.ran() == {}
