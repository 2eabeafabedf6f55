"""The verdict of the soak fails on each fault."""

import hashlib
from pathlib import Path

import pytest

from wiretape.events.tape.record import encode
from wiretape.events.tape.tape import Recorder

from .__main__ import Sample, growth_mb
from .clients import Received
from .tapes import checked

_FRAMES = b"".join(
    b'data: {"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":%b}]}\n\n'
    % delta
    for delta in (b'{"role":"assistant","content":"one"},"finish_reason":null', b'{},"finish_reason":"stop"')
)
_BODY = _FRAMES + b"data: [DONE]\n\n"


def _tape(folder: Path, ending: str = "completed") -> Path:
    recorder = Recorder()
    records = [
        recorder.record("open", 0, {"format": 1, "stream": "s1", "dialect": "chat", "created": 1}),
        recorder.record("request", 0, {"facts": {"stream": True}}),
        *recorder.read(1, _BODY),
        recorder.record("commit", 2, {"status": 200}),
        recorder.end(3, {"cause": "closed", "ending": ending, "flags": []}),
    ]
    path = folder / "2026-11-18" / "s1.tape"
    path.parent.mkdir()
    path.write_bytes(b"".join(map(encode, records)))
    return path


def _received(body: bytes, *, status: int = 200, whole: bool = True, left: bool = False) -> Received:
    return Received("s1", "text", "read", status, whole, left, len(body), hashlib.sha256(body).hexdigest())


@pytest.mark.parametrize(
    ("received", "fault"),
    [
        (_received(_BODY), ""),
        (_received(_BODY[:50], whole=False, left=True), ""),  # it left early
        (_received(_BODY.replace(b"one", b"two")), "other bytes"),
        (_received(_BODY + _FRAMES), "the client got"),
        (_received(_FRAMES), "the client got"),  # though it read to the end
        (_received(b"elsewhere", left=True, whole=False), "other bytes"),
        (_received(_BODY, status=500), "the tape says 200"),
        (_received(_BODY, whole=False), "was cut"),
    ],
)
def test_difference_from_the_tape_is_reported(tmp_path: Path, received: Received, fault: str) -> None:
    _tape(tmp_path)
    found = checked(tmp_path, [received])
    assert (found.tapes, found.compared, len(found.wrong)) == (1, 1, bool(fault))
    assert fault in "".join(found.wrong)


def test_tape_is_damaged_missing_or_ends_in_a_bug(tmp_path: Path) -> None:
    assert checked(tmp_path, [_received(_BODY)]).wrong == ["s1: no tape"]
    path = _tape(tmp_path, "internal")
    assert any("internal" in wrong for wrong in checked(tmp_path, []).wrong)
    path.write_bytes(path.read_bytes().replace(b'"one"', b'"two"'))
    assert any("damage" in wrong for wrong in checked(tmp_path, []).wrong)


def test_growth_is_that_after_the_warm_up() -> None:
    assert growth_mb([Sample(5.0 * n, 60.0 if n > 29 else 30.0 + n, 0, 0) for n in range(120)]) == 0
    assert growth_mb([Sample(5.0 * n, 60 + n / 30, 0, 0) for n in range(120)]) == pytest.approx(2.0)
