"""Sealing is pure and repeatable, for anything that a recorder makes."""

from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.variants import FULL
from tests.replay.canaries import CANARIES
from tests.replay.captured import each_protocol, recorded
from tests.replay.made import stream
from tests.replay.test_normalise import conversation
from tests.replay.test_sealed import tapes
from tests.support.corpus import sampled
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.replay.redaction.redact import findings, unmatched
from wiretape.replay.redaction.user_rules import Redaction
from wiretape.replay.seal import EXACT, Rules, seal
from wiretape.replay.sealed.files import parse
from wiretape.replay.sealed.sealed import decode

STRICT: Final = Rules(redaction=Redaction(paths=("messages[*].content",), prompts=True))


def again(data: bytes, rules: Rules | None = None) -> bytes:
    """A sealed tape sealed once more."""
    found = decode(data)
    return seal(found.streams, rules, headers=[found.header])


@pytest.mark.slow
@settings(max_examples=1_000 if FULL else 25)
@given(st.lists(tapes(long=300_000 if FULL else 3_000), min_size=1, max_size=2))
def test_any_recording_can_be_sealed_and_sealed_again(streams: list[list[Record]]) -> None:
    """Every text is looked through for secrets, many times: the long ones are as long in `make laws` alone."""
    sealed = seal(streams)
    assert seal(streams) == sealed
    assert again(sealed) == sealed
    assert seal(decode(seal(streams, EXACT)).streams) == sealed
    if unmatched(streams, STRICT.redaction):
        with pytest.raises(TapeError, match="Nothing matches"):
            again(sealed, STRICT)
        return
    strict = again(sealed, STRICT)
    assert again(strict, STRICT) == strict


@each_protocol
def test_captures_can_be_sealed_again(protocol: str) -> None:
    for seed, capture in sampled(protocol, one_in=40):
        sealed = seal([recorded(capture.body, protocol, seed)])
        assert again(sealed) == sealed, capture.id
        assert findings(parse(sealed).streams) == []


def test_header_keeps_earlier_redactions() -> None:
    sealed = seal(conversation(1), Rules(max_age_days=9, redaction=Redaction(paths=("model",))))
    header = parse(again(sealed, EXACT)).header
    assert header["exact"] is False
    assert header["max_age_days"] == 9
    assert header["redacted"]["paths"] == ["model"]
    assert "ids" in header["normalised"]
    both = parse(again(sealed, Rules(redaction=Redaction(paths=("messages[*].content",))))).header
    assert both["redacted"] == {"rules": ["headers", "names", "shapes"], "paths": ["messages[*].content", "model"]}


def test_header_with_a_secret_is_refused() -> None:
    key = CANARIES["openai"]
    for header in ({"redacted": {"paths": [key]}}, {"normalised": [key]}, {"redacted": {key: 1}}):
        with pytest.raises(TapeError, match="the header itself would hold a secret") as caught:
            seal([stream()], headers=[header])
        assert key not in str(caught.value)
    with pytest.raises(TapeError, match="the header itself"):
        seal([stream()], Rules(redaction=Redaction(paths=(key,))))


@pytest.mark.parametrize("created", [10**13, -(10**13), 10**17])
def test_time_outside_any_calendar(created: int) -> None:
    assert parse(seal([stream(created=created)])).header["recorded"] is None


def test_user_path_of_ids_and_without_matches() -> None:
    rules = Rules(redaction=Redaction(paths=("id",)))
    sealed = seal(conversation(1), rules)
    assert again(sealed, rules) == sealed
    with pytest.raises(TapeError, match="Nothing matches the path messages"):
        seal(conversation(1), Rules(redaction=Redaction(paths=("messages[*].contents",))))
