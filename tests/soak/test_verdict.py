"""The soak's judges go red when they must."""

import hashlib
from pathlib import Path

import pytest

from wiretape.events.tape.record import encode
from wiretape.events.tape.tape import Recorder

from .__main__ import Sample, growth_mb, slope_mb_h
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


def test_a_client_that_got_what_the_tape_says_is_right(tmp_path: Path) -> None:
    _tape(tmp_path)
    found = checked(tmp_path, [_received(_BODY)])
    assert (found.tapes, found.compared, found.wrong) == (1, 1, [])


def test_a_client_that_left_had_the_beginning(tmp_path: Path) -> None:
    _tape(tmp_path)
    assert checked(tmp_path, [_received(_BODY[:50], whole=False, left=True)]).wrong == []


@pytest.mark.parametrize(
    ("received", "fault"),
    [
        pytest.param(_received(_BODY.replace(b"one", b"two")), "other bytes", id="other bytes of the same length"),
        pytest.param(_received(_BODY + _FRAMES), "the client got", id="more than the tape emits"),
        pytest.param(_received(_FRAMES), "the client got", id="less, though it read to the end"),
        pytest.param(_received(b"elsewhere", left=True, whole=False), "other bytes", id="left with other bytes"),
        pytest.param(_received(_BODY, status=500), "the tape says 200", id="another status"),
        pytest.param(_received(_BODY, whole=False), "was cut", id="all bytes, and then a cut"),
    ],
)
def test_difference_from_the_tape_is_reported(tmp_path: Path, received: Received, fault: str) -> None:
    _tape(tmp_path)
    (wrong,) = checked(tmp_path, [received]).wrong
    assert fault in wrong


def test_damaged_tape_is_reported(tmp_path: Path) -> None:
    path = _tape(tmp_path)
    path.write_bytes(path.read_bytes().replace(b'"one"', b'"two"'))
    assert any("damage" in wrong for wrong in checked(tmp_path, []).wrong)


def test_internal_ending_is_reported(tmp_path: Path) -> None:
    _tape(tmp_path, "internal")
    assert any("internal" in wrong for wrong in checked(tmp_path, []).wrong)


def test_stream_without_a_tape_is_reported(tmp_path: Path) -> None:
    assert checked(tmp_path, [_received(_BODY)]).wrong == ["s1: no tape"]


def test_growth_and_slope_are_those_after_the_warm_up() -> None:
    flat = [Sample(5.0 * n, 60.0 if n > 29 else 30.0 + n, 0, 0) for n in range(120)]
    assert growth_mb(flat) == 0
    assert slope_mb_h(flat) == 0
    leaking = [Sample(5.0 * n, 60 + n / 30, 0, 0) for n in range(120)]
    assert growth_mb(leaking) == pytest.approx(2.0)
    assert slope_mb_h(leaking) == pytest.approx(24.0)
