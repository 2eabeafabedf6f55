"""Ids that only one serving has: the same for the same serving, in the same pieces, and nothing else is touched."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.dialects import ANSWERS, chat
from wiretape.replay.fresh_ids import with_fresh_ids
from wiretape.replay.key import key_of
from wiretape.replay.script import Fault, Script, Step, event_stream, json_answer


def said(script: Script) -> bytes:
    return b"".join(step.what for step in script.steps if isinstance(step.what, bytes))


def without_ids(script: Script) -> list[bytes]:
    """Each piece."""
    return [IDS.sub(b"", step.what) for step in script.steps if isinstance(step.what, bytes)]


IDS = re.compile(rb'"(?:id|call_id|item_id)":"([^"]+)"')


@pytest.mark.parametrize("dialect", ANSWERS)
def test_each_serving_has_ids_of_its_own_in_the_same_places(dialect: str) -> None:
    script = event_stream(ANSWERS[dialect], gap_s=0.5)
    first, again, second = (with_fresh_ids(script, serving) for serving in (1, 1, 2))
    assert first == again
    assert without_ids(first) == without_ids(second) == without_ids(script)
    old, one, two = (set(IDS.findall(said(each))) for each in (script, first, second))
    assert old
    assert old.isdisjoint(one)
    assert one.isdisjoint(two)
    assert len(one) == len(old)
    assert [step.delay_s for step in first.steps] == [step.delay_s for step in script.steps]


@pytest.mark.parametrize(("old", "shape"), [
    ("chatcmpl-1", r"chatcmpl-[a-z0-9]{24}"),
    ("call_Bx92kQ7mZ1", r"call_[a-z0-9]{24}"),
    ("0b0a7c52-9c3e-4a5e-8f7d-2b1c6e5d4f3a", r"[a-z0-9]{24}"),
    ("c1", r"[a-z0-9]{24}"),
])  # fmt: skip
def test_the_kind_of_an_id_stays(old: str, shape: str) -> None:
    script = with_fresh_ids(json_answer(b'{"id": "%b"}' % old.encode()), 1)
    new = said(script)[8:-2].decode()
    assert re.fullmatch(shape, new)
    assert dict(script.headers)[b"Content-Length"] == b"%d" % len(said(script))


UNTOUCHED = {
    "what was said": chat({"content": '{"id":"abcdef123"}'}),
    "arguments": chat({"tool_calls": [{"function": {"name": "f", "arguments": '{"id":"abcdef123"}'}}]}),
    "a number": b'data: {"id":123456789}\n\n',
    "a name": b'data: {"model":"gpt-4o-mini","object":"chat.completion.chunk"}\n\n',
    "a model of a list": b'{"object":"list","data":[{"id":"gpt-4o-mini-2024","object":"model"}]}',
    "no JSON": b"\xff\xfe id: abcdef123",
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_nothing_else_is_touched(case: str) -> None:
    said_now = UNTOUCHED[case].replace(b'"id":"c1",', b"")
    script = Script(steps=[Step(0, said_now), Step(0, Fault.CUT)])
    assert with_fresh_ids(script, 1) is script


def test_an_id_that_reads_cut_in_two_is_one_id() -> None:
    whole = b'data: {"id":"call_abcdef"}\n\ndata: {"id":"call_abcdef"}\n\n'
    script = with_fresh_ids(event_stream([whole[:18], whole[18:]]), 3)
    assert len(set(IDS.findall(said(script)))) == 1
    first, second = (step.what for step in script.steps)
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert re.fullmatch(rb'data: {"id":"call_[a-z0-9]{24}', first)
    assert second.startswith(b'"}\n\ndata: ')


def test_a_client_that_sends_them_back_is_answered() -> None:
    def turn(id_: str) -> bytes:
        call = b'{"id":"%b","type":"function","function":{"name":"f","arguments":"{}"}}' % id_.encode()
        result = b'{"role":"tool","tool_call_id":"%b","content":"x"}' % id_.encode()
        return b'{"messages":[{"role":"assistant","tool_calls":[%b]},%b]}' % (call, result)

    path = "/v1/chat/completions"
    assert key_of("POST", path, turn("call_abcdef")) == key_of("POST", path, turn("call_zzzzzz"))


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(0, 5))
def test_what_is_no_json_stays(pieces: list[bytes], serving: int) -> None:
    script = event_stream([piece.replace(b'"', b"'") for piece in pieces])
    assert with_fresh_ids(script, serving) is script


@given(st.lists(st.integers(0, 2_000), max_size=20), st.integers(0, 5))
def test_wherever_the_reads_cut_the_same_ids_come(cuts: list[int], serving: int) -> None:
    whole = b"".join(ANSWERS["responses"])
    ends = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    script = event_stream([whole[start:end] for start, end in pairwise(ends)])
    assert said(with_fresh_ids(script, serving)) == said(with_fresh_ids(event_stream([whole]), serving))
