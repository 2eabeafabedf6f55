"""Any request is answered without an internal error."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.replay.dialects import ANSWERS, PATHS
from tests.replay.made import asked, sealed, stream
from wiretape.events.core.json_text import is_list, is_object
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import How
from wiretape.replay.playback.script import Request
from wiretape.replay.serving.serving import Serving, load_deck

pytestmark = pytest.mark.slow

#: Values that replace a member of a body.
JUNK: Sequence[Any] = (
    None, True, 0, -1, 1e308, 1 << 70, "", "\ud800", "\x00", "{", "[", [], {}, [[]], {"": {}}, [None], {"type": []},
    {"role": {}}, {"type": "tool_result", "content": {"a": 1}}, [1, "a", {"type": "text", "text": 3}],
)  # fmt: skip
MEMBERS = (
    "messages", "input", "tools", "system", "instructions", "id", "tool_call_id", "content", "arguments", "output",
    "type", "role", "metadata", "data", "\ud800",
)  # fmt: skip
MESSAGE: dict[str, Any] = {
    "role": "tool",
    "tool_call_id": "call_1",
    "content": '{"at":"2026-11-18T10:00:00Z"}',
    "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "x", "arguments": '{"a":1}'}}],
}
BODY = {
    "model": "m",
    "stream": True,
    "messages": [{"role": "system", "content": "Today"}, MESSAGE],
    "tools": [{"a": 1}],
}
HEADERS = (
    (b"X", b"\xff"), (b"Content-Encoding", b"gzip"), (b"Content-Encoding", b"br, gzip"), (b"Content-Encoding", b"\xfe"),
    (b"Content-Type", b"application/json; charset=utf-16"), (b"Content-Type", b"multipart/form-data; boundary="),
)  # fmt: skip
TARGETS = (
    *(path.encode() for path in PATHS.values()), b"/", b"*", b"?", b"http://x/v1/chat/completions", b"/v1/\xff\xfe",
    b"/v1/chat/completions?key=sk-abc&x=%ff", b"//v1//chat/completions", b"/t/1/v1/messages", b"/%00", b"a:b",
)  # fmt: skip


@st.composite
def values(draw: st.DrawFn, value: Any = None) -> Any:
    """Replace, drop or add members of a value."""
    if draw(st.integers(0, 7)) == 0:
        return draw(st.sampled_from(JUNK))
    if is_object(value):
        kept: dict[str, Any] = {name: draw(values(each)) for name, each in value.items() if draw(st.integers(0, 19))}
        if draw(st.integers(0, 7)) == 0:
            kept[draw(st.sampled_from(MEMBERS))] = draw(st.sampled_from(JUNK))
        return kept
    return [draw(values(each)) for each in value] if is_list(value) else value


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Draw any JSON, damaged or deeply nested, or other bytes."""
    match draw(st.integers(0, 5)):
        case 0:
            return draw(st.binary(max_size=200))
        case 1:
            return draw(st.sampled_from([b"[", b'{"a":', b'"'])) * draw(st.sampled_from([10, 101, 3_000, 50_000]))
        case kind:
            said = json.dumps(draw(values(BODY)), ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")
            if kind == 2:
                at = draw(st.integers(0, len(said)))
                said = said[:at] + draw(st.binary(max_size=9)) + said[at + draw(st.integers(0, 9)) :]
            return said


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("any") / "a.tape"
    path.write_bytes(sealed(*[stream(dialect=dialect) for dialect in ANSWERS]))
    return path


@given(
    body=bodies(),
    target=st.sampled_from(TARGETS),
    headers=st.lists(st.sampled_from(HEADERS), max_size=3),
    how=st.sampled_from(get_args(How)),
    faults=st.sampled_from([(), ("cut@tool:*",), ("rechunk=1",), ("error@finish",), ("status=503",), ("stall@text",)]),
)
@settings(max_examples=100)
def test_no_request_causes_an_internal_error(
    tape: Path, body: bytes, target: bytes, headers: list[tuple[bytes, bytes]], how: Any, faults: Sequence[str]
) -> None:
    lines: list[str] = []
    serving = Serving(load_deck([tape], how, repeat=True), Faults.of(faults), say=lines.append)
    serving.choose(Request(b"POST", target, headers, body))
    assert serving.choose(Request(b"POST", PATHS["chat"].encode(), (), asked("hi"))).status in (200, 503)
    assert [line for line in lines if "internal error" in line or "cannot be played" in line or "\n" in line] == []
