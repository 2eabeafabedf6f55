"""Prefixes of conversations: each once, as faults that leave exactly these bytes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tapes import Turn, asking, exchange, records_of, text
from wiretape.replay.faults.cutting import Prefix, prefixes_of
from wiretape.replay.faults.faults import Faults
from wiretape.replay.playback.player import script_of
from wiretape.replay.playback.script import Script

ONE = records_of(text("hi", "a"))
SIZES = [len(record.raw or b"") for record in ONE if record.kind == "frame"]


def said(script: Script) -> bytes:
    return b"".join(step.what for step in script.steps if isinstance(step.what, bytes))


def test_an_unknown_unit_is_an_error() -> None:
    other: Any = "words"
    with pytest.raises(ValueError, match="prefixes are of frames or bytes, not 'words'"):
        prefixes_of([ONE], other)


def test_prefixes_by_frame() -> None:
    assert prefixes_of([ONE], "frames") == [
        Prefix(0, 0, 0),
        Prefix(0, SIZES[0], 1),
        Prefix(0, sum(SIZES[:2]), 2),
        Prefix(0, sum(SIZES), 3),
    ]


def test_each_stream_of_a_conversation_has_prefixes() -> None:
    found = prefixes_of([ONE, ONE], "frames")
    assert [prefix.stream for prefix in found] == [0] * 4 + [1] * 4
    assert [str(prefix) for prefix in found[3:5]] == [f"stream1-byte{sum(SIZES)}", "stream2-byte0"]


def test_a_json_response_is_one_frame() -> None:
    answer = [records_of(exchange("/v1/embeddings", asking(), b'{"a":1}'))]
    assert prefixes_of(answer, "frames") == [Prefix(0, 0, 0), Prefix(0, 7, 1)]
    assert prefixes_of(answer, "bytes") == [*(Prefix(0, at, 0) for at in range(7)), Prefix(0, 7, 1)]


@given(st.lists(st.binary(min_size=1, max_size=20), max_size=6))
def test_each_prefix_is_a_fault_that_leaves_its_bytes(reads: list[bytes]) -> None:
    records = records_of(Turn(asking(), [(0.0, data) for data in reads]))
    whole, script = b"".join(reads), script_of(records)
    found = prefixes_of([records], "bytes")
    assert [prefix.bytes for prefix in found] == list(range(len(whole) + 1))
    for prefix in found:
        cut, _ = Faults.of([prefix.fault("cut")]).over(script, 0)
        assert said(cut) == whole[: prefix.bytes]
