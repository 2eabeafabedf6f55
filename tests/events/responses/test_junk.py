"""Streams that no server should send: nothing raises, what is sent is in order, and no broken call is handed over."""

import json
import os
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conformance.order import CHECKERS
from tests.support.chat import run, tape
from tests.support.corpus import load, needs_corpus, sampled
from wiretape.events.core.json_text import dumps, is_object
from wiretape.events.core.limits import KEPT_CHARS_MAX
from wiretape.events.emit import emit
from wiretape.events.responses.frames import NO_USAGE
from wiretape.events.wire.sse import Decoder

from .made import (
    CREATED,
    IN_PROGRESS,
    OPENING,
    Value,
    added,
    at,
    call,
    call_item,
    completed,
    delta,
    done,
    incomplete,
    kinds,
    message,
    message_item,
    numbered,
    part_added,
    part_done,
    played,
    response,
    sse,
    stream,
    text_done,
    text_part,
    values,
)

FULL = os.environ.get("WIRETAPE_LAWS") == "full"
EXAMPLES = settings(max_examples=3000 if FULL else 40)
HI = message("hi")
CALL = call('{"x"', ":1}")
END = completed(message_item("hi"))

BARE_THOUGHT: Value = {"id": "rs_1", "type": "reasoning", "summary": []}
PIECES: list[list[Value]] = [
    HI,
    message("a", "b", index=1, item_id="msg_2"),
    CALL,
    call("{}", index=1, number=2),
    call('{"x"', index=2, number=3),
    [added(BARE_THOUGHT), done(BARE_THOUGHT)],
    [added({"type": "web_search_call", "id": "ws_1"}, 1), done({"type": "web_search_call", "id": "ws_1"}, 1)],
    [added(None), {"type": "ping"}],
]  # fmt: skip
JUNK: list[Any] = [None, 5, -1, "", "x", [], {}, [None], {"type": 5}, True, "\ud800", call_item()]
ENDS: list[list[Value]] = [[END], [completed()], [incomplete()], [completed(call_item()), END], [], [{"type": "error"}]]


def mixed(random: Random) -> list[bytes]:
    """Return frames of some items, interleaved, some of them lost, doubled or broken."""
    queues = [[*map(dict, piece)] for piece in random.sample(PIECES, random.randrange(4))]
    payloads: list[Any] = [[], [CREATED], [*OPENING], [IN_PROGRESS]][random.randrange(4)][:]
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        payloads.append(queue.pop(0))
    payloads += random.choice(ENDS)
    for _ in range(random.randrange(4)):
        place = random.randrange(len(payloads) + 1)
        if place == len(payloads):
            payloads = [payload for payload in payloads if random.random() > 0.2]
        elif random.random() < 0.3:
            payloads.insert(random.randrange(len(payloads)), payloads[place])
        elif payloads[place]:
            broken: Any = json.loads(json.dumps(payloads[place]))
            inner: Any = random.choice([broken, *filter(is_object, broken.values())])
            inner = inner or broken
            inner[random.choice([*inner])] = random.choice(JUNK)
            payloads[place] = broken
    frames: list[bytes] = []
    for payload in payloads:
        name = f"event: {payload.get('type')}\n" if random.random() > 0.05 else ""
        frames.append(name.encode("utf-8", "replace") + b"data: %b\n\n" % json.dumps(payload).encode())
    return frames


@given(st.integers(0, 2**32), st.sampled_from([{}, {"tools": "held"}, {"on_partial": "warn"}, {"on_partial": "both"}]))
@EXAMPLES
def test_junk_comes_out_in_order(seed: int, modes: dict[str, Any]) -> None:
    frames = mixed(Random(seed))  # noqa: S311 - not for secrets
    result = run(tape(frames, dialect="responses", **modes))
    faults = [fault for fault in CHECKERS["responses"](result.out) if "repeats" not in fault]
    cut = (
        result.ended.ending != "completed"
        or "malformed_call" in result.ended.flags
        or kinds(result)[-1] == "incomplete"
    )
    assert [fault for fault in faults if not (cut and "one open item" in fault)] == []
    handed = [call for call in result.wire.calls() if call.state.value == "running"]
    assert all(call.valid() for call in handed)
    ends = [value["item"].get("call_id") for value in values(result) if value["type"] == "response.output_item.done"]
    assert {call.id for call in handed} <= {*ends}
    assert emit(tape(frames, dialect="responses", reads=1, **modes)) == result.out


# -- frames -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("frame", "repair", "flags"),
    [
        (b"data: nonsense\n\n", "not_json", ("not_json",)),
        (b"data: \n\n", "empty_data", ()),
        (b"data: : keepalive\n\n", "empty_data", ()),
        (b"data: [1]\n\n", "foreign", ("foreign",)),
        (b'data: {"type":"response.unheard_of"}\n\n', "foreign", ("foreign",)),
        (b'data: {"a":1}\n\n', "foreign", ("foreign",)),
        (b"event: x\nid: 5\nretry: 9\n\n", "comment", ()),
        (b"hello\n\n", "unframed", ("not_a_stream",)),
    ],
)
def test_frame_that_says_nothing_is_withheld(frame: bytes, repair: str, flags: tuple[str, ...]) -> None:
    frames = stream(*OPENING, *HI, END)
    result = played([*frames[:4], frame, *frames[4:]])
    assert result.sent == frames
    assert repair in result.repairs
    assert (result.ended.ending, result.ended.flags) == ("completed", flags)


@pytest.mark.parametrize(
    "frame", [b'data: {"choices":[]}\n\n', b'event: message_start\ndata: {"type":"message_start"}\n\n']
)
def test_frames_of_another_dialect_are_no_stream(frame: bytes) -> None:
    assert (played([frame]).ended.ending, played([frame]).ended.flags) == ("protocol", ("not_a_stream",))


@pytest.mark.parametrize("frame", [b"data: nonsense\n\n", b"hello\n\n"])
def test_frame_that_may_be_part_of_a_call_damages_it(frame: bytes) -> None:
    frames = stream(*OPENING, *CALL, completed(call_item()))
    result = played([*frames[:4], frame, *frames[4:]])
    assert values(result)[-1]["response"]["error"]["code"] == "malformed_call"
    assert "output_item.done" not in kinds(result)


def test_bytes_that_are_not_utf_8_damage_a_call_and_no_text() -> None:
    frames = stream(*OPENING, *HI, END)
    frames[4] = frames[4].replace(b"hi", b"h\xff")
    assert values(played(frames))[4]["delta"] == "h\ufffd"
    calls = stream(*OPENING, *CALL, completed(call_item()))
    calls[3] = calls[3].replace(b"x", b"\xff")
    assert values(played(calls))[-1]["response"]["error"]["code"] == "malformed_call"


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        (b"\n", b"\r\n"),
        (b"data: ", b"data:"),
        (b"event: ", b"id: 5\nevent: "),
        (b"event: response.output_text.delta\n", b""),
        (b"event: response.", b"event: "),
        (b'"delta"', b'\ndata: "delta"'),
    ],
    ids=["CRLF", "no space", "id", "no event", "another event", "two lines"],
)
def test_frame_is_written_in_the_plain_form(plain: bytes, other: bytes) -> None:
    frames = stream(*OPENING, *HI, END)
    result = played([*frames[:4], frames[4].replace(plain, other), *frames[5:]])
    assert values(result) == values(played(frames))
    assert result.repairs == ["framing"]


def test_type_on_the_event_line_alone_counts() -> None:
    frames = stream(*OPENING, *HI, END)
    bare = frames[4].replace(b'"type":"response.output_text.delta",', b"")
    result = played([*frames[:4], bare, *frames[5:]])
    assert values(result) == numbered(*OPENING, *HI, END)


def test_words_of_an_error_are_kept() -> None:
    for data in (b"over capacity", b'"over capacity"'):
        result = played([*stream(*OPENING), b"event: error\ndata: %b\n\n" % data])
        assert values(result)[-1]["response"]["error"] == {"code": "server_error", "message": "over capacity"}
        assert result.ended.ending == "upstream_error"


# -- the response -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given", [None, {}, 5, []], ids=str)
def test_opening_without_a_response_gets_one(given: Any) -> None:
    result = played(stream({**CREATED, "response": given}, {**IN_PROGRESS, "response": given}, *HI, END))
    assert [value["response"]["id"] for value in values(result) if "response" in value] == ["resp_s1"] * 3
    assert result.ended.ending == "completed"


def test_opening_is_sent_once() -> None:
    result = played(stream(*OPENING, CREATED, IN_PROGRESS, *HI[:3], IN_PROGRESS, *HI[3:], END))
    assert kinds(result)[:3] == ["created", "in_progress", "output_item.added"]
    assert result.repairs.count("opening_repeated") == 3


def test_output_that_is_not_a_list_becomes_one() -> None:
    result = played(stream({**CREATED, "response": {"id": "resp_1"}}, IN_PROGRESS, *HI, completed(output=None)))
    assert values(result)[0]["response"] == {"output": [], "id": "resp_1"}
    assert values(result)[-1]["response"]["output"] == [message_item("hi")]


@pytest.mark.parametrize("usage", [None, 5, "absent"], ids=str)
def test_missing_usage_is_zeros_and_noted(usage: Any) -> None:
    end = completed(message_item("hi"), usage=usage)
    if usage == "absent":
        del end["response"]["usage"]
    result = played(stream(*OPENING, *HI, end))
    assert values(result)[-1]["response"]["usage"] == NO_USAGE
    assert "usage_unknown" in result.repairs
    assert result.wire.usage is None


def test_total_of_usage_is_added() -> None:
    result = played(stream(*OPENING, *HI, completed(message_item("hi"), usage={"input_tokens": 3, "output_tokens": 2})))
    assert values(result)[-1]["response"]["usage"]["total_tokens"] == 5


@pytest.mark.parametrize(("usage", "total"), [({}, 0), ({"input_tokens": 3}, 3), ({"total_tokens": 9}, 9)], ids=str)
def test_counts_that_usage_lacks_are_zeros_and_noted(usage: Value, total: int) -> None:
    result = played(stream(*OPENING, *HI, completed(message_item("hi"), usage=usage)))
    assert values(result)[-1]["response"]["usage"] == {**NO_USAGE, **usage, "total_tokens": total}
    assert result.repairs == ["usage_unknown"]
    assert result.wire.usage == usage


# -- items ------------------------------------------------------------------------------------------------------------


def sent_items(*frames: Value, **modes: Any) -> list[Any]:
    """Return the items that were done, checked to be in order."""
    result = played(stream(*OPENING, *frames), tool_events=False, **modes)
    assert CHECKERS["responses"](result.out) == []
    assert result.ended.ending == "completed"
    return [value["item"] for value in values(result) if value["type"] == "response.output_item.done"]


def test_items_without_an_index_are_known_by_their_ids() -> None:
    bare = [{key: member for key, member in frame.items() if key != "output_index"} for frame in [*HI, *CALL]]
    assert sent_items(*bare, completed(message_item("hi"), call_item())) == [message_item("hi"), call_item()]
    nameless = [{key: member for key, member in frame.items() if key != "item_id"} for frame in bare]
    assert sent_items(*nameless, completed(message_item("hi"), call_item())) == [message_item("hi"), call_item()]


def test_second_start_of_an_item_is_withheld() -> None:
    assert sent_items(HI[0], HI[0], *HI[1:], END) == [message_item("hi")]


def test_start_of_another_item_under_the_index_of_an_open_one() -> None:
    other = message("ho", item_id="msg_2")
    assert sent_items(*HI[:3], *other, completed()) == [message_item("hi"), message_item("ho", "msg_2")]
    assert sent_items(*CALL[:2], *other[:3], *CALL[2:], *other[3:], completed()) == [
        call_item(),
        message_item("ho", "msg_2"),
    ]


def test_item_under_the_index_of_one_that_has_ended() -> None:
    assert sent_items(*HI, *CALL, completed(message_item("hi"), call_item())) == [message_item("hi"), call_item()]


def test_second_end_of_everything_is_withheld() -> None:
    doubled = [
        frame for frame in [*HI, *call("{}", index=1)] for frame in ([frame] if "delta" in frame else [frame, frame])
    ]
    result = played(stream(*OPENING, *doubled, completed(message_item("hi"), call_item("{}"))), tool_events=False)
    assert CHECKERS["responses"](result.out) == []
    assert result.out == b"".join(
        stream(*OPENING, *HI, *call("{}", index=1), completed(message_item("hi"), call_item("{}")))
    )


def test_what_comes_after_the_end_of_a_call_is_withheld() -> None:
    late = delta("{}", at("fc_1"), "function_call_arguments")
    assert sent_items(*CALL, late, completed(call_item())) == [call_item()]
    assert sent_items(*CALL[:-1], late, *CALL[-1:], completed(call_item())) == [call_item()]


def test_text_after_the_end_of_its_message_is_a_message_of_its_own() -> None:
    found = sent_items(*HI, delta("more"), text_done("himore"), completed())
    assert [item["content"][0]["text"] for item in found] == ["hi", "more"]


def test_content_of_a_start_is_sent_once() -> None:
    begun = {**message_item("hi"), "status": "in_progress"}
    assert sent_items(added(begun), *HI[1:], END) == [message_item("hi")]
    filled = part_added(text_part("hi"))
    assert sent_items(HI[0], filled, *HI[2:], END) == [message_item("hi")]
    assert sent_items(added(call_item(status="in_progress")), *CALL[1:], completed(call_item())) == [call_item()]


def test_end_without_its_text_gets_it() -> None:
    bare: Value = {**message_item("hi"), "content": []}
    texts = [
        text_done(""),
        part_done({"type": "output_text"}),
        {"type": "response.content_part.done", **at(content_index=0)},
    ]
    assert sent_items(*HI[:3], texts[0], texts[1], done(bare), END) == [message_item("hi")]
    assert sent_items(*HI[:3], texts[2], done(bare), completed()) == [message_item("hi")]
    assert sent_items(*CALL[:-1], done(call_item("")), completed(call_item())) == [call_item()]
    silent = {key: member for key, member in call_item().items() if key != "arguments"}
    assert sent_items(*CALL[:-1], done(silent), completed()) == [{**silent, "arguments": '{"x":1}'}]


def test_rest_of_a_text_that_is_only_in_its_end_is_sent() -> None:
    frames = [*message("hi")[:3], done(message_item("hi there")), completed(message_item("hi there"))]
    assert sent_items(*frames) == [message_item("hi there")]
    parts = [text_part("hi"), text_part("ho")]
    two = {**message_item("hi"), "content": parts}
    assert sent_items(*HI[:-1], done(two), completed(two)) == [two]


def test_part_that_is_only_in_its_end_is_sent() -> None:
    assert sent_items(HI[0], HI[4], HI[5], completed(message_item("hi"))) == [message_item("hi")]
    lost = {"type": "response.content_part.done", **at(content_index=0)}
    assert sent_items(HI[0], lost, *HI[1:], END) == [message_item("hi")]
    assert sent_items(HI[0], part_done({"type": "unheard_of"}), *HI[1:], END) == [message_item("hi")]
    assert sent_items(part_done(text_part("x")), *HI, END) == [message_item("hi")]


def test_part_that_begins_twice_or_without_its_value() -> None:
    assert sent_items(HI[0], HI[1], HI[1], *HI[2:], END) == [message_item("hi")]
    bare = {"type": "response.content_part.added", **at(content_index=0)}
    assert sent_items(HI[0], bare, *HI[2:], END) == [message_item("hi")]
    place = at("rs_1", summary_index=0)
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "hm"}]}
    frames = [
        {"type": "response.reasoning_summary_part.added", **place},
        delta("hm", place, "reasoning_summary_text"),
        delta("so", at("rs_1", summary_index=1), "reasoning_summary_text"),
    ]
    (found,) = sent_items(*frames, completed())
    assert [part["text"] for part in found["summary"]] == ["hm", "so"]
    assert sent_items(added({**thought, "summary": []}), done(thought), completed(thought)) == [thought]


def test_part_of_an_unknown_type_passes() -> None:
    part = {"type": "unheard_of", "x": 1}
    item = {**message_item("hi"), "content": [part, text_part("hi")]}
    place = at(content_index=1)
    frames = [
        HI[0],
        part_added(part),
        part_done(part),
        part_added(place=place),
        delta("hi", place),
        text_done("hi", place),
        part_done(text_part("hi"), place),
        done(item),
    ]
    result = played(stream(*OPENING, *frames, completed(item)))
    assert result.sent == stream(*OPENING, *frames, completed(item))
    answer = response("completed", [item])
    assert run(tape([dumps(answer)], dialect="responses", body=True)).ended.ending == "completed"
    assert kinds(played(stream(*OPENING, HI[0], done(item), completed(item)))).count("content_part.added") == 2
    unended = played(stream(*OPENING, *frames[:2], *frames[3:], completed(item)))
    assert unended.sent[4].startswith(b"event: response.content_part.done")


def test_delta_that_is_not_text_is_withheld() -> None:
    assert sent_items(*HI[:2], {**HI[2], "delta": 5}, *HI[2:], END) == [message_item("hi")]
    result = played(stream(*OPENING, CALL[0], {**CALL[1], "delta": {}}, *CALL[1:], completed(call_item())))
    assert result.ended.flags[-1] == "malformed_call"


def test_annotation_of_nothing_is_withheld() -> None:
    note: Value = {"type": "response.output_text.annotation.added", **at(content_index=0), "annotation": {}}
    assert sent_items(note, HI[0], note, *HI[1:], note, END) == [message_item("hi")]
    state = {"type": "response.web_search_call.searching", **at()}
    assert sent_items(*HI[:3], state, *HI[3:], END) == [message_item("hi")]
    (noted,) = sent_items(*HI[:3], note, completed())
    assert noted["content"][0]["annotations"] == [{}]


# -- calls ------------------------------------------------------------------------------------------------------------


def test_call_whose_name_comes_with_its_end() -> None:
    nameless = {key: member for key, member in CALL[0]["item"].items() if key not in ("name", "call_id")}
    found = sent_items(added(nameless), *CALL[1:], completed(call_item()))
    assert found == [call_item()]
    assert sent_items(added({**nameless, "call_id": "call_1"}), CALL[-1], completed(call_item())) == [call_item()]
    assert sent_items(*CALL[1:], completed(call_item())) == [call_item()]
    again = sent_items(
        *CALL,
        *[{**frame, "output_index": 1, "item_id": "fc_2"} for frame in CALL[1:-1]],
        done(call_item(), 1),
        completed(),
    )
    assert [item["call_id"] for item in again] == ["call_1", "call_s1_1"]


def test_arguments_of_a_call_without_a_name_wait_with_it() -> None:
    nameless = {key: member for key, member in CALL[0]["item"].items() if key != "name"}
    assert sent_items(added(nameless), *CALL[3:], completed(call_item())) == [call_item()]


def test_end_of_a_text_that_never_began() -> None:
    assert sent_items(text_done("hi"), completed()) == [message_item("hi")]


def test_call_that_never_gets_a_name_is_malformed() -> None:
    bare = {key: member for key, member in call_item("{}").items() if key != "name"}
    result = played(stream(*OPENING, added({**bare, "arguments": ""}), *call("{}")[1:-1], done(bare), completed()))
    assert (
        values(result)[-1]["response"]["error"]["message"]
        == "⚠ Malformed tool call: a call has no name. Not completed; no result seen."
    )


@pytest.mark.parametrize("arguments", ["481", '"x"', "[1]", "{"])
def test_call_that_never_ends_is_not_handed_over(arguments: str) -> None:
    """Found by the fuzzer: some of these are JSON, but nothing shows that no more would have followed."""
    result = played(stream(*OPENING, *call(arguments)[:2], completed()))
    assert result.ended.flags == ("malformed_call",)
    assert [value["status"] for value in values(result) if "toolCallId" in value] == ["dropped"]


def test_custom_call_that_never_ends_is_complete_with_its_whole_input() -> None:
    custom: Value = {"id": "ctc_1", "type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}
    words = [added(custom), delta("a b", at("ctc_1"), "custom_tool_call_input")]
    whole = text_done("a b", at("ctc_1"), "custom_tool_call_input", "input")
    assert [item["input"] for item in sent_items(*words, whole, completed())] == ["a b"]
    assert played(stream(*OPENING, *words, completed())).ended.flags == ("malformed_call",)


def test_arguments_as_an_object_become_text() -> None:
    item = {**call_item(), "arguments": {"x": 1}}
    assert sent_items(CALL[0], done(item), completed(call_item())) == [call_item()]


def test_arguments_that_differ_from_their_pieces_are_malformed() -> None:
    same = call_item('{"x": 1}')
    assert played(stream(*OPENING, *CALL[:-1], done(same), completed(same))).ended.flags == ()
    other = call_item('{"x":2}')
    assert played(stream(*OPENING, *CALL[:-1], done(other), completed(other))).ended.flags[-1:] == ("malformed_call",)
    assert played(stream(*OPENING, *CALL[:3], *call('{"x":2}')[2:], completed(other))).ended.flags == (
        "malformed_call",
    )


def test_end_of_another_item_waits_for_the_end_of_a_call() -> None:
    assert sent_items(*CALL[:-1], done(message_item("hi")), completed(call_item())) == [call_item(), message_item("hi")]
    assert sent_items(*HI[:3], done(call_item()), completed()) == [message_item("hi"), call_item()]


def test_hosted_tool_that_never_ends_is_ended_with_the_answer() -> None:
    tool = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
    assert (
        sent_items(added(tool), *message("hi", index=1), completed(message_item("hi")))[0]["type"] == "web_search_call"
    )
    result = played(stream(*OPENING, added(tool), incomplete()))
    assert kinds(result)[-1] == "incomplete"


@pytest.mark.parametrize("junk", [None, 1, "x", [], {"id": []}], ids=str)
def test_junk_in_the_last_output_leaves_the_items_of_the_answer(junk: Any) -> None:
    given: Any = {**call_item(), "id": None}
    result = played(stream(*OPENING, *call('{"x"', ":1}")[:-1], completed(junk, given)))
    assert values(result)[-1]["response"]["output"] == [call_item()]
    assert CHECKERS["responses"](result.out) == []


def test_call_without_a_byte_of_arguments_is_whole_only_without_a_limit() -> None:
    begins = [added(call_item("", 1, "in_progress")), done(call_item(""))]
    assert "output_item.done" in kinds(played(stream(*OPENING, *begins, completed(call_item("")))))
    assert "output_item.done" not in kinds(played(stream(*OPENING, *begins, incomplete(call_item("")))))


def test_end_of_a_message_without_its_parts_keeps_what_was_said() -> None:
    ended = done({**message_item("hi"), "content": []})
    result = played(stream(*OPENING, *message("hi")[:3], ended, completed(message_item("hi"))))
    assert "".join(value["delta"] for value in values(result) if value["type"].endswith("text.delta")) == "hi"
    assert CHECKERS["responses"](result.out) == []


def test_items_of_the_last_output_without_ids_are_those_that_are_left() -> None:
    first, second = message_item("a"), {**message_item("b"), "id": "msg_2"}
    answer = [added(first), done(first), added(second, index=1), done(second, index=1)]
    result = played(stream(*OPENING, *answer, completed(first, {"type": "odd"}, {**second, "id": None})))
    assert [item["id"] for item in values(result)[-1]["response"]["output"] if item["type"] == "message"] == [
        first["id"],
        "msg_2",
    ]


def test_call_that_is_only_in_the_last_output_is_sent_although_a_later_one_came() -> None:
    """A stream whose first frames were lost, so that its only item has the place of another one in the output."""
    first, second = call_item("{}"), call_item("{}", 2)
    for frames in (call("{}", index=1, number=2), call("{}", index=1, number=2)[2:]):
        assert sent_items(*frames, completed(first, second)) == [second, first]
    renamed = {**second, "id": "fc_9", "call_id": "call_9"}
    assert sent_items(*call("{}", index=1, number=2), completed(first, renamed)) == [second, first]


def test_frames_with_two_numbers_are_read_one_by_one() -> None:
    pieces = [{**delta(piece), "more": {"sequence_number": 5}} for piece in ("a", "b", "c")]
    result = played(stream(*OPENING, *HI[:2], *pieces, incomplete()))
    assert "".join(value["delta"] for value in values(result) if value["type"].endswith("text.delta")) == "abc"
    assert CHECKERS["responses"](result.out) == []


def test_call_that_only_a_cut_answer_lists_is_not_sent() -> None:
    result = played(stream(*OPENING, incomplete(call_item("{}", 1, "incomplete"), message_item("hi"), {"type": 5})))
    assert [value["item"]["type"] for value in values(result) if value["type"].endswith("item.done")] == ["message"]
    open_call = played(stream(*OPENING, *CALL[:2], incomplete(call_item('{"x"', 1, "incomplete"))))
    assert "output_item.done" not in kinds(open_call)


# -- limits -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("on_partial", ["error", "both"])
def test_more_text_than_any_answer_has_is_a_limit(on_partial: str) -> None:
    piece = "x" * (KEPT_CHARS_MAX // 8)
    result = played(stream(*OPENING, *HI[:2], *[delta(piece)] * 10), on_partial=on_partial)
    assert result.ended.ending == "limit"


def test_more_waiting_frames_than_any_answer_has_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("wiretape.events.responses.output.HELD_BYTES_MAX", 400)
    frames = [*CALL[:2], *message("hi", index=1), *CALL[2:], completed()]
    assert played(stream(*OPENING, *frames)).ended.ending == "limit"


# -- the corpus -------------------------------------------------------------------------------------------------------


@needs_corpus
def test_captured_streams_pass_in_order_and_end_as_they_did() -> None:
    for _, captured in sampled("responses", one_in=24):
        result = run(tape(captured.body, dialect="responses"))
        assert result.ended.ending in ("completed", "upstream_error"), captured.id
        assert CHECKERS["responses"](result.out) == [], captured.id
        assert emit(tape(captured.body, dialect="responses", reads=13)) == result.out


@needs_corpus
def test_captured_streams_that_are_cut_are_never_completed() -> None:
    assert load("responses")
    for _, captured in sampled("responses", one_in=40):
        decoder = Decoder()
        frames = [frame.raw for frame in decoder.feed(captured.body)]
        for cut in range(0, len(frames) - 2, max(1, len(frames) // 12)):
            result = run(tape(frames[:cut], dialect="responses"))
            assert result.ended.ending != "completed", captured.id
            assert kinds(result)[-1] == "failed", captured.id


def test_frames_in_their_own_words() -> None:
    assert sse(CREATED).startswith(b"event: response.created\ndata: {")
