"""Streams of Responses and Messages that fail, in front of an upstream that speaks the same dialect."""

import json
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.failures.judged import error_of, faulty, judged
from tests.proxy.scripted import Script, chunk, request_of
from tests.support.dialects import (
    ASKS,
    FRAMES,
    HALF,
    OPENING,
    PATHS,
    SAID,
    WHOLE,
    event,
    response,
    response_event,
    said,
    values_of,
    whole,
)
from tests.support.house import HEAD, End, House, Peer, answer
from tests.support.http import Answer
from wiretape.events.core.json_text import dumps
from wiretape.events.core.settings import Settings
from wiretape.events.emit import Emitter
from wiretape.events.tape.record import Record

DIALECTS = ("responses", "messages")
#: How the connection ends, what is left of a frame, and the ending.
CUTS: dict[str, tuple[End, bytes, str]] = {
    "U18 a reset in a frame": ("rst", b'event: x\ndata: {"type"', "reset"),
    "U18 a reset between frames": ("rst", b"", "reset"),
    "U19 a cut chunked body": ("fin", b"", "truncated"),
    "U19 a cut chunked body in a frame": ("fin", b"event: mess", "truncated"),
    "U19 chunks that end without a terminal event": ("final", b"", "truncated"),
    "U24 silence": ("stall", b"", "stalled"),
}
CASES = [pytest.param(*cut, id=name, marks=pytest.mark.case(name[:3])) for name, cut in CUTS.items()]


async def ask(home: House, dialect: str, *headers: str, **changes: Any) -> Answer:
    return await home.ask({**ASKS[dialect], **changes}, *headers, path=PATHS[dialect])


def good(dialect: str) -> bytes:
    return HEAD + b"".join(map(chunk, FRAMES[dialect])) + b"0\r\n\r\n"


def failing_first(dialect: str, first: bytes) -> Script:
    """An upstream that answers its first request with these bytes, and then closes; later ones properly."""
    asked: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        while request := await request_of(stream):
            asked.append(request)
            await stream.send_all(first if len(asked) == 1 else good(dialect))
            if len(asked) == 1:
                return

    return script


def in_band(dialect: str, code: str) -> bytes:
    """The error event of a dialect."""
    if dialect == "messages":
        return event({"type": "error", "error": {"type": code, "message": "It went wrong."}})
    error = {"code": code, "message": "It went wrong."}
    return response_event(2, "failed", response=response("failed", error=error))


# -- cut --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("mode", ["error", "warn", "both"])
@pytest.mark.parametrize(("end", "partial", "ending"), CASES)
async def test_cut_call_is_reported_and_never_completed(
    dialect: str, mode: Any, end: End, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    peer = Peer(*FRAMES[dialect][: HALF[dialect]], partial, end=end, every_s=1)
    async with faulty(peer, settings=Settings(on_partial=mode)) as home:
        answered = await ask(home, dialect)
        assert (answered.status, answered.ended, len(peer.requests)) == (200, "chunked", 1)
        await judged(home, answered, ending, came=peer.body)
        found = said(dialect, answered.body)
        last = values_of(answered.body)[-1]
        if mode == "warn":
            assert found.calls == ()
            assert "write_file" in found.text.removeprefix("hello")
            assert last["type"] in ("response.incomplete", "message_stop")
        else:
            assert found.end == "error"
            assert mode == "both" or found.text == "hello"
            error = last["response"]["error"] if dialect == "responses" else last["error"]
            assert "write_file" in error["message"]
            assert [call["name"] for call in error["dropped_tools"]] == ["write_file"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(("end", "partial", "ending"), CASES)
async def test_cut_before_content_is_an_http_error_in_the_clients_shape(
    dialect: str, end: End, partial: bytes, ending: str, autojump_clock: MockClock
) -> None:
    peer = Peer(*FRAMES[dialect][: OPENING[dialect]], partial, end=end)
    async with faulty(peer, route={"keepalive_s": 4_000}) as home:
        answered = await ask(home, dialect)
        assert answered.status == (504 if ending == "stalled" else 502)
        assert json.loads(answered.body).get("type") == ("error" if dialect == "messages" else None)
        assert answered.header(b"x-should-retry") == b"false"
        assert (await home.ending())[0] == ending
        assert len(peer.requests) == (1 if ending == "stalled" else 3)
        assert error_of(answered)["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_cut_before_content_is_retried(dialect: str, autojump_clock: MockClock) -> None:
    first = HEAD + b"".join(map(chunk, FRAMES[dialect][: OPENING[dialect]]))
    async with faulty(failing_first(dialect, first)) as home:
        answered = await ask(home, dialect)
        assert said(dialect, answered.body) == SAID
        await judged(home, answered, "completed")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_answer_that_is_cut_is_a_502(dialect: str, autojump_clock: MockClock) -> None:
    body = dumps(WHOLE[dialect])
    cut = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body[:-20]
    async with faulty(Peer(cut, head=b"", raw=True, end="fin")) as home:
        answered = await ask(home, dialect, stream=False)
        assert answered.status == 502
        assert error_of(answered)["message"]
        assert b"hello" not in answered.body


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_answer_passes_byte_for_byte(dialect: str, autojump_clock: MockClock) -> None:
    body = json.dumps(WHOLE[dialect], indent=1).encode()
    async with faulty(Peer(whole(200, body), head=b"", raw=True)) as home:
        answered = await ask(home, dialect, stream=False)
        assert (answered.status, answered.body) == (200, body)
        await judged(home, answered, "completed", came=body)


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_whole_answer_where_a_stream_was_due_becomes_one(dialect: str, autojump_clock: MockClock) -> None:
    async with faulty(Peer(whole(200, dumps(WHOLE[dialect])), head=b"", raw=True)) as home:
        answered = await ask(home, dialect)
        assert said(dialect, answered.body) == SAID
        await judged(home, answered, "completed", "synthesised")


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_upstream_that_refuses_to_stream_gets_a_request_for_a_whole_answer(
    dialect: str, autojump_clock: MockClock
) -> None:
    async def script(stream: trio.abc.Stream) -> None:
        while asked := await request_of(stream):
            streams = json.loads(asked.partition(b"\r\n\r\n")[2]).get("stream")
            refused = b'{"error":{"message":"Streaming is not supported."}}'
            await stream.send_all(whole(400, refused) if streams else whole(200, dumps(WHOLE[dialect])))

    async with faulty(script) as home:
        for attempts in (2, 1):
            answered = await ask(home, dialect)
            assert said(dialect, answered.body) == SAID
            assert (await home.kinds()).count("attempt") == attempts


# -- errors of the upstream -------------------------------------------------------------------------------------------


async def test_a_protocol_error_of_a_responses_stream_before_anything_was_delivered_falls_back_to_another_attempt(
    autojump_clock: MockClock,
) -> None:
    first = HEAD + chunk(b'data: {"choices":[]}\n\n') + chunk(b"data: what is this\n\n") + b"0\r\n\r\n"
    async with faulty(failing_first("responses", first)) as home:
        answered = await ask(home, "responses")
        assert said("responses", answered.body) == SAID
        seen = await judged(home, answered, "completed")
        assert [(one.keys["ending"], one.keys["next"]) for one in seen.failed] == [("protocol", "again")]


@pytest.mark.parametrize(
    ("dialect", "code", "status"),
    [
        ("messages", "overloaded_error", 529),
        ("messages", "api_error", 500),
        ("messages", "rate_limit_error", 429),
        ("responses", "server_error", 500),
        ("responses", "rate_limit_exceeded", 429),
    ],
)
async def test_passing_error_before_content_is_retried_and_then_an_http_error(
    dialect: str, code: str, status: int, autojump_clock: MockClock
) -> None:
    first = HEAD + chunk(in_band(dialect, code)) + b"0\r\n\r\n"
    async with faulty(failing_first(dialect, first)) as home:
        assert said(dialect, (await ask(home, dialect)).body) == SAID
    peer = Peer(in_band(dialect, code))
    async with faulty(peer) as home:
        answered = await ask(home, dialect)
        assert (answered.status, len(peer.requests)) == (status, 3)
        assert (answered.header(b"x-should-retry"), error_of(answered)["message"]) == (b"false", "It went wrong.")
        assert (await home.ending())[0] == "upstream_error"


@pytest.mark.parametrize(("dialect", "code"), [("messages", "invalid_request_error"), ("responses", "invalid_prompt")])
async def test_error_that_blames_the_request_is_not_retried(dialect: str, code: str, autojump_clock: MockClock) -> None:
    peer = Peer(in_band(dialect, code))
    async with faulty(peer) as home:
        answered = await ask(home, dialect)
        assert answered.status >= 400
        assert len(peer.requests) == 1
        assert error_of(answered)["message"] == "It went wrong."


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_error_after_content_passes_in_the_stream(dialect: str, autojump_clock: MockClock) -> None:
    peer = Peer(*FRAMES[dialect][: HALF[dialect]], in_band(dialect, "api_error"))
    async with faulty(peer) as home:
        answered = await ask(home, dialect)
        assert (answered.status, said(dialect, answered.body).end) == (200, "error")
        assert b"It went wrong." in answered.body
        await judged(home, answered, "upstream_error", came=peer.body)
        assert len(peer.requests) == 1


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_error_status_of_the_same_dialect_passes_as_it_came(dialect: str, autojump_clock: MockClock) -> None:
    body = b'{"type": "error", "error": {"type": "invalid_request_error", "message": "no"}}'
    async with faulty(answer(400, body)) as home:
        answered = await ask(home, dialect)
        assert (answered.status, answered.body) == (400, body)


@pytest.mark.parametrize("header", ["originator: codex_exec", "User-Agent: codex_exec/0.169.0 (Linux)"])
async def test_codex_gets_no_5xx_since_it_would_ask_thirty_times(header: str, autojump_clock: MockClock) -> None:
    body = b'{"error":{"message":"Down for a while.","type":"server_error"}}'
    async with faulty(answer(503, body)) as home:
        answered = await ask(home, "responses", header)
        assert (answered.status, answered.body) == (400, body)
        assert (await ask(home, "responses")).status == 503


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_upstream_of_another_dialect_than_its_route_says_is_a_protocol_error(
    dialect: str, autojump_clock: MockClock
) -> None:
    async with faulty(Peer(*FRAMES["chat"])) as home:
        answered = await ask(home, dialect)
        assert answered.status == 502
        assert (await home.ending())[0] == "protocol"


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_pings_do_not_keep_a_stalled_stream_alive(dialect: str, autojump_clock: MockClock) -> None:
    ping = event({"type": "ping"}) if dialect == "messages" else event({"type": "keepalive", "sequence_number": 9})
    peer = Peer(*FRAMES[dialect][: HALF[dialect]], *[ping] * 30, every_s=30, end="stall")
    async with faulty(peer) as home:
        answered = await ask(home, dialect)
        assert said(dialect, answered.body).end == "error"
        assert (await home.ending())[0] == "stalled"
        assert trio.current_time() < (HALF[dialect] + 1) * 30 + 300 + 10


@pytest.mark.case("P20")
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_bug_in_reading_a_frame_ends_the_stream_in_its_dialect(
    dialect: str, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed = Emitter.feed

    def broken(emitter: Emitter, record: Record) -> list[bytes]:
        if b"BOOM" in (record.raw or b""):
            raise RuntimeError("a bug")
        return feed(emitter, record)

    monkeypatch.setattr(Emitter, "feed", broken)
    frames = FRAMES[dialect][: HALF[dialect]]
    async with faulty(Peer(*frames, event({"type": "BOOM"}), every_s=1), check=False) as home:
        answered = await ask(home, dialect)
        await home.settled()
        assert (answered.status, answered.ended, said(dialect, answered.body).end) == (200, "chunked", "error")
        last = values_of(answered.body)[-1]
        assert (last["response"] if dialect == "responses" else last)["error"]["message"]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<html>busy</html>", id="HTML"),
        pytest.param(b"null", id="null"),
        pytest.param(b'{"choices":[{"index":0,"message":{"role":"assistant","content":"hi"}}]}', id="another dialect"),
        pytest.param(b'{"type":"error","error":{"type":"api_error","message":"no"}}', id="an error"),
    ],
)
async def test_whole_answer_that_is_no_answer_is_an_error(dialect: str, body: bytes, autojump_clock: MockClock) -> None:
    async with faulty(Peer(whole(200, body), head=b"", raw=True)) as home:
        answered = await ask(home, dialect, stream=False)
        assert answered.status >= 400
        assert error_of(answered)["message"]


@pytest.mark.parametrize("status", ["failed", "queued", "in_progress", "cancelled"])
async def test_unfinished_whole_response_passes(status: str, autojump_clock: MockClock) -> None:
    body = dumps({**WHOLE["responses"], "status": status, "output": []})
    async with faulty(Peer(whole(200, body), head=b"", raw=True)) as home:
        answered = await ask(home, "responses", stream=False)
        assert (answered.status, answered.body) == (200, body)
