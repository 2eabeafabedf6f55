"""The server over the in-memory harness: what a client sees, in virtual time"""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support.http import connected, request


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"hello ", "more_body": True})
    await send({"type": "http.response.body", "body": b"world"})


async def test_an_answer_is_chunked_and_the_connection_stays(autojump_clock: MockClock) -> None:
    async with connected(hello) as connect:
        client = await connect()
        for _ in range(3):
            await client.send(request())
            answer = await client.response()
            assert (answer.status, answer.ended) == (200, "chunked")
            assert [piece for _, piece in answer.pieces] == [b"hello ", b"world"]


@pytest.mark.parametrize(
    ("asked", "ended"),
    [
        pytest.param(request("GET", "/", "Connection: close"), "chunked", id="a client that asks for the close"),
        pytest.param(request(version="1.0"), "close", id="HTTP/1.0"),
    ],
)
async def test_the_connection_closes_at_once_after_the_last_byte(
    autojump_clock: MockClock, asked: bytes, ended: str
) -> None:
    async with connected(hello) as connect:
        client = await connect()
        await client.send(asked)
        answer = await client.response()
        assert (answer.body, answer.ended) == (b"hello world", ended)
        assert await client.receive() == b""
        assert trio.current_time() == answer.at


async def test_an_idle_connection_closes_at_its_timeout(autojump_clock: MockClock) -> None:
    async with connected(hello) as connect:
        client = await connect()
        await client.send(request())
        answer = await client.response()
        assert await client.receive() == b""
        assert trio.current_time() - answer.at == pytest.approx(75)
