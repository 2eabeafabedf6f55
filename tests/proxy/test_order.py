"""The settings that a request chooses, and the edits of its body: nothing else changes."""

from typing import Any

import pytest

from wiretape.events.core.json_text import parse
from wiretape.events.core.settings import Settings
from wiretape.proxy.config.model import Route, Target
from wiretape.proxy.http1 import Headers
from wiretape.proxy.relay.stream_request import settings_for, unstreamed, with_usage

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
    assert parse(with_usage(body, parse(body))) == parse(edited)
    assert b"123456789012345678901" in with_usage(body, parse(body)) or b"123456789012345678901" not in body


@pytest.mark.parametrize(
    "body",
    [b'{"stream":true,"a":1.10}', b'{"a":1.10,"stream" : true , "stream_options":{"include_usage":true}}'],
    ids=["alone", "with options"],
)
def test_streaming_is_switched_off_by_an_edit_in_place(body: bytes) -> None:
    assert parse(unstreamed(body)) == {"stream": False, "a": 1.1}
    assert b"1.10" in unstreamed(body)
