"""Replace recorded ids by those that the live responses have in their place."""

from typing import Any

import pytest

from wiretape.events.core.json_text import dumps, parse
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder
from wiretape.replay.compare.verify import CarriedIds, LostIdError


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


@pytest.mark.parametrize(
    ("then", "now", "asked", "sent"),
    [
        pytest.param(
            answer(created("resp_1")),
            answer(created("resp_x")),
            {"previous_response_id": "resp_1", "input": "resp_1"},
            {"previous_response_id": "resp_x", "input": "resp_1"},
            id="the previous response",
        ),
        pytest.param(
            answer(item("fc_1", "call_1", "f"), item("fc_2", "call_2", "g")),
            answer(item("fc_b", "call_b", "g"), item("fc_a", "call_a", "f")),
            {
                "input": [
                    {"type": "function_call_output", "call_id": "call_2"},
                    {"type": "item_reference", "id": "fc_1"},
                ]
            },
            {
                "input": [
                    {"type": "function_call_output", "call_id": "call_b"},
                    {"type": "item_reference", "id": "fc_a"},
                ]
            },
            id="calls in another order, by name",
        ),
        pytest.param(
            answer(call("call_1"), call("call_2", index=1)),
            answer({"choices": []}, call("call_a"), call("call_b", index=1)),
            {"messages": [{"role": "tool", "tool_call_id": "call_2", "content": "call_1"}]},
            {"messages": [{"role": "tool", "tool_call_id": "call_b", "content": "call_1"}]},
            id="two calls of one name, by number",
        ),
        pytest.param(
            answer({"object": "file", "id": "file-abc"}, framed=False),
            answer({"object": "file", "id": "file-xyz"}, framed=False),
            {"attachments": [{"file_id": "file-abc"}], "tools": [{"file_ids": ["file-abc"]}]},
            {"attachments": [{"file_id": "file-xyz"}], "tools": [{"file_ids": ["file-xyz"]}]},
            id="a file",
        ),
        pytest.param(
            answer({"data": [{"id": "a"}, {"id": "b"}]}, framed=False),
            answer({"data": [{"id": "b"}, {"id": "a"}]}, framed=False),
            {"file_id": "a"},
            {"file_id": "a"},
            id="an id that is the same today",
        ),
        pytest.param(
            answer(created("resp_1")),
            answer(created("resp_x")),
            {"messages": [{"tool_calls": [{"id": "call_7", "function": {"name": "f"}}]}, {"tool_call_id": "call_7"}]},
            {"messages": [{"tool_calls": [{"id": "call_7", "function": {"name": "f"}}]}, {"tool_call_id": "call_7"}]},
            id="a call inside the request",
        ),
        pytest.param(
            answer(created("resp_1")),
            answer(created("resp_x")),
            {"input": [{"type": "function_call", "arguments": {"id": "resp_1"}, "metadata": {"id": "resp_1"}}]},
            {"input": [{"type": "function_call", "arguments": {"id": "resp_1"}, "metadata": {"id": "resp_1"}}]},
            id="content stays",
        ),
    ],
)
def test_an_id_is_replaced_by_place(
    then: list[Record], now: list[Record], asked: dict[str, Any], sent: dict[str, Any]
) -> None:
    assert parse(learnt(then, now).body(dumps(asked))) == sent


def test_bytes_stay_where_no_id_changes() -> None:
    carried = learnt(answer(created("resp_1")), answer(created("resp_x")))
    assert [carried.body(body) for body in (b'{ "id" : "u" }', b"not json", b"")] == [
        b'{ "id" : "u" }',
        b"not json",
        b"",
    ]


def test_ids_in_the_path_are_replaced() -> None:
    carried = learnt(answer(created("resp_1")), answer(created("resp_x")))
    assert carried.path("/v1/responses/resp_1/input_items?after=resp_1&x=1") == (
        "/v1/responses/resp_x/input_items?after=resp_x&x=1"
    )


@pytest.mark.parametrize(
    ("now", "asked", "said"),
    [
        (
            answer({"error": {}}, framed=False),
            {"previous_response_id": "resp_1"},
            "resp_1, and the live response",
        ),
        (answer(created("resp_x")), {"previous_response_id": "resp_9"}, "resp_9, which no response"),
        (answer(created("resp_x")), {"input": [{"type": "item_reference", "id": "fc_3"}]}, "names fc_3, which no"),
        (
            answer(created("resp_x")),
            {"input": [{"type": "function_call_output", "call_id": "call_1"}]},
            "names call_1, which no",
        ),
    ],
)
def test_a_lost_id_is_an_error(now: list[Record], asked: dict[str, Any], said: str) -> None:
    with pytest.raises(LostIdError, match=said):
        learnt(answer(created("resp_1")), now).body(dumps(asked))


def test_an_unknown_provider_id_stays() -> None:
    asked = dumps({"previous_response_id": "resp_0a1b2c3d4e5f", "file_id": "file-Ab12"})
    assert CarriedIds().body(asked) == asked
