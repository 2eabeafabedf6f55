"""Markers and warnings in a history: left alone, noted, or taken out before they go upstream; the tape keeps both."""

from typing import Any

import trio
from trio.testing import MockClock

from tests.proxy.scripted import chunk, request_of
from tests.support.house import ASKED, DONE, HEAD, House, finish, house, text
from wiretape.events.core.json_text import dumps
from wiretape.events.core.splice import Edit, apply

MARKED = "\n`💻 ls -la`\nHere they are.\n⚠ Stream stalled mid tool-call: ls was cut short. Nothing was executed."


def asked(said: str = MARKED) -> dict[str, Any]:
    messages = [*ASKED["messages"], {"role": "assistant", "content": said}, {"role": "user", "content": "`💻 more`"}]
    return {**ASKED, "messages": messages, "seed": 12345678901234567890}


class Upstream:
    """Answers, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    async def __call__(self, stream: trio.abc.Stream) -> None:
        while request := await request_of(stream):
            self.bodies.append(request.partition(b"\r\n\r\n")[2])
            await stream.send_all(HEAD + chunk(text("hi") + finish() + DONE) + b"0\r\n\r\n")


async def of_history(home: House) -> list[Any]:
    return [dict(record.keys) for record in await home.tape() if record.kind == "history"]


MARKS = [{"path": ["messages", 1, "content"], "markers": 1, "warnings": 1, "repaired": False}]
REPAIRED = [{**MARKS[0], "repaired": True}]


async def test_history_marks_are_recorded_and_sent_unchanged_by_default(autojump_clock: MockClock) -> None:
    async with house(upstream := Upstream()) as home:
        await home.ask(asked())
        assert upstream.bodies == [dumps(asked())]
        assert await home.ending() == ("completed", ["history_marked"])
        assert await of_history(home) == [{"marks": MARKS}]
        assert b"wiretape_histories_marked_total 1.0\n" in home.assembly.metrics.text()


async def test_repaired_history_is_sent_clean_and_recorded_twice(autojump_clock: MockClock) -> None:
    async with house(upstream := Upstream(), route={"history": "repair"}) as home:
        await home.ask(asked())
        assert upstream.bodies == [dumps(asked("Here they are."))]
        (keys,) = await of_history(home)
        (request,) = [record for record in await home.tape() if record.kind == "request"]
        assert request.raw == dumps(asked())
        edits = [Edit("", start, end, new.encode()) for start, end, new in keys["edits"]]
        assert apply(dumps(asked()), edits) == upstream.bodies[0]


async def test_hashed_requests_record_no_history(autojump_clock: MockClock) -> None:
    async with house(Upstream(), route={"history": "repair"}, config={"requests": "hash"}) as home:
        await home.ask(asked())
        assert await of_history(home) == [{"marks": REPAIRED}]


async def test_history_off_records_nothing(autojump_clock: MockClock) -> None:
    async with house(Upstream(), route={"history": "off"}) as home:
        await home.ask(asked())
        assert await of_history(home) == []
        assert await home.ending() == ("completed", [])
