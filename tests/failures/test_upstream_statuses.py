"""Upstreams that answer with something else than a stream: U07 to U16."""

from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

import pytest
from trio.testing import MockClock

from tests.failures.judged import PLAIN, UPSTREAM_KEY, each_its_own, error_of, faulty, judged, says_error, sent_payloads
from tests.proxy.scripted import request_of
from tests.support.house import ASKED, DONE, HEAD, Peer, answer, finish, role, text
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Target

GOOD = (role(), text("hi"), finish(), DONE)
WHOLE = dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }
)
HTML = b"<html><script>alert(1)</script><title>Sign in</title></html>"
NO_STREAMS = b'{"error":{"message":"Streaming is not supported for this model","type":"invalid_request_error"}}'

BODIES: dict[str, Any] = {"a stream": ASKED, "a whole answer": PLAIN}
EXCHANGES: dict[str, dict[str, Any]] = {
    "a stream": {"body": ASKED},
    "a whole answer": {"body": PLAIN},
    "models": {"body": b"", "path": "/v1/models", "method": "GET"},
}
BUSY = says_error(503)
TRANSPARENT = Settings(profile="transparent")


@pytest.mark.case("U07", "U08")
@pytest.mark.parametrize("how", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize("settings", [None, TRANSPARENT], ids=["strict", "transparent"])
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422, 451])
async def test_client_error_passes_byte_for_byte_at_once(
    status: int, settings: Settings | None, how: dict[str, Any], autojump_clock: MockClock
) -> None:
    body = b'{ "error": {"message":"no \\ud83d<b>", "code":"x", "n": 18446744073709551617} }'
    peer = answer(status, body, "X-Request-Id: r1", "X-RateLimit-Left: 3")
    async with faulty(peer, settings=settings) as home:
        answered = await home.ask(**how)
        seen = await judged(home, answered, "upstream_error", came=body)
        assert (answered.status, answered.body, answered.ended) == (status, body, "length")
        assert answered.header(b"x-request-id") == b"r1"
        assert answered.header(b"x-ratelimit-left") == b"3"
        assert answered.header(b"x-should-retry") is None
        assert (len(peer.requests), len(seen.attempts)) == (1, 1)
        assert seen.commits == [status]


@pytest.mark.case("U07")
@pytest.mark.parametrize("how", EXCHANGES.values(), ids=EXCHANGES)
@pytest.mark.parametrize("settings", [None, TRANSPARENT], ids=["strict", "transparent"])
@pytest.mark.parametrize("pieces", [1, 7], ids=["whole", "in pieces of seven bytes"])
@pytest.mark.parametrize("status", [401, 403])
async def test_echoed_key_is_masked_in_errors(
    status: int, pieces: int, settings: Settings | None, how: dict[str, Any], autojump_clock: MockClock
) -> None:
    body = b'{"error":{"message":"Incorrect API key provided: %b."}}' % UPSTREAM_KEY.encode()
    head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nX-Echo: Bearer %b\r\nContent-Length: %d\r\n\r\n" % (
        status,
        UPSTREAM_KEY.encode(),
        len(body),
    )
    each = [body[at : at + 7] for at in range(0, len(body), 7)] if pieces == 7 else [body]
    async with faulty(Peer(*each, head=head, every_s=0.1), settings=settings) as home:
        answered = await home.ask(**how)
        seen = await judged(home, answered, "upstream_error", "key_masked")
        assert (answered.status, answered.ended) == (status, "length")
        assert error_of(answered)["message"].startswith("Incorrect API key provided: ***")
        assert len(seen.attempts) == 1


@pytest.mark.case("U07", "U43")
@pytest.mark.parametrize("settings", [None, TRANSPARENT], ids=["strict", "transparent"])
async def test_echoed_key_is_masked_in_streams(settings: Settings | None, autojump_clock: MockClock) -> None:
    error = b'data: {"error":{"message":"key %b was revoked","code":"invalid_api_key"}}\n\n' % UPSTREAM_KEY.encode()
    async with faulty(Peer(role(), text("hi"), error, every_s=1), settings=settings) as home:
        answered = await home.ask()
        await judged(home, answered, "upstream_error", "key_masked")
        assert b"was revoked" in answered.body


@pytest.mark.case("U09")
@pytest.mark.parametrize(
    ("header", "waits"),
    [
        ("2", [2.0, 2.0]),
        ("10", [10.0, 10.0]),
        ("0", [0.25, 0.5]),
        ("11", None),
        ("1000000000", None),
        ("-5", [0.25, 0.5]),
        ("soon", [0.25, 0.5]),
        ("date", [5.0, 0.5]),
        ("a date far away", None),
    ],
)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
@pytest.mark.parametrize("said", [b'{"error":{"message":"slow down"}}', b""], ids=["JSON", "empty"])
async def test_retry_after_is_honoured_up_to_ten_seconds(
    said: bytes, body: Any, header: str, waits: list[float] | None, autojump_clock: MockClock
) -> None:
    when = {"date": 5, "a date far away": 3_600}.get(header)
    if when is not None:
        header = format_datetime(datetime.fromtimestamp(1_700_000_000 + when, UTC), usegmt=True)
    peer = answer(429, said, f"Retry-After: {header}")
    async with faulty(peer) as home:
        answered = await home.ask(body)
        seen = await judged(home, answered, "upstream_error", came=said)
        gaps = [late - early for early, late in zip(peer.at, peer.at[1:], strict=False)]
        assert gaps == pytest.approx(waits or [], abs=0.01)
        if body is ASKED and waits and sum(waits) > 15:  # a keepalive was due, and with it the status
            assert (seen.commits, b"slow down" in answered.body) == ([200], bool(said))
            return
        assert seen.commits == [answered.status] == [429]
        assert answered.header(b"retry-after") == header.encode()
        assert answered.header(b"x-should-retry") == (None if waits is None else b"false")


@pytest.mark.case("U10")
@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504, 529])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_transient_error_is_tried_three_times(status: int, body: Any, autojump_clock: MockClock) -> None:
    async with faulty(says_error(503, "first"), says_error(500, "second"), says_error(status, "last")) as home:
        each_its_own(home)
        answered = await home.ask(body)
        seen = await judged(home, answered, "upstream_error")
        assert (answered.status, error_of(answered)["message"]) == (status, "last")
        assert answered.header(b"x-should-retry") == b"false"
        assert answered.at <= 2
        assert [record.keys["status"] for record in seen.failed] == [503, 500, status]


@pytest.mark.case("U10")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_error_before_a_successful_retry_is_never_seen(body: Any, autojump_clock: MockClock) -> None:
    good = Peer(*GOOD) if body is ASKED else answer(200, WHOLE)
    async with faulty(says_error(503), good) as home:
        each_its_own(home)
        answered = await home.ask(body)
        assert answered.status == 200
        seen = await judged(home, answered, "completed", came=good.body)
        assert [record.keys["next"] for record in seen.failed] == ["again"]
        assert answered.body == good.body


@pytest.mark.case("U10")
async def test_x_should_retry_appears_once(autojump_clock: MockClock) -> None:
    async with faulty(says_error(503, "busy", "X-Should-Retry: true")) as home:
        answered = await home.ask()
        assert answered.header(b"x-should-retry") == b"false"
        await judged(home, answered, "upstream_error")


@pytest.mark.case("U10")
async def test_other_exchange_is_sent_once(autojump_clock: MockClock) -> None:
    """Repeating it could do it twice."""
    async with faulty(peer := says_error(503, "busy")) as home:
        answered = await home.ask(b'{"file":1}', path="/v1/batches")
        await judged(home, answered, "upstream_error", came=peer.body)
        assert (answered.status, answered.body, len(peer.requests)) == (503, peer.body, 1)


@pytest.mark.case("U10")
@pytest.mark.parametrize("first", [BUSY, says_error(429, "later", "Retry-After: 60")], ids=["503", "429"])
async def test_fallback_upstream_answers_when_the_first_fails(first: Peer, autojump_clock: MockClock) -> None:
    targets = [Target(name=name, url=f"http://{name}.test/v1") for name in ("a", "b")]
    first.requests.clear()
    good = Peer(*GOOD)

    async def either(stream: Any) -> None:
        await (first if home.upstream.opened[-1][0] == "a.test" else good)(stream)

    async with faulty(either, targets=targets) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, b"".join(GOOD))
        seen = await judged(home, answered, "completed", came=good.body)
        upstreams = [record.keys["upstream"] for record in seen.attempts]
        assert upstreams == (["a", "a", "a", "b"] if first is BUSY else ["a", "b"])


@pytest.mark.case("U11")
@pytest.mark.parametrize("status", [500, 502])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_2_mb_error_page_becomes_a_short_error(status: int, body: Any, autojump_clock: MockClock) -> None:
    page = HTML + b"<p>" + b"x" * 2_000_000
    async with faulty(answer(status, page, kind="text/html")) as home:
        answered = await home.ask(body)
        seen = await judged(home, answered, "upstream_error", "not_a_stream", came=page)
        assert (answered.status, answered.ended) == (status, "length")
        assert len(answered.body) <= 64 * 1024
        assert answered.header(b"content-type") == b"application/json"
        assert b"<" not in answered.body
        assert "<title>" in error_of(answered)["message"]
        assert seen.commits == [status]


@pytest.mark.case("U11")
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_endless_error_is_cut_short(body: Any, autojump_clock: MockClock) -> None:
    page = [b"x" * 60_000] * 200
    async with faulty(answer(400, b"".join(page), kind="text/plain")) as home:
        answered = await home.ask(body)
        assert (answered.status, answered.ended) == (400, "length")
        assert len(answered.body) <= 64 * 1024
        seen = await judged(home, answered, "upstream_error", "not_a_stream")
        assert seen.end["bytes"] <= 9 * 1024 * 1024


@pytest.mark.case("U12")
@pytest.mark.parametrize("usage", [True, False], ids=["with usage", "without usage"])
async def test_whole_answer_becomes_a_stream(usage: bool, autojump_clock: MockClock) -> None:
    asked = {**ASKED, "stream_options": {"include_usage": True}} if usage else ASKED
    async with faulty(answer(200, WHOLE)) as home:
        answered = await home.ask(asked)
        assert (answered.status, answered.header(b"content-type")) == (200, b"text/event-stream")
        payloads = sent_payloads(answered)
        assert payloads[-1] == "[DONE]"
        assert "".join(p["choices"][0]["delta"].get("content") or "" for p in payloads[:-1] if p["choices"]) == "hi"
        assert any(p.get("usage") for p in payloads[:-1]) is usage
        await judged(home, answered, "completed", "synthesised", came=WHOLE)


@pytest.mark.case("U12")
async def test_refusal_to_stream_is_retried_without_streaming_and_remembered(autojump_clock: MockClock) -> None:
    asked: list[Any] = []

    async def script(stream: Any) -> None:
        while request := await request_of(stream):
            asked.append(parse(request.partition(b"\r\n\r\n")[2]))
            refused = asked[-1].get("stream")
            said = NO_STREAMS if refused else WHOLE
            head = b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            await stream.send_all(head % (400 if refused else 200, len(said)) + said)

    async with faulty(script) as home:
        for number in range(2):
            answered = await home.ask({**ASKED, "stream_options": {"include_usage": True}})
            assert (answered.status, answered.header(b"content-type")) == (200, b"text/event-stream")
            seen = await judged(home, answered, "completed", "synthesised", came=WHOLE)
            assert [record.keys.get("unstreamed", False) for record in seen.attempts] == [[False, True], [True]][number]
        assert [each.get("stream") for each in asked] == [True, False, False]
        assert "stream_options" not in asked[1]
        answered = await home.ask({**ASKED, "model": "other"})
        assert asked[3]["stream"] is True, "it is remembered for this model alone"


@pytest.mark.case("U12")
async def test_refusal_of_the_unstreamed_request_is_not_remembered(autojump_clock: MockClock) -> None:
    async with faulty(peer := answer(400, NO_STREAMS)) as home:
        for _ in range(2):
            answered = await home.ask()
            assert (answered.status, answered.body) == (400, NO_STREAMS)
            await judged(home, answered, "upstream_error", came=NO_STREAMS)
        assert [b'"stream":true' in request for request in peer.requests] == [True, False, True, False]


@pytest.mark.case("U12")
@pytest.mark.parametrize(
    ("peer", "status", "ending", "flags"),
    [
        pytest.param(answer(200, WHOLE), 502, "protocol", ["not_a_stream"], id="a whole answer"),
        pytest.param(answer(400, NO_STREAMS), 400, "upstream_error", [], id="a refusal"),
    ],
)
async def test_whole_answer_is_an_error_if_synthesis_is_off(
    peer: Peer, status: int, ending: str, flags: list[str], autojump_clock: MockClock
) -> None:
    peer.requests.clear()
    async with faulty(peer, route={"synthesise": False}) as home:
        answered = await home.ask()
        assert answered.status == status
        assert answered.header(b"content-type") == b"application/json"
        assert "error" in parse(answered.body)
        assert b'"hi"' not in answered.body
        await judged(home, answered, ending, *flags, came=peer.body)
        assert len(peer.requests) == 1


@pytest.mark.case("U12")
async def test_transparent_profile_passes_a_whole_answer_unchanged(autojump_clock: MockClock) -> None:
    async with faulty(answer(200, WHOLE), settings=TRANSPARENT) as home:
        answered = await home.ask()
        assert (answered.status, answered.body, answered.ended) == (200, WHOLE, "length")
        assert answered.header(b"content-type") == b"application/json"
        await judged(home, answered, "completed", "synthesised", came=WHOLE)


@pytest.mark.case("U12")
@pytest.mark.parametrize("cut", [1, 40, len(WHOLE) - 1])
@pytest.mark.parametrize("on_partial", ["error", "warn", "both"])
async def test_incomplete_whole_answer_is_not_made_a_stream(
    cut: int, on_partial: Any, autojump_clock: MockClock
) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(WHOLE)
    async with faulty(Peer(WHOLE[:cut], head=head, end="fin"), settings=Settings(on_partial=on_partial)) as home:
        answered = await home.ask()
        assert (answered.status, error_of(answered)["code"]) == (502, "truncated")
        seen = await judged(home, answered, "truncated", came=WHOLE[:cut])
        assert len(seen.attempts) == 3, "nothing was delivered"


@pytest.mark.case("U13")
@pytest.mark.parametrize("kind", ["text/html", "text/html; charset=utf-8", "text/plain", "application/octet-stream"])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_html_page_is_a_protocol_error(kind: str, body: Any, autojump_clock: MockClock) -> None:
    async with faulty(answer(200, HTML, kind=kind)) as home:
        answered = await home.ask(body)
        if body is PLAIN and not kind.startswith("text/html"):
            await judged(home, answered, "protocol", "not_a_stream", came=HTML)  # which is not mistaken for a page
            return
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        assert b"<" not in answered.body
        assert b"script" not in answered.body
        seen = await judged(home, answered, "protocol", "not_a_stream", came=HTML)
        assert len(seen.attempts) == 1


@pytest.mark.case("U14")
@pytest.mark.parametrize(
    "kind", ["text/plain", "application/octet-stream", "", "application/x-ndjson", "text/event-streams"]
)
@pytest.mark.parametrize(
    "first", [b"", b"\r\n\r\n", b": hello\n\n", b"\xef\xbb\xbf"], ids=["", "blank", "comment", "BOM"]
)
@pytest.mark.parametrize("every_s", [0.0, 20.0], ids=["at once", "slowly"])
async def test_stream_with_a_wrong_media_type_is_recognised(
    kind: str, first: bytes, every_s: float, autojump_clock: MockClock
) -> None:
    line = b"Content-Type: %b\r\n" % kind.encode() if kind else b""
    head = b"HTTP/1.1 200 OK\r\n%bTransfer-Encoding: chunked\r\n\r\n" % line
    content = (role(), text("hi"), finish() + DONE)
    pieces = [first, *content] if first else list(content)
    async with faulty(peer := Peer(*pieces, head=head, every_s=every_s)) as home:
        answered = await home.ask()
        assert (answered.status, answered.header(b"content-type")) == (200, b"text/event-stream")
        assert answered.body.replace(b": keepalive\n\n", b"") == b"".join(GOOD)
        await judged(home, answered, "completed", "wrong_content_type", came=peer.body)


@pytest.mark.case("U15")
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(HEAD, id="in chunks"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n", id="of no length"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n", id="until the close"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 0\r\n\r\n", id="as JSON"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", id="without a type"),
    ],
)
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_empty_success_is_retried_and_never_completed(head: bytes, body: Any, autojump_clock: MockClock) -> None:
    end: Any = "fin" if b"chunked" not in head and b"Length" not in head else "final"
    async with faulty(peer := Peer(head=head, end=end)) as home:
        answered = await home.ask(body)
        assert (answered.status, error_of(answered)["code"]) == (502, "truncated")
        flags = ["wrong_content_type"] if b"Type" not in head and body is ASKED else []
        seen = await judged(home, answered, "truncated", *flags, came=b"")
        assert (len(peer.requests), len(seen.attempts)) == (3, 3)


@pytest.mark.case("U15")
async def test_comments_alone_are_an_empty_success(autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(b": hello\n\n", b"\n\n", role())) as home:
        answered = await home.ask()
        assert (answered.status, error_of(answered)["code"]) == (502, "truncated")
        await judged(home, answered, "truncated", came=peer.body)
        assert len(peer.requests) == 3


@pytest.mark.case("U15")
@pytest.mark.parametrize("settings", [TRANSPARENT])
async def test_empty_success_in_the_transparent_profile_is_cut(settings: Settings, autojump_clock: MockClock) -> None:
    async with faulty(peer := Peer(), settings=settings) as home:
        answered = await home.ask()
        assert (answered.status, answered.body) == (200, b"")
        await judged(home, answered, "truncated", came=b"")
        assert len(peer.requests) == 1, "no attempt behind a head"


@pytest.mark.case("U16")
@pytest.mark.parametrize("status", [204, 205, 301, 302, 303, 304, 307, 308])
@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
async def test_no_content_and_redirects_are_protocol_errors(status: int, body: Any, autojump_clock: MockClock) -> None:
    peer = answer(status, b"", "Location: http://evil.test/elsewhere", "Set-Cookie: a=b", kind="text/html")
    async with faulty(peer) as home:
        answered = await home.ask(body)
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        assert b"evil.test" not in answered.body + repr(answered.headers).encode()
        seen = await judged(home, answered, "protocol", came=b"")
        assert (len(peer.requests), len(seen.attempts)) == (1, 1)
        assert home.upstream.opened == [("127.0.0.1", 9)], "nothing is followed"


@pytest.mark.case("U16")
@pytest.mark.parametrize("how", EXCHANGES.values(), ids=EXCHANGES)
async def test_switching_protocols_is_refused(how: dict[str, Any], autojump_clock: MockClock) -> None:
    head = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
    async with faulty(Peer(head=head, end="stall")) as home:
        answered = await home.ask(**how)
        assert (answered.status, error_of(answered)["code"]) == (502, "protocol")
        await judged(home, answered, "protocol", came=b"")
