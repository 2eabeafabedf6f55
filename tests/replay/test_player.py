"""Scripts from tapes: chunks, delays and endings are those of the recorded upstream."""

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from tests.replay.virtual import peer, taped
from tests.support.house import ASKED, DONE, call, finish, house, post, text
from wiretape.events.tape.record import Record
from wiretape.replay.playback.script import (
    ORIGINAL,
    Fault,
    Script,
    Step,
    attempts_of,
    event_stream,
    script_of,
)

TYPE = (b"content-type", b"text/event-stream")
HALF = (text("hi"), call('{"a', "write_file"))
WHOLE = (text("hi"), finish() + DONE)


def length(count: int) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % count)


HALF_BYTES = len(b"".join(HALF))

#: Scripts that survive recording and playing.
SAME = {
    "a whole stream": event_stream(WHOLE, gap_s=0.5),
    "a proper end inside a call": event_stream(HALF, gap_s=0.5),
    "a cut inside a call": event_stream(HALF, gap_s=0.5, end=Fault.CUT),
    "a reset inside a call": event_stream(HALF, gap_s=0.5, end=Fault.RESET),
    "garbage inside a call": event_stream(HALF, gap_s=0.5, end=Fault.GARBAGE),
    "a length": Script(headers=[TYPE, length(HALF_BYTES)], steps=[Step(0.25, piece) for piece in HALF]),
    "a short length": Script(
        headers=[TYPE, length(HALF_BYTES + 9)], steps=[*(Step(0.25, piece) for piece in HALF), Step(0.5, Fault.CUT)]
    ),
    "a body ended by the close": Script(steps=[*(Step(0.25, piece) for piece in HALF), Step(0.5, b"")], closes=True),
    "a late head": Script(head_delay_s=7.0, steps=[Step(0.25, piece) for piece in WHOLE]),
    "a refusal": Script(
        status=429,
        headers=[(b"content-type", b"application/json"), (b"retry-after", b"7"), length(2)],
        steps=[Step(0.25, b"{}")],
    ),
    "a status without a reason phrase": Script(
        status=529, headers=[(b"content-type", b"application/json"), length(2)], steps=[Step(0.25, b"{}")]
    ),
    "a cut instead of a response": Script(head_delay_s=3.0, unanswered=Fault.CUT),
    "a reset instead of a response": Script(head_delay_s=3.0, unanswered=Fault.RESET),
    "garbage instead of a response": Script(head_delay_s=3.0, unanswered=Fault.GARBAGE),
}


def plain(script: Script) -> tuple[object, ...]:
    """Return a script with lower-case names, rounded delays and no empty last step."""
    steps = [(round(delay_s, 3), what) for delay_s, what in script.steps if what or delay_s > 0.001]
    while steps and steps[-1] == (0.0, b""):
        steps.pop()
    headers = [(name.lower(), value) for name, value in script.headers]
    if script.unanswered is not None:
        return round(script.head_delay_s, 3), script.unanswered
    return script.status, headers, steps, round(script.head_delay_s, 3), script.closes


@pytest.mark.parametrize("case", SAME)
async def test_a_script_comes_back_from_its_tape(case: str, autojump_clock: MockClock) -> None:
    script = SAME[case]
    tape = await taped(script)
    assert plain(script_of(tape, speed=ORIGINAL)) == plain(script)


async def test_a_stream_that_the_client_left_ends_in_silence(autojump_clock: MockClock) -> None:
    async with house(peer(event_stream([*HALF] * 9, gap_s=5))) as home:
        client = await home.connect()
        await client.send(post(ASKED))
        await trio.sleep(12)
        client.close()
        await home.settled()
        tape = await home.tape()
    assert tape[-1].keys["cause"] == "client_gone"
    assert [what for _, what in script_of(tape).steps] == [*HALF, Fault.STALL]


async def test_the_last_attempt_is_played_and_each_is_available(autojump_clock: MockClock) -> None:
    tape = await taped(
        Script(unanswered=Fault.RESET),
        event_stream([], end=Fault.CUT),
        event_stream(WHOLE, gap_s=0.5),
        attempts=3,
        profile="strict",
    )
    assert len(attempts_of(tape)) == 3
    assert [what for _, what in script_of(tape).steps if what] == list(WHOLE)
    without = [record for record in tape if record.kind != "attempt"]
    assert attempts_of(without) == [without]
    assert attempts_of([]) == [[]]
    first, second, third = map(script_of, attempts_of(tape))
    assert first.unanswered is Fault.RESET
    assert (second.unanswered, [what for _, what in second.steps]) == (None, [Fault.CUT])
    assert third == script_of(tape)


async def test_a_head_request_keeps_its_length(autojump_clock: MockClock) -> None:
    async with house(_head_only) as home:
        await home.ask(b"", path="/v1/models", method="HEAD")
        await home.settled()
        tape = await home.tape()
    assert dict(script_of(tape).headers)[b"content-length"] == b"12"


async def _head_only(stream: trio.abc.Stream) -> None:
    await stream.receive_some()
    await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n")


#: Ends of tapes from before 2026-11-18, without `framed`.
OLD: dict[str, tuple[dict[str, object], Fault | None]] = {
    "closed after the last frame": ({"cause": "closed", "ending": "completed"}, None),
    "a chat stream without its last frame": ({"cause": "eof", "ending": "truncated"}, Fault.CUT),
    "a finish but no [DONE]": ({"cause": "eof", "ending": "completed"}, None),
    "a complete response": ({"cause": "framed", "ending": "completed"}, None),
    "an error status": ({"cause": "status", "ending": "upstream_error"}, None),
    "a reset": ({"cause": "reset", "ending": "reset"}, Fault.RESET),
    "garbage": ({"cause": "protocol", "ending": "protocol"}, Fault.GARBAGE),
    "the proxy's own end": ({"cause": "shutdown", "ending": "shutdown"}, Fault.STALL),
    "a crash": ({"cause": "crashed", "ending": "crashed"}, Fault.STALL),
}


@pytest.mark.parametrize("case", OLD)
def test_the_ending_of_an_old_tape_is_guessed(case: str) -> None:
    keys, due = OLD[case]
    assert _ends([Record(4, 9, "end", keys)]) is due


def test_a_running_tape_ends_in_silence() -> None:
    assert _ends([]) is Fault.STALL


def _ends(behind: Sequence[Record]) -> Fault | None:
    tape = [
        Record(0, 0, "open", {"dialect": "chat"}),
        Record(1, 0, "attempt", {"number": 1}),
        Record(2, 5, "head", {"status": 200, "headers": [["content-type", "text/event-stream"]]}),
        Record(3, 7, "frame", {}, text("hi"), text("hi")[6:-2]),
        *behind,
    ]
    last = script_of(tape).steps[-1].what
    return last if isinstance(last, Fault) else None
