"""The thin thread: requests through the whole proxy, in memory."""

import sys

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import chunk, request_of
from tests.support.house import DONE, HEAD, answer, finish, house, post, role, streams, text
from wiretape.events.core.settings import Settings
from wiretape.events.emit import Summariser, emit
from wiretape.events.tape.tape import Recorder


@pytest.mark.parametrize("how", ["close", "rst", "fin"])
@pytest.mark.parametrize("pieces", [(200_000,), (1, 200_000), (1, 200_000, 300_000, 300_000)], ids=["1", "2", "tape"])
async def test_disconnect_within_a_send_is_recorded_before_it(
    autojump_clock: MockClock, pieces: tuple[int, ...], how: str
) -> None:
    """Of four the third comes from the tape, because more waits than is kept. The upstream says no end."""
    async with house(streams(role(), *(text("x" * size) for size in pieces), every_s=1, end=b"5\r\n")) as home:
        client = await home.connect(capacity=8_192)
        await client.send(post())
        got = await client.receive()
        await trio.sleep(len(pieces) + 1)
        while len(got) < sum(pieces[:3]) - 100_000:
            got += await client.receive()
        getattr(client, how)()
        await home.settled()
        tape = await home.tape()
        (at,) = [record.keys["at"] for record in tape if record.kind == "gone"]
        assert len(emit(tape[: at + 1])) <= sum(pieces[:3]) - 50_000


async def test_stream_without_a_tape_cannot_be_read(autojump_clock: MockClock) -> None:
    """docs/streams-api.md says so of the header."""
    async with house(answer(200, b"{}"), route={"tape": False}, check=False) as home:
        answered = await home.ask(b"", path="/v1/models", method="GET")
        await home.settled()
        assert answered.header(b"x-wiretape-stream") == home.streams[-1].encode()
        for path in ("", "/tape", "/events"):
            asked = await home.ask(b"", path=f"/wiretape/streams/{home.streams[-1]}{path}", method="GET")
            assert asked.status == 404


@pytest.mark.parametrize("dialect", ["chat/completions", "responses"])
async def test_partial_frame_waits_for_its_rest(autojump_clock: MockClock, dialect: str) -> None:
    """docs/configuration.md says so of the profile."""
    whole = text("hi")

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(whole[:20]))
        await trio.sleep(5)
        await stream.send_all(chunk(whole[20:]) + chunk(DONE) + b"0\r\n\r\n")

    async with house(script, settings=Settings(profile="transparent")) as home:
        client, asked = await home.connect(), trio.current_time()
        await client.send(post(path=f"/v1/{dialect}"))
        answered = await client.response(until=lambda so_far: bool(so_far.pieces))
        assert (answered.pieces[0][0] - asked, answered.body[: len(whole)]) == (5, whole)
        client.close()


def test_relayed_exchange_keeps_nothing_in_memory() -> None:
    """A download of 200 MB took as much memory, and more after its end."""
    summariser, recorder = Summariser(), Recorder()
    summariser.feed(recorder.record("open", 0, {"format": 1, "stream": "s", "dialect": ""}))
    body = recorder.body(1, b"x" * 1_000)
    before = sys.getrefcount(body)
    summariser.feed(body)
    assert sys.getrefcount(body) == before


@pytest.mark.parametrize("sent", [b"", b'{"model":"m","stream":'], ids=["none of it", "a part of it"])
async def test_request_with_an_incomplete_body_is_refused_at_shutdown(sent: bytes, autojump_clock: MockClock) -> None:
    """At once: no stream would be started once the body is complete."""
    head = post().partition(b"\r\n\r\n")[0] + b"\r\n\r\n"
    async with house(streams(text("hi"), finish(), DONE)) as home:
        client = await home.connect()
        await client.send(head + sent)
        await trio.sleep(1)
        began = trio.current_time()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(home.registry.drain, began + 30)
            answered = await client.response(method="POST")
        assert (answered.status, answered.at - began <= 0.05) == (503, True)
        assert answered.header(b"retry-after") == b"1"
        assert answered.header(b"connection") == b"close"
        assert b'"code":"shutdown"' in answered.body
        assert await client.receive() == b""
        assert home.streams == [], "no stream has begun"
        client.close()
