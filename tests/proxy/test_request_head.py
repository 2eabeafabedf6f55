"""Requests that are refused before any app sees them: ambiguous, malformed, or for another protocol."""

from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from tests.support.http import asking, connected, request
from wiretape.proxy.limits import HEAD_BYTES_MAX, HEADERS_MAX
from wiretape.proxy.server.asgi import ServerSettings
from wiretape.proxy.server.request_head import HeadReader, Refusal, RequestHead

HOST = b"Host: test\r\n"
BODY = b"Content-Length: 2\r\n\r\nok"
NEXT = b"GET /smuggled HTTP/1.1\r\nHost: test\r\n\r\n"

MALFORMED = [
    (
        400,
        "a transfer encoding, a length and a smuggled request",
        b"POST / HTTP/1.1\r\n%bContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n%b" % (HOST, NEXT),
    ),
    (400, "two lengths that agree", b"POST / HTTP/1.1\r\n%bContent-Length: 2\r\n%b" % (HOST, BODY)),
    (400, "a list of lengths", b"POST / HTTP/1.1\r\n%bContent-Length: 2, 2\r\n\r\nok" % HOST),
    (400, "a length with a sign", b"POST / HTTP/1.1\r\n%bContent-Length: +2\r\n\r\nok" % HOST),
    (400, "a negative length", b"POST / HTTP/1.1\r\n%bContent-Length: -2\r\n\r\nok" % HOST),
    (400, "a length in hexadecimal", b"POST / HTTP/1.1\r\n%bContent-Length: 0x2\r\n\r\nok" % HOST),
    (400, "an empty length", b"POST / HTTP/1.1\r\n%bContent-Length:\r\n\r\nok" % HOST),
    (400, "a length beyond all numbers", b"POST / HTTP/1.1\r\n%bContent-Length: %b\r\n\r\n" % (HOST, b"9" * 30)),
    (
        501,
        "a transfer encoding besides chunked",
        b"POST / HTTP/1.1\r\n%bTransfer-Encoding: gzip, chunked\r\n\r\n" % HOST,
    ),
    (400, "two transfer encodings", b"POST / HTTP/1.1\r\n%b%b\r\n" % (HOST, b"Transfer-Encoding: chunked\r\n" * 2)),
    (400, "a transfer encoding in HTTP/1.0", b"POST / HTTP/1.0\r\n%bTransfer-Encoding: chunked\r\n\r\n" % HOST),
    (400, "a space before a colon", b"POST / HTTP/1.1\r\n%bTransfer-Encoding : chunked\r\n\r\n" % HOST),
    (400, "a vertical tab before a coding", b"POST / HTTP/1.1\r\n%bTransfer-Encoding: \x0bchunked\r\n\r\n" % HOST),
    (400, "bare line feeds everywhere", b"GET / HTTP/1.1\nHost: test\n\n"),
    (400, "a bare line feed as the end of the head", b"GET / HTTP/1.1\r\n%b\n%b" % (HOST, NEXT)),
    (400, "a header folded with a tab", b"GET / HTTP/1.1\r\n%bA: b\r\n\tc\r\n\r\n" % HOST),
    (400, "a first header that is folded", b"GET / HTTP/1.1\r\n A: b\r\n%b\r\n" % HOST),
    (400, "NUL in a name", b"GET / HTTP/1.1\r\n%bA\x00: b\r\n\r\n" % HOST),
    (400, "NUL in the target", b"GET /\x00 HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "an escape in a value", b"GET / HTTP/1.1\r\n%bA: \x1b[31m\r\n\r\n" % HOST),
    (400, "a header without a colon", b"GET / HTTP/1.1\r\n%bA\r\n\r\n" % HOST),
    (400, "a name with a space", b"GET / HTTP/1.1\r\n%bA B: c\r\n\r\n" % HOST),
    (400, "a name outside ASCII", b"GET / HTTP/1.1\r\n%bCaf\xe9: c\r\n\r\n" % HOST),
    (400, "a target that is a host", b"GET evil.test:80 HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "a target that is an asterisk", b"OPTIONS * HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "a target outside ASCII", b"GET /\xc3\xa9 HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "no target", b"GET HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "no version", b"GET /\r\n%b\r\n" % HOST),
    (400, "two spaces", b"GET  / HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "a method with a control character", b"G\x01T / HTTP/1.1\r\n%b\r\n" % HOST),
    (400, "a version in lower case", b"GET / http/1.1\r\n%b\r\n" % HOST),
    (505, "HTTP/3", b"GET / HTTP/3.0\r\n%b\r\n" % HOST),
    (505, "HTTP/0.9 in words", b"GET / HTTP/0.9\r\n%b\r\n" % HOST),
    (400, "a TLS hello on a plain port", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
    (400, "no host", b"GET / HTTP/1.1\r\n\r\n"),
    (400, "a host with a path", b"GET / HTTP/1.1\r\nHost: evil/admin?x\r\n\r\n"),
    (400, "a host with a user", b"GET / HTTP/1.1\r\nHost: localhost@evil.test\r\n\r\n"),
    (400, "a list of hosts", b"GET / HTTP/1.1\r\nHost: localhost, evil.test\r\n\r\n"),
    (400, "two content types", b"POST / HTTP/1.1\r\n%b%b%b" % (HOST, b"Content-Type: text/plain\r\n" * 2, BODY)),
    (417, "two expectations in one", b"POST / HTTP/1.1\r\n%bExpect: 100-continue, tea\r\n%b" % (HOST, BODY)),
    (400, "two expectations", b"POST / HTTP/1.1\r\n%b%b%b" % (HOST, b"Expect: 100-continue\r\n" * 2, BODY)),
    (501, "an upgrade to a list", b"GET / HTTP/1.1\r\n%bUpgrade: h2c, websocket\r\n\r\n" % HOST),
    (405, "CONNECT", b"CONNECT evil.test:443 HTTP/1.1\r\n%b\r\n" % HOST),
    (431, "too many headers", b"GET / HTTP/1.1\r\n%b%b\r\n" % (HOST, b"A: b\r\n" * HEADERS_MAX)),
    (431, "a header without an end", b"GET / HTTP/1.1\r\n%bA: %b" % (HOST, b"b" * HEAD_BYTES_MAX)),
]


async def unreachable(*_: Any) -> None:
    raise AssertionError("a refused request reached the app")


@pytest.mark.parametrize(("status", "raw"), [pytest.param(status, raw, id=says) for status, says, raw in MALFORMED])
async def test_malformed_request_is_refused_and_counted(autojump_clock: MockClock, status: int, raw: bytes) -> None:
    counted: list[int] = []
    async with connected(unreachable, settings=ServerSettings(on_refused=counted.append)) as connect:
        client = await connect()
        await client.send(raw)
        answer = await client.response()
        assert (answer.status, answer.ended, counted) == (status, "length", [status])
        assert answer.header(b"connection") == b"close"
        assert answer.body.startswith(b'{"error":{"message":"')
        assert await client.rest() == b""
        client.close()
        await trio.testing.wait_all_tasks_blocked()
        assert (connect.open, connect.log) == (0, [])


@pytest.mark.parametrize(
    ("status", "raw"), [pytest.param(status, raw, id=says) for status, says, raw in MALFORMED if len(raw) < 300]
)
def test_refusal_is_the_same_for_single_bytes(status: int, raw: bytes) -> None:
    guard = HeadReader()
    said = next(filter(None, (guard.feed(raw[at : at + 1]) for at in range(len(raw)))))
    assert isinstance(said, Refusal)
    assert said.status == status


FINE = [
    ("a bare request", b"GET / HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("an empty line before it", b"\r\n\r\nGET / HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("a host with a port", b"GET / HTTP/1.1\r\nHost: 127.0.0.1:8787\r\n\r\n"),
    ("a host of IPv6", b"GET / HTTP/1.1\r\nHost: [::1]:8787\r\n\r\n"),
    ("an empty host", b"GET / HTTP/1.1\r\nHost:\r\n\r\n"),
    ("HTTP/1.0 without a host", b"GET / HTTP/1.0\r\n\r\n"),
    ("a value outside ASCII", b"GET / HTTP/1.1\r\nHost: test\r\nA: caf\xc3\xa9\r\n\r\n"),
    ("a value with tabs", b"GET / HTTP/1.1\r\nHost: test\r\nA:\tb\tc \r\n\r\n"),
    ("an empty value", b"GET / HTTP/1.1\r\nHost: test\r\nA:\r\n\r\n"),
    ("a path with odd characters", b"GET /a%00/../b;c?d=[e]|{f} HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("a method of one's own", b"BREW / HTTP/1.1\r\nHost: test\r\n\r\n"),
    ("a body that looks bad", b"POST / HTTP/1.1\r\nHost: test\r\nContent-Length: 9\r\n\r\na\n b\x00\r\n\r\n"),
    ("an expectation in capitals", b"POST / HTTP/1.1\r\nHost: test\r\nExpect: 100-Continue\r\n%b" % BODY),
    ("an offer of HTTP/2", b"GET / HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"),
    ("the most headers", b"GET / HTTP/1.1\r\nHost: test\r\n%b\r\n" % (b"A: b\r\n" * (HEADERS_MAX - 1))),
]


@pytest.mark.parametrize("raw", [pytest.param(raw, id=says) for says, raw in FINE])
async def test_valid_request_reaches_the_app(autojump_clock: MockClock, raw: bytes) -> None:
    asked = 0

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        nonlocal asked
        asked += 1
        while (await receive())["more_body"]:
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})

    async with asking(app, raw) as client:
        answer = await client.response()
    assert (answer.status, answer.body, asked) == (200, b"fine", 1)


@pytest.mark.parametrize(
    ("over", "passes"),
    [pytest.param(-1, True, id="below"), pytest.param(0, True, id="at"), pytest.param(1, False, id="above")],
)
@pytest.mark.parametrize("body", [b"", b"a body does not count"], ids=["without a body", "with a body"])
@pytest.mark.parametrize("step", [1 << 20, 1000], ids=["at once", "in pieces"])
def test_head_limit_is_exact(over: int, passes: bool, body: bytes, step: int) -> None:
    head_bytes = len(request("POST", "/", "A: ", body=body)) - len(body)
    raw = request("POST", "/", "A: " + "b" * (HEAD_BYTES_MAX + over - head_bytes), body=body)
    guard = HeadReader()
    said = next(filter(None, (guard.feed(raw[at : at + step]) for at in range(0, len(raw), step))))
    if passes:
        assert isinstance(said, RequestHead)
    else:
        assert isinstance(said, Refusal)
        assert said.status == 431


async def test_slow_head_does_not_shorten_its_response(autojump_clock: MockClock) -> None:
    async def app(_scope: Any, _receive: Any, send: Any) -> None:
        await trio.sleep(20)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"late"})

    async with connected(app) as connect:
        client = await connect()
        raw = request()
        await client.send(raw[:20])
        await trio.sleep(9)
        await client.send(raw[20:])
        answer = await client.response()
        assert (answer.body, answer.ended) == (b"late", "chunked")
