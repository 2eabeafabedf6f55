"""Fresh ids: reproducible, in the same chunks, and nothing else changes."""

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.replay.dialects import ANSWERS, chat
from wiretape.events.core.json_text import parse
from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream, json_answer
from wiretape.replay.serving.fresh_ids import FreshIds


def with_fresh_ids(script: Script, serving: int) -> Script:
    return FreshIds(serving).over(script)


def without_ids(script: Script) -> list[bytes]:
    """Return each chunk without ids."""
    return [IDS.sub(b"", step.what) for step in script.steps if isinstance(step.what, bytes)]


IDS = re.compile(rb'"(?:id|call_id|item_id)":"([^"]+)"')


@pytest.mark.parametrize("dialect", ANSWERS)
def test_each_serving_has_its_own_ids_in_the_same_places(dialect: str) -> None:
    script = event_stream(ANSWERS[dialect], gap_s=0.5)
    first, again, second = (with_fresh_ids(script, serving) for serving in (1, 1, 2))
    assert first == again
    assert without_ids(first) == without_ids(second) == without_ids(script)
    old, one, two = (set(IDS.findall(each.body)) for each in (script, first, second))
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
def test_the_prefix_of_an_id_stays(old: str, shape: str) -> None:
    script = with_fresh_ids(json_answer(b'{"id": "%b"}' % old.encode()), 1)
    new = script.body[8:-2].decode()
    assert re.fullmatch(shape, new)
    assert dict(script.headers)[b"Content-Length"] == b"%d" % len(script.body)


UNTOUCHED = {
    "text": chat({"content": '{"id":"abcdef123"}'}),
    "arguments": chat({"tool_calls": [{"function": {"name": "f", "arguments": '{"id":"abcdef123"}'}}]}),
    "a number": b'data: {"id":123456789}\n\n',
    "a name": b'data: {"model":"gpt-4o-mini","object":"chat.completion.chunk"}\n\n',
    "a model of a list": b'{"object":"list","data":[{"id":"gpt-4o-mini-2024","object":"model"}]}',
    "not JSON": b"\xff\xfe id: abcdef123",
}


@pytest.mark.parametrize("case", UNTOUCHED)
def test_nothing_else_is_touched(case: str) -> None:
    said_now = UNTOUCHED[case].replace(b'"id":"c1",', b"")
    script = Script(steps=[Step(0, said_now), Step(0, Fault.CUT)])
    assert with_fresh_ids(script, 1) is script


def test_an_id_in_two_chunks_is_one_id() -> None:
    whole = b'data: {"id":"call_abcdef"}\n\ndata: {"id":"call_abcdef"}\n\n'
    script = with_fresh_ids(event_stream([whole[:18], whole[18:]]), 3)
    assert len(set(IDS.findall(script.body))) == 1
    first, second = (step.what for step in script.steps)
    assert isinstance(first, bytes)
    assert isinstance(second, bytes)
    assert re.fullmatch(rb'data: {"id":"call_[a-z0-9]{24}', first)
    assert second.startswith(b'"}\n\ndata: ')


def posted(path: str, body: bytes = b"") -> Request:
    return Request(b"POST", path.encode(), (), body)


def named(script: Script) -> dict[str, str]:
    """Return the members of a response."""
    found: dict[str, str] = parse(script.body)
    return found


def test_an_id_that_is_sent_back_becomes_the_recorded_one() -> None:
    ids = FreshIds()
    first = named(ids.over(json_answer(b'{"id":"resp_1","conversation_id":"not-ours"}'), 0))
    new = first["id"]
    assert first["conversation_id"] == "not-ours"
    for path, body in (
        (f"/v1/responses/{new}", b""),
        (f"/v1/responses/{new}/items?after={new}&x=1", b""),
        ("/v1/x", b'{"previous_response_id":"%b","input":"of %b"}' % (new.encode(), new.encode())),
    ):
        asked, sent = ids.with_recorded_ids(posted(path, body))
        assert asked == posted(path.replace(new, "resp_1"), body.replace(new.encode(), b"resp_1"))
        assert sent == {b"resp_1": new.encode()}
    _, back = ids.with_recorded_ids(posted("/v1/responses", new.encode()))
    answer = ids.over(json_answer(b'{"id":"resp_2","previous_response_id":"resp_1"}'), 1, 0, back)
    assert named(answer)["previous_response_id"] == new
    assert named(answer)["id"] not in ("resp_2", new)


def test_another_stream_names_the_latest_id() -> None:
    ids = FreshIds()
    made = json_answer(b'{"id":"file-abc"}')
    names = json_answer(b'{"id":"x_1","file_id":"file-abc"}')
    first, last = (named(ids.over(made, 0))["id"] for _ in range(2))
    assert first != last
    assert named(ids.over(names, 1))["file_id"] == last
    assert named(ids.over(made, 1))["id"] not in (first, last)
    last = named(ids.over(made, 0))["id"]
    assert named(ids.over(made, 3, 0, makes=False))["id"] == last
    assert named(ids.over(names, 2, 1))["file_id"] == "file-abc"
    assert (
        ids.with_recorded_ids(posted("/", first.encode()))[0].body
        == ids.with_recorded_ids(posted("/", last.encode()))[0].body
        == b"file-abc"
    )
    assert ids.with_recorded_ids(posted("/v1/files/file-abc"))[1] == {}


@given(st.lists(st.binary(max_size=40), max_size=5), st.integers(0, 5))
def test_other_bytes_stay(pieces: list[bytes], serving: int) -> None:
    script = event_stream([piece.replace(b'"', b"'") for piece in pieces])
    assert with_fresh_ids(script, serving) is script


@given(st.lists(st.integers(0, 2_000), max_size=20), st.integers(0, 5))
def test_read_boundaries_do_not_change_ids(cuts: list[int], serving: int) -> None:
    whole = b"".join(ANSWERS["responses"])
    ends = sorted({0, *(cut for cut in cuts if cut < len(whole)), len(whole)})
    script = event_stream([whole[start:end] for start, end in pairwise(ends)])
    assert with_fresh_ids(script, serving).body == with_fresh_ids(event_stream([whole]), serving).body
