"""L5: every stream has exactly one ending, and for one that is not completed nothing is ever made up."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.support.chat import DONE, Run, run, tape
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.model import Ended, Ending, Finish, Usage
from wiretape.events.tape.record import Record

pytestmark = pytest.mark.slow

ENDINGS = get_args(Ending)
CAUSES = [
    "eof",
    "closed",
    "reset",
    "stalled",
    "limit",
    "client_gone",
    "shutdown",
    "crashed",
    "internal",
    "protocol",
    "",
]


def chunks(result: Run) -> list[dict[str, Any]]:
    """The JSON of every emitted frame, `[DONE]` left out."""
    payloads = [frame.partition(b"data: ")[2].strip() for frame in result.sent if frame != DONE]
    return [json.loads(payload) for payload in payloads]


def finishes(result: Run) -> list[str]:
    return [
        choice["finish_reason"]
        for chunk in chunks(result)
        for choice in chunk.get("choices", ())
        if choice["finish_reason"]
    ]


def check(records: list[Record], mode: str) -> None:
    result = run(records)
    assert [event for event in result.events if isinstance(event, Ended)] == [result.ended]
    assert isinstance(result.events[-1], Ended)
    ending = result.ended.ending
    assert ending in ENDINGS
    malformed = "malformed_call" in result.ended.flags
    whole = ending == "completed" and not malformed
    errors = [chunk["error"] for chunk in chunks(result) if "error" in chunk]
    if whole:
        assert result.sent[-1] == DONE
        assert not errors
    elif mode == "warn" and ending != "upstream_error":
        assert result.sent[-1] == DONE
        assert "length" in finishes(result)
    else:
        assert DONE not in result.sent
        assert len(errors) == 1
    assert result.sent.count(DONE) <= 1
    check_nothing_invented(result, mode, whole=whole)


def check_nothing_invented(result: Run, mode: str, *, whole: bool) -> None:
    """Finish reasons and usage on the wire are the upstream's, save the closers that were asked for or are owed."""
    given = [event.reason for event in result.of(Finish)]
    sent = finishes(result)
    if not whole and mode == "warn":
        closers = result.repairs.count("warn_finish")
        assert sent[len(sent) - closers :] == ["length"] * closers
        sent = sent[: len(sent) - closers]
    supplied = result.repairs.count("finish_supplied")
    assert whole or "malformed_call" in result.ended.flags or not supplied
    assert set(sent) <= set(given)
    assert len(sent) <= len(given)
    usages = [event.counts for event in result.of(Usage)]
    assert all(chunk["usage"] in usages for chunk in chunks(result) if chunk.get("usage"))


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_every_captured_stream_ends_once(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for number, stream in [*sampled(one_in=6)][part::8]:
        mode = ("error", "warn", "both")[number % 3]
        check(tape(stream.body, request={"stream": True, "n": None}, on_partial=mode), mode)


@pytest.mark.parametrize("delta", [b'{"reasoning":"data: "}', b'{"content":"data: [DONE]"}'])
def test_a_text_that_speaks_of_frames_ends_once(delta: bytes) -> None:
    """Seen with generated words: this test's own reading of frames took the last `data: ` for the field."""
    body = b'data: {"id":"c","object":"chat.completion.chunk","created":7,"model":"m","choices":[{"index":0,"delta":'
    check(tape(body + delta + b',"finish_reason":null}]}\n\n'), "error")


@given(
    body=streams() | agent_streams(),
    cut=st.integers(0, 2_000),
    cause=st.sampled_from(CAUSES),
    mode=st.sampled_from(["error", "warn", "both"]),
    tools=st.sampled_from(["live", "held"]),
    hermes=st.booleans(),
)
def test_any_stream_cut_anywhere_for_any_cause_ends_once(
    body: bytes, cut: int, cause: str, mode: str, tools: str, hermes: bool
) -> None:
    kept = body[: max(0, len(body) - cut)]
    check(tape(kept, cause=cause, on_partial=mode, tools=tools, hermes=hermes), mode)
