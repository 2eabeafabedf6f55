"""Every row of the dialect catalogue that concerns Responses, as streams of our own (synthetic)."""

from typing import Any, Final

from .made import (
    CREATED,
    IN_PROGRESS,
    OPENING,
    Row,
    Value,
    added,
    at,
    call,
    call_item,
    completed,
    delta,
    done,
    failed,
    incomplete,
    message,
    message_item,
    part_added,
    part_done,
    response,
    sse,
    text_done,
    text_part,
)

HELLO: Final = message("hel", "lo")
CALL: Final = call('{"x"', ":1}")
RAN: Final = (("call_1", "f", '{"x":1}', "running"),)
WHOLE: Final = [*OPENING, *HELLO, completed(message_item())]
HOSTED: Final[Value] = {"type": "web_search_call", "id": "ws_1", "status": "completed"}


def thought(*texts: str, **members: Any) -> Value:
    """Return a thought with a summary."""
    summary = [{"type": "summary_text", "text": text} for text in texts]
    return {"id": "rs_1", "type": "reasoning", "summary": summary, **members}


def summary(index: int, text: str, item_id: str = "rs_1") -> list[Value]:
    """Return the frames of one part of a summary."""
    place, part = at(item_id, summary_index=index), {"type": "summary_text", "text": text}
    name = "reasoning_summary_text"
    opening = {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
    closing = {"type": "response.reasoning_summary_part.done", **place, "part": part}
    return [opening, delta(text, place, name), text_done(text, place, name), closing]


def without(frames: list[Value], *types: str) -> list[Value]:
    """Return the frames but for those of some types."""
    return [frame for frame in frames if frame["type"].removeprefix("response.") not in types]


def supplied(value: Value) -> Value:
    """Return a frame of a text as we write it."""
    return {**value, "logprobs": []}


RAW: Final = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
AT_RAW: Final = at("rs_1", content_index=0)
RAW_STREAM: Final = [
    added({**RAW, "content": []}),
    part_added({"type": "reasoning_text", "text": ""}, AT_RAW),
    delta("hm", AT_RAW, "reasoning_text"),
    text_done("hm", AT_RAW, "reasoning_text"),
    part_done({"type": "reasoning_text", "text": "hm"}, AT_RAW),
    done(RAW),
]

#: The last response, where the first one was ours.
RENAMED: Final[Value] = {**response("completed", [message_item()]), "id": "resp_s1"}
AGAIN: Final[list[Value | str]] = [
    "output_item.added",
    "content_part.added",
    delta("hel", at("msg_s1_2", 2, content_index=0)),
    delta("lo", at("msg_s1_2", 2, content_index=0)),
    "output_text.done",
    "content_part.done",
    done(message_item(item_id="msg_s1_2"), 2),
]

ROWS: Final = [
    Row(id="a text passes", came=WHOLE, text="hello"),
    Row(id="a call passes", came=[*OPENING, *CALL, completed(call_item())], calls=RAN),
    Row(
        id="a custom call passes",
        came=[
            *OPENING,
            added({"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": ""}),
            delta("a b", at("ctc_1"), "custom_tool_call_input"),
            text_done("a b", at("ctc_1"), "custom_tool_call_input", "input"),
            done({"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": "a b"}),
            completed({"id": "ctc_1", "type": "custom_tool_call", "call_id": "call_1", "name": "f", "input": "a b"}),
        ],
        calls=(("call_1", "f", "a b", "running"),),
    ),
    Row(
        id="two parts of a thought are two paragraphs",
        came=[
            *OPENING,
            added(thought()),
            *summary(0, "hm"),
            *summary(1, "well"),
            done(thought("hm", "well", encrypted_content="e")),
            completed(thought("hm", "well", encrypted_content="e")),
        ],
        thought="hm\n\nwell",
    ),
    Row(
        id="a refusal passes",
        came=[
            *OPENING,
            added(message_item(None)),
            part_added({"type": "refusal", "refusal": ""}),
            delta("no", kind="refusal"),
            text_done("no", kind="refusal", member="refusal"),
            part_done({"type": "refusal", "refusal": "no"}),
            done({**message_item(""), "content": [{"type": "refusal", "refusal": "no"}]}),
            completed({**message_item(""), "content": [{"type": "refusal", "refusal": "no"}]}),
        ],
        text="no",
    ),
    Row(
        id="tools of the upstream and annotations pass",
        came=[
            *OPENING,
            added({**HOSTED, "status": "in_progress"}),
            {"type": "response.web_search_call.searching", **at("ws_1")},
            done(HOSTED),
            *message("hello", index=1)[:3],
            {
                "type": "response.output_text.annotation.added",
                **at(index=1, content_index=0),
                "annotation_index": 0,
                "annotation": {"a": 1},
            },
            *message("hello", index=1)[3:],
            completed(HOSTED, message_item()),
        ],
        text="hello",
    ),
    Row(
        id="Q110 an empty output is rebuilt",
        came=[*OPENING, *HELLO, completed()],
        sent=WHOLE,
        repairs=("output_rebuilt",),
        text="hello",
    ),
    Row(
        id="Q110 items that are only in the last frame are sent before it",
        came=[*OPENING, completed(message_item(), call_item())],
        sent=[
            *OPENING,
            added(message_item(None)),
            part_added(),
            supplied(delta("hello")),
            supplied(text_done("hello")),
            part_done(text_part("hello")),
            done(message_item()),
            added(call_item("", status="in_progress"), 1),
            *call('{"x":1}', index=1)[1:],
            completed(message_item(), call_item()),
        ],
        repairs=("item_supplied", "part_supplied", "item_done_supplied", "delta_supplied", "part_closed"),
        text="hello",
        calls=RAN,
    ),
    Row(
        id="Q110 an item that is only in the last frame is no other one that has its place",
        came=[*OPENING, *call("{}", index=1, number=2), completed(call_item("{}"), call_item("{}", 2))],
        sent=[
            *OPENING,
            *call("{}", index=0, number=2),
            *call("{}", index=1),
            completed(call_item("{}", 2), call_item("{}")),
        ],
        repairs=("item_supplied", "delta_supplied", "part_closed", "item_done_supplied", "output_rebuilt"),
        calls=(("call_2", "f", "{}", "running"), ("call_1", "f", "{}", "running")),
    ),
    Row(
        id="Q111 an item keeps its first id",
        came=[
            *OPENING,
            added(message_item(None)),
            part_added(place=at("b", content_index=0)),
            delta("hello", at("c", content_index=0)),
            text_done("hello", at("d", content_index=0)),
            part_done(text_part("hello"), at("e", content_index=0)),
            done(message_item(item_id="f")),
            completed(message_item(item_id="g")),
        ],
        sent=[*OPENING, *message("hello"), completed(message_item())],
        repairs=("item_id",),
        text="hello",
    ),
    Row(
        id="Q111 a call keeps its first ids",
        came=[*OPENING, *CALL[:-1], done(call_item(call_id="other")), completed(call_item(call_id="other", id="x"))],
        sent=[*OPENING, *CALL, completed(call_item())],
        repairs=("call_id", "item_id"),
        calls=RAN,
    ),
    Row(
        id="Q111 the response keeps its first id",
        came=[
            CREATED,
            {**IN_PROGRESS, "response": response("in_progress", id="resp_2")},
            *HELLO,
            completed(message_item(), id="resp_3"),
        ],
        sent=WHOLE,
        repairs=("response_id",),
        text="hello",
    ),
    Row(
        id="Q112 a queued answer passes",
        came=[
            CREATED,
            {"type": "response.queued", "response": response("queued")},
            IN_PROGRESS,
            *HELLO,
            completed(message_item()),
        ],
        text="hello",
    ),
    Row(
        id="Q112 a queued answer gets its first frame",
        came=[{"type": "response.queued", "response": response("queued")}, *HELLO, completed(message_item())],
        sent=[
            {**CREATED, "response": {**response("in_progress"), "usage": {**response("queued")["usage"]}}},
            {"type": "response.queued", "response": response("queued")},
            {**IN_PROGRESS, "response": {**response("in_progress"), "usage": {**response("queued")["usage"]}}},
            *HELLO,
            completed(message_item()),
        ],
        repairs=("created_supplied", "in_progress_supplied"),
        text="hello",
    ),
    Row(
        id="Q113 frames without numbers get them",
        came=[sse(value) for value in WHOLE],
        sent=WHOLE,
        text="hello",
    ),
    Row(
        id="Q113 numbers without an order are written again",
        came=[sse({**value, "sequence_number": 7}) for value in WHOLE],
        sent=WHOLE,
        text="hello",
    ),
    Row(
        id="Q114 incomplete is an end",
        came=[
            *OPENING,
            *HELLO[:-1],
            done(message_item(status="incomplete")),
            incomplete(message_item(status="incomplete")),
        ],
        text="hello",
        finish="length",
    ),
    Row(
        id="Q114 so is one by a content filter",
        came=[*OPENING, *HELLO, incomplete(message_item(), reason="content_filter")],
        text="hello",
        finish="content_filter",
    ),
    Row(id="Q115 a thought in its own words passes", came=[*OPENING, *RAW_STREAM, completed(RAW)], thought="hm"),
    Row(
        id="Q115 other names of its events",
        came=[
            *OPENING,
            RAW_STREAM[0],
            {**RAW_STREAM[1], "type": "response.reasoning_part.added"},
            {**RAW_STREAM[2], "type": "response.reasoning.delta"},
            {**RAW_STREAM[3], "type": "response.reasoning.done"},
            {**RAW_STREAM[4], "type": "response.reasoning_part.done"},
            *RAW_STREAM[5:],
            {**completed(RAW), "type": "response.done"},
        ],
        sent=[*OPENING, *RAW_STREAM, completed(RAW)],
        repairs=("event_name",),
        thought="hm",
    ),
    Row(
        id="Q116 the first two frames are missing",
        came=[*HELLO, completed(message_item())],
        sent=["created", "in_progress", *HELLO, {**completed(message_item()), "response": RENAMED}],
        repairs=("created_supplied", "in_progress_supplied", "response_id"),
        text="hello",
    ),
    Row(
        id="Q116 in_progress is missing",
        came=[CREATED, *HELLO, completed(message_item())],
        sent=WHOLE,
        repairs=("in_progress_supplied",),
        text="hello",
    ),
    Row(
        id="Q116 the part is missing",
        came=[*OPENING, *without(HELLO, "content_part.added", "content_part.done"), completed(message_item())],
        sent=WHOLE,
        repairs=("part_supplied", "part_closed"),
        text="hello",
    ),
    Row(
        id="Q116 the text's end is missing",
        came=[*OPENING, *without(HELLO, "output_text.done"), completed(message_item())],
        sent=[*OPENING, *HELLO[:4], supplied(HELLO[4]), *HELLO[5:], completed(message_item())],
        repairs=("text_done_supplied",),
        text="hello",
    ),
    Row(
        id="Q116 everything but the deltas is missing",
        came=[*OPENING, *HELLO[2:4], completed()],
        sent=[*OPENING, *HELLO[:4], supplied(HELLO[4]), *HELLO[5:], completed(message_item())],
        repairs=("item_supplied", "part_supplied", "item_closed", "output_rebuilt"),
        text="hello",
    ),
    Row(
        id="Q116 everything but the last frame of an item is missing",
        came=[*OPENING, done(message_item()), completed(message_item())],
        sent=[
            *OPENING,
            *message("hello")[:2],
            supplied(delta("hello")),
            supplied(text_done("hello")),
            *HELLO[5:],
            completed(message_item()),
        ],
        repairs=("item_supplied", "part_supplied"),
        text="hello",
    ),
    Row(
        id="Q116 the arguments are only in their done event",
        came=[*OPENING, CALL[0], *CALL[3:], completed(call_item())],
        sent=[*OPENING, *call('{"x":1}'), completed(call_item())],
        repairs=("delta_supplied",),
        calls=RAN,
    ),
    Row(
        id="Q116 the arguments are only at the end of the item",
        came=[*OPENING, CALL[0], CALL[-1], completed(call_item())],
        sent=[*OPENING, *call('{"x":1}'), completed(call_item())],
        repairs=("delta_supplied", "part_closed"),
        calls=RAN,
    ),
    Row(
        id="Q116 a call never ends, but the answer does",
        came=[*OPENING, *CALL[:3], completed()],
        sent=[*OPENING, *CALL, completed(call_item())],
        repairs=("part_closed", "item_closed", "output_rebuilt"),
        calls=RAN,
    ),
    Row(
        id="Q116 a call ends only in the last frame",
        came=[*OPENING, *CALL[:1], completed(call_item())],
        sent=[*OPENING, *call('{"x":1}'), completed(call_item())],
        repairs=("delta_supplied", "part_closed", "item_closed"),
        calls=RAN,
    ),
    Row(
        id="Q117 pings are withheld",
        came=[
            *OPENING,
            {"type": "ping", "cost": "0"},
            *HELLO,
            {"type": "keepalive"},
            completed(message_item()),
            {"type": "ping"},
        ],
        sent=WHOLE,
        repairs=("ping",),
        text="hello",
    ),
    Row(
        id="Q118 an older name of annotations",
        came=[
            *OPENING,
            *HELLO[:3],
            {"type": "response.output_text_annotation.added", **at(content_index=0), "annotation": {}},
            *HELLO[3:],
            completed(message_item()),
        ],
        sent=[
            *OPENING,
            *HELLO[:3],
            {
                "type": "response.output_text.annotation.added",
                "annotation_index": 0,
                **at(content_index=0),
                "annotation": {},
            },
            *HELLO[3:],
            completed(message_item()),
        ],
        repairs=("event_name", "part_index"),
        text="hello",
    ),
    Row(
        id="Q119 an index that grows with every token",
        came=[
            *OPENING,
            *HELLO[:2],
            delta("hel", at(content_index=0)),
            delta("lo", at(content_index=1)),
            text_done("hello", at(content_index=2)),
            *HELLO[5:],
            completed(message_item()),
        ],
        sent=WHOLE,
        repairs=("part_index",),
        text="hello",
    ),
    Row(
        id="Q119 a thought in a message is an item of its own",
        came=[*OPENING, *HELLO[:2], delta("hm", AT_RAW, "reasoning_text"), *HELLO[2:], completed(message_item())],
        sent=[
            *OPENING,
            *HELLO[:2],
            "output_text.done",
            "content_part.done",
            done({**message_item(""), "content": [text_part()]}),
            added({"type": "reasoning", "id": "rs_1", "summary": []}, 1),
            part_added({"type": "reasoning_text", "text": ""}, at("rs_1", 1, content_index=0)),
            delta("hm", at("rs_1", 1, content_index=0), "reasoning_text"),
            "reasoning_text.done",
            "content_part.done",
            "output_item.done",
            *AGAIN,
            "completed",
        ],
        repairs=("item_split", "item_supplied", "part_supplied", "item_id", "output_rebuilt"),
        text="hello",
        thought="hm",
    ),
    Row(
        id="Q120 a null item is skipped",
        came=[*OPENING, added(None), *message("hel", "lo", index=4), done(None, 2), completed(message_item())],
        sent=WHOLE,
        repairs=("item_null",),
        text="hello",
    ),
    Row(
        id="Q40 the terminator of chat is withheld",
        came=[*WHOLE, b"data: [DONE]\n\n"],
        sent=WHOLE,
        repairs=("done_withheld",),
        text="hello",
    ),
    Row(
        id="Q40 it completes nothing",
        came=[*OPENING, *HELLO, b"data: [DONE]\n\n"],
        sent=[*OPENING, *HELLO, "failed"],
        repairs=("done_withheld", "error_frame"),
        text="hello",
        ending="truncated",
    ),
    Row(
        id="Q97 comments are withheld",
        came=[b": x\n\n", *WHOLE],
        sent=WHOLE,
        repairs=("comment",),
        text="hello",
    ),
    Row(
        id="Q106 an end without its blank line counts",
        came=[
            *[sse({**v, "sequence_number": n}) for n, v in enumerate(WHOLE[:-1])],
            sse({**WHOLE[-1], "sequence_number": 8})[:-1],
        ],
        sent=WHOLE,
        repairs=("framing",),
        text="hello",
    ),
    Row(
        id="Q94 an error and its response.failed are one failure",
        came=[*OPENING, {"type": "error", "code": "c", "message": "no", "param": None}, failed("c", "no")],
        sent=[
            *OPENING,
            {
                "type": "response.failed",
                "response": response("failed", usage=None, error={"code": "c", "message": "no", "param": None}),
            },
        ],
        repairs=("error_shape", "failed_repeated"),
        ending="upstream_error",
    ),
    Row(
        id="Q90 a nested error becomes one that codex reads",
        came=[*OPENING, {"type": "error", "error": {"type": "t", "message": "no"}}],
        sent=[
            *OPENING,
            {
                "type": "response.failed",
                "response": response("failed", usage=None, error={"code": "t", "message": "no"}),
            },
        ],
        repairs=("error_shape",),
        ending="upstream_error",
    ),
    Row(
        id="Q91 so does one without a type",
        came=[*OPENING, b'data: {"error":{"message":"no"}}\n\n'],
        sent=[
            *OPENING,
            {
                "type": "response.failed",
                "response": response("failed", usage=None, error={"code": "server_error", "message": "no"}),
            },
        ],
        repairs=("error_shape",),
        ending="upstream_error",
    ),
    Row(id="a failure passes", came=[*OPENING, failed("rate_limit_exceeded", "no")], ending="upstream_error"),
]
