"""The account of memory: what others make this process hold is charged first, and refused when there is no room."""

import gzip
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from tests.failures.test_client_leaving import follow, silent
from tests.proxy.scripted import Script, chunk, request_of
from tests.support.house import ASKED, DONE, HEAD, House, Peer, finish, house, post, role, text
from wiretape.events.core.json_text import ABSENT
from wiretape.events.core.limits import JSON_VALUES_MAX
from wiretape.events.tape.record import Record
from wiretape.proxy.limits import (
    MEMORY_A_STREAM_BYTES,
    MEMORY_HELD_SMALL_BYTES,
    MEMORY_RESERVED_BYTES,
    PARSE_INLINE_BYTES_MAX,
    READ_WHOLE_TIMES,
)
from wiretape.proxy.memory import Charge, Memory, resident_bytes
from wiretape.proxy.store.files import open_files

MIB: Final = 1024 * 1024


@asynccontextmanager
async def roomy(room_bytes: int, *scripts: Script, **more: Any) -> AsyncGenerator[House]:
    """A proxy whose large requests have about this room."""
    used = resident_bytes() + room_bytes
    most = min(used + 2 * MEMORY_RESERVED_BYTES, used * 4 // 3)  # of a small limit a quarter is reserved
    async with house(*scripts, config={"memory_max_bytes": most}, **more) as home:
        yield home


def streaming() -> Peer:
    return Peer(role(), text("hi"), finish(), DONE)


def history(size: int) -> bytes:
    message = b'{"role":"user","content":"%b"}' % (b"x" * 1_000)
    messages = b",".join([message] * (size // len(message)))
    return b'{"model":"m","stream":true,"messages":[%b]}' % messages


def code_of(body: bytes) -> tuple[str, str]:
    """Return the type and the code of an error as OpenAI clients read it."""
    error = json.loads(body)["error"]
    assert isinstance(error["message"], str)
    return error["type"], error["code"]


# -- requests ----------------------------------------------------------------------------------------------------------


async def test_a_declared_body_is_charged_before_it_is_read(autojump_clock: MockClock) -> None:
    async with roomy(16 * MIB, streaming(), streaming()) as home:
        client = await home.connect()
        await client.send(post(history(32 * MIB))[:1_000])
        refused = await client.response()
        assert (refused.status, refused.header(b"retry-after")) == (503, b"1")
        assert code_of(refused.body) == ("wiretape_error", "memory_max_bytes")
        client.close()
        assert (await home.ask()).status == 200
        assert (await home.ask(history(MIB))).status == 200


async def test_a_chunked_body_is_charged_as_it_comes(autojump_clock: MockClock) -> None:
    async with roomy(4 * MIB, streaming()) as home:
        client = await home.connect(capacity=4 * MIB)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8787\r\nContent-Type: application/json\r\n"
        await client.send(head + b"Transfer-Encoding: chunked\r\n\r\n")
        body = history(3 * MIB)
        await client.send(b"%x\r\n%b\r\n" % (len(body), body))
        assert (await client.response()).status == 503
        client.close()
        assert (await home.ask()).status == 200


async def test_a_compressed_body_is_charged_as_it_grows(autojump_clock: MockClock) -> None:
    async with roomy(8 * MIB, streaming()) as home:
        refused = await home.ask(gzip.compress(history(7 * MIB)), "Content-Encoding: gzip")
        assert (refused.status, code_of(refused.body)[1]) == (503, "memory_max_bytes")
        assert (await home.ask()).status == 200


@pytest.mark.parametrize("unit", [b"[],", b'{"a":{}},'])
async def test_a_body_of_too_many_values_is_refused_unparsed(autojump_clock: MockClock, unit: bytes) -> None:
    messages = (unit * JSON_VALUES_MAX)[:-1]
    async with house(streaming()) as home:
        refused = await home.ask(b'{"model":"m","stream":true,"messages":[%b]}' % messages)
        assert refused.status == 413
        assert code_of(refused.body) == ("invalid_request_error", "too_many_values")
        assert not home.streams
        assert (await home.ask()).status == 200


async def test_half_of_the_charge_is_left_once_a_body_was_read(autojump_clock: MockClock) -> None:
    body = history(100_000)
    async with house(silent(role(), text("hi"))) as home:
        client = await home.connect(capacity=MIB)
        await client.send(post(body))
        await trio.sleep(1)
        assert home.assembly.services.memory.held_bytes == MEMORY_A_STREAM_BYTES + READ_WHOLE_TIMES // 2 * len(body)
        client.close()


async def test_no_value_of_a_request_is_kept(autojump_clock: MockClock) -> None:
    async with house(streaming(), streaming()) as home:
        for body in (ASKED, history(PARSE_INLINE_BYTES_MAX + 1_000)):
            assert (await home.ask(body)).status == 200
            (request,) = [record for record in await home.tape() if record.kind == "request"]
            assert request.payload is not None
            assert request.value is ABSENT
            assert request.keys["messages"] == len(json.loads(request.payload)["messages"])


# -- answers -----------------------------------------------------------------------------------------------------------


def line_of(size: int) -> Script:
    """A peer whose one event does not end."""

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(HEAD + chunk(role()) + chunk(text("hi")) + chunk(b'data: {"choices":"'))
        for _ in range(size // MIB):
            await stream.send_all(chunk(b"x" * MIB))
        await trio.sleep_forever()

    return script


async def test_a_long_line_ends_its_own_stream_where_there_is_no_room(autojump_clock: MockClock) -> None:
    async with roomy(8 * MIB, line_of(6 * MIB), streaming()) as home:
        cut = await home.ask()
        assert (await home.ending())[0] == "limit"
        assert b'"code":"limit"' in cut.body
        assert (await home.ask()).status == 200


async def test_a_large_frame_is_charged_until_it_is_whole(autojump_clock: MockClock) -> None:
    long = text("x" * 2 * MIB)
    async with roomy(12 * MIB, Peer(role(), long, long, long, finish(), DONE)) as home:
        answered = await home.ask()
        assert answered.body.count(long) == 3
        assert await home.ending() == ("completed", [])


async def test_a_whole_answer_ends_where_there_is_no_room_for_it(autojump_clock: MockClock) -> None:
    body = b'{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"%b"}}]}' % (b"x" * 6 * MIB)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)

    async def script(stream: trio.abc.Stream) -> None:
        await request_of(stream)
        await stream.send_all(head + body)

    async with roomy(8 * MIB, script, streaming()) as home:
        cut = await home.ask({**ASKED, "stream": False})
        assert (await home.ending())[0] == "limit"
        assert (cut.status, code_of(cut.body)) == (502, ("upstream_error", "limit"))
        assert (await home.ask()).status == 200


# -- readers -----------------------------------------------------------------------------------------------------------


async def test_readers_of_tapes_are_charged_and_refused(autojump_clock: MockClock) -> None:
    async with roomy(8 * MIB, streaming()) as home:
        assert (await home.ask()).status == 200
        memory = home.assembly.services.memory
        others = [Charge(memory)]
        while others[-1].add(MEMORY_A_STREAM_BYTES):
            others.append(Charge(memory))
        for part in ("", "/events", "/tape"):
            refused = await home.ask(b"", path=f"/wiretape/streams/{home.streams[-1]}{part}", method="GET")
            assert (refused.status, refused.header(b"retry-after")) == (503, b"1"), part
        for other in others:
            other.release()
        reader = await follow(home)
        assert b"hi" in (await reader.response(method="GET")).body
        reader.close()


# -- the account -------------------------------------------------------------------------------------------------------


async def test_large_holders_leave_room_for_small_ones(autojump_clock: MockClock) -> None:
    memory = Memory(256 * MIB, lambda: 60 * MIB)
    large, small = Charge(memory), Charge(memory)
    while large.add(MIB):
        pass
    assert small.add(256 * 1024)
    assert not large.add(MIB)
    held = memory.held_bytes
    large.remove(MIB)
    assert memory.held_bytes == held - MIB
    large.release()
    large.release()
    small.release()
    assert memory.held_bytes == 0


async def test_memory_in_use_counts_where_it_is_more_than_was_charged(autojump_clock: MockClock) -> None:
    resident = 60 * MIB
    memory = Memory(256 * MIB, lambda: resident)
    assert memory.allows(100 * MIB, spare=False)
    resident = 200 * MIB
    assert memory.allows(100 * MIB, spare=False)  # it was sampled a moment ago
    await trio.sleep(1)
    assert not memory.allows(100 * MIB, spare=False)
    assert memory.allows(256 * 1024, spare=True)
    assert Memory(None).allows(1024**5, spare=False)


async def test_a_long_line_of_a_tape_is_charged_until_the_next_batch_and_waited_for(tmp_path: Path) -> None:
    memory = Memory()
    async with open_files(tmp_path, warn=print) as store:
        await store.create("stream-1")
        records = [Record(0, 0, "open", {"format": 1}), Record(1, 1, "request", {}, b"x" * MIB), Record(2, 2, "end")]
        await store.append("stream-1", records)
        batches = store.read("stream-1")
        batches.held = Charge(memory)
        seen: list[int] = []
        charged: list[int] = []
        async for batch in batches:
            seen += [record.n for record in batch]
            charged.append(memory.held_bytes)
        assert seen == [0, 1, 2]
        assert max(charged) > 2 * MIB
        assert memory.held_bytes == 0


async def test_memory_in_use_without_a_holder_refuses_no_stream_forever(autojump_clock: MockClock) -> None:
    """An allocator may keep what it got at a peak: no reason to refuse all streams until a restart."""
    resident = 60 * MIB
    memory = Memory(256 * MIB, lambda: resident)
    resident = 700 * MIB
    first, second = Charge(memory), Charge(memory)
    assert first.add(MEMORY_A_STREAM_BYTES)
    assert not second.add(MEMORY_A_STREAM_BYTES)
    first.release()
    assert second.add(MEMORY_A_STREAM_BYTES)
    assert not Charge(memory, small_bytes=0).add(1)


async def test_unfinished_events_of_many_streams_leave_room_for_requests(autojump_clock: MockClock) -> None:
    memory = Memory(256 * MIB, lambda: 60 * MIB)
    streams = [Charge(memory) for _ in range(100)]
    held = [Charge(memory, small_bytes=MEMORY_HELD_SMALL_BYTES) for _ in streams]
    assert all(stream.add(MEMORY_A_STREAM_BYTES) for stream in streams)
    for each in held:
        while each.add(8 * 1024):
            pass
    assert min(each.held_bytes for each in held) == MEMORY_HELD_SMALL_BYTES
    assert Charge(memory).add(MEMORY_A_STREAM_BYTES)
