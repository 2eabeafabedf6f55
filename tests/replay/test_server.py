"""The scripted upstream: pieces as chunks, kept connections, and each way of ending as the other side meets it."""

from collections.abc import Sequence
from contextlib import suppress

import httpx
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair

from wiretape.proxy.errors import ResetError, TruncatedError
from wiretape.proxy.upstream import UpstreamTransport, body_of
from wiretape.replay.script import Fault, Request, Script, Step, event_stream, json_answer
from wiretape.replay.server import Upstream, listening

GET = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
POST = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def always(script: Script) -> Upstream:
    return Upstream(lambda _: script)


async def said_by(upstream: Upstream, *sent: bytes, seconds: float = 60) -> bytes:
    """Everything that a client reads that sends these bytes, a second apart, and then waits for the end."""
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


CASES = {
    "a stream is one chunk a piece, then the final chunk": (
        event_stream([b"data: 1\n\n", b"data: 2\n\n"]),
        EVENTS + b"9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n0\r\n\r\n",
    ),
    "a cut has no final chunk": (event_stream([b"data: 1\n\n"], end=Fault.CUT), EVENTS + b"9\r\ndata: 1\n\n\r\n"),
    "what follows a fault is not played": (
        Script(steps=[Step(0, Fault.CUT), Step(0, b"never")]),
        EVENTS,
    ),
    "a reset over a stream that is no socket is a cut": (event_stream([], end=Fault.RESET), EVENTS),
    "an answer with its length goes out as it is": (
        json_answer(b"{}", 404),
        b"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}",
    ),
    "an empty piece is not the final chunk": (event_stream([b"", b"x"]), EVENTS + b"1\r\nx\r\n0\r\n\r\n"),
}


@pytest.mark.parametrize("case", CASES)
async def test_what_a_script_says_is_what_goes_out(case: str, autojump_clock: MockClock) -> None:
    del autojump_clock
    script, due = CASES[case]
    assert await said_by(always(script), POST) == due


async def test_a_connection_is_kept_until_the_client_says_close(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = always(json_answer(b"{}"))
    closing = GET.replace(b"Host", b"Connection: close\r\nHost")
    said = await said_by(upstream, GET, GET, closing, GET)
    assert said.count(b"HTTP/1.1 200") == 3
    assert [outcome.ended for outcome in upstream.seen] == ["ended"] * 3


async def test_requests_that_come_at_once_are_answered_in_order(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = Upstream(lambda request: json_answer(request.target))
    said = await said_by(upstream, GET + GET.replace(b"models", b"others"))
    assert [part.partition(b"\r\n\r\n")[2] for part in said.split(b"HTTP/1.1 ")[1:]] == [b"/v1/models", b"/v1/others"]


async def test_a_request_in_chunks_and_one_that_waits_for_100_are_taken_whole(autojump_clock: MockClock) -> None:
    del autojump_clock
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


async def test_no_body_follows_a_head(autojump_clock: MockClock) -> None:
    del autojump_clock
    said = await said_by(always(json_answer(b"{}")), GET.replace(b"GET", b"HEAD"))
    assert said.endswith(b"Content-Length: 2\r\n\r\n")


async def test_what_is_no_request_ends_the_connection(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = always(json_answer(b"{}"))
    assert await said_by(upstream, b"\x16\x03\x01\r\n\r\n") == b""
    assert upstream.seen == []


async def test_delays_are_kept(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = always(event_stream([b"a", b"b"], gap_s=5))
    began = trio.current_time()
    await said_by(upstream, GET)
    assert upstream.seen[0].at - began == 10


async def test_a_stall_says_nothing_more_until_the_client_leaves(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = always(event_stream([b"x"], end=Fault.STALL))
    began = trio.current_time()
    said = await said_by(upstream, GET, seconds=100)
    assert said == EVENTS + b"1\r\nx\r\n"
    assert (upstream.seen[0].ended, upstream.seen[0].pieces) == ("left", 1)
    assert upstream.seen[0].at - began == 100


async def test_a_client_that_leaves_ends_the_answer_at_once(autojump_clock: MockClock) -> None:
    del autojump_clock
    upstream = always(event_stream([b"x"] * 10, gap_s=10))
    began = trio.current_time()
    await said_by(upstream, GET, seconds=25)
    assert (upstream.seen[0].ended, upstream.seen[0].pieces) == ("left", 2)
    assert upstream.seen[0].at - began == 25


FAULTS = {
    "a cut is an orderly end without the final chunk": (Fault.CUT, TruncatedError),
    "a reset is a reset": (Fault.RESET, ResetError),
}


@pytest.mark.parametrize("case", FAULTS)
async def test_on_a_socket(case: str) -> None:
    fault, error = FAULTS[case]

    def choose(request: Request) -> Script:
        return event_stream([b"data: 1\n\n"], gap_s=0.01, end=fault) if request.body else json_answer(b"{}")

    async with listening(choose) as (url, upstream), UpstreamTransport() as transport:
        response = await transport.handle_async_request(httpx.Request("POST", f"{url}/chat/completions", content=b"{}"))
        async with body_of(response) as body:
            read = await body.receive()
            assert read is not None
            assert read.data == b"data: 1\n\n"
            with pytest.raises(error):
                await body.receive()
        assert upstream.seen[0].ended == fault.value
        response = await transport.handle_async_request(httpx.Request("GET", f"{url}/models"))
        assert response.status_code == 200
        await response.aclose()
