"""Items that a Responses request names by id (Vercel's `ai`) come from the caller's tapes when it is crossed."""

import json
from typing import Any

from trio.testing import MockClock

from tests.support.dialects import ASKS, PATHS, speaking, values_of
from tests.support.house import House, house
from tests.support.http import Answer
from wiretape.proxy.config.model import Target

CHAT = [Target(name="upstream", url="http://127.0.0.1:9/v1", speaks="chat")]
ME, OTHER = "Authorization: Bearer the-key-of-somebody-0001", "Authorization: Bearer the-key-of-another-0002"
RESULT = {"type": "function_call_output", "call_id": "call_1", "output": "done"}


async def ask(home: House, *headers: str, **changes: Any) -> Answer:
    return await home.ask({**ASKS["responses"], **changes}, *headers, path=PATHS["responses"])


def names_in(answered: Answer) -> list[dict[str, Any]]:
    output = values_of(answered.body)[-1]["response"]["output"]
    return [{"type": "item_reference", "id": item["id"]} for item in output]


async def test_named_items_are_repeated_to_a_chat_upstream(autojump_clock: MockClock) -> None:
    peer = speaking("chat")
    async with house(peer, targets=CHAT) as home:
        names = names_in(await ask(home, ME))
        answered = await ask(home, ME, input=[{"role": "user", "content": "hi"}, *names, RESULT])
        assert answered.status == 200
        said = peer.requests[-1][2]["messages"]
        assert [each["role"] for each in said] == ["user", "assistant", "tool"]
        assert (said[1]["content"], said[1]["tool_calls"][0]["id"]) == ("hello", "call_1")


async def test_named_items_that_may_not_be_used_are_refused_by_place(autojump_clock: MockClock) -> None:
    async with house(speaking("chat"), targets=CHAT) as home:
        kept = names_in(await ask(home, ME))
        not_kept = names_in(await ask(home, ME, store=False))
        for key, names in ((OTHER, kept), (ME, not_kept), (ME, [{"type": "item_reference", "id": "msg_unknown_0"}])):
            answered = await ask(home, key, input=[*names, RESULT])
            error = json.loads(answered.body)["error"]
            assert (answered.status, error["param"]) == (400, "input[0].id")
