"""L8: every difference between what came and what was emitted is a named repair that points at the record it changed.

`run` holds the law itself (tests/support/chat.py): applied in order, the entries of each record turn the frame as it
came into exactly what was emitted for it, and a frame without entries is the very object that came.
"""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.laws.generated import agent_streams, streams
from tests.support.chat import run, tape
from tests.support.corpus import needs_corpus, sampled

pytestmark = pytest.mark.slow

SETTINGS: list[dict[str, Any]] = [
    {"on_partial": mode, "tools": tools, "reasoning": reasoning}
    for mode in ("error", "warn", "both")
    for tools in ("live", "held")
    for reasoning in ("reasoning_content", "reasoning", "as_is")
]


@needs_corpus
@pytest.mark.parametrize("part", range(8))
def test_of_every_captured_stream(part: int) -> None:
    """All in `make laws`, one of six in the default suite."""
    for number, stream in [*sampled(one_in=6)][part::8]:
        run(tape(stream.body, request={"stream": True, "n": None}, **SETTINGS[number % len(SETTINGS)]))


@given(body=streams() | agent_streams(), settings=st.sampled_from(SETTINGS), usage=st.booleans(), hermes=st.booleans())
def test_of_any_stream(body: bytes, settings: dict[str, Any], usage: bool, hermes: bool) -> None:
    request = {"stream": True, "stream_options": {"include_usage": usage}}
    run(tape(body, request=request, hermes=hermes, **settings))
