"""Requests that are refused, and what of them is read, recorded and passed on."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.failures.test_client_leaving import busy, silent
from tests.proxy.scripted import chunk
from tests.support.house import ASKED, DONE, HEAD, House, Peer, answer, finish, house, post, text
from wiretape.events.core.json_text import dumps
from wiretape.events.tape.record import encode
from wiretape.proxy.config.model import Key, Secret

KEY: Final = "wt-" + "k" * 40
CANARY: Final = "canary-7f3a"


def streaming(head: bytes = HEAD) -> Peer:
    return Peer(text("hi"), finish(), DONE, head=head)


def untouched(home: House) -> bool:
    """No stream was begun, nothing was asked of an upstream."""
    return not home.streams and not home.upstream.opened


def said(home: House) -> str:
    """All of the log."""
    return repr(home.log) + repr(home.harness.log)


async def raw(home: House, data: bytes) -> tuple[int, bytes, bool]:
    """Return what a client gets for these bytes: status, body, and whether the connection was closed."""
    client = await home.connect()
    await client.send(data)
    answered = await client.response()
    closed = False
    with trio.move_on_after(3):
        closed = await client.receive() == b""
    client.close()
    return answered.status, answered.body, closed


# -- C09, C16: bodies that are too long or too slow --------------------------------------------------------------------


@pytest.mark.case("C09")
@pytest.mark.parametrize(("more", "status"), [(-1, 200), (0, 200), (1, 413)])
@pytest.mark.parametrize("chunked", [False, True], ids=["declared", "chunked"])
async def test_body_up_to_the_limit_is_accepted(
    autojump_clock: MockClock, chunked: bool, more: int, status: int
) -> None:
    empty = dumps({**ASKED, "pad": ""})
    async with house(streaming(), config={"body_bytes_max": 50_000}) as home:
        body = dumps({**ASKED, "pad": "x" * (50_000 + more - len(empty))})
        assert len(body) == 50_000 + more
        data = post(body)
        if chunked:
            head, _, _ = post(b"").partition(b"\r\n\r\n")
            head = head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked")
            pieces = b"".join(chunk(body[at : at + 999]) for at in range(0, len(body), 999))
            data = head + b"\r\n\r\n" + pieces + b"0\r\n\r\n"
        got, answer, _ = await raw(home, data)
        assert got == status
        if status == 413:
            assert json.loads(answer)["error"]["code"] == "body_too_large"
            assert untouched(home)


@pytest.mark.case("C09")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
async def test_body_with_a_length_beyond_the_limit_is_not_read(autojump_clock: MockClock, path: str) -> None:
    async with house(streaming(), config={"body_bytes_max": 50_000}) as home:
        client = await home.connect()
        head, _, _ = post(b"", path=path).partition(b"\r\n\r\n")
        await client.send(head.replace(b"Content-Length: 0", b"Content-Length: 50001") + b"\r\n\r\n")
        answered = await client.response()
        assert answered.status == 413
        assert trio.current_time() < 0.01
        client.close()
        assert untouched(home)


@pytest.mark.case("C09")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/files"])
async def test_an_endless_chunked_body_is_stopped_at_the_limit(autojump_clock: MockClock, path: str) -> None:
    async with house(silent(head=b""), config={"body_bytes_max": 50_000}) as home:
        client = await home.connect()
        head, _, _ = post(b"", path=path).partition(b"\r\n\r\n")
        await client.send(head.replace(b"Content-Length: 0", b"Transfer-Encoding: chunked") + b"\r\n\r\n")
        sent = 0
        with suppress(trio.BrokenResourceError):
            while sent < 5_000_000:
                await client.send(chunk(b"x" * 1_000))
                sent += 1_000
                await trio.sleep(0.001)
        assert sent < 1_500_000  # at most a second of further bytes is read, and none is kept
        assert (await client.response()).status == 413
        if path == "/v1/files":
            assert await home.ending() == ("limit", [])
        else:
            assert untouched(home)


@pytest.mark.case("C16")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_slow_body_is_refused_after_60_s(autojump_clock: MockClock, path: str) -> None:
    async with house(streaming()) as home:
        client = await home.connect()
        data = post(path=path)
        await client.send(data[:-40])
        async with trio.open_nursery() as nursery:

            async def drip() -> None:
                for byte in data[-40:-1]:
                    await trio.sleep(2)
                    await client.send(bytes([byte]))

            nursery.start_soon(drip)
            answered = await client.response()
            nursery.cancel_scope.cancel()
        assert answered.status == 408
        assert answered.at == pytest.approx(60, abs=0.5)
        client.close()
        assert untouched(home)


@pytest.mark.case("C16")
async def test_slow_head_is_closed_after_10_s(autojump_clock: MockClock) -> None:
    async with house(streaming()) as home:
        client = await home.connect()
        with suppress(trio.BrokenResourceError):
            for byte in post():
                await client.send(bytes([byte]))
                await trio.sleep(1)
        assert trio.current_time() <= 12
        assert untouched(home)


# -- C10, C11, C20, C28: what the body says ---------------------------------------------------------------------------

BODIES: Final = {
    "nothing": (b"", "line 1, column 1"),
    "half of an object": (b'{"model":"m","x":"' + CANARY.encode(), "line 1"),
    "a comma too many": (b'{"model":"m",\n"stream":true,}', "line 2, column 14"),
    "NaN": (b'{"model":"m","temperature":NaN}', None),
    "an array": (b"[1]", "not a JSON object"),
    "a string": (b'"x"', "not a JSON object"),
    "null": (b"null", "not a JSON object"),
    "a number": (b"1", "not a JSON object"),
    "no UTF-8": (b'{"model":"\xff"}', "line 1"),
    "a bomb of arrays": (b'{"messages":' + b"[" * 200_000, "JSON"),
    "a whole bomb": (b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}", None),
}


@pytest.mark.case("C10")
@pytest.mark.parametrize("name", BODIES)
async def test_body_that_is_not_a_json_object_is_refused_with_the_position(
    autojump_clock: MockClock, name: str
) -> None:
    body, where = BODIES[name]
    async with house(streaming()) as home:
        status, answer, _ = await raw(home, post(body))
        if where is None and status == 200:
            return  # read as JSON, in the standard library's wide sense, or passed on
        assert status == 400
        value = json.loads(answer)["error"]
        assert value["code"] == "invalid_json"
        assert (where or "") in value["message"]
        assert CANARY not in answer.decode() + said(home)
        assert untouched(home)


@pytest.mark.case("C10")
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b'{"model":"m","stream":true,"messages":[],"seed":36893488147419103232}', id="2^65"),
        pytest.param(b'{"model":"m","stream":true,"messages":[],"a":1,"a":2}', id="a key that stands twice"),
        pytest.param(b'{"model":"\\ud83d","stream":true,"messages":[]}', id="half of an emoji"),
        pytest.param(b' \n{"model": "m" ,\t"stream":true,"messages":[]}\n ', id="white space"),
    ],
)
async def test_any_valid_json_reaches_the_upstream_byte_for_byte(autojump_clock: MockClock, body: bytes) -> None:
    async with house(peer := streaming()) as home:
        answered = await home.ask(body)
        assert answered.status == 200
        assert peer.requests[0].partition(b"\r\n\r\n")[2] == body
        assert (await home.tape())[1].raw == body
        assert await home.ending() == ("completed", [])


@pytest.mark.case("C11")
@pytest.mark.parametrize(
    ("given", "status"),
    [
        ("application/json", 200),
        ("application/json; charset=utf-8", 200),
        ("APPLICATION/JSON;charset=UTF-8", 200),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("multipart/form-data; boundary=x", 415),
        ("text/plain; application/json", 415),
        ("application/jsonp", 415),
        ("", 415),
    ],
)
async def test_chat_request_needs_the_json_media_type(autojump_clock: MockClock, given: str, status: int) -> None:
    async with house(streaming()) as home:
        got, _, _ = await raw(home, post(ASKED, f"Content-Type: {given}"))
        assert got == status
        assert untouched(home) == (status == 415)


@pytest.mark.case("C11")
async def test_chat_request_without_content_type_is_refused(autojump_clock: MockClock) -> None:
    async with house(streaming()) as home:
        got, _, _ = await raw(home, post().replace(b"Content-Type: application/json\r\n", b""))
        assert got == 415
        assert untouched(home)


@pytest.mark.case("C20")
@pytest.mark.parametrize("name", ["api_base", "base_url", "extra_headers"])
async def test_upstream_address_in_the_body_is_refused(autojump_clock: MockClock, name: str) -> None:
    async with house(streaming()) as home:
        got, answer, _ = await raw(home, post({**ASKED, name: "https://evil.example"}))
        assert (got, json.loads(answer)["error"]["param"]) == (400, name)
        assert b"evil" not in answer
        assert untouched(home)


@pytest.mark.case("C11", "C20")
@pytest.mark.parametrize(
    "path",
    [
        "chat/completions/",
        "chat/completion%73",
        "//chat%2Fcompletions;x=1",
        "Chat/Completions",
        "completions",
        "responses",
        "responses/",
        "messages",
        "message%73",
        "messages/count_tokens",
        "embeddings",
        "embeddings%20",
        "responses%3Fx",
        "chat/completions%00",
        "messages%0d%0aX:1",
        "rerank",
    ],
)
async def test_equivalent_and_other_model_paths_are_guarded_alike(autojump_clock: MockClock, path: str) -> None:
    async with house(streaming()) as home:
        got, _, _ = await raw(home, post(ASKED, "Content-Type: text/plain", path=f"/v1/{path}"))
        assert got == 415
        got, answer, _ = await raw(home, post({**ASKED, "api_base": "https://evil.example"}, path=f"/v1/{path}"))
        assert (got, json.loads(answer)["error"]["param"]) == (400, "api_base")
        assert untouched(home)


@pytest.mark.parametrize("path", ["files", "audio/transcriptions", "responses/r1/cancel", "threads"])
async def test_other_paths_take_any_media_type(autojump_clock: MockClock, path: str) -> None:
    async with house(answer(200, b"{}")) as home:
        got, _, _ = await raw(home, post(b"--x--", "Content-Type: multipart/form-data; boundary=x", path=f"/v1/{path}"))
        assert got == 200


@pytest.mark.case("C28")
@pytest.mark.parametrize(
    "more",
    [
        pytest.param({"n": 1_000_000}, id="n = 10^6"),
        pytest.param(
            {"tools": [{"type": "function", "function": {"name": f"f{n}"}} for n in range(100_000)]},
            id="10^5 tools",
            marks=pytest.mark.slow,
        ),
        pytest.param({"image": "A" * 50_000_000}, id="an image of 50 MB", marks=pytest.mark.slow),
        pytest.param({"messages": [{"role": "user", "content": "x"}] * 100_000}, id="10^5 messages"),
        pytest.param(
            {"messages": [{"role": "tool", "tool_call_id": "1", "content": ""}] * 50_000}, id="5*10^4 results"
        ),
    ],
)
async def test_large_request_passes_unchanged(more: dict[str, Any]) -> None:
    """Real time, since large bodies are read in a thread, over which a virtual clock would jump."""
    body = dumps({**ASKED, **more})
    asked = bytearray()

    async def script(stream: trio.abc.Stream) -> None:
        while not asked.endswith(body[-100:]):
            asked.extend(await stream.receive_some())
        await stream.send_all(HEAD + chunk(text("hi")) + chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")

    async with house(script, config={"body_bytes_max": 128 * 1024 * 1024}) as home:
        client = await home.connect(capacity=1 << 20)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(client.send, post(body))
            answered = await client.response()
        client.close()
        assert answered.status == 200
        assert asked.endswith(body)
        assert await home.ending() == ("completed", [])


# -- C12 to C15, C19, C26: malformed requests --------------------------------------------------------------------------


def with_lines(*lines: str, drop: Sequence[str] = ()) -> bytes:
    """The default request with these header lines, and without those that begin so."""
    head, mark, body = post().partition(b"\r\n\r\n")
    kept = [line for line in head.split(b"\r\n") if not any(line.startswith(name.encode()) for name in drop)]
    return b"\r\n".join([*kept, *[line.encode("latin-1") for line in lines]]) + mark + body


WRONG: Final[dict[str, tuple[str, bytes, int]]] = {
    "two lengths": ("C12", with_lines("Content-Length: 3"), 400),
    "two hosts": ("C12", with_lines("Host: 127.0.0.1:8787"), 400),
    "two authorizations": ("C12", with_lines("Authorization: Bearer a", "Authorization: Bearer b"), 400),
    "two x-api-keys": ("C12", with_lines("x-api-key: a", "x-api-key: b"), 400),
    "a length and chunks": ("C13", with_lines("Transfer-Encoding: chunked"), 400),
    "a folded header": ("C13", with_lines("X-A: b", " c"), 400),
    "a bare line feed": ("C13", post().replace(b"\r\nHost", b"\nHost"), 400),
    "an absolute URI": ("C13", post().replace(b"POST /", b"POST http://127.0.0.1:8787/"), 400),
    "junk that is expected": ("C14", with_lines("Expect: tea"), 417),
    "a header of 70 KB": ("C15", with_lines("X-Long: " + "x" * 70_000), 431),
    "1,001 headers": ("C15", with_lines(*[f"X-{n}: 1" for n in range(1_001)]), 431),
    "NUL in a header": ("C19", with_lines("X-A: b\0c"), 400),
    "CR in a header": ("C19", with_lines("X-A: b\rX-B: c"), 400),
    "LF in a header": ("C19", with_lines("X-A: b\nX-B: c"), 400),
    "a path with a space": ("C19", post(path="/v1/chat completions"), 400),
    "a web socket": ("C26", with_lines("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"), 501),
    "the preface of HTTP/2": ("C26", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
}


@pytest.mark.case("C12", "C13", "C14", "C15", "C19", "C26")
@pytest.mark.parametrize("name", WRONG)
async def test_malformed_requests_are_refused_and_the_connection_closed(autojump_clock: MockClock, name: str) -> None:
    _, data, status = WRONG[name]
    async with house(streaming()) as home:
        got, answer, closed = await raw(home, data)
        assert got == status
        assert "error" in json.loads(answer)
        assert closed or name == "two x-api-keys"
        assert untouched(home)


@pytest.mark.case("C14")
async def test_100_continue_is_sent_only_to_accepted_requests(autojump_clock: MockClock) -> None:
    async with house(streaming()) as home:
        head, _, body = post(ASKED, "Expect: 100-continue").partition(b"\r\n\r\n")
        client = await home.connect()
        await client.send(head + b"\r\n\r\n")
        assert await client.receive() == b"HTTP/1.1 100 Continue\r\n\r\n"
        await client.send(body)
        assert (await client.response()).ended == "chunked"
        client.close()
        refused = await home.connect()
        await refused.send(head.replace(b"127.0.0.1:8787", b"evil.example") + b"\r\n\r\n")
        answered = await refused.response()
        refused.close()
        assert (answered.status, answered.informational) == (421, [])


@pytest.mark.case("C19")
@pytest.mark.parametrize("model", ["a\r\nb", "a\nb", "a\0b", "a\u2028b", 'a"b\\', "ä" * 50, "x" * 5_000], ids=ascii)
async def test_any_model_name_makes_one_line_per_record(autojump_clock: MockClock, model: str) -> None:
    async with house(streaming()) as home:
        await home.ask({**ASKED, "model": model})
        for record in await home.tape():
            line = encode(record)
            assert line.count(b"\n") == 1
            assert line.endswith(b"\n")
        assert await home.ending() == ("completed", [])


# -- C17, C24, C25: in which order -------------------------------------------------------------------------------------


@pytest.mark.case("C17")
@pytest.mark.parametrize(
    ("lines", "drop", "status"),
    [
        pytest.param(["Host: evil.example"], ["Host"], 421, id="another host"),
        pytest.param(["Host: 127.0.0.1.evil.example:8787"], ["Host"], 421, id="a name that begins like ours"),
        pytest.param(["Host: [::ffff:6.6.6.6]:8787"], ["Host"], 421, id="another address"),
        pytest.param(["Host: evil.example/v1"], ["Host"], 400, id="a host with a path"),
        pytest.param(["Origin: https://evil.example"], [], 403, id="a foreign origin"),
        pytest.param(["Origin: null"], [], 403, id="an origin without a name"),
        pytest.param(["Sec-Fetch-Site: cross-site"], [], 403, id="a foreign page without an origin"),
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/wiretape/healthz", "/wiretape/streams", "/x"])
async def test_host_and_origin_are_checked_before_key_and_body(
    autojump_clock: MockClock, lines: list[str], drop: list[str], status: int, path: str
) -> None:
    async with house(streaming(), config={"keys": (Key("own", Secret(KEY)),)}) as home:
        client = await home.connect()
        data = with_lines(*lines, "Authorization: Bearer wrong", drop=drop).replace(
            b"/v1/chat/completions", path.encode()
        )
        head, _, _ = data.partition(b"\r\n\r\n")
        await client.send(head + b"\r\n\r\n")  # of its body nothing has come
        answered = await client.response()
        client.close()
        assert answered.status == status
        assert trio.current_time() < 0.1
        assert not [name for name, _ in answered.headers if name.startswith(b"access-control")]
        assert untouched(home)


@pytest.mark.case("C24")
@pytest.mark.parametrize(
    ("lines", "status"),
    [
        pytest.param([], 401, id="no key"),
        pytest.param(["Authorization: Bearer "], 401, id="an empty one"),
        pytest.param(["Authorization: Bearer wrong"], 401, id="a wrong one"),
        pytest.param(["Authorization: Bearer " + KEY[:-1]], 401, id="one that is too short"),
        pytest.param(["Authorization: Bearer " + KEY + "x"], 401, id="one that is too long"),
        pytest.param(["Authorization: Basic " + KEY], 401, id="another scheme"),
        pytest.param(["Authorization: Bearer " + "x" * 60_000], 401, id="60 KB"),
        pytest.param(["Authorization: Bearer " + "x" * 1_000_000], 431, id="1 MB"),
        pytest.param(["x-api-key: wrong"], 401, id="a wrong one under another name"),
        pytest.param(["Authorization: Bearer " + KEY, "x-api-key: other"], 401, id="two that differ"),
        pytest.param(["Authorization: Bearer " + KEY], 200, id="ours"),
        pytest.param(["x-api-key: " + KEY], 200, id="ours under another name"),
    ],
)
async def test_request_without_our_key_starts_nothing(autojump_clock: MockClock, lines: list[str], status: int) -> None:
    async with house(peer := streaming(), config={"keys": (Key("own", Secret(KEY)),)}) as home:
        client = await home.connect(capacity=1 << 21)
        await client.send(with_lines(*lines))
        answered = await client.response()
        client.close()
        assert answered.status == status
        assert KEY.encode() not in b"".join(peer.requests) + answered.body
        assert untouched(home) == (status != 200)
        assert KEY not in said(home)


@pytest.mark.case("C25")
@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/v1/models", 200),
        ("OPTIONS", "/v1/chat/completions", 405),
        ("OPTIONS", "/wiretape/streams", 405),
        ("TRACE", "/v1/chat/completions", 405),
        ("TRACE", "/v1/models", 405),
        ("BREW", "/v1/models", 405),
        ("GET", "/", 404),
        ("GET", "/v2/models", 404),
        ("GET", "/v1x/models", 404),
        ("GET", "/none/v1/models", 404),
        ("GET", "/wiretape", 404),
        ("GET", "/wiretape/none", 404),
        ("GET", "//v1/models", 404),
        ("GET", "/x/../v1/models", 404),
        ("GET", "/v1/../wiretape/metrics", 404),
        ("GET", "/v1/%2e%2e/x", 404),
        ("POST", "/wiretape/streams", 405),
        ("DELETE", "/wiretape/streams/x", 405),
    ],
)
async def test_unknown_methods_and_paths_are_refused(
    autojump_clock: MockClock, method: str, path: str, status: int
) -> None:
    async with house(peer := answer(200), check=False) as home:
        answered = await home.ask(b"", "Origin: http://127.0.0.1:8787", path=path, method=method)
        assert answered.status == status
        assert not [name for name, _ in answered.headers if name.startswith(b"access-control")]
        assert bool(peer.requests) == (status == 200)
        await home.settled()


# -- C18: headers, both ways -------------------------------------------------------------------------------------------

PASSING: Final = {
    "Authorization": "Bearer sk-caller",
    "X-Api-Key": "sk-caller",
    "OpenAI-Organization": "org-1",
    "OpenAI-Beta": "assistants=v2",
    "User-Agent": "openai-python/1",
    "X-Stainless-Retry-Count": "0",
    "Accept": "text/event-stream",
    "Accept-Language": "de",
    "X-Request-Id": "r1",
    "Idempotency-Key": "i1",
    "X-Custom": "a, b",
}
NEVER: Final = {
    "Keep-Alive": "timeout=5",
    "TE": "trailers",
    "Trailer": "X-T",
    "Proxy-Authorization": "Basic x",
    "Proxy-Connection": "keep-alive",
    "Cookie": "a=b",
    "X-Forwarded-For": "6.6.6.6",
    "X-Forwarded-Host": "evil",
    "Forwarded": "for=6.6.6.6",
    "X-Real-IP": "6.6.6.6",
    "Via": "1.1 x",
    "X-Wiretape-Tools": "held",
    "X-Wiretape-Anything": "x",
    "X-Hop": "named by Connection",
    "Accept-Encoding": "gzip",
    "Traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "Tracestate": "a=b",
    "Baggage": "user=alice",
}


@pytest.mark.case("C18")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_headers_to_the_upstream(autojump_clock: MockClock, path: str) -> None:
    given = [f"{name}: {value}" for name, value in {**PASSING, **NEVER}.items()]
    async with house(peer := streaming()) as home:
        await home.ask(ASKED, *given, "Connection: keep-alive, X-Hop, authorization", path=path)
        head = peer.requests[0].partition(b"\r\n\r\n")[0].decode()
        lines = dict(line.split(": ", 1) for line in head.split("\r\n")[1:])
        names = {name.lower() for name in lines}
        assert {name.lower() for name in PASSING} <= names
        assert {name: lines.get(name, lines.get(name.lower())) for name in PASSING} == PASSING
        assert not names & {name.lower() for name in NEVER} - {"accept-encoding"}
        assert lines.get("accept-encoding", lines.get("Accept-Encoding")) == "identity"
        assert lines.get("host", lines.get("Host")) == "127.0.0.1:9"
        (record,) = [record for record in await home.tape() if record.kind == "request"]
        assert {name for name, _ in record.keys["headers"]} == {"content-type", "user-agent", "x-request-id"}
        assert b"sk-caller" not in b"".join(encode(record) for record in await home.tape())
        assert "sk-caller" not in said(home)


FROM: Final = {
    "X-Request-Id": "r2",
    "OpenAI-Processing-Ms": "5",
    "X-RateLimit-Remaining-Tokens": "7",
    "X-Custom": "c",
    "ETag-Like": "e",
}
NEVER_BACK: Final = {
    "Keep-Alive": "timeout=5",
    "Set-Cookie": "a=b",
    "Set-Cookie2": "a=b",
    "Server": "nginx",
    "Via": "1.1 x",
    "Proxy-Authenticate": "Basic",
    "X-Forwarded-For": "10.0.0.1",
    "X-Wiretape-Stream": "forged",
    "Access-Control-Allow-Origin": "*",
    "X-Accel-Redirect": "/secret",
    "X-Hop": "named by Connection",
    "Upgrade": "h2c",
}


@pytest.mark.case("C18")
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
async def test_headers_to_the_client(autojump_clock: MockClock, path: str) -> None:
    more = "".join(f"{name}: {value}\r\n" for name, value in {**FROM, **NEVER_BACK}.items())
    head = HEAD[:-2] + b"Connection: X-Hop\r\n" + more.encode() + b"\r\n"
    async with house(streaming(head)) as home:
        answered = await home.ask(path=path)
        names = {name for name, _ in answered.headers}
        given = {name.lower().encode(): value.encode() for name, value in FROM.items()}
        assert given.items() <= dict(answered.headers).items()
        assert answered.header(b"x-wiretape-stream") == home.streams[0].encode()
        assert not names & {name.lower().encode() for name in NEVER_BACK} - {b"x-wiretape-stream"}
        (record,) = [record for record in await home.tape() if record.kind == "head"]
        assert {name for name, _ in record.keys["headers"]} == {
            *("content-type", "x-request-id", "openai-processing-ms", "x-ratelimit-remaining-tokens")
        }


# -- C27 ---------------------------------------------------------------------------------------------------------------


@pytest.mark.case("C27")
async def test_repeated_request_is_a_new_stream(autojump_clock: MockClock) -> None:
    async with house(streaming()) as home:
        lines = ["Idempotency-Key: same", "X-Stainless-Retry-Count: 1"]
        answers = [await home.ask(ASKED, *lines) for _ in range(2)]
        names = [answered.header(b"x-wiretape-stream") for answered in answers]
        assert names == [name.encode() for name in home.streams]
        assert len(set(names)) == 2
        for stream in home.streams:
            assert await home.ending(stream) == ("completed", [])
        assert busy(home) == 0
