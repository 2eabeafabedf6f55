"""Cut tapes, and every prefix of a conversation."""

import hashlib
from typing import Any

import pytest

from tests.replay.dialects import ANSWERS
from tests.replay.made import sealed, stream
from tests.support.tapes import records_of, text
from wiretape.events.core.errors import TapeError
from wiretape.replay.faults.cutting import CutEnding, cut, prefixes_of
from wiretape.replay.faults.places import FaultError
from wiretape.replay.playback.script import ORIGINAL, Fault, event_stream, script_of
from wiretape.replay.sealed.files import parse

ENDINGS: dict[CutEnding, tuple[Fault | None, str]] = {
    "reset": (Fault.RESET, "reset"),
    "stall": (Fault.STALL, "stalled"),
    "cut": (Fault.CUT, "truncated"),
    "eof": (None, "truncated"),
}


@pytest.mark.parametrize("dialect", ANSWERS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cut_tape_is_played_with_its_ending(ending: CutEnding, dialect: str) -> None:
    whole = sealed(stream(dialect=dialect))
    header, streams = parse(cut(whole, "frame:5", ending))
    fault, word = ENDINGS[ending]
    played = script_of(streams[0])
    assert (played.body, played.fault) == (b"".join(ANSWERS[dialect][:5]), fault)
    assert streams[0][-1].keys["ending"] == word
    assert header["parent"] == {
        "sha256": hashlib.sha256(whole).hexdigest(),
        "stream": 1,
        "cut": "frame:5",
        "ending": ending,
    }
    assert [step.delay_s for step in script_of(streams[0], speed=ORIGINAL).steps][:5] == [0.5] * 5


def test_the_last_stream_with_the_place_is_cut() -> None:
    plain = event_stream([b"data: [DONE]\n\n"])
    whole = sealed(stream(text="a"), stream(text="b"), stream(plain, "c"))
    header, streams = parse(cut(whole, "tool:read_file", "reset", name="good.tape"))
    assert (header["parent"]["stream"], header["parent"]["name"], header["streams"]) == (2, "good.tape", 2)
    assert len(streams) == 2
    assert streams[0] == parse(whole).streams[0]
    _, streams = parse(cut(whole, "tool:read_file", "reset", stream=1))
    assert len(streams) == 1


def test_a_cut_is_reproducible_and_can_be_cut_again() -> None:
    whole = sealed(stream())
    once = cut(whole, "frame:5", "reset")
    assert once == cut(whole, "frame:5", "reset")
    header, streams = parse(cut(once, "frame:2", "eof"))
    assert header["parent"]["sha256"] == hashlib.sha256(once).hexdigest()
    assert script_of(streams[0]).body == b"".join(ANSWERS["chat"][:2])


def test_a_missing_place_or_stream_is_an_error() -> None:
    whole = sealed(stream())
    with pytest.raises(TapeError, match="no stream has a tool:missing"):
        cut(whole, "tool:missing", "reset")
    with pytest.raises(TapeError, match="stream 1 has no frame:99"):
        cut(whole, "frame:99", "reset", stream=1)
    with pytest.raises(TapeError, match="there is no stream 2, the tape has 1"):
        cut(whole, "frame:1", "reset", stream=2)
    with pytest.raises(FaultError, match="is not a place"):
        cut(whole, "frame:x", "reset")


# -- prefixes ---------------------------------------------------------------------------------------------------------

ONE = records_of(text("hi", "a"))


def test_an_unknown_unit_is_an_error() -> None:
    other: Any = "words"
    with pytest.raises(ValueError, match="prefixes are of frames or bytes, not 'words'"):
        prefixes_of([ONE], other)
