"""Tapes of every format are read for ever: those in fixtures/."""

from pathlib import Path
from typing import Final

import pytest

from tests.support.make_fixtures import FOLDER, TAPES, UPSTREAM
from wiretape.events.tape.record import FORMAT, encode
from wiretape.events.tape.tape import Reader, reads


def test_there_is_a_tape_of_each_format() -> None:
    folders = sorted(path.name for path in FOLDER.parent.glob("format-*"))
    assert folders == [f"format-{version}" for version in range(1, FORMAT + 1)]


def test_the_fixtures_are_what_their_script_writes() -> None:
    assert {path.name: path.read_bytes() for path in FOLDER.iterdir()} == {
        f"{name}.tape": TAPES[name] for name in TAPES
    }


@pytest.mark.parametrize(
    "path", sorted(FOLDER.parent.glob("format-*/*.tape")), ids=lambda path: f"{path.parent.name}/{path.stem}"
)
def test_a_tape_of_any_format_is_read_without_damage(path: Path) -> None:
    reader = Reader()
    records = reader.feed(path.read_bytes())
    cause, upstream = UPSTREAM[path.stem]

    assert (reader.damage, reader.torn, reader.ended) == ([], b"", True)
    assert [record.kind for record in records if record.kind not in ("frame", "rest", "commit")] == [
        "open", "request", "attempt", "head", "end",
    ]  # fmt: skip
    assert list(reads(records)) == [(300_000 + 20_000 * number, data) for number, data in enumerate(upstream)]
    assert records[-1].keys["cause"] == cause
    assert records[0].keys["format"] == int(path.parent.name.removeprefix("format-"))
    if path.parent == FOLDER.parent / f"format-{FORMAT}":
        assert b"".join(map(encode, records)) == path.read_bytes()


#: Of every tape of format 1: its frames as n, event, payload.
FRAMES: Final = {
    "text": [(4, b"", '"content":""'), (6, b"", '"content":"Grüße, "'), (7, b"", '"content":"🐍"'), (8, b"", '"stop"'),
             (9, b"", "[DONE]")],
    "tool_call": [(4, b"", '"name":"write_file"'), (6, b"", r'{\"path\":\"a.txt\",'), (7, b"", "12345678901234567890"),
                  (8, b"", '"tool_calls"}'), (9, b"", "[DONE]")],
    "framing": [(4, b"", None), (6, b"", None), (7, b"message", '"content":"a"'),
                (8, b"message", '"content":"b"'), (9, b"", '.chunk",\n"choices'), (10, b"", None), (11, b"", ""),
                (12, b"", '"stop"'), (13, b"", "[DONE]")],
    "not_utf_8": [(4, b"", None), (5, b"\xff", "{}"), (6, b"", r'"\ud83d"'), (7, b"", "\udcc3"), (9, b"", "\0")],
    "cut": [(4, b"", "half an ans")],
}  # fmt: skip

RESTS: Final = {
    "not_utf_8": [b"\xfe\xff"],
    "cut": [b'data: {"id":"chatcmpl-1","choices":[{"index":0,"delta":{"content":"w'],
}


@pytest.mark.parametrize(("name", "frames"), FRAMES.items(), ids=FRAMES.keys())
def test_what_the_tapes_of_format_1_hold(name: str, frames: list[tuple[int, bytes, str | None]]) -> None:
    records = Reader().feed((FOLDER / f"{name}.tape").read_bytes())
    found = [(record.n, record.frame()) for record in records if record.kind == "frame"]
    assert [(n, frame.event) for n, frame in found] == [(n, event) for n, event, _ in frames]
    for (_, frame), (_, _, part) in zip(found, frames, strict=True):
        text = None if frame.payload is None else frame.payload.decode(errors="surrogateescape")
        assert (text is None) == (part is None)
        assert (part or "") in (text or "")
    rest = [record.raw for record in records if record.kind == "rest"]
    assert rest == RESTS.get(name, [])
