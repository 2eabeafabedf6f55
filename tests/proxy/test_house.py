"""Requests through the whole proxy, in memory, and how their tapes record the framing of a body."""

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import chunk
from tests.support.house import DONE, Peer, answer, call, finish, frame, house, post, role, text
from wiretape.events.core.settings import Settings
from wiretape.events.emit import emit


@pytest.mark.parametrize("how", ["close", "rst", "fin"])
@pytest.mark.parametrize("pieces", [(200_000,), (1, 200_000), (1, 200_000, 300_000, 300_000)], ids=["1", "2", "tape"])
async def test_disconnect_within_a_send_is_recorded_before_it(
    autojump_clock: MockClock, pieces: tuple[int, ...], how: str
) -> None:
    """Of four the third comes from the tape, because more waits than is kept. The upstream says no end."""
    async with house(Peer(role(), *(text("x" * size) for size in pieces), every_s=1, end="stall")) as home:
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

    async with house(Peer(whole[:20], whole[20:], DONE, every_s=5), settings=Settings(profile="transparent")) as home:
        client, asked = await home.connect(), trio.current_time()
        await client.send(post(path=f"/v1/{dialect}"))
        answered = await client.response(until=lambda so_far: bool(so_far.pieces))
        assert (answered.pieces[0][0] - asked, answered.body[: len(whole)]) == (10, whole)
        client.close()


@pytest.mark.parametrize(
    "piece",
    [text("x"), frame({"reasoning_content": "x"}), call("x"), frame({}), frame({"refusal": "x"})],
    ids=["text", "reasoning", "arguments", "an empty delta", "a refusal"],
)
async def test_every_chunk_resets_the_stall_timer(piece: bytes, autojump_clock: MockClock) -> None:
    script = Peer(call("", "read"), *[piece] * 5, finish("tool_calls"), DONE, every_s=50)
    async with house(script, route={"idle_s": 60.0}) as home:
        began = trio.current_time()
        await home.ask()
        assert trio.current_time() - began >= 300
        assert (await home.ending())[0] == "completed"


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HALF = text("hi") + call('{"a', "write_file")
WHOLE = text("hi") + finish() + DONE


CASES = {
    "chunks, and the last one, in the middle of a call": (
        Peer(HALF),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": True},
    ),
    "chunks that are cut": (
        Peer(HALF, end="fin"),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "chunks, and a reset": (
        Peer(HALF, end="rst"),
        {"framing": "chunked"},
        {"cause": "reset", "ending": "reset", "framed": False, "broke": "reset"},
    ),
    "chunks, and what is none": (
        Peer(chunk(HALF), b"zzz\r\n", raw=True, end="fin"),
        {"framing": "chunked"},
        {"cause": "protocol", "ending": "protocol", "framed": False, "broke": "protocol"},
    ),
    "chunks, and silence": (
        Peer(HALF, end="stall"),
        {"framing": "chunked"},
        {"cause": "stalled", "ending": "stalled", "framed": False},
    ),
    "a length that is not": (
        Peer(HALF, head=EVENTS + b"Content-Length: 9999\r\n\r\n", end="fin"),
        {"framing": "length", "length": 9999},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "[DONE], and the close that is the end": (
        Peer(WHOLE, head=EVENTS + b"\r\n", end="fin"),
        {"framing": "close"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "closed"},
    ),
    "[DONE] and a cut": (
        Peer(WHOLE, end="fin"),
        {"framing": "chunked"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "truncated"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_of_a_chat_stream(case: str, autojump_clock: MockClock) -> None:
    del autojump_clock
    script, framing, ended = CASES[case]
    async with house(script, route={"attempts": 1}) as home:
        await home.ask()
        await home.settled()
        tape = await home.tape()
    head = next(record for record in tape if record.kind == "head")
    assert {name: head.keys[name] for name in ("framing", "length") if name in head.keys} == framing
    told = {name: tape[-1].keys[name] for name in ("cause", "ending", "framed", "broke") if name in tape[-1].keys}
    assert told == ended


async def test_an_attempt_that_failed_says_it_too_and_one_without_a_head_says_nothing(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    empty = answer(200, b"", "Connection: close", kind="text/event-stream")
    cut, nothing = Peer(end="fin"), Peer(head=b"", end="fin")
    async with house(empty, cut, nothing, Peer(WHOLE), route={"attempts": 4}) as home:
        await home.ask()
        await home.settled()
        tape = await home.tape()
    failed = [record.keys for record in tape if record.kind == "failed"]
    assert [(keys.get("framed"), keys.get("broke")) for keys in failed] == [
        (True, None),
        (False, "truncated"),
        (None, None),
    ]
    assert tape[-1].keys["framed"] is True
