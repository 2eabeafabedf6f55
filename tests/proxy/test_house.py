"""Requests through the whole proxy, in memory: framing of bodies, and routes that are declared to be hermes-agent."""

import json
import re
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Script, chunk
from tests.support.house import ASKED, DONE, HEAD, Peer, answer, call, finish, frame, house, post, role, text
from wiretape.events.core.settings import Settings
from wiretape.events.emit import Summariser, emit
from wiretape.proxy.api.streams import summary_json
from wiretape.proxy.config.model import Target


@pytest.mark.parametrize("how", ["close", "rst", "fin"])
@pytest.mark.parametrize("pieces", [(200_000,), (1, 200_000), (1, 200_000, 300_000, 300_000)], ids=["1", "2", "tape"])
async def test_disconnect_within_a_send_is_recorded_before_it(
    autojump_clock: MockClock, pieces: tuple[int, ...], how: str
) -> None:
    """Of four the third comes from the tape, because more waits than is kept. The upstream says no end."""
    async with house(Peer(role(), *(text("x" * size) for size in pieces), every_s=1, end="stall")) as home:
        client = await home.connect(capacity=8_192)
        await client.send(post())
        got = await client.receive()
        await trio.sleep(len(pieces) + 1)
        while len(got) < sum(pieces[:3]) - 100_000:
            got += await client.receive()
        getattr(client, how)()
        await home.settled()
        tape = await home.tape()
        (at,) = [record.keys["at"] for record in tape if record.kind == "gone"]
        assert len(emit(tape[: at + 1])) <= sum(pieces[:3]) - 50_000


async def test_stream_without_a_tape_cannot_be_read(autojump_clock: MockClock) -> None:
    """docs/reference/http-api.md says so of the header."""
    async with house(answer(200, b"{}"), route={"tape": False}, check=False) as home:
        answered = await home.ask(b"", path="/v1/models", method="GET")
        await home.settled()
        assert answered.header(b"x-wiretape-stream") == home.streams[-1].encode()
        for path in ("", "/tape", "/events"):
            asked = await home.ask(b"", path=f"/wiretape/streams/{home.streams[-1]}{path}", method="GET")
            assert asked.status == 404


@pytest.mark.parametrize("dialect", ["chat/completions", "completions"])
async def test_partial_frame_waits_for_its_rest(autojump_clock: MockClock, dialect: str) -> None:
    """docs/reference/configuration.md says so of the profile."""
    whole = text("hi")

    async with house(Peer(whole[:20], whole[20:], DONE, every_s=5), settings=Settings(profile="transparent")) as home:
        client, asked = await home.connect(), trio.current_time()
        await client.send(post(path=f"/v1/{dialect}"))
        answered = await client.response(until=lambda so_far: bool(so_far.pieces))
        assert (answered.pieces[0][0] - asked, answered.body[: len(whole)]) == (10, whole)
        client.close()


@pytest.mark.parametrize(
    "piece",
    [text("x"), frame({"reasoning_content": "x"}), call("x"), frame({}), frame({"refusal": "x"})],
    ids=["text", "reasoning", "arguments", "an empty delta", "a refusal"],
)
async def test_every_chunk_resets_the_stall_timer(piece: bytes, autojump_clock: MockClock) -> None:
    script = Peer(call("", "read"), *[piece] * 5, finish("tool_calls"), DONE, every_s=50)
    async with house(script, route={"idle_s": 60.0}) as home:
        began = trio.current_time()
        await home.ask()
        assert trio.current_time() - began >= 300
        assert (await home.ending())[0] == "completed"


EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
HALF = text("hi") + call('{"a', "write_file")
WHOLE = text("hi") + finish() + DONE


CASES = {
    "chunks, and the last one, in the middle of a call": (
        Peer(HALF),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": True},
    ),
    "chunks that are cut": (
        Peer(HALF, end="fin"),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "chunks, and a reset": (
        Peer(HALF, end="rst"),
        {"framing": "chunked"},
        {"cause": "reset", "ending": "reset", "framed": False, "broke": "reset"},
    ),
    "chunks, and what is none": (
        Peer(chunk(HALF), b"zzz\r\n", raw=True, end="fin"),
        {"framing": "chunked"},
        {"cause": "protocol", "ending": "protocol", "framed": False, "broke": "protocol"},
    ),
    "chunks, and silence": (
        Peer(HALF, end="stall"),
        {"framing": "chunked"},
        {"cause": "stalled", "ending": "stalled", "framed": False},
    ),
    "a length that is not": (
        Peer(HALF, head=EVENTS + b"Content-Length: 9999\r\n\r\n", end="fin"),
        {"framing": "length", "length": 9999},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "[DONE], and the close that is the end": (
        Peer(WHOLE, head=EVENTS + b"\r\n", end="fin"),
        {"framing": "close"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "closed"},
    ),
    "[DONE] and a cut": (
        Peer(WHOLE, end="fin"),
        {"framing": "chunked"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "truncated"},
    ),
}


@pytest.mark.parametrize("case", CASES)
async def test_of_a_chat_stream(case: str, autojump_clock: MockClock) -> None:
    del autojump_clock
    script, framing, ended = CASES[case]
    async with house(script, route={"attempts": 1}) as home:
        await home.ask()
        await home.settled()
        tape = await home.tape()
    head = next(record for record in tape if record.kind == "head")
    assert {name: head.keys[name] for name in ("framing", "length") if name in head.keys} == framing
    told = {name: tape[-1].keys[name] for name in ("cause", "ending", "framed", "broke") if name in tape[-1].keys}
    assert told == ended


async def test_an_attempt_that_failed_says_it_too_and_one_without_a_head_says_nothing(
    autojump_clock: MockClock,
) -> None:
    del autojump_clock
    empty = answer(200, b"", "Connection: close", kind="text/event-stream")
    cut, nothing = Peer(end="fin"), Peer(head=b"", end="fin")
    async with house(empty, cut, nothing, Peer(WHOLE), route={"attempts": 4}) as home:
        await home.ask()
        await home.settled()
        tape = await home.tape()
    failed = [record.keys for record in tape if record.kind == "failed"]
    assert [(keys.get("framed"), keys.get("broke")) for keys in failed] == [
        (True, None),
        (False, "truncated"),
        (None, None),
    ]
    assert tape[-1].keys["framed"] is True


# -- hermes-agent -----------------------------------------------------------------------------------------------------


AGENT: Final[dict[str, Any]] = {"hermes": True}
SESSION: Final = HEAD.replace(b"\r\n\r\n", b"\r\nX-Hermes-Session-Id: api-1\r\nX-Hermes-Session-Key: k\r\n\r\n")
RUNNING: Final = b'event: hermes.tool.progress\ndata: {"tool": "terminal", "toolCallId": "c", "status": "running"}\n\n'
COMPLETED: Final = (
    b'event: hermes.tool.progress\ndata: {"tool": "terminal", "toolCallId": "c", "status": "completed"}\n\n'
)
INCOMPLETE: Final = b'{"error":{"message":"no answer","type":"server_error","code":"agent_incomplete"}}'


def statuses(body: bytes) -> list[tuple[str, str]]:
    payloads = [block.partition(b"data: ")[2] for block in body.split(b"\n\n") if block.startswith(b"event:")]
    return [(value["toolCallId"], value["status"]) for value in map(json.loads, payloads)]


async def test_agent_tool_is_reported(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), RUNNING, COMPLETED, text("18"), finish(), DONE), route=AGENT) as home:
        answered = await home.ask()
        assert statuses(answered.body) == [("c", "running"), ("c", "completed")]
        assert await home.ending() == ("completed", [])
        tape = await home.tape()
        assert tape[0].keys["settings"]["hermes"] is True
        (tool,) = summary_json(home.streams[0], Summariser().feed(*tape))["tools"]
        assert (tool["id"], tool["state"], tool["run_by"]) == ("c", "completed", "upstream")


@pytest.mark.parametrize("name", ["X-Hermes-Tool-Progress", "X-Wiretape-Tool-Events"])
async def test_client_can_switch_agent_events_off(name: str, autojump_clock: MockClock) -> None:
    async with house(peer := Peer(role(), RUNNING, text("18"), finish(), DONE), route=AGENT) as home:
        assert statuses((await home.ask(ASKED, f"{name}: off")).body) == []
        assert (b"x-hermes-tool-progress: off" in peer.requests[0].lower()) is name.startswith("X-Hermes")


async def test_session_headers_pass_both_ways(autojump_clock: MockClock) -> None:
    given = ("X-Hermes-Session-Id: api-1", "X-Hermes-Session-Key: k", "Idempotency-Key: once")
    async with house(peer := Peer(role(), text("18"), finish(), DONE, head=SESSION), route=AGENT) as home:
        answered = await home.ask(ASKED, *given)
        assert all(line.lower().encode() in peer.requests[0].lower() for line in given)
        assert answered.header(b"x-hermes-session-id") == b"api-1"
        assert answered.header(b"x-hermes-session-key") == b"k"


@pytest.mark.parametrize(("route", "ending"), [(AGENT, "completed"), ({}, "stalled")], ids=["hermes", "elsewhere"])
async def test_agent_keepalives_reset_the_stall_timer(
    route: dict[str, Any], ending: str, autojump_clock: MockClock
) -> None:
    silence = [b": keepalive\n\n"] * 20
    script = Peer(role(), text("Well. "), *silence, text("18"), finish(), DONE, every_s=30)
    async with house(script, route={**route, "idle_s": 300.0}) as home:
        await home.ask()
        assert (await home.ending())[0] == ending


async def test_agent_run_is_not_repeated_after_tools_ran(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), RUNNING, end="fin"), route=AGENT) as home:
        answered = await home.ask()
        assert (answered.status, statuses(answered.body)) == (200, [("c", "running"), ("c", "dropped")])
        assert b'"error"' in answered.body
        assert (await home.kinds()).count("attempt") == 1


@pytest.mark.parametrize(
    ("headers", "retry", "attempts"),
    [
        (("X-Hermes-Completed: false", "X-Hermes-Partial: true"), "always", 1),
        ((), "always", 3),
        ((), None, 1),
    ],
)
async def test_agent_error_response_passes(
    headers: tuple[str, ...], retry: str | None, attempts: int, autojump_clock: MockClock
) -> None:
    async with house(answer(502, INCOMPLETE, *headers), route={**AGENT, "retry": retry}) as home:
        answered = await home.ask({**ASKED, "stream": False})
        assert (answered.status, answered.body) == (502, INCOMPLETE)
        assert (await home.kinds()).count("attempt") == attempts
        for line in headers:
            name, _, value = line.encode().partition(b": ")
            assert answered.header(name.lower()) == value


STREAMS: Final = {"a stream": ASKED, "a whole answer": {**ASKED, "stream": False}}
LOST: Final[dict[str, Script]] = {
    "a reset": Peer(head=b"", end="rst"),
    "a close": Peer(head=b"", end="fin"),
    "a 500": answer(500, b"{}"),
    "a 429": answer(429, b"{}"),
    "an empty stream": Peer(),
    "no streaming": answer(400, b'{"error":{"message":"Streaming is not supported"}}'),
}


@pytest.mark.parametrize("body", STREAMS.values(), ids=STREAMS)
@pytest.mark.parametrize("lost", LOST)
@pytest.mark.parametrize("route", [AGENT, {"retry": "before_send"}, {"retry": "never"}], ids=["agent", "set", "never"])
async def test_agent_request_that_went_out_is_never_repeated(
    route: dict[str, Any], lost: str, body: Any, autojump_clock: MockClock
) -> None:
    """Its tools may have run: not by another attempt, not on a fallback, and not by the client."""
    elsewhere = [Target(name=name, url=f"http://127.0.0.1:{port}/v1") for name, port in (("a", 9), ("b", 8))]
    asked = 0

    async def counted(stream: trio.abc.Stream) -> None:
        nonlocal asked
        asked += 1
        await LOST[lost](stream)

    async with house(counted, route=route, targets=elsewhere) as home:
        answered = await home.ask(body)
        assert answered.status >= 400 or b'"error"' in answered.body
        assert (asked, (await home.kinds()).count("attempt")) == (1, 1)
        if lost != "no streaming":  # a 400, which clients do not repeat
            assert answered.header(b"x-should-retry") == b"false"


@pytest.mark.parametrize(("retry", "attempts"), [(None, 2), ("always", 2), ("never", 1)])
async def test_agent_request_that_never_went_out_is_sent_again(
    retry: str | None, attempts: int, autojump_clock: MockClock
) -> None:
    async with house(Peer(role(), text("18"), finish(), DONE), route={**AGENT, "retry": retry}) as home:
        opened: Any = home.transport
        open_tcp, failed = opened._connector._open_tcp, False

        async def once(*args: Any, **how: Any) -> Any:
            nonlocal failed
            if not failed:
                failed = True
                raise OSError(111, "Connection refused")
            return await open_tcp(*args, **how)

        opened._connector._open_tcp = once
        answered = await home.ask()
        assert answered.status == (200 if attempts == 2 else 502)
        assert (await home.kinds()).count("attempt") == attempts


async def test_agent_request_never_takes_an_idle_connection(autojump_clock: MockClock) -> None:
    """An upstream may close it at that moment, and whether the request was read is then unknown."""
    async with house(peer := Peer(role(), text("18"), finish(), DONE), route=AGENT) as home:
        await home.ask()
        await home.ask()
        assert (len(peer.requests), len(home.upstream.still_open)) == (2, 2)


@pytest.mark.parametrize("given", [None, "mine"])
async def test_attempts_share_one_idempotency_key(given: str | None, autojump_clock: MockClock) -> None:
    async with house(peer := answer(503, b"{}")) as home:
        await home.ask(ASKED, *([f"Idempotency-Key: {given}"] if given else []))
        keys = [re.findall(rb"(?i)\r\nidempotency-key: *([^\r]*)", request) for request in peer.requests]
        assert keys == [[(given or home.streams[0]).encode()]] * 3


async def test_transparent_profile_adds_no_idempotency_key(autojump_clock: MockClock) -> None:
    async with house(peer := answer(200, b"{}"), settings=Settings(profile="transparent")) as home:
        await home.ask()
        assert b"idempotency-key" not in peer.requests[0].lower()
