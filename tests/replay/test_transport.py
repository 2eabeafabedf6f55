"""The in-memory transport: reads, times and endings as over a socket, for httpx and httpx2."""

import asyncio
from typing import Any

import httpx
import httpx2
import openai
import pytest
import trio
from trio.testing import MockClock

from tests.support.chat import DONE, text
from wiretape.replay.playback.script import Fault, Request, Script, Step, event_stream
from wiretape.replay.playback.transport import TapeTransport

PIECES = [b"data: 1\n\n", b"data: 2\n\ndata: 3\n\n", b"data: \xf0\x9f", b"\x98\x80\n\n"]

BOTH = pytest.mark.parametrize("library", [httpx, httpx2], ids=["httpx", "httpx2"])


async def reads(library: Any, script: Script, **how: Any) -> list[tuple[float, bytes]]:
    """Return each read with its time."""
    transport = TapeTransport(lambda _: script)
    began = trio.current_time()
    async with (
        library.AsyncClient(transport=transport, **how) as client,
        client.stream("POST", "https://api.example.com/v1/chat/completions", json={}) as response,
    ):
        return [(trio.current_time() - began, data) async for data in response.aiter_raw()]


@BOTH
def test_outside_a_trio_run_it_explains_what_to_use(library: Any) -> None:
    transport = TapeTransport(lambda _: Script())

    async def ask() -> None:
        async with library.AsyncClient(transport=transport) as client:
            await client.get("http://tape")

    def ask_in_turn() -> None:
        with library.Client(transport=transport) as client:
            client.get("http://tape")

    for asking in (
        lambda: asyncio.run(ask()),
        ask_in_turn,
        lambda: library.Client(transport=transport).get("http://tape"),
    ):
        with pytest.raises(RuntimeError, match=r"for an AsyncClient inside a trio run.*tape\.url"):
            asking()


ENDS = {
    Fault.CUT: "RemoteProtocolError",
    Fault.RESET: "ReadError",
    Fault.STALL: "ReadTimeout",
    Fault.GARBAGE: "RemoteProtocolError",
}


@BOTH
@pytest.mark.parametrize("fault", ENDS)
async def test_a_broken_or_missing_response_raises_the_error_of_its_library(
    library: Any, fault: Fault, autojump_clock: MockClock
) -> None:
    for script in (event_stream(PIECES, end=fault), Script(unanswered=fault)):
        with pytest.raises(getattr(library, ENDS[fault])):
            await reads(library, script, timeout=5)


# The SDK leaves its generators to the collector with any transport.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_the_openai_sdk_streams_through_it(autojump_clock: MockClock) -> None:
    asked: list[Request] = []

    def choose(request: Request) -> Script:
        asked.append(request)
        steps = [Step(gap_s, text(f"{at} ")) for at, gap_s in enumerate([1.0, 60.0, 3.0])]
        return Script(steps=[*steps, Step(0, DONE)])

    transport: Any = TapeTransport(choose)  # which is httpx's by name
    async with (
        httpx2.AsyncClient(transport=transport, timeout=None) as http,
        openai.AsyncOpenAI(api_key="none", http_client=http, max_retries=0) as client,
    ):
        stream = await client.chat.completions.create(model="m", messages=[], stream=True)
        found = [(trio.current_time(), chunk.choices[0].delta.content) async for chunk in stream]
    began = found[0][0] - 1
    assert [(t - began, said) for t, said in found] == [(1, "0 "), (61, "1 "), (64, "2 ")]
    assert asked[0].target == b"/v1/chat/completions"
