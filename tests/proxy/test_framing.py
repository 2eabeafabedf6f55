"""What a tape says of the way in which a body was framed and ended, which a replay needs to give it back."""

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Reset, Script, chunk, request_of
from tests.support.house import ASKED, DONE, call, finish, house, post, text
from wiretape.events.core.settings import Settings

EVENTS = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = EVENTS + b"Transfer-Encoding: chunked\r\n\r\n"
HALF = text("hi") + call('{"a', "write_file")
WHOLE = text("hi") + finish() + DONE
LAST = b"0\r\n\r\n"


def says(*pieces: bytes, reset: bool = False, silent: bool = False) -> Script:
    """These bytes, and the end of the connection."""

    async def script(stream: trio.abc.Stream) -> None:
        if not await request_of(stream):
            return
        for piece in pieces:
            await stream.send_all(piece)
        if silent:
            await trio.sleep_forever()
        if reset:
            await trio.testing.wait_all_tasks_blocked()
            raise Reset

    return script


CASES = {
    "chunks, and the last one, in the middle of a call": (
        says(CHUNKED, chunk(HALF), LAST),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": True},
    ),
    "chunks that are cut": (
        says(CHUNKED, chunk(HALF)),
        {"framing": "chunked"},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "chunks, and a reset": (
        says(CHUNKED, chunk(HALF), reset=True),
        {"framing": "chunked"},
        {"cause": "reset", "ending": "reset", "framed": False, "broke": "reset"},
    ),
    "chunks, and what is none": (
        says(CHUNKED, chunk(HALF), b"zzz\r\n"),
        {"framing": "chunked"},
        {"cause": "protocol", "ending": "protocol", "framed": False, "broke": "protocol"},
    ),
    "chunks, and silence": (
        says(CHUNKED, chunk(HALF), silent=True),
        {"framing": "chunked"},
        {"cause": "stalled", "ending": "stalled", "framed": False},
    ),
    "a length that is kept": (
        says(EVENTS + b"Content-Length: %d\r\n\r\n" % len(HALF), HALF),
        {"framing": "length", "length": len(HALF)},
        {"cause": "eof", "ending": "truncated", "framed": True},
    ),
    "a length that is not": (
        says(EVENTS + b"Content-Length: 9999\r\n\r\n", HALF),
        {"framing": "length", "length": 9999},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "truncated"},
    ),
    "neither, so the close is the end": (
        says(EVENTS + b"\r\n", HALF),
        {"framing": "close"},
        {"cause": "eof", "ending": "truncated", "framed": False, "broke": "closed"},
    ),
    "[DONE], and the close that is the end": (
        says(EVENTS + b"\r\n", WHOLE),
        {"framing": "close"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "closed"},
    ),
    "[DONE] and the last chunk": (
        says(CHUNKED, chunk(WHOLE), LAST),
        {"framing": "chunked"},
        {"cause": "closed", "ending": "completed", "framed": True},
    ),
    "[DONE] and a cut": (
        says(CHUNKED, chunk(WHOLE)),
        {"framing": "chunked"},
        {"cause": "closed", "ending": "completed", "framed": False, "broke": "truncated"},
    ),
    "[DONE] and silence": (
        says(CHUNKED, chunk(WHOLE), silent=True),
        {"framing": "chunked"},
        {"cause": "closed", "ending": "completed", "framed": False},
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
    empty = says(EVENTS + b"Content-Length: 0\r\n\r\n")
    cut = says(CHUNKED)
    nothing = says()
    whole = says(CHUNKED, chunk(WHOLE), LAST)
    async with house(empty, cut, nothing, whole, route={"attempts": 4}) as home:
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


@pytest.mark.parametrize(("method", "head", "framing"), [
    ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\n", {"framing": "length", "length": 12}),
    ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", {"framing": "chunked"}),
    ("HEAD", b"HTTP/1.1 200 OK\r\n\r\n", {}),
    ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", {}),
])  # fmt: skip
async def test_of_an_answer_without_a_body(
    method: str, head: bytes, framing: dict[str, object], autojump_clock: MockClock
) -> None:
    del autojump_clock
    async with house(says(head)) as home:
        await home.ask(b"", path="/v1/models", method=method)
        await home.settled()
        tape = await home.tape()
    keys = next(record.keys for record in tape if record.kind == "head")
    assert {name: keys[name] for name in ("framing", "length") if name in keys} == framing
    assert tape[-1].keys["framed"] is True


async def test_a_client_that_leaves_leaves_the_end_open(autojump_clock: MockClock) -> None:
    del autojump_clock
    script = says(CHUNKED, chunk(HALF), silent=True)
    async with house(script, settings=Settings(profile="transparent")) as home:
        client = await home.connect()
        await client.send(post(ASKED))
        await trio.sleep(1)
        client.close()
        await home.settled()
        end = (await home.tape())[-1]
    assert (end.keys["cause"], end.keys["framed"], end.keys.get("broke")) == ("client_gone", False, None)
