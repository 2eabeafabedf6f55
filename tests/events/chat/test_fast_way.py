"""The fast way: what may pass it, and what ends it. It must only ever be taken where the long way gives the same.

All cases synthetic.
"""

from typing import Any

import pytest

from tests.support.chat import DONE, HEAD, call, finish, frame, run, sse, tape, text
from wiretape.events.chat.repair import Repair
from wiretape.events.chat.write import Envelope
from wiretape.events.core.json_text import ABSENT, dumps, parse
from wiretape.events.core.settings import Facts, Settings
from wiretape.events.emission.ledger import Ledger

#: Long enough that an equal value read from other bytes is another object.
SHAPE: dict[str, Any] = {**HEAD, "model": "model-1", "created": 1_700_000_000}
CHOICE: dict[str, Any] = {"index": 0, "delta": {"content": "x"}, "finish_reason": None}
HI = frame({"role": "assistant", "content": "hi"}, **{key: SHAPE[key] for key in ("model", "created")})
SEED = call(role=True, choice=1, index=0, id="c", type="function", name="f", arguments="{}")


def after(*frames: bytes, **settings: Any) -> Repair:
    """The repair of one attempt behind these frames, all of which took the long way."""
    repair = Repair(Facts(choices=1), Settings(**settings), Envelope(), set(), Ledger(), "s1")
    for record in tape(list(frames)):
        if record.kind == "frame":
            repair.frame(record)
    return repair


def read(choice: dict[str, Any] | None = None, **members: Any) -> Any:
    """A chunk as it is read from bytes; `choice` and `members` take the place of the canonical ones."""
    return parse(dumps({**SHAPE, "choices": [{**CHOICE, **(choice or {})}], **members}))


@pytest.mark.parametrize(
    "delta",
    [{"content": "x"}, {"refusal": "x"}, {"reasoning_content": "x"}, {"content": None}, {"content": ""}, {}],
    ids=str,
)
def test_one_more_piece_of_text_is_plain(delta: dict[str, Any]) -> None:
    assert after(HI).plain(read({"delta": delta}))


def test_members_that_say_nothing_to_us_are_plain() -> None:
    assert after(HI).plain(read({"logprobs": None}, usage=None, service_tier="x"))


@pytest.mark.parametrize(
    "choice",
    [
        {"finish_reason": "stop"},
        {"finishReason": None},
        {"index": 1},
        {"index": False},
        {"index": 0.0},
        {"delta": {"role": "assistant", "content": "x"}},
        {"delta": {"content": "x", "tool_calls": None}},
        {"delta": {"reasoning": "x"}},
        {"delta": {"content": 5}},
        {"delta": {"content": ["x"]}},
        {"delta": {"content": True}},
        {"delta": []},
        {"delta": None},
    ],
    ids=str,
)
def test_a_choice_that_is_not_plain(choice: dict[str, Any]) -> None:
    assert not after(HI).plain(read(choice))


@pytest.mark.parametrize(
    "members",
    [
        {"id": "chatcmpl-0"},
        {"id": "chatcmpl-2"},
        {"id": None},
        {"model": "model-0"},
        {"model": "model-2"},
        {"created": 1_700_000_001},
        {"created": 1_699_999_999},
        {"created": 1.7e9},
        {"object": "chat.completion"},
        {"object": "chat.completion.chunks"},
        {"error": None},
        {"base_resp": None},
        {"citations": None},
        {"search_results": None},
        {"choices": []},
        {"choices": [CHOICE, CHOICE]},
        {"choices": [None]},
        {"choices": None},
    ],
    ids=str,
)
def test_a_chunk_that_is_not_plain(members: dict[str, Any]) -> None:
    assert not after(HI).plain(read(**members))


@pytest.mark.parametrize(
    "value", [ABSENT, None, [], {}, "x", {"choices": 5}], ids=["absent", "null", "list", "empty", "text", "five"]
)
def test_what_is_no_chunk_is_not_plain(value: Any) -> None:
    assert not after(HI).plain(value)


def test_true_is_no_time_of_creation() -> None:
    first = frame({"role": "assistant", "content": "hi"}, created=1, model="model-1")
    assert after(first).plain(read(created=1))
    assert not after(first).plain(read(created=True))


def test_nothing_is_plain_while_a_chunk_waits() -> None:
    assert not after(HI, SEED).plain(read())


@pytest.mark.parametrize(
    ("settings", "plain"),
    [
        ({"cumulative": True}, False),
        ({"reasoning": "reasoning"}, False),
        ({"reasoning": "as_is"}, True),
        ({"reasoning": "reasoning_content"}, True),
    ],
    ids=str,
)
def test_settings_that_change_text_leave_nothing_plain(settings: dict[str, Any], *, plain: bool) -> None:
    assert after(HI, **settings).plain(read()) is plain


def test_a_thought_that_may_stand_in_the_text_is_not_plain_until_it_is_over() -> None:
    assert not after(text("<think>", role=True), think=True).plain(parse(dumps(HEAD | {"choices": [CHOICE]})))
    assert after(text("hi", role=True), think=True).plain(parse(dumps(HEAD | {"choices": [CHOICE]})))


# -- one more piece of arguments --------------------------------------------------------------------------------------

CALL = call(index=0, id="c", type="function", name="f", arguments='{"a":')
PIECE: dict[str, Any] = {"index": 0, "function": {"arguments": '"b'}}


def said(delta: Any, *frames: bytes, choice: Any = None, usage: Any = None, **settings: Any) -> str | None:
    """What the fast way reads of one more piece behind a call that has begun."""
    first = [text("hi", role=True), *(frames or [CALL])]
    chunk: dict[str, Any] = {
        **HEAD,
        "choices": [{"index": 0, "delta": delta, "finish_reason": None, **(choice or {})}],
        "usage": usage,
    }
    event = after(*first, **settings).arguments(parse(dumps(chunk)), 9)
    return None if event is None else event.text


def test_one_more_piece_of_arguments_takes_the_fast_way() -> None:
    assert said({"tool_calls": [PIECE]}) == '"b'
    assert said({"tool_calls": [PIECE]}, tools="held") == '"b'  # what is held is no business of the repair


@pytest.mark.parametrize(
    "delta",
    [
        None,
        {},
        {"content": "x"},
        {"tool_calls": [PIECE], "content": None},
        {"tool_calls": None},
        {"tool_calls": []},
        {"tool_calls": [PIECE, PIECE]},
        {"tool_calls": [None]},
        {"tool_calls": [{**PIECE, "type": "function"}]},
        {"tool_calls": [{**PIECE, "index": 1}]},
        {"tool_calls": [{**PIECE, "index": False}]},
        {"tool_calls": [{**PIECE, "index": 0.0}]},
        {"tool_calls": [{**PIECE, "index": [0]}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"b', "name": "f"}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": ""}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": {"b": 1}}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '"b"}'}}]},
        {"tool_calls": [{"index": 0, "function": {"arguments": '["b"]'}}]},
        {"tool_calls": [{"index": 0, "function": None}]},
    ],
    ids=str,
)
def test_what_is_more_or_less_than_a_piece_of_arguments_does_not(delta: Any) -> None:
    assert said(delta) is None


def test_a_piece_behind_which_or_beside_which_more_is_known_does_not() -> None:
    more = {"tool_calls": [PIECE]}
    assert said(more, usage={"n": 1}) is None
    assert said(more, choice={"finish_reason": "stop"}) is None
    assert said(more, choice={"index": 1}) is None
    assert said(more, text("x")) is None
    assert said(more, call(index=0, id="c", type="function", arguments='{"a":')) is None  # it has no name yet
    assert said(more, call(index=3, id="c", type="function", name="f", arguments='{"a":')) is None
    third = call(index=3, id="c", type="function", name="f", arguments='{"a":')
    assert said({"tool_calls": [{**PIECE, "index": 3}]}, third) is None
    assert said(more, call(index=0, id="c", type="function", name="f", arguments='{"a":1}')) is None
    assert said(more, call(index=0, id="c", type="function", name="f", arguments="{}")) is None
    assert said(more, cumulative=True) is None
    again = {"tool_calls": [{"index": 0, "function": {"arguments": "over and over"}}]}
    assert said(again, CALL, call(index=0, arguments="over and over")) is None
    assert said(again, CALL, call(index=0, arguments="over and ove")) == "over and over"


# -- the same repair on frame after frame -----------------------------------------------------------------------------

ROLE = {"role": "assistant"}


def again(repair: Repair, given: bytes) -> bytes | None:
    """What the fast way makes of one more frame."""
    return repair.steady(given.removeprefix(b"data: ").removesuffix(b"\n\n"))


@pytest.mark.parametrize(
    ("came", "sent"),
    [
        ({**ROLE, "content": "%"}, {"content": "%"}),
        ({**ROLE, "reasoning_content": "%"}, {"reasoning_content": "%"}),
        ({"reasoning": "%"}, {"reasoning_content": "%"}),
        ({**ROLE, "content": "%", "annotations": []}, {"content": "%", "annotations": []}),
    ],
    ids=str,
)
def test_one_more_text_with_the_same_repair_is_steady(came: dict[str, Any], sent: dict[str, Any]) -> None:
    def filled(delta: dict[str, Any], piece: bytes) -> bytes:
        return frame(delta).replace(b"%", piece)

    repair = after(text("hi", role=True), filled(came, b"a"))
    assert again(repair, filled(came, b"another")) == filled(sent, b"another")
    assert again(repair, filled({**came, "more": 1}, b"another")) is None


def test_lists_that_are_repeated_on_every_chunk_are_steady() -> None:
    first, more = (frame(delta, citations=["u"]) for delta in ({**ROLE, "content": "hi"}, {"content": "a"}))
    assert again(after(first, more), frame({"content": "b"}, citations=["u"])) == text("b")


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [frame({"content": "a"})],
        [frame({"content": "a"}), text("b")],
        [frame({"content": "a"}), text("b"), b": ping\n\n"],
        [frame({"content": "a"}), frame({**ROLE, "content": "b"}), b": ping\n\n"],
    ],
    ids=["nothing came", "it had no role yet", "no repair was due", "a comment came", "a comment came between"],
)
def test_what_is_not_steady_takes_the_long_way(frames: list[bytes]) -> None:
    repair = after(*frames)
    assert again(repair, text("c")) is None
    assert again(repair, frame({**ROLE, "content": "c"})) is None


@pytest.mark.parametrize(
    "last",
    [
        frame({**ROLE, "content": "a"}, citations=["u"]),
        frame({**ROLE, "content": "a"}, search_results=["u"]),
        frame({**ROLE, "content": "a"}, "eos"),
        frame({**ROLE, "content": "a"}, "error"),
        frame({**ROLE, "content": "a"}, index=1),
        frame({**ROLE, "content": "a", "annotations": [{"u": 1}]}),
        frame({**ROLE, "reasoning": "a", "reasoning_content": "b"}),
        frame({"content": [{"type": "text", "text": "a"}]}),
        sse({**HEAD, "choices": [{**CHOICE, "delta": {**ROLE, "content": "a"}}, {**CHOICE, "index": 1}]}),
        sse({**HEAD, "choices": [{**CHOICE, "index": False}]}),
        sse({**HEAD, "choices": [{**CHOICE, "delta": None}]}),
        sse({**HEAD, "choices": [CHOICE, None]}),
        sse({**HEAD, "choices": [None]}),
        sse({"choices": [], "usage": {"n": 1}}),
        DONE,
    ],
    ids=lambda given: given[6:-2].decode(),
)
def test_a_frame_that_does_more_than_its_text_is_not_steady(last: bytes) -> None:
    assert again(after(text("hi", role=True), last), last) is None


def test_a_frame_that_lets_another_go_is_not_steady() -> None:
    last = frame({**ROLE, "content": "a"})
    assert again(after(text("hi", role=True), SEED, last), last) is None
    assert again(after(text("hi", role=True), SEED, last, last), last) == text("a")


def test_text_that_repeats_itself_is_never_steady() -> None:
    last = frame({**ROLE, "content": "a"})
    assert again(after(text("hi", role=True), last, cumulative=True), last) is None


def test_null_in_the_middle_of_text_is_not_taken_for_what_nobody_knows_yet() -> None:
    """Nothing familiar was None, and so is null: live it went out as it came, and a replay withheld it."""
    came = [text("a", role=True), b"data: null\n\n", text("b"), text("c"), b"data: null\n\n", finish(), DONE]
    result = run(tape(came))
    assert result.sent == [came[0], came[2], came[3], finish(), DONE]
    assert result.ended.flags == ("foreign",)
