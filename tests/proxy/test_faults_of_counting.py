"""Rows 11 to 13 of the fault catalogue: `count_tokens` in front of upstreams that count no tokens."""

import json
from typing import Any

from trio.testing import MockClock

from tests.support.dialects import ASKS, speaking
from tests.support.house import House, house

PATH = "/v1/messages/count_tokens?beta=true"


async def count(home: House, **members: Any) -> int:
    """Return the estimate for a request, which must be marked as one."""
    answered = await home.ask({**ASKS["messages"], **members}, path=PATH)
    assert (answered.status, answered.header(b"x-wiretape-estimated")) == (200, b"true")
    tokens: int = json.loads(answered.body)["input_tokens"]
    return tokens


async def test_fault_11_count_tokens_is_served_in_front_of_a_chat_upstream(autojump_clock: MockClock) -> None:
    async with house(speaking("chat")) as home:
        assert await count(home) > 0


async def test_fault_12_estimate_counts_system_and_tools_and_is_marked(autojump_clock: MockClock) -> None:
    tool = {"name": "read", "description": "word " * 400, "input_schema": {"type": "object"}}
    async with house(speaking("chat")) as home:
        plain = await count(home)
        assert await count(home, system="word " * 400) > plain + 400
        assert await count(home, tools=[tool]) > plain + 400


async def test_fault_13_many_counts_reach_the_upstream_once(autojump_clock: MockClock) -> None:
    async with house(speaking("chat")) as home:
        for _ in range(40):
            await count(home)
        assert len(home.upstream.opened) <= 1
