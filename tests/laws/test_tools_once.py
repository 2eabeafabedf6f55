"""L7: a call gets at most one `running` and one terminal frame, in that order; internal tools and orphans none."""

import json
from collections import defaultdict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, tool_streams
from tests.support.chat import Run, run, tape
from tests.support.corpus import needs_corpus, sampled

pytestmark = pytest.mark.slow

ALLOWED = [["running"], ["dropped"]]
#: Of a tool that the upstream runs itself; a call of the client with the same id may have been dropped before it.
RAN = [["running", "completed"], ["running", "failed"], ["running", "dropped"]]


def statuses(result: Run) -> dict[str, list[str]]:
    """Return the statuses of each call id, in order."""
    told: dict[str, list[str]] = defaultdict(list)
    for frame in result.sent:
        if frame.startswith(b"event: hermes.tool.progress\n"):
            payload = json.loads(frame.partition(b"data: ")[2])
            assert payload["choices"][0]["delta"] == {}
            assert not payload["tool"].startswith("_")
            told[payload["toolCallId"]].append(payload["status"])
    return told


def check(result: Run) -> None:
    told = statuses(result)
    assert all(order in ALLOWED for order in told.values()), told
    calls = [call for call in result.wire.calls() if call.name and not call.internal]
    assert set(told) == {call.id for call in calls}


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_every_captured_call_is_reported_once(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for _, stream in [*sampled(one_in=6)][part::8]:
        check(run(tape(stream.body, request={"stream": True, "n": None})))


@given(
    body=tool_streams(),
    cut=st.integers(0, 800),
    mode=st.sampled_from(["error", "warn", "both"]),
    tools=st.sampled_from(["live", "held"]),
)
def test_every_call_of_any_cut_stream_is_reported_once(body: bytes, cut: int, mode: str, tools: str) -> None:
    check(run(tape(body[: max(0, len(body) - cut)], on_partial=mode, tools=tools)))


@given(
    body=agent_streams(),
    cut=st.integers(0, 800),
    mode=st.sampled_from(["error", "warn", "both"]),
    tools=st.sampled_from(["live", "held"]),
)
def test_each_call_of_an_agent_has_one_beginning_and_one_end(body: bytes, cut: int, mode: str, tools: str) -> None:
    result = run(tape(body[: max(0, len(body) - cut)], on_partial=mode, tools=tools, hermes=True))
    told = statuses(result)
    ran = {call.id: call for call in result.wire.ran.values() if not call.internal}
    for call_id, order in told.items():
        assert order in (RAN if call_id in ran else ALLOWED), told
    assert set(ran) <= set(told)
    off = run(tape(body, tool_events=False, hermes=True))
    assert (statuses(off), off.wire.ran.keys()) == ({}, run(tape(body, hermes=True)).wire.ran.keys())


@given(body=tool_streams())
def test_the_switch_turns_the_frames_off_and_nothing_else(body: bytes) -> None:
    on, off = run(tape(body)), run(tape(body, tool_events=False))
    assert not statuses(off)
    assert off.sent == [frame for frame in on.sent if not frame.startswith(b"event:")]
