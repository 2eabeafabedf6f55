"""The scripted upstream: chunks, persistent connections and every ending as the client meets it."""

import re
from collections.abc import Sequence
from contextlib import suppress

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, memory_stream_pair

from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream, json_answer
from wiretape.replay.playback.server import Served, Upstream, listening

GET = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


def always(script: Script) -> Upstream:
    return Upstream(lambda _: script)


async def said_by(upstream: Upstream, *sent: bytes, seconds: float = 60) -> bytes:
    """Return everything that a client reads after sending these bytes, a second apart."""
    ours, theirs = memory_stream_pair()
    received = bytearray()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(upstream.serve, theirs)
        nursery.start_soon(_send, ours, sent)
        with trio.move_on_after(seconds):
            async for data in ours:
                received += data
        await ours.aclose()
    return bytes(received)


async def _send(stream: trio.abc.Stream, sent: Sequence[bytes]) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        for data in sent:
            await stream.send_all(data)
            await trio.sleep(1)


#: A script, what the client sends, and what it reads.
ON_THE_WIRE: dict[str, tuple[Script, bytes, bytes]] = {
    "each step is one chunk": (
        event_stream([b"data: 1\n\n", b"", b"data: 2\n\n"]),
        POST,
        EVENTS + b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n",
    ),
    "a cut": (event_stream([b"data: 1\n\n"], end=Fault.CUT), POST, EVENTS + b"9\r\ndata: 1\n\n\r\n"),
    "steps after a fault": (Script(steps=[Step(0, Fault.CUT), Step(0, b"never")]), POST, EVENTS),
    "a reset without a socket is a cut": (event_stream([], end=Fault.RESET), POST, EVENTS),
    "a length": (
        json_answer(b"{}", 404),
        POST,
        b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    ),
    "a client that says close": (
        json_answer(b"{}"),
        GET.replace(b"Host", b"Connection: close\r\nHost") + GET,
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
    ),
    "HTTP/1.0 knows no chunks": (
        event_stream([b"data: 1\n\n", b"data: 2\n\n"]),
        b"GET /v1/models HTTP/1.0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: 1\n\ndata: 2\n\n",
    ),
    "a body that the close ends": (
        Script(steps=[Step(0, b"x")], closes=True),
        GET + GET,
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\nx",
    ),
    "a status without a body": (
        Script(status=204, headers=[], steps=[Step(0, b"never")]),
        GET + GET,
        b"HTTP/1.1 204 No Content\r\n\r\n" * 2,
    ),
    "not modified with a length": (
        Script(status=304, headers=[(b"Content-Length", b"7")]),
        GET,
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n",
    ),
    "garbage instead of a chunk": (
        event_stream([b"x"], end=Fault.GARBAGE),
        GET,
        EVENTS + b"1\r\nx\r\nthis is not HTTP\r\n",
    ),
    "garbage instead of a head": (Script(unanswered=Fault.GARBAGE), GET, b"this is not HTTP\r\n"),
    "no response": (Script(unanswered=Fault.CUT), GET, b""),
    "HEAD of a chunked response": (
        event_stream([b"x"]),
        GET.replace(b"GET", b"HEAD"),
        EVENTS,
    ),
}


@pytest.mark.parametrize("case", ON_THE_WIRE)
async def test_scripts_on_the_wire(case: str, autojump_clock: MockClock) -> None:
    script, asked, due = ON_THE_WIRE[case]
    assert await said_by(always(script), asked) == due


async def test_pipelined_requests_are_answered_in_order(autojump_clock: MockClock) -> None:
    upstream = Upstream(lambda request: json_answer(request.target))
    said = await said_by(upstream, GET + GET.replace(b"models", b"others"), GET)
    targets = [b"/v1/models", b"/v1/others", b"/v1/models"]
    assert [part.partition(b"\r\n\r\n")[2] for part in said.split(b"HTTP/1.1 ")[1:]] == targets
    assert [outcome.ended for outcome in upstream.seen] == ["ended"] * 3


async def test_chunked_requests_and_expect_100_continue(autojump_clock: MockClock) -> None:
    upstream = always(json_answer(b""))
    head = POST.partition(b"Content-Length")[0]
    said = await said_by(
        upstream,
        head + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        head + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        b"[]",
    )
    assert b"100 Continue" in said
    assert [outcome.request.body for outcome in upstream.seen] == [b"{}", b"[]"]


REFUSED = {
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00", 400, "This is not HTTP. The port does not use TLS."),
    "a header with a key and half a character": (
        GET[:-2] + b"x: sk-\xff\x00\r\n\r\n",
        400,
        "A header is folded, has no name or contains a control character.",
    ),
    "an invalid chunk": (
        GET[:-2] + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n",
        400,
        "The request body is not HTTP/1.1: illegal chunk size.",
    ),
    "a head without end": (GET[:-2] + b"x: y\r\n" * 20_000, 431, "The request head is longer than 65536 bytes."),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_invalid_requests_are_refused_with_a_line(case: str, autojump_clock: MockClock) -> None:
    sent, status, why = REFUSED[case]
    lines: list[str] = []
    upstream = Upstream(lambda _: json_answer(b"{}"), say=lines.append)
    head, _, body = (await said_by(upstream, sent)).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status)
    assert head.endswith(b"Connection: close")
    assert (len(lines), lines[0].startswith(f"refused -> {status}: {why}")) == (1, True), lines
    assert body.decode() == f"wiretape: {lines[0].partition(': ')[2]}\n"
    assert b"sk-" not in body
    assert upstream.seen == []


async def test_server_that_reports_lines_keeps_no_requests(autojump_clock: MockClock) -> None:
    upstream = Upstream(lambda _: json_answer(b"{}"), say=print)
    assert (await said_by(upstream, GET)).startswith(b"HTTP/1.1 200 ")
    assert upstream.seen == []


@given(sent=st.binary(max_size=40), at=st.integers(0, len(POST)))
def test_any_bytes_are_answered_or_refused(sent: bytes, at: int) -> None:
    lines: list[str] = []

    async def main() -> None:
        upstream = Upstream(lambda _: json_answer(b"{}"), say=lines.append)
        said = await said_by(upstream, POST[:at] + sent + POST[at:], GET)
        assert not said or said.startswith(b"HTTP/1.1 ")

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert [line for line in lines if not line.startswith("refused -> ")] == []


@pytest.mark.parametrize("apart", [False, True])
async def test_a_client_that_leaves_a_socket_ends_its_response(apart: bool) -> None:
    ended: list[Served] = []
    over = trio.Event()

    def told(outcome: Served) -> None:
        ended.append(outcome)
        over.set()

    script = Script(steps=[Step(0, b"x" * 100_000)] * 500, apart=apart)
    async with listening(lambda _: script, ended=told) as (url, _):
        client = await trio.open_tcp_stream("127.0.0.1", _port(url))
        await client.send_all(GET)
        await client.receive_some(10)
        await client.aclose()
        with trio.fail_after(10):
            await over.wait()
    [outcome] = ended
    assert (outcome.ended, outcome.due) == ("left", 500)
    assert outcome.pieces < 400
    assert outcome.bytes == outcome.pieces * 100_000


async def test_a_client_that_keeps_sending_reads_the_refusal() -> None:
    async with (
        listening(lambda _: json_answer(b"{}"), say=lambda _: None) as (url, _),
        await trio.open_tcp_stream("127.0.0.1", _port(url)) as client,
    ):
        await client.send_all(GET[:-2] + b"x: y\r\n" * 100_000)
        assert (await client.receive_some()).startswith(b"HTTP/1.1 431 ")
        assert await client.receive_some() == b""


async def test_an_internal_error_resets_only_its_connection() -> None:
    lines: list[str] = []
    broken = Script(headers=[(b"content-type", "no bytes")])  # type: ignore[list-item] # an error of ours

    def choose(request: Request) -> Script:
        assert b"raise" not in request.target, "what was asked"
        return broken if b"broken" in request.target else event_stream([b"x", b"y"], gap_s=0.1)

    async with listening(choose, say=lines.append) as (url, _), trio.open_nursery() as nursery:
        found: list[bytes] = []

        async def other() -> None:
            found.append(await _heard(url))

        nursery.start_soon(other)
        for path in (b"broken", b"raise"):
            with pytest.raises(trio.BrokenResourceError):
                await _heard(url, GET.replace(b"models", path))
    assert found[0].endswith(b"0\r\n\r\n")
    assert [re.sub(r"\d+", "N", line) for line in lines] == [
        "internal error, TypeError in httpN.py line N: the connection is reset",
        "internal error, AssertionError in test_server.py line N: the connection is reset",
    ]


# -- on a port --------------------------------------------------------------------------------------------------------


def _port(url: str) -> int:
    return int(url.rpartition(":")[2].removesuffix("/v1"))


async def _heard(url: str, asked: bytes = GET) -> bytes:
    """Return what a socket receives up to the last chunk, or to the end."""
    received = bytearray()
    async with await trio.open_tcp_stream("127.0.0.1", _port(url)) as client:
        await client.send_all(asked)
        async for data in client:
            received += data
            if received.endswith(b"0\r\n\r\n"):
                break
    return bytes(received)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.com", ""])  # noqa: S104 - refused
async def test_it_listens_nowhere_else(host: str) -> None:
    with pytest.raises(OSError, match="loopback alone"):
        async with listening(lambda _: json_answer(b"{}"), host=host):
            pass
