"""Any bytes on a connection are answered or refused, without an internal error or the end of the server."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair

from tests.replay.dialects import ANSWERS, PATHS
from tests.replay.made import asked, sealed, stream
from wiretape.events.core.json_text import is_list, is_object
from wiretape.replay.faults.faults import Faults
from wiretape.replay.matching.match import HOWS
from wiretape.replay.playback.script import Request, Script
from wiretape.replay.playback.server import Upstream
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
LINES = (
    b"Connection: close", b"Connection: upgrade", b"Upgrade: websocket", b"Expect: 100-continue", b"X: \xff", b"a:b",
    b"Content-Encoding: gzip", b"Content-Encoding: br, gzip", b"Content-Encoding: \xfe", b"Host: y",
    b"Content-Type: application/json; charset=utf-16", b"Content-Type: multipart/form-data; boundary=",
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


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """Draw the bytes of a request, which may be invalid."""
    method = draw(st.sampled_from([b"POST"] * 6 + [b"GET", b"HEAD", b"CONNECT", b"OPTIONS", b"x"]))
    version = draw(st.sampled_from([b"1.1"] * 6 + [b"1.0", b"0.9", b"2.0", b"9.9"]))
    body, lines = draw(bodies()), [b"Host: x", *draw(st.lists(st.sampled_from(LINES), max_size=3))]
    if draw(st.integers(0, 5)) == 0:
        lines.append(b"Transfer-Encoding: chunked")
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if draw(st.integers(0, 4)) else body
    else:
        lines.append(b"Content-Length: %d" % max(0, len(body) + draw(st.sampled_from([0] * 8 + [1, -1]))))
    said = b"%b %b HTTP/%b\r\n%b\r\n\r\n%b" % (
        method,
        draw(st.sampled_from(TARGETS)),
        version,
        b"\r\n".join(lines),
        body,
    )
    if draw(st.integers(0, 5)) == 0:
        at = draw(st.integers(0, min(len(said), 200)))
        said = said[:at] + draw(st.binary(max_size=5)) + said[at + draw(st.integers(0, 5)) :]
    return said


GOOD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (
    len(asked("hi")),
    asked("hi"),
)


async def heard(upstream: Upstream, sent: Sequence[bytes], *, half_closed: bool) -> bytes:
    """Return what a client reads after sending these bytes."""
    ours, theirs = memory_stream_pair()
    received = bytearray()

    async def send() -> None:
        with suppress(trio.BrokenResourceError):  # refused
            for data in sent:
                await ours.send_all(data)
                await trio.sleep(1)
            if half_closed:
                await ours.send_eof()

    async def receive() -> None:
        async for data in ours:
            received.extend(data)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.serve, theirs)
        with trio.move_on_after(1_000):
            async with trio.open_nursery() as client:
                client.start_soon(send)
                client.start_soon(receive)
        await ours.aclose()
    return bytes(received)


@pytest.fixture(scope="module")
def tape(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("any") / "a.tape"
    path.write_bytes(sealed(*[stream(dialect=dialect) for dialect in ANSWERS]))
    return path


@given(
    sent=st.lists(requests(), min_size=1, max_size=3),
    how=st.sampled_from(HOWS),
    faults=st.sampled_from([(), ("cut@tool:*",), ("rechunk=1",), ("error@finish",), ("status=503",), ("stall@text",)]),
    half_closed=st.booleans(),
)
@settings(max_examples=150)
def test_no_request_causes_an_internal_error(
    tape: Path, sent: list[bytes], how: Any, faults: Sequence[str], half_closed: bool
) -> None:
    lines: list[str] = []
    deck = load_deck([tape], how, repeat=True)
    serving, healthy = (Serving(deck, each, say=lines.append) for each in (Faults.of(faults), Faults()))
    current = [serving]

    def choose(request: Request) -> Script:
        return current[-1].choose(request)

    upstream = Upstream(choose, say=lines.append, ended=serving.ended)

    async def main() -> None:
        said = await heard(upstream, sent, half_closed=half_closed)
        assert not said or said.startswith(b"HTTP/1.1 ")
        current.append(healthy)
        assert (await heard(upstream, [GOOD], half_closed=False)).startswith(b"HTTP/1.1 200 OK\r\n")

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [line for line in lines if "internal error" in line or "cannot be played" in line or "\n" in line] == []
