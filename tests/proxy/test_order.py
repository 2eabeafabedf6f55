"""The settings that a request chooses, and the edits of its body: nothing else changes."""

import threading
from hashlib import sha256
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import request_of
from tests.support.house import house
from wiretape.events.core.json_text import dumps, parse
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Route, Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.limits import PARSE_INLINE_BYTES_MAX
from wiretape.proxy.relay.stream_request import in_thread_if_large, settings_for, unstreamed, with_usage

ROUTE = Route(name="", targets=(Target(name="u", url="http://127.0.0.1:1/v1"),), settings=Settings(on_partial="both"))

REFUSED = b'{"error":{"message":"streaming is not supported"}}'
WHOLE = dumps(
    {
        "id": "c1",
        "object": "chat.completion",
        "created": 1,
        "model": "m",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": "stop"}],
    }
)


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
    assert parse(with_usage(body, parse(body))) == parse(edited)
    assert b"123456789012345678901" in with_usage(body, parse(body)) or b"123456789012345678901" not in body


def test_body_without_options_is_edited_without_a_scan() -> None:
    """20 MB would block the loop for 0.2 s."""
    torn = b' {"stream":true,"messages":["'
    assert (
        with_usage(torn, {"stream": True}) == b' {"stream_options":{"include_usage":true},"stream":true,"messages":["'
    )


@pytest.mark.parametrize("size", [PARSE_INLINE_BYTES_MAX - 1, PARSE_INLINE_BYTES_MAX, PARSE_INLINE_BYTES_MAX + 1])
async def test_long_body_is_edited_in_a_thread(size: int) -> None:
    where = await in_thread_if_large(b"x" * size, threading.get_ident)
    assert (where == threading.get_ident()) is (size <= PARSE_INLINE_BYTES_MAX)


@pytest.mark.parametrize("route", [{"include_usage": True}, {"synthesise": True}], ids=["usage", "unstreamed"])
@pytest.mark.parametrize("config", [{}, {"requests": "hash"}], ids=["full", "hash"])
async def test_long_bodies_get_the_same_edits(
    route: dict[str, bool], config: dict[str, str], autojump_clock: MockClock
) -> None:
    asked: list[bytes] = []

    async def script(stream: trio.abc.Stream) -> None:
        while said := await request_of(stream):
            asked.append(said.partition(b"\r\n\r\n")[2])
            status, body = (400, REFUSED) if "synthesise" in route and len(asked) == 1 else (200, WHOLE)
            head = b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
            await stream.send_all(head % (status, len(body)) + body)

    body = {"model": "m", "stream": True, "messages": [{"role": "user", "content": "x" * PARSE_INLINE_BYTES_MAX}]}
    async with house(script, route=route, config=config) as home:
        await home.ask(body)
        sent = {"stream": False} if "synthesise" in route else {"stream_options": {"include_usage": True}}
        assert parse(asked[-1]) == {**body, **sent}
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        whole = dumps(body)
        if config:
            assert (request.raw, request.keys["sha256"]) == (None, sha256(whole).hexdigest())
        else:
            assert (request.raw, request.payload, request.value) == (whole, whole, body)


@pytest.mark.parametrize(
    "body",
    [b'{"stream":true,"a":1.10}', b'{"a":1.10,"stream" : true , "stream_options":{"include_usage":true}}'],
    ids=["alone", "with options"],
)
def test_streaming_is_switched_off_by_an_edit_in_place(body: bytes) -> None:
    assert parse(unstreamed(body)) == {"stream": False, "a": 1.1}
    assert b"1.10" in unstreamed(body)
