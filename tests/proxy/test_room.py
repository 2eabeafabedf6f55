"""Clients that take connections without using them: deadlines, speeds, and which connection makes way for another."""

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.proxy.test_server import START, hello, piece
from tests.support.http import Client, Harness, connected, request
from wiretape.proxy.limits import (
    BODY_BYTES_A_SECOND_MIN,
    CLIENT_IDLE_TIMEOUT_S,
    HEAD_BYTES_MAX,
    HEADS_BYTES_MAX,
    REQUEST_HEAD_TIMEOUT_S,
    UPLOAD_TIMEOUT_S,
)
from wiretape.proxy.server.asgi import ServerSettings

HALF = b"GET / HTTP/1.1\r\nHost: test\r\nX: "


class Limits(Counter[str]):
    """Which limits were applied, and how often."""

    def __call__(self, limit: str, what: str) -> None:
        assert what.endswith(".")
        self[limit] += 1


@asynccontextmanager
async def crowded(app: Any = hello, most: int = 8) -> AsyncGenerator[tuple[Harness, Limits]]:
    limits = Limits()
    async with connected(app, settings=ServerSettings(connections_max=most, on_limited=limits)) as connect:
        yield connect, limits


async def closed_at(client: Client) -> float:
    """Wait until the server has closed the connection."""
    with suppress(trio.BrokenResourceError):
        while await client.receive():
            pass
    await wait_all_tasks_blocked()
    return trio.current_time()


async def asks(client: Client) -> int:
    await client.send(request())
    return (await client.response()).status


async def stuck(_scope: Any, receive: Any, send: Any) -> None:
    """Begin a response, and never end it."""
    await send(START)
    await send(piece(b"begun"))
    while (await receive())["type"] != "http.disconnect":
        pass


# Deadlines


@pytest.mark.parametrize("sent", [b"", b"\r\n", HALF], ids=["nothing", "an empty line", "half a head"])
async def test_connection_without_a_request_is_closed_after_10_s(autojump_clock: MockClock, sent: bytes) -> None:
    async with crowded() as (connect, limits):
        client = await connect()
        await client.send(sent)
        assert await closed_at(client) == pytest.approx(REQUEST_HEAD_TIMEOUT_S, abs=0.3)
        assert limits == {"slow_head": 1}
        assert connect.open == 0


async def test_first_head_has_10_s_from_the_connection_however_late_it_begins(autojump_clock: MockClock) -> None:
    async with crowded() as (connect, limits):
        late, in_time = await connect(), await connect()
        await trio.sleep(REQUEST_HEAD_TIMEOUT_S - 1)
        assert await asks(in_time) == 200
        await late.send(HALF)
        assert await closed_at(late) == pytest.approx(REQUEST_HEAD_TIMEOUT_S, abs=0.3)
        assert limits == {"slow_head": 1}


async def test_later_heads_may_begin_75_s_later_and_then_have_10_s(autojump_clock: MockClock) -> None:
    async with crowded() as (connect, limits):
        idle, slow = await connect(), await connect()
        for client in (idle, slow):
            assert await asks(client) == 200
        await trio.sleep(CLIENT_IDLE_TIMEOUT_S - 5)
        assert await asks(idle) == 200
        await slow.send(HALF)
        began = trio.current_time()
        assert await closed_at(slow) - began == pytest.approx(REQUEST_HEAD_TIMEOUT_S, abs=0.3)
        assert await closed_at(idle) - began == pytest.approx(CLIENT_IDLE_TIMEOUT_S, abs=0.3)
        assert limits == {"slow_head": 1}  # an idle connection is no fault


# Speed of bodies


async def body(_scope: Any, receive: Any, send: Any) -> None:
    """Answer 408 to a body that the server cut, and 200 to any other."""
    limit = ""
    while not limit and (message := await receive()).get("more_body", True):
        limit = message.get("limit", "")
    await send(START | {"status": 408 if limit else 200})
    await send({"type": "http.response.body", "body": limit.encode()})


KB = BODY_BYTES_A_SECOND_MIN  # at the slowest speed it takes a second
Pieces = list[tuple[float, int]]
"""Pauses, and the bytes that follow them."""


@pytest.mark.parametrize(
    ("pieces", "cut_after_s"),
    [
        pytest.param([(1, 1)] * 300, UPLOAD_TIMEOUT_S, id="a byte a second"),
        pytest.param([(1, KB)] * 300, None, id="the slowest speed"),
        pytest.param([(1, KB // 2)] * 300, 2 * UPLOAD_TIMEOUT_S, id="half of it"),
        pytest.param([(UPLOAD_TIMEOUT_S - 1, 1)], None, id="a late beginning"),
        pytest.param([(UPLOAD_TIMEOUT_S + 1, 1)], UPLOAD_TIMEOUT_S, id="a later one"),
        pytest.param([(0, 100 * KB), (UPLOAD_TIMEOUT_S - 1, 1)], None, id="a pause after a fast part"),
        pytest.param([(0, 100 * KB), (UPLOAD_TIMEOUT_S + 1, 1)], UPLOAD_TIMEOUT_S, id="a longer pause"),
    ],
)
async def test_body_slower_than_a_modem_is_cut(
    autojump_clock: MockClock, pieces: Pieces, cut_after_s: float | None
) -> None:
    async with crowded(body) as (connect, limits), trio.open_nursery() as nursery:
        client = await connect()
        await client.send(request("POST", "/", f"Content-Length: {sum(size for _, size in pieces)}"))

        async def sends() -> None:
            for pause_s, size in pieces:
                await trio.sleep(pause_s)
                await client.send(bytes(size))

        nursery.start_soon(sends)
        answer = await client.response()
        nursery.cancel_scope.cancel()
        assert answer.status == (200 if cut_after_s is None else 408)
        assert cut_after_s is None or answer.at == pytest.approx(cut_after_s, abs=1)
        assert limits == ({} if cut_after_s is None else {"slow_body": 1})


async def test_chunk_extensions_are_no_progress(autojump_clock: MockClock) -> None:
    async with crowded(body) as (connect, limits), trio.open_nursery() as nursery:
        client = await connect()
        await client.send(request("POST", "/", "Transfer-Encoding: chunked") + b"1;")

        async def sends() -> None:
            while True:
                await client.send(b"e" * 100)
                await trio.sleep(0.1)

        nursery.start_soon(sends)
        answer = await client.response()
        nursery.cancel_scope.cancel()
        assert answer.status == 408
        assert answer.at == pytest.approx(UPLOAD_TIMEOUT_S, abs=1)
        assert limits == {"slow_body": 1}


async def test_time_in_which_the_app_does_not_read_is_not_the_clients(autojump_clock: MockClock) -> None:
    async def busy(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(1_000)
        await body(scope, receive, send)

    async with crowded(busy) as (connect, limits):
        client = await connect()
        await client.send(request("POST", "/", "Content-Length: 2") + b"x")
        await trio.sleep(1_000 + UPLOAD_TIMEOUT_S - 2)
        await client.send(b"x")
        assert (await client.response()).status == 200
        assert not limits


# Connections that make way


async def test_connection_beyond_the_limit_takes_the_place_of_the_oldest_idle_one(autojump_clock: MockClock) -> None:
    async with crowded(most=4) as (connect, limits):
        clients = [await connect() for _ in range(3)]
        used = await connect()
        await trio.sleep(1)
        assert await asks(clients[0]) == 200  # now it has waited less than the others
        for n, expected in enumerate((clients[1], clients[2]), 1):
            assert await asks(await connect()) == 200
            assert await closed_at(expected) == trio.current_time()
            assert (connect.open, limits) == (4, {"connections": n})
        assert await asks(used) == 200
        assert await asks(clients[0]) == 200


async def test_one_address_cannot_take_all_connections(autojump_clock: MockClock) -> None:
    async with crowded(most=16) as (connect, limits):
        idle = await connect(address="2001:db8::1")
        assert await asks(idle) == 200
        for n in range(200):  # addresses of one IPv6 network are one caller
            await connect(address=f"2001:db8:0:1::{n:x}")
        honest = await connect(address="192.0.2.1")
        assert await asks(honest) == 200
        assert await asks(idle) == 200
        assert connect.open == 16
        assert limits == {"connections": 202 - 16}


async def test_clients_of_one_address_may_have_every_connection(autojump_clock: MockClock) -> None:
    async with crowded(most=16) as (connect, limits):
        clients = [await connect() for _ in range(16)]
        assert [await asks(client) for client in clients] == [200] * 16
        assert not limits


async def test_unfinished_body_makes_way_before_a_response_and_after_idle_connections(
    autojump_clock: MockClock,
) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await (stuck if scope["method"] == "GET" else body)(scope, receive, send)

    async with crowded(app, most=3) as (connect, limits):
        answered, uploads, idle = [await connect() for _ in range(3)]
        await answered.send(request())
        assert b"begun" in (await answered.response(until=lambda answer: bool(answer.pieces))).body
        await uploads.send(request("POST", "/", "Content-Length: 100") + b"x")
        await trio.sleep(1)
        first = await connect()
        assert await closed_at(idle) == trio.current_time()
        await first.send(request())
        await trio.sleep(1)
        second = await connect()
        assert await closed_at(uploads) == trio.current_time()
        await second.send(request())
        await trio.sleep(1)
        third = await connect()  # nothing is left that could make way
        refused = await third.response()
        assert (refused.status, refused.header(b"retry-after"), refused.header(b"connection")) == (503, b"1", b"close")
        assert limits == {"connections": 2, "connections_refused": 1}
        answered.rst()
        await trio.sleep(2)
        await (again := await connect()).send(request())
        assert (await again.response(until=lambda answer: bool(answer.pieces))).status == 200


# What they hold


@pytest.mark.parametrize("more", [0, 1])
async def test_incomplete_heads_of_all_connections_are_bounded(autojump_clock: MockClock, more: int) -> None:
    share = HEAD_BYTES_MAX - 1
    count = HEADS_BYTES_MAX // share
    async with crowded(most=2 * count) as (connect, limits):
        small = await connect()
        await small.send(HALF)
        clients = [await connect() for _ in range(count)]
        for n, client in enumerate(clients):
            left = HEADS_BYTES_MAX - len(HALF) - n * share
            await client.send(HALF + b"x" * (min(share, left) - len(HALF)))
        await trio.sleep(1)
        last = await connect()
        await last.send(HALF.ljust(HEADS_BYTES_MAX - len(HALF) - count * share + more, b"x"))
        await trio.sleep(1)
        assert connect.open == 2 + count - more
        assert limits == ({"heads_bytes": 1} if more else {})
        await small.send(b"x\r\n\r\n")
        assert (await small.response()).status == 200
