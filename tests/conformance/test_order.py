"""The order checkers accept a stream that is right, and name the rule that an altered one breaks."""

import json
from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import pytest

from .order import CHECKERS, frames_of, tally
from .schemas import unfit

Payloads = list[dict[str, Any]]


def body(payloads: Payloads) -> bytes:
    return b"".join(f"event: {each['type']}\ndata: {json.dumps(each)}\n\n".encode() for each in payloads)


def numbered(*payloads: dict[str, Any]) -> Payloads:
    return [{**each, "sequence_number": number} for number, each in enumerate(payloads)]


def response(status: str, output: Payloads) -> dict[str, Any]:
    """Return a response object with every member that the published types ask for."""
    ended = status == "completed"
    details = {"input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0}}
    details |= {"output_tokens_details": {"reasoning_tokens": 0}}
    return {
        "id": "resp_1", "object": "response", "created_at": 7, "completed_at": 9 if ended else None, "status": status,
        "error": None, "incomplete_details": None, "model": "m", "output": output, "instructions": None,
        "previous_response_id": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
        "truncation": "disabled", "text": {"format": {"type": "text"}}, "top_p": 1.0, "temperature": 1.0,
        "presence_penalty": 0.0, "frequency_penalty": 0.0, "top_logprobs": 0, "reasoning": None,
        "max_output_tokens": None, "max_tool_calls": None, "store": False, "background": False,
        "service_tier": "default", "metadata": {}, "safety_identifier": None, "prompt_cache_key": None,
        "usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5, **details} if ended else None,
    }  # fmt: skip


MESSAGE: dict[str, Any] = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "hi", "annotations": [], "logprobs": []}],
}  # fmt: skip
CALL = {
    "type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}", "status": "completed",
}  # fmt: skip
EMPTY: dict[str, Any] = {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
AT_TEXT = {"item_id": "msg_1", "output_index": 0, "content_index": 0}
AT_CALL = {"item_id": "fc_1", "output_index": 1}
RESPONSES = numbered(
    {"type": "response.created", "response": response("in_progress", [])},
    {"type": "response.in_progress", "response": response("in_progress", [])},
    {"type": "keepalive"},
    {
        "type": "response.output_item.added",
        "output_index": 0,
        "item": {**MESSAGE, "content": [], "status": "in_progress"},
    },
    {"type": "response.content_part.added", **AT_TEXT, "part": EMPTY},
    {"type": "response.output_text.delta", **AT_TEXT, "delta": "hi", "logprobs": []},
    {"type": "response.output_text.done", **AT_TEXT, "text": "hi", "logprobs": []},
    {"type": "response.content_part.done", **AT_TEXT, "part": {**EMPTY, "text": "hi"}},
    {"type": "response.output_item.done", "output_index": 0, "item": MESSAGE},
    {
        "type": "response.output_item.added",
        "output_index": 1,
        "item": {**CALL, "arguments": "", "status": "in_progress"},
    },
    {"type": "response.function_call_arguments.delta", **AT_CALL, "delta": "{}"},
    {"type": "response.function_call_arguments.done", **AT_CALL, "name": "f", "arguments": "{}"},
    {"type": "response.output_item.done", "output_index": 1, "item": CALL},
    {"type": "response.completed", "response": response("completed", [MESSAGE, CALL])},
)

START: dict[str, Any] = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "stop_reason": None,
    "stop_sequence": None, "usage": {"input_tokens": 3, "output_tokens": 0},
}  # fmt: skip
MESSAGES: Payloads = [
    {"type": "message_start", "message": START},
    {"type": "ping"},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "thinking", "thinking": "", "signature": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "s"}},
    {"type": "content_block_stop", "index": 0},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
    {"type": "content_block_stop", "index": 1},
    {
        "type": "message_delta",
        "delta": {"stop_reason": "tool_use", "stop_sequence": None},
        "usage": {"output_tokens": 2},
    },
    {"type": "message_stop"},
]
STREAMS: Mapping[str, Payloads] = {"responses": RESPONSES, "messages": MESSAGES}


@pytest.mark.parametrize("dialect", STREAMS)
def test_a_right_stream_has_no_fault(dialect: str) -> None:
    sent = body(STREAMS[dialect])
    assert CHECKERS[dialect](sent) == []
    assert not any(unfit(dialect, frames_of(sent)).values()), unfit(dialect, frames_of(sent))


@pytest.mark.parametrize("dialect", STREAMS)
def test_every_frame_but_a_keepalive_is_needed(dialect: str) -> None:
    """An in_progress may be absent too, and a delta of Messages, which no later frame repeats."""
    free = {"keepalive", "ping", "response.in_progress", "content_block_delta"}
    payloads = STREAMS[dialect]
    for place, each in enumerate(payloads):
        rest = [*payloads[:place], *payloads[place + 1 :]]
        rest = numbered(*rest) if dialect == "responses" else rest
        assert bool(CHECKERS[dialect](body(rest))) == (each["type"] not in free), each


def swap(one: int, two: int) -> Callable[[Payloads], object]:
    def alter(payloads: Payloads) -> None:
        payloads[one], payloads[two] = payloads[two], payloads[one]

    return alter


def put(place: int, *path: Any) -> Callable[[Payloads], object]:
    """Write the last of these at the path that the others are."""

    def alter(payloads: Payloads) -> None:
        target: Any = payloads[place]
        for step in path[:-2]:
            target = target[step]
        target[path[-2]] = path[-1]

    return alter


ALTERED: list[tuple[str, Callable[[Payloads], object], str]] = [
    ("responses", put(5, "sequence_number", 9), "sequence numbers have no gap"),
    ("responses", put(13, "response", "id", "resp_2"), "the response id never changes"),
    ("responses", put(9, "output_index", 2), "output_index counts the items"),
    ("responses", put(9, "item", "id", "msg_1"), "ids are unique"),
    ("responses", put(5, "item_id", "msg_2"), "item_id is the item's id"),
    ("responses", put(5, "content_index", 1), "text is inside its part"),
    ("responses", put(6, "text", "ho"), "done repeats the deltas"),
    ("responses", put(12, "item", "call_id", "call_2"), "done keeps type, id and call_id"),
    ("responses", put(12, "item", "arguments", "{"), "done repeats the deltas"),
    ("responses", put(13, "response", "output", []), "output repeats the items"),
    ("responses", put(13, "response", "status", "incomplete"), "the status fits the event"),
    ("responses", swap(8, 9), "one open item"),
    ("responses", swap(5, 6), "nothing follows done"),
    ("responses", swap(0, 1), "created comes first"),
    ("responses", lambda payloads: payloads.append({"type": "keepalive"}), "nothing after the end"),
    ("responses", lambda payloads: payloads.insert(9, payloads[1]), "a snapshot never replaces items"),
    ("responses", put(2, "type", "ping"), "every type is known"),
    ("messages", put(6, "index", 2), "indexes are dense"),
    ("messages", put(6, "content_block", "type", "text"), "deltas match their block"),
    ("messages", swap(5, 6), "one open block"),
    ("messages", swap(3, 4), "one signature, last"),
    ("messages", put(7, "delta", "partial_json", "{"), "arguments of a call are whole"),
    ("messages", put(9, "delta", "stop_reason", "end_turn"), "the stop_reason fits the calls"),
    ("messages", put(9, "usage", {}), "usage is in both places"),
    ("messages", put(0, "message", "usage", None), "usage is in both places"),
    ("messages", put(0, "message", "stop_reason", "end_turn"), "message_start opens an empty message"),
    ("messages", swap(8, 9), "blocks stop before message_delta"),
    ("messages", lambda payloads: payloads.append({"type": "ping"}), "nothing after the end"),
    ("messages", lambda payloads: payloads.insert(1, payloads[0]), "message_start comes first, once"),
]


@pytest.mark.parametrize(
    ("dialect", "alter", "rule"), ALTERED, ids=[f"{number} {row[2]}" for number, row in enumerate(ALTERED)]
)
def test_an_altered_stream_breaks_the_rule(dialect: str, alter: Callable[[Payloads], object], rule: str) -> None:
    payloads = deepcopy(STREAMS[dialect])
    alter(payloads)
    assert rule in tally(CHECKERS[dialect](body(payloads)))


def test_event_line_repeats_the_type() -> None:
    sent = body(MESSAGES).replace(b"event: message_stop", b"event: stop")
    assert "the event line repeats the type" in tally(CHECKERS["messages"](sent))
    card = b'event: hermes.tool.progress\ndata: {"type":"ping","tool":"f"}\n\n'
    sent = body(MESSAGES).replace(b"event: ping\n", card + b"event: ping\n")
    assert CHECKERS["messages"](sent) == []


def test_a_cut_item_stays_open() -> None:
    failed = {**response("failed", [MESSAGE]), "error": {"code": "stream_truncated", "message": "cut"}}
    cut = numbered(*RESPONSES[:11], {"type": "response.failed", "response": failed})
    assert CHECKERS["responses"](body(cut)) == []
    error = {"type": "error", "error": {"type": "api_error", "message": "cut"}}
    assert CHECKERS["messages"](body([*MESSAGES[:8], error])) == []
