"""The server over in-memory sockets and virtual time, as its clients and apps see it."""

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.support.http import Client, asking, connected, request
from wiretape.proxy.limits import (
    BODY_AHEAD_BYTES_MAX,
    BODY_BYTES_MAX,
    HEAD_BYTES_MAX,
    PIPELINED_BYTES_MAX,
    SENDS_A_TURN,
)

CLOSING = request("GET", "/", "Connection: close")
START: dict[str, Any] = {"type": "http.response.start", "status": 200, "headers": []}
END = {"type": "http.response.body", "body": b""}


def piece(data: bytes) -> dict[str, Any]:
    return {"type": "http.response.body", "body": data, "more_body": True}


async def hello(_scope: Any, _receive: Any, send: Any) -> None:
    await send(START)
    await send(piece(b"hello "))
    await send({"type": "http.response.body", "body": b"world"})


async def echo(scope: Any, receive: Any, send: Any) -> None:
    body = b""
    while (message := await receive())["type"] == "http.request":
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body, "more_body": False})
    del scope


@pytest.mark.parametrize(
    ("method", "status", "headers", "body", "ended"),
    [
        pytest.param("GET", 200, [], b"body", "chunked", id="chunked"),
        pytest.param("GET", 200, [(b"Content-Length", b"4")], b"body", "length", id="with a length"),
        pytest.param("HEAD", 200, [], b"", "none", id="HEAD"),
        pytest.param("GET", 204, [], b"", "none", id="204"),
        pytest.param("GET", 304, [], b"", "none", id="304"),
    ],
)
async def test_response_framing_follows_method_status_and_headers(
    autojump_clock: MockClock, method: str, status: int, headers: Any, body: bytes, ended: str
) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send(piece(b"bo"))
        await send(piece(b""))
        await send({"type": "http.response.body", "body": b"dy"})

    async with connected(app) as connect:
        client = await connect()
        for _ in range(2):  # on one connection
            await client.send(request(method))
            answer = await client.response(method=method)
            assert (answer.status, answer.body, answer.ended) == (status, body, ended)
            assert answer.header(b"server") is answer.header(b"date") is None


# Sends


async def test_nothing_follows_torn_send(autojump_clock: MockClock) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(START)
        with trio.move_on_after(5):
            await send(piece(b"a" * 3000))
        await send(piece(b"an error frame"))
        await send(END)

    async with asking(app, request(), capacity=1000) as client:
        assert b"aaa" in await client.receive()
        await trio.sleep(10)
        with pytest.raises(trio.BrokenResourceError):
            await client.receive()
        assert client.harness.open == 0


async def test_send_cancelled_between_two_pieces_tears_nothing(autojump_clock: MockClock) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(START)
        with trio.CancelScope() as scope:
            for n in range(SENDS_A_TURN * 2):
                if n == 5:
                    scope.cancel()
                await send(piece(b"%d " % n))
        assert scope.cancelled_caught
        await send(piece(b"an error frame"))
        await send(END)

    async with asking(app, request()) as client:
        answer = await client.response()
        assert answer.ended == "chunked"
        assert answer.body == b"".join(b"%d " % n for n in range(SENDS_A_TURN - 1)) + b"an error frame"


async def test_concurrent_sends_do_not_mix(autojump_clock: MockClock) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await send(START)
        async with trio.open_nursery() as nursery:
            for letter in b"abcdefgh":
                nursery.start_soon(send, piece(bytes([letter]) * 5000))
        await send(END)

    async with asking(app, request(), capacity=1000) as client:
        answer = await client.response()
        assert answer.ended == "chunked"
        assert sorted(data for _, data in answer.pieces) == [bytes([letter]) * 5000 for letter in b"abcdefgh"]


# Incomplete responses


@pytest.mark.parametrize(
    ("version", "headers", "ended"),
    [
        pytest.param("1.1", [], "cut", id="chunked"),
        pytest.param("1.1", [(b"content-length", b"100")], "cut", id="with a length"),
        pytest.param("1.0", [], "reset", id="until the close"),
    ],
)
@pytest.mark.parametrize("how", ["abort", "return", "raise", "cancel"])
async def test_cut_response_never_looks_complete(
    autojump_clock: MockClock, version: str, headers: Any, ended: str, how: str
) -> None:
    async def app(scope: Any, _receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send(piece(b"half"))
        await trio.sleep(1)
        match how:
            case "abort":
                scope["extensions"]["wiretape"].abort()
                await send(piece(b"never"))
                await send(END)
            case "raise":
                raise ValueError("broken\nin two lines")
            case "cancel":
                with trio.CancelScope() as cancelled:
                    cancelled.cancel()
                    await trio.sleep_forever()
            case _:
                pass

    async with asking(app, request(version=version)) as client:
        answer = await client.response()
        assert (answer.body, answer.ended) == (b"half", ended)
        assert client.harness.log == (["an app failed: ValueError: broken in two lines"] if how == "raise" else [])


@pytest.mark.parametrize("how", ["return", "raise"])
async def test_app_without_response_is_a_500(autojump_clock: MockClock, how: str) -> None:
    async def app(*_: Any) -> None:
        if how == "raise":
            raise ValueError("a secret")

    async with asking(app, request()) as client:
        answer = await client.response()
        assert (answer.status, answer.ended) == (500, "length")
        assert b"secret" not in answer.body
        assert await client.receive() == b""


# Request bodies


@pytest.mark.parametrize("answers_first", [False, True], ids=["before an answer", "while the app answers"])
async def test_malformed_body_is_refused_or_aborts_the_response(autojump_clock: MockClock, answers_first: bool) -> None:
    told: list[str] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        if answers_first:
            await send(START)
            await send(piece(b"begun"))
        while (message := await receive())["type"] == "http.request":
            pass
        told.append(message["type"])
        await send(START if not answers_first else piece(b"never"))

    async with asking(app, request("POST", "/", "Transfer-Encoding: chunked") + b"2\r\nok\r\n") as client:
        await trio.sleep(1)
        await client.send(b"0x2\r\nok\r\n")
        if answers_first:
            with pytest.raises(trio.BrokenResourceError):
                await client.rest()
        else:
            answer = await client.response()
            assert (answer.status, answer.ended) == (400, "length")
            assert await client.receive() == b""
        await trio.sleep(2)
        assert told == ["http.disconnect"]
        assert client.harness.open == 0


CHUNKS = request("POST", "/", "Transfer-Encoding: chunked") + b"3;a=b\r\nabc\r\n"
TRAILERS = {
    "none": (b"0\r\n\r\n", 200),
    "one": (b"0\r\nX: y\r\n\r\n", 200),
    "a bare LF for the last line": (b"0\r\n\n", 400),
    "a bare LF behind one": (b"0\r\nX: y\n\r\n", 400),
    "two of them": (b"0\r\nX: y\n\n", 400),
    "a folded one": (b"0\r\nX: y\r\n z\r\n\r\n", 400),
    "one without a name": (b"0\r\nGET / HTTP/1.1\r\n\r\n", 400),
    "a bare LF behind the last size": (b"0\n\r\n", 400),
    "a bare LF behind a chunk": (b"1\r\nx\n0\r\n\r\n", 400),
}


@pytest.mark.parametrize("size", [1, 7, 1_000])
@pytest.mark.parametrize(("trailers", "status"), TRAILERS.values(), ids=TRAILERS)
async def test_end_of_chunked_body_hides_no_request(
    autojump_clock: MockClock, trailers: bytes, status: int, size: int
) -> None:
    async with connected(echo) as connect:
        client = await connect()
        sent = CHUNKS + trailers
        behind = CLOSING if status == 200 else b""  # a refusal does not wait for more
        for at in range(0, len(sent), size):
            await client.send(sent[at : at + size])
        await client.send(behind)
        answers = [await client.response()]
        if status == 200:
            assert answers[0].body == b"abc"
            answers.append(await client.response())
        assert [answer.status for answer in answers] == ([200, 200] if status == 200 else [400])
        assert answers[0].at < 1
        assert await client.receive() == b""
        await trio.sleep(2)
        assert connect.open == 0


@pytest.mark.parametrize(
    ("size", "status"),
    [
        pytest.param(b"%x" % BODY_BYTES_MAX, None, id="the largest size"),
        pytest.param(b"%x" % (BODY_BYTES_MAX + 1), 400, id="one more"),
        pytest.param(b"%x" % 2**68, 400, id="2^68"),
        pytest.param(b"%x" % 2**80, 400, id="2^80"),
        pytest.param(b"00000000000000003;e=1", 200, id="zeros"),
        pytest.param(b"3;" + b"e" * HEAD_BYTES_MAX, 400, id="an endless extension"),
    ],
)
async def test_chunk_of_absurd_size_is_refused_at_once(autojump_clock: MockClock, size: bytes, status: int) -> None:
    async with asking(echo, request("POST", "/", "Transfer-Encoding: chunked")) as client:
        await client.send(size + b"\r\nabc\r\n" + (b"0\r\n\r\n" if status == 200 else b""))
        with trio.move_on_after(1) as waiting:
            assert (await client.response()).status == status
        assert waiting.cancelled_caught == (status is None)


async def endless(client: Client) -> None:
    while True:
        await client.send(b"a")
        await trio.sleep(0.1)


async def test_client_that_sends_on_after_response_is_cut_off(autojump_clock: MockClock) -> None:
    async with asking(hello, request("POST", "/", "Content-Length: 1000000")) as client:
        assert (await client.response()).status == 200
        began = trio.current_time()
        with pytest.raises(trio.BrokenResourceError):
            await endless(client)
        assert trio.current_time() - began == pytest.approx(1, abs=0.2)


async def test_unread_body_is_bounded(autojump_clock: MockClock) -> None:
    sizes: list[int] = []

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(10)
        sizes.append(len((await receive())["body"]))
        await echo(_scope, receive, send)

    async with connected(app) as connect, trio.open_nursery() as nursery:
        client = await connect()
        nursery.start_soon(client.send, request("POST", body=bytes(1 << 20)))
        answer = await client.response()
    assert BODY_AHEAD_BYTES_MAX <= sizes[0] <= BODY_AHEAD_BYTES_MAX + 64 * 1024
    assert sizes[0] + len(answer.body) == 1 << 20


# Several requests


async def test_pipelined_bytes_are_bounded(autojump_clock: MockClock) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await trio.sleep(10)
        await echo(scope, receive, send)

    async with connected(app) as connect, trio.open_nursery() as nursery:
        client = await connect()
        sent = 0

        async def sending() -> None:
            nonlocal sent
            await client.send(request("POST", body=b"first"))
            for _ in range(100):
                await client.send(request("POST", body=bytes(10_000)))
                sent += 10_000

        nursery.start_soon(sending)
        await trio.sleep(5)
        assert PIPELINED_BYTES_MAX <= sent <= PIPELINED_BYTES_MAX + 3 * 64 * 1024
        assert (await client.response()).body == b"first"
        for _ in range(100):
            assert (await client.response()).body == bytes(10_000)


async def test_app_cannot_write_into_next_response(autojump_clock: MockClock) -> None:
    async def app(_scope: Any, receive: Any, send: Any) -> None:
        await hello(_scope, receive, send)
        await trio.sleep(1)
        await send(piece(b"too late"))

    async with asking(app, request()) as client:
        assert (await client.response()).body == b"hello world"
        await trio.sleep(2)
        await client.send(request())
        answer = await client.response()
        assert (answer.body, answer.ended) == (b"hello world", "chunked")
        (line,) = client.harness.log
        assert "LocalError" in line
