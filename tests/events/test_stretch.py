"""Frames side by side, known by their edges: as many as there are, and none that reading would find to be another."""

import pytest

from wiretape.events.core.limits import SLICE_BYTES, SLICE_BYTES_MIN
from wiretape.events.tape.familiar import Familiar
from wiretape.events.tape.record import Record, encode
from wiretape.events.tape.stretch import Stretch, lines, single
from wiretape.events.tape.tape import Recorder
from wiretape.events.wire.sse import Decoder

KNOWN = Familiar(b'{"a":"', b'","b":1}')


def frame(text: bytes) -> bytes:
    return b'data: {"a":"%b","b":1}\n\n' % text


MANY = frame(b"x" * 80) * 40


def texts(data: bytes, at: int = 0) -> list[bytes]:
    found, end = KNOWN.stretch(data, at, len(data))
    assert data[at:end] == b"".join(map(frame, found))
    return found


def test_all_that_stand_side_by_side_before_the_limit() -> None:
    data = frame(b"one") + frame(b"") + frame('\\"\\n é'.encode()) + frame(b"four")
    assert texts(data) == [b"one", b"", '\\"\\n é'.encode(), b"four"]
    assert KNOWN.stretch(data, 0, len(data) - 1)[0] == [b"one", b"", '\\"\\n é'.encode()]
    assert texts(b": ping\n\n" + data, len(b": ping\n\n"))[0] == b"one"


@pytest.mark.parametrize(
    "other",
    [
        b": ping\n\n",
        b"\n",
        b"\r\n",
        b"data: [DONE]\n\n",
        frame(b'x","c":"y'),
        frame(b"x\ny"),
        frame(b"x\ry"),
        frame(b"x\\"),
        frame(b"\\ud83d"),
        frame(b"\xff"),
        b'data: {"a":","b":1}\n\n',
        b'data: {"a":"x","b":2}\n\n',
        b'event: a\ndata: {"a":"x","b":1}\n\n',
        b'data: {"A":"x","b":1}\n\n',
        b'data: x","b":1}\n\n',
    ],
    ids=[
        "a comment",
        "a stray line end",
        "another stray line end",
        "the terminator",
        "one member more",
        "two lines",
        "two lines by a CR",
        "an escaped quote at the edge",
        "a surrogate",
        "not UTF-8",
        "edges that overlap",
        "another end",
        "an event",
        "another beginning",
        "no beginning",
    ],
)
def test_another_one_is_left_to_be_read(other: bytes) -> None:
    assert texts(other + frame(b"two")) == []
    assert texts(frame(b"one") + other) == [b"one"]
    assert texts(frame(b"one") + other + frame(b"two")) == [b"one"]
    assert texts(frame(b"one") + other + MANY) == [b"one"]


def test_many_are_parted_in_another_way() -> None:
    """Python's split prepares a long needle anew for each find where there is much to look through."""
    assert texts(frame(b"one") + MANY) == [b"one"] + [b"x" * 80] * 40
    assert KNOWN._parted(MANY) == MANY.split(KNOWN._next)  # pyright: ignore[reportPrivateUsage]


def test_a_character_in_two_halves_is_no_text() -> None:
    assert texts(frame(b"\xc3") + frame(b"\xa9")) == []


def test_a_stretch_is_the_records_of_its_frames() -> None:
    stretch = Stretch(7, 5, frame(b"x") + frame(b"y"), [b"x", b"y"], KNOWN)
    records = stretch.records()
    end = Record(9, 6, "end", {"cause": "eof"})
    assert [(record.n, record.t, record.raw) for record in records] == [(7, 5, frame(b"x")), (8, 5, frame(b"y"))]
    assert (stretch.last_n, stretch.kind, stretch.keys) == (8, records[0].kind, records[0].keys)
    assert single([stretch, end]) == [*records, end]
    assert lines([stretch, end]) == b"".join(map(encode, [*records, end]))


def taken(frames: list[bytes], decoder: Decoder | None = None) -> list[Record | Stretch]:
    recorder = Recorder(decoder)
    recorder.read(0, frames[0])
    recorder.familiar = KNOWN
    return list(recorder.each(1, b"".join(frames[1:])))


def test_stretches_grow_while_all_is_as_before() -> None:
    frame_of_many = frame(b"x" * 80)
    sizes = [len(some.raw or b"") for some in taken([frame_of_many] * 400)]
    assert SLICE_BYTES_MIN - len(frame_of_many) < sizes[0] <= SLICE_BYTES_MIN
    assert max(sizes) <= SLICE_BYTES < 2 * max(sizes)
    assert len(sizes) < 9


def test_where_a_frame_may_be_too_long_each_is_looked_at() -> None:
    assert not any(isinstance(some, Stretch) for some in taken([frame(b"x")] * 9, Decoder(100, SLICE_BYTES - 1)))
    assert any(isinstance(some, Stretch) for some in taken([frame(b"x")] * 9, Decoder(SLICE_BYTES, SLICE_BYTES)))
