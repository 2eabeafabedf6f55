"""Replace recorded ids by those that the live responses have in their place."""

from typing import Any

import pytest

from wiretape.events.core.json_text import dumps, parse
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.replay.compare.verify import CarriedIds
from wiretape.replay.playback.script import Request


def answer(*payloads: dict[str, Any], framed: bool = True) -> list[Record]:
    recorder = Recorder()
    records = list(recorder.attempt(0, {"number": 1}))
    for payload in payloads:
        data = dumps(payload)
        records += recorder.read(1, b"data: %b\n\n" % data) if framed else [recorder.body(1, data)]
    return records


def call(id_: str, name: str = "f", index: int = 0) -> dict[str, Any]:
    return {"choices": [{"delta": {"tool_calls": [{"index": index, "id": id_, "function": {"name": name}}]}}]}


def item(item_id: str, call_id: str, name: str = "f") -> dict[str, Any]:
    said = {"type": "function_call", "id": item_id, "call_id": call_id, "name": name}
    return {"type": "response.output_item.added", "item": said}


def created(id_: str) -> dict[str, Any]:
    return {"type": "response.created", "response": {"id": id_}}


def learnt(then: list[Record], now: list[Record]) -> CarriedIds:
    carried = CarriedIds()
    carried.learn(then, now)
    return carried


def today(carried: CarriedIds, body: bytes) -> bytes:
    return carried.today(Request(b"POST", b"/v1/responses", (), body)).body


def outputs(first: str, second: str) -> dict[str, Any]:
    items = [{"type": "function_call_output", "call_id": first}, {"type": "item_reference", "id": second}]
    return {"input": items}


def result(call_id: str) -> dict[str, Any]:
    return {"messages": [{"role": "tool", "tool_call_id": call_id, "content": "call_1"}]}


def signed(signature: str) -> dict[str, Any]:
    delta = {"type": "signature_delta", "signature": signature}
    return {"type": "content_block_delta", "index": 0, "delta": delta}


def thought(signature: str) -> dict[str, Any]:
    block = {"type": "thinking", "thinking": "signature", "signature": signature}
    return {"messages": [{"role": "assistant", "content": [block]}]}


def attached(file_id: str) -> dict[str, Any]:
    return {"attachments": [{"file_id": file_id}]}


def json_answer(**said: Any) -> list[Record]:
    return answer(said, framed=False)


RESP_1, RESP_X = answer(created("resp_1")), answer(created("resp_x"))
INSIDE = {"messages": [{"tool_calls": [{"id": "call_7", "function": {"name": "f"}}]}, {"tool_call_id": "call_7"}]}
CONTENT = {"input": [{"type": "function_call", "arguments": '{"id": "resp_1"}'}]}

#: The recorded and the live response, the recorded request, and the one to send.
REPLACED: dict[str, tuple[list[Record], list[Record], dict[str, Any], dict[str, Any]]] = {
    "the previous response": (
        RESP_1, RESP_X,
        {"previous_response_id": "resp_1", "input": "resp_1"}, {"previous_response_id": "resp_x", "input": "resp_1"},
    ),
    "calls and items, by their order": (
        answer(created("resp_1"), item("fc_1", "call_1"), item("fc_2", "call_2")),
        answer(created("resp_x"), item("fc_a", "call_a"), item("fc_b", "call_b")),
        outputs("call_2", "fc_1"), outputs("call_b", "fc_a"),
    ),
    "two calls in one delta": (
        answer(call("call_1"), call("call_2", index=1)),
        answer({"choices": []}, call("call_a"), call("call_b", index=1)),
        result("call_2"), result("call_b"),
    ),
    "a file": (
        json_answer(object="file", id="file-abc"), json_answer(object="file", id="file-xyz"),
        attached("file-abc"), attached("file-xyz"),
    ),
    "an id that is the same today": (
        json_answer(data=[{"id": "a"}, {"id": "b"}]), json_answer(data=[{"id": "b"}, {"id": "a"}]),
        {"file_id": "a"}, {"file_id": "a"},
    ),
    "a signature": (
        answer(signed("proof_1")), answer(signed("EqoB/ab+c=")), thought("proof_1"), thought("EqoB/ab+c="),
    ),
    "a call inside the request": (RESP_1, RESP_X, INSIDE, INSIDE),
    "content stays": (RESP_1, RESP_X, CONTENT, CONTENT),
}  # fmt: skip


@pytest.mark.parametrize("case", REPLACED)
def test_an_id_is_replaced_by_place(case: str) -> None:
    then, now, asked, sent = REPLACED[case]
    assert parse(today(learnt(then, now), dumps(asked))) == sent


def test_other_bytes_stay_and_ids_in_the_path_are_replaced() -> None:
    carried = learnt(RESP_1, RESP_X)
    for body in (b'{ "id" : "u" }', b"not json", b""):
        assert today(carried, body) == body
    listing = Request(b"GET", b"/v1/responses/resp_1/input_items?after=resp_1&x=1", (), b"")
    assert carried.today(listing).target == b"/v1/responses/resp_x/input_items?after=resp_x&x=1"
