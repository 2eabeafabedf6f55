"""Every stream of the table and of the corpus, cut at every frame in every mode; and streams of any frames at all."""

import json
import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.events.messages.reader import Client
from tests.events.messages.rows import ROWS
from tests.events.messages.streams import END, START, Row, event, finish, stream
from tests.support.chat import Run, run
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.json_text import as_object
from wiretape.events.core.lifecycle import State
from wiretape.events.core.limits import HELD_BYTES_MAX
from wiretape.events.emit import Emitter, emit
from wiretape.events.wire.sse import Decoder

FULL = os.environ.get("WIRETAPE_LAWS") == "full"
MODES: list[dict[str, Any]] = [
    {},
    {"tools": "held"},
    {"on_partial": "both"},
    {"on_partial": "both", "tools": "held"},
    {"on_partial": "warn"},
]
CALL_STATES = (State.RUNNING, State.DROPPED, State.MALFORMED)


def check(result: Run, mode: dict[str, Any]) -> Client:
    """One ending that the client can tell, frames in order, and no call runs that was not handed over."""
    client = Client(result.out)
    ended, calls = result.ended, list(result.wire.calls())
    assert client.ended
    malformed = "malformed_call" in ended.flags
    whole = ended.ending == "completed" and not malformed
    warned = mode.get("on_partial") == "warn" and ended.ending != "upstream_error" and not result.wire.late_calls
    assert (client.error is None) == (whole or warned)
    if not whole and warned:
        assert client.reason == "max_tokens"
    handed = [call.arguments.strip() for call in calls if call.state is State.RUNNING]
    assert [given.strip() for given in client.runs] == handed
    assert all(call.state in CALL_STATES for call in calls)
    told = [(card["toolCallId"], card["status"]) for card in client.cards]
    assert len(told) == len(set(told))
    return client


def cuts(body: bytes) -> list[bytes]:
    """The stream after every frame; of a long one after some."""
    ends = [0]
    for frame in Decoder().feed(body):
        ends.append(ends[-1] + len(frame.raw))
    return [body[:end] for end in ends[:: 1 + len(ends) // (400 if FULL else 30)]] + [body]


@pytest.mark.parametrize("mode", MODES, ids=str)
@pytest.mark.parametrize("row", [row for row in ROWS if not row.settings], ids=lambda row: row.id)
def test_a_cut_at_any_frame_is_reported(row: Row, mode: dict[str, Any]) -> None:
    for body in cuts(b"".join(row.came)):
        result = run(stream([body], **mode))
        check(result, mode)
        assert emit(stream([body], reads=5, **mode)) == result.out


@needs_corpus
@pytest.mark.parametrize("mode", MODES, ids=str)
def test_captured_streams_cut_at_any_frame(mode: dict[str, Any]) -> None:
    for _, captured in sampled("anthropic", one_in=60):
        for body in cuts(captured.body):
            client = check(run(stream([body], **mode)), mode)
            assert (b"message_stop" in body) or client.error is not None or mode.get("on_partial") == "warn"


@needs_corpus
def test_captured_streams_pass_as_they_came() -> None:
    for _, captured in sampled("anthropic", one_in=16):
        result = run(stream([captured.body], tool_events=False))
        assert result.ended.ending == "completed"
        if not set(result.repairs) & {"framing", "done_withheld", "block_member"}:
            assert result.out == captured.body.rstrip(b"\n") + b"\n\n"


# -- any frames at all ------------------------------------------------------------------------------------------------

JUNK: tuple[Any, ...] = (None, 1, "", "a", [], {}, True, -1, {"type": "text"}, "\ud800", 0.5)
BLOCKS = (
    "text",
    "thinking",
    "tool_use",
    "tool_use",
    "server_tool_use",
    "mcp_tool_result",
    "redacted_thinking",
    "weird",
)
DELTAS = (
    "text_delta",
    "thinking_delta",
    "signature_delta",
    "input_json_delta",
    "citations_delta",
    "compaction_delta",
    "x",
)
FOREIGN: tuple[Any, ...] = (*JUNK, {"type": "vertex_event"}, {"type": "response.created"}, {"choices": []})
REASONS = ("end_turn", "tool_use", "max_tokens", "refusal", None, "", "zz", "pause_turn", 5)


def any_frame(random: Random) -> bytes:
    """A frame of the protocol whose members may be missing, wrong or cut."""

    def some(**members: list[Any]) -> dict[str, Any]:
        return {key: random.choice(values) for key, values in members.items() if random.random() > 0.1}

    index: Any = random.choice((0, 0, 0, 1, 1, 2, random.choice(JUNK)))
    kind = random.choice(("start", "block", "block", "delta", "delta", "delta", "stop", "stop", "end", "error", "junk"))
    value: Any
    block: Any
    usage: Any
    failed: Any
    match kind:
        case "start":
            message = some(id=["m", None], content=[[], 1], usage=[{"input_tokens": 3}, None], role=["assistant"])
            value = {"type": "message_start", "message": random.choice((message, random.choice(JUNK)))}
        case "block":
            block = some(
                type=[*BLOCKS],
                text=["", "hi", None],
                id=["a", "b", "", None],
                name=["f", None],
                signature=["", "s"],
                input=[{}, {}, {"a": 1}, "{}", None, [1]],
                tool_use_id=["a", None],
                is_error=[True],
                content=[{}],
            )
            block = random.choice((block, block, block, random.choice(JUNK)))
            value = {"type": "content_block_start", "index": index, "content_block": block}
        case "delta":
            delta = some(
                type=[*DELTAS],
                text=["hi", "h", "", None],
                thinking=["t"],
                signature=["s"],
                citation=[{}, None],
                partial_json=["{", '{"a":1}', "", '"a":1}', "}", {"a": 1}, None],
            )
            value = {"type": "content_block_delta", "index": index, "delta": random.choice((delta, delta, {}, 5))}
        case "stop":
            value = {"type": "content_block_stop", "index": index}
        case "end":
            ends = {"stop_reason": random.choice(REASONS)}
            usage = random.choice(({"output_tokens": 5}, {}, None, {"input_tokens": 7, "output_tokens": 0}))
            value = random.choice(({"type": "message_delta", "delta": ends, "usage": usage}, {"type": "message_stop"}))
        case "error":
            failed = random.choice(({"type": "overloaded_error", "message": "m"}, "x", *JUNK))
            value = random.choice(
                ({"type": "ping"}, {"type": "ping"}, {"type": "error", "error": failed}, {"error": failed})
            )
        case _:
            value = random.choice(FOREIGN)
    payload = json.dumps(value).encode()
    if random.random() < 0.03:
        payload = payload[: random.randrange(len(payload) + 1)].replace(b"h", b"\xff")
    name = as_object(value).get("type")
    named = isinstance(name, str) and random.random() < 0.9
    line = b"event: %b\n" % str(name if named else "error").encode() if named or random.random() < 0.1 else b""
    return line + b"data: " + payload + random.choice((b"\n\n",) * 20 + (b"\r\n\r\n",))


@settings(max_examples=3000 if FULL else 30)
@given(st.integers(0, 2**32))
def test_any_frames_make_a_stream_in_order(seed: int) -> None:
    random = Random(seed)  # noqa: S311 - frames of a test
    frames = [any_frame(random) for _ in range(random.randrange(1, 24))]
    if random.random() < 0.7:
        frames.insert(0, START)
    if random.random() < 0.7:
        frames += [finish(random.choice(("end_turn", "tool_use", "max_tokens"))), END]
    mode = random.choice(MODES)
    result = run(stream(frames, **mode))
    Ordered(result.out)
    assert emit(stream(frames, reads=random.choice((1, 7, 50)), **mode)) == result.out


class Ordered(Client):
    """A client that bears blocks after a call that a limit cut: only streams of junk have them."""

    def _read(self, value: dict[str, Any]) -> None:
        if value["type"] == "content_block_start" and self._open and self.blocks[-1][0] == "tool_use":
            self._open = False
        super()._read(value)


def test_frames_that_wait_have_a_bound() -> None:
    emitter = Emitter()
    piece = event({"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "x" * 8_000_000}})
    first = [START, event({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}})]
    records = stream([*first, *[piece] * (HELD_BYTES_MAX // len(piece) + 1)])
    sent = b"".join(frame for record in records for frame in emitter.feed(record))
    assert emitter.wire.ended is not None
    assert emitter.wire.ended.ending == "limit"
    assert Client(sent).error is not None
