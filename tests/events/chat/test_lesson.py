"""What is known by its edges goes out as it would have gone out when read: the short way and the long way are one."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given

from tests.laws.generated import streams
from tests.support.chat import HEAD, chunk, finish, text
from tests.support.corpus import load, needs_corpus
from wiretape.events.chat.lesson import learn
from wiretape.events.chat.request import facts
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.limits import LESSONS_MAX
from wiretape.events.emission.emit import Emitter
from wiretape.events.tape.familiar import Familiar
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.stretch import Stretch, lines, single
from wiretape.events.tape.tape import Recorder


def live(reads: Iterable[bytes], *, learns: bool) -> tuple[bytes, bytes, int]:
    """Lines, what went out, and how many frames nobody read."""
    recorder, emitter = Recorder(), Emitter()
    kept: list[Record | Stretch] = []
    sent: list[bytes] = []
    unread = 0

    def took(records: Iterable[Record | Stretch]) -> None:
        nonlocal unread
        for record in records:
            kept.append(record)
            if isinstance(record, Stretch):
                unread += len(record.texts)
                sent.append(record.raw)
                continue
            unread += type(record.value) is Familiar
            sent.extend(emitter.feed(record))
            if learns:
                recorder.familiar = emitter.stream.familiar

    took([recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat", "created": 7})])
    took([recorder.record("request", 0, {"facts": facts({"stream": True}).to_keys()})])
    for t, data in enumerate(reads, 1):
        if recorder.decoder.overflow:
            break
        took(recorder.each(t, data))
    took(recorder.rest(1 << 40))
    took([recorder.end(1 << 40, {"cause": "eof"})])
    assert lines(kept) == b"".join(map(encode, single(kept)))
    return lines(kept), b"".join(sent), unread


def same_both_ways(reads: list[bytes]) -> int:
    """The frames that were not read."""
    *long, none = live(reads, learns=False)
    *short, unread = live(reads, learns=True)
    assert short == long
    assert none == 0
    return unread


def test_from_the_second_plain_frame_on_nothing_is_read() -> None:
    frames = [chunk({"role": "assistant", "content": "a"}), *(text(letter) for letter in "bcdefg"), finish("stop")]
    assert same_both_ways(frames) == 5 - 1


def test_what_comes_between_is_read_and_the_rest_of_its_read_again() -> None:
    frames = [text("a"), text("b"), text("c") + finish("stop") + text("late") + text("later")]
    same_both_ways(frames)


def test_frames_side_by_side_are_taken_as_one_wherever_they_are_cut() -> None:
    frames = [text(f"{letter}\u00e9\n") for letter in "abcdefghijklmnopqrstuvwxyz" * 8]
    body = b"".join([*frames, finish("stop"), text("late"), b"\n\r\n: ping\n\n", *frames, b"data: [DONE]\n\n"])
    for size in (len(body), 7_777, 1_000, 97):
        same_both_ways([body[at : at + size] for at in range(0, len(body), size)])
    assert same_both_ways([b"".join(frames)]) == len(frames) - 2
    assert same_both_ways([b"".join(frames[:9]), *frames[9:]]) == len(frames) - 2


@needs_corpus
@pytest.mark.slow
def test_of_every_captured_stream_both_ways_are_one() -> None:
    unread = 0
    for stream in load():
        body = stream.body
        unread += same_both_ways([body[at : at + 512] for at in range(0, len(body), 512)])
    assert unread > 3_000


@given(streams())
def test_of_generated_streams_both_ways_are_one(body: bytes) -> None:
    same_both_ways([body[at : at + 97] for at in range(0, len(body), 97)] or [b"\n"])


PLAIN: dict[str, Any] = {**HEAD, "choices": [{"index": 0, "delta": {"content": "tell me"}, "finish_reason": None}]}


def test_edges_are_learned_where_the_text_stands_once() -> None:
    known = learn(dumps(PLAIN), parse(dumps(PLAIN)))
    assert known is not None
    assert known.knows(dumps(PLAIN).replace(b"tell me", b"anything"))


@pytest.mark.parametrize(
    "value",
    [
        {**PLAIN, "choices": [{"index": 0, "delta": {"content": "m"}, "finish_reason": None}]},
        {**PLAIN, "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": None}]},
        {**PLAIN, "usage": {"total_tokens": 1}},
        {
            **PLAIN,
            "choices": [{"index": 0, "delta": {"content": "a", "reasoning_content": "b"}, "finish_reason": None}],
        },
    ],
    ids=["the text stands there twice", "no text", "tokens are counted", "two texts"],
)
def test_no_edges_are_learned(value: dict[str, Any]) -> None:
    assert learn(dumps(value), parse(dumps(value))) is None


def test_a_text_in_other_escapes_is_not_found() -> None:
    payload = dumps(PLAIN).replace(b"tell", b"\\u0074ell")
    assert learn(payload, parse(payload)) is None


def test_who_learns_nothing_stops_trying() -> None:
    frames = [chunk({"content": "x"}, usage={"total_tokens": number}) for number in range(LESSONS_MAX + 3)]
    assert same_both_ways(frames) == 0
