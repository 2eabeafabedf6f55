"""Chat requests on their way upstream: settings of a request, compressed bodies, edits and repaired histories."""

import gzip
import threading
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.support.house import ASKED, DONE, House, Peer, finish, house, role, text
from wiretape.events.chat.request import with_usage
from wiretape.events.core.json_text import ABSENT, Edit, apply, dumps, parse
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Route, Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.memory import Charge, Memory
from wiretape.proxy.relay.stream_request import decoded, settings_for
from wiretape.proxy.upstream.connection import Inflater

MARKED = (
    "\n`💻 ls -la`\nHere they are.\n⚠ Stream stalled mid tool-call: ls was cut short. Not completed; no result seen."
)


def asked(said: str = MARKED) -> dict[str, Any]:
    messages = [*ASKED["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "`💻 more`"}]
    return {**ASKED, "messages": messages, "seed": 12345678901234567890}


def streaming() -> Peer:
    return Peer(role(), text("hi"), finish(), DONE)


def parted(request: bytes) -> tuple[dict[str, str], bytes]:
    """Return the headers of a request in lower case, and its body."""
    head, _, body = request.partition(b"\r\n\r\n")
    lines = (line.partition(": ") for line in head.decode().split("\r\n")[1:])
    return {name.lower(): value for name, _, value in lines}, body


async def of_history(home: House) -> list[Any]:
    return [dict(record.keys) for record in await home.tape() if record.kind == "history"]


MARKS = [{"path": ["messages", 1, "content"], "markers": 1, "warnings": 1, "repaired": False}]
REPAIRED = [{**MARKS[0], "repaired": True}]


async def test_history_marks_are_recorded_and_sent_unchanged_by_default(autojump_clock: MockClock) -> None:
    async with house(peer := streaming()) as home:
        await home.ask(asked())
        assert [parted(request)[1] for request in peer.requests] == [dumps(asked())]
        assert await home.ending() == ("completed", ["history_marked"])
        assert await of_history(home) == [{"marks": MARKS}]
        assert b"wiretape_histories_marked_total 1.0\n" in home.assembly.metrics.text()


async def test_repaired_history_is_sent_clean_and_recorded_twice(autojump_clock: MockClock) -> None:
    async with house(peer := streaming(), route={"history": "repair"}) as home:
        await home.ask(asked())
        ((_, body),) = map(parted, peer.requests)
        assert body == dumps(asked("Here they are."))
        (keys,) = await of_history(home)
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert request.raw == dumps(asked())
        edits = [Edit(start, end, new.encode()) for start, end, new in keys["edits"]]
        assert apply(dumps(asked()), edits) == body


async def test_hashed_requests_record_no_history(autojump_clock: MockClock) -> None:
    async with house(streaming(), route={"history": "repair"}, config={"requests": "hash"}) as home:
        await home.ask(asked())
        assert await of_history(home) == [{"marks": REPAIRED}]


async def test_history_off_records_nothing(autojump_clock: MockClock) -> None:
    async with house(streaming(), route={"history": "off"}) as home:
        await home.ask(asked())
        assert await of_history(home) == []
        assert await home.ending() == ("completed", [])


BODY = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi " + "there " * 40}]}
PLAIN = dumps(BODY)
CODED = {"gzip": gzip.compress(PLAIN), "x-gzip": gzip.compress(PLAIN), "deflate": zlib.compress(PLAIN)}


async def sent(home: House, body: bytes, coding: str) -> Any:
    return await home.ask(body, f"Content-Encoding: {coding}")


@pytest.mark.parametrize("coding", CODED)
async def test_compressed_request_is_read_and_forwarded_unchanged(coding: str, autojump_clock: MockClock) -> None:
    async with house(peer := streaming()) as home:
        answered = await sent(home, CODED[coding], coding)
        assert (answered.status, b"hi" in answered.body) == (200, True)
        [(headers, body)] = map(parted, peer.requests)
        assert body == CODED[coding]
        assert (headers["content-encoding"], headers["content-length"]) == (coding, str(len(body)))
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert (request.raw, request.keys["facts"]["model"], request.keys["messages"]) == (body, "m", 1)
        assert await home.ending() == ("completed", [])


@pytest.mark.parametrize("coding", CODED)
async def test_edited_request_is_forwarded_uncompressed(coding: str, autojump_clock: MockClock) -> None:
    async with house(peer := streaming(), route={"include_usage": True}) as home:
        assert (await sent(home, CODED[coding], coding)).status == 200
        [(headers, body)] = map(parted, peer.requests)
        assert parse(body) == {**BODY, "stream_options": {"include_usage": True}}
        assert "content-encoding" not in headers
        assert headers["content-length"] == str(len(body))
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert request.raw == CODED[coding]


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress"])
async def test_unsupported_coding_is_refused_by_name(coding: str, autojump_clock: MockClock) -> None:
    async with house(peer := streaming()) as home:
        answered = await sent(home, PLAIN, coding)
        assert (answered.status, answered.header(b"accept-encoding")) == (415, b"gzip, deflate")
        assert parse(answered.body)["error"]["message"].startswith(f"The request body is coded as {coding};")
        assert peer.requests == []


WRONG = {
    "damaged": (b"\x1f\x8b" + b"x" * 60, 400, "invalid_encoding"),
    "half of it": (CODED["gzip"][:-20], 400, "invalid_encoding"),
    "no JSON": (gzip.compress(b"{"), 400, "invalid_json"),
    "a bomb": (gzip.compress(b" " * 400_000), 413, "body_too_large"),
    "too long": (gzip.compress(bytes(range(256)) * 8), 413, "body_too_large"),
}


@pytest.mark.parametrize(("body", "status", "code"), WRONG.values(), ids=WRONG)
async def test_unreadable_body_is_refused(body: bytes, status: int, code: str, autojump_clock: MockClock) -> None:
    async with house(peer := streaming(), config={"body_bytes_max": 2_000}) as home:
        answered = await sent(home, body, "gzip")
        assert (answered.status, parse(answered.body)["error"]["code"]) == (status, code)
        assert peer.requests == []
        answered = await sent(home, gzip.compress(PLAIN + b" " * (2_000 - len(PLAIN))), "gzip")
        assert answered.status == 200


async def test_abandoned_decoding_takes_no_shared_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    goes_on = threading.Event()

    class Stuck(Inflater):
        def feed(self, data: bytes) -> Iterator[bytes]:
            goes_on.wait(10)
            yield from super().feed(data)

    monkeypatch.setattr("wiretape.proxy.relay.stream_request.Inflater", Stuck)
    try:
        with trio.fail_after(5):
            async with trio.open_nursery() as nursery:
                threads = trio.CapacityLimiter(2)
                for _ in range(4):
                    nursery.start_soon(decoded, CODED["gzip"], "gzip", 2_000, threads, Charge(Memory()))
                await wait_all_tasks_blocked()
                assert trio.to_thread.current_default_thread_limiter().borrowed_tokens == 0
                nursery.cancel_scope.cancel()
    finally:
        goes_on.set()


ROUTE = Route(name="", targets=(Target(name="u", url="http://127.0.0.1:1/v1"),), settings=Settings(on_partial="both"))


@pytest.mark.parametrize(
    ("headers", "changed"),
    [
        ({}, {}),
        ({b"x-wiretape-on-partial": b"warn"}, {"on_partial": "warn"}),
        ({b"x-wiretape-on-partial": b" Error "}, {"on_partial": "error"}),
        ({b"x-wiretape-on-partial": b"loud"}, {}),
        ({b"x-wiretape-tools": b"held"}, {"tools": "held"}),
        ({b"x-wiretape-tools": b"\xff"}, {}),
        ({b"x-wiretape-tool-events": b"off"}, {"tool_events": False}),
        ({b"x-hermes-tool-progress": b"OFF"}, {"tool_events": False}),
        ({b"x-wiretape-tool-events": b"on"}, {}),
    ],
    ids=["nothing", "a mode", "in another case", "an unknown word", "held", "no word", "off", "off for hermes", "on"],
)
def test_request_headers_change_settings(headers: dict[bytes, bytes], changed: dict[str, Any]) -> None:
    wanted: dict[str, Any] = {"on_partial": "both"} | changed
    assert settings_for(ROUTE, Headers(headers.items())) == Settings(**wanted)


@pytest.mark.parametrize(
    ("body", "edited"),
    [
        (b'{"stream":true}', b'{"stream_options":{"include_usage":true},"stream":true}'),
        (
            b'{"stream":true,"stream_options":null, "n":123456789012345678901}',
            b'{"stream":true,"stream_options":{"include_usage":true}, "n":123456789012345678901}',
        ),
        (
            b'{"stream_options":{"include_usage":false,"x":1}}',
            b'{"stream_options":{"include_usage":true,"x":1}}',
        ),
        (b'{"stream_options":{}}', b'{"stream_options":{"include_usage":true}}'),
    ],
    ids=["no options", "null, and a number beyond a float", "a false one", "empty options"],
)
def test_usage_is_requested_by_an_edit_in_place(body: bytes, edited: bytes) -> None:
    given = parse(body).get("stream_options", ABSENT)
    with_it = with_usage(body, None if given is ABSENT else isinstance(given, dict))
    assert parse(with_it) == parse(edited)
    assert b"123456789012345678901" in with_it or b"123456789012345678901" not in body
