"""The openai SDK for Python reads what we send: nothing raises that is not due, and it holds what our folds hold."""

import re
from collections.abc import Iterator

import pytest
from hypothesis import given

from tests.laws.generated import streams
from tests.support.corpus import Stream, load, needs_corpus, sampled

from .openai_python import read
from .report import PLACE
from .said import differences, truth
from .synthetic import STREAMS

SHOWN_MAX = 5


def wrong(upstream: bytes) -> list[str]:
    """Asked for usage and not; where that changes no byte, one reading answers for both."""
    without, asked = truth(upstream), truth(upstream, usage=True)
    reading = read(without.sent)
    again = reading if asked.sent == without.sent else read(asked.sent)
    return [*differences(reading, without), *(f"asked for usage: {each}" for each in differences(again, asked))]


@pytest.mark.parametrize("name", STREAMS)
def test_sdk_and_folds_agree_on_synthetic_streams(name: str) -> None:
    assert wrong(b"".join(STREAMS[name].upstream)) == []


@pytest.mark.parametrize("name", [name for name, stream in STREAMS.items() if stream.damage])
def test_sdk_reads_unrepaired_streams_wrong(name: str) -> None:
    """Or the test above would prove nothing."""
    upstream = b"".join(STREAMS[name].upstream)
    found = differences(read(upstream), truth(upstream))
    assert any(STREAMS[name].damage in each for each in found), found


def test_usage_chunk_is_sent_only_on_request() -> None:
    upstream = b"".join(STREAMS["usage chunk without choices"].upstream)
    assert read(truth(upstream).sent).usage is None
    assert read(truth(upstream, usage=True).sent).usage == truth(upstream).usage is not None


@pytest.mark.slow
@given(streams(noise=0, custom=False))
def test_sdk_and_folds_agree_on_generated_streams(upstream: bytes) -> None:
    """Leave out noise and custom tools: the helper raises on choice 1 before choice 0, and on every custom call."""
    assert wrong(upstream) == []


def captured() -> Iterator[tuple[int, Stream]]:
    """None where there is no corpus: the names of the tests hang on it."""
    return sampled(one_in=3) if load() else iter(())


def by_source() -> dict[str, list[Stream]]:
    """The captures of each repository, and so the work in pieces that can run side by side.

    All in `make laws` (and in `make conformance`), one of three in the default suite.
    """
    sources: dict[str, list[Stream]] = {}
    for _, stream in captured():
        sources.setdefault(stream.id.partition(":")[0], []).append(stream)
    return sources


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("source", by_source())
def test_sdk_and_folds_agree_on_captured_streams(source: str) -> None:
    found = [f"{stream.id}: {each}" for stream in by_source()[source] for each in wrong(stream.body)]
    assert not found, "\n".join([f"{len(found)} differences", *found[:SHOWN_MAX]])


@needs_corpus
@pytest.mark.slow
def test_document_lists_the_streams_that_end_with_an_error() -> None:
    listed = set(re.findall(r"^\| `(.+:.+)` \| `\w+` \|$", PLACE.read_text(encoding="utf-8"), re.MULTILINE))
    asked = dict(captured()).values()
    due = {stream.id for stream in asked if truth(stream.body).error_due}
    assert due == listed & {stream.id for stream in asked}, "`make conformance`"
    assert due
    assert listed <= {stream.id for stream in load()}, "`make conformance`"
