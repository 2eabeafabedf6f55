"""What an attempt brought before any content counts for nothing: not for the client, and not for a fold."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.laws.variants import FULL
from tests.support.chat import run, text
from wiretape.events.core.model import AttemptStarted
from wiretape.events.emit import Emitter, summarise
from wiretape.events.tape.record import Record
from wiretape.events.tape.tape import Recorder

pytestmark = pytest.mark.slow


def attempts(bodies: list[bytes], *, hermes: bool) -> list[Record]:
    """One tape of several attempts."""
    recorder = Recorder()
    opening: dict[str, Any] = {
        "format": 1,
        "stream": "s1",
        "dialect": "chat",
        "created": 7,
        "profile": "strict",
        "settings": {"hermes": hermes},
    }
    records = [recorder.record("open", 0, opening), recorder.record("request", 0, {"facts": {"model": "m"}})]
    for number, body in enumerate(bodies, 1):
        records += recorder.attempt(number, {"number": number})
        records += recorder.read(number, body) if body else []
    records += recorder.rest(99)
    return [*records, recorder.end(99, {"cause": "eof"})]


def resulted(records: list[Record]) -> object:
    """Return what the stream resulted in."""
    summary = summarise(records)
    message = summary.message
    choices = {index: (message.text(index), message.calls(index)) for index in message.choices}
    return choices, summary.wire.usage, [move.state for move in summary.moves], summary.warnings


RUNS = b'event: hermes.tool.progress\ndata: {"tool":"t","toolCallId":"c","status":"running"}\n\n'


def delivered(body: bytes, *, hermes: bool = False) -> bool:
    emitter = Emitter()
    for record in attempts([body], hermes=hermes)[:-1]:
        emitter.feed(record)
    return emitter.delivered


@settings(max_examples=1_000 if FULL else 100)
@given(
    failed=st.lists(streams(calls=st.just(0)), max_size=2),
    last=streams() | agent_streams(),
    hermes=st.booleans(),
)
def test_a_failed_attempt_leaves_no_trace(failed: list[bytes], last: bytes, hermes: bool) -> None:
    bodies = [*(body for body in failed if not delivered(body, hermes=hermes)), last]
    several, alone = run(attempts(bodies, hermes=hermes)), run(attempts([last], hermes=hermes))
    assert several.sent == alone.sent
    assert (several.ended.ending, several.ended.flags) == (alone.ended.ending, alone.ended.flags)
    assert resulted(several.records) == resulted(alone.records)
    assert len(several.of(AttemptStarted)) == len(bodies)


def test_the_generator_finds_attempts_that_delivered_nothing() -> None:
    assert not delivered(b": ping\n\n")
    assert delivered(RUNS, hermes=True)
    assert not delivered(RUNS)
    assert delivered(text("x"))
