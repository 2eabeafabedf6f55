"""Following and resuming over the whole proxy, with the real connection class."""

from typing import Any

import trio
from trio.testing import MockClock

from tests.proxy.control_cases import sse
from tests.support.house import DONE, House, call, finish, house, post, role, streams, text
from tests.support.http import Answer, Client
from wiretape.events.core.json_text import parse

KEEPALIVE = b": keepalive\n\n"
LONG = [
    role(),
    *(text(f"word {number} ") for number in range(20)),
    call('{"a":', "look_up"),
    call("1}"),
    finish("tool_calls"),
    DONE,
]


def asks(path: str, *headers: str) -> bytes:
    return post(b"", *headers, path=path, method="GET")


async def begun(home: House) -> tuple[Client, str]:
    """Return a client whose stream has begun, and the stream's id."""
    client = await home.connect()
    await client.send(post())
    answer = await client.response(until=lambda answer: bool(answer.pieces))
    return client, (answer.header(b"x-wiretape-stream") or b"").decode()


async def followed(home: House, stream: str, *headers: str) -> Answer:
    client = await home.connect()
    await client.send(asks(f"/wiretape/streams/{stream}/events", *headers))
    answer = await client.response()
    client.close()
    return answer


def blocks(answer: Answer) -> list[tuple[str, bytes]]:
    return [event for event in sse(answer.body) if event[1] != KEEPALIVE]


async def test_upstream_is_cancelled_with_the_last_reader(autojump_clock: MockClock) -> None:
    async with house(streams(*LONG, every_s=10.0)) as home:
        client, stream = await begun(home)
        reader = await home.connect()
        await reader.send(asks(f"/wiretape/streams/{stream}/events"))
        await reader.receive()
        client.rst()
        await trio.sleep(45)
        assert stream in home.registry.live, "a follower remains"
        assert len(home.upstream.still_open) == 1
        left = trio.current_time()
        reader.rst()
        assert await home.ending(stream) == ("client_gone", [])
        assert trio.current_time() - left <= 0.05
    del autojump_clock


async def test_ended_stream_is_listed_summarised_and_followed(autojump_clock: MockClock) -> None:
    async with house(streams(*LONG)) as home:
        await home.ask()
        stream = home.streams[0]

        async def of(path: str) -> Any:
            client = await home.connect()
            await client.send(asks(path))
            answer = await client.response()
            client.close()
            return parse(answer.body)

        (row,) = (await of("/wiretape/streams"))["streams"]
        assert (row["id"], row["ending"], row["model"]) == (stream, "completed", "m")
        one = await of(f"/wiretape/streams/{stream}?whole=1")
        assert (one["ending"], one["status"], one["damage"]) == ("completed", 200, [])
        assert one["message"]["answers"][0]["text"] == "".join(f"word {number} " for number in range(20))
        assert [(tool["name"], tool["state"], tool["arguments"]) for tool in one["tools"]] == [
            ("look_up", "running", '{"a":1}')
        ]
        assert [attempt.get("status") for attempt in one["attempts"]] == [200]
        answer = await followed(home, stream)
        assert b"".join(block for _, block in blocks(answer)) == home.answers[0].body
        metrics = await home.connect()
        await metrics.send(asks("/wiretape/metrics"))
        page = (await metrics.response()).body
        assert b'wiretape_streams_total{ending="completed",route=""} 1.0\n' in page
        assert b'wiretape_tool_calls_total{status="running"} 1.0\n' in page
        metrics.close()
    del autojump_clock
