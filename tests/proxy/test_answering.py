"""Tool results of a request: linked meanwhile, recorded before the first frame, sent after the first chunk."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from tests.proxy.scripted import Script, chunk, request_of
from tests.proxy.store_cases import fates_in
from tests.support.house import DONE, EPOCH_S, HEAD, House, Peer, finish, frame, house, role, text
from tests.support.http import Answer
from wiretape.events.core.limits import PREVIEW_BYTES_MAX, RESULTS_MAX
from wiretape.events.core.settings import Settings
from wiretape.proxy.limits import LOOK_UP_AGAIN_S
from wiretape.proxy.store.catalogue_row import Alike, CallRow, Wanted
from wiretape.proxy.store.memory import MemoryStore

ME = "Authorization: Bearer somebody"
Call = tuple[str, str, str]


def entry(call: Call) -> dict[str, Any]:
    call_id, name, arguments = call
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def calling(call: Call) -> bytes:
    """Return the frames of a turn that makes this call."""
    return role() + frame({"tool_calls": [{"index": 0, **entry(call)}]}) + finish("tool_calls") + DONE


SAYING = role() + text("done") + finish() + DONE


def upstream(*turns: bytes) -> Script:
    """Return an upstream that plays one turn a request, each a second after it was asked for."""
    left = list(turns)

    async def script(stream: trio.abc.Stream) -> None:
        while await request_of(stream):
            await trio.sleep(1)
            await stream.send_all(HEAD + chunk(left.pop(0)) + b"0\r\n\r\n")

    return script


def user() -> dict[str, Any]:
    return {"role": "user", "content": "do it"}


def called(call: Call) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": [entry(call)]}


def result(call_id: str, content: Any = "ok", **more: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **more}


def asked(*messages: Mapping[str, Any], stream: bool = True) -> dict[str, Any]:
    return {"model": "m", "stream": stream, "messages": list(messages)}


Told = tuple[str, str, int | None]


def told(answer: Answer) -> list[Told]:
    """Status, id and duration of each lifecycle frame."""
    frames = [each for each in answer.body.split(b"\n\n") if each.startswith(b"event: hermes.tool.progress")]
    said = [json.loads(each.partition(b"data: ")[2]) for each in frames]
    return [(each["status"], each["toolCallId"], each.get("duration_ms")) for each in said]


READ: Call = ("call_a", "read", '{"path":"a"}')


async def turn(home: House, *messages: Mapping[str, Any]) -> list[Told]:
    """Make one request to its end; return the lifecycle frames."""
    answer = await home.ask(asked(*messages), ME)
    assert answer.ended == "chunked"
    await home.settled()
    return told(answer)


# -- one call ---------------------------------------------------------------------------------------------------------


async def test_result_frame_follows_the_first_chunk(autojump_clock: MockClock) -> None:
    async with house(Peer(role(), text("done"), finish(), DONE)) as home:
        answer = await home.ask(asked(user(), called(READ), result("call_a", "x" * 5_000_000, is_error=True)), ME)
        frames = answer.body.split(b"\n\n")
        assert b'"role":"assistant"' in frames[0]
        said = json.loads(frames[1].partition(b"data: ")[2])
        assert (said["status"], said["tool"], said["output"]) == ("failed", "read", "x" * PREVIEW_BYTES_MAX)
        assert "duration_ms" not in said
        tape = await home.tape()
        assert sum(len(str(record.keys)) for record in tape) < 10_000  # a large result does not double the tape


# -- the same again ---------------------------------------------------------------------------------------------------


async def test_repeated_conversation_answers_its_own_calls(autojump_clock: MockClock) -> None:
    """Word for word, and with the same ids: its requests are no retries."""
    call: Call = ("call_0", "read", "{}")
    async with house(upstream(*[calling(call), SAYING] * 3)) as home:
        for number in range(3):
            await turn(home, user())
            await trio.sleep(number + 1)
            ((_, _, duration),) = await turn(home, user(), called(call), result("call_0"))
            assert duration is not None
            assert 0 <= duration - (number + 1) * 1_000 < 10
            assert (await home.tape())[3].keys["results"][0]["stream"] == home.streams[2 * number]


# -- what is not sent -------------------------------------------------------------------------------------------------


async def test_hashed_requests_record_no_outputs(autojump_clock: MockClock) -> None:
    async with house(upstream(SAYING), config={"requests": "hash"}) as home:
        answer = await home.ask(asked(user(), called(READ), result("call_a", "secret")), ME)
        assert told(answer) == [("completed", "call_a", None)]
        assert b"secret" not in answer.body
        assert "secret" not in str(await home.tape())


async def test_results_beyond_a_bound_are_counted(autojump_clock: MockClock) -> None:
    async with house(upstream(SAYING)) as home:
        await turn(home, user(), *(result(str(number)) for number in range(RESULTS_MAX + 2)))
        assert (await home.tape())[3].keys["more"] == 2


@pytest.mark.parametrize("kind", ["transparent", "not a stream"])
async def test_unrepaired_streams_link_calls_too(autojump_clock: MockClock, kind: str) -> None:
    profile = Settings(profile="transparent") if kind == "transparent" else None
    async with house(upstream(calling(READ), SAYING), settings=profile) as home:
        await turn(home, user())
        answer = await home.ask(asked(user(), called(READ), result("call_a"), stream=kind == "transparent"), ME)
        await home.settled()
        assert told(answer) == []
        (fate,) = (await fates_in(home.store, home.streams[0], 0)).values()
        assert fate.answered_by == home.streams[1]


# -- in time, or not --------------------------------------------------------------------------------------------------


class _Slow(MemoryStore):
    """A catalogue that takes its time, or fails, or knows a call only the second time."""

    def __init__(self, how: Callable[[int], Awaitable[None]]) -> None:
        super().__init__()
        self.asked_at: list[float] = []
        self._how = how

    async def alike(self, wanted: Sequence[Wanted]) -> Sequence[Alike]:
        self.asked_at.append(trio.current_time())
        await self._how(len(self.asked_at))
        handed_us = int((EPOCH_S + self.asked_at[0]) * 1_000_000) - 7_000  # 7 ms before its result came
        return [([_handed(*one.key, handed_us)] if len(self.asked_at) > 1 else [], []) for one in wanted]


def _handed(caller: str, call: str, name: str, arguments: str, at_us: int) -> CallRow:
    row = CallRow(caller=caller, call=call, stream="stream-of-before", name=name, state="running", handed_us=at_us)
    return replace(row, arguments=arguments)


async def test_slow_catalogue_delays_nothing(autojump_clock: MockClock) -> None:
    async def takes_long(_: int) -> None:
        await trio.sleep(60)

    store = _Slow(takes_long)
    async with house(upstream(SAYING), store=store) as home:
        began = trio.current_time()
        assert await turn(home, user(), called(READ), result("call_a")) == [("completed", "call_a", None)]
        assert trio.current_time() - began < 1.1
    assert len(store.asked_at) == 1


async def test_failing_catalogue_is_only_logged(autojump_clock: MockClock) -> None:
    async def fails(_: int) -> None:
        raise RuntimeError("no such table")

    async with house(upstream(SAYING), store=_Slow(fails)) as home:
        assert await turn(home, user(), called(READ), result("call_a")) == [("completed", "call_a", None)]
        assert [event for _, event, _ in home.log] == ["look_up_failed", "completed"]


async def test_call_whose_stream_ends_a_moment_later_is_linked(autojump_clock: MockClock) -> None:
    """A client has its last frame before the stream has ended."""

    async def at_once(_: int) -> None:
        await trio.lowlevel.checkpoint()

    store = _Slow(at_once)
    async with house(upstream(SAYING), store=store) as home:
        assert await turn(home, user(), called(READ), result("call_a")) == [("completed", "call_a", 7)]
    first, second = store.asked_at
    assert second - first == pytest.approx(LOOK_UP_AGAIN_S[0])
