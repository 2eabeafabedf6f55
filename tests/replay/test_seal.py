"""Sealing is pure and repeatable, for anything that a recorder makes."""

import re
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.laws.variants import FULL
from tests.replay.canaries import CANARIES
from tests.replay.captured import recorded
from tests.replay.made import stream
from tests.replay.test_normalise import conversation
from tests.replay.test_sealed import tapes
from tests.support.corpus import needs_corpus, sampled
from wiretape.events.core.errors import TapeError
from wiretape.events.tape.record import Record
from wiretape.replay.playback.script import event_stream
from wiretape.replay.redaction.redact import findings, unmatched
from wiretape.replay.redaction.user_rules import Redaction
from wiretape.replay.seal import EXACT, Rules, in_order, key_of_record, seal
from wiretape.replay.sealed.files import parse

STRICT: Final = Rules(redaction=Redaction(paths=("messages[*].content",), prompts=True))


def again(data: bytes, rules: Rules | None = None) -> bytes:
    """A sealed tape sealed once more."""
    found = parse(data)
    return seal(found.streams, rules, headers=[found.header])


@pytest.mark.slow
@settings(max_examples=1_000 if FULL else 25)
@given(st.lists(tapes(long=300_000 if FULL else 3_000), min_size=1, max_size=2))
def test_any_recording_can_be_sealed_and_sealed_again(streams: list[list[Record]]) -> None:
    """Every text is looked through for secrets, many times: the long ones are as long in `make laws` alone."""
    sealed = seal(streams)
    assert seal(streams) == sealed
    assert again(sealed) == sealed
    assert seal(parse(seal(streams, EXACT)).streams) == sealed
    if unmatched(streams, STRICT.redaction):
        with pytest.raises(TapeError, match="Nothing matches"):
            again(sealed, STRICT)
        return
    strict = again(sealed, STRICT)
    assert again(strict, STRICT) == strict


def test_keys_named_like_ours_stay() -> None:
    sealed = seal([[Record(0, 0, "request", keys={"split": 1, "headers": 1})]])
    assert again(sealed) == sealed


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_conversation(dialect: str) -> None:
    streams = conversation(dialect, 1)
    sealed = seal(streams)
    assert again(sealed) == sealed == again(seal(streams, EXACT))
    found = parse(sealed)
    assert found.header["exact"] is False
    assert found.header["normalised"] == [
        "created", "fingerprint", "ids", "obfuscation", "ports", "rate_limits", "request_ids", "results"
    ]  # fmt: skip


@needs_corpus
@pytest.mark.slow
@pytest.mark.parametrize("protocol", ["chat", "responses", "anthropic"])
def test_captures_can_be_sealed_again(protocol: str) -> None:
    for seed, capture in sampled(protocol, one_in=40):
        sealed = seal([recorded(capture.body, protocol, seed)])
        assert again(sealed) == sealed, capture.id
        assert findings(parse(sealed).streams) == []


def test_header_keeps_earlier_redactions() -> None:
    sealed = seal(conversation("chat", 1), Rules(max_age_days=9, redaction=Redaction(paths=("model",))))
    header = parse(again(sealed, EXACT)).header
    assert header["exact"] is False
    assert header["max_age_days"] == 9
    assert header["redacted"]["paths"] == ["model"]
    assert "ids" in header["normalised"]
    both = parse(again(sealed, Rules(redaction=Redaction(paths=("messages[*].content",))))).header
    assert both["redacted"] == {"rules": ["headers", "names", "shapes"], "paths": ["messages[*].content", "model"]}


@pytest.mark.parametrize("said", [[[]], [{}, 1, "x"], {}, 7, None])
def test_edited_header_is_read_as_far_as_possible(said: Any) -> None:
    header = {"normalised": said, "redacted": {"rules": said, "paths": said}, "max_age_days": said}
    new = parse(seal([stream()], headers=[header])).header
    assert all(isinstance(name, str) for name in [*new["normalised"], *new["redacted"]["rules"]])


@pytest.mark.parametrize("dialect", [[], {}, ["chat"], 1, None])
def test_dialect_of_another_type(dialect: Any) -> None:
    records = stream()
    records[0] = records[0]._replace(keys={**records[0].keys, "dialect": dialect})
    for rules in (None, Rules(exact=True)):
        assert parse(seal([records, stream()], rules)).header["streams"] == 2


@pytest.mark.parametrize("kind", ["[]", "{}", "1"])
def test_frame_type_of_another_type(kind: str) -> None:
    frames = [b'data: {"type":%b,"delta":{}}\n\n' % kind.encode()] * 2
    for dialect in ("chat", "responses", "messages"):
        assert seal([stream(event_stream(frames), dialect=dialect)])


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
    sealed = seal(conversation("chat", 1), rules)
    assert again(sealed, rules) == sealed
    with pytest.raises(TapeError, match="Nothing matches the path messages"):
        seal(conversation("chat", 1), Rules(redaction=Redaction(paths=("messages[*].contents",))))


def test_recording_without_changes_is_exact() -> None:
    records = [Record(0, 0, "open", {"format": 1, "dialect": ""}), Record(1, 0, "novel", {"a": 1}, b"plain")]
    assert parse(seal([records])).header["exact"] is True


def _asked(body: bytes, **keys: Any) -> Record:
    return Record(1, 0, "request", {"method": "POST", "path": "/v1/chat/completions", **keys}, body or None)


def test_key_ignores_the_secret() -> None:
    bodies = [
        b'{"model":"m","messages":[{"role":"user","content":"use %b"}]}' % key.encode() for key in CANARIES.values()
    ]
    for body in bodies:
        opened = Record(0, 0, "open", {"format": 1, "dialect": "chat"})
        [records] = parse(seal([[opened, _asked(body)]])).streams
        assert records[1].keys["key"] == key_of_record(_asked(body)) == key_of_record(records[1])
    assert len({key_of_record(_asked(body)) for body in bodies}) < len(bodies), "of one vendor they are alike"
    assert key_of_record(_asked(b"", sha256="ab" * 32)) is not None
    assert key_of_record(Record(1, 0, "request", {"method": "POST"})) is None


def test_refusal_names_places_of_secrets() -> None:
    record = Record(0, 0, "novel", {"a": [CANARIES["groq"]] * 9}, CANARIES["npm"].encode())
    with pytest.raises(TapeError) as refused:
        seal([[record]], EXACT)
    said = str(refused.value)
    assert re.search(
        r"would hold 10 secrets \(groq 9, npm 1\): stream 1 record 0, stream 1 record 0 a, .*, \.\.\.$", said
    )
    assert not any(secret[:12] in said for secret in CANARIES.values())


def test_streams_are_ordered_by_their_beginning() -> None:
    def begun(**keys: int) -> list[Record]:
        return [Record(0, 0, "open", keys)]

    streams = [begun(created=3), begun(created=2, created_us=2_000_001), begun(created_us=2_000_000), begun()]
    assert in_order(streams) == [streams[3], streams[2], streams[1], streams[0]]
