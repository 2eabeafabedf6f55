"""Browser pages of the origins in `cors_origins`: what they may send and read, and that no other page may."""

from typing import Any, Final

import pytest
from trio.testing import MockClock

from tests.support.house import ASKED, DONE, HEAD, House, Peer, answer, finish, house, text
from tests.support.http import Answer
from wiretape.proxy.config.model import Key, Secret

PAGE: Final = "https://app.test"
KEY: Final = "wt-" + "k" * 40
KEYED: Final = f"Authorization: Bearer {KEY}"
CONFIG: Final[dict[str, Any]] = {"cors_origins": (PAGE, "http://localhost:3000"), "keys": (Key("own", Secret(KEY)),)}
PREFLIGHT: Final = (
    "Access-Control-Request-Method: POST",
    "Access-Control-Request-Headers: authorization, x-stainless-os",
)


def cors(answered: Answer) -> dict[bytes, bytes]:
    """Return the headers of CORS; each may come once."""
    found = [(name.lower(), value) for name, value in answered.headers]
    names = [name for name, _ in found if name.startswith(b"access-control-")]
    assert len(names) == len(set(names))
    return {name: value for name, value in found if name in names or (name, value) == (b"vary", b"Origin")}


async def ask(home: House, path: str, *headers: str, method: str = "GET", body: Any = b"") -> Answer:
    return await home.ask(body, *headers, path=path, method=method)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/runs", "/x/v1/runs/run_1/events", "/wiretape/streams"])
@pytest.mark.parametrize("origin", CONFIG["cors_origins"])
async def test_preflight_of_a_named_origin_needs_no_key(autojump_clock: MockClock, path: str, origin: str) -> None:
    async with house(answer(200), config=CONFIG) as home:
        answered = await ask(home, path, f"Origin: {origin}", *PREFLIGHT, method="OPTIONS")
        assert (answered.status, answered.body) == (204, b"")
        headers = cors(answered)
        assert headers[b"access-control-allow-origin"] == origin.encode()
        assert headers[b"vary"] == b"Origin"
        assert headers[b"access-control-allow-headers"] == b"authorization, x-stainless-os"
        assert {b"GET", b"POST", b"DELETE"} <= set(headers[b"access-control-allow-methods"].split(b", "))
        assert b"access-control-allow-credentials" not in headers
        assert b"*" not in b"".join(headers.values())
        assert not home.streams
        assert home.assembly.metrics.refusals == {}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        pytest.param((*PREFLIGHT, "Origin: https://evil.test"), 403, id="another origin"),
        pytest.param((*PREFLIGHT, "Origin: null"), 403, id="no origin"),
        pytest.param((*PREFLIGHT, "Origin: https://app.test.evil.test"), 403, id="one that begins alike"),
        pytest.param((*PREFLIGHT, f"Origin: {PAGE}", "Origin: https://evil.test"), 403, id="two"),
        pytest.param((*PREFLIGHT, f"Origin: {PAGE}", "Host: evil.test"), 400, id="two hosts"),
        pytest.param((f"Origin: {PAGE}",), 405, id="without the method of a preflight"),
        pytest.param(PREFLIGHT, 405, id="without an origin"),
    ],
)
async def test_other_preflights_are_refused(autojump_clock: MockClock, headers: tuple[str, ...], status: int) -> None:
    async with house(answer(200), config=CONFIG) as home:
        answered = await ask(home, "/v1/models", *headers, method="OPTIONS")
        assert answered.status == status
        assert b"access-control-allow-methods" not in cors(answered)
        assert b"evil" not in b"".join(cors(answered).values())


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        pytest.param("/wiretape/healthz", (), 200, id="health"),
        pytest.param("/wiretape/streams", (KEYED,), 200, id="own endpoint"),
        pytest.param("/wiretape/none", (KEYED,), 404, id="not found"),
        pytest.param("/v1/models", (KEYED,), 200, id="relayed"),
        pytest.param("/v1/models", (), 401, id="without a key"),
        pytest.param("/v1/chat/completions", (KEYED, "Content-Type: text/plain"), 415, id="not JSON"),
    ],
)
async def test_page_of_a_named_origin_reads_every_answer(
    autojump_clock: MockClock, path: str, headers: tuple[str, ...], status: int
) -> None:
    own = (
        "Access-Control-Allow-Origin: *",
        "Access-Control-Expose-Headers: x",
        "Access-Control-Allow-Credentials: true",
    )
    async with house(answer(200, b"{}", *own), config=CONFIG) as home:
        method = "POST" if status == 415 else "GET"
        answered = await ask(home, path, f"Origin: {PAGE}", "Sec-Fetch-Site: cross-site", *headers, method=method)
        assert answered.status == status
        read = cors(answered)
        assert read.pop(b"access-control-allow-origin") == PAGE.encode()
        assert read.pop(b"vary") == b"Origin"
        exposed = read.pop(b"access-control-expose-headers").split(b", ")
        assert {b"X-Wiretape-Stream", b"Retry-After"} <= set(exposed)
        assert read == {}


async def test_page_of_a_named_origin_reads_a_stream(autojump_clock: MockClock) -> None:
    head = HEAD.replace(b"\r\n\r\n", b"\r\nAccess-Control-Allow-Origin: *\r\nVary: Accept-Encoding\r\n\r\n")
    async with house(Peer(text("hi"), finish(), DONE, head=head), config=CONFIG) as home:
        answered = await home.ask(ASKED, f"Origin: {PAGE}", KEYED)
        assert (answered.status, answered.ended) == (200, "chunked")
        assert cors(answered)[b"access-control-allow-origin"] == PAGE.encode()
        assert answered.header(b"x-wiretape-stream") is not None
        stream = home.streams[-1]
        followed = await ask(home, f"/wiretape/streams/{stream}/events", f"Origin: {PAGE}", KEYED)
        assert cors(followed)[b"access-control-allow-origin"] == PAGE.encode()
        assert b"hi" in followed.body


async def test_answers_to_others_only_say_that_they_vary(autojump_clock: MockClock) -> None:
    """A cache must not give a page the answer that another client got."""
    async with house(answer(200, b"{}"), config=CONFIG) as home:
        assert cors(await ask(home, "/v1/models", KEYED)) == {b"vary": b"Origin"}
        refused = await ask(home, "/v1/models", KEYED, "Origin: https://evil.test")
        assert (refused.status, cors(refused)) == (403, {b"vary": b"Origin"})


@pytest.mark.parametrize("origins", [(), (PAGE,)], ids=["none", "for another application"])
async def test_no_answer_has_a_cors_header_by_default(autojump_clock: MockClock, origins: tuple[str, ...]) -> None:
    async with house(answer(200, b"{}"), config={"origins": origins}) as home:
        for path in ("/v1/models", "/wiretape/streams", "/wiretape/healthz", "/none"):
            for method in ("GET", "OPTIONS"):
                answered = await ask(home, path, f"Origin: {PAGE}", *PREFLIGHT, method=method)
                assert answered.status in ({200, 404} if origins and method == "GET" else {403, 405})
                assert cors(answered) == {}
