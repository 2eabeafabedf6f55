"""Compressed chat requests: read within bounds, and forwarded unchanged unless edited."""

import gzip
import threading
import zlib
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.proxy.scripted import Script, chunk, request_of
from tests.support.house import DONE, HEAD, House, finish, house, role, text
from wiretape.events.core.json_text import dumps, parse
from wiretape.proxy.relay.stream_request import decoded
from wiretape.replay.matching.compared_request import request_of as recorded_request
from wiretape.replay.matching.match import Deck, Taken
from wiretape.replay.seal import seal
from wiretape.replay.sealed.files import parse as load

BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi " + "there " * 40}]}
PLAIN = dumps(BODY)
CODED = {"gzip": gzip.compress(PLAIN), "x-gzip": gzip.compress(PLAIN), "deflate": zlib.compress(PLAIN)}


def keeping(asked: list[tuple[dict[str, str], bytes]]) -> Script:
    """Return a script that keeps each request and responds with a stream."""

    async def script(stream: trio.abc.Stream) -> None:
        while said := await request_of(stream):
            head, _, body = said.partition(b"\r\n\r\n")
            lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
            asked.append(({name.lower(): value for name, _, value in lines}, body))
            await stream.send_all(HEAD + chunk(role() + text("hi") + finish() + DONE) + b"0\r\n\r\n")

    return script


async def sent(home: House, body: bytes, coding: str) -> Any:
    return await home.ask(body, f"Content-Encoding: {coding}")


@pytest.mark.parametrize("coding", CODED)
async def test_compressed_request_is_read_and_forwarded_unchanged(coding: str, autojump_clock: MockClock) -> None:
    asked: list[tuple[dict[str, str], bytes]] = []
    async with house(keeping(asked)) as home:
        answered = await sent(home, CODED[coding], coding)
        assert (answered.status, b"hi" in answered.body) == (200, True)
        [(headers, body)] = asked
        assert body == CODED[coding]
        assert (headers["content-encoding"], headers["content-length"]) == (coding, str(len(body)))
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert (request.raw, request.keys["facts"]["model"], request.keys["messages"]) == (body, "m", 1)
        assert await home.ending() == ("completed", [])


@pytest.mark.parametrize("coding", CODED)
async def test_edited_request_is_forwarded_uncompressed(coding: str, autojump_clock: MockClock) -> None:
    asked: list[tuple[dict[str, str], bytes]] = []
    async with house(keeping(asked), route={"include_usage": True}) as home:
        assert (await sent(home, CODED[coding], coding)).status == 200
        [(headers, body)] = asked
        assert parse(body) == {**BODY, "stream_options": {"include_usage": True}}
        assert "content-encoding" not in headers
        assert headers["content-length"] == str(len(body))
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert request.raw == CODED[coding]


async def test_replay_matches_compressed_request(autojump_clock: MockClock) -> None:
    async with house(keeping([])) as home:
        await sent(home, CODED["gzip"], "gzip")
        await home.settled()
        [records] = load(seal([await home.tape()])).streams
        assert b"there there" in b"".join(record.raw or b"" for record in records)
        assert isinstance(Deck([records]).take(recorded_request(records)), Taken)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_unsupported_coding_is_refused_by_name(coding: str, autojump_clock: MockClock) -> None:
    asked: list[tuple[dict[str, str], bytes]] = []
    async with house(keeping(asked)) as home:
        answered = await sent(home, PLAIN, coding)
        assert (answered.status, answered.header(b"accept-encoding")) == (415, b"gzip, deflate")
        assert parse(answered.body)["error"]["message"].startswith(f"The request body is coded as {coding};")
        assert asked == []


WRONG = {
    "damaged": (b"\x1f\x8b" + b"x" * 60, 400, "invalid_encoding"),
    "half of it": (CODED["gzip"][:-20], 400, "invalid_encoding"),
    "no JSON": (gzip.compress(b"{"), 400, "invalid_json"),
    "a bomb": (gzip.compress(b" " * 400_000), 413, "body_too_large"),
    "too long": (gzip.compress(bytes(range(256)) * 8), 413, "body_too_large"),
}


@pytest.mark.parametrize(("body", "status", "code"), WRONG.values(), ids=WRONG)
async def test_unreadable_body_is_refused(body: bytes, status: int, code: str, autojump_clock: MockClock) -> None:
    asked: list[tuple[dict[str, str], bytes]] = []
    async with house(keeping(asked), config={"body_bytes_max": 2_000}) as home:
        answered = await sent(home, body, "gzip")
        assert (answered.status, parse(answered.body)["error"]["code"]) == (status, code)
        assert asked == []
        answered = await sent(home, gzip.compress(PLAIN + b" " * (2_000 - len(PLAIN))), "gzip")
        assert answered.status == 200


async def test_abandoned_decoding_takes_no_shared_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    def stuck(*_: Any) -> bytes:
        goes_on.wait(10)
        return PLAIN

    monkeypatch.setattr("wiretape.proxy.relay.stream_request._inflated", stuck)
    try:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                threads = trio.CapacityLimiter(2)
                for _ in range(4):
                    nursery.start_soon(decoded, CODED["gzip"], "gzip", 2_000, threads)
                await wait_all_tasks_blocked()
                assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
                nursery.cancel_scope.cancel()
    finally:
        goes_on.set()
