"""Cut tapes: what is left, how it ends, and the parent in the header."""

import hashlib

import pytest

from tests.replay.dialects import ANSWERS
from tests.replay.made import live, sealed, stream
from wiretape.events.core.errors import TapeError
from wiretape.replay.faults.cutting import CutEnding, cut
from wiretape.replay.faults.faults import FaultError
from wiretape.replay.playback.player import ORIGINAL, script_of
from wiretape.replay.playback.script import Fault, Script, event_stream
from wiretape.replay.sealed.files import parse
from wiretape.replay.sealed.sealed import expected

ENDINGS: dict[CutEnding, tuple[Fault | None, str]] = {
    "reset": (Fault.RESET, "reset"),
    "stall": (Fault.STALL, "stalled"),
    "cut": (Fault.CUT, "truncated"),
    "eof": (None, "truncated"),
}


def left(script: Script) -> tuple[bytes, Fault | None]:
    data = b"".join(step.what for step in script.steps if isinstance(step.what, bytes))
    return data, next((step.what for step in script.steps if isinstance(step.what, Fault)), None)


@pytest.mark.parametrize("dialect", ANSWERS)
@pytest.mark.parametrize("ending", ENDINGS)
def test_a_cut_tape_is_played_with_its_ending(ending: CutEnding, dialect: str) -> None:
    whole = sealed(stream(dialect=dialect))
    header, streams = parse(cut(whole, "frame:5", ending))
    fault, word = ENDINGS[ending]
    assert left(script_of(streams[0])) == (b"".join(ANSWERS[dialect][:5]), fault)
    assert streams[0][-1].keys["ending"] == ("completed" if ending == "eof" and dialect != "chat" else word)
    assert header["parent"] == {
        "sha256": hashlib.sha256(whole).hexdigest(),
        "stream": 1,
        "cut": "frame:5",
        "ending": ending,
    }
    assert [step.delay_s for step in script_of(streams[0], speed=ORIGINAL).steps][:5] == [0.5] * 5


def test_a_call_that_is_cut_is_dropped_and_named() -> None:
    _, streams = parse(cut(sealed(stream()), "tool:write_file", "reset"))
    said = expected(streams[0])
    assert [(call["name"], call["state"], call.get("arguments")) for call in said["calls"]] == [
        ("read_file", "dropped", '{"path":"notes"}'),
        ("write_file", "dropped", "{"),
    ]
    assert any("write_file" in warning["tools"] for warning in said["warnings"])


def test_the_last_stream_with_the_place_is_cut() -> None:
    plain = event_stream([b"data: [DONE]\n\n"])
    whole = sealed(stream(text="a"), stream(text="b"), stream(plain, "c"))
    header, streams = parse(cut(whole, "tool:read_file", "reset", name="good.tape"))
    assert (header["parent"]["stream"], header["parent"]["name"], header["streams"]) == (2, "good.tape", 2)
    assert len(streams) == 2
    assert streams[0] == parse(whole).streams[0]
    _, streams = parse(cut(whole, "tool:read_file", "reset", stream=1))
    assert len(streams) == 1


def test_a_live_tape_becomes_a_sealed_one() -> None:
    header, streams = parse(cut(live(stream()), "text", "stall"))
    assert left(script_of(streams[0]))[1] is Fault.STALL
    assert header["parent"]["cut"] == "text"
    assert header["redacted"]


def test_a_cut_is_reproducible_and_can_be_cut_again() -> None:
    whole = sealed(stream())
    once = cut(whole, "frame:5", "reset")
    assert once == cut(whole, "frame:5", "reset")
    header, streams = parse(cut(once, "frame:2", "eof"))
    assert header["parent"]["sha256"] == hashlib.sha256(once).hexdigest()
    assert left(script_of(streams[0]))[0] == b"".join(ANSWERS["chat"][:2])


def test_a_missing_place_or_stream_is_an_error() -> None:
    whole = sealed(stream())
    with pytest.raises(TapeError, match="no stream has a tool:missing"):
        cut(whole, "tool:missing", "reset")
    with pytest.raises(TapeError, match="stream 1 has no frame:99"):
        cut(whole, "frame:99", "reset", stream=1)
    with pytest.raises(TapeError, match="there is no stream 2, the tape has 1"):
        cut(whole, "frame:1", "reset", stream=2)
    with pytest.raises(FaultError, match="frame takes a number"):
        cut(whole, "frame:x", "reset")
