"""Faults over each dialect: the bytes, the chunks and the ending."""

import re
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from tests.replay.dialects import ANSWERS
from tests.support.chat import frame
from wiretape.events.core.json_text import as_object, parse
from wiretape.events.wire.sse import Decoder
from wiretape.replay.faults.faults import KINDS, Faults, overlay
from wiretape.replay.faults.places import PLACES, FaultError
from wiretape.replay.playback.script import Fault, Script, Step, event_stream, json_answer

DIALECTS = tuple(ANSWERS)
GAP_S = 0.5


def answer(dialect: str) -> Script:
    return event_stream(ANSWERS[dialect], gap_s=GAP_S)


def over(script: Script, *texts: str) -> Script:
    faults = Faults.of(texts)
    changed, _ = faults.over(script, 0)
    assert not faults.unapplied
    return changed


def pieces(script: Script) -> list[bytes]:
    return [step.what for step in script.steps if isinstance(step.what, bytes) and step.what]


def values(data: bytes) -> list[dict[str, Any]]:
    """Return the payloads of complete frames."""
    return [as_object(parse(frame.payload)) for frame in Decoder().feed(data) if frame.payload]


def arguments_of(data: bytes) -> list[str]:
    """Return the pieces of arguments that a client gets."""
    found: list[str] = []
    for value in values(data):
        for choice in value.get("choices", ()):
            found += [call["function"].get("arguments", "") for call in choice["delta"].get("tool_calls", ())]
        delta = value.get("delta")
        if value.get("type") == "response.function_call_arguments.delta":
            found.append(str(delta))
        elif "partial_json" in as_object(delta):
            found.append(as_object(delta)["partial_json"])
    return [text for text in found if text]


# -- endings at places ------------------------------------------------------------------------------------------------

ENDS: dict[str, Fault | None] = {
    "cut": Fault.CUT,
    "reset": Fault.RESET,
    "stall": Fault.STALL,
    "garbage": Fault.GARBAGE,
    "eof": None,
}

#: Complete frames before the place, and bytes of the next one.
AT: dict[str, tuple[int, int]] = {
    "frame:0": (0, 0),
    "frame:3": (3, 0),
    "frame:3+10": (3, 10),
    "text": (2, 0),
    "text:2": (3, 0),
    "finish": (9, 0),
}


@pytest.mark.parametrize("place", AT)
@pytest.mark.parametrize("kind", ENDS)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_end_at_a_place(dialect: str, kind: str, place: str) -> None:
    frames, more = AT[place]
    changed = over(answer(dialect), f"{kind}@{place}")
    whole = ANSWERS[dialect]
    assert changed.body == b"".join(whole[:frames]) + (whole[frames][:more] if more else b"")
    assert changed.fault is ENDS[kind]
    kept = frames + bool(more)
    assert [step.delay_s for step in changed.steps] == [GAP_S] * kept + [0.0] * (ENDS[kind] is not None)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_char_is_inside_a_character_of_several_bytes(dialect: str) -> None:
    whole = b"".join(ANSWERS[dialect])
    first = over(answer(dialect), "cut@char")
    assert first.body.endswith(b"Gr\xc3")
    with pytest.raises(UnicodeDecodeError):
        first.body.decode()
    assert over(answer(dialect), "cut@char:3").body == whole[: whole.index("Zürich".encode()) + 2]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("place", "due"), [
    ("tool:read_file", ["{"]),
    ("tool:*", ["{"]),
    ("tool_call:read_file", ["{"]),
    ("tool:read_file+8", ['{"path":']),
    ("tool:read_file+9", ['{"path":', '"']),
    ("tool:write_file", ['{"path":', '"notes"}', "{"]),
    ("tool:write_file+12", ['{"path":', '"notes"}', '{"pa', 'th":"b"}']),
])  # fmt: skip
def test_tool_is_after_a_character_of_the_arguments(dialect: str, place: str, due: list[str]) -> None:
    changed = over(answer(dialect), f"reset@{place}")
    assert arguments_of(changed.body) == due
    assert changed.body.endswith(b"\n\n")
    assert changed.fault is Fault.RESET


# -- frames -----------------------------------------------------------------------------------------------------------

FRAMES: dict[str, tuple[str, dict[str, Sequence[int]]]] = {
    "drop a frame": ("drop@frame:3", dict.fromkeys(DIALECTS, (1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12))),
    "duplicate a frame": ("duplicate@frame:3", dict.fromkeys(DIALECTS, (1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12))),
    "drop the end": (
        "drop@done",
        {"chat": range(1, 12), "responses": range(1, 10), "messages": range(1, 11)},
    ),
    "duplicate the end": (
        "duplicate@done",
        {"chat": (*range(1, 13), 12), "responses": (*range(1, 11), 10), "messages": (*range(1, 12), 11)},
    ),
    "drop the finish": (
        "drop@finish",
        {"chat": (*range(1, 10), 11, 12), "responses": range(1, 10), "messages": (*range(1, 10), 11)},
    ),
}


@pytest.mark.parametrize("case", FRAMES)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_frames_are_dropped_or_duplicated(dialect: str, case: str) -> None:
    text, due = FRAMES[case]
    frames = ANSWERS[dialect]
    changed = over(answer(dialect), text)
    assert changed.body == b"".join(frames[number - 1] for number in due[dialect] if number <= len(frames))
    assert changed.fault is None
    assert sum(step.delay_s for step in changed.steps) == GAP_S * len(frames)


def test_dropping_a_finish_keeps_the_rest_of_its_frame() -> None:
    whole = event_stream([frame({"content": "x"}, "stop"), b"data: [DONE]\n\n"])
    choice = values(over(whole, "drop@finish").body)[0]["choices"][0]
    assert (choice["delta"], choice["finish_reason"]) == ({"content": "x"}, None)


ERRORS = {
    "chat": {"error": {"message": "M", "type": "server_error", "param": None, "code": "server_error"}},
    "responses": {"type": "error", "code": "server_error", "message": "M", "param": None, "sequence_number": 10},
    "messages": {"type": "error", "error": {"type": "overloaded_error", "message": "M"}},
}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_error_frames_of_each_dialect(dialect: str) -> None:
    changed = over(answer(dialect), "error@frame:3=M")
    assert changed.body.startswith(b"".join(ANSWERS[dialect][:3]))
    assert values(changed.body)[3:] == [ERRORS[dialect]]
    assert (b"event: error\n" in changed.body) is (dialect != "chat")
    assert changed.fault is None


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_error_frame_never_follows_half_a_line(dialect: str) -> None:
    frames = ANSWERS[dialect]
    whole, ends = b"".join(frames), list(accumulate(map(len, frames)))
    for at in range(0, len(whole) + 1, 5):
        changed = over(answer(dialect), f"error@byte:{at}=M").body
        kept = whole[: max((end for end in ends if end <= at), default=0)]
        assert changed.startswith(kept)
        assert [as_object(value).get("type") for value in values(changed[len(kept) :])] == [
            as_object(ERRORS[dialect]).get("type")
        ]
    inside = over(answer(dialect), "error@frame:3+10=M").body
    assert inside == over(answer(dialect), "error@frame:3=M").body
    torn = event_stream([*frames[:3], frames[3][:-1]])
    assert over(torn, "error@end=M").body[ends[2] :].startswith((b"event: error\n", b'data: {"error"'))


# -- chunks and time --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 7, 1_000_000])
@pytest.mark.parametrize("dialect", DIALECTS)
def test_rechunk_by_size_keeps_the_time_of_the_last_byte(dialect: str, size: int) -> None:
    changed = over(answer(dialect), f"rechunk={size}")
    whole = b"".join(ANSWERS[dialect])
    assert changed.body == whole
    assert {len(piece) for piece in pieces(changed)[:-1]} <= {size}
    came = list(accumulate(map(len, ANSWERS[dialect])))
    times = list(accumulate(step.delay_s for step in changed.steps))
    sizes = accumulate(map(len, pieces(changed)))
    due = [GAP_S * (1 + next(n for n, end in enumerate(came) if at <= end)) for at in sizes]
    assert times == pytest.approx(due)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_rechunk_by_frame_or_all(dialect: str) -> None:
    frames = ANSWERS[dialect]
    cut = over(answer(dialect), "rechunk=100")
    by_frame = over(cut, "rechunk=frame")
    assert (pieces(by_frame), by_frame.apart, cut.apart) == (list(frames), True, True)
    assert over(cut, "rechunk=all").steps == [Step(GAP_S * len(frames), b"".join(frames))]


def test_slow_adds_to_each_delay() -> None:
    fast = event_stream([b"data: 1\n\n", b"data: 2\n\n"])
    assert [step.delay_s for step in over(fast, "slow=0.25").steps] == [0.25, 0.25]
    assert [step.delay_s for step in over(answer("chat"), "slow=0.25").steps] == [0.75] * 12


# -- statuses and attempts --------------------------------------------------------------------------------------------


ANSWERED = {
    "answered": ["rechunk=1", "slow=1", "drop@frame:3", "duplicate@frame:3", "duplicate@done", "eof@end", "cut@tool:x"],
    "broken": [
        "cut@end", "reset@done", "stall@text", "garbage@frame:1", "eof@text", "eof@start", "reset@start", "eof@byte:70",
        "error@text", "error@end", "status=503", "status=200",
    ],
}  # fmt: skip


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("fault", "answered"), [
    (fault, kind == "answered") for kind, texts in ANSWERED.items() for fault in texts
])  # fmt: skip
def test_a_response_answers_if_it_keeps_its_end(dialect: str, fault: str, *, answered: bool) -> None:
    assert Faults.of([fault]).over(answer(dialect), 0)[1] is answered


# -- together ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
def test_faults_apply_in_order(dialect: str) -> None:
    changed = over(answer(dialect), "drop@frame:2", "cut@frame:2", "rechunk=5", "slow=1")
    frames = ANSWERS[dialect]
    assert changed.body == frames[0] + frames[2]
    assert changed.fault is Fault.CUT
    assert max(map(len, pieces(changed))) == 5
    assert not Faults.of(["error@end", "rechunk=5"]).over(answer(dialect), 0)[1], "a fault after it mends nothing"


def test_content_length_is_reached_or_missed() -> None:
    plain = json_answer(b'{"object":"list"}')
    cut = over(plain, "cut@byte:5")
    assert (cut.body, dict(cut.headers)[b"Content-Length"]) == (b'{"obj', b"17")
    shorter = over(plain, "eof@byte:5")
    assert (shorter.body, dict(shorter.headers)[b"Content-Length"]) == (b'{"obj', b"5")
    assert dict(over(plain, "cut@end").headers)[b"Content-Length"] == b"18"


def test_a_missing_response_stays_missing() -> None:
    nothing = Script(unanswered=Fault.RESET)
    faults = Faults.of(["cut@start", "error@start", "slow=1", "rechunk=1", "drop@done", "duplicate@frame:1"])
    assert faults.over(nothing, 0) == (nothing, True)


# -- words ------------------------------------------------------------------------------------------------------------

WRONG = {
    "": "no such fault; there are cut, reset, stall,",
    "cutt@frame:3": "no such fault; there are",
    "cut": "cut takes a place, as in cut@frame:3",
    "cut@": "cut takes a place",
    "cut@frame": "'frame' is not a place, as in start, end,",
    "cut@frame:x": "is not a place",
    "cut@frame:-1": "is not a place",
    "cut@char:0": "is not a place",
    "cut@byte:1+2": "is not a place",
    "cut@tool": "is not a place",
    "cut@nowhere:1": "is not a place",
    "cut@done:1": "is not a place",
    "cut@frame:3=x": "cut takes no value",
    "drop@byte:3": "drop takes a frame: done, finish, usage, frame:N",
    "drop@frame:3+1": "drop takes a frame",
    "duplicate@usage": "'usage' is not a place",
    "rechunk": "rechunk takes a value, as in rechunk=1",
    "rechunk=0": "rechunk takes a number of bytes, frame or all",
    "slow=fast": "slow takes seconds, as in slow=0.2",
    "slow=0": "slow takes seconds",
    "status=99": "'99' is not a status: as in 503, or 429/7 for a Retry-After of 7",
    "attempts": "attempts takes a value, as in attempts=503,reset,ok",
    "attempts=503,later": "'later' is not a status",
}


@pytest.mark.parametrize("text", WRONG)
def test_invalid_faults_are_explained_in_one_line(text: str) -> None:
    with pytest.raises(FaultError) as raised:
        overlay(text)
    assert WRONG[text] in str(raised.value)
    assert "\n" not in str(raised.value)
    assert str(raised.value).startswith(f"fault {text!r}: ")


def test_every_kind_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs/reference/replay.md").read_text(encoding="utf-8")
    assert [kind for kind in KINDS if f"`{kind}" not in text] == []
    assert [place for place in PLACES if f"`{place}" not in text] == []
    examples = re.findall(r"(?:`|--fault )([a-z]+[@=][^`A-Z\s]+)(?=[`\s])", text)
    assert len(examples) >= 16
    assert all(overlay(example) for example in examples)
