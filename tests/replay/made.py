"""Tapes for tests of playback, made without a proxy."""

from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from tests.replay.dialects import ANSWERS, PATHS
from wiretape.events.core.json_text import dumps
from wiretape.events.dialects import PLACES
from wiretape.events.tape.record import NO_KEYS, Record, encode
from wiretape.replay.check import check
from wiretape.replay.matching.match import Deck, How, Row, prepare_of
from wiretape.replay.playback.script import Script, as_played, event_stream
from wiretape.replay.seal import EXACT, seal
from wiretape.replay.sealed.files import Recording, parse


def asked(text: str, dialect: str = "chat", **more: Any) -> bytes:
    """Return the body of a request."""
    [conversation] = PLACES[dialect].words.conversation
    return dumps({"model": "m", "stream": True, conversation: [{"role": "user", "content": text}], **more})


def stream(
    script: Script | None = None, text: str = "hi", *, dialect: str = "chat", created: int = 1_795_000_000
) -> list[Record]:
    """Return a stream with this request and response."""
    body = asked(text, dialect)
    facts: dict[str, Any] = {"stream": True, "usage": True, "model": "m", "n": None, "tools": []}
    opened = {"format": 1, "stream": "s" * 32, "dialect": dialect, "created": created}
    headers = [["content-type", "application/json"]]
    request = {"method": "POST", "path": PATHS[dialect], "headers": headers, "facts": facts}
    begun = [
        Record(0, 0, "open", opened),
        Record(1, 0, "request", request, body, body, {"messages": []}),
        Record(2, 1_000, "attempt", {"number": 1, "upstream": "scripted"}),
    ]
    return as_played(begun, script or event_stream(ANSWERS[dialect], gap_s=0.5))


def sealed(*streams: Sequence[Record]) -> bytes:
    """Return a sealed tape with unchanged bytes."""
    return seal(streams, EXACT)


def codes(data: bytes) -> list[str]:
    """Return what `check` finds wrong with a tape."""
    return [each.code for each in check(Path("a.tape"), data, date(2026, 11, 18)) if each.wrong]


def checked(data: bytes) -> Recording:
    """Check that a sealed tape is in order and stays the same when it is sealed again; return it read."""
    recording = parse(data)
    assert seal(recording.streams, headers=[recording.header]) == data, "idempotent"
    assert codes(data) == []
    return recording


def live(records: Sequence[Record]) -> bytes:
    """Return a live tape."""
    return b"".join(map(encode, records))


def deck_of(
    streams: Sequence[Sequence[Record]],
    how: How = "key",
    header: Mapping[str, Any] = NO_KEYS,
    *,
    conversations: Sequence[int] = (),
    **more: Any,
) -> Deck:
    """Return a deck of streams, all of one conversation by default."""
    prepare = prepare_of(header)
    numbered = zip(streams, conversations or [0] * len(streams), strict=True)
    rows = [Row(records, f"stream {at}", number, prepare) for at, (records, number) in enumerate(numbered, 1)]
    return Deck(rows, how, **more)
